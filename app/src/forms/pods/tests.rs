use engine::job::JobDraft;
use proptest::prelude::*;

use super::*;
use crate::forms::{
    manifest,
    new_job::{Answer, answer, check, sentence},
    review,
    typed::field_of,
};

fn site() -> Site {
    let mut site = Site::default();
    site.clusters.push(SiteCluster { allows_host_paths: true, ..SiteCluster::kubernetes("k8s") });
    site
}

/// A job on Kubernetes with these fields.
fn form(fields: &[(&str, &str)]) -> Typed {
    let mut typed = Typed::prefilled(&site());
    let first = [
        (name::NAME, "a"),
        (name::CLUSTER, "k8s"),
        (name::IMAGE, "train:1"),
        (name::COMMAND, "true"),
        (name::ENV, "TAKEN=1"),
    ];
    for (field, text) in first.iter().chain(fields) {
        typed.set(field, *text);
    }
    typed
}

fn errors(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    let errors = check(&form(fields), &site()).err().unwrap_or_default();
    errors.iter().map(|error| (field_of(&error.field).to_owned(), sentence(error))).collect()
}

#[test]
fn each_line_is_an_entry() {
    let typed = form(&[
        (name::CPU, " 500m "),
        (
            name::VOLUMES,
            "/data = claim/dataset ro\r\n\r\n/etc/a=config_map/a\n\"/my data\" = \"host_path/mnt/my data\" rw\n/k = secret/k",
        ),
        (name::SECRETS, "TOKEN = hub/token\nKEY=s/a.b"),
        (name::NODE_SELECTOR, "kubernetes.io/arch=amd64\npool = "),
        (name::TOLERATIONS, "a=b:NoSchedule\na:NoExecute\na=b\na\na=:NoSchedule\n*\n*:NoSchedule"),
        (name::PULL_SECRETS, "one\ntwo"),
        (name::POD_LABELS, "kueue.x-k8s.io/queue-name=team"),
    ]);
    let options = read(&typed).options;
    let volume =
        |mount_path: &str, source, read_only| Volume { mount_path: mount_path.to_owned(), source, read_only };
    assert_eq!(
        options.volumes,
        [
            volume("/data", VolumeSource::Claim("dataset".to_owned()), true),
            volume("/etc/a", VolumeSource::ConfigMap("a".to_owned()), false),
            volume("/my data", VolumeSource::HostPath("/mnt/my data".to_owned()), false),
            volume("/k", VolumeSource::Secret("k".to_owned()), false),
        ]
    );
    let toleration = |key: Option<&str>, value: Option<&str>, effect: Option<&str>| Toleration {
        key: key.map(str::to_owned),
        value: value.map(str::to_owned),
        effect: effect.map(str::to_owned),
    };
    assert_eq!(
        options.tolerations,
        [
            toleration(Some("a"), Some("b"), Some("NoSchedule")),
            toleration(Some("a"), None, Some("NoExecute")),
            toleration(Some("a"), Some("b"), None),
            toleration(Some("a"), None, None),
            toleration(Some("a"), Some(""), Some("NoSchedule")),
            toleration(None, None, None),
            toleration(None, None, Some("NoSchedule")),
        ]
    );
    assert_eq!((options.secrets[1].secret.as_str(), options.secrets[1].key.as_str()), ("s", "a.b"));
    assert_eq!((options.node_selector["pool"].as_str(), options.node_selector.len()), ("", 2));
    let spec = check(&typed, &site()).unwrap().validate(&site()).unwrap();
    assert_eq!(spec.kubernetes.cpu.as_deref(), Some("500m"));
    let again = check(&Typed::of_draft(&JobDraft::from(&spec), &site()), &site()).unwrap();
    assert_eq!(again.validate(&site()).unwrap(), spec);
}

