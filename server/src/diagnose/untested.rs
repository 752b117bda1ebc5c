//! Groups of which nothing follows for their nodes: what ended them was not their test. Pure.

use std::collections::BTreeMap;

use engine::{
    bisect::{Nodes, Outcome},
    ids::NodeName,
    record::{AttemptRecord, AttemptResult, IncidentRecord, State},
    words,
};

use super::WORDS;

/// A group of which nothing follows, for none of its nodes in particular.
pub(super) fn lost(text: &str) -> Outcome {
    Outcome::Lost { nodes: Nodes::new(), text: text.to_owned() }
}

/// A group that some of its nodes do not take.
pub(super) fn closed_to(closed: BTreeMap<NodeName, String>) -> Outcome {
    let words: Vec<_> = closed.iter().map(|(node, why)| format!("{node} {why}")).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let text = words::list(&words).chars().take(WORDS).collect();
    Outcome::Lost { nodes: closed.into_keys().collect(), text }
}

/// Whether a group that failed was not tested: it was refused, gave way to others, or something befell its replicas from outside. None:
/// the test itself failed.
pub(super) fn untested(record: Option<&AttemptRecord>, incident: Option<&IncidentRecord>) -> Option<Outcome> {
    let fault = record.and_then(|record| record.fault.as_deref());
    if record.is_some_and(|record| record.result == Some(AttemptResult::Refused)) {
        return Some(lost(fault.unwrap_or("the cluster refused it")));
    }
    // An attempt that was preempted has stopped; its job, which nobody tries again, has failed.
    if record.is_some_and(|record| record.state == State::Stopped) {
        return Some(lost(fault.unwrap_or("it gave way to others")));
    }
    let incident = incident?;
    let node = incident.root.as_ref().and_then(|root| root.node.clone());
    let nodes = match incident.rule()? {
        "cluster-node-lost" => node.into_iter().collect(),
        "cluster-lost" | "cluster-evicted" | "no-evidence" => Nodes::new(),
        _ => return None,
    };
    Some(Outcome::Lost { nodes, text: incident.fault.chars().take(WORDS).collect() })
}

#[cfg(test)]
mod tests {
    use engine::{
        chain::{
            self, Chain, EndReason, Input, Observation, ReplicaObservation, ReplicaStatus,
            limits::GATHER_MILLIS,
        },
        failure::Exit,
        ids::{JobId, ReplicaName},
        job::{JobDraft, JobKind, Site},
        record::Record,
        time::Time,
    };

    use super::*;

    fn node() -> NodeName {
        NodeName::new("n1").unwrap()
    }

    /// What follows of a group on one node whose replica ended so.
    fn after(exit: Option<i64>, reason: EndReason) -> Option<Outcome> {
        let draft = JobDraft {
            name: "bisect-1-group-1".to_owned(),
            command: vec!["true".to_owned()],
            ..JobDraft::default()
        };
        let mut spec = draft.validate(&Site::default()).unwrap();
        spec.fault_tolerance.health_checks.enabled = false;
        let job_id = JobId::new("jabcdefghij2").unwrap();
        let mut step = Chain::start_on(job_id, spec, [node()].into(), Time(0));
        let task_id = step.chain.live_task().unwrap().clone();
        let placed = |status| {
            let replica = ReplicaObservation { node: Some(node()), status };
            let replicas = [(ReplicaName::of_index(JobKind::PyTorchJob, 0), replica)].into();
            Input::Observed { task_id: task_id.clone(), observation: Observation::Placed { replicas } }
        };
        let ended = ReplicaStatus::Ended { exit: exit.map(Exit::from_code), reason };
        let inputs = [
            (0, Input::Created { task_id: task_id.clone() }),
            (1, placed(ReplicaStatus::Running)),
            (2, placed(ended)),
            (2 + GATHER_MILLIS, Input::Tick),
            (
                3 + GATHER_MILLIS,
                Input::Observed { task_id: task_id.clone(), observation: Observation::Absent },
            ),
        ];
        let mut records = std::mem::take(&mut step.records);
        for (millis, input) in inputs {
            step = chain::advance(&step.chain, &input, Time(0).plus_millis(millis));
            records.append(&mut step.records);
        }
        assert_eq!(step.chain.summary(Time(0)).state, State::Failed);
        let (mut attempt, mut incident) = (None, None);
        for record in records {
            match record {
                Record::Attempt(record) => attempt = Some(record),
                Record::Incident(_, record) => incident = Some(record),
                _ => {}
            }
        }
        untested(attempt.as_ref(), incident.as_ref())
    }

    #[test]
    fn what_befell_a_group_from_outside_is_no_failure_of_its_test() {
        let words = || "said so".to_owned();
        for (case, exit, reason, lost) in [
            ("the test failed", Some(1), EndReason::Exited, None),
            ("the test was killed", Some(137), EndReason::Exited, None),
            ("it took too much memory", Some(137), EndReason::OomKilled, None),
            ("it did not start", None, EndReason::StartError(words()), None),
            ("its node is gone", None, EndReason::NodeLost(words()), Some(vec![node()])),
            ("it gave way", None, EndReason::Preempted(words()), Some(vec![])),
            ("its node was short of something", None, EndReason::Evicted(words()), Some(vec![])),
            ("somebody deleted it", None, EndReason::Lost(words()), Some(vec![])),
        ] {
            let found = after(exit, reason).map(|outcome| match outcome {
                Outcome::Lost { nodes, text } => {
                    assert!(!text.is_empty(), "{case}");
                    nodes.into_iter().collect()
                }
                other => panic!("{case}: {other:?}"),
            });
            assert_eq!(found, lost, "{case}");
        }
    }

    #[test]
    fn nodes_that_take_nothing_are_named() {
        let closed = [("n1", "is cordoned"), ("n2", "is not ready")];
        let closed = closed.map(|(name, why)| (NodeName::new(name).unwrap(), why.to_owned()));
        let text = "n1 is cordoned and n2 is not ready".to_owned();
        let nodes = closed.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(closed_to(closed.into()), Outcome::Lost { nodes, text });
    }
}
