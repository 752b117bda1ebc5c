//! What is held against the nodes of a cluster: strikes, quarantine, the time on trial after it, and the cap on how many are out.
//!
//! [`review`] is a function of what is kept and the time: whoever asks again gets nothing more, so it may be asked by several servers,
//! after a crash, and as often as anybody likes.
//!
//! Choices:
//! - A strike counts until it is too old, its node was released since, or its job struck many nodes within seconds: that is the job's
//!   fault, not theirs (R33). Where it goes on to others only after a node was put out, that quarantine is withdrawn.
//! - A quarantine that ends by its time leaves the node on trial: the first strike puts it out again. Health checks run before
//!   training on it as on any node; passing them does not end the trial. After [`LIMIT_OF_ROUNDS`] quarantines in a row it stays out until a person releases it.
//! - The cap stops what happens by itself, never a person and never a release. Once it had to stop something it stays latched until a
//!   person resets it, since so many suspects are more likely one cause that is none of theirs.

mod confirmed;
mod marks;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    ids::{IncidentId, JobId, NodeName},
    time::Time,
    words,
};

pub use confirmed::{Held, confirm};
pub use marks::Marks;

/// Quarantines in a row, without a quiet trial or a person's release between them, after which a node stays out until a person acts.
pub const LIMIT_OF_ROUNDS: u32 = 3;
/// Nodes that a job must strike within [`CORRELATED_SECONDS`] for its strikes to count against none of them.
pub const CORRELATED_NODES: usize = 3;
/// How close in time those strikes are, seconds: the gathering window of an incident, a restart in place, and the next one.
pub const CORRELATED_SECONDS: u64 = 30;
/// Characters of a person's reason.
pub const REASON_CHARS: usize = 300;

/// When nodes are put out, and how many: a setting of the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NodeRules {
    /// Strikes that count before a node is quarantined; at least 1.
    pub strikes: u32,
    /// For how long a strike counts, seconds; also how long a trial lasts.
    pub strike_seconds: u64,
    /// How long a quarantine that began by itself lasts, seconds.
    pub quarantine_seconds: u64,
    /// Share of a cluster's nodes that may be out at once by themselves, percent; at least one node, never more than half.
    pub cap_percent: u32,
}

impl Default for NodeRules {
    fn default() -> Self {
        Self { strikes: 3, strike_seconds: 7 * 86_400, quarantine_seconds: 86_400, cap_percent: 25 }
    }
}

impl NodeRules {
    /// Nodes of a cluster of `total` that may be out at once.
    pub fn cap(&self, total: u32) -> u32 {
        let share = u64::from(total) * u64::from(self.cap_percent) / 100;
        u32::try_from(share).unwrap_or(u32::MAX).max(1).min(total / 2)
    }
}

/// How a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Nothing counts against it.
    Ready,
    /// Something does, or a job keeps off it.
    Suspected,
    /// Its quarantine ended by its time: the next strike puts it out again, whatever health checks it passes before training.
    OnTrial,
    /// Every new attempt keeps off it.
    Quarantined,
}

/// Why a node is out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Quarantine {
    /// Since when.
    pub since: Time,
    /// Until when; none: until a person releases it.
    pub until: Option<Time>,
    /// Who: `holdfast`, or a person's name.
    pub by: String,
    /// Why, a sentence.
    pub reason: String,
    /// The run of Bisect Diagnose that confirmed it; none: it was none.
    #[serde(default)]
    pub diagnosis: Option<String>,
}

/// What is kept of a node. The strikes themselves are kept with their incidents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Strikes before this do not count.
    pub counts_from: Option<Time>,
    /// It is out.
    pub quarantine: Option<Quarantine>,
    /// It is on trial since then.
    pub trial_since: Option<Time>,
    /// Quarantines in a row that began by themselves.
    pub rounds: u32,
    /// Its quarantine began by its strikes; none where a person put it out or keeps it out.
    #[serde(default)]
    pub by_strikes: Option<ByStrikes>,
}

/// How a node stood when its strikes put it out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByStrikes {
    /// It was on trial since then, so that one strike was enough.
    pub trial_since: Option<Time>,
}

impl NodeRecord {
    /// A person puts it out. Beyond [`REASON_CHARS`] the reason is cut.
    pub fn quarantine(&mut self, by: &str, reason: &str, until: Option<Time>, now: Time) {
        let reason = reason.chars().take(REASON_CHARS).collect();
        let since = self.quarantine.as_ref().map_or(now, |before| before.since);
        self.quarantine = Some(Quarantine { since, until, by: by.to_owned(), reason, diagnosis: None });
        self.trial_since = None;
        self.by_strikes = None;
    }

    /// A person lets it in again: what was held against it so far counts no more.
    pub fn release(&mut self, now: Time) {
        *self = Self { counts_from: Some(now), ..Self::default() };
    }
}

