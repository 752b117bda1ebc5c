use engine::job::SiteCluster;
use serde_json::json;

use super::*;
use crate::forms::{
    new_job::{self, Answer, CHECK, check, checked, sentence},
    review,
    typed::field_of,
};

fn site() -> Site {
    let mut site = Site::default();
    site.clusters
        .push(SiteCluster { namespaces: vec!["train".to_owned()], ..SiteCluster::kubernetes("gpu-a") });
    site
}

fn object() -> Value {
    let pod = json!({ "template": { "spec": { "containers": [
        { "name": "pytorch", "image": "asr:7", "command": ["python3", "a.py"], "resources": { "limits": { "nvidia.com/gpu": 1 } } },
    ] } } });
    json!({
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": { "name": "whisper" },
        "spec": { "pytorchReplicaSpecs": { "Master": pod, "Worker": pod } },
    })
}

/// The form with a text that a server has read.
fn form(text: &str, read: Result<Value, &str>) -> Typed {
    let mut typed = Typed::for_manifest(&site());
    typed.set(name::MANIFEST, text);
    keep(&mut typed, |_| read.map_err(str::to_owned));
    typed
}

fn told(typed: &Typed) -> Vec<String> {
    check(typed, &site()).unwrap_err().iter().map(sentence).collect()
}

#[test]
fn an_empty_form_asks_for_the_manifest_alone_and_prefers_kubernetes() {
    let typed = Typed::for_manifest(&site());
    assert!(is_pasted(&typed) && !is_pasted(&Typed::prefilled(&site())));
    assert_eq!(typed.get(name::CLUSTER), "gpu-a");
    assert_eq!(told(&typed), ["Manifest is missing; paste a PyTorchJob or a RayJob as YAML or JSON."]);
}

#[test]
fn a_text_that_was_read_makes_the_job() {
    let (draft, spec) = checked(&form("text", Ok(object())), &site()).unwrap();
    assert_eq!((spec.name.as_str(), spec.replicas, spec.cluster.as_str()), ("whisper", 2, "gpu-a"));
    assert_eq!(draft.validate(&site()).unwrap(), spec);
    let read = read_from(&spec);
    let labels: Vec<_> = read.iter().map(|(label, _)| *label).collect();
    assert_eq!(labels[..6], ["Kind", "Name", "Image", "Command", "Replicas", "GPUs in each replica"]);
    assert_eq!(labels[6..], ["Accelerator resource", "Namespace"]);
    assert_eq!(read[7].1, "train", "where it runs, though it does not say");
}

