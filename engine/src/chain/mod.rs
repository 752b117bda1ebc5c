//! The job's state machine: [`advance`] takes the whole chain, one input and the time, and returns the new chain, the
//! effects to perform and the records to keep.
//!
//! A step has two halves. The input is taken: what was seen or asked is written down (`observe`, `report`, `person`). Then the
//! chain settles: whatever its state and the time now call for happens (`settle`, `incident`, `decide`), whichever input brought it
//! about. So nothing depends on the order in which news arrive beyond what they say, and a [`Input::Tick`] is the same as any other input.
//!
//! Choices:
//! - The next attempt is created only after the one before was *seen* to be gone, so two never live, whatever the cluster does.
//! - A budget is charged by the decision, and given back by nobody: a stop during the back-off leaves the restart used.
//! - An in-place restart is decided when the processes of the failed launch are gone everywhere, because only then is it known to be
//!   possible; until then the incident says what it waits for. Other actions are decided as soon as there is a verdict.
//! - Silence proves nothing. A replica whose agent is not heard changes what is shown, never what is done, until the cluster
//!   says what became of it. Only an incident elsewhere may give it up, after [`limits::STOP_SECONDS`].
//! - A limit that passed while nobody could hear the agents has not passed: [`Input::Returned`] puts it off. It is an input and not a
//!   pause of the driver's timer, since any input, the first look at the cluster above all, makes the chain settle.

mod attempt;
mod checks;
mod decide;
mod desired;
mod diagnosing;
mod exit_test;
mod incident;
mod judge;
mod observe;
mod person;
mod report;
mod saving;
mod settle;
mod standstill;
mod summary;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod turn;
mod version;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    failure::{Exit, FailureType},
    ids::{JobId, NodeName, ReplicaName, TaskId},
    job::JobSpec,
    ledger::Meter,
    nodes::Avoided,
    policy::Refusal,
    progress::History,
    record::{AttemptCause, Queue, Record, State, Summary},
    sync::{Desired, PortOffer, Report},
    time::Time,
};
use attempt::{Attempt, Presence};
pub use diagnosing::Awaited;
use diagnosing::Diagnosing;
use incident::{LiveIncident, PastFailure};
use turn::Turn;
use version::Version;