/// A strike as far as the count goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The node.
    pub node: NodeName,
    /// The job whose incident gave it.
    pub job: JobId,
    /// The incident.
    pub incident: IncidentId,
    /// When.
    pub at: Time,
}

/// Why a strike does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Uncounted {
    /// It is too old.
    Expired,
    /// The node was released, or its quarantine ended, since.
    Released,
    /// Its job struck many nodes within seconds.
    Correlated,
}

/// How strikes are counted: by which rules, among which others, and when.
#[derive(Clone, Copy, Debug)]
pub struct Tally<'a> {
    rules: &'a NodeRules,
    marks: &'a Marks<'a>,
    now: Time,
    /// Strikes after this were not known yet.
    known: Time,
}

impl<'a> Tally<'a> {
    /// Now, when all of these are known.
    pub fn new(rules: &'a NodeRules, marks: &'a Marks<'a>, now: Time) -> Self {
        Self { rules, marks, now, known: Time(i64::MAX) }
    }

    /// Why a strike does not count; none: it does.
    pub fn uncounted(&self, record: &NodeRecord, mark: &Mark) -> Option<Uncounted> {
        if self.now >= mark.at.plus_seconds(self.rules.strike_seconds) {
            Some(Uncounted::Expired)
        } else if record.counts_from.is_some_and(|from| mark.at < from) {
            Some(Uncounted::Released)
        } else if self.marks.is_correlated(mark, self.known) {
            Some(Uncounted::Correlated)
        } else {
            None
        }
    }

    /// Strikes of a node that count.
    pub fn counted(&self, record: &NodeRecord, node: &NodeName) -> u32 {
        let own = self.marks.of_node(node).iter().filter(|mark| mark.at <= self.known);
        u32::try_from(own.filter(|mark| self.uncounted(record, mark).is_none()).count()).unwrap_or(u32::MAX)
    }
}

/// The cap of a cluster: when a person last reset it, and what it had to stop since.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Cap {
    /// Nodes that were out already then do not count: the person has seen them.
    pub reset_at: Option<Time>,
    /// What it stopped; until a person resets it nothing is put out by itself.
    pub tripped: Option<Trip>,
}

/// The cap had to stop a quarantine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Trip {
    /// When.
    pub at: Time,
    /// Of which node.
    pub node: NodeName,
    /// A sentence.
    pub text: String,
}

/// The nodes of one cluster as they are kept.
#[derive(Clone, Debug, Default)]
pub struct Ward {
    /// How many nodes the cluster has; none where that is not known now.
    pub total: Option<u32>,
    /// What is kept of nodes.
    pub records: BTreeMap<NodeName, NodeRecord>,
    /// Strikes of the time that counts.
    pub marks: Vec<Mark>,
    /// The cap.
    pub cap: Cap,
}

/// Something that follows from what is kept and the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A node stands otherwise.
    Node {
        /// Which.
        node: NodeName,
        /// How it stands now.
        record: NodeRecord,
        /// What happened, a sentence.
        text: String,
    },
    /// The cap stopped a quarantine, for the first time since it was reset.
    Tripped(Trip),
}

impl Change {
    /// The node that it is about, and what happened, a sentence.
    pub fn told(&self) -> (&NodeName, &str) {
        match self {
            Self::Node { node, text, .. } => (node, text),
            Self::Tripped(trip) => (&trip.node, &trip.text),
        }
    }
}

/// What has to change now. Nothing is put out by itself while the size of the cluster is not known.
pub fn review(rules: &NodeRules, ward: &Ward, now: Time) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut records = ward.records.clone();
    let mut tripped = ward.cap.tripped.is_some();
    let marks = Marks::of(&ward.marks);
    let tally = Tally::new(rules, &marks, now);
    let nodes: BTreeSet<_> = records.keys().cloned().chain(marks.nodes().cloned()).collect();
    for node in nodes {
        let mut record = records.get(&node).cloned().unwrap_or_default();
        let over = end(rules, &mut record, &node, now);
        if let Some(text) = over.or_else(|| withdraw(tally, &mut record, &node)) {
            records.insert(node.clone(), record.clone());
            changes.push(Change::Node { node, record, text });
            continue;
        }
        let count = tally.counted(&record, &node);
        let limit = limit(rules, record.trial_since);
        if record.quarantine.is_some() || count < limit || tripped {
            continue;
        }
        let Some(total) = ward.total else { continue };
        if let Some(text) = over_cap(rules, &ward.cap, &records, total) {
            tripped = true;
            let text = format!(
                "{node} has {} and is not quarantined: {text} Nothing more is quarantined by itself until a person resets the cap.",
                words::count(count, "strike")
            );
            changes.push(Change::Tripped(Trip { at: now, node, text }));
            continue;
        }
        let trial_since = record.trial_since.take();
        let why = match trial_since {
            Some(_) => "a strike while it was on trial".to_owned(),
            None => {
                let span = words::duration(rules.strike_seconds as f64);
                format!("{} within {span}", words::count(count, "strike"))
            }
        };
        let text = put_out(rules, &mut record, &node, why, now);
        record.by_strikes = Some(ByStrikes { trial_since });
        records.insert(node.clone(), record.clone());
        changes.push(Change::Node { node, record, text });
    }
    changes
}