#[test]
fn an_error_stands_at_its_field_with_its_line() {
    for (field, text, want) in [
        (
            name::CPU,
            "lots",
            "`lots` is no number of cores. Use one such as 4, 0.5 or 500m, nothing finer than 1m.",
        ),
        (name::NAMESPACE, "A", "Namespace must be 1 to 63 of a-z, 0-9 and -"),
        (name::VOLUMES, "/a = claim/a\n\n/b", "Line 3 is no volume: `/b`. Use PATH = claim/NAME"),
        (name::VOLUMES, "\"/b = claim/a", "Line 1 is no volume"),
        (name::VOLUMES, "/a = nfs/x", "Line 1: `nfs/x` is no source."),
        (name::VOLUMES, "/a = claim/x r", "Line 1: after the source stands `r`; only ro or rw may."),
        (name::VOLUMES, "\n/a = claim/a\n/a/ = claim/b", "Line 3: the path is mounted twice"),
        (name::VOLUMES, "/a = claim/A", "Line 1: the source must be 1 to 253"),
        (name::SECRETS, "TOKEN", "Line 1 is no variable from a Secret: `TOKEN`."),
        (name::SECRETS, "TAKEN = a/b", "Line 1: the variable is also set in the environment"),
        (name::SECRETS, "\nA = /b", "Line 2: the Secret must be 1 to 253"),
        (name::NODE_SELECTOR, "pool", "Line 1 is no label: `pool`. Use key=value, one a line."),
        (name::NODE_SELECTOR, "a=1\na=2", "Line 2 sets a a second time. Keep one of them."),
        (name::NODE_SELECTOR, "a=1\nb=x y", "Line 2: b must have a value that Kubernetes takes"),
        (name::POD_LABELS, "a=1\nholdfast.dev/job=x", "Line 2: holdfast.dev/job is set by Holdfast"),
        (name::TOLERATIONS, "a\n\nb:Never", "Line 3: the effect must be NoSchedule"),
        (name::TOLERATIONS, "*=x", "Line 1: the value must have a key"),
        (name::PULL_SECRETS, "a\nB", "Line 2: the name must be 1 to 253"),
    ] {
        let told = errors(&[(field, text)]);
        assert_eq!(told.len(), 1, "{text}: {told:?}");
        assert_eq!(told[0].0, field, "{text}");
        assert!(told[0].1.starts_with(want), "{text}: {}", told[0].1);
    }
}

#[test]
fn a_local_cluster_keeps_what_is_filled_in_and_is_not_sent_it() {
    let fields = |was: &str| {
        let mut typed =
            form(&[(name::CLUSTER, "local"), (name::IMAGE, ""), (name::CPU, "not checked either")]);
        typed.set(&was_field(), was);
        typed.into_fields()
    };
    let Answer::ShowAgain(posted) = answer(fields(""), &site()) else { panic!("created without a word") };
    assert_eq!(
        posted.moved,
        [
            "What is filled in for Kubernetes is kept and not sent: cluster local runs programs of this machine."
        ]
    );
    let again = Typed::new(posted.fields);
    assert_eq!((posted.errors.len(), again.get(name::CPU)), (0, "not checked either"));
    assert_eq!(was_value(&again, &site()), "unsent");
    let Answer::Create(draft) = answer(fields("unsent"), &site()) else { panic!("told twice") };
    assert_eq!(draft.kubernetes, PodOptions::default());
    let original = check(&form(&[(name::CPU, "4")]), &site()).unwrap();
    let mut typed = Typed::of_draft(&original, &site());
    typed.set(name::CLUSTER, "local");
    let changed: Vec<_> =
        review::changes(&typed, &original, &site()).into_iter().map(|d| (d.field, d.value)).collect();
    assert!(changed.contains(&(name::CPU, "none".to_owned())), "{changed:?}");
}

#[test]
fn spacing_and_order_of_labels_are_no_difference() {
    let original = check(&form(&[(name::POD_LABELS, "a=1\nb=2"), (name::VOLUMES, "/a = claim/b")]), &site());
    let original = original.unwrap();
    let mut typed = Typed::of_draft(&original, &site());
    typed.set(name::POD_LABELS, "b = 2\r\n\r\na=1");
    typed.set(name::VOLUMES, "/a=claim/b rw");
    assert_eq!(review::changes(&typed, &original, &site()), []);
    typed.set(name::VOLUMES, "/a = claim/b ro\n/c = claim/d");
    let [change] = &review::changes(&typed, &original, &site())[..] else { panic!("one change") };
    assert_eq!(
        (change.value.as_str(), change.usual.as_str()),
        ("/a = claim/b ro, /c = claim/d", "/a = claim/b")
    );
}

#[test]
fn every_view_of_the_job_has_them() {
    let draft = check(
        &form(&[
            (name::MEMORY, "64Gi"),
            (name::VOLUMES, "/data = claim/dataset ro"),
            (name::POD_LABELS, "kueue.x-k8s.io/queue-name=team\nn=1"),
        ]),
        &site(),
    )
    .unwrap();
    let yaml = manifest::yaml(&draft, &site()).unwrap();
    let want = r#"kubernetes:
  labels:
    "kueue.x-k8s.io/queue-name": "team"
    "n": "1"
  memory: "64Gi"
  volumes:
    -
      mount_path: "/data"
      read_only: true
      source:
        claim: "dataset"
"#;
    assert!(yaml.contains(want), "{yaml}");
    let body: JobDraft = serde_json::from_str(&manifest::json(&draft, &site()).unwrap()).unwrap();
    assert_eq!(body.validate(&site()).unwrap(), draft.validate(&site()).unwrap());
}

