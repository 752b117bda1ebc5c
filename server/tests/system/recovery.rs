//! The main job: a rank crashes, and what follows is right and proven.

use serde_json::json;

use crate::harness::{World, advanced, assert_invariants, attempts, basic, launches, train};

#[tokio::test]
async fn a_crash_is_restarted_in_place_and_proven_to_have_resumed() {
    let world = World::start().await;
    let job = world.create(&train("demo", 60, 0.02, &[("FAIL_AT", "25")])).await;
    let chain = world.until_state(&job, "succeeded").await;
    assert_invariants(&chain);
    let [attempt] = attempts(&chain).as_slice() else { panic!("{chain}") };
    let [first, second] = launches(attempt).as_slice() else { panic!("{chain}") };
    assert_eq!((&first["cause"], &second["cause"]), (&json!("initial"), &json!("failure")));
    assert_eq!(first["proof"]["verdict"], "started_fresh");
    let proof = &second["proof"];
    assert_eq!(proof["verdict"], "resumed", "{proof:#}");
    assert_eq!(proof["resources"]["ready"], 2);
    assert_eq!((&proof["checkpoint"]["step"], &proof["checkpoint"]["expected"]), (&json!(20), &json!(20)));
    assert_eq!(proof["progress"]["step"], 21);
    assert_eq!(proof["new_checkpoint"]["step"], 30);

    let [incident] = attempt["incidents"].as_array().unwrap().as_slice() else { panic!("{chain}") };
    assert_eq!(incident["failure_type"], "APP_ERROR", "{incident:#}");
    assert_eq!(incident["root"]["rank"], 0);
    assert!(
        incident["evidence"].as_array().unwrap().iter().any(|line| line["role"] == "root"),
        "{incident:#}"
    );
    let decision = &incident["decision"];
    assert_eq!(
        (&decision["action"], &decision["charged"]),
        (&json!("restart_in_place"), &json!("in_place_restarts"))
    );
    assert_eq!((&decision["before"], &decision["after"]), (&json!(0), &json!(1)));
    for moment in ["noticed_at", "submitted_at", "resources_at", "first_step_at"] {
        assert!(incident["clock"][moment].is_string(), "{moment}: {incident:#}");
    }
    assert!(incident["cost"]["redone_steps"].as_u64().is_some(), "{incident:#}");
    assert_eq!(chain["budgets"]["task_restarts"], json!({"used": 0, "allowed": 2}));
    world.until_no_process().await;
}

#[tokio::test]
async fn a_hardware_failure_is_resubmitted_away_from_the_blamed_node() {
    let world = World::start().await;
    let env = [("FAIL_AT", "25"), ("FAIL_RANK", "1"), ("FAIL_KIND", "HW_NODE")];
    let job = world.create(&train("hardware", 60, 0.02, &env)).await;
    let chain = world.until_state(&job, "succeeded").await;
    assert_invariants(&chain);
    let [first, second] = attempts(&chain).as_slice() else { panic!("{chain}") };
    let incident = &first["incidents"][0];
    assert_eq!(incident["failure_type"], "HW_NODE", "{incident:#}");
    let blamed = &incident["root"]["node"];
    assert_eq!(incident["decision"]["avoid"], json!([blamed]), "{incident:#}");
    assert_eq!(incident["decision"]["next_task_id"], second["task_id"]);
    assert_eq!((&first["result"], &second["cause"]), (&json!("resubmitted"), &json!("failure")));
    assert_eq!(second["avoided_nodes"], json!([blamed]));
    assert!(!second["nodes"].as_array().unwrap().contains(blamed), "{chain}");
    assert_eq!(launches(second)[0]["proof"]["verdict"], "resumed", "{chain:#}");
    assert_eq!(chain["budgets"]["task_restarts"], json!({"used": 1, "allowed": 2}));

    let (_, nodes) = world.get("/api/v1/nodes").await;
    let text = nodes.to_string();
    assert!(text.contains(first["incidents"][0]["id"].as_str().unwrap()), "the node has no strike: {text}");
}

#[tokio::test]
async fn what_another_try_cannot_mend_fails_fast_with_the_reason() {
    let world = World::start().await;
    let job = world.create(&train("memory", 60, 0.02, &[("FAIL_AT", "15"), ("FAIL_KIND", "OOM_GPU")])).await;
    let chain = world.until_state(&job, "failed").await;
    assert_invariants(&chain);
    let [attempt] = attempts(&chain).as_slice() else { panic!("{chain}") };
    assert_eq!((&attempt["failure_type"], &attempt["result"]), (&json!("OOM_GPU"), &json!("fail_fast")));
    assert_eq!(attempt["incidents"][0]["decision"]["action"], "fail_fast");
    assert!(chain["why_not"]["text"].as_str().unwrap().contains("another try"), "{}", chain["why_not"]);
    assert!(!chain["why_not"]["next"].as_str().unwrap().is_empty());
    world.until_no_process().await;
}

