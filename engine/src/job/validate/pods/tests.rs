use crate::job::{FieldError, JobDraft, Site, SiteCluster};

fn site(allows_host_paths: bool) -> Site {
    let mut site = Site::default();
    site.clusters.push(SiteCluster { allows_host_paths, ..SiteCluster::kubernetes("k8s") });
    site
}

/// A job on Kubernetes with these options; `env` has TAKEN.
fn draft(options: &str) -> JobDraft {
    let body = format!(
        r#"{{"name":"a","command":["true"],"cluster":"k8s","image":"x","env":{{"TAKEN":"1"}},"kubernetes":{options}}}"#
    );
    serde_json::from_str(&body).unwrap()
}

fn told(errors: Vec<FieldError>) -> Vec<String> {
    errors.into_iter().map(|error| format!("{} {}", error.field, error.message)).collect()
}

fn refused(options: &str) -> Vec<String> {
    told(draft(options).validate(&site(false)).err().unwrap_or_default())
}

const EVERYTHING: &str = r#"{
    "namespace": "team-a", "cpu": "500m", "memory": "64Gi", "accelerator": "nvidia.com/gpu", "shm_size": "8Gi",
    "secrets": [{"name": "TOKEN", "secret": "hub.tokens", "key": "read_only.txt"}],
    "volumes": [
        {"mount_path": "/data", "source": {"claim": "dataset"}, "read_only": true},
        {"mount_path": "/data/runs", "source": {"claim": "runs"}},
        {"mount_path": "/etc/train", "source": {"config_map": "settings"}},
        {"mount_path": "/etc/keys", "source": {"secret": "keys"}}
    ],
    "node_selector": {"kubernetes.io/arch": "amd64", "pool": ""},
    "tolerations": [
        {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
        {"key": "dedicated", "value": "train", "effect": "NoExecute"},
        {"key": "spot", "value": ""},
        {}
    ],
    "priority_class": "high", "service_account": "trainer", "pull_secrets": ["registry"],
    "labels": {"example.org/queue": "team-a", "app.kubernetes.io/name": "train", "team": "a"},
    "kueue_queue": "team-a", "volcano_queue": "research", "scheduler": "volcano-large"
}"#;

#[test]
fn all_options_are_taken_and_kept() {
    let spec = draft(EVERYTHING).validate(&site(false)).unwrap();
    assert_eq!(spec.kubernetes, draft(EVERYTHING).kubernetes);
    assert_eq!(JobDraft::from(&spec).validate(&site(false)).unwrap(), spec);
}