fn name_of() -> impl Strategy<Value = String> {
    "[a-z0-9]([-a-z0-9]{0,9}[a-z0-9])?"
}

/// An absolute path that may be mounted, often one that quoting has to mind.
fn path() -> impl Strategy<Value = String> {
    let odd =
        prop::sample::select(vec!["\"", "'", "\\", "=", " ", "ro", "#", "é", "\u{3000}", "a", "*", "/"]);
    prop::collection::vec(odd, 0..8).prop_map(|parts| format!("/m{}", parts.concat()))
}

prop_compose! {
    fn volumes()(entries in prop::collection::btree_map(path(), (0..4, name_of(), path(), any::<bool>()), 0..5))
        -> Vec<Volume> {
        // Two spellings of one path are refused.
        let spelled = |path: &str| path.split('/').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
        let mut seen = std::collections::BTreeSet::new();
        entries
            .into_iter()
            .filter(|(path, _)| seen.insert(spelled(path)))
            .map(|(mount_path, (kind, name, host_path, read_only))| Volume {
                mount_path,
                read_only,
                source: match kind {
                    0 => VolumeSource::Claim(name),
                    1 => VolumeSource::ConfigMap(name),
                    2 => VolumeSource::Secret(name),
                    _ => VolumeSource::HostPath(host_path),
                },
            })
            .collect()
    }
}

fn labels() -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map(
        "([a-z]{1,4}\\.example/)?[A-Za-z][-A-Za-z0-9_.]{0,4}[a-z]",
        "([a-z0-9]([-._]?[A-Z]){0,3})?",
        0..4,
    )
}

fn tolerations() -> impl Strategy<Value = Vec<Toleration>> {
    let effect = prop::sample::select(vec!["NoSchedule", "PreferNoSchedule", "NoExecute"]);
    let entry = (
        prop::option::of("[a-z]{1,4}(\\.io/[a-z]{1,3})?"),
        prop::option::of("([a-z0-9](-?[a-z]){0,2})?"),
        prop::option::of(effect),
    );
    prop::collection::vec(entry, 0..4).prop_map(|entries| {
        let made = |(key, value, effect): (Option<String>, Option<String>, Option<&str>)| Toleration {
            value: value.filter(|_| key.is_some()),
            key,
            effect: effect.map(str::to_owned),
        };
        entries.into_iter().map(made).collect()
    })
}

prop_compose! {
    fn options()(
        volumes in volumes(),
        node_selector in labels(),
        labels in labels(),
        tolerations in tolerations(),
        pull_secrets in prop::collection::vec(name_of(), 0..3),
        secrets in prop::collection::btree_map("[A-S][A-Z_]{0,5}9", (name_of(), "[-A-Za-z0-9_]{1,4}"), 0..4),
        names in prop::collection::vec(prop::option::of(name_of()), 6),
        sizes in prop::collection::vec(prop::option::of(prop::sample::select(vec!["64Gi", "1e9", "1.5Gi"])), 2),
        cpu in prop::option::of(prop::sample::select(vec!["4", "500m", "1e3", "0.5"])),
    ) -> PodOptions {
        let secrets = secrets.into_iter().map(|(name, (secret, key))| SecretVariable { name, secret, key });
        PodOptions {
            namespace: names[0].clone(),
            priority_class: names[1].clone(),
            service_account: names[2].clone(),
            kueue_queue: names[3].clone(),
            volcano_queue: names[4].clone(),
            scheduler: names[5].clone(),
            memory: sizes[0].map(str::to_owned),
            shm_size: sizes[1].map(str::to_owned),
            cpu: cpu.map(str::to_owned),
            accelerator: cpu.map(|_| "nvidia.com/gpu".to_owned()),
            secrets: secrets.collect(),
            volumes,
            node_selector,
            tolerations,
            pull_secrets,
            labels,
            manifest: None,
        }
    }
}

proptest! {
    /// A job like this: what the form shows of a job makes the same job, although browsers send line breaks as CR LF.
    #[test]
    fn any_options_survive_the_form(options in options()) {
        let draft = JobDraft { kubernetes: options, ..check(&form(&[]), &site()).unwrap() };
        let spec = draft.validate(&site()).map_err(|errors| TestCaseError::fail(format!("{errors:?}")))?;
        let shown = Typed::of_draft(&JobDraft::from(&spec), &site());
        let sent = shown.into_fields().into_iter().map(|(field, text)| (field, text.replace('\n', "\r\n")));
        let again = check(&Typed::new(sent.collect()), &site());
        let again = again.map_err(|errors| TestCaseError::fail(format!("{errors:?}")))?;
        prop_assert_eq!(again.validate(&site()).unwrap(), spec);
    }
}
