//! Runs that policies ask for. Nobody orders one: a look compares the chains that wait for a diagnosis with the runs there are, begins what is
//! missing, tells again what a chain has not heard, and ends what none waits for. So nothing is lost with a server, and nothing is begun twice.

use std::collections::{BTreeMap, BTreeSet};

use engine::{
    bisect::{self, Alone, Setup, limits::PROBE_SECONDS_DEFAULT},
    chain::{Awaited, Request},
    ids::{JobId, NodeName, TaskId},
    job::JobSpec,
    words,
};
use sha2::{Digest, Sha256};

use super::{Diagnoses, RUNS, ask, found, perform, probe};
use crate::{
    clock,
    clusters::{Testing, Untestable, nodes_of},
    store::{
        self, StoreError,
        diagnoses::{self, Diagnosis, Kept},
        inbox, jobs,
    },
};

/// Who begins such a run.
pub const BY: &str = "policy";

/// The run of an attempt's nodes that a policy asks for. There is one at most.
pub fn run_of(task: &TaskId) -> Option<String> {
    let mark = Sha256::new().chain_update(b"diagnosis of an attempt\0").chain_update(task.as_str());
    let id = clock::job_id_of(&mark.finalize().into()).ok()?;
    Some(format!("d{}", id.as_str().get(1..)?))
}

impl Diagnoses {
    /// Compares what chains wait for with the runs that go on.
    pub(super) async fn follow_policies(&self, live: &[Kept]) -> Result<(), StoreError> {
        let mut conn = self.store.read().await?;
        let waiting = diagnoses::waiting(&mut conn, RUNS).await?;
        drop(conn);
        for job_id in waiting {
            // One that fails keeps no other from going on.
            if let Err(error) = self.serve(&job_id).await {
                let error = format!("{:#}", anyhow::Error::from(error));
                tracing::warn!(%job_id, error, "a diagnosis that a policy asks for could not be begun");
            }
        }
        for kept in live.iter().filter(|kept| kept.diagnosis.rule.is_some() && kept.stop_by.is_none()) {
            self.end_unawaited(kept).await?;
        }
        Ok(())
    }

    /// A run that no chain waits for any more ends: its job was stopped or resubmitted, and its nodes are wanted.
    async fn end_unawaited(&self, kept: &Kept) -> Result<(), StoreError> {
        let diagnosis = &kept.diagnosis;
        let mut conn = self.store.read().await?;
        let chain = jobs::chain(&mut conn, &diagnosis.job_id).await?;
        drop(conn);
        let awaited = chain.and_then(|stored| stored.chain.awaited());
        // A chain that waited for it once and does no more never does again.
        if awaited.is_some_and(|awaited| Some(awaited.task_id) == diagnosis.task_id) {
            return Ok(());
        }
        let mut tx = self.store.write().await?;
        diagnoses::stop(&mut tx, &diagnosis.run_id, "holdfast").await?;
        store::commit(tx).await?;
        tracing::info!(run_id = diagnosis.run_id, "a diagnosis ends: its job does not wait for it any more");
        Ok(())
    }