#[test]
fn an_empty_text_asks_for_nothing() {
    let spec = draft(r#"{"cpu": " ", "memory": " 64Gi ", "namespace": ""}"#).validate(&site(false)).unwrap();
    assert_eq!(spec.kubernetes, draft(r#"{"memory": "64Gi"}"#).kubernetes);
}

#[test]
fn a_job_that_names_no_namespace_keeps_the_one_that_was_the_first() {
    let site_of = |namespaces: &[&str]| {
        let mut site = site(false);
        site.clusters[1].namespaces = namespaces.iter().map(|name| (*name).to_owned()).collect();
        site
    };
    let spec = draft("{}").validate(&site_of(&["train", "eval"])).unwrap();
    assert_eq!(spec.kubernetes.namespace.as_deref(), Some("train"));
    let again = JobDraft::from(&spec).validate(&site_of(&["eval", "train"])).unwrap();
    assert_eq!(again, spec, "whatever is the first by now");
    let unknown = draft("{}").validate(&site(false)).unwrap();
    assert_eq!(unknown.kubernetes.namespace, None, "where the site does not say, the cluster does");
}

#[test]
fn the_local_cluster_uses_none_of_them() {
    let mut local = draft(EVERYTHING);
    (local.cluster, local.image) = (None, None);
    let errors = local.validate(&site(false)).unwrap_err();
    let fields: Vec<_> = errors.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "kubernetes.namespace",
            "kubernetes.cpu",
            "kubernetes.memory",
            "kubernetes.accelerator",
            "kubernetes.shm_size",
            "kubernetes.secrets",
            "kubernetes.volumes",
            "kubernetes.node_selector",
            "kubernetes.tolerations",
            "kubernetes.priority_class",
            "kubernetes.service_account",
            "kubernetes.pull_secrets",
            "kubernetes.labels",
            "kubernetes.kueue_queue",
            "kubernetes.volcano_queue",
            "kubernetes.scheduler"
        ]
    );
    assert_eq!(
        errors[1].message,
        "is not used by the local cluster, which runs programs of this machine; leave it out"
    );
}

#[test]
fn an_unknown_cluster_is_the_only_error() {
    let mut draft = draft(r#"{"cpu": "x"}"#);
    draft.cluster = Some("mars".to_owned());
    let errors = draft.validate(&site(false)).unwrap_err();
    assert_eq!(errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(), ["cluster"]);
}

#[test]
fn amounts_are_cores_and_bytes() {
    for (options, want) in [
        (r#"{"cpu": "0"}"#, "kubernetes.cpu `0` is not allowed. Use 1m to 4096 cores."),
        (
            r#"{"cpu": "64Gi"}"#,
            "kubernetes.cpu `64Gi` is no number of cores. Use one such as 4, 0.5 or 500m, nothing finer than 1m.",
        ),
        (
            r#"{"cpu": "0.0005"}"#,
            "kubernetes.cpu `0.0005` is no number of cores. Use one such as 4, 0.5 or 500m, nothing finer than 1m.",
        ),
        (
            r#"{"cpu": "-1"}"#,
            "kubernetes.cpu `-1` is no number of cores. Use one such as 4, 0.5 or 500m, nothing finer than 1m.",
        ),
        (r#"{"cpu": "5000"}"#, "kubernetes.cpu `5000` is not allowed. Use 1m to 4096 cores."),
        (r#"{"memory": "64"}"#, "kubernetes.memory `64` is 64 bytes. Use 4Mi to 1Pi."),
        (
            r#"{"memory": "400m"}"#,
            "kubernetes.memory `400m` is at most 1 byte. m is a thousandth. Use 4Mi to 1Pi.",
        ),
        (r#"{"memory": "64GB"}"#, "kubernetes.memory `64GB` is no size. Use one such as 64Gi, 512Mi or 1e9."),
        (r#"{"shm_size": "2Pi"}"#, "kubernetes.shm_size `2Pi` is 2251799813685248 bytes. Use 4Mi to 1Pi."),
    ] {
        assert_eq!(refused(options), [want], "{options}");
    }
    for options in
        [r#"{"cpu": "1e3"}"#, r#"{"cpu": "0.5"}"#, r#"{"memory": "1e9"}"#, r#"{"memory": "1.5Gi"}"#]
    {
        assert_eq!(refused(options), [""; 0], "{options}");
    }
}

#[test]
fn names_and_labels_are_as_kubernetes_takes_them() {
    let long = "a".repeat(64);
    for (options, want) in [
        (r#"{"namespace": "a.b"}"#.to_owned(), vec!["kubernetes.namespace must be 1 to 63 of a-z"]),
        (format!(r#"{{"namespace": "{long}"}}"#), vec!["kubernetes.namespace must be 1 to 63 of a-z"]),
        (r#"{"accelerator": "gpu"}"#.to_owned(), vec!["kubernetes.accelerator must be a resource of the nodes"]),
        (r#"{"priority_class": "High"}"#.to_owned(), vec!["kubernetes.priority_class must be 1 to 253"]),
        (r#"{"scheduler": "my scheduler"}"#.to_owned(), vec!["kubernetes.scheduler must be 1 to 253"]),
        (format!(r#"{{"volcano_queue": "{}"}}"#, "q".repeat(64)), vec!["kubernetes.volcano_queue must be 1 to 63"]),
        (
            r#"{"kueue_queue": "A", "labels": {"kueue.x-k8s.io/queue-name": "team-a"}}"#.to_owned(),
            vec!["kubernetes.kueue_queue must be 1 to 63", "kubernetes.kueue_queue is also set in the labels"],
        ),
        (r#"{"service_account": "a_b"}"#.to_owned(), vec!["kubernetes.service_account must be 1 to 253"]),
        (
            r#"{"pull_secrets": ["a", "B", "c "]}"#.to_owned(),
            vec!["kubernetes.pull_secrets[1] must be 1 to 253", "kubernetes.pull_secrets[2] must be 1 to 253"],
        ),
        (
            r#"{"node_selector": {"a b": "", "pool": "x y"}}"#.to_owned(),
            vec![
                "kubernetes.node_selector.a b must be up to 63 letters",
                "kubernetes.node_selector.pool must have a value that Kubernetes takes",
            ],
        ),
        (
            r#"{"labels": {"holdfast.dev/job": "x", "training.kubeflow.org/job-name": "x", "kubernetes.io/x": "x"}}"#
                .to_owned(),
            vec![
                "kubernetes.labels.holdfast.dev/job is set by Holdfast",
                "kubernetes.labels.kubernetes.io/x is set by Holdfast",
                "kubernetes.labels.training.kubeflow.org/job-name is set by Holdfast",
            ],
        ),
        (
            r#"{"tolerations": [{"key": "a/b/c"}, {"value": "x"}, {"key": "a", "value": "-", "effect": "Never"}]}"#
                .to_owned(),
            vec![
                "kubernetes.tolerations[0].key must be up to 63 letters",
                "kubernetes.tolerations[1].value must have a key",
                "kubernetes.tolerations[2].value must be empty or up to 63 letters",
                "kubernetes.tolerations[2].effect must be NoSchedule, PreferNoSchedule or NoExecute",
            ],
        ),
    ] {
        let told = refused(&options);
        assert_eq!(told.len(), want.len(), "{told:?}");
        for (told, want) in told.iter().zip(want) {
            assert!(told.starts_with(want), "{told}");
        }
    }
}

#[test]
fn a_variable_from_a_secret_is_set_once_and_not_by_holdfast() {
    for (secret, want) in [
        (r#"{"name": "1A", "secret": "s", "key": "k"}"#, "name is no variable name"),
        (r#"{"name": "RANK", "secret": "s", "key": "k"}"#, "name is set by Holdfast for each process"),
        (r#"{"name": "TAKEN", "secret": "s", "key": "k"}"#, "name is also set in the environment"),
        (r#"{"name": "FIRST", "secret": "s", "key": "k"}"#, "name is set twice"),
        (r#"{"name": "A", "secret": "S", "key": "k"}"#, "secret must be 1 to 253"),
        (r#"{"name": "A", "secret": "s", "key": "../k"}"#, "key must be 1 to 253 letters"),
    ] {
        let told =
            refused(&format!(r#"{{"secrets": [{{"name": "FIRST", "secret": "s", "key": "k"}}, {secret}]}}"#));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with(&format!("kubernetes.secrets[1].{want}")), "{told:?}");
    }
}

#[test]
fn a_volume_is_mounted_once_where_nothing_else_is() {
    let at = |path: &str| {
        refused(&format!(
            r#"{{"shm_size": "8Gi", "volumes": [
                {{"mount_path": "/data", "source": {{"claim": "a"}}}}, {{"mount_path": "{path}", "source": {{"claim": "b"}}}}
            ]}}"#
        ))
    };
    for (path, want) in [
        ("data", "must be absolute, such as /data"),
        ("", "must be absolute, such as /data"),
        ("/", "must not be / itself"),
        ("//.", "must not be / itself"),
        ("/a/../b", "must not go up with `..`"),
        ("/a:b", "must hold no colon"),
        ("/a\\n", "holds U+000A"),
        ("/data", "is mounted twice"),
        ("/data/", "is mounted twice"),
        ("/holdfast", "must not be within /holdfast or /etc/holdfast"),
        ("/holdfast/x", "must not be within /holdfast or /etc/holdfast"),
        ("/etc/holdfast", "must not be within /holdfast or /etc/holdfast"),
        ("/etc//holdfast/token", "must not be within /holdfast or /etc/holdfast"),
        ("/dev/shm", "must not be within /dev/shm"),
    ] {
        let told = at(path);
        assert_eq!(told.len(), 1, "{path}: {told:?}");
        assert!(told[0].starts_with(&format!("kubernetes.volumes[1].mount_path {want}")), "{path}: {told:?}");
    }
    for path in ["/data/deep", "/database", "/holdfasts", "/etc/holdfast2", "/dev/shm2", "/with space"] {
        assert_eq!(at(path), [""; 0], "{path}");
    }
    let own = r#"{"volumes": [{"mount_path": "/dev/shm", "source": {"claim": "a"}}]}"#;
    assert_eq!(refused(own), [""; 0], "without shm_size it is free");
    let named = r#"{"volumes": [{"mount_path": "/a", "source": {"config_map": "A"}}]}"#;
    assert!(refused(named)[0].starts_with("kubernetes.volumes[0].source must be 1 to 253"));
}

#[test]
fn directories_of_the_node_are_for_sites_that_allow_them() {
    let body = |path: &str| {
        draft(&format!(r#"{{"volumes": [{{"mount_path": "/a", "source": {{"host_path": "{path}"}}}}]}}"#))
    };
    let told = |path: &str, allowed| told(body(path).validate(&site(allowed)).err().unwrap_or_default());
    assert_eq!(
        told("/mnt", false),
        [
            "kubernetes.volumes[0].source is a directory of the node, which this cluster does not allow; use a claim"
        ]
    );
    assert_eq!(told("/mnt", true), [""; 0]);
    assert_eq!(told("mnt", true), ["kubernetes.volumes[0].source must be absolute, such as /data"]);
}

#[test]
fn there_may_be_only_so_many() {
    let list =
        |count: usize, entry: &dyn Fn(usize) -> String| (0..count).map(entry).collect::<Vec<_>>().join(",");
    for (options, want) in [
        (
            format!(
                r#"{{"volumes": [{}]}}"#,
                list(65, &|at| format!(r#"{{"mount_path": "/v/{at}", "source": {{"claim": "a"}}}}"#))
            ),
            "kubernetes.volumes has 65 entries; at most 64 are allowed",
        ),
        (
            format!(
                r#"{{"secrets": [{}]}}"#,
                list(129, &|at| format!(r#"{{"name": "V{at}", "secret": "s", "key": "k"}}"#))
            ),
            "kubernetes.secrets has 129 variables; at most 128 are allowed",
        ),
        (
            format!(r#"{{"tolerations": [{}]}}"#, list(65, &|_| "{}".to_owned())),
            "kubernetes.tolerations has 65 entries; at most 64 are allowed",
        ),
        (
            format!(r#"{{"pull_secrets": [{}]}}"#, list(17, &|_| r#""a""#.to_owned())),
            "kubernetes.pull_secrets has 17 names; at most 16 are allowed",
        ),
        (
            format!(r#"{{"labels": {{{}}}}}"#, list(65, &|at| format!(r#""l{at}": """#))),
            "kubernetes.labels has 65 labels; at most 64 are allowed",
        ),
        (
            format!(r#"{{"node_selector": {{{}}}}}"#, list(65, &|at| format!(r#""l{at}": """#))),
            "kubernetes.node_selector has 65 labels; at most 64 are allowed",
        ),
    ] {
        assert_eq!(refused(&options), [want]);
    }
}

#[test]
fn directories_of_the_program_are_absolute() {
    let mut job = draft("{}");
    (job.checkpoint_dir, job.working_dir) = (Some("checkpoints/a".to_owned()), Some("src".to_owned()));
    assert_eq!(
        told(job.validate(&site(false)).unwrap_err()),
        [
            "working_dir must be absolute on Kubernetes, such as /data/run-1",
            "checkpoint_dir must be absolute on Kubernetes, such as /data/run-1"
        ]
    );
    job.cluster = None;
    job.image = None;
    assert!(job.validate(&site(false)).is_ok(), "a local one may be below the server's data");
}
