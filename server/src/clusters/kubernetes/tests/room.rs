use engine::job::{JobSpec, PodOptions};
use serde_json::{Value, json};

use super::*;
use crate::clusters::kubernetes::{
    capacity::held,
    fake::{node, pod, running, settings, spec},
    wants,
};

/// A job whose replicas ask for 2 CPU and so many GPUs.
fn wanting(replicas: i64, gpus: u32) -> Wants {
    let kubernetes =
        PodOptions { cpu: Some("2".to_owned()), memory: Some("4Gi".to_owned()), ..PodOptions::default() };
    let spec = JobSpec { kubernetes, accelerators_per_replica: gpus, ..spec(replicas) };
    wants::of(&spec, &settings()).unwrap()
}

fn quota_of(spec: Value, hard: Value, used: Value) -> ResourceQuota {
    let object =
        json!({ "metadata": { "name": "q" }, "spec": spec, "status": { "hard": hard, "used": used } });
    serde_json::from_value(object).unwrap()
}

#[test]
fn a_quota_has_room_or_says_what_is_short() {
    let gpus = "requests.nvidia.com/gpu";
    for (case, hard, used, fit, words) in [
        ("enough", json!({ gpus: "32" }), json!({ gpus: "16" }), Fit::Ok, "has room"),
        ("just enough", json!({ gpus: "16" }), json!({}), Fit::Ok, "has room"),
        (
            "in use",
            json!({ gpus: "32" }),
            json!({ gpus: "20" }),
            Fit::Later,
            "asks for 16 of requests.nvidia.com/gpu, and 12 of 32 are left",
        ),
        ("too small", json!({ gpus: "8" }), json!({}), Fit::Later, "it allows 8 in all"),
        (
            "pods",
            json!({ "count/pods": "5", "pods": "9" }),
            json!({ "count/pods": "4" }),
            Fit::Later,
            "asks for 2 of count/pods, and 1 of 5 are left",
        ),
        (
            "memory",
            json!({ "memory": "12Gi" }),
            json!({ "memory": "5Gi" }),
            Fit::Later,
            "asks for 8Gi of memory, and 7Gi of 12Gi are left",
        ),
        ("limits", json!({ "limits.cpu": "3" }), json!({}), Fit::Later, "asks for 4 of limits.cpu"),
        (
            "jobs",
            json!({ "count/pytorchjobs.kubeflow.org": "1" }),
            json!({ "count/pytorchjobs.kubeflow.org": "1" }),
            Fit::Later,
            "0 of 1 are left",
        ),
        ("others' things", json!({ "services": "1" }), json!({ "services": "1" }), Fit::Ok, "has room"),
    ] {
        let found = quota(&quota_of(json!({}), hard, used), &wanting(2, 8));
        assert_eq!(found.fit, fit, "{case}: {}", found.text);
        assert!(found.text.contains(words), "{case}: {}", found.text);
    }
}

#[test]
fn a_quota_that_asks_for_what_a_job_leaves_out_is_named() {
    let hard = json!({ "requests.cpu": "100" });
    let bare = wants::of(&spec(1), &settings()).unwrap();
    let found = quota(&quota_of(json!({}), hard.clone(), json!({})), &bare);
    assert!(
        found.fit == Fit::Later && found.text.contains("every container for requests.cpu"),
        "{}",
        found.text
    );
    assert_eq!(quota(&quota_of(json!({}), hard, json!({})), &wanting(1, 0)).fit, Fit::Ok);
}

#[test]
fn a_quota_of_some_pods_is_not_compared() {
    let partial = quota_of(json!({ "scopes": ["BestEffort"] }), json!({ "pods": "0" }), json!({}));
    assert_eq!(quota(&partial, &wanting(2, 8)).fit, Fit::NotChecked);
}

/// Nodes of 8 CPU and 8 GPUs each.
fn cluster(names: &[&str]) -> Nodes {
    names.iter().map(|name| node(name, "True", None)).collect()
}

fn told(wants: &Wants, on: &Nodes) -> (Fit, String) {
    let mut found = nodes(wants, on, &BTreeMap::new());
    assert_eq!(found.len(), 1, "{found:?}");
    let finding = found.remove(0);
    (finding.fit, finding.text)
}

#[test]
fn all_some_or_none_fit_now() {
    let here = cluster(&["n1", "n2"]);
    // A pod of ours asks for 2 CPU and 4 GPUs.
    let ours = [pod("master-0", "m-1", "n1", running())];
    for (case, replicas, gpus, pods, fit, words) in [
        ("all", 4, 4, &[][..], Fit::Ok, "All 4 replicas fit now"),
        ("one", 1, 8, &[][..], Fit::Ok, "The replica fits now"),
        ("some", 6, 4, &[][..], Fit::Later, "4 of 6 replicas fit now, 2 will wait."),
        ("beside ours", 4, 4, &ours[..], Fit::Later, "3 of 4 replicas fit now, 1 will wait."),
        ("none on what ours left", 2, 8, &ours[..], Fit::Later, "1 of 2 replicas fit now"),
        ("by CPU", 9, 0, &[][..], Fit::Later, "8 of 9 replicas fit now, 1 will wait."),
        ("too large", 2, 9, &[][..], Fit::Later, "Does not fit: a replica asks for"),
    ] {
        let wants = wanting(replicas, gpus);
        let found = nodes(&wants, &here, &held(pods)).remove(0);
        assert_eq!(found.fit, fit, "{case}: {}", found.text);
        assert!(found.text.contains(words), "{case}: {}", found.text);
    }
}

