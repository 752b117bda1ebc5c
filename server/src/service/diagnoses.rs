//! Bisect Diagnose for people: the plan with its cost, the start, what came out, and the stop.

use std::collections::{BTreeMap, BTreeSet};

use app::{
    console::{
        Caller, DiagnosisDetail, DiagnosisDraft, DiagnosisGroup, DiagnosisPlan, DiagnosisRound, DiagnosisView,
    },
    error::AppError,
};
use engine::{
    bisect::{self, Alone, Setup, limits},
    chain::Request,
    ids::{JobId, NodeName, TaskId},
    job::{FieldError, limits as job_limits},
    ledger::together,
    record::Ledger,
};
use sqlx::AnyConnection;

use super::{Service, Wish, failed, internal, may, no_job};
use crate::{
    clock,
    clusters::{Testing, Untestable},
    diagnose,
    store::{
        self, StoreError, attempts,
        diagnoses::{self, Diagnosis, Kept},
        inbox, jobs,
    },
};

/// Runs in a list.
const LIST: u32 = 200;

/// The ledger of a job with what its runs took.
pub(super) fn with_runs(ledger: Ledger, runs: &[DiagnosisView]) -> Ledger {
    let diagnosing = runs.iter().map(|run| run.accelerator_seconds).sum();
    together([ledger, Ledger { diagnosing, ..Ledger::default() }])
}

impl Service {
    /// What a diagnosis would test and take at most. Nothing is begun.
    pub(super) async fn plan_diagnosis(
        &self,
        caller: &Caller,
        id: &JobId,
        draft: &DiagnosisDraft,
    ) -> Result<DiagnosisPlan, AppError> {
        may(caller, Wish::See)?;
        Ok(self.prepare(id, draft).await?.0)
    }

    /// Begins a diagnosis; gives its id.
    pub(super) async fn begin_diagnosis(
        &self,
        caller: &Caller,
        id: &JobId,
        draft: &DiagnosisDraft,
    ) -> Result<String, AppError> {
        may(caller, Wish::Act)?;
        let (plan, setup, mut diagnosis) = self.prepare(id, draft).await?;
        if let Some(why) = plan.refusal {
            return Err(AppError::Conflict { why });
        }
        let now = self.clock.now();
        let random = clock::new_id().map_err(|why| internal(&why.into()))?;
        let step = bisect::start(setup, now);
        diagnosis.run_id = format!("d{}", &random[..11.min(random.len())]);
        diagnosis.by.clone_from(&caller.name);
        diagnosis.run = step.run;
        let mut tx = self.store.write().await.map_err(failed)?;
        // Since the plan was made it may have been resubmitted; who resubmits it looks for a diagnosis in the same way.
        jobs::hold(&mut tx, id).await.map_err(failed)?;
        let head = jobs::head(&mut tx, id).await.map_err(failed)?.ok_or_else(|| no_job(id))?;
        if !head.summary.state.is_terminal() {
            return Err(AppError::Conflict { why: IS_BUSY.to_owned() });
        }
        let waiting = inbox::take(&mut tx, id).await.map_err(failed)?;
        if waiting.iter().any(|waiting| waiting.request == Request::Resubmit) {
            return Err(AppError::Conflict { why: IS_RESUBMITTED.to_owned() });
        }
        // Of two that begin at once the second is refused here.
        let Some(number) = diagnoses::create(&mut tx, &diagnosis).await.map_err(failed)? else {
            return Err(AppError::Conflict { why: RUNS_ALREADY.to_owned() });
        };
        let hurry =
            diagnose::perform(&mut tx, &diagnosis, number, &step.effects, now).await.map_err(failed)?;
        store::commit(tx).await.map_err(failed)?;
        hurry.iter().for_each(|job| self.driver.hint(job));
        tracing::info!(job_id = %id, run_id = diagnosis.run_id, by = caller.name, "diagnosis begun");
        Ok(diagnosis.run_id)
    }

