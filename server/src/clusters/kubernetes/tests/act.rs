use engine::{job::JobSpec, record::QueueReason};
use serde_json::Value;
use tokio::time::Instant;

use super::*;
use crate::clusters::kubernetes::fake::{
    self, Asked, TASK, client, list, order, ray_spec, refusal, settings, spec, task, verbs,
};

fn hands(answer: impl Fn(&str, &Value) -> Option<(u16, Value)> + Send + Sync + 'static) -> (Hands, Asked) {
    let (client, asked) = client(answer);
    (Hands { client, settings: settings() }, asked)
}

fn world() -> World {
    World::new(tokio::sync::mpsc::channel(16).0)
}

/// Makes an attempt of which nothing is known, and tells what is known of it then.
async fn create(hands: &Hands, spec: JobSpec) -> Result<JobSeen, ClusterError> {
    let world = world();
    hands.create(&order(spec), &world).await?;
    Ok(world.known(&task(), Instant::now()).0.job.unwrap())
}

/// What the API server stored of a request.
fn stored(body: &Value) -> Option<(u16, Value)> {
    let mut body = body.clone();
    body["metadata"]["uid"] = json!("uid-1");
    Some((201, body))
}

fn ours(hands: &Hands) -> Value {
    let made = manifest::of(&order(spec(2)), &hands.settings).unwrap();
    let mut job = serde_json::to_value(made.job).unwrap();
    job["metadata"]["uid"] = json!("uid-1");
    job
}

fn ours_secret(hands: &Hands) -> Value {
    let made = manifest::of(&order(spec(2)), &hands.settings).unwrap();
    let mut secret = serde_json::to_value(made.secret).unwrap();
    secret["metadata"]["uid"] = json!("uid-2");
    secret
}

fn exists() -> Option<(u16, Value)> {
    refusal(409, "AlreadyExists", "already exists")
}

fn refused(result: Result<JobSeen, ClusterError>) -> String {
    match result {
        Err(ClusterError::Refused { text }) => text,
        other => panic!("{other:?}"),
    }
}

fn delayed(result: Result<JobSeen, ClusterError>) -> (QueueReason, String) {
    match result {
        Err(ClusterError::Delayed { reason, text }) => (reason, text),
        other => panic!("{other:?}"),
    }
}