/// Limits of waiting and of what a chain holds. Where no source is named the number is Holdfast's own.
pub mod limits {
    /// The gathering window: how long a verdict waits for the other replicas, milliseconds (design.md §3).
    pub const GATHER_MILLIS: u64 = 2_000;
    /// Where only consequences of another failure were seen so far, the launch goes on for so long that the rank which failed first
    /// can say why, milliseconds. Stopped at once, it might be ended in the middle of its last words.
    pub const LAST_WORDS_MILLIS: u64 = 1_000;
    /// Between TERM and KILL when a launch is stopped, seconds.
    pub const STOP_GRACE_SECONDS: u32 = 10;
    /// A replica that has not stopped this long after an incident is given up, and a removal that is not done is forced,
    /// seconds: the grace and as much again for KILL, reaping and the way there and back.
    pub const STOP_SECONDS: u64 = 30;
    /// Where only consequences of another failure were seen and a replica does not stop, the verdict waits this long since the failure
    /// was noticed for the cluster's word on that replica, seconds: Kubernetes calls a node lost after 50 (node-monitor-grace-period),
    /// its pods are given up 60 later (`--kube-node-lost-seconds`), and both take a moment to be seen.
    pub const CAUSE_SECONDS: u64 = 150;
    /// From the order of a launch until all its processes must have started, seconds.
    pub const START_SECONDS: u64 = 600;
    /// After whoever drives the chain was away, no limit ends for that agents told nothing before this time, seconds. An agent whose
    /// poll hung with the server gives it up after [`POLL_SECONDS`](crate::sync::limits::POLL_SECONDS) and 10, pauses for at most 5 and
    /// takes at most 5 to connect; the rest is for a server that many of them come back to.
    pub const RETURN_SECONDS: u64 = 60;
    /// A start that something on the cluster keeps from happening needs attention after this long, seconds: an image that fails once, or
    /// a volume that is still being attached, has come by then.
    pub const HINDERED_SECONDS: u64 = 60;
    /// An attempt that was accepted and that the cluster has not shown at all for this long has vanished, seconds.
    pub const UNSEEN_SECONDS: u64 = 30;
    /// Silence is mentioned after this long, seconds (ui.md §2).
    pub const SILENCE_SAID_SECONDS: u64 = 120;
    /// The state is unknown after this long, seconds (ui.md §2).
    pub const SILENCE_UNKNOWN_SECONDS: u64 = 600;
    /// The back-off before a resubmission doubles with every attempt in a row that made no new step, up to this, seconds. It
    /// begins with 1 second, so that a single failure costs nothing.
    pub const BACK_OFF_MAX_SECONDS: u64 = 60;
    /// While an attempt waits for the same reason, other words of it are told no more often than this, seconds: a queue's words name
    /// numbers that change with every other job.
    pub const WAIT_TOLD_SECONDS: u64 = 600;
    /// How long after the end of a save's time a replica's word about it may come, seconds: its agent counts the same time, and the word
    /// takes a moment. A pod has as much left (the grace of a launch and 10).
    pub const SAVE_WORD_SECONDS: u64 = 3;
    /// Replicas that are named where a save did not go well.
    pub const SAVES_TOLD: usize = 4;
    /// An agent that was asked for a test of the exit notification says that it began within this time, seconds: its poll is answered at
    /// once, and the next one after a pause of at most 5.
    pub const EXIT_TEST_BEGIN_SECONDS: u64 = 20;
    /// A program that ends so soon after a test, seconds, ends because of it: it has saved, and clears up.
    pub const EXIT_TEST_AFTER_SECONDS: u64 = 30;
    /// Replicas whose answers to a test are kept.
    pub const EXIT_TEST_REPLICAS: usize = 128;
    /// Exits kept for a verdict.
    pub const EXITS: usize = 1024;
    /// Lines of evidence kept for a verdict.
    pub const EVIDENCE: usize = 512;
    /// Kinds of failures remembered to notice a repeat.
    pub const PAST_FAILURES: usize = 8;
    /// Characters of a cluster's own words that are kept.
    pub const TEXT_CHARS: usize = 500;
}

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
        /// At once: what cannot be removed is left behind. Only a person's word sets it, never a limit that is over.
        #[serde(default)]
        force: bool,
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
    /// A test of Exit ckpt Notification (R18).
    TestExit,
    /// No attention needed.
    Acknowledge,
    /// A diagnosis of its nodes is over. The next attempts keep off the suspects, as far as the cap allows.
    Diagnosed {
        /// Which.
        run_id: String,
        /// What it found, a sentence.
        text: String,
        /// Confirmed suspects.
        suspects: Vec<NodeName>,
        /// The attempt whose nodes it tested. A chain that waits for that goes on.
        #[serde(default)]
        task_id: Option<TaskId>,
    },
    /// The diagnosis that it waits for cannot be begun.
    Undiagnosed {
        /// The attempt whose nodes were to be tested.
        task_id: TaskId,
        /// Why, a sentence.
        why: String,
    },
    /// A node was released: the next attempt need not keep off it any more.
    Readmit {
        /// Which.
        node: NodeName,
    },
    /// Nothing: somebody did something outside of the job that concerns it, which its history tells.
    Note {
        /// A sentence.
        text: String,
    },
}

/// What the cluster shows of one attempt now. A level, not an event: it may be given any number of times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observation {
    /// Nothing of this attempt exists.
    Absent,
    /// It exists and waits for resources.
    Waiting(Queue),
    /// It exists, and whatever it had was taken back from it, by its queue or by hand: it waits to be let in again. How what is left of
    /// it ends says nothing about it.
    Suspended(Queue),
    /// It has its resources.
    Placed {
        /// Every replica that exists or existed.
        replicas: BTreeMap<ReplicaName, ReplicaObservation>,
    },
}

/// One replica as the cluster shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaObservation {
    /// Where it is; none where it is over and never had a node, or where the cluster does not say any more.
    pub node: Option<NodeName>,
    /// How it is.
    pub status: ReplicaStatus,
}

