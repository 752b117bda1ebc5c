use super::*;
use crate::{
    chain::Intent,
    failure::{Confidence, Root},
    ids::{NodeName, ReplicaName},
    record::Used,
    time::Time,
};

fn verdict(failure_type: FailureType, exit_code: i32) -> Verdict {
    Verdict {
        failure_type,
        confidence: Confidence::High,
        rule: "test".to_owned(),
        fingerprint: "test".to_owned(),
        root: Some(Root {
            replica: ReplicaName::new("worker-0").unwrap(),
            rank: Some(1),
            node: None,
            line: None,
            exit_code: Some(exit_code),
            signal: None,
        }),
        evidence: Vec::new(),
        cascade_ranks: 0,
        suspects: vec![NodeName::new("n2").unwrap()],
        fault: String::new(),
        hint: None,
        link_down: false,
    }
}

fn standing(in_place: u32) -> Standing {
    Standing {
        auto_failover: true,
        task_restarts: Used { used: 0, allowed: 2 },
        in_place_restarts: Used { used: 0, allowed: in_place },
        hang_restarts: Some(Used { used: 0, allowed: 1 }),
    }
}

fn ask(policy: &Policy, verdict: &Verdict, standing: Standing) -> Need {
    policy.needs(&Question {
        verdict,
        phase: Phase::Training,
        step: Some(1_200),
        repeat: false,
        replica_gone: None,
        standing,
        diagnosis: Diagnosis::NotAsked,
    })
}

#[test]
fn the_built_in_tables_are_read_and_every_job_has_one() {
    for name in crate::job::BUILT_IN_POLICIES.into_iter().chain(["basic"]) {
        let policy = Policy::built_in(name).unwrap();
        assert!(policy.version >= 1 && !policy.label.is_empty());
        assert!(policy.rules.iter().all(|rule| !rule.reason.contains('*')), "reasons are plain text");
        let mut ids: Vec<_> = policy.rules.iter().map(|rule| &rule.id).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), policy.rules.len(), "{name}: ids are unique");
        let last = policy.rules.last().unwrap();
        assert_eq!(last.when, When::default(), "{name}: the last rule takes what is left");
    }
    assert!(Policy::built_in("nope").is_none());
    assert_eq!(Policy::of(&FaultTolerance::default()).unwrap().name, "basic");
}

#[test]
fn a_link_that_is_down_is_not_tried_in_place() {
    let policy = Policy::built_in("exit_code_and_message").unwrap();
    let mut net = verdict(FailureType::NetFabric, 1);
    assert_eq!(ask(policy, &net, standing(3)).action, Action::RestartInPlace);
    net.link_down = true;
    let need = ask(policy, &net, standing(3));
    assert_eq!((need.action, need.avoid), (Action::Resubmit, true));
    assert_eq!(need.refusals, [Refusal::LinkDown]);
    assert_eq!(need.reason(&net.suspects), "Resubmitted, keeping off n2.");
}

#[test]
fn the_first_rule_that_matches_wins_also_in_a_custom_table_s09() {
    let mut policy = Policy::built_in("exit_code_and_message").unwrap().clone();
    let mut rule = policy.rules.last().unwrap().clone();
    rule.id = "exit-33".to_owned();
    rule.when = When { exits: vec![33], ..When::default() };
    rule.action = Action::FailFast;
    rule.budget = Budget::None;
    policy.rules.insert(0, rule);
    let app = FailureType::AppError;
    assert_eq!(ask(&policy, &verdict(app, 33), standing(3)).rule, "exit-33");
    assert_eq!(ask(&policy, &verdict(app, 1), standing(3)).rule, "app-error-in-place");
    assert_eq!(ask(&policy, &verdict(app, 1), standing(0)).rule, "app-error-resubmit");
}

#[test]
fn a_table_with_a_hole_never_loses_a_job() {
    let policy = Policy { name: "empty".to_owned(), label: String::new(), version: 3, rules: Vec::new() };
    let need = ask(&policy, &verdict(FailureType::OomGpu, 1), standing(3));
    assert_eq!((need.action, need.rule.as_str()), (Action::Resubmit, "no-rule"));
}

