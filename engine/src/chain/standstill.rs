//! Processes that do not move: what the agents say of them is kept as long as it holds, and weighed with every step.
//!
//! Choices:
//! - A report holds until the agent says that the process moves again, or it ends: agents say what changes, not what stays.
//! - Where an agent is not heard, nothing is judged: the processes of its replica may long move again.
//! - A verdict waits a moment for what others may be saying in the same instant: counted from when it was first called for, since agents
//!   go on to report.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    attempt::{self, Attempt, Stage},
    desired,
    incident::Sign,
    turn::Turn,
};
use crate::{
    failure::{Confidence, FailureType, Phase, Root, Verdict},
    hang::{self, Fate, HangRecord, Outcome, Rank, Scene, Still, Strength, Suspicion},
    ids::NodeName,
    job::JobKind,
    record::{Record, StacksRecord},
    sync::{HangWatch, RankStack, StackKey, StillRank},
    time::Time,
    words,
};

/// The rule of a verdict on a standstill.
pub(super) const RULE: &str = "standstill";
/// How long a verdict waits for what other agents say in the same instant, milliseconds; never longer than half of the interval, so
/// that it is there within two intervals after the window.
const CONFIRM_MILLIS: u64 = 2_000;

/// What is known of the processes of a launch that do not move.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Standstill {
    /// The stacks they are in, each once: a thousand ranks in one collective have one.
    keys: Vec<StackKey>,
    /// By rank, with the place of its stack among the keys.
    ranks: BTreeMap<u32, (Still, Option<u32>)>,
    /// What it comes to by now.
    pub suspicion: Option<Suspicion>,
    /// When a verdict is due.
    pub due: Option<Time>,
    /// Agents may have been unheard, and their newest words may still be on their way; no verdict before this.
    pub not_before: Option<Time>,
}

impl Standstill {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn take(&mut self, rank: &StillRank) {
        let key = rank.stack.as_ref().map(|key| {
            let known = self.keys.iter().position(|known| known == key);
            known.unwrap_or_else(|| {
                self.keys.push(key.clone());
                self.keys.len() - 1
            }) as u32
        });
        let mut still = Still::of(rank);
        if let Some((before, _)) = self.ranks.get(&rank.rank) {
            still.follow(before);
        }
        self.ranks.insert(rank.rank, (still, key));
    }

    /// Nobody could hear the agents for a while. Where they had said nothing before, all of what they say now is needed anyway.
    pub fn put_off(&mut self, until: Time) {
        if !self.ranks.is_empty() {
            self.not_before = Some(until);
        }
    }

    /// Drops the keys of which no rank is any more.
    fn tidy(&mut self) {
        let mut places = vec![None; self.keys.len()];
        let mut kept = Vec::new();
        for (_, key) in self.ranks.values_mut() {
            let Some(place) = key else { continue };
            let old = *place as usize;
            let new = *places[old].get_or_insert_with(|| {
                kept.push(self.keys[old].clone());
                kept.len() - 1
            });
            *place = new as u32;
        }
        self.keys = kept;
    }

    fn forget(&mut self, rank: u32) {
        self.ranks.remove(&rank);
    }

    fn fate(&self, rank: u32) -> Fate<'_> {
        match self.ranks.get(&rank) {
            Some((still, key)) => Fate::Still(still, key.and_then(|key| self.keys.get(key as usize))),
            None => Fate::Moves,
        }
    }
}

impl Turn {
    fn watch(&self) -> Option<HangWatch> {
        desired::watch(&self.chain).filter(|_| self.chain.spec.fault_tolerance.policy.enabled)
    }

    pub fn take_still(&mut self, index: usize, ranks: &[StillRank]) {
        if self.watch().is_none() || !self.chain.attempt.is_wanted() {
            return;
        }
        let processes = self.chain.spec.processes_per_replica;
        for rank in ranks.iter().filter(|rank| is_local(processes, index, rank.rank)) {
            self.chain.attempt.launch.still.take(rank);
        }
        self.chain.attempt.launch.still.tidy();
    }

    pub fn take_moved(&mut self, index: usize, ranks: &[u32]) {
        let processes = self.chain.spec.processes_per_replica;
        for rank in ranks.iter().copied().filter(|rank| is_local(processes, index, *rank)) {
            self.chain.attempt.launch.still.forget(rank);
        }
    }

