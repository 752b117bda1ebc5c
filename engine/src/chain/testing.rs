//! Jobs and a small world for tests. The world plays cluster and agents by hand, and asserts after every step what must
//! hold of every chain (design.md §5).

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::{
    failure::{Evidence, FailureType, Phase, Role},
    job::{FaultTolerance, JobDraft, Site},
    record::{
        Action, AttemptRecord, Budget, EventRecord, IncidentRecord, LaunchRecord, SaveOutcome, Substate,
    },
    sync::{CheckpointEvent, Point, ReportBody},
};

/// A small valid job with Auto Failover off.
pub(crate) fn spec(replicas: u32) -> JobSpec {
    let draft = JobDraft {
        name: "demo".to_owned(),
        command: vec!["python3".to_owned(), "train.py".to_owned()],
        ..JobDraft::default()
    };
    let valid = draft.validate(&Site::default()).unwrap();
    let mut fault_tolerance = FaultTolerance::default();
    // Jobs that check are those of tests about checks.
    fault_tolerance.health_checks.enabled = false;
    JobSpec { replicas, fault_tolerance, ..valid }
}

/// Basic mode with this many task restarts.
pub(crate) fn basic(replicas: u32, restarts: u32) -> JobSpec {
    let mut spec = spec(replicas);
    spec.fault_tolerance.auto_failover = true;
    spec.fault_tolerance.max_task_restarts = restarts;
    spec
}

/// Full mode: By exit code and error message, 3 restarts in place, 1 after a hang.
pub(crate) fn full(replicas: u32, restarts: u32) -> JobSpec {
    let mut spec = basic(replicas, restarts);
    spec.fault_tolerance.policy.enabled = true;
    spec.fault_tolerance.hang_detection.enabled = true;
    spec
}

/// Names of tests read better with short ones.
pub(crate) fn node(number: usize) -> NodeName {
    NodeName::new(format!("n{number}")).unwrap()
}

/// When a world begins.
const START: Time = Time(1_764_446_400_000_000);

pub(crate) struct World {
    pub chain: Chain,
    pub now: Time,
    pub records: Vec<Record>,
    pub effects: Vec<Effect>,
    sequences: BTreeMap<(TaskId, usize), u64>,
    /// What may exist on the cluster.
    live: BTreeSet<TaskId>,
    /// What explained a change of a budget: incident and budget.
    charges: BTreeSet<(String, &'static str)>,
    charged: BTreeMap<&'static str, u32>,
    /// Attempts made after a failure.
    by_failure: BTreeSet<u32>,
    inputs: usize,
    /// Steps whose chain is stored and read again: every n-th, since that takes most of a test's time.
    stored_every: usize,
}

fn budget_name(budget: Budget) -> &'static str {
    match budget {
        Budget::TaskRestarts => "task",
        Budget::InPlaceRestarts => "in place",
        Budget::HangRestarts => "hang",
        Budget::None => "none",
    }
}

impl World {
    pub fn new(spec: JobSpec) -> Self {
        let now = START;
        let spec_replicas = spec.replicas;
        let step = Chain::start(JobId::new("jabcdefghij2").unwrap(), spec, now);
        let mut world = Self {
            chain: step.chain.clone(),
            now,
            records: Vec::new(),
            effects: Vec::new(),
            sequences: BTreeMap::new(),
            live: BTreeSet::new(),
            charges: BTreeSet::new(),
            charged: BTreeMap::new(),
            by_failure: BTreeSet::new(),
            inputs: 0,
            stored_every: if spec_replicas > 16 { 1024 } else { 4 },
        };
        world.keep(step);
        world
    }

