//! The job's state machine: [`advance`] takes the whole chain, one input and the time, and returns the new chain, the
//! effects to perform and the records to keep.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    failure::Exit,
    ids::{JobId, NodeName, ReplicaName, TaskId},
    job::JobSpec,
    record::{Queue, Record, Summary},
    sync::{Desired, PortOffer, Report},
    time::Time,
};

/// What people want. Never overwritten by what was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Intent {
    /// It shall run to its end.
    Run,
    /// A person stopped it.
    Stop {
        /// Who.
        by: String,
    },
    /// A person deleted it: stop, then forget.
    Delete {
        /// Who.
        by: String,
    },
}

/// What a person asks of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Stop it; `force` skips the exit notification.
    Stop {
        /// At once.
        force: bool,
    },
    /// Stop it and forget it.
    Delete {
        /// At once.
        force: bool,
    },
    /// A new attempt of a job that has ended (R29): not charged, refills nothing.
    Resubmit,
    /// No attention needed.
    Acknowledge,
}

/// What the cluster shows of one attempt now. A level, not an event: it may be given any number of times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observation {
    /// Nothing of this attempt exists.
    Absent,
    /// It exists and waits for resources.
    Waiting(Queue),
    /// It has its resources.
    Placed {
        /// Every replica that exists or existed.
        replicas: BTreeMap<ReplicaName, ReplicaObservation>,
    },
}

/// One replica as the cluster shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaObservation {
    /// Where it is.
    pub node: NodeName,
    /// How it is.
    pub status: ReplicaStatus,
}

/// How a replica is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaStatus {
    /// Being started; the text is what it waits for, if the cluster says.
    Pending(Option<String>),
    /// Its agent or container runs.
    Running,
    /// It is over.
    Ended {
        /// How its main process ended, where that is known.
        exit: Option<Exit>,
        /// What the cluster says about it.
        reason: EndReason,
    },
}

/// Why a replica is over, in the cluster's view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// It exited by itself.
    Exited,
    /// Killed for its memory.
    OomKilled,
    /// Preempted, drained, evicted for maintenance: no failure of the job.
    Preempted(String),
    /// Evicted because its node was short of something.
    Evicted(String),
    /// The node is gone.
    NodeLost(String),
    /// It never started: image, mount, configuration.
    StartError(String),
    /// It disappeared without a word: the agent was killed, the object was deleted by someone else.
    Lost(String),
}

/// Something new for a chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// Time has passed; see [`Chain::wake_at`].
    Tick,
    /// A person asks for something.
    Request {
        /// What.
        request: Request,
        /// Who.
        by: String,
    },
    /// The cluster accepted the attempt, or it was there already and is ours.
    Created {
        /// Which.
        task_id: TaskId,
    },
    /// The cluster refused the attempt for good; nothing of it runs.
    Refused {
        /// Which.
        task_id: TaskId,
        /// The cluster's words.
        text: String,
    },
    /// What the cluster shows.
    Observed {
        /// Which attempt.
        task_id: TaskId,
        /// What.
        observation: Observation,
    },
    /// The cluster, or the agent of one replica, has not been heard since. Never a failure by itself.
    Silent {
        /// Which attempt.
        task_id: TaskId,
        /// Which replica; none means the cluster itself.
        replica: Option<ReplicaName>,
        /// When it was last heard.
        since: Time,
    },
    /// It is heard again.
    Heard {
        /// Which attempt.
        task_id: TaskId,
        /// Which replica; none means the cluster itself.
        replica: Option<ReplicaName>,
    },
    /// News from a replica. A sequence number that was taken already changes nothing.
    Report {
        /// Which attempt.
        task_id: TaskId,
        /// Which replica.
        replica: ReplicaName,
        /// What.
        report: Report,
    },
}

/// Something to do in the world. Each is idempotent and is performed after the step is committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Make the attempt on the cluster; answered by [`Input::Created`] or [`Input::Refused`].
    Create(Plan),
    /// Remove all of the attempt from the cluster; answered by an observation that it is absent.
    Delete {
        /// Which.
        task_id: TaskId,
        /// Do not wait for processes to end by themselves.
        force: bool,
    },
    /// All of the deleted job is gone from the cluster: drop its rows, logs and checkpoints.
    Forget,
}

/// What an attempt is made of, beside the job's spec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Its id and object name.
    pub task_id: TaskId,
    /// From 1.
    pub number: u32,
    /// The attempt before.
    pub previous_task_id: Option<TaskId>,
    /// Nodes it must not run on.
    pub avoid: BTreeSet<NodeName>,
}

/// What follows from one input.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The chain afterwards.
    pub chain: Chain,
    /// What to do, in order.
    pub effects: Vec<Effect>,
    /// What to keep, in order.
    pub records: Vec<Record>,
}

/// One job's chain: what people want, what was seen, what was decided. It holds the newest attempt in full and of the older
/// ones only what later decisions need; their history is in the records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chain {
    job_id: JobId,
    spec: JobSpec,
    intent: Intent,
}

impl Chain {
    /// The chain of a new job: its first attempt is ordered at once.
    pub fn start(job_id: JobId, spec: JobSpec, now: Time) -> Step {
        let _ = (job_id, spec, now);
        todo!()
    }

    /// The job.
    pub fn job_id(&self) -> &JobId {
        &self.job_id
    }

    /// What the job is made of.
    pub fn spec(&self) -> &JobSpec {
        &self.spec
    }

    /// What people want.
    pub fn intent(&self) -> &Intent {
        &self.intent
    }

    /// Everything about the job as a whole, for lists and the head of pages.
    pub fn summary(&self, now: Time) -> Summary {
        let _ = now;
        todo!()
    }

    /// The attempt that may exist on the cluster now; the driver observes this one.
    pub fn live_task(&self) -> Option<&TaskId> {
        todo!()
    }

    /// Effects that are ordered and not yet answered, the same as were given by the step that ordered them. After a
    /// crash of the server they are performed again.
    pub fn pending_effects(&self) -> Vec<Effect> {
        todo!()
    }

    /// When a [`Input::Tick`] is due next.
    pub fn wake_at(&self) -> Option<Time> {
        todo!()
    }

    /// The newest report taken from a replica of an attempt.
    pub fn acknowledged(&self, task: &TaskId, replica: &ReplicaName) -> u64 {
        let _ = (task, replica);
        todo!()
    }

    /// What a replica of an attempt shall do now. `rendezvous` is the first replica's address and the port it offers; a launch
    /// whose port is not known yet is `Wait`. A replica that is not of the live attempt gets `Exit`.
    pub fn desired(
        &self,
        task: &TaskId,
        replica: &ReplicaName,
        rendezvous: Option<(&str, PortOffer)>,
    ) -> Desired {
        let _ = (task, replica, rendezvous);
        todo!()
    }

    /// Which launch needs a rendezvous port now.
    pub fn launch_number(&self) -> u32 {
        todo!()
    }
}

/// Advances a chain by one input. Same chain, same input, same time: same step, for ever.
pub fn advance(chain: &Chain, input: &Input, now: Time) -> Step {
    let _ = (chain, input, now);
    todo!()
}