    /// Begins the run that a chain waits for, or tells the chain what became of it.
    async fn serve(&self, job_id: &JobId) -> Result<(), StoreError> {
        let mut conn = self.store.read().await?;
        let Some(stored) = jobs::chain(&mut conn, job_id).await? else { return Ok(()) };
        let Some(awaited) = stored.chain.awaited().filter(|awaited| awaited.ready) else { return Ok(()) };
        let Some(run_id) = run_of(&awaited.task_id) else { return Ok(()) };
        let known = diagnoses::get_one(&mut conn, &run_id).await?;
        drop(conn);
        if known.as_ref().is_some_and(|kept| kept.diagnosis.run.finding().is_none()) {
            return Ok(());
        }
        let plan = match &known {
            Some(_) => None,
            None => match self.plan(stored.chain.spec(), &awaited).await {
                // It is asked again at the next look, until the chain waits no longer.
                None => return Ok(()),
                plan => plan,
            },
        };
        let now = self.clock.now();
        let mut tx = self.store.write().await?;
        jobs::hold(&mut tx, job_id).await?;
        let chain = jobs::chain(&mut tx, job_id).await?;
        if chain.and_then(|stored| stored.chain.awaited()).as_ref() != Some(&awaited) {
            return Ok(());
        }
        let mut hurry = Vec::new();
        match (known, plan) {
            // What it found was kept with its end, so this is for a word that got lost.
            (Some(kept), _) => {
                let Some(finding) = kept.diagnosis.run.finding() else { return Ok(()) };
                let request = found(&kept.diagnosis, finding);
                self.tell_once(&mut tx, job_id, request, &mut hurry).await?;
            }
            (None, Some(Err(why))) => {
                let request = Request::Undiagnosed { task_id: awaited.task_id, why };
                self.tell_once(&mut tx, job_id, request, &mut hurry).await?;
            }
            (None, Some(Ok((setup, testing)))) => {
                let step = bisect::start(setup, now);
                let diagnosis = Diagnosis {
                    run_id,
                    job_id: job_id.clone(),
                    task_id: Some(awaited.task_id),
                    by: BY.to_owned(),
                    rule: Some(awaited.rule),
                    cluster: stored.chain.spec().cluster.clone(),
                    command: self.test.clone().unwrap_or_else(|| probe(PROBE_SECONDS_DEFAULT)),
                    env: BTreeMap::new(),
                    working_dir: None,
                    image: testing.image,
                    pods: testing.pods,
                    held: Vec::new(),
                    run: step.run,
                };
                let Some(number) = diagnoses::create(&mut tx, &diagnosis).await? else { return Ok(()) };
                hurry = perform(&mut tx, &diagnosis, number, &step.effects, now).await?;
                tracing::info!(%job_id, run_id = diagnosis.run_id, rule = diagnosis.rule, "diagnosis begun by a policy");
            }
            (None, None) => return Ok(()),
        }
        store::commit(tx).await?;
        hurry.iter().for_each(|job| self.driver.hint(job));
        Ok(())
    }

    /// Tells a chain something that it may be about to hear already.
    async fn tell_once(
        &self,
        conn: &mut sqlx::AnyConnection,
        job_id: &JobId,
        request: Request,
        hurry: &mut Vec<JobId>,
    ) -> Result<(), StoreError> {
        let waits = inbox::take(conn, job_id).await?.iter().any(|waiting| waiting.request == request);
        if waits || ask(conn, job_id, request, self.clock.now()).await? {
            hurry.push(job_id.clone());
        }
        Ok(())
    }

    /// What is to be tested, or why that cannot be. None where the cluster does not answer now.
    async fn plan(&self, spec: &JobSpec, awaited: &Awaited) -> Option<Result<(Setup, Testing), String>> {
        let name = &spec.cluster;
        let Some(cluster) = self.clusters.get(name) else {
            return Some(Err(format!("cluster {name} is not configured.")));
        };
        // A test of the site's is no program of the job: like the one that is built in it has none of its volumes and variables.
        let testing = match cluster.testing(spec, false) {
            Ok(testing) => testing,
            Err(Untestable::Now(_)) => return None,
            Err(Untestable::Ever(why)) => return Some(Err(why)),
        };
        let known = nodes_of(cluster.as_ref()).await.ok()?;
        let all: BTreeSet<&NodeName> = known.iter().map(|node| &node.name).collect();
        let nodes: BTreeSet<NodeName> =
            awaited.nodes.iter().filter(|node| all.contains(node)).cloned().collect();
        if nodes.len() < 2 {
            let gone = awaited.nodes.difference(&nodes).map(NodeName::as_str).collect::<Vec<_>>();
            return Some(Err(format!(
                "{} left the cluster, and what is left has no other to be compared with.",
                words::list(&gone)
            )));
        }
        if nodes.len() > testing.most_nodes {
            let (count, most) = (nodes.len(), testing.most_nodes);
            return Some(Err(format!(
                "a diagnosis on {name} tests at most {most} nodes, and these are {count}."
            )));
        }
        let setup = Setup {
            nodes,
            alone: Alone::TellsSome,
            probe_seconds: PROBE_SECONDS_DEFAULT,
            accelerators_per_node: testing.accelerators,
        };
        Some(Ok((setup, testing)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_has_one_run_whenever_it_is_asked_for() {
        let job = JobId::new("jabcdefghij2").unwrap();
        let run = |number| run_of(&TaskId::of_attempt("demo", &job, number)).unwrap();
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        assert!(run(1).starts_with('d') && run(1).len() == 12, "{}", run(1));
    }
}