/// How a replica is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaStatus {
    /// Being started; the text is whose turn it is before, if the cluster says.
    Pending(Option<String>),
    /// Something keeps it from starting that may end by itself; the text is what the cluster says.
    Blocked(String),
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
    /// Whoever drives the chain begins to, or does so again after it could keep nothing: agents may have been unheard until now.
    Returned,
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
    /// The removal of an attempt was asked for, and it may still be there.
    Kept {
        /// Which.
        task_id: TaskId,
        /// What keeps it now, and what to do about that; none where nothing is known to.
        text: Option<String>,
    },
    /// The cluster answered that it does not take the attempt for now. Its creation is tried again.
    Delayed {
        /// Which.
        task_id: TaskId,
        /// Why.
        queue: Queue,
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
    /// The nodes of the cluster that are kept out for every job now. The next attempt keeps off them; one that was ordered stays as it is.
    KeptOut {
        /// All of them.
        nodes: BTreeSet<NodeName>,
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
    /// The only nodes it may run on, one replica on each; empty: any. A group of a diagnosis has them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub only: BTreeSet<NodeName>,
    /// Those of them that only a quarantine keeps it off. A cluster that knows when one ends lets the attempt on that node.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub quarantined: BTreeSet<NodeName>,
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
    version: Version,
    job_id: JobId,
    spec: JobSpec,
    intent: Intent,
    /// The newest attempt.
    attempt: Attempt,
    course: Course,
    /// The newest incident, until its recovery is complete or given up.
    incident: Option<LiveIncident>,
    past: Vec<PastFailure>,
    failure_type: Option<FailureType>,
    task_restarts_used: u32,
    in_place_total: u32,
    /// Attempts in a row that ended without a step beyond what had been reached before.
    fruitless: u32,
    avoided: Avoided,
    /// Nodes that are kept out for every job, as was last told.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    kept_out: BTreeSet<NodeName>,
    history: History,
    meter: Meter,
    /// Since when the cluster has not been heard.
    cluster_silent: Option<Time>,
    acknowledged: bool,
    /// The time of the last step; the chain's time never runs backwards.
    at: Time,
}

/// Where the chain is going.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Course {
    /// With the newest attempt.
    Attempt,
    /// To another attempt, once the newest is gone and the back-off is over.
    Next { cause: AttemptCause, not_before: Time },
    /// To another attempt, once a diagnosis of the newest one's nodes is over.
    Diagnosing(Box<Diagnosing>),
    /// To a person's end, once the newest attempt is gone.
    Stopping,
    /// Nowhere: it has ended.
    Ended { state: State, why: Option<Refusal> },
    /// It has ended and was deleted; its rows may go.
    Forgetting { state: State },
}

impl Chain {
    /// The chain of a new job: its first attempt is ordered at once.
    pub fn start(job_id: JobId, spec: JobSpec, now: Time) -> Step {
        Self::start_beside(job_id, spec, BTreeSet::new(), now)
    }

    /// The same where nodes of its cluster are kept out for every job.
    pub fn start_beside(job_id: JobId, spec: JobSpec, kept_out: BTreeSet<NodeName>, now: Time) -> Step {
        Self::start_where(job_id, spec, kept_out, BTreeSet::new(), now)
    }

    /// The same on exactly these nodes, one replica on each, whatever is held against them: a group of a diagnosis.
    pub fn start_on(job_id: JobId, spec: JobSpec, only: BTreeSet<NodeName>, now: Time) -> Step {
        Self::start_where(job_id, spec, BTreeSet::new(), only, now)
    }

    fn start_where(
        job_id: JobId,
        spec: JobSpec,
        kept_out: BTreeSet<NodeName>,
        only: BTreeSet<NodeName>,
        now: Time,
    ) -> Step {
        let history = History::default();
        let off = (BTreeSet::new(), &kept_out);
        let order = Attempt::order(&job_id, &spec, 1, AttemptCause::Initial, off, &history, now);
        let attempt = Attempt { only, ..order };
        let chain = Self {
            version: Version,
            job_id,
            spec,
            intent: Intent::Run,
            attempt,
            course: Course::Attempt,
            incident: None,
            past: Vec::new(),
            failure_type: None,
            task_restarts_used: 0,
            in_place_total: 0,
            fruitless: 0,
            avoided: Avoided::default(),
            kept_out,
            history,
            meter: Meter::default(),
            cluster_silent: None,
            acknowledged: false,
            at: now,
        };
        Turn::begin(chain)
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
        summary::of(self, now.max(self.at))
    }

    /// The attempt that may exist on the cluster now; the driver observes this one.
    pub fn live_task(&self) -> Option<&TaskId> {
        (self.attempt.presence != Presence::Gone).then_some(&self.attempt.task_id)
    }

    /// Effects that are ordered and not yet answered, the same as were given by the step that ordered them. After a
    /// crash of the server they are performed again.
    pub fn pending_effects(&self) -> Vec<Effect> {
        match (&self.attempt.presence, &self.course) {
            (Presence::Ordered, _) => vec![Effect::Create(self.plan())],
            (Presence::Removing { force, .. }, _) => {
                vec![Effect::Delete { task_id: self.attempt.task_id.clone(), force: *force }]
            }
            (Presence::Gone, Course::Forgetting { .. }) => vec![Effect::Forget],
            (Presence::Gone | Presence::Exists { .. }, _) => Vec::new(),
        }
    }

    /// When a [`Input::Tick`] is due next.
    pub fn wake_at(&self) -> Option<Time> {
        settle::wake_at(self)
    }