    /// Stacks are too large for a chain: they are kept beside it, by launch and rank.
    pub fn take_stacks(&mut self, index: usize, stacks: &[RankStack]) {
        // Those of the last ranks may come when the verdict is there already, those of the first long before anything is suspected.
        let wanted = match &self.chain.attempt.stage {
            Stage::Starting | Stage::Running => true,
            Stage::Failing(gathering) => gathering.hang.is_some(),
            Stage::Queued | Stage::Saving(_) | Stage::Stopping | Stage::Over(_) => false,
        };
        if self.watch().is_none() || !wanted {
            return;
        }
        let processes = self.chain.spec.processes_per_replica;
        let stacks: Vec<RankStack> =
            stacks.iter().filter(|stack| is_local(processes, index, stack.rank)).cloned().collect();
        if stacks.is_empty() {
            return;
        }
        let attempt = &self.chain.attempt;
        let record = StacksRecord {
            launch: attempt.launch.number,
            replica: attempt::name(self.chain.spec.kind, index),
            stacks,
        };
        let task = attempt.task_id.clone();
        self.record(Record::Stacks(task, record));
    }

    /// Something was made: what went before was a quiet stretch, and no hang. What processes do while they are being stopped proves
    /// nothing about that.
    pub fn take_movement(&mut self, at: Time) {
        if !self.chain.attempt.is_wanted() {
            return;
        }
        let at = self.real(at);
        let chain = &mut self.chain;
        let launch = &mut chain.attempt.launch;
        if let Some(from) = launch.moved_at.or(launch.started_at).filter(|from| *from < at) {
            chain.history.quiet.learn(launch.phase, from, at);
        }
        launch.moved_at = launch.moved_at.max(Some(at));
    }

    /// Suspects, or opens the incident.
    pub fn settle_standstill(&mut self) {
        let still = &self.chain.attempt.launch.still;
        if still.ranks.is_empty() && still.suspicion.is_none() {
            return;
        }
        let (suspicion, due) = match self.weigh() {
            Outcome::Moves => (None, None),
            Outcome::Suspected(suspicion) => (Some(suspicion), None),
            Outcome::Hang(hang) => {
                let due = self.verdict_due();
                if due <= self.now {
                    self.chain.attempt.launch.still = Standstill::default();
                    let since = hang.since;
                    return self.take_signs(since, vec![Sign::Hang(hang)]);
                }
                let stacks = self.chain.attempt.launch.still.suspicion.is_none_or(|before| before.stacks);
                let HangRecord { since, allowed_seconds, .. } = *hang;
                (Some(Suspicion { since, allowed_seconds, stacks }), Some(due))
            }
        };
        let still = &mut self.chain.attempt.launch.still;
        still.suspicion = suspicion;
        still.due = due;
    }

    fn verdict_due(&self) -> Time {
        let launch = &self.chain.attempt.launch;
        let interval = self.chain.spec.fault_tolerance.hang_detection.interval_seconds;
        let confirm = CONFIRM_MILLIS.min(u64::from(interval) * 500);
        let due = launch.still.due.unwrap_or_else(|| self.now.plus_millis(confirm));
        launch.still.not_before.map_or(due, |not_before| not_before.max(due))
    }

    fn weigh(&self) -> Outcome {
        let attempt = &self.chain.attempt;
        let (Some(watch), Some(began)) = (self.watch(), attempt.launch.started_at) else {
            return Outcome::Moves;
        };
        if attempt.stage != Stage::Running || self.is_stopped() {
            return Outcome::Moves;
        }
        let heard = |replica: &attempt::Replica| replica.silent.is_none();
        if !attempt.starting().iter().all(heard) {
            return Outcome::Moves;
        }
        // A program that is told to save may do nothing else until it has.
        let test = attempt.exit_test.as_ref();
        if test.is_some_and(|test| test.goes_on()) {
            return Outcome::Moves;
        }
        let saved_at = test.and_then(|test| test.over_at());
        let (launch, processes) = (&attempt.launch, self.chain.spec.processes_per_replica);
        // Most often some rank of a healthy launch moves, and it has thousands.
        let live = attempt
            .starting()
            .iter()
            .map(|replica| processes.saturating_sub(replica.run.finished.count_ones()));
        if (launch.still.ranks.len() as u32) < live.sum() {
            return Outcome::Moves;
        }
        let ranks = ranks(attempt, processes);
        hang::judge(&Scene {
            ranks,
            watch,
            began,
            moved_at: launch.moved_at.max(saved_at),
            phase: launch.phase,
            step: launch.progress.last_step(),
            quiet: &self.chain.history.quiet,
        })
    }
}