fn unreachable(result: Result<JobSeen, ClusterError>) -> String {
    match result {
        Err(error @ ClusterError::Unreachable { .. }) => format!("{:#}", anyhow::Error::from(error)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_secret_comes_first_and_is_given_to_the_job() {
    let (hands, asked) = hands(|what, body| match what {
        what if what.starts_with("POST") => stored(body),
        _ => Some((200, json!({ "metadata": {} }))),
    });
    let job = create(&hands, spec(2)).await.unwrap();
    assert_eq!((job.uid.as_str(), job.namespace.as_str(), job.replicas), ("uid-1", "train", 2));
    assert_eq!(verbs(&asked), ["POST secret", "POST job", "PATCH secret"]);
    let asked = asked.lock().unwrap();
    let owner = &asked[2].1["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["name"], &owner["uid"]), (&json!(TASK), &json!("uid-1")));
    let job = asked[1].1.to_string();
    let tokens: Vec<_> = order(spec(2)).tokens.into_values().collect();
    assert!(tokens.iter().all(|token| !job.contains(token)), "no token is in the pods' template");
}

#[tokio::test]
async fn what_an_earlier_try_made_is_taken_also_from_before_clusters_had_names() {
    for is_nameless in [false, true] {
        let (template, _) = hands(|_, _| None);
        let (mut job, mut secret) = (ours(&template), ours_secret(&template));
        for object in [&mut job, &mut secret].into_iter().filter(|_| is_nameless) {
            object["metadata"]["labels"].as_object_mut().unwrap().remove(names::CLUSTER);
        }
        let (hands, asked) = hands(move |what, _| match what {
            what if what.starts_with("POST") => exists(),
            what if what.starts_with("GET") && what.contains("/secrets/") => Some((200, secret.clone())),
            what if what.starts_with("GET") => Some((200, job.clone())),
            _ => Some((200, json!({ "metadata": {} }))),
        });
        create(&hands, spec(2)).await.unwrap();
        assert_eq!(verbs(&asked), ["POST secret", "GET secret", "POST job", "GET job", "PATCH secret"]);
    }
}

#[tokio::test]
async fn an_object_of_somebody_else_is_a_conflict_that_is_named() {
    for change in [
        "/metadata/labels/holdfast.dev~1instance",
        "/metadata/labels/holdfast.dev~1cluster",
        "/metadata/annotations/holdfast.dev~1spec-hash",
    ] {
        let (template, _) = hands(|_, _| None);
        let mut job = ours(&template);
        *job.pointer_mut(change).unwrap() = json!("other");
        let (hands, asked) = hands(move |what, body| match what {
            what if what.starts_with("POST") && what.contains("/secrets") => stored(body),
            what if what.starts_with("POST") => exists(),
            what if what.contains("/pytorchjobs/") => Some((200, job.clone())),
            _ => refusal(404, "NotFound", "not found"),
        });
        let text = refused(create(&hands, spec(2)).await);
        assert!(text.contains(TASK) && text.contains("namespace train"), "{text}");
        assert!(
            !verbs(&asked).iter().any(|verb| verb == "DELETE job" || verb == "PATCH secret"),
            "{asked:?}"
        );
    }
}

#[tokio::test]
async fn a_refusal_leaves_nothing_behind_and_says_what_to_do() {
    let (template, _) = hands(|_, _| None);
    let secret = ours_secret(&template);
    let (hands, asked) = hands(move |what, body| match what {
        what if what.starts_with("POST") && what.contains("/secrets") => stored(body),
        what if what.starts_with("POST") => {
            refusal(404, "NotFound", "the server could not find the requested resource")
        }
        what if what.starts_with("GET") => Some((200, secret.clone())),
        _ => Some((200, json!({ "metadata": {} }))),
    });
    let text = refused(create(&hands, spec(2)).await);
    assert!(text.contains("install the Kubeflow training operator"), "{text}");
    // It is asked again once the API server says that it is ready.
    assert_eq!(
        verbs(&asked),
        ["POST secret", "POST job", "GET ?", "POST job", "GET job", "GET secret", "DELETE secret"]
    );
}

#[tokio::test]
async fn a_refusal_says_nothing_of_what_an_earlier_try_has_made() {
    let forbidden = |verb: &str| {
        refusal(403, "Forbidden", &format!("secrets is forbidden: User \"h\" cannot {verb} resource"))
    };
    // The right to finish is taken away, then all of them.
    let (losing, _) = hands(move |what, body| match what {
        what if what.starts_with("POST") => stored(body),
        _ => forbidden("patch"),
    });
    let known = world();
    assert!(matches!(losing.create(&order(spec(2)), &known).await, Err(ClusterError::Unreachable { .. })));
    let denied = || {
        hands(
            move |what, _| if what == "GET /readyz" { Some((200, json!("ok"))) } else { forbidden("create") },
        )
        .0
    };
    let answer = denied().create(&order(spec(2)), &known).await;
    assert!(matches!(answer, Err(ClusterError::Unreachable { .. })), "{answer:?}");
    let answer = denied().create(&order(spec(2)), &world()).await;
    assert!(matches!(answer, Err(ClusterError::Refused { .. })), "there was no try before: {answer:?}");

    // Where it may be looked for, a server that was started since finds it.
    for (is_there, want) in [(true, false), (false, true)] {
        let (template, _) = hands(|_, _| None);
        let (job, secret) = (ours(&template), ours_secret(&template));
        let (hands, asked) = hands(move |what, _| match what {
            "GET /readyz" => Some((200, json!("ok"))),
            what if what.starts_with("GET") && what.contains("/pytorchjobs/") && is_there => {
                Some((200, job.clone()))
            }
            what if what.starts_with("GET") && what.contains("/secrets/") => Some((200, secret.clone())),
            what if what.starts_with("DELETE") => Some((200, json!({ "metadata": {} }))),
            what if what.starts_with("GET") => refusal(404, "NotFound", "not found"),
            _ => forbidden("create"),
        });
        let answer = hands.create(&order(spec(2)), &world()).await;
        assert_eq!(matches!(answer, Err(ClusterError::Refused { .. })), want, "{answer:?}");
        let asked = verbs(&asked);
        assert_eq!(asked.contains(&"DELETE secret".to_owned()), want, "its Secret goes: {asked:?}");
        assert!(!asked.contains(&"DELETE job".to_owned()));
    }
}

#[tokio::test]
async fn a_quota_or_a_server_that_is_away_is_not_final() {
    let (quota, _) = hands(|what, body| match what {
        what if what.contains("/secrets") => stored(body),
        _ => refusal(403, "Forbidden", "pytorchjobs.kubeflow.org \"a\" is forbidden: exceeded quota: jobs"),
    });
    let (reason, text) = delayed(create(&quota, spec(2)).await);
    assert!(reason == QueueReason::Quota && text.contains("exceeded quota"), "{text}");
    let forbidden = || refusal(403, "Forbidden", "secrets is forbidden: User \"h\" cannot create resource");
    let (denied, asked) = hands(move |what, _| match what {
        "GET /readyz" => Some((200, json!("ok"))),
        _ => forbidden(),
    });
    assert!(refused(create(&denied, spec(2)).await).contains("docs/kubernetes.md"));
    assert_eq!(
        verbs(&asked),
        ["POST secret", "GET ?", "POST secret", "GET job", "GET secret"],
        "asked again once it is ready"
    );
    // It knows nobody's rights yet, not even that everybody may ask whether it is ready.
    let (early, _) = hands(move |_, _| forbidden());
    assert!(unreachable(create(&early, spec(2)).await).contains("is not ready"));
    assert_eq!(
        unready("[+]ping ok\n[-]informer-sync failed: reason withheld\nreadyz check failed"),
        "[-]informer-sync failed: reason withheld"
    );
    for code in [401, 429, 500, 503] {
        let (hands, _) = hands(move |_, _| refusal(code, "", "later"));
        let text = unreachable(create(&hands, spec(2)).await);
        assert!(text.contains("later"), "{text}");
    }
}

#[tokio::test]
async fn a_refusal_is_believed_where_nobody_may_ask_whether_the_api_server_is_ready() {
    // Some clusters let nobody read /readyz, some have a proxy before it that knows no such path.
    for (code, reason) in [(401, "Unauthorized"), (403, "Forbidden"), (404, "NotFound")] {
        let (hands, asked) = hands(move |what, _| match what {
            "GET /readyz" => refusal(code, reason, "no"),
            // Of the namespaces one may be gone, with what was allowed there.
            what if what.contains("/namespaces/eval/pods") => list(Vec::new()),
            _ => refusal(403, "Forbidden", "secrets is forbidden: User \"h\" cannot create resource"),
        });
        assert!(refused(create(&hands, spec(2)).await).contains("docs/kubernetes.md"));
        let tries = verbs(&asked).iter().filter(|verb| *verb == "POST secret").count();
        assert_eq!(tries, 2);
    }
    // A proxy that has nobody behind it.
    let (away, _) = hands(|what, _| match what {
        "GET /readyz" => refusal(502, "", "bad gateway"),
        _ => refusal(404, "NotFound", "not found"),
    });
    assert!(unreachable(create(&away, spec(2)).await).contains("bad gateway"));
}

#[tokio::test]
async fn a_connection_that_is_refused_is_not_final() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let config = kube::Config::new(format!("http://{address}").parse().unwrap());
    let hands = Hands { client: Client::try_from(config).unwrap(), settings: settings() };
    assert!(unreachable(create(&hands, spec(2)).await).contains("did not answer"));
}

#[tokio::test]
async fn a_removal_is_of_the_object_that_was_read() {
    let (template, _) = hands(|_, _| None);
    let (job, secret) = (ours(&template), ours_secret(&template));
    let (hands, asked) = hands(move |what, _| match what {
        what if what.starts_with("GET") && what.contains("/secrets/") => Some((200, secret.clone())),
        what if what.starts_with("GET") => Some((200, job.clone())),
        what if what.contains("/pods") => list(Vec::new()),
        _ => Some((200, json!({ "metadata": {} }))),
    });
    hands.delete("train", JobKind::PyTorchJob, &task(), true).await.unwrap();
    assert_eq!(
        verbs(&asked),
        ["GET job", "DELETE job", "GET secret", "DELETE secret", "DELETE pods", "DELETE pods"]
    );
    let asked = asked.lock().unwrap();
    assert_eq!(asked[1].1["preconditions"]["uid"], "uid-1");
    assert_eq!(asked[1].1["propagationPolicy"], "Background");
    assert_eq!(asked[4].1["gracePeriodSeconds"], 0);
    for (what, _) in &asked[4..] {
        assert!(what.contains("holdfast.dev%2Ftask") && what.contains("holdfast.dev%2Fcluster"), "{what}");
    }
}

#[tokio::test]
async fn what_is_not_ours_or_was_made_again_is_not_removed() {
    let (template, _) = hands(|_, _| None);
    for label in ["instance", "cluster"] {
        let mut stranger = ours(&template);
        stranger["metadata"]["labels"][format!("holdfast.dev/{label}")] = json!("other");
        let marks = json!({ "metadata": stranger["metadata"] });
        let (hands, asked) = hands(move |_, _| Some((200, marks.clone())));
        hands.delete("train", JobKind::PyTorchJob, &task(), false).await.unwrap();
        assert_eq!(verbs(&asked), ["GET job", "GET secret"], "{label}");
    }

    let job = ours(&template);
    let (hands, _) = self::hands(move |what, _| match what {
        what if what.starts_with("DELETE") => {
            refusal(409, "Conflict", "the UID in the precondition does not match")
        }
        _ => Some((200, job.clone())),
    });
    let error = hands.delete("train", JobKind::PyTorchJob, &task(), false).await.unwrap_err();
    assert!(matches!(error, ClusterError::Unreachable { .. }), "{error:?}");
}

#[tokio::test]
async fn an_attempt_from_before_there_were_several_clusters_is_of_the_one_of_flags() {
    for (cluster, is_found) in [("kubernetes", true), ("gpu-a", false)] {
        let (mut template, _) = hands(|_, _| None);
        template.settings.name = cluster.to_owned();
        let (mut job, mut secret) = (ours(&template), ours_secret(&template));
        let own = fake::pod_object("master-0", "m-1", "n1", fake::running());
        let mut others = fake::pod_object("worker-0", "w-1", "n1", fake::running());
        others["metadata"]["labels"][names::CLUSTER] = json!("third");
        let mut pods = vec![own, others];
        for object in [&mut job, &mut secret, &mut pods[0]] {
            object["metadata"]["labels"].as_object_mut().unwrap().remove(names::CLUSTER);
        }
        let (client, asked) = client(move |what, _| match what {
            what if what.starts_with("GET") && what.contains("/secrets/") => Some((200, secret.clone())),
            what if what.starts_with("GET") && what.contains("/pytorchjobs/") => Some((200, job.clone())),
            what if what.starts_with("GET") => list(pods.clone()),
            _ => Some((200, json!({ "metadata": {} }))),
        });
        let hands = Hands { client, settings: template.settings };
        let (job, pods) = hands.look("train", JobKind::PyTorchJob, &task()).await.unwrap();
        let found: Vec<_> = pods.iter().map(|pod| pod.uid.as_str()).collect();
        assert_eq!(job.is_some(), is_found, "{cluster}");
        assert_eq!(found, if is_found { vec!["m-1"] } else { Vec::new() }, "{cluster}");
        assert_eq!(
            hands.find("train", JobKind::PyTorchJob, &task()).await.unwrap().is_some(),
            is_found,
            "{cluster}"
        );
        asked.lock().unwrap().clear();
        hands.delete("train", JobKind::PyTorchJob, &task(), false).await.unwrap();
        let removed = verbs(&asked).iter().filter(|verb| verb.starts_with("DELETE")).count();
        assert_eq!(removed, if is_found { 2 } else { 0 }, "{cluster}");
    }
}

#[tokio::test]
async fn what_is_absent_counts_as_removed() {
    let (hands, asked) = hands(|what, _| match what {
        what if what.contains("/pods") => list(Vec::new()),
        _ => refusal(404, "NotFound", "not found"),
    });
    hands.delete("train", JobKind::PyTorchJob, &task(), false).await.unwrap();
    assert_eq!(verbs(&asked), ["GET job", "GET secret"]);
    assert_eq!(hands.look("train", JobKind::PyTorchJob, &task()).await.unwrap(), (None, Vec::new()));
}

#[tokio::test]
async fn a_rayjob_is_made_found_and_removed_with_all_that_it_owns() {
    let (hands, asked) = hands(|what, body| match what {
        what if what.starts_with("POST") => stored(body),
        _ => Some((200, json!({ "metadata": {} }))),
    });
    let job = create(&hands, ray_spec(3)).await.unwrap();
    assert_eq!((job.kind, job.replicas), (JobKind::RayJob, 3));
    assert_eq!(verbs(&asked), ["POST secret", "POST rayjob", "PATCH secret"]);
    let owner = asked.lock().unwrap()[2].1["metadata"]["ownerReferences"][0].clone();
    assert_eq!((&owner["apiVersion"], &owner["kind"]), (&json!("ray.io/v1"), &json!("RayJob")));

    let made = manifest::of(&order(ray_spec(3)), &hands.settings).unwrap();
    let mut job = serde_json::to_value(made.job).unwrap();
    job["metadata"]["uid"] = json!("uid-1");
    let (hands, asked) = self::hands(move |what, _| match what {
        what if what.starts_with("GET") && what.contains("/rayjobs/") => Some((200, job.clone())),
        what if what.starts_with("GET") => refusal(404, "NotFound", "not found"),
        _ => Some((200, json!({ "metadata": {} }))),
    });
    hands.delete("train", JobKind::RayJob, &task(), false).await.unwrap();
    assert_eq!(verbs(&asked), ["GET rayjob", "DELETE rayjob", "GET secret"]);
    let asked = asked.lock().unwrap();
    assert_eq!(asked[1].1["propagationPolicy"], "Foreground", "it stays until its cluster is gone");
    assert_eq!(asked[1].1["preconditions"]["uid"], "uid-1");
}

#[tokio::test]
async fn a_cluster_without_kuberay_refuses_a_rayjob_and_says_what_to_install() {
    let (hands, _) = hands(|what, body| match what {
        what if what.starts_with("POST") && what.contains("/rayjobs") => {
            refusal(404, "NotFound", "the server could not find the requested resource")
        }
        what if what.starts_with("POST") => stored(body),
        "GET /readyz" => Some((200, json!("ok"))),
        _ => refusal(404, "NotFound", "not found"),
    });
    let text = refused(create(&hands, ray_spec(1)).await);
    assert!(text.contains("install KubeRay"), "{text}");
}

/// A RayJob that KubeRay keeps, and an API server that is asked to remove it.
fn kept_rayjob(patched: (u16, Value)) -> (Hands, Asked) {
    let (template, _) = hands(|_, _| None);
    let made = manifest::of(&order(ray_spec(3)), &template.settings).unwrap();
    let mut job = serde_json::to_value(made.job).unwrap();
    job["metadata"]["uid"] = json!("uid-1");
    job["metadata"]["resourceVersion"] = json!("7");
    job["metadata"]["finalizers"] = json!([names::RAY_FINALIZER]);
    let mut ending = job.clone();
    ending["metadata"]["resourceVersion"] = json!("8");
    ending["metadata"]["finalizers"] = json!([names::RAY_FINALIZER, "foregroundDeletion", "example.org/own"]);
    hands(move |what, _| match what {
        what if what.contains("/pods") => list(Vec::new()),
        what if what.starts_with("GET") && what.contains("/rayjobs/") => Some((200, job.clone())),
        what if what.starts_with("DELETE") && what.contains("/rayjobs/") => Some((200, ending.clone())),
        what if what.starts_with("PATCH") => Some(patched.clone()),
        _ => refusal(404, "NotFound", "not found"),
    })
}

#[tokio::test]
async fn a_forced_removal_does_not_wait_for_kuberay() {
    let (hands, asked) = kept_rayjob((200, json!({ "metadata": {} })));
    let removal = hands.delete("train", JobKind::RayJob, &task(), false).await.unwrap();
    assert_eq!(removal.found.unwrap().finalizers(), [names::RAY_FINALIZER]);
    assert_eq!(verbs(&asked), ["GET rayjob", "DELETE rayjob", "GET secret"]);

    let (hands, asked) = kept_rayjob((200, json!({ "metadata": {} })));
    let removal = hands.delete("train", JobKind::RayJob, &task(), true).await.unwrap();
    assert_eq!(removal.not_released, None);
    assert_eq!(
        verbs(&asked),
        ["GET rayjob", "DELETE rayjob", "PATCH rayjob", "GET secret", "DELETE pods", "DELETE pods"]
    );
    let patch = asked.lock().unwrap()[2].1.clone();
    assert_eq!(
        patch["metadata"],
        json!({ "finalizers": ["foregroundDeletion", "example.org/own"], "resourceVersion": "8" }),
        "only KubeRay's, and only if the object is as it was read"
    );
}

#[tokio::test]
async fn a_right_that_is_missing_for_that_is_named_and_the_rest_is_done() {
    let denied = refusal(403, "Forbidden", "cannot patch resource \"rayjobs\"").unwrap();
    let (hands, asked) = kept_rayjob(denied);
    let removal = hands.delete("train", JobKind::RayJob, &task(), true).await.unwrap();
    let why = removal.not_released.unwrap();
    assert!(why.contains("cannot patch") && why.contains("grant patch on rayjobs"), "{why}");
    assert!(verbs(&asked).contains(&"DELETE pods".to_owned()));
}

#[tokio::test]
async fn pods_on_a_lost_node_are_removed_at_once() {
    let (hands, asked) = hands(|_, _| Some((200, json!({ "metadata": {} }))));
    let pod = fake::pod("worker-0", "w-1", "n1", fake::running());
    hands.end_pods("train", JobKind::PyTorchJob, &[pod]).await.unwrap();
    let asked = asked.lock().unwrap();
    let [(what, body)] = &asked[..] else { panic!("{asked:?}") };
    assert!(what.starts_with("DELETE") && what.contains(&format!("/pods/{TASK}-worker-0")), "{what}");
    assert_eq!((&body["gracePeriodSeconds"], &body["preconditions"]["uid"]), (&json!(0), &json!("w-1")));
}