    /// The newest report taken from a replica of an attempt. Of an attempt that is not the newest every report counts as taken,
    /// so that its last agents can let go of theirs.
    pub fn acknowledged(&self, task: &TaskId, replica: &ReplicaName) -> u64 {
        if *task != self.attempt.task_id {
            return i64::MAX as u64;
        }
        self.attempt.replica(replica).map_or(0, |index| self.attempt.replicas[index].taken)
    }

    /// What a replica of an attempt shall do now. `rendezvous` is the first replica's address and the port it offers; a launch
    /// whose port is not known yet is `Wait`. A replica that is not of the live attempt gets `Exit`.
    pub fn desired(
        &self,
        task: &TaskId,
        replica: &ReplicaName,
        rendezvous: Option<(&str, PortOffer)>,
    ) -> Desired {
        desired::of(self, task, replica, rendezvous)
    }

    /// Whether time alone may order an attempt: before such a step the chain has to be told which nodes are kept out.
    pub fn may_order(&self) -> bool {
        matches!(self.course, Course::Next { .. })
    }

    /// The nodes that are kept out for every job, as it was last told.
    pub fn kept_out(&self) -> &BTreeSet<NodeName> {
        &self.kept_out
    }

    /// Nodes it keeps off for reasons of its own, the next attempt's.
    pub fn own_avoided(&self) -> BTreeSet<NodeName> {
        self.avoided.nodes()
    }

    /// The diagnosis that it waits for; none: it waits for none.
    pub fn awaited(&self) -> Option<Awaited> {
        diagnosing::awaited(self)
    }

    /// Why Exit ckpt Notification cannot be tested now, a sentence; none where it can.
    pub fn refuses_exit_test(&self) -> Option<String> {
        exit_test::refusal(self)
    }

    /// Which launch needs a rendezvous port now.
    pub fn launch_number(&self) -> u32 {
        self.attempt.launch.number
    }

    /// Whether nothing differs but the time: the step between the two need not be kept, the next one makes up for it.
    pub fn is_same_but_for_time(&self, other: &Self) -> bool {
        let Self {
            version: _,
            job_id,
            spec,
            intent,
            attempt,
            course,
            incident,
            past,
            failure_type,
            task_restarts_used,
            in_place_total,
            fruitless,
            avoided,
            kept_out,
            history,
            // What the meter counts follows from the time and the rest.
            meter: _,
            cluster_silent,
            acknowledged,
            at: _,
        } = self;
        *attempt == other.attempt
            && *course == other.course
            && *intent == other.intent
            && *incident == other.incident
            && *cluster_silent == other.cluster_silent
            && *acknowledged == other.acknowledged
            && *failure_type == other.failure_type
            && *task_restarts_used == other.task_restarts_used
            && *in_place_total == other.in_place_total
            && *fruitless == other.fruitless
            && *avoided == other.avoided
            && *kept_out == other.kept_out
            && *history == other.history
            && *past == other.past
            && *job_id == other.job_id
            && *spec == other.spec
    }

    fn plan(&self) -> Plan {
        let number = self.attempt.number;
        Plan {
            task_id: self.attempt.task_id.clone(),
            number,
            previous_task_id: (number > 1)
                .then(|| TaskId::of_attempt(&self.spec.name, &self.job_id, number - 1)),
            avoid: self.attempt.avoid.clone(),
            only: self.attempt.only.clone(),
            quarantined: self.attempt.quarantined.clone(),
        }
    }
}

/// Advances a chain by one input. Same chain, same input, same time: same step, for ever.
pub fn advance(chain: &Chain, input: &Input, now: Time) -> Step {
    let mut turn = Turn::new(chain, now);
    match input {
        Input::Tick => {}
        Input::Returned => turn.take_return(),
        Input::Request { request, by } => turn.take_request(request, by),
        Input::Created { task_id } => turn.take_created(task_id),
        Input::Refused { task_id, text } => turn.take_refused(task_id, text),
        Input::Kept { task_id, text } => turn.take_kept(task_id, text.as_deref()),
        Input::Delayed { task_id, queue } => turn.take_delayed(task_id, queue),
        Input::Observed { task_id, observation } => turn.take_observation(task_id, observation),
        Input::Silent { task_id, replica, since } => {
            turn.take_silence(task_id, replica.as_ref(), Some(*since));
        }
        Input::Heard { task_id, replica } => turn.take_silence(task_id, replica.as_ref(), None),
        Input::KeptOut { nodes } => turn.chain.kept_out.clone_from(nodes),
        Input::Report { task_id, replica, report } => turn.take_report(task_id, replica, report),
    }
    turn.settle();
    turn.finish(chain)
}