#[test]
fn a_text_that_was_not_read_is_judged_by_nobody_but_the_server() {
    let mut typed = form("text", Ok(object()));
    typed.set(name::HANG, "on");
    typed.set(name::POLICY, "on");
    typed.set(name::FAILOVER, "on");
    forget(&mut typed);
    let errors = check(&typed, &site()).unwrap_err();
    assert!(only_unread(&errors), "{errors:?}");
    typed.set(name::TASK_RESTARTS, "-1");
    assert!(!only_unread(&check(&typed, &site()).unwrap_err()));
    assert!(!only_unread(&check(&form("a: [", Err("cannot be read as YAML: x")), &site()).unwrap_err()));
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let mut wrong = object();
    wrong["metadata"]["namespace"] = json!("other");
    wrong["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]["command"] =
        json!(null);
    assert_eq!(
        told(&form("text", Ok(wrong.clone()))),
        [
            "metadata.namespace is not one that jobs may use here; use train, or have it added to the cluster's namespaces (--kube-namespace).",
            "spec.pytorchReplicaSpecs.Master.template.spec.containers[0].command is missing; the agent starts the program, and what the image would start is not known here: write the program, which args follow.",
        ]
    );
    let errors = check(&form("text", Ok(wrong)), &site()).unwrap_err();
    assert!(errors.iter().all(|error| field_of(&error.field) == name::MANIFEST));
    let unread = told(&form("a: [", Err("cannot be read as YAML: line 1, column 4: unclosed bracket '['")));
    assert_eq!(unread, ["Manifest cannot be read as YAML: line 1, column 4: unclosed bracket '['."]);
    let mut local = form("text", Ok(object()));
    local.set(name::CLUSTER, "local");
    assert_eq!(
        told(&local),
        [
            "Manifest needs a Kubernetes cluster, and local runs programs of this machine; create the job by its fields."
        ]
    );
}

#[test]
fn nobody_can_post_what_was_read() {
    let mut typed = form("text", Ok(object()));
    typed.set(READ, "forged");
    typed.set(UNREAD, "forged");
    keep(&mut typed, |text| {
        assert_eq!(text, "text");
        Ok(object())
    });
    assert_eq!(object_of(&typed), object());
    assert_eq!(typed.text(UNREAD), None);
}

fn object_of(typed: &Typed) -> Value {
    super::object(typed).unwrap().object().clone()
}

#[test]
fn what_was_read_stays_while_the_text_is_the_same_but_for_line_breaks() {
    let old = form("a\nb", Ok(object()));
    for (text, stays) in [("a\r\nb", true), ("a\nc", false)] {
        let mut new = Typed::default();
        new.set(name::MANIFEST, text);
        carry_over(&old, &mut new);
        assert_eq!(is_read(&new), stays, "{text:?}");
    }
}

#[test]
fn a_copy_shows_the_manifest_and_makes_the_same_job() {
    let (_, spec) = checked(&form("text", Ok(object())), &site()).unwrap();
    let original = JobDraft::from(&spec);
    let typed = Typed::of_draft(&original, &site());
    assert!(typed.get(name::MANIFEST).contains("image: \"asr:7\""), "{}", typed.get(name::MANIFEST));
    assert_eq!(checked(&typed, &site()).unwrap().1, spec);
    assert_eq!(review::changes(&typed, &original, &site()), []);
    let mut other = typed.clone();
    let mut changed = object();
    changed["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = json!(3);
    other.set(name::MANIFEST, "another text");
    keep(&mut other, |_| Ok(changed));
    let changes = review::changes(&other, &original, &site());
    assert_eq!(changes.iter().map(|one| one.field).collect::<Vec<_>>(), [name::MANIFEST]);
}

#[test]
fn checking_creates_nothing_and_says_what_is_wrong() {
    let asked = |mut typed: Typed| {
        typed.set(name::SHOW, CHECK);
        match new_job::answer(typed.into_fields(), &site()) {
            Answer::ShowAgain(posted) => posted,
            Answer::Create(_) => panic!("created"),
        }
    };
    let good = asked(form("text", Ok(object())));
    assert_eq!((good.errors.len(), new_job::status(&good)), (0, 200));
    let wrong = asked(form("- 1", Ok(json!([1]))));
    assert_eq!((wrong.errors.len(), new_job::status(&wrong)), (1, 422));
    assert!(matches!(new_job::answer(form("text", Ok(object())).into_fields(), &site()), Answer::Create(_)));
}

#[test]
fn a_checkpoint_directory_has_to_be_on_a_volume_that_lasts() {
    let told = |source: Value, dir: &str| {
        let mut object = object();
        let pod = &mut object["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"];
        pod["volumes"] = json!([{ "name": "runs" }]);
        pod["volumes"][0].as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
        pod["containers"][0]["volumeMounts"] = json!([{ "name": "runs", "mountPath": "/runs" }]);
        let mut typed = form("text", Ok(object));
        typed.set(name::CHECKPOINT_DIR, dir);
        let (_, spec) = checked(&typed, &site()).unwrap();
        review::readiness(&spec, None, &site()).remove(0).1
    };
    let claim = json!({ "persistentVolumeClaim": { "claimName": "a" } });
    assert_eq!(told(claim.clone(), "/runs/asr"), "checkpoint directory /runs/asr, on the volume runs");
    assert!(told(claim, "/elsewhere").ends_with("is lost with the pod: mount a volume there"));
    assert!(told(json!({ "emptyDir": {} }), "/runs").ends_with("is lost with the pod: mount a volume there"));
    assert!(told(json!({ "configMap": {} }), "/runs").ends_with("on a volume that is read only"));
    assert_eq!(told(json!({ "nfs": {} }), "/runs"), "checkpoint directory /runs, on the volume runs");
}

fn rayjob() -> Value {
    let head =
        json!({ "template": { "spec": { "containers": [{ "name": "ray-head", "image": "ray:2" }] } } });
    let worker = json!({ "replicas": 2, "template": { "spec": { "containers": [
        { "name": "w", "image": "ray:2", "resources": { "limits": { "nvidia.com/gpu": 4 } } },
    ] } } });
    json!({
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": { "name": "tune" },
        "spec": {
            "entrypoint": "python tune.py",
            "rayClusterSpec": { "headGroupSpec": head, "workerGroupSpecs": [worker] },
        },
    })
}

#[test]
fn a_rayjob_is_told_as_one_and_what_is_for_pytorchjobs_is_kept_and_not_sent() {
    let mut typed = form("text", Ok(rayjob()));
    typed.turn(name::FAILOVER, true);
    typed.turn(name::POLICY, true);
    assert!(typed.is_ray());
    let (_, spec) = checked(&typed, &site()).unwrap();
    assert!(!spec.fault_tolerance.policy.enabled && typed.is_on(name::POLICY));
    let read = read_from(&spec);
    let value = |label: &str| read.iter().find(|(one, _)| *one == label).unwrap().1.clone();
    assert_eq!(value("Kind"), "RayJob");
    assert_eq!(value("Replicas"), "3, the head included");
    assert_eq!(value("GPUs in each replica"), "at most 4");
    // While the text is another one nothing jumps; what it is read as decides.
    forget(&mut typed);
    assert!(typed.is_ray());
    let mut posted = Typed::default();
    posted.set(name::MANIFEST, "text");
    carry_over(&form("text", Ok(rayjob())), &mut posted);
    assert!(posted.is_ray());
    keep(&mut posted, |_| Ok(object()));
    assert!(!posted.is_ray());
}

#[test]
fn a_copy_of_a_rayjob_makes_the_same_job() {
    let (_, spec) = checked(&form("text", Ok(rayjob())), &site()).unwrap();
    let original = JobDraft::from(&spec);
    let typed = Typed::of_draft(&original, &site());
    assert_eq!(checked(&typed, &site()).unwrap().1, spec);
    assert_eq!(review::changes(&typed, &original, &site()), []);
}
