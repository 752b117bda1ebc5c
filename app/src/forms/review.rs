//! What the Review panel says about a form: what differs, what would happen, what to see to before relying on it.

use engine::{
    hang::{LEARNED_SHARE, QuietPhase},
    job::{
        ClusterKind, FaultTolerance, HangDetection, JobDraft, JobSpec, Mode, Site, VolumeSource,
        manifest::Mounted, quantity::Quantity,
    },
};

use crate::components::story::phase_words;

use super::{
    lines, pasted, pods, switches,
    typed::{LABELS, Typed, label, name, policy_words},
};

/// Characters of a long value that are shown.
const SHOWN: usize = 200;
/// Characters before the first one that differs, where the beginning is left out.
const BEFORE: usize = 40;

/// One value that is not the usual one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The field.
    pub field: &'static str,
    /// Its value in words.
    pub value: String,
    /// The usual value.
    pub usual: String,
}

/// Fields of the Advanced Options that differ from what the form is prefilled with.
pub fn differences(typed: &Typed, site: &Site) -> Vec<Difference> {
    compare(&pods::as_sent(typed, site), &Typed::prefilled(site), |field| {
        field.starts_with("fault_tolerance.")
    })
}

/// Fields that differ from the job that the form is a copy of.
pub fn changes(typed: &Typed, original: &JobDraft, site: &Site) -> Vec<Difference> {
    compare(&pods::as_sent(typed, site), &Typed::of_draft(original, site), |_| true)
}

fn compare(typed: &Typed, usual: &Typed, of: impl Fn(&str) -> bool) -> Vec<Difference> {
    LABELS
        .into_iter()
        .filter(|(field, _)| of(field))
        .filter(|(field, _)| meaning(typed, field) != meaning(usual, field))
        .map(|(field, _)| {
            let (value, usual) = told_apart(&words(typed, field), &words(usual, field));
            Difference { field, value, usual }
        })
        .collect()
}

/// Both values as far as they are shown, so that what differs is seen.
fn told_apart(value: &str, usual: &str) -> (String, String) {
    let same = value.chars().zip(usual.chars()).take_while(|(a, b)| a == b).count();
    let from = if same + BEFORE < SHOWN { 0 } else { same - BEFORE };
    let part = |text: &str| {
        let begins = if from > 0 { "…" } else { "" };
        let ends = if text.chars().count() > from + SHOWN { "…" } else { "" };
        let shown: String = text.chars().skip(from).take(SHOWN).collect();
        format!("{begins}{shown}{ends}")
    };
    (part(value), part(usual))
}

/// A field's value as it counts: variables in any order, a command however it is quoted.
fn meaning(typed: &Typed, field: &str) -> String {
    let text = typed.get(field).trim();
    match field {
        name::ENV => match lines::read_env(text) {
            (env, wrong) if wrong.is_empty() => lines::write_env(&env),
            _ => text.to_owned(),
        },
        name::COMMAND | name::CHECK_COMMAND => {
            lines::read_command(text).map_or(text.to_owned(), |words| lines::write_command(&words))
        }
        _ if switches::is_switch(field) => switches::sent(typed, field).to_string(),
        name::MANIFEST => pasted::meaning(typed),
        _ => pods::meaning(field, text).unwrap_or_else(|| text.to_owned()),
    }
}

/// A field's value as the Review shows it: a switch as it is sent, an empty text as `none`.
fn words(typed: &Typed, field: &str) -> String {
    if switches::is_switch(field) {
        return if switches::sent(typed, field) { "on" } else { "off" }.to_owned();
    }
    match (field, typed.get(field).trim()) {
        (_, "") => "none".to_owned(),
        (name::POLICY_TYPE, policy) => policy_words(policy),
        (_, text) => text.lines().collect::<Vec<_>>().join(", "),
    }
}

