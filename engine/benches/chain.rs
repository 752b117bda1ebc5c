//! Chains stepped per second: 10,000 jobs of 8 replicas go from creation through a crash and its restart in place to success.

use std::{hint::black_box, time::Instant};

use engine::{
    chain::{Chain, Input, Observation, ReplicaObservation, ReplicaStatus, advance},
    failure::{Exit, Phase},
    ids::{JobId, NodeName, ReplicaName, TaskId},
    job::{JobDraft, JobKind, JobSpec, Site},
    record::State,
    sync::{Point, Report, ReportBody},
    time::Time,
};

const CHAINS: usize = 10_000;
const REPLICAS: u32 = 8;
/// Each replica reports its progress this many times in each launch.
const REPORTS: u64 = 5;

type Error = Box<dyn std::error::Error>;

fn spec() -> Result<JobSpec, Error> {
    let draft = JobDraft {
        name: "bench".to_owned(),
        command: vec!["python3".to_owned(), "train.py".to_owned()],
        replicas: Some(REPLICAS.into()),
        ..JobDraft::default()
    };
    let mut spec = draft.validate(&Site::default()).map_err(|errors| format!("{errors:?}"))?;
    spec.fault_tolerance.auto_failover = true;
    spec.fault_tolerance.max_task_restarts = 2;
    spec.fault_tolerance.policy.enabled = true;
    Ok(spec)
}

/// The inputs of one job's life, in order; all chains get the same.
struct Script {
    inputs: Vec<Input>,
    task_id: TaskId,
    sequences: Vec<u64>,
}

impl Script {
    fn report(&mut self, index: u32, launch: u32, body: ReportBody) {
        let sequence = &mut self.sequences[index as usize];
        *sequence += 1;
        let report = Report { sequence: *sequence, at: Time(0), launch, body };
        let replica = ReplicaName::of_index(JobKind::PyTorchJob, index);
        self.inputs.push(Input::Report { task_id: self.task_id.clone(), replica, report });
    }

    fn all(&mut self, launch: u32, body: &ReportBody) {
        for index in 0..REPLICAS {
            self.report(index, launch, body.clone());
        }
    }

    fn exit(&mut self, index: u32, launch: u32, code: u8, step: u64) {
        let exited = ReportBody::Exited {
            rank: index,
            exit: Exit::Code(code),
            asked: false,
            step: Some(step),
            phase: Phase::Training,
            evidence: Vec::new(),
        };
        self.report(index, launch, exited);
    }

    fn steps(&mut self, launch: u32) {
        for step in u64::from(launch) * REPORTS + 1..=u64::from(launch + 1) * REPORTS {
            let point = Point { step, at: Time(0), loss: Some(0.5), samples: None, total: Some(10) };
            self.all(launch, &ReportBody::Progress { points: vec![point] });
        }
    }

    fn of_a_life(task_id: TaskId) -> Result<Vec<Input>, Error> {
        let inputs = vec![Input::Created { task_id: task_id.clone() }];
        let mut script = Self { inputs, task_id: task_id.clone(), sequences: vec![0; REPLICAS as usize] };
        let mut replicas = std::collections::BTreeMap::new();
        for index in 0..REPLICAS {
            let node = NodeName::new(format!("n{index}"))?;
            let seen = ReplicaObservation { node: Some(node), status: ReplicaStatus::Running };
            replicas.insert(ReplicaName::of_index(JobKind::PyTorchJob, index), seen);
        }
        script.inputs.push(Input::Observed { task_id, observation: Observation::Placed { replicas } });
        script.all(0, &ReportBody::Ready);
        script.all(0, &ReportBody::Started);
        script.steps(0);
        script.exit(3, 0, 1, REPORTS);
        script.all(0, &ReportBody::Stopped);
        script.all(1, &ReportBody::Started);
        script.steps(1);
        for index in 0..REPLICAS {
            script.exit(index, 1, 0, 2 * REPORTS);
        }
        Ok(script.inputs)
    }
}

fn main() -> Result<(), Error> {
    let mut spec = spec()?;
    // Without evidence an exit is UNKNOWN, which only this table restarts in place.
    spec.fault_tolerance.policy.policy_type = "on_any_failure".to_owned();
    let job_id = JobId::new("jbench000000")?;
    let first = Chain::start(job_id, spec, Time(0)).chain;
    let task_id = first.live_task().ok_or("a new chain has an attempt")?.clone();
    let inputs = Script::of_a_life(task_id)?;
    let mut chains = vec![first; CHAINS];
    let begun = Instant::now();
    for (second, input) in inputs.iter().enumerate() {
        let now = Time(0).plus_seconds(second as u64);
        for chain in &mut chains {
            let step = advance(chain, input, now);
            black_box((&step.effects, &step.records));
            *chain = step.chain;
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let succeeded = chains.iter().all(|chain| chain.summary(Time(0)).state == State::Succeeded);
    if !succeeded {
        return Err("the chains did not come to their end; the figure would mean nothing".into());
    }
    let steps = (CHAINS * inputs.len()) as f64;
    let mut out = std::io::stdout().lock();
    std::io::Write::write_fmt(
        &mut out,
        format_args!(
            "chain: {CHAINS} chains of {REPLICAS} replicas, {} steps each: {:.0} steps/s, {:.1} us a step\n",
            inputs.len(),
            steps / seconds,
            seconds * 1e6 / steps
        ),
    )?;
    Ok(())
}
