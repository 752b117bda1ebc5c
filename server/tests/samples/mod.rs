//! Records and chains as the engine would make them, small.

use engine::{
    chain::{Chain, Input, Request, advance},
    failure::{Confidence, FailureType, Phase},
    ids::{IncidentId, JobId, NodeName, ReplicaName, TaskId},
    job::{JobDraft, JobKind, Mode, Site},
    record::{
        Action, AttemptCause, AttemptRecord, Budget, Budgets, Clock, Cost, DecisionRecord, Diagnostics,
        EventKind, EventReason, EventRecord, IncidentRecord, LaunchCause, LaunchRecord, Ledger, PointsRecord,
        Proof, ProofVerdict, Record, StacksRecord, State, StrikeRecord, Substate, Summary, Used,
    },
    sync::{Point, RankStack},
    time::Time,
};
use server::store::steps::{Head, Kept, Origin};

/// A time some seconds after the beginning of 2026.
pub fn at(seconds: u64) -> Time {
    Time(1_767_225_600_000_000).plus_seconds(seconds)
}

/// The id of job `n`.
pub fn job_id(n: u32) -> JobId {
    JobId::new(format!("j{n:011}")).unwrap()
}

/// The id of attempt `number` of job `n`.
pub fn task_id(n: u32, number: u32) -> TaskId {
    TaskId::of_attempt("demo", &job_id(n), number)
}

/// A job with what a step of it leaves behind.
pub struct Sample {
    pub chain: Chain,
    pub owner: String,
    pub copied_from: Option<JobId>,
    head: Head,
    records: Vec<Record>,
    now: Time,
}

impl Sample {
    /// Job `n`, which lives, with one entry of its history.
    pub fn new(n: u32) -> Self {
        let spec =
            JobDraft { name: "demo".to_owned(), command: vec!["true".to_owned()], ..JobDraft::default() }
                .validate(&Site::default())
                .unwrap();
        let now = at(0);
        Self {
            chain: Chain::start(job_id(n), spec, now).chain,
            owner: "ann".to_owned(),
            copied_from: None,
            head: Head { summary: summary(n), live: true },
            records: vec![Record::Event(event(1, EventKind::State, None))],
            now,
        }
    }

    pub fn origin(&self) -> Origin<'_> {
        Origin { owner: &self.owner, copied_from: self.copied_from.as_ref() }
    }

    pub fn kept(&self) -> Kept<'_> {
        Kept { chain: &self.chain, head: &self.head, records: &self.records, now: self.now }
    }

    pub fn at(mut self, seconds: u64) -> Self {
        self.now = at(seconds);
        self
    }

    pub fn name(self, name: &str) -> Self {
        self.respec("name", name)
    }

    pub fn kind(self, kind: JobKind) -> Self {
        self.respec("kind", kind.as_str())
    }

    /// The engine has no way to rename a job, and needs none.
    fn respec(mut self, field: &str, value: &str) -> Self {
        let mut chain = serde_json::to_value(&self.chain).unwrap();
        chain["spec"][field] = value.into();
        self.chain = serde_json::from_value(chain).unwrap();
        self
    }

    pub fn owner(mut self, owner: &str) -> Self {
        self.owner = owner.to_owned();
        self
    }

    pub fn state(mut self, state: State) -> Self {
        self.head.summary.state = state;
        self
    }

    pub fn substate(mut self, substate: Substate, tail: &str) -> Self {
        self.head.summary.substate = Some(substate);
        self.head.summary.tail = tail.to_owned();
        self
    }

    pub fn restarts(mut self, used: u32) -> Self {
        self.head.summary.budgets.task_restarts.used = used;
        self
    }

    pub fn fault(mut self, failure_type: FailureType) -> Self {
        self.head.summary.failure_type = Some(failure_type);
        self
    }

    pub fn attention(mut self) -> Self {
        self.head.summary.needs_attention = true;
        self
    }

    pub fn idle(mut self) -> Self {
        self.head.live = false;
        self
    }

    /// The job keeps off these from its next attempt on, as a diagnosis found.
    pub fn suspects(mut self, nodes: &[&NodeName]) -> Self {
        let suspects = nodes.iter().map(|node| (*node).clone()).collect();
        let request =
            Request::Diagnosed { run_id: "d1".to_owned(), text: String::new(), suspects, task_id: None };
        let input = Input::Request { request, by: "holdfast".to_owned() };
        self.chain = advance(&self.chain, &input, self.now).chain;
        self
    }

    /// What it has used, from its start on.
    pub fn used(mut self, ledger: Ledger) -> Self {
        self.head.summary.ledger = ledger;
        self
    }

    pub fn records(mut self, records: Vec<Record>) -> Self {
        self.records = records;
        self
    }
}

