//! What is done with nodes that a diagnosis confirmed: each is quarantined as by strikes, as far as the cap allows. Nodes that failed and
//! were not confirmed get nothing, not even a strike: the run itself says that nothing follows for them.

use serde::{Deserialize, Serialize};

use super::{Change, NodeRules, Trip, Ward, over_cap, put_out};
use crate::{ids::NodeName, time::Time};

/// What became of a node that a diagnosis confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = DiagnosisHeld))]
pub struct Held {
    /// The node.
    pub node: NodeName,
    /// It is out for every job, or was already.
    pub quarantined: bool,
    /// What was done, or why nothing was, a sentence.
    pub text: String,
}

/// What has to change for nodes that the run `run_id` confirmed, the `number`th of its job, and what is said of each. Asked again once that is
/// kept, nothing changes.
pub fn confirm(
    rules: &NodeRules,
    ward: &Ward,
    (run_id, number): (&str, u32),
    nodes: &[NodeName],
    now: Time,
) -> (Vec<Held>, Vec<Change>) {
    let (mut held, mut changes) = (Vec::new(), Vec::new());
    let mut records = ward.records.clone();
    let mut tripped = ward.cap.tripped.is_some();
    for node in nodes {
        let mut record = records.get(node).cloned().unwrap_or_default();
        let mut say = |quarantined, text: String| held.push(Held { node: node.clone(), quarantined, text });
        if let Some(out) = &mut record.quarantine {
            say(true, format!("{node} is quarantined already."));
            // What began by strikes is borne out now: it lasts as long as one that begins, and is not withdrawn with the strikes.
            if out.by == "holdfast" && out.diagnosis.is_none() {
                out.until = out.until.max(out.until.and(Some(now.plus_seconds(rules.quarantine_seconds))));
                out.diagnosis = Some(run_id.to_owned());
                record.by_strikes = None;
                let text =
                    format!("The quarantine of {node} is confirmed by diagnosis #{number} ({run_id}).");
                records.insert(node.clone(), record.clone());
                changes.push(Change::Node { node: node.clone(), record, text });
            }
            continue;
        }
        let Some(total) = ward.total else {
            say(false, format!("{node} is not quarantined: its cluster does not say how many nodes it has."));
            continue;
        };
        if tripped {
            say(false, format!("{node} is not quarantined: the cap is reached until a person resets it."));
            continue;
        }
        if let Some(why) = over_cap(rules, &ward.cap, &records, total) {
            tripped = true;
            let text = format!(
                "{node} is confirmed by diagnosis #{number} ({run_id}) and is not quarantined: {why} Nothing more is quarantined by itself until a person resets the cap."
            );
            say(false, format!("{node} is not quarantined: {why}"));
            changes.push(Change::Tripped(Trip { at: now, node: node.clone(), text }));
            continue;
        }
        let why = format!("confirmed by diagnosis #{number} ({run_id})");
        let text = put_out(rules, &mut record, node, why, now);
        if let Some(out) = &mut record.quarantine {
            out.diagnosis = Some(run_id.to_owned());
        }
        record.trial_since = None;
        say(true, text.clone());
        records.insert(node.clone(), record.clone());
        changes.push(Change::Node { node: node.clone(), record, text });
    }
    (held, changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::standing::{ByStrikes, Cap, NodeRecord, Quarantine};

    const NOW: Time = Time(1_767_225_600_000_000);

    fn nodes(numbers: &[u32]) -> Vec<NodeName> {
        numbers.iter().map(|number| NodeName::new(format!("n{number}")).unwrap()).collect()
    }

    fn ward(total: Option<u32>) -> Ward {
        Ward { total, ..Ward::default() }
    }

    fn keep(ward: &mut Ward, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Node { node, record, .. } => drop(ward.records.insert(node, record)),
                Change::Tripped(trip) => ward.cap.tripped = Some(trip),
            }
        }
    }

    #[test]
    fn a_confirmed_node_is_out_for_a_day_and_says_which_run_found_it() {
        let rules = NodeRules::default();
        let mut ward = ward(Some(8));
        let (held, changes) = confirm(&rules, &ward, ("d1", 2), &nodes(&[3]), NOW);
        assert_eq!(held[0].text, "n3 is quarantined for 1 d 0 h: confirmed by diagnosis #2 (d1).");
        keep(&mut ward, changes);
        let record = ward.records[&nodes(&[3])[0]].clone();
        let out = record.quarantine.unwrap();
        assert_eq!(out.until, Some(NOW.plus_seconds(rules.quarantine_seconds)));
        assert_eq!((out.by.as_str(), out.diagnosis.as_deref(), record.rounds), ("holdfast", Some("d1"), 1));
        assert_eq!(out.reason, "Confirmed by diagnosis #2 (d1)");
        let (held, changes) = confirm(&rules, &ward, ("d1", 2), &nodes(&[3]), NOW);
        assert_eq!((held[0].quarantined, changes), (true, Vec::new()), "asked again, nothing changes");
    }

    #[test]
    fn a_quarantine_by_strikes_lasts_and_stands_once_it_is_confirmed_and_a_persons_is_theirs() {
        let rules = NodeRules::default();
        let out = |by: &str, until| Quarantine {
            since: NOW,
            until,
            by: by.to_owned(),
            reason: String::new(),
            diagnosis: None,
        };
        let record = |quarantine| NodeRecord {
            quarantine: Some(quarantine),
            by_strikes: Some(ByStrikes::default()),
            rounds: 1,
            ..NodeRecord::default()
        };
        let mut ward = ward(Some(16));
        let [struck, for_good, persons] = nodes(&[1, 2, 3]).try_into().unwrap();
        ward.records.insert(struck.clone(), record(out("holdfast", Some(NOW.plus_seconds(300)))));
        ward.records.insert(for_good.clone(), record(out("holdfast", None)));
        ward.records.insert(persons.clone(), record(out("ann", Some(NOW.plus_seconds(300)))));
        let (held, changes) = confirm(&rules, &ward, ("d1", 2), &nodes(&[1, 2, 3]), NOW);
        assert!(held.iter().all(|held| held.quarantined), "{held:?}");
        keep(&mut ward, changes);
        let until = |node| ward.records[node].quarantine.as_ref().unwrap().until;
        assert_eq!(until(&struck), Some(NOW.plus_seconds(rules.quarantine_seconds)));
        assert_eq!((until(&for_good), until(&persons)), (None, Some(NOW.plus_seconds(300))));
        assert_eq!((ward.records[&struck].by_strikes, ward.records[&struck].rounds), (None, 1));
        let (_, changes) = confirm(&rules, &ward, ("d1", 2), &nodes(&[1, 2, 3]), NOW);
        assert_eq!(changes, Vec::new(), "asked again, nothing changes");
    }

    #[test]
    fn over_the_cap_it_is_said_and_not_done() {
        let rules = NodeRules::default();
        let mut full = ward(Some(8));
        let (held, changes) = confirm(&rules, &full, ("d1", 1), &nodes(&[1, 2, 3, 4]), NOW);
        let out: Vec<_> = held.iter().map(|held| held.quarantined).collect();
        assert_eq!(out, [true, true, false, false], "{held:?}");
        assert!(held[2].text.contains("2 of 8 nodes are out, and the cap is 2."), "{held:?}");
        assert_eq!(changes.len(), 3, "two nodes and the cap, once: {changes:?}");
        keep(&mut full, changes);
        let (held, changes) = confirm(&rules, &full, ("d2", 2), &nodes(&[5]), NOW);
        assert!(!held[0].quarantined && changes.is_empty(), "{held:?}");
        // Nothing is put out while nobody knows of how many.
        let (held, changes) = confirm(&rules, &ward(None), ("d1", 1), &nodes(&[1]), NOW);
        assert!(!held[0].quarantined && changes.is_empty(), "{held:?}");
    }

    #[test]
    fn on_trial_it_is_out_again_and_after_three_times_until_a_person_acts() {
        let rules = NodeRules::default();
        let mut trial = ward(Some(8));
        let record = NodeRecord { trial_since: Some(NOW), rounds: 2, ..NodeRecord::default() };
        trial.records.insert(nodes(&[1])[0].clone(), record);
        trial.cap = Cap::default();
        let (held, changes) = confirm(&rules, &trial, ("d1", 1), &nodes(&[1]), NOW.plus_seconds(5));
        assert!(held[0].text.contains("until a person releases it"), "{held:?}");
        let [Change::Node { record, .. }] = changes.as_slice() else { panic!("{changes:?}") };
        assert_eq!((record.trial_since, record.rounds), (None, 3));
        assert_eq!(record.quarantine.as_ref().unwrap().until, None);
    }
}
