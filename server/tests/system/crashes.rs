//! The server is killed: no attempt is lost, doubled or charged twice, and the training does not notice.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{PATIENCE, World, assert_invariants, attempts, launches, train};

/// Every step of the driver at which the server may die, in the order of a job's life.
const FAILPOINTS: [&str; 8] = [
    "before_commit",
    "after_commit",
    "before_create",
    "after_create",
    "before_delete",
    "after_delete",
    "before_forget",
    "after_forget",
];

async fn until_down(world: &mut World) {
    let begin = Instant::now();
    while world.is_up() {
        assert!(begin.elapsed() < PATIENCE, "the failpoint was not reached:\n{}", world.server_log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_server_killed_at_any_step_finishes_what_it_began() {
    for point in FAILPOINTS {
        // `before_commit` and `after_commit` happen at every step of a chain: die at several of them.
        let hits: &[u32] = if point.ends_with("commit") { &[1, 2, 3, 5, 8, 13] } else { &[1, 2] };
        for hit in hits {
            killed_at(point, *hit).await;
        }
    }
}

/// A job that is restarted in place and then resubmitted, with a server that dies on the way, and is deleted in the end.
async fn killed_at(point: &str, hit: u32) {
    let mut world = World::start().await;
    world.restart(&[("HOLDFAST_FAILPOINT", &format!("{point}:{hit}"))]).await;
    let env = [("FAIL_AT", "12,24"), ("FAIL_KIND", "UNKNOWN")];
    let body = train(&format!("killed-{hit}"), 40, 0.02, &env);
    // Repeated with the same key, a create whose answer was lost makes no second job.
    let mut job = None;
    let begin = Instant::now();
    while job.is_none() {
        assert!(begin.elapsed() < PATIENCE);
        let request = world
            .request(reqwest::Method::POST, "/api/v1/jobs")
            .header("Idempotency-Key", "once")
            .json(&body);
        match request.timeout(Duration::from_secs(10)).send().await {
            // Also where the server that died had begun with it: its claim ended with it.
            Ok(answer) => {
                assert_eq!(answer.status().as_u16(), 201);
                let answer: serde_json::Value = answer.json().await.unwrap();
                job = Some(answer["job_id"].as_str().unwrap().to_owned());
            }
            Err(_) => {
                until_down(&mut world).await;
                world.restart(&[]).await;
            }
        }
    }
    let job = job.unwrap();
    if point.ends_with("delete")
        || point.ends_with("forget")
        || point.ends_with("commit")
        || point.ends_with("create")
    {
        // Where the point comes later in the job's life the server dies while the job runs.
        let died = tokio::time::timeout(Duration::from_secs(8), until_down(&mut world)).await.is_ok();
        if died {
            world.restart(&[]).await;
        }
    }
    let chain = world.until_state(&job, "succeeded").await;
    assert_invariants(&chain);
    assert_eq!(attempts(&chain).len(), 3, "{point}:{hit} {chain:#}");
    assert_eq!(chain["budgets"]["task_restarts"], json!({"used": 2, "allowed": 2}), "{point}:{hit}");
    let (_, list) = world.get("/api/v1/jobs").await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "{point}:{hit} {list}");

    let _ = world.request(reqwest::Method::DELETE, &format!("/api/v1/jobs/{job}")).send().await;
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < PATIENCE, "{point}:{hit}: the job is not deleted:\n{}", world.server_log());
        if !world.is_up() {
            world.restart(&[]).await;
        }
        let answer = world.request(reqwest::Method::GET, &format!("/api/v1/jobs/{job}")).send().await;
        if answer.is_ok_and(|answer| answer.status().as_u16() == 404) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    world.until_no_process().await;
    assert!(!world.data().join("jobs").join(&job).exists(), "{point}:{hit}");
}

#[tokio::test]
async fn ten_kills_at_random_moments_change_nothing() {
    let mut world = World::start().await;
    let bodies = [
        train("calm", 300, 0.05, &[]),
        train("crashing", 300, 0.05, &[("FAIL_AT", "60,150")]),
        train("hardware", 300, 0.05, &[("FAIL_AT", "100"), ("FAIL_RANK", "1"), ("FAIL_KIND", "HW_NODE")]),
    ];
    let mut jobs = Vec::new();
    for body in &bodies {
        jobs.push(world.create(body).await);
    }
    for job in &jobs {
        world.until_state(job, "running").await;
    }
    let rank = world.pid_of_rank(0).await;
    // A fixed sequence that looks random, so that a failure can be repeated.
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..10 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        tokio::time::sleep(Duration::from_millis(random % 1500)).await;
        world.kill();
        tokio::time::sleep(Duration::from_millis((random >> 32) % 400)).await;
        world.restart(&[]).await;
    }
    let _ = rank;
    for job in &jobs {
        let chain = world.until_state(job, "succeeded").await;
        assert_invariants(&chain);
    }
    let calm = world.chain(&jobs[0]).await;
    assert_eq!(
        (attempts(&calm).len(), launches(&attempts(&calm)[0]).len()),
        (1, 1),
        "the kills were noticed: {calm:#}"
    );
    let crashing = world.chain(&jobs[1]).await;
    assert_eq!(attempts(&crashing).len(), 1, "{crashing:#}");
    assert_eq!(launches(&attempts(&crashing)[0]).len(), 3, "{crashing:#}");
    let hardware = world.chain(&jobs[2]).await;
    assert_eq!(attempts(&hardware).len(), 2, "{hardware:#}");
    world.until_no_process().await;
}