    /// Runs, newest first.
    pub(super) async fn list_diagnoses(
        &self,
        caller: &Caller,
        job: Option<&JobId>,
    ) -> Result<Vec<DiagnosisView>, AppError> {
        may(caller, Wish::See)?;
        let mut conn = self.store.snapshot().await.map_err(failed)?;
        self.diagnoses_of(&mut conn, job).await.map_err(failed)
    }

    /// The same over a connection that is held already: whoever takes a second one may wait for itself.
    pub(super) async fn diagnoses_of(
        &self,
        conn: &mut AnyConnection,
        job: Option<&JobId>,
    ) -> Result<Vec<DiagnosisView>, StoreError> {
        let found = diagnoses::newest(conn, job, LIST).await?;
        let mut names = BTreeMap::new();
        let mut views = Vec::with_capacity(found.len());
        for kept in found {
            let job_id = kept.diagnosis.job_id.clone();
            if !names.contains_key(&job_id) {
                let head = jobs::head(conn, &job_id).await?;
                names.insert(job_id.clone(), head.map(|head| head.name).unwrap_or_default());
            }
            views.push(self.view(&kept, names[&job_id].clone()));
        }
        Ok(views)
    }

    /// One run with all its groups.
    pub(super) async fn view_diagnosis(
        &self,
        caller: &Caller,
        run_id: &str,
    ) -> Result<DiagnosisDetail, AppError> {
        may(caller, Wish::See)?;
        let mut conn = self.store.snapshot().await.map_err(failed)?;
        let kept = diagnoses::get_one(&mut conn, run_id).await.map_err(failed)?;
        let kept = kept.ok_or_else(|| no_run(run_id))?;
        let head = jobs::head(&mut conn, &kept.diagnosis.job_id).await.map_err(failed)?;
        let diagnosis = self.view(&kept, head.map(|head| head.name).unwrap_or_default());
        let Diagnosis { run, command, .. } = kept.diagnosis;
        let group = |group: &bisect::Group| {
            let job_id = diagnose::group_job(run_id, group.number);
            DiagnosisGroup {
                nodes: group.nodes.iter().cloned().collect(),
                partner: group.partner.clone(),
                check: group.is_check(),
                started_at: group.started_at,
                ended_at: group.ended_at,
                outcome: group.outcome.clone(),
                job_id,
            }
        };
        let rounds = run.rounds().iter().zip(1..).map(|(round, number)| DiagnosisRound {
            number,
            kind: round.kind,
            groups: round.groups.iter().map(group).collect(),
        });
        Ok(DiagnosisDetail {
            rounds: rounds.collect(),
            finding: run.finding().cloned(),
            stopping: kept.stop_by.filter(|_| run.finding().is_none()),
            diagnosis,
            command,
            now: self.clock.now(),
        })
    }

    /// Asks a run to stop. One that has ended cannot be stopped.
    pub(super) async fn stop_run(&self, caller: &Caller, run_id: &str) -> Result<(), AppError> {
        may(caller, Wish::Act)?;
        let mut tx = self.store.write().await.map_err(failed)?;
        if diagnoses::get_one(&mut tx, run_id).await.map_err(failed)?.is_none() {
            return Err(no_run(run_id));
        }
        let asked = diagnoses::stop(&mut tx, run_id, &caller.name).await.map_err(failed)?;
        store::commit(tx).await.map_err(failed)?;
        if asked {
            tracing::info!(run_id, by = caller.name, "diagnosis asked to stop");
            Ok(())
        } else {
            Err(AppError::Conflict { why: "It has ended, so there is nothing to stop.".to_owned() })
        }
    }

