use super::*;
use crate::job::{Mode, SiteCluster};

fn draft(json: &str) -> JobDraft {
    serde_json::from_str(json).unwrap()
}

fn fields(draft: &JobDraft) -> Vec<String> {
    match draft.validate(&site()) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.into_iter().map(|error| error.field).collect(),
    }
}

fn site() -> Site {
    let mut site = Site::default();
    site.clusters.push(SiteCluster::kubernetes("k8s"));
    site
}

#[test]
fn the_least_job_has_every_switch_off_and_no_restart() {
    let spec = draft(r#"{"name":"a","command":["true"]}"#).validate(&site()).unwrap();
    assert_eq!((spec.replicas, spec.processes_per_replica, spec.accelerators_per_replica), (1, 1, 0));
    assert_eq!(spec.fault_tolerance, FaultTolerance::default());
    assert_eq!((spec.fault_tolerance.mode(), spec.fault_tolerance.max_task_restarts), (Mode::None, 0));
}

#[test]
fn each_wrong_field_is_named_once() {
    for (body, want) in [
        (r#"{"command":["true"]}"#, vec!["name"]),
        (r#"{"name":"  ","command":[]}"#, vec!["name", "command"]),
        (r#"{"name":"a","command":["true"],"cluster":"mars"}"#, vec!["cluster"]),
        (r#"{"name":"a","command":["true"],"image":"x"}"#, vec!["image"]),
        (r#"{"name":"a","command":["true"],"cluster":"k8s"}"#, vec!["image"]),
        (r#"{"name":"a","command":["true"],"kind":"rayjob"}"#, vec!["kind"]),
        (
            r#"{"name":"a","command":["true"],"replicas":0,"processes_per_replica":-1}"#,
            vec!["replicas", "processes_per_replica"],
        ),
        (r#"{"name":"a","command":["true"],"replicas":9}"#, vec!["replicas"]),
        (r#"{"name":"a","command":["true"],"accelerators_per_replica":3}"#, vec!["accelerators_per_replica"]),
        (
            r#"{"name":"a","command":["true"],"env":{"RANK":"1","1A":"x","OK":"1"}}"#,
            vec!["env.1A", "env.RANK"],
        ),
        (r#"{"name":"a","command":["true"],"checkpoint_dir":"a/../../etc"}"#, vec!["checkpoint_dir"]),
        (
            r#"{"name":"a","command":["true"],"fault_tolerance":{"max_task_restarts":-1}}"#,
            vec!["fault_tolerance.max_task_restarts"],
        ),
        (
            r#"{"name":"a","command":["true"],"fault_tolerance":{"max_task_restarts":51}}"#,
            vec!["fault_tolerance.max_task_restarts"],
        ),
        (
            r#"{"name":"a","command":["true"],"fault_tolerance":{"exit_checkpoint":{"port":8080,"max_wait_seconds":601}}}"#,
            vec!["fault_tolerance.exit_checkpoint.port", "fault_tolerance.exit_checkpoint.max_wait_seconds"],
        ),
        (
            r#"{"name":"a","command":["true"],"fault_tolerance":{"hang_detection":{"interval_seconds":600,"window_seconds":300}}}"#,
            vec!["fault_tolerance.hang_detection.window_seconds"],
        ),
        (
            r#"{"name":"a","command":["true"],"fault_tolerance":{"policy":{"type":"mine"}}}"#,
            vec!["fault_tolerance.policy.type"],
        ),
    ] {
        assert_eq!(fields(&draft(body)), want, "{body}");
    }
}

#[test]
fn text_that_cannot_be_seen_is_refused_where_one_line_is_typed() {
    for (body, message) in [
        (
            r#"{"name":"\u200b","command":["true"]}"#,
            "name holds U+200B, a character that cannot be seen; remove it",
        ),
        (
            r#"{"name":"a\u202eb","command":["true"]}"#,
            "name holds U+202E, a character that cannot be seen; remove it",
        ),
        (
            r#"{"name":"a\nb","command":["true"]}"#,
            "name holds U+000A, a character that cannot be seen; remove it",
        ),
        (
            r#"{"name":"a","command":["true"],"working_dir":"/w\u2066"}"#,
            "working_dir holds U+2066, a character that cannot be seen; remove it",
        ),
    ] {
        let errors = draft(body).validate(&site()).unwrap_err();
        let told: Vec<_> = errors.iter().map(|error| format!("{} {}", error.field, error.message)).collect();
        assert_eq!(told, [message]);
    }
}

#[test]
fn inconsistent_switches_are_refused_and_never_corrected() {
    const POLICY: &str = "fault_tolerance.policy.enabled";
    const HANG: &str = "fault_tolerance.hang_detection.enabled";
    for (failover, policy, hang, accelerators, want) in [
        (true, true, true, 1, vec![]),
        (true, false, false, 0, vec![]),
        (false, true, false, 1, vec![POLICY]),
        (true, false, true, 1, vec![HANG]),
        (false, false, true, 1, vec![HANG, HANG]),
        (false, true, true, 1, vec![POLICY, HANG]),
        (true, true, true, 0, vec![HANG]),
    ] {
        let body = format!(
            r#"{{"name":"a","command":["true"],"accelerators_per_replica":{accelerators},"fault_tolerance":{{
            "auto_failover":{failover},"policy":{{"enabled":{policy}}},"hang_detection":{{"enabled":{hang}}}}}}}"#
        );
        assert_eq!(fields(&draft(&body)), want, "{body}");
    }
}

#[test]
fn nodes_are_diagnosed_where_a_job_asks_for_it_and_a_site_may_want_it_by_itself() {
    for (asked, by_itself, want) in [
        ("", false, false),
        ("", true, true),
        (r#","diagnose":false"#, true, false),
        (r#","diagnose":true"#, false, true),
    ] {
        let mut site = site();
        site.defaults.hang_detection.diagnose = by_itself;
        let body = format!(
            r#"{{"name":"a","command":["true"],"accelerators_per_replica":1,"fault_tolerance":{{
            "auto_failover":true,"policy":{{"enabled":true}},"hang_detection":{{"enabled":true{asked}}}}}}}"#
        );
        let spec = draft(&body).validate(&site).unwrap();
        assert_eq!(spec.fault_tolerance.hang_detection.diagnose, want, "{asked} {by_itself}");
    }
}

#[test]
fn a_rayjob_takes_basic_mode_only() {
    let body = r#"{"name":"a","kind":"rayjob","cluster":"k8s","image":"ray","command":["true"],"accelerators_per_replica":1,"fault_tolerance":{
        "auto_failover":true,"policy":{"enabled":true},"hang_detection":{"enabled":true},"exit_checkpoint":{"enabled":true}}}"#;
    assert_eq!(
        fields(&draft(body)),
        [
            "fault_tolerance.policy.enabled",
            "fault_tolerance.hang_detection.enabled",
            "fault_tolerance.exit_checkpoint.enabled"
        ]
    );
}

#[test]
fn a_rayjobs_command_is_one_driver() {
    let long = "a ".repeat(16_000);
    for (command, processes, want) in [
        (vec!["python3"], "", vec![]),
        (vec!["python3"], r#","processes_per_replica":1"#, vec![]),
        (vec!["python3"], r#","processes_per_replica":2"#, vec!["processes_per_replica"]),
        (vec![long.as_str(); 4], "", vec!["command"]),
    ] {
        let command = serde_json::to_string(&command).unwrap();
        let body = format!(
            r#"{{"name":"a","kind":"rayjob","cluster":"k8s","image":"ray","replicas":3,"command":{command}{processes}}}"#
        );
        assert_eq!(fields(&draft(&body)), want, "{processes}");
    }
    let spec = draft(
        r#"{"name":"a","kind":"rayjob","cluster":"k8s","image":"ray","command":["true"],"replicas":3}"#,
    )
    .validate(&site())
    .unwrap();
    assert_eq!((spec.starting_replicas(), spec.world_size()), (1, 1));
}

#[test]
fn a_message_names_the_value_and_what_is_allowed() {
    let errors = draft(r#"{"name":"a","command":["true"],"fault_tolerance":{"max_task_restarts":-1}}"#)
        .validate(&site())
        .unwrap_err();
    assert_eq!(
        errors[0].message,
        "-1 is not allowed. Use a whole number from 0 to 50. A negative number never means unlimited."
    );
}

#[test]
fn an_unknown_field_is_an_error() {
    assert!(serde_json::from_str::<JobDraft>(r#"{"name":"a","fault_tolerance":{"max_retries":1}}"#).is_err());
}

#[test]
fn a_job_gives_the_draft_that_makes_it_again() {
    let spec = draft(
        r#"{"name":"a","command":["true"],"accelerators_per_replica":1,"fault_tolerance":{"auto_failover":true,"max_task_restarts":2,
        "policy":{"enabled":true}}}"#,
    )
    .validate(&site())
    .unwrap();
    assert_eq!(JobDraft::from(&spec).validate(&site()).unwrap(), spec);
}