/// What would happen at a failure, a sentence each.
pub fn outlook(settings: &FaultTolerance) -> Vec<String> {
    let times = |count: u32| if count == 1 { "once".to_owned() } else { format!("up to {count} times") };
    let resubmitted = |who: &str| match settings.max_task_restarts {
        0 => format!("{who} is not resubmitted: Maximum Task Restart Attempts is 0."),
        count => format!("{who} is resubmitted, {}; each time it queues again.", times(count)),
    };
    let in_place = |who: &str| match settings.policy.max_in_place_restarts {
        0 => format!("{who} is not restarted in place: In-place restarts is 0."),
        count => format!("{who} is restarted in place, {} in an attempt.", times(count)),
    };
    let repeat = "The same error twice without progress ends the job.".to_owned();
    let hang = (settings.mode() == Mode::Full).then(|| match settings.hang_detection.max_in_place_restarts {
        0 => "A hang is never restarted in place: Maximum Restart Count for Communication Hang is 0."
            .to_owned(),
        count => format!("A hang is restarted in place, {} in an attempt, counted apart.", times(count)),
    });
    let diagnosed = (settings.mode() == Mode::Full && settings.hang_detection.diagnose).then(|| {
        "Before it is resubmitted after a hang, its nodes are tested, and those that fail are kept off."
            .to_owned()
    });
    let mut all = match settings.mode() {
        Mode::None => vec!["A failure ends the job: Auto Failover is off.".to_owned()],
        Mode::Basic => vec![resubmitted("A failed attempt"), "Nothing is restarted in place.".to_owned()],
        Mode::Advanced | Mode::Full if settings.policy.policy_type == "on_any_failure" => {
            vec![in_place("Any failure"), resubmitted("What fails beyond that"), repeat]
        }
        Mode::Advanced | Mode::Full => vec![
            in_place("A crash of the program"),
            resubmitted("A job on a failing node, away from that node,"),
            "GPU memory that runs out, or a wrong environment, ends the job: another try would fail the same way.".to_owned(),
            repeat,
        ],
    };
    // What ends the job stands last.
    let last = all.len().saturating_sub(1);
    all.splice(last..last, hang.into_iter().chain(diagnosed));
    all
}

/// How hang detection would work with these values, and where they do not fit together.
pub fn hang_note(hang: &HangDetection) -> String {
    let (interval, window) = (hang.interval_seconds.max(1), hang.window_seconds);
    let compared = window.div_ceil(interval) * interval;
    let start = match window % interval {
        0 => String::new(),
        _ => format!("{window} is not a multiple of {interval}, so {compared} s is compared. "),
    };
    let longest = compared.saturating_add(interval);
    let at_earliest = hang.start_after_seconds.saturating_add(compared);
    // Tenths of a minute say nothing about a window of seconds.
    let (unit, number): (_, fn(u32) -> String) =
        if longest < 60 { ("s", |seconds| seconds.to_string()) } else { ("min", minutes) };
    let since = if at_earliest < 60 {
        format!("second {at_earliest}")
    } else {
        format!("minute {}", minutes(at_earliest))
    };
    let cost = if interval < 30 { " Below 30 s the sampling itself costs time." } else { "" };
    format!(
        "{start}A stall shows after {} to {} {unit}, never before {since} of a launch.{cost}",
        number(compared),
        number(longest),
    )
}

fn minutes(seconds: u32) -> String {
    let tenths = (f64::from(seconds) / 6.0).round() / 10.0;
    if tenths.fract() == 0.0 { format!("{tenths:.0}") } else { format!("{tenths:.1}") }
}

/// What earlier launches say about the window: none where nothing speaks against it, or where no earlier job is known.
pub fn quiet_note(hang: &HangDetection, longest: Option<QuietPhase>) -> Option<String> {
    let QuietPhase { phase, seconds } = longest?;
    let safe = (f64::from(seconds) * LEARNED_SHARE).ceil() as u32;
    let phase = phase_words(phase);
    if hang.window_seconds < seconds {
        Some(format!(
            "The job that this is a copy of went on after {} s without progress while {phase}; a window of {} s would take that for a \
             hang. Choose at least {safe} s, or have the program mark that phase.",
            seconds, hang.window_seconds
        ))
    } else if hang.window_seconds < safe {
        Some(format!(
            "Longest stretch without progress seen: {seconds} s while {phase}. {safe} s or more would leave room above it."
        ))
    } else {
        None
    }
}

/// How ready something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It is seen to.
    Ok,
    /// It will hurt.
    Mind,
    /// Nobody but the person can know.
    NotKnown,
}

