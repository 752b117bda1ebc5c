//! The server that leads goes, in each way it can, and the other one takes over.

use std::time::Instant;

use engine::{
    failure::{Exit, Phase},
    ids::{ReplicaName, TaskId},
    sync::{Report, ReportBody, SyncRequest, headers},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use crate::{
    databases::on_new_postgres,
    harness::{Server, World, until},
};

/// Runs a test with two servers, of which the first leads, and a job that was made through the second and runs.
async fn with_servers(test: impl AsyncFn(&World, [Server; 2], &str)) {
    on_new_postgres(async |database| {
        let world = World::new(database).await;
        let [leader, other] = world.serve().await;
        let job = other.create(&world.job("first")).await;
        other.until_launch(&job, 0).await;
        test(&world, [leader, other], &job).await;
        world.assert_made_once();
    })
    .await;
}

/// The program of a job dies, and the server that leads now has it started again in its place.
async fn is_restarted_in_place(world: &World, server: &Server, job: &str, launch: usize) {
    kill(Pid::from_raw(world.pid("first")), Signal::SIGKILL).unwrap();
    let chain = server.until_launch(job, launch).await;
    assert_eq!(chain["attempts_total"], 1, "{chain:#}");
}

/// Says how long it took until the first attempt of a job that was posted to `other` was made by it.
async fn measured(world: &World, other: &Server, what: &str, began: Instant) -> String {
    let job = other.create(&world.job("second")).await;
    let took = world.made_at(other, &job).await.duration_since(began);
    println!("{what}: another server acts after {:.1} s", took.as_secs_f64());
    assert_eq!(world.api.changes().last().unwrap().who, other.name);
    job
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_killed_is_followed_by_the_other_and_training_goes_on() {
    with_servers(async |world, [leader, other], job| {
        let process = world.pid("first");
        let began = Instant::now();
        drop(leader);
        let second = measured(world, &other, "killed", began).await;
        assert_eq!(world.pid("first"), process, "the program did not notice");
        is_restarted_in_place(world, &other, job, 1).await;
        world.stop(&other, &[job, &second]).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_told_to_stop_hands_over() {
    with_servers(async |world, [leader, other], job| {
        let began = Instant::now();
        leader.signal(Signal::SIGTERM);
        let second = measured(world, &other, "told to stop", began).await;
        is_restarted_in_place(world, &other, job, 1).await;
        world.stop(&other, &[job, &second]).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_was_paused_changes_nothing_and_leads_again_when_it_may() {
    with_servers(async |world, [old, new], job| {
        let changes = world.api.changes_of(old.name);
        let began = Instant::now();
        old.signal(Signal::SIGSTOP);
        // What it finds when it goes on: a report that would have it restart the job.
        let chain = new.chain(job).await;
        let task = chain["attempts"][0]["task_id"].as_str().unwrap().to_owned();
        let request = report_of_a_crash(world, &old, &task);
        let answer = tokio::spawn(request.send());
        let second = measured(world, &new, "paused", began).await;
        world.until_led_by(&new).await;

        old.signal(Signal::SIGCONT);
        let answer = answer.await.unwrap().unwrap();
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["connection"]),
            (503, &"close".parse().unwrap())
        );
        until("it knows", async || old.log().contains("this server leads no more").then_some(())).await;
        assert_eq!(world.api.changes_of(old.name), changes, "{:#?}", world.api.changes());
        let chain = new.chain(job).await;
        assert_eq!(incidents(&chain), 0, "{chain:#}");

        // Both serve; a request through the old one is carried out by the new one.
        world.stop(&old, &[&second]).await;
        assert_eq!(world.api.changes_of(old.name), changes);
        drop(new);
        world.until_led_by(&old).await;
        is_restarted_in_place(world, &old, job, 1).await;
        let chain = old.chain(job).await;
        assert_eq!(incidents(&chain), 1, "{chain:#}");
        world.stop(&old, &[job]).await;
    })
    .await;
}

fn incidents(chain: &Value) -> usize {
    chain["attempts"][0]["incidents"].as_array().unwrap().len()
}

/// What the agent of a replica would send had its program crashed.
fn report_of_a_crash(world: &World, server: &Server, task: &str) -> reqwest::RequestBuilder {
    let replica = "master-0";
    let body = ReportBody::Exited {
        rank: 0,
        exit: Exit::Code(1),
        asked: false,
        step: None,
        phase: Phase::Training,
        evidence: Vec::new(),
    };
    let at = server::clock::Clock::now(&server::clock::SystemClock);
    let sync = SyncRequest {
        task_id: TaskId::new(task).unwrap(),
        replica: ReplicaName::new(replica).unwrap(),
        agent_id: "another".to_owned(),
        seen: 0,
        address: "127.0.0.1".to_owned(),
        offer: None,
        current: None,
        sent_at: at,
        reports: vec![Report { sequence: 100, at, launch: 0, body }],
    };
    server
        .request("/agent/v1/sync", &json!(sync))
        .header(headers::TASK, task)
        .header(headers::REPLICA, replica)
        .bearer_auth(world.api.token(task, replica))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_job_leaves_no_copy_of_its_logs_on_any_server() {
    with_servers(async |world, [leader, other], job| {
        world.stop(&leader, &[job]).await;
        let copies = [world.copy(&leader, job), world.copy(&other, job)];
        for copy in &copies {
            std::fs::create_dir_all(copy.join("attempt")).unwrap();
        }
        leader.delete(job).await;
        // The other one looks for such copies from time to time, and first when it starts.
        let _other = world.restart(other).await;
        until("no copy is left", async || copies.iter().all(|copy| !copy.exists()).then_some(())).await;
    })
    .await;
}