#[tokio::test]
async fn the_same_error_at_the_same_step_ends_the_job() {
    let world = World::start().await;
    let job = world.create(&train("repeat", 60, 0.02, &[("FAIL_AT", "15"), ("FAIL_TIMES", "9")])).await;
    let chain = world.until_state(&job, "failed").await;
    assert_invariants(&chain);
    let [attempt] = attempts(&chain).as_slice() else { panic!("{chain}") };
    assert_eq!((launches(attempt).len(), &attempt["result"]), (2, &json!("fail_fast")), "{chain:#}");
    assert_eq!(chain["why_not"]["text"].as_str().unwrap(), "Same error at step 14 twice, no progress.");
}

#[tokio::test]
async fn a_budget_of_n_allows_n_runs_beyond_the_first() {
    let world = World::with(&["--local-nodes", "4", "--local-slots", "4"]).await;
    for budget in 0..=2u32 {
        let env = [("FAIL_AT", "3"), ("FAIL_TIMES", "99")];
        let mut body = train(&format!("budget-{budget}"), 20, 0.01, &env);
        body["fault_tolerance"] = basic(budget);
        let job = world.create(&body).await;
        let chain = world.until_state(&job, "failed").await;
        assert_invariants(&chain);
        assert_eq!(attempts(&chain).len() as u32, 1 + budget, "{chain:#}");
        assert_eq!(attempts(&chain).last().unwrap()["result"], "budget_used");
        let want = match budget {
            0 => "Maximum Task Restart Attempts is 0.",
            1 => "The 1 task restart is used.",
            _ => "All 2 task restarts are used.",
        };
        assert_eq!(chain["why_not"]["text"], want);
    }
    world.until_no_process().await;
}

#[tokio::test]
async fn without_auto_failover_nothing_is_restarted() {
    let world = World::start().await;
    let mut body = train("plain", 20, 0.01, &[("FAIL_AT", "3")]);
    body["fault_tolerance"] = json!({});
    let job = world.create(&body).await;
    let chain = world.until_state(&job, "failed").await;
    assert_eq!((attempts(&chain).len(), &chain["mode"]), (1, &json!("none")));
    assert_eq!(attempts(&chain)[0]["result"], "auto_failover_off");
    assert_eq!(chain["why_not"]["text"], "Auto Failover is off.");
}

#[tokio::test]
async fn a_job_that_does_not_fit_waits_with_the_reason_and_runs_when_it_fits() {
    let world = World::with(&["--local-nodes", "2", "--local-slots", "1"]).await;
    let long = world.create(&train("long", 100_000, 0.02, &[])).await;
    world.until_state(&long, "running").await;
    let short = world.create(&train("short", 20, 0.01, &[])).await;
    let chain = world
        .until(&short, "queued with a reason", |chain| attempts(chain)[0]["queue"]["reason"] == "busy")
        .await;
    assert_eq!(chain["state"], "queued");
    assert_eq!(
        attempts(&chain)[0]["queue"]["nodes"],
        json!({"total": 2, "busy": 2, "avoided": 0, "free": 0})
    );
    let (status, _) = world.post(&format!("/api/v1/jobs/{long}/stop"), &json!({})).await;
    assert_eq!(status, 202);
    world.until_state(&short, "succeeded").await;
}

#[tokio::test]
async fn every_failure_type_is_told_apart() {
    let world = World::with(&["--local-nodes", "8", "--local-slots", "2"]).await;
    let kinds =
        ["HW_NODE", "NET_FABRIC", "OOM_HOST", "OOM_GPU", "COMM_HANG", "APP_ERROR", "ENV_ERROR", "UNKNOWN"];
    let mut jobs = Vec::new();
    for kind in kinds {
        let mut body = train(
            &format!("type-{}", kind.to_lowercase()),
            30,
            0.01,
            &[("FAIL_AT", "12"), ("FAIL_KIND", kind)],
        );
        body["fault_tolerance"] = advanced(0);
        jobs.push((kind, world.create(&body).await));
    }
    for (kind, job) in jobs {
        let chain = world.until(&job, "judged", |chain| attempts(chain)[0]["incidents"][0].is_object()).await;
        assert_eq!(attempts(&chain)[0]["incidents"][0]["failure_type"], kind, "{chain:#}");
    }
}