/// What to see to before relying on a recovery.
pub fn readiness(spec: &JobSpec, original: Option<&JobDraft>, site: &Site) -> Vec<(Readiness, String)> {
    let local = site.clusters.iter().any(|c| c.name == spec.cluster && c.kind == ClusterKind::Local);
    let mut list = Vec::new();
    match &spec.checkpoint_dir {
        None => list.push((
            Readiness::Mind,
            "no checkpoint directory: a resubmission would start at step 0".to_owned(),
        )),
        Some(dir) if local => {
            list.push((Readiness::Ok, format!("checkpoint directory {dir}, on this machine")))
        }
        Some(dir) => list.push(checkpoint_volume(dir, spec)),
    }
    let size = |text: &Option<String>| text.as_deref().and_then(Quantity::read).map(Quantity::units);
    let pods = &spec.kubernetes;
    if size(&pods.shm_size).zip(size(&pods.memory)).is_some_and(|(shm, memory)| shm > memory) {
        let why =
            "/dev/shm is larger than the memory, which what it holds counts into: a full one ends the pod";
        list.push((Readiness::Mind, why.to_owned()));
    }
    let same_dir =
        original.is_some_and(|o| o.checkpoint_dir.is_some() && o.checkpoint_dir == spec.checkpoint_dir);
    if same_dir {
        let why = "same checkpoint directory as the original: this job would go on from its checkpoints";
        list.push((Readiness::Mind, why.to_owned()));
    }
    if let Some(image) = &spec.image {
        list.push(if has_fixed_tag(image) {
            (Readiness::Ok, "fixed image tag".to_owned())
        } else {
            (Readiness::Mind, "the image tag may move: a later attempt could run other code".to_owned())
        });
    }
    list.push((Readiness::NotKnown, "does the program load its newest checkpoint?".to_owned()));
    list
}

/// Whether what is saved on Kubernetes outlives the pod.
fn checkpoint_volume(dir: &str, spec: &JobSpec) -> (Readiness, String) {
    if let Some(manifest) = &spec.kubernetes.manifest {
        return checkpoint_of_manifest(dir, manifest.volume_of(dir));
    }
    let Some(volume) = spec.kubernetes.volume_of(dir) else {
        return (
            Readiness::Mind,
            format!("checkpoint directory {dir} is not on a volume: it is lost with the pod"),
        );
    };
    let read_only =
        || (Readiness::Mind, format!("checkpoint directory {dir} is on a volume that is read only"));
    if volume.read_only {
        return read_only();
    }
    match &volume.source {
        VolumeSource::ConfigMap(_) | VolumeSource::Secret(_) => read_only(),
        VolumeSource::HostPath(_) => (
            Readiness::Mind,
            format!(
                "checkpoint directory {dir} is on the node itself: an attempt on another node starts at step 0"
            ),
        ),
        VolumeSource::Claim(claim) => {
            (Readiness::Ok, format!("checkpoint directory {dir}, on the claim {claim}"))
        }
    }
}

/// The same, from the volumes of a manifest.
fn checkpoint_of_manifest(dir: &str, on: Option<Mounted<'_>>) -> (Readiness, String) {
    let lost = || {
        (Readiness::Mind, format!("checkpoint directory {dir} is lost with the pod: mount a volume there"))
    };
    let Some(volume) = on else { return lost() };
    match volume.source {
        "emptyDir" | "ephemeral" => lost(),
        "configMap" | "secret" | "downwardAPI" | "projected" => {
            (Readiness::Mind, format!("checkpoint directory {dir} is on a volume that is read only"))
        }
        _ if volume.read_only => {
            (Readiness::Mind, format!("checkpoint directory {dir} is on a volume that is read only"))
        }
        "hostPath" => (
            Readiness::Mind,
            format!(
                "checkpoint directory {dir} is on the node itself: an attempt on another node starts at step 0"
            ),
        ),
        _ => (Readiness::Ok, format!("checkpoint directory {dir}, on the volume {}", volume.name)),
    }
}

fn has_fixed_tag(image: &str) -> bool {
    let last = image.rsplit('/').next().unwrap_or_default();
    image.contains("@sha256:") || last.split_once(':').is_some_and(|(_, tag)| tag != "latest")
}

/// What a program needs so that it can be resumed (spec.md R25).
pub const CHECKLIST: [(&str, &str); 6] = [
    ("Fixed inputs", "data, code and image do not change between attempts"),
    ("Persistent directory", "it outlives the replica and every node can reach it"),
    ("Complete state", "model, optimizer, scheduler, random state, data position, step"),
    ("Recovery entry point", "the same command looks for the newest checkpoint by itself"),
    ("No partial writes", "write beside, then rename; load only what is whole"),
    ("Verified small first", "stop a short run halfway and see it go on from its step"),
];

/// The label of a difference's field.
pub fn label_of(difference: &Difference) -> &str {
    label(difference.field)
}