    fn keep(&mut self, step: Step) {
        for effect in &step.effects {
            if let Effect::Create(plan) = effect {
                self.live.insert(plan.task_id.clone());
                assert_eq!(self.live.len(), 1, "never two live attempts: {:?}", self.live);
                assert!(plan.avoid.difference(&plan.quarantined).count() <= step.chain.avoided.cap());
                assert_eq!(step.chain.intent, Intent::Run, "nothing starts after stop");
            }
        }
        for record in &step.records {
            match record {
                Record::Attempt(attempt) => {
                    let initial = attempt.cause == AttemptCause::Initial;
                    assert_eq!(attempt.number == 1, initial, "every attempt but the first has a cause");
                    assert_eq!(attempt.state.is_terminal(), attempt.result.is_some(), "{attempt:?}");
                    if attempt.cause == AttemptCause::Failure {
                        self.by_failure.insert(attempt.number);
                    }
                }
                Record::Incident(_, incident) if incident.decision.charged != Budget::None => {
                    let name = budget_name(incident.decision.charged);
                    if self.charges.insert((incident.id.to_string(), name)) {
                        *self.charged.entry(name).or_default() += 1;
                        assert_eq!(incident.decision.after, incident.decision.before + 1);
                        assert!(Some(incident.decision.after) <= incident.decision.allowed);
                    }
                }
                _ => {}
            }
        }
        self.records.extend(step.records);
        self.effects = step.effects;
        self.chain = step.chain;
        self.check();
    }

    fn check(&self) {
        let (chain, summary) = (&self.chain, self.chain.summary(self.now));
        let charged = |name: &str| self.charged.get(name).copied().unwrap_or_default();
        assert_eq!(charged("task"), chain.task_restarts_used, "every charge has one record");
        assert_eq!(
            charged("in place") + charged("hang"),
            chain.in_place_total,
            "every charge has one record"
        );
        assert!(chain.task_restarts_used <= chain.spec.fault_tolerance.max_task_restarts);
        assert!(self.by_failure.len() as u32 <= chain.task_restarts_used, "attempts within the budget");
        if matches!(summary.state, State::Failed | State::Stopped) {
            let why = summary.why_not.expect("every refusal has a reason");
            assert!(!why.text.is_empty() && !why.next.is_empty());
        }
        if chain.intent != Intent::Run {
            for index in 0..chain.attempt.replicas.len() {
                let desired = self.desired(index);
                let saves = summary.state == State::Saving && matches!(desired, Desired::Save { .. });
                assert!(saves || desired == Desired::Exit, "nothing runs after stop: {desired:?}");
            }
        }
        let save = chain.attempt.exit_checkpoint.as_ref();
        let is_saving = matches!(&chain.attempt.stage, attempt::Stage::Saving(saving) if saving.goes_on());
        assert_eq!(is_saving, save.is_some_and(|save| save.outcome == SaveOutcome::Saving), "{save:?}");
        assert!(save.is_none() || chain.spec.fault_tolerance.exit_checkpoint.enabled);
        assert_eq!(summary.state == State::Saving, is_saving);
        assert!(chain.past.len() <= limits::PAST_FAILURES);
        let ledger = summary.ledger;
        let held = ledger.kept + ledger.stalled + ledger.starting + ledger.redone;
        let counted = held / crate::ledger::accelerators(&chain.spec) + ledger.queued_seconds;
        let passed = self.now.seconds_since(START);
        assert!(counted <= passed + 1e-3, "{counted} s of {passed} s: {ledger:?}");
        for part in [ledger.kept, ledger.stalled, ledger.starting, ledger.redone, ledger.queued_seconds] {
            assert!(part >= 0.0, "{ledger:?}");
        }
        if let Some(at) = chain.wake_at() {
            assert!(at > self.now, "a wake-up lies ahead");
        }
    }

    /// One input; every step is checked, and that it is the same again.
    pub fn give(&mut self, input: Input) -> &mut Self {
        let ended = self.chain.course.has_ended();
        let state = summary::state(&self.chain);
        let step = advance(&self.chain, &input, self.now);
        self.inputs += 1;
        if self.inputs.is_multiple_of(self.stored_every) {
            assert_eq!(step, advance(&self.chain, &input, self.now), "the same step again");
            let text = serde_json::to_string(&step.chain).unwrap();
            assert_eq!(serde_json::from_str::<Chain>(&text).unwrap(), step.chain, "stored and read again");
        }
        let by_person = matches!(input, Input::Request { .. });
        if ended && !by_person {
            assert_eq!(summary::state(&step.chain), state, "a terminal chain never moves by itself");
            assert!(!step.effects.iter().any(|effect| matches!(effect, Effect::Create(_))));
        }
        match &input {
            Input::Observed { task_id, observation: Observation::Absent }
                if self.chain.attempt.presence != Presence::Ordered =>
            {
                self.live.remove(task_id);
            }
            Input::Refused { task_id, .. } if self.chain.attempt.presence == Presence::Ordered => {
                self.live.remove(task_id);
            }
            _ => {}
        }
        self.keep(step);
        self
    }