    fn view(&self, kept: &Kept, job_name: String) -> DiagnosisView {
        let Diagnosis { run_id, job_id, task_id, by, rule, cluster, held, run, .. } = &kept.diagnosis;
        let finding = run.finding();
        DiagnosisView {
            run_id: run_id.clone(),
            number: kept.number,
            job_id: job_id.clone(),
            job_name,
            task_id: task_id.clone(),
            by: by.clone(),
            rule: rule.clone(),
            held: held.clone(),
            cluster: cluster.clone(),
            nodes: run.setup().nodes.iter().cloned().collect(),
            started_at: run.started_at(),
            ended_at: run.ended_at(),
            verdict: finding.map(|finding| finding.verdict),
            text: finding.map(|finding| finding.text.clone()),
            suspects: finding.map(|finding| finding.confirmed.clone()).unwrap_or_default(),
            plan: run.cost(),
            accelerator_seconds: run.accelerator_seconds(self.clock.now()).round(),
        }
    }

    /// What would be begun, and why it cannot be.
    async fn prepare(
        &self,
        id: &JobId,
        draft: &DiagnosisDraft,
    ) -> Result<(DiagnosisPlan, Setup, Diagnosis), AppError> {
        let mut conn = self.store.read().await.map_err(failed)?;
        let head = jobs::head(&mut conn, id).await.map_err(failed)?.ok_or_else(|| no_job(id))?;
        let chain = jobs::chain(&mut conn, id).await.map_err(failed)?.ok_or_else(|| no_job(id))?.chain;
        let attempt = attempts::page(&mut conn, id, head.summary.attempts_total, 1).await.map_err(failed)?;
        let attempt = attempt.into_iter().next();
        let others = diagnoses::newest(&mut conn, Some(id), 1).await.map_err(failed)?;
        let group_of = diagnoses::run_of(&mut conn, id).await.map_err(failed)?;
        drop(conn);
        let spec = chain.spec();
        let cluster = self.clusters.get(&spec.cluster);
        let is_own = draft.command.is_some();
        let testing = match cluster {
            Some(cluster) => cluster.testing(spec, is_own).map_err(Untestable::into_text),
            None => {
                Err(format!("Cluster {} is not configured any more, so nothing can run there.", spec.cluster))
            }
        };
        let (testing, untestable) = match testing {
            Ok(testing) => (testing, None),
            Err(why) => (Testing::default(), Some(why)),
        };
        let known = match cluster.filter(|_| untestable.is_none()) {
            Some(cluster) => cluster.nodes().await.map_err(|why| AppError::Unreachable {
                why: format!("cluster {}: {:#}", spec.cluster, anyhow::Error::from(why)),
            })?,
            None => Vec::new(),
        };
        let used: BTreeSet<NodeName> =
            attempt.iter().flat_map(|attempt| attempt.nodes.iter().cloned()).collect();
        let all: BTreeSet<NodeName> = known.iter().map(|node| node.name.clone()).collect();
        let nodes = match &draft.nodes {
            Some(nodes) => nodes.iter().cloned().collect(),
            None => used.intersection(&all).cloned().collect::<BTreeSet<_>>(),
        };
        let mut errors = Vec::new();
        let most = testing.most_nodes;
        if untestable.is_none() && draft.nodes.is_some() {
            if nodes.is_empty() || nodes.len() > most {
                errors.push(FieldError::new("nodes", format!("must be 1 to {most} nodes")));
            }
            if let Some(unknown) = nodes.iter().find(|node| !all.contains(*node)) {
                errors.push(FieldError::new(
                    "nodes",
                    format!("{unknown} is no node of cluster {}", spec.cluster),
                ));
            }
        }
        let allowed = limits::PROBE_SECONDS;
        let seconds = draft.limit_seconds.unwrap_or(i64::from(limits::PROBE_SECONDS_DEFAULT));
        let probe_seconds = u32::try_from(seconds).ok().filter(|seconds| allowed.contains(seconds));
        if probe_seconds.is_none() {
            let rule = format!("must be {} to {} seconds", allowed.start(), allowed.end());
            errors.push(FieldError::new("limit_seconds", rule));
        }
        let bytes = |words: &[String]| words.iter().map(String::len).sum::<usize>();
        if let Some(command) = &draft.command {
            let is_empty = command.first().is_none_or(|program| program.trim().is_empty());
            if is_empty || command.iter().any(|word| word.contains('\0')) {
                errors.push(FieldError::new("command", "must name a program, without NUL bytes"));
            }
            if bytes(command) > job_limits::TOTAL_BYTES {
                errors.push(FieldError::new(
                    "command",
                    format!("must have at most {} bytes", job_limits::TOTAL_BYTES),
                ));
            }
        }
        if !errors.is_empty() {
            return Err(AppError::Invalid { errors });
        }
        let probe_seconds = probe_seconds.unwrap_or(limits::PROBE_SECONDS_DEFAULT);
        let setup = Setup {
            nodes,
            alone: Alone::TellsSome,
            probe_seconds,
            accelerators_per_node: testing.accelerators,
        };
        let refusal = if let Some(run_id) = group_of {
            Some(is_group(&run_id))
        } else if untestable.is_some() {
            untestable
        } else if others.iter().any(|other| other.diagnosis.run.finding().is_none()) {
            Some(RUNS_ALREADY.to_owned())
        } else if !head.summary.state.is_terminal() {
            Some(IS_BUSY.to_owned())
        } else if setup.nodes.is_empty() {
            Some("The newest attempt never had a node of this cluster; choose the nodes.".to_owned())
        } else if setup.nodes.len() > most {
            let count = setup.nodes.len();
            Some(format!(
                "A diagnosis on this cluster tests at most {most} nodes, and these are {count}; choose some of them."
            ))
        } else {
            None
        };
        let command = draft.command.clone().unwrap_or_else(|| diagnose::probe(probe_seconds));
        let task_id: Option<TaskId> = attempt.map(|attempt| attempt.task_id);
        let plan = DiagnosisPlan {
            job_id: id.clone(),
            job_name: head.name,
            task_id: task_id.clone(),
            cluster: spec.cluster.clone(),
            nodes: setup.nodes.iter().cloned().collect(),
            candidates: all.into_iter().collect(),
            command: command.clone(),
            plan: setup.cost(),
            refusal,
        };
        let diagnosis = Diagnosis {
            run_id: String::new(),
            job_id: id.clone(),
            task_id,
            by: String::new(),
            rule: None,
            held: Vec::new(),
            cluster: spec.cluster.clone(),
            command,
            // A command of one's own runs where the job does; the built-in one needs nothing of it.
            env: if is_own { spec.env.clone() } else { BTreeMap::new() },
            working_dir: spec.working_dir.clone().filter(|_| is_own),
            image: testing.image,
            pods: testing.pods,
            run: bisect::start(setup.clone(), self.clock.now()).run,
        };
        Ok((plan, setup, diagnosis))
    }
}