#[cfg(test)]
mod tests {
    use engine::{failure::Phase, job::SiteCluster, time::Time};

    use super::*;
    use crate::forms::new_job::check;

    fn site() -> Site {
        Site::default()
    }

    #[test]
    fn an_untouched_form_differs_in_nothing() {
        assert_eq!(differences(&Typed::prefilled(&site()), &site()), []);
    }

    #[test]
    fn only_what_is_sent_counts_as_different() {
        let mut typed = Typed::prefilled(&site());
        typed.turn(name::POLICY, true);
        assert_eq!(differences(&typed, &site()), []);
        typed.turn(name::FAILOVER, true);
        let fields: Vec<_> = differences(&typed, &site()).iter().map(|d| d.field).collect();
        assert_eq!(fields, [name::FAILOVER, name::POLICY]);
    }

    #[test]
    fn a_copy_lists_what_was_changed() {
        let draft = check(&Typed::demo(&site(), Time(0)), &site()).unwrap();
        let mut typed = Typed::of_draft(&draft, &site());
        assert_eq!(changes(&typed, &draft, &site()), []);
        typed.set(name::ENV, "");
        let [change] = &changes(&typed, &draft, &site())[..] else { panic!("one change") };
        assert_eq!((change.value.as_str(), change.usual.as_str()), ("none", "FAIL_AT=40"));
    }

    #[test]
    fn long_values_are_shown_where_they_differ() {
        let long = "x".repeat(250);
        let (value, usual) = told_apart(&format!("{long}one"), &format!("{long}two"));
        let tail = "x".repeat(40);
        assert_eq!((value, usual), (format!("…{tail}one"), format!("…{tail}two")));
        assert_eq!(told_apart("a", "b"), ("a".to_owned(), "b".to_owned()));
        let (value, usual) = told_apart(&"é".repeat(300), "none");
        assert_eq!((value, usual), (format!("{}…", "é".repeat(200)), "none".to_owned()));
    }

    #[test]
    fn a_line_that_is_no_variable_is_a_change() {
        let draft = check(&Typed::demo(&site(), Time(0)), &site()).unwrap();
        let mut typed = Typed::of_draft(&draft, &site());
        typed.set(name::ENV, "FAIL_AT=40\nFOO");
        assert_eq!(changes(&typed, &draft, &site()).len(), 1);
    }

    #[test]
    fn the_outlook_names_the_limits_even_at_0() {
        let mut ft = FaultTolerance::default();
        assert_eq!(outlook(&ft), ["A failure ends the job: Auto Failover is off."]);
        ft.auto_failover = true;
        assert!(outlook(&ft)[0].contains("Maximum Task Restart Attempts is 0"));
        ft.max_task_restarts = 1;
        ft.policy.enabled = true;
        assert!(outlook(&ft)[0].contains("up to 3 times in an attempt"));
        assert!(outlook(&ft)[1].contains("is resubmitted, once;"), "{:?}", outlook(&ft));
    }

    #[test]
    fn what_follows_a_hang_is_told_where_hangs_are_looked_for() {
        let mut ft = FaultTolerance { auto_failover: true, ..FaultTolerance::default() };
        ft.policy.enabled = true;
        let hang = |ft: &FaultTolerance| outlook(ft).into_iter().find(|line| line.starts_with("A hang"));
        assert_eq!(hang(&ft), None);
        ft.hang_detection.enabled = true;
        assert_eq!(
            hang(&ft).as_deref(),
            Some("A hang is restarted in place, once in an attempt, counted apart.")
        );
        ft.hang_detection.max_in_place_restarts = 0;
        assert!(hang(&ft).is_some_and(|line| line.contains("never restarted in place")));
        let is_told =
            |ft: &FaultTolerance| outlook(ft).iter().any(|line| line.contains("its nodes are tested"));
        assert!(!is_told(&ft));
        ft.hang_detection.diagnose = true;
        assert!(is_told(&ft));
        assert!(outlook(&ft).last().is_some_and(|line| line.starts_with("The same error twice")));
    }

