//! What a diagnosis forbids, of the job that it is about and of its groups.

use engine::{
    bisect,
    chain::{self, Chain, Input, Observation, Request},
    ids::JobId,
    job::{JobDraft, Site},
    time::Time,
};
use http::StatusCode;
use server::{
    clock::{Clock, SystemClock},
    diagnose,
    store::{
        self, Write, diagnoses, leader,
        steps::{self, Head, Kept, Origin},
    },
};

use crate::support::{Answer, Server, Setup};

/// A job that was stopped before it had a node.
async fn stopped_job(server: &Server) -> JobId {
    let id = JobId::new("jabcdefghij2").unwrap();
    let draft = JobDraft { name: "demo".to_owned(), command: vec!["true".to_owned()], ..JobDraft::default() };
    let now = SystemClock.now();
    let mut step = Chain::start(id.clone(), draft.validate(&Site::default()).unwrap(), now);
    let mut records = std::mem::take(&mut step.records);
    let task_id = step.chain.live_task().unwrap().clone();
    for input in [
        Input::Created { task_id: task_id.clone() },
        Input::Request { request: Request::Stop { force: true }, by: "ann".to_owned() },
        Input::Observed { task_id, observation: Observation::Absent },
    ] {
        step = chain::advance(&step.chain, &input, now);
        records.append(&mut step.records);
    }
    let head = Head::of(&step.chain, now);
    let kept = Kept { chain: &step.chain, head: &head, records: &records, now };
    let mut tx = server.store.write().await.unwrap();
    steps::create(&mut tx, Origin { owner: "ann", copied_from: None }, kept).await.unwrap();
    store::commit(tx).await.unwrap();
    id
}

async fn resubmit(server: &Server, id: &JobId) -> Answer {
    server.post(&format!("/api/v1/jobs/{id}/resubmit"), r#"{"as":"attempt"}"#).await
}

async fn begin(server: &Server, id: &JobId) -> Answer {
    server.post(&format!("/api/v1/jobs/{id}/diagnose"), r#"{"nodes":["node-1","node-2"]}"#).await
}

#[tokio::test]
async fn a_job_is_either_diagnosed_or_resubmitted_and_a_group_is_neither() {
    let server = Server::with(Setup { local: true, ..Setup::default() }).await;
    let job = stopped_job(&server).await;
    let begun = begin(&server, &job).await;
    assert_eq!(begun.status, StatusCode::ACCEPTED, "{}", begun.text);
    let run_id = begun.json()["run_id"].as_str().unwrap().to_owned();
    let during = format!(
        "409 conflict: Diagnosis #1 of this job ({run_id}) goes on and needs the nodes to itself. Wait for its end or stop it, then resubmit."
    );
    assert_eq!(resubmit(&server, &job).await.problem(), during);
    assert!(
        server.get(&format!("/jobs/{job}")).await.text.contains("then resubmit."),
        "the page says so too"
    );

    let group = diagnose::group_job(&run_id, 1).unwrap();
    let held =
        server.get(&format!("/api/v1/jobs/{group}")).await.json()["spec"]["accelerators_per_replica"].clone();
    assert_eq!(
        held, 1,
        "of a node's two slots what one replica had: who has the other keeps no test waiting"
    );
    let of_group = format!(
        "409 conflict: This job is one test of diagnosis {run_id}, which alone begins and ends it. Diagnose or resubmit the job that the diagnosis is about."
    );
    assert_eq!(resubmit(&server, &group).await.problem(), of_group);
    assert_eq!(begin(&server, &group).await.problem(), of_group);

    let mut tx = server.store.write().await.unwrap();
    let epoch = leader::take(&mut tx, "test", Time(0), Time(10), true).await.unwrap().unwrap();
    let mut kept = diagnoses::get_one(&mut tx, &run_id).await.unwrap().unwrap();
    let stop = bisect::Input::Stop { by: "ann".to_owned() };
    kept.diagnosis.run = bisect::advance(&kept.diagnosis.run, &stop, SystemClock.now()).run;
    let written = diagnoses::write(&mut tx, epoch, kept.generation, &kept.diagnosis).await.unwrap();
    assert_eq!(written, Write::Done);
    store::commit(tx).await.unwrap();

    assert_eq!(resubmit(&server, &job).await.status, StatusCode::ACCEPTED);
    assert_eq!(
        begin(&server, &job).await.problem(),
        "409 conflict: The job is being resubmitted, and the test needs the nodes to itself. Stop the job first."
    );
}