/// Why a job may not go on, as far as diagnoses are concerned: it is a group of one, or one of it goes on and needs its nodes.
pub(super) async fn forbids(conn: &mut AnyConnection, id: &JobId) -> Result<Option<String>, AppError> {
    if let Some(run_id) = diagnoses::run_of(conn, id).await.map_err(failed)? {
        return Ok(Some(is_group(&run_id)));
    }
    let newest = diagnoses::newest(conn, Some(id), 1).await.map_err(failed)?;
    let live = newest.into_iter().find(|kept| kept.diagnosis.run.finding().is_none());
    Ok(live.map(|kept| {
        format!(
            "Diagnosis #{} of this job ({}) goes on and needs the nodes to itself. Wait for its end or stop it, then resubmit.",
            kept.number, kept.diagnosis.run_id
        )
    }))
}

fn is_group(run_id: &str) -> String {
    format!(
        "This job is one test of diagnosis {run_id}, which alone begins and ends it. Diagnose or resubmit the job that the diagnosis is about."
    )
}

const IS_BUSY: &str = "The job has not ended: the test needs the nodes to itself. Stop the job first.";

const IS_RESUBMITTED: &str =
    "The job is being resubmitted, and the test needs the nodes to itself. Stop the job first.";

const RUNS_ALREADY: &str = "A diagnosis of this job goes on already; wait for it, or stop it.";

fn no_run(id: &str) -> AppError {
    AppError::NotFound { what: "diagnosis".to_owned(), id: id.chars().take(80).collect() }
}