/// Whether a rank is one of a replica's; another is a forged or a broken report.
fn is_local(processes: u32, index: usize, rank: u32) -> bool {
    rank.checked_sub(index as u32 * processes).is_some_and(|local| local < processes)
}

fn ranks(attempt: &Attempt, processes: u32) -> Vec<Rank<'_>> {
    let mut ranks = Vec::new();
    for (index, replica) in attempt.starting().iter().enumerate() {
        for local in 0..processes {
            let finished = replica.run.finished >> local.min(63) & 1 == 1;
            let rank = index as u32 * processes + local;
            ranks.push(Rank {
                node: replica.node.as_ref(),
                fate: if finished { Fate::Finished } else { attempt.launch.still.fate(rank) },
            });
        }
    }
    ranks
}

/// The verdict on an attempt that stands still.
pub(super) fn verdict(hang: &HangRecord, attempt: &Attempt, kind: JobKind, processes: u32) -> Verdict {
    let root = hang.odd.as_ref().and_then(|odd| {
        let rank = *odd.ranks.first()?;
        let index = (rank / processes.max(1)) as usize;
        let node = attempt.replicas.get(index).and_then(|replica| replica.node.clone());
        let alone = (odd.ranks.len() == 1).then_some(rank);
        Some(Root {
            replica: attempt::name(kind, index),
            rank: alone,
            node,
            line: None,
            exit_code: None,
            signal: None,
        })
    });
    let live: u32 = hang.groups.iter().map(|group| group.count).sum();
    let odd: u32 = hang.groups.iter().filter(|group| group.odd).map(|group| group.count).sum();
    let sure = hang.odd.as_ref().is_some_and(|odd| odd.strength == Strength::Strong)
        || hang.groups.iter().all(|group| group.stack.is_some());
    let places: Vec<&str> = match hang.groups.iter().find(|group| group.odd) {
        Some(group) => vec![group.place.as_str()],
        None => hang.groups.iter().map(|group| group.place.as_str()).collect(),
    };
    Verdict {
        failure_type: FailureType::CommHang,
        confidence: if sure { Confidence::High } else { Confidence::Medium },
        rule: RULE.to_owned(),
        fingerprint: format!("{}:{RULE}:{}", FailureType::CommHang, words::list(&places)),
        root,
        evidence: Vec::new(),
        cascade_ranks: live.saturating_sub(odd),
        suspects: suspects(hang, attempt),
        fault: hang.words.clone(),
        hint: Some(hint(hang)),
        link_down: false,
    }
}

/// The node of the odd rank, where the evidence is strong and ranks on another node show that it is not the same everywhere.
fn suspects(hang: &HangRecord, attempt: &Attempt) -> Vec<NodeName> {
    let strong = hang.odd.as_ref().filter(|odd| odd.strength == Strength::Strong);
    let Some(node) = strong.and_then(|odd| odd.node.clone()) else { return Vec::new() };
    let elsewhere =
        attempt.starting().iter().any(|replica| replica.node.as_ref().is_some_and(|n| *n != node));
    if elsewhere { vec![node] } else { Vec::new() }
}

fn hint(hang: &HangRecord) -> String {
    let longer = match hang.phase {
        Phase::Starting | Phase::Communication | Phase::Training => "",
        Phase::Loading | Phase::Data | Phase::Evaluation | Phase::Saving => {
            " If that phase is normally so long, raise Hang Determination Duration."
        }
    };
    match &hang.odd {
        Some(odd) => {
            let node = odd.node.as_ref().map(|node| format!(" and at {node}")).unwrap_or_default();
            let ranks: Vec<String> = odd.ranks.iter().map(u32::to_string).collect();
            let ranks: Vec<&str> = ranks.iter().map(String::as_str).collect();
            let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
            format!("Look at the stack of {noun} {}{node} first: {}.{longer}", words::list(&ranks), odd.why)
        }
        None => format!(
            "Look at the stacks: no rank stands out. A call that one rank makes and another does not, or the network between them, \
             keeps all of them waiting.{longer}"
        ),
    }
}