#[test]
fn a_hang_pays_from_its_own_limit_only_while_hang_detection_is_on() {
    let policy = Policy::built_in("exit_code_and_message").unwrap();
    let hang = verdict(FailureType::CommHang, 1);
    let mut standing = standing(3);
    assert_eq!(ask(policy, &hang, standing).budget, Budget::HangRestarts);
    standing.hang_restarts = None;
    assert_eq!(ask(policy, &hang, standing).budget, Budget::InPlaceRestarts);
    standing.hang_restarts = Some(Used::default());
    let need = ask(policy, &hang, standing);
    assert_eq!(need.action, Action::Resubmit);
    assert_eq!(need.refusals[0].text(), "Not in place: Maximum Restart Count for Communication Hang is 0.");
}

#[test]
fn nodes_are_diagnosed_after_the_last_restart_in_place_where_that_is_asked_for() {
    let hang = verdict(FailureType::CommHang, 1);
    let used = Standing { hang_restarts: Some(Used { used: 1, allowed: 1 }), ..standing(3) };
    for (name, rule, then) in [
        ("exit_code_and_message", "comm-hang-bisect", "comm-hang-resubmit"),
        ("on_any_failure", "any-hang-bisect", "any-resubmit"),
    ] {
        let policy = Policy::built_in(name).unwrap();
        let ask = |diagnosis, standing, verdict: &Verdict| {
            policy.needs(&Question {
                verdict,
                phase: Phase::Training,
                step: None,
                repeat: false,
                replica_gone: None,
                standing,
                diagnosis,
            })
        };
        let need = ask(Diagnosis::Possible, used, &hang);
        assert_eq!((need.action, need.budget, need.rule.as_str()), (Action::Diagnose, Budget::None, rule));
        assert_eq!(ask(Diagnosis::Possible, standing(3), &hang).action, Action::RestartInPlace);
        assert_eq!(ask(Diagnosis::NotAsked, used, &hang).rule, then);
        let need = ask(Diagnosis::Impossible(Refusal::OneNode), used, &hang);
        assert_eq!((need.rule.as_str(), need.refusals.last()), (then, Some(&Refusal::OneNode)));
        let other = verdict(FailureType::HwNode, 1);
        assert_ne!(ask(Diagnosis::Possible, used, &other).action, Action::Diagnose);
    }
}

#[test]
fn the_first_refusal_wins() {
    let stop = Intent::Stop { by: "user-1".to_owned() };
    let wait = Some((Time(100), Refusal::BackOff));
    let used = Standing { task_restarts: Used { used: 2, allowed: 2 }, ..standing(1) };
    let off = Standing { auto_failover: false, ..standing(1) };
    let (in_place, task) = (Budget::InPlaceRestarts, Budget::TaskRestarts);
    let never = |reason| May::Never { reason };
    let stopped = never(Refusal::Stopped { by: "user-1".to_owned() });
    for (case, action, budget, intent, standing, now, want) in [
        ("a stop beats a ready restart", Action::RestartInPlace, in_place, &stop, standing(1), 100, stopped),
        (
            "budgets are never mixed",
            Action::Resubmit,
            task,
            &Intent::Run,
            used,
            100,
            never(Refusal::TaskRestartsUsed { allowed: 2 }),
        ),
        (
            "the switch beats the budget",
            Action::Resubmit,
            task,
            &Intent::Run,
            off,
            100,
            never(Refusal::AutoFailoverOff),
        ),
        ("failing fast is free", Action::FailFast, Budget::None, &Intent::Run, used, 100, May::Yes),
        (
            "one tick early",
            Action::RestartInPlace,
            in_place,
            &Intent::Run,
            used,
            99,
            May::NotYet { until: Time(100), reason: Refusal::BackOff },
        ),
        ("on time", Action::RestartInPlace, in_place, &Intent::Run, used, 100, May::Yes),
    ] {
        assert_eq!(may(action, budget, intent, &standing, wait.clone(), Time(now)), want, "{case}");
    }
}