#[test]
fn however_many_replicas_there_are_all_are_counted() {
    let names: Vec<_> = (0..1_250).map(|n| format!("n{n}")).collect();
    let here = cluster(&names.iter().map(String::as_str).collect::<Vec<_>>());
    // Four on each.
    for (replicas, words) in
        [(5_000, "All 5000 replicas fit now"), (7_000, "5000 of 7000 replicas fit now, 2000 will wait.")]
    {
        let mut wants = wanting(2, 2);
        wants.parts[1].replicas = replicas - 1;
        let (_, text) = told(&wants, &here);
        assert!(text.starts_with(words), "{text}");
    }
}

#[test]
fn what_is_too_large_says_what_it_asks_for_and_what_there_is_once_for_all_that_are_alike() {
    let here = cluster(&["n1", "n2"]);
    let mut wants = wanting(3, 9);
    let of = |who: &str| {
        format!(
            "Does not fit: {who} asks for 2 of cpu, 4Gi of memory and 9 of nvidia.com/gpu, and the largest node for it has 8 of nvidia.com/gpu."
        )
    };
    assert_eq!(told(&wants, &here).1, of("a replica"));
    wants.parts[0].asked.requests.insert("nvidia.com/gpu".to_owned(), 8.0);
    assert_eq!(told(&wants, &here).1, of("a worker"));
    let mut without = here;
    for node in without.values_mut() {
        node.allocatable.remove("nvidia.com/gpu");
    }
    let found = nodes(&wanting(1, 1), &without, &BTreeMap::new()).remove(0).text;
    assert!(found.ends_with("1 of nvidia.com/gpu, and no node for it has nvidia.com/gpu."), "{found}");
    let (fit, text) = told(&wanting(1, 1), &Nodes::default());
    assert_eq!((fit, text.as_str()), (Fit::Later, "The cluster has no nodes now."));
}

#[test]
fn nodes_that_take_no_pods_count_neither_way() {
    let change = |change: &dyn Fn(&mut NodeSeen)| {
        let mut nodes = cluster(&["n1", "n2"]);
        change(nodes.values_mut().next().unwrap());
        told(&wanting(2, 8), &nodes)
    };
    let taint =
        |key: &str| Taint { key: key.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    for (case, (_, words)) in [
        ("cordoned", change(&|node| node.cordoned = true)),
        ("not heard", change(&|node| node.ready = false)),
        ("tainted", change(&|node| node.taints = vec![taint("team")])),
    ] {
        assert_eq!(words, "1 of 2 replicas fit now, 1 will wait.", "{case}");
    }
}

#[test]
fn labels_and_taints_choose_the_nodes() {
    let spec = JobSpec {
        kubernetes: PodOptions {
            node_selector: [("gpu".to_owned(), "h100".to_owned())].into(),
            tolerations: vec![engine::job::Toleration { key: Some("team".to_owned()), ..Default::default() }],
            ..PodOptions::default()
        },
        accelerators_per_replica: 8,
        ..spec(1)
    };
    let wants = wants::of(&spec, &settings()).unwrap();
    let mut here = cluster(&["n1", "n2"]);
    here.values_mut().last().unwrap().taints = vec![Taint {
        key: "dedicated".to_owned(),
        value: Some("eval".to_owned()),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    }];
    assert_eq!(
        told(&wants, &here).1,
        "No node takes a master as the cluster is now: n1 and n2 lack the label gpu=h100; n2 has the taint dedicated=eval:NoSchedule, which no toleration of the job bears."
    );
    let node = here.values_mut().next().unwrap();
    node.labels.insert("gpu".to_owned(), "h100".to_owned());
    node.taints = vec![Taint {
        key: "team".to_owned(),
        value: Some("a".to_owned()),
        effect: "NoExecute".to_owned(),
        ..Taint::default()
    }];
    assert_eq!(told(&wants, &here).0, Fit::Ok);

    // Only one that keeps it off is large enough.
    let node = here.values_mut().next().unwrap();
    node.allocatable.insert("nvidia.com/gpu".to_owned(), 4.0);
    assert_eq!(
        told(&wants, &here).1,
        "Does not fit: a master asks for 0.05 of cpu, 64Mi of memory and 8 of nvidia.com/gpu, and the largest node for it has 4 of nvidia.com/gpu; of larger ones, n2 lacks the label gpu=h100; n2 has the taint dedicated=eval:NoSchedule, which no toleration of the job bears."
    );
}