/// Ends a quarantine or a trial whose time is over.
fn end(rules: &NodeRules, record: &mut NodeRecord, node: &NodeName, now: Time) -> Option<String> {
    if record.quarantine.as_ref().is_some_and(|out| out.until.is_some_and(|until| until <= now)) {
        record.quarantine = None;
        record.by_strikes = None;
        record.trial_since = Some(now);
        record.counts_from = Some(now);
        return Some(format!(
            "The quarantine of {node} is over. It is on trial: the first strike within {} puts it out again, whatever health checks it passes.",
            words::duration(rules.strike_seconds as f64)
        ));
    }
    if record.trial_since.is_some_and(|since| since.plus_seconds(rules.strike_seconds) <= now) {
        record.trial_since = None;
        record.rounds = 0;
        return Some(format!("{node} had no strike while it was on trial and is ready."));
    }
    None
}

/// Ends a quarantine whose strikes were enough when it began and are not any more, as their job has struck many nodes since. The node
/// stands as before. Strikes that are forgotten since withdraw nothing: without them it was not enough then either.
fn withdraw(tally: Tally<'_>, record: &mut NodeRecord, node: &NodeName) -> Option<String> {
    let before = record.by_strikes?;
    let began = record.quarantine.as_ref()?.since;
    let limit = limit(tally.rules, before.trial_since);
    let all = Tally { now: began, ..tally };
    let known_then = Tally { known: began, ..all };
    if known_then.counted(record, node) < limit || all.counted(record, node) >= limit {
        return None;
    }
    record.quarantine = None;
    record.by_strikes = None;
    record.trial_since = before.trial_since;
    record.rounds = record.rounds.saturating_sub(1);
    Some(format!(
        "The quarantine of {node} is withdrawn: a job that struck it went on to strike {CORRELATED_NODES} nodes or more within \
         {CORRELATED_SECONDS} s, which is held against none of them."
    ))
}

/// Strikes that put a node out.
fn limit(rules: &NodeRules, trial_since: Option<Time>) -> u32 {
    if trial_since.is_some() { 1 } else { rules.strikes.max(1) }
}

fn put_out(rules: &NodeRules, record: &mut NodeRecord, node: &NodeName, why: String, now: Time) -> String {
    record.rounds = record.rounds.saturating_add(1);
    let for_good = record.rounds >= LIMIT_OF_ROUNDS;
    let until = (!for_good).then(|| now.plus_seconds(rules.quarantine_seconds));
    let ending = match until {
        Some(_) => format!("for {}", words::duration(rules.quarantine_seconds as f64)),
        None => format!("until a person releases it, as this is time {} in a row", record.rounds),
    };
    let reason = format!("{}{}", why[..1].to_uppercase(), &why[1..]);
    record.quarantine =
        Some(Quarantine { since: now, until, by: "holdfast".to_owned(), reason, diagnosis: None });
    format!("{node} is quarantined {ending}: {why}.")
}

/// Why the cap allows no further node to be put out, if it does not.
fn over_cap(
    rules: &NodeRules,
    cap: &Cap,
    records: &BTreeMap<NodeName, NodeRecord>,
    total: u32,
) -> Option<String> {
    let (all, counted) = out_now(cap, records);
    let allowed = rules.cap(total);
    if all >= total / 2 {
        return Some(format!(
            "{all} of {} are out, and by themselves never more than half are.",
            words::count(total, "node")
        ));
    }
    (counted >= allowed).then(|| {
        let since = if cap.reset_at.is_some() { " since the cap was last reset" } else { "" };
        format!("{counted} of {} are out{since}, and the cap is {allowed}.", words::count(total, "node"))
    })
}

/// Nodes that are out, and those of them that count for the cap.
pub fn out_now(cap: &Cap, records: &BTreeMap<NodeName, NodeRecord>) -> (u32, u32) {
    let out = || records.values().filter_map(|record| record.quarantine.as_ref());
    let counts = out().filter(|out| cap.reset_at.is_none_or(|reset| out.since > reset)).count();
    let whole = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    (whole(out().count()), whole(counts))
}

/// How a node stands, for pages.
pub fn state(record: &NodeRecord, counted: u32, avoided: bool) -> NodeState {
    if record.quarantine.is_some() {
        NodeState::Quarantined
    } else if record.trial_since.is_some() {
        NodeState::OnTrial
    } else if counted > 0 || avoided {
        NodeState::Suspected
    } else {
        NodeState::Ready
    }
}

#[cfg(test)]
mod tests;