fn summary(n: u32) -> Summary {
    Summary {
        state: State::Queued,
        substate: None,
        tail: String::new(),
        mode: Mode::None,
        original_task_id: task_id(n, 1),
        latest_task_id: task_id(n, 1),
        attempts_total: 1,
        kept: None,
        saving_until: None,
        budgets: Budgets {
            task_restarts: Used::default(),
            in_place_restarts: Used::default(),
            hang_restarts: Used::default(),
            diagnostics: Diagnostics::default(),
        },
        why_not: None,
        ledger: Ledger::default(),
        reached_step: None,
        saved_step: None,
        total_steps: None,
        longest_quiet: None,
        failure_type: None,
        needs_attention: false,
        stopped_by: None,
    }
}

pub fn attempt(n: u32, number: u32) -> AttemptRecord {
    AttemptRecord {
        task_id: task_id(n, number),
        number,
        cause: AttemptCause::Initial,
        state: State::Running,
        result: None,
        failure_type: None,
        fault: None,
        submitted_at: Some(at(1)),
        placed_at: None,
        started_at: None,
        ended_at: None,
        nodes: Vec::new(),
        avoided_nodes: Vec::new(),
        quarantined_nodes: Vec::new(),
        in_place_restarts: 0,
        hang_restarts: 0,
        queue: None,
        exit_checkpoint: None,
        exit_test: None,
    }
}

pub fn launch(number: u32) -> LaunchRecord {
    LaunchRecord {
        number,
        cause: LaunchCause::Initial,
        started_at: Some(at(2)),
        ended_at: None,
        steps: None,
        proof: Proof {
            resources: Default::default(),
            checkpoint: Default::default(),
            progress: Default::default(),
            new_checkpoint: Default::default(),
            verdict: ProofVerdict::Pending,
        },
        health_checks: None,
    }
}

/// Stacks of these ranks, of which there are none.
pub fn stacks(launch: u32, ranks: &[u32]) -> StacksRecord {
    let stack = |rank: &u32| RankStack {
        rank: *rank,
        at: at(3),
        threads: Vec::new(),
        omitted_threads: 0,
        missing: Some("not Python".to_owned()),
    };
    StacksRecord { launch, replica: "master-0".parse().unwrap(), stacks: ranks.iter().map(stack).collect() }
}

pub fn incident(task: &TaskId, number: u32) -> IncidentRecord {
    IncidentRecord {
        id: IncidentId::of_attempt(task, number),
        at: at(3),
        launch: 0,
        failure_type: FailureType::HwNode,
        confidence: Confidence::High,
        phase: Phase::Training,
        step: Some(141),
        cascade_ranks: 1,
        root: None,
        fault: "Xid 79 on n2, rank 1".to_owned(),
        hint: None,
        evidence: Vec::new(),
        hang: None,
        fingerprint: "hw".to_owned(),
        repeats: false,
        decision: DecisionRecord {
            action: Action::Resubmit,
            rule: "hw-node-avoid".to_owned(),
            policy_version: 1,
            reason: "The node is suspected.".to_owned(),
            charged: Budget::TaskRestarts,
            before: 0,
            after: 1,
            allowed: Some(2),
            avoid: Vec::new(),
            next_at: None,
            next_task_id: None,
        },
        diagnosed: None,
        clock: Clock { noticed_at: at(3), submitted_at: None, resources_at: None, first_step_at: None },
        cost: Cost::default(),
        right: None,
    }
}

pub fn event(seconds: u64, kind: EventKind, task_id: Option<&TaskId>) -> EventRecord {
    EventRecord {
        at: at(seconds),
        kind,
        reason: (kind == EventKind::Decision).then_some(EventReason::Resubmit),
        task_id: task_id.cloned(),
        by: "holdfast".to_owned(),
        text: "It's <b>queued</b>.".to_owned(),
    }
}

pub fn points(launch: u32, steps: &[u64]) -> PointsRecord {
    let point = |step: &u64| Point {
        step: *step,
        at: at(*step),
        loss: Some(1.0 / (*step as f64 + 1.0)),
        samples: None,
        total: Some(200),
    };
    PointsRecord {
        launch,
        replica: ReplicaName::of_index(JobKind::PyTorchJob, 0),
        points: steps.iter().map(point).collect(),
    }
}

pub fn strike(node: &NodeName, task: &TaskId, number: u32, seconds: u64) -> StrikeRecord {
    StrikeRecord {
        node: node.clone(),
        at: at(seconds),
        incident: IncidentId::of_attempt(task, number),
        failure_type: FailureType::HwNode,
        text: "Xid 79".to_owned(),
    }
}