    pub fn task(&self) -> TaskId {
        self.chain.attempt.task_id.clone()
    }

    pub fn name(&self, index: usize) -> ReplicaName {
        attempt::name(self.chain.spec.kind, index)
    }

    pub fn after(&mut self, seconds: f64) -> &mut Self {
        self.now = Time(self.now.0 + (seconds * 1e6) as i64);
        self.give(Input::Tick)
    }

    pub fn ask(&mut self, request: Request) -> &mut Self {
        self.give(Input::Request { request, by: "user-1".to_owned() })
    }

    pub fn observe(&mut self, observation: Observation) -> &mut Self {
        self.give(Input::Observed { task_id: self.task(), observation })
    }

    /// The newest attempt is shown with these replicas ended, the others running, replica i on node i + 1.
    pub fn placed(&mut self, ended: &[(usize, EndReason)]) -> &mut Self {
        let replicas = (0..self.chain.attempt.replicas.len())
            .map(|index| {
                let over = ended.iter().find(|(which, _)| *which == index);
                let status = match over {
                    Some((_, reason)) => ReplicaStatus::Ended { exit: None, reason: reason.clone() },
                    None => ReplicaStatus::Running,
                };
                (self.name(index), ReplicaObservation { node: Some(node(index + 1)), status })
            })
            .collect();
        self.observe(Observation::Placed { replicas })
    }

    pub fn report(&mut self, index: usize, body: ReportBody) -> &mut Self {
        self.report_of(self.now, index, body)
    }

    /// A report of what the agent saw at `at`.
    pub fn report_of(&mut self, at: Time, index: usize, body: ReportBody) -> &mut Self {
        let task_id = self.task();
        let sequence = self.sequences.entry((task_id.clone(), index)).or_default();
        *sequence += 1;
        let report = Report { sequence: *sequence, at, launch: self.chain.launch_number(), body };
        self.give(Input::Report { task_id, replica: self.name(index), report })
    }

    /// Agents go on counting after these.
    pub fn skip_sequences(&mut self, taken: u64) {
        for number in 1..=self.chain.attempt.number {
            let task = TaskId::of_attempt(&self.chain.spec.name, &self.chain.job_id, number);
            for index in 0..self.chain.attempt.replicas.len() {
                self.sequences.insert((task.clone(), index), taken);
            }
        }
    }

    pub fn all(&mut self, body: &ReportBody) -> &mut Self {
        for index in 0..self.chain.attempt.replicas.len() {
            self.report(index, body.clone());
        }
        self
    }

    /// The attempt is accepted, placed, ready, started.
    pub fn up(&mut self) -> &mut Self {
        let task_id = self.task();
        self.give(Input::Created { task_id }).placed(&[]).all(&ReportBody::Ready);
        assert!(matches!(self.desired(0), Desired::Run { .. }));
        self.all(&ReportBody::Started)
    }

    pub fn steps(&mut self, from: u64, to: u64) -> &mut Self {
        let at = self.now;
        let points = (from..=to)
            .map(|step| Point { step, at, loss: Some(1.0), samples: None, total: Some(200) })
            .collect();
        self.report(0, ReportBody::Progress { points })
    }

    pub fn checkpoint(&mut self, loaded: bool, step: u64) -> &mut Self {
        let event =
            CheckpointEvent { at: self.now, loaded, step: Some(step), path: Some(format!("ckpt-{step}")) };
        self.report(0, ReportBody::Checkpoint { event })
    }

    pub fn exit(&mut self, index: usize, code: i64, evidence: Vec<Evidence>) -> &mut Self {
        let rank = index as u32 * self.chain.spec.processes_per_replica;
        let step = self.chain.attempt.launch.progress.last_step();
        self.report(
            index,
            ReportBody::Exited {
                rank,
                exit: Exit::from_code(code),
                asked: false,
                step,
                phase: Phase::Training,
                evidence,
            },
        )
    }