    #[test]
    fn a_window_that_is_no_multiple_says_what_is_compared() {
        let hang = |interval_seconds, window_seconds| HangDetection {
            interval_seconds,
            window_seconds,
            ..FaultTolerance::default().hang_detection
        };
        assert_eq!(
            hang_note(&hang(240, 600)),
            "600 is not a multiple of 240, so 720 s is compared. A stall shows after 12 to 16 min, never before minute 42 of a launch."
        );
        assert_eq!(
            hang_note(&hang(20, 90)),
            "90 is not a multiple of 20, so 100 s is compared. A stall shows after 1.7 to 2 min, never before minute 31.7 of a launch. Below 30 s the sampling itself costs time."
        );
        assert!(hang_note(&hang(300, 600)).starts_with("A stall shows"));
        assert!(
            hang_note(&hang(1, 4))
                .starts_with("A stall shows after 4 to 5 s, never before minute 30.1 of a launch.")
        );
        let at_once = HangDetection { start_after_seconds: 0, ..hang(1, 4) };
        assert!(hang_note(&at_once).contains("after 4 to 5 s, never before second 4 of a launch."));
    }

    #[test]
    fn a_window_shorter_than_what_was_seen_is_told_r7() {
        let hang =
            |window_seconds| HangDetection { window_seconds, ..FaultTolerance::default().hang_detection };
        let seen = Some(QuietPhase { phase: Phase::Evaluation, seconds: 540 });
        for (window, seen, want) in [
            (600, None, None),
            (810, seen, None),
            (600, seen, Some("Longest stretch without progress seen: 540 s while evaluating. 810 s")),
            (539, seen, Some("a window of 539 s would take that for a hang. Choose at least 810 s")),
        ] {
            let note = quiet_note(&hang(window), seen);
            assert_eq!(note.is_some(), want.is_some(), "{note:?}");
            assert!(note.zip(want).is_none_or(|(note, want)| note.contains(want)));
        }
    }

    #[test]
    fn a_moving_tag_is_told() {
        assert!(has_fixed_tag("team/train:2.9") && has_fixed_tag("r:5000/a@sha256:00"));
        assert!(
            !has_fixed_tag("team/train")
                && !has_fixed_tag("r:5000/train:latest")
                && !has_fixed_tag("r:5000/train")
        );
    }

    #[test]
    fn what_is_saved_on_kubernetes_has_to_outlive_the_pod() {
        let mut site = site();
        site.clusters.push(SiteCluster { allows_host_paths: true, ..SiteCluster::kubernetes("k8s") });
        let told = |volumes: &str, dir: &str| {
            let mut typed = Typed::prefilled(&site);
            for (field, text) in [
                (name::NAME, "a"),
                (name::CLUSTER, "k8s"),
                (name::IMAGE, "train:1"),
                (name::COMMAND, "true"),
                (name::CHECKPOINT_DIR, dir),
                (name::VOLUMES, volumes),
                (name::SHM_SIZE, "64Gi"),
                (name::MEMORY, "32Gi"),
            ] {
                typed.set(field, text);
            }
            readiness(&check(&typed, &site).unwrap().validate(&site).unwrap(), None, &site)
        };
        for (volumes, dir, want) in [
            (
                "/data = claim/runs",
                "/ckpt",
                (Readiness::Mind, "checkpoint directory /ckpt is not on a volume: it is lost with the pod"),
            ),
            (
                "/data = claim/runs",
                "/data/1",
                (Readiness::Ok, "checkpoint directory /data/1, on the claim runs"),
            ),
            (
                "/data = claim/runs ro",
                "/data/1",
                (Readiness::Mind, "checkpoint directory /data/1 is on a volume that is read only"),
            ),
            (
                "/data = config_map/runs",
                "/data/1",
                (Readiness::Mind, "checkpoint directory /data/1 is on a volume that is read only"),
            ),
            (
                "/data = host_path/mnt",
                "/data/1",
                (
                    Readiness::Mind,
                    "checkpoint directory /data/1 is on the node itself: an attempt on another node starts at step 0",
                ),
            ),
        ] {
            let list = told(volumes, dir);
            assert_eq!((list[0].0, list[0].1.as_str()), want, "{volumes} {dir}");
            assert!(list[1].1.starts_with("/dev/shm is larger than the memory"), "{list:?}");
        }
    }

    #[test]
    fn a_copy_with_the_same_directory_is_pointed_out() {
        let draft = check(&Typed::demo(&site(), Time(0)), &site()).unwrap();
        let spec = draft.validate(&site()).unwrap();
        let minds = |original| {
            readiness(&spec, original, &site()).iter().filter(|(ready, _)| *ready == Readiness::Mind).count()
        };
        assert_eq!((minds(None), minds(Some(&draft))), (0, 1));
    }
}