    /// A line that names the failure.
    pub fn line(&self, index: usize, failure_type: FailureType, line: &str) -> Vec<Evidence> {
        vec![Evidence {
            replica: self.name(index),
            rank: Some(index as u32),
            line: line.to_owned(),
            line_number: 1,
            at: self.now,
            signature: signature(failure_type).to_owned(),
            role: Role::Root,
            failure_type,
        }]
    }

    /// Replica `index` fails with this type, and everyone stops.
    pub fn crash(&mut self, index: usize, failure_type: FailureType) -> &mut Self {
        let evidence = self.line(index, failure_type, sample(failure_type));
        self.exit(index, 1, evidence);
        assert!(matches!(self.desired(0), Desired::Stop { .. }), "everyone is stopped at once");
        self.all(&ReportBody::Stopped)
    }

    /// The old attempt is seen to be gone, and the back-off passes.
    pub fn gone(&mut self) -> &mut Self {
        self.observe(Observation::Absent).after(60.0)
    }

    pub fn desired(&self, index: usize) -> Desired {
        let offer = PortOffer { launch: self.chain.launch_number(), port: 29_500 };
        self.chain.desired(&self.task(), &self.name(index), Some(("10.0.0.1", offer)))
    }

    pub fn state(&self) -> (State, Option<Substate>) {
        let summary = self.chain.summary(self.now);
        (summary.state, summary.substate)
    }

    pub fn why_not(&self) -> String {
        self.chain.summary(self.now).why_not.map(|why| why.text).unwrap_or_default()
    }

    /// The newest record of each attempt.
    pub fn attempts(&self) -> Vec<AttemptRecord> {
        let mut newest = BTreeMap::new();
        for record in &self.records {
            if let Record::Attempt(attempt) = record {
                newest.insert(attempt.number, attempt.clone());
            }
        }
        newest.into_values().collect()
    }

    /// The newest record of each incident, in the order they came.
    pub fn incidents(&self) -> Vec<IncidentRecord> {
        let mut newest: Vec<IncidentRecord> = Vec::new();
        for record in &self.records {
            if let Record::Incident(_, incident) = record {
                match newest.iter_mut().find(|known| known.id == incident.id) {
                    Some(known) => *known = incident.clone(),
                    None => newest.push(incident.clone()),
                }
            }
        }
        newest
    }

    pub fn actions(&self) -> Vec<Action> {
        self.incidents().iter().map(|incident| incident.decision.action).collect()
    }

    /// The newest record of each launch of an attempt.
    pub fn launches(&self, task: &TaskId) -> Vec<LaunchRecord> {
        let mut newest = BTreeMap::new();
        for record in &self.records {
            if let Record::Launch(of, launch) = record
                && of == task
            {
                newest.insert(launch.number, launch.clone());
            }
        }
        newest.into_values().collect()
    }

    pub fn events(&self) -> Vec<&EventRecord> {
        self.records
            .iter()
            .filter_map(|record| match record {
                Record::Event(event) => Some(event),
                _ => None,
            })
            .collect()
    }
}

fn signature(failure_type: FailureType) -> &'static str {
    match failure_type {
        FailureType::HwNode => "xid-79",
        FailureType::NetFabric => "ib-completion",
        FailureType::OomHost => "host-alloc",
        FailureType::OomGpu => "cuda-oom",
        FailureType::CommHang => "nccl-watchdog-timeout",
        FailureType::AppError => "python-code-error",
        FailureType::EnvError => "module-missing",
        FailureType::Unknown => "bare-killed",
    }
}

fn sample(failure_type: FailureType) -> &'static str {
    match failure_type {
        FailureType::HwNode => "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        FailureType::NetFabric => "NCCL WARN NET/IB : Got completion with error 12",
        FailureType::OomHost => "MemoryError",
        FailureType::OomGpu => "torch.OutOfMemoryError: CUDA out of memory.",
        FailureType::CommHang => "Watchdog caught collective operation timeout",
        FailureType::AppError => "ValueError: bad batch",
        FailureType::EnvError => "ModuleNotFoundError: No module named 'flash'",
        FailureType::Unknown => "something",
    }
}
