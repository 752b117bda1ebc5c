//! Bisect Diagnose: which of these nodes makes a test fail? [`advance`] takes a whole run, one input and the time, and gives the new run,
//! what to do and what to tell, like the chain's.
//!
//! A round tests groups that share no node, so that all of them run at once where the nodes are free. A group that fails is halved in the
//! next round; every group at once, so that several bad nodes take no more rounds than one: ⌈log₂ n⌉. Then each suspect is tested twice
//! again, with two known-good partners, while the healthy rest is tested together.
//!
//! Choices:
//! - A node is suspected where it failed by itself or with a partner that had passed; never because it shared a group with others.
//! - Halves that pass while their whole fails have a fault between them. Quarters of the two are combined, two groups at a time, until a
//!   pair is left. A pair is named as one, and neither of its nodes is suspected.
//! - Where all nodes fail, or more fail than are left to vouch, the test or what they share is blamed and nobody is marked.
//! - A group that was not tested says nothing: its nodes are tested once more, but for those that were lost, and then left open.
//! - What a run may cost is fixed before it begins, and a round that would pass that is not begun. So nothing loops, whatever a test says.

mod conclude;
mod round;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{ids::NodeName, time::Time};

/// A set of nodes.
pub type Nodes = BTreeSet<NodeName>;

/// Limits of a run. Where no source is named the number is Holdfast's own.
pub mod limits {
    /// Nodes of a run; the replicas of a job, spec.md.
    pub const NODES: usize = 4_096;
    /// Time limit of one test, seconds.
    pub const PROBE_SECONDS: std::ops::RangeInclusive<u32> = 5..=3_600;
    /// The time limit where none is asked for, seconds.
    pub const PROBE_SECONDS_DEFAULT: u32 = 120;
    /// What a group may hold its nodes beyond the test's own time limit, seconds: starting the processes, and ending one that ignores its
    /// limit (10 s between TERM and KILL).
    pub const AROUND_SECONDS: u32 = 40;
    /// A group that does not run after this long is given up, seconds: somebody else uses its nodes.
    pub const WAIT_SECONDS: u64 = 600;
    /// Tests that each suspect has to fail again.
    pub const CHECKS: u32 = 2;
}

/// What a test on one node alone is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Alone {
    /// As much as one with others.
    Tells,
    /// It finds some faults, but not those between nodes.
    TellsSome,
    /// It cannot run so.
    Never,
}

/// What is to be found out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// The nodes, at least one.
    pub nodes: Nodes,
    /// What the test is worth on one node.
    pub alone: Alone,
    /// Time limit of one test, seconds.
    pub probe_seconds: u32,
    /// Accelerators of each node that a test holds; at least one counts.
    pub accelerators_per_node: u32,
}

/// What a run takes at most. Known before it begins and never exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = DiagnosisCost))]
pub struct Cost {
    /// Rounds of halves.
    pub rounds: u32,
    /// Rounds that test the suspects again.
    pub checks: u32,
    /// Further rounds, only where nodes fail together that pass apart, or where a group could not be tested.
    pub extra_rounds: u32,
    /// Time limit of one test, seconds.
    pub probe_seconds: u32,
    /// Seconds that tests hold nodes, one after the other; waiting for nodes is not in it.
    pub seconds: u64,
    /// Accelerator-seconds of all rounds.
    pub accelerator_seconds: u64,
}

impl Setup {
    /// What the run takes at most.
    pub fn cost(&self) -> Cost {
        let nodes = self.nodes.len().max(1);
        let depth = nodes.next_power_of_two().trailing_zeros();
        let rounds = depth.max(1);
        // Down to a pair takes two rounds for each halving; one finds that there is one, two find a partner where there is none yet, one
        // repeats what was lost.
        let extra_rounds = if nodes == 1 { 1 } else { 2 * depth + 4 };
        let all = rounds + limits::CHECKS + extra_rounds;
        let seconds = u64::from(all) * u64::from(self.held_seconds());
        Cost {
            rounds,
            checks: limits::CHECKS,
            extra_rounds,
            probe_seconds: self.probe_seconds,
            seconds,
            accelerator_seconds: seconds
                .saturating_mul(u64::from(self.accelerators_per_node.max(1)))
                .saturating_mul(nodes as u64),
        }
    }

    /// How long a group may hold its nodes, seconds.
    pub fn held_seconds(&self) -> u32 {
        self.probe_seconds.saturating_add(limits::AROUND_SECONDS)
    }
}

/// What became of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = DiagnosisOutcome))]
#[serde(rename_all = "snake_case", tag = "is")]
pub enum Outcome {
    /// The test passed.
    Pass {
        /// The slowest transfer between two of its nodes, MB/s, where the test measured one.
        megabytes_per_second: Option<f64>,
    },
    /// It failed.
    Fail {
        /// What it said.
        text: String,
    },
    /// It did not end in its time.
    Hang,
    /// It was not tested: nothing follows.
    Lost {
        /// Nodes that are gone; none where it is not known which.
        nodes: Nodes,
        /// Why.
        text: String,
    },
}

impl Outcome {
    fn failed(&self) -> bool {
        matches!(self, Self::Fail { .. } | Self::Hang)
    }
}

/// What a round is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = DiagnosisRoundKind))]
#[serde(rename_all = "snake_case")]
pub enum RoundKind {
    /// Halves of what failed.
    Halves,
    /// What fails only together, or could not be tested before.
    Extra,
    /// The suspects again, and the rest together.
    Check,
}

/// Why a group is tested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Why {
    /// Part of a set that failed, or of all.
    Part { family: Option<u32>, tried: bool },
    /// A quarter of either of two halves that pass.
    Cross { search: u32 },
    /// In search of a partner: that it fails says nothing.
    Match,
    /// A suspect, again.
    Suspect,
    /// A pair, again.
    Pair,
    /// All that are well, together.
    Rest,
}

/// Nodes that are tested together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Its number in the run, from 1.
    pub number: u32,
    /// The nodes under test.
    pub nodes: Nodes,
    /// A node that passed before and makes up the numbers.
    pub partner: Option<NodeName>,
    why: Why,
    /// When it was ordered.
    pub ordered_at: Time,
    /// When it had its nodes.
    pub started_at: Option<Time>,
    /// When it was over.
    pub ended_at: Option<Time>,
    /// What became of it.
    pub outcome: Option<Outcome>,
}

impl Group {
    /// All its nodes, the partner included.
    pub fn all(&self) -> Nodes {
        self.nodes.iter().chain(&self.partner).cloned().collect()
    }

    /// Whether it checks a suspicion.
    pub fn is_check(&self) -> bool {
        matches!(self.why, Why::Suspect | Why::Pair)
    }
}

/// Groups that are tested at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// What it is for.
    pub kind: RoundKind,
    /// Its groups.
    pub groups: Vec<Group>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = DiagnosisVerdict))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nodes failed again and again, with partners that pass.
    Suspects,
    /// Nodes fail together that pass apart.
    Together,
    /// All passed.
    AllPass,
    /// All failed: the test or the job is to blame.
    AllFail,
    /// More failed than are left to vouch: what they share is to blame.
    Widespread,
    /// It could not be found out.
    Inconclusive,
    /// A person stopped it.
    Stopped,
}

/// What a run found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = DiagnosisFinding))]
pub struct Finding {
    /// How it ended.
    pub verdict: Verdict,
    /// Nodes that failed every check; only these may be kept out.
    pub confirmed: Vec<NodeName>,
    /// Nodes that failed and were not confirmed; nothing follows for them.
    pub unconfirmed: Vec<NodeName>,
    /// Pairs that fail only together.
    pub pairs: Vec<[NodeName; 2]>,
    /// Larger sets of which the same is true, as far as they were narrowed down.
    pub together: Vec<Vec<NodeName>>,
    /// Nodes that could not be tested.
    pub untested: Vec<NodeName>,
    /// In words.
    pub text: String,
}

/// Something new for a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// Time has passed; see [`Run::wake_at`].
    Tick,
    /// A group has its nodes.
    Started {
        /// Which.
        group: u32,
    },
    /// A group is over. Told again it changes nothing.
    Ended {
        /// Which.
        group: u32,
        /// How.
        outcome: Outcome,
    },
    /// A person stops the run.
    Stop {
        /// Who.
        by: String,
    },
}

/// Something to do. Each is idempotent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Test these nodes together.
    Start {
        /// The group.
        group: u32,
        /// On exactly these nodes.
        nodes: Nodes,
    },
    /// End a group and remove what is left of it.
    End {
        /// Which.
        group: u32,
    },
}

/// Something to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// When.
    pub at: Time,
    /// What, as a sentence.
    pub text: String,
}

/// What follows from one input.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The run afterwards.
    pub run: Run,
    /// What to do, in order.
    pub effects: Vec<Effect>,
    /// What to tell, in order.
    pub records: Vec<Record>,
}

/// A set that failed and its halves, until both are known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Family {
    id: u32,
    halves: [Half; 2],
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Half {
    nodes: Nodes,
    known: Option<Known>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Known {
    Passes,
    /// By itself, which does not tell all.
    PassesAlone,
    Fails,
    Untested,
}

/// Nodes that wait to be tested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Case {
    nodes: Nodes,
    family: Option<u32>,
    /// It was tried and lost before.
    tried: bool,
    /// Alone it passed already, or cannot be tested.
    needs_partner: bool,
}

/// How often a pair was tested again, and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Checked {
    times: u32,
    failed: u32,
}

/// Two sets that pass and together fail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Search {
    id: u32,
    halves: [Nodes; 2],
    /// First the like quarters of both are tested, then the unlike ones.
    crossed: bool,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    setup: Setup,
    cost: Cost,
    started_at: Time,
    ended_at: Option<Time>,
    rounds: Vec<Round>,
    queue: Vec<Case>,
    families: Vec<Family>,
    searches: Vec<Search>,
    next_id: u32,
    good: Nodes,
    /// Passed by themselves, which does not tell all.
    alone: Nodes,
    /// Suspected nodes, and how many checks each has failed.
    suspects: BTreeMap<NodeName, u32>,
    pairs: BTreeMap<NodeName, BTreeMap<NodeName, Checked>>,
    together: Vec<Nodes>,
    untested: Nodes,
    matches: u32,
    checks: u32,
    /// The well ones were tested together.
    rest_tested: bool,
    finding: Option<Finding>,
}

/// The run of a setup: its first round is ordered at once.
pub fn start(setup: Setup, now: Time) -> Step {
    let cost = setup.cost();
    let mut run = Run {
        cost,
        started_at: now,
        ended_at: None,
        rounds: Vec::new(),
        queue: Vec::new(),
        families: Vec::new(),
        searches: Vec::new(),
        next_id: 0,
        good: Nodes::new(),
        alone: Nodes::new(),
        suspects: BTreeMap::new(),
        pairs: BTreeMap::new(),
        together: Vec::new(),
        untested: Nodes::new(),
        matches: 0,
        checks: 0,
        rest_tested: false,
        finding: None,
        setup,
    };
    let needs_partner = run.setup.alone == Alone::Never;
    let all = run.setup.nodes.clone();
    // Up to three nodes have a half that is one node.
    let parts = if needs_partner && all.len() < 4 { vec![all] } else { halves(&all).to_vec() };
    for nodes in parts.into_iter().filter(|part| !part.is_empty()) {
        run.queue.push(Case { nodes, family: None, tried: false, needs_partner });
    }
    let mut step = Step { run, effects: Vec::new(), records: Vec::new() };
    step.go_on(now);
    step
}

/// What follows from one input. A run that has ended stays as it is.
pub fn advance(run: &Run, input: &Input, now: Time) -> Step {
    let mut step = Step { run: run.clone(), effects: Vec::new(), records: Vec::new() };
    if run.finding.is_some() {
        return step;
    }
    match input {
        Input::Tick => step.tick(now),
        Input::Started { group } => {
            if let Some(group) = step.run.open(*group) {
                group.started_at.get_or_insert(now);
            }
        }
        Input::Ended { group, outcome } => step.end(*group, outcome.clone(), now),
        Input::Stop { by } => {
            let text = format!("Stopped by {by}; no node is marked.");
            step.finish(Verdict::Stopped, text, now);
            return step;
        }
    }
    if step.run.rounds.last().is_some_and(|round| round.groups.iter().all(|group| group.outcome.is_some())) {
        step.settle();
        step.go_on(now);
    }
    step
}

impl Run {
    /// What it is about.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// What it takes at most.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// When it began.
    pub fn started_at(&self) -> Time {
        self.started_at
    }

    /// When it ended.
    pub fn ended_at(&self) -> Option<Time> {
        self.ended_at
    }

    /// Its rounds so far.
    pub fn rounds(&self) -> &[Round] {
        &self.rounds
    }

    /// What it found, once it has ended.
    pub fn finding(&self) -> Option<&Finding> {
        self.finding.as_ref()
    }

    /// Groups that are not over.
    pub fn live(&self) -> impl Iterator<Item = &Group> {
        let last = self.rounds.last().into_iter().flat_map(|round| &round.groups);
        last.filter(|group| group.outcome.is_none())
    }

    /// When a limit ends next.
    pub fn wake_at(&self) -> Option<Time> {
        self.live().map(|group| self.limit(group)).min()
    }

    /// Accelerator-seconds used until now.
    pub fn accelerator_seconds(&self, now: Time) -> f64 {
        let each = f64::from(self.setup.accelerators_per_node.max(1));
        let groups = self.rounds.iter().flat_map(|round| &round.groups);
        groups
            .filter_map(|group| {
                let held = group.ended_at.unwrap_or(now).seconds_since(group.started_at?);
                Some(held * each * group.all().len() as f64)
            })
            .sum()
    }

    fn limit(&self, group: &Group) -> Time {
        match group.started_at {
            None => group.ordered_at.plus_seconds(limits::WAIT_SECONDS),
            Some(at) => at.plus_seconds(u64::from(self.setup.held_seconds())),
        }
    }

    fn open(&mut self, number: u32) -> Option<&mut Group> {
        let last = self.rounds.last_mut()?;
        last.groups.iter_mut().find(|group| group.number == number && group.outcome.is_none())
    }
}

impl Step {
    fn tell(&mut self, at: Time, text: String) {
        self.records.push(Record { at, text });
    }

    fn end(&mut self, number: u32, outcome: Outcome, now: Time) {
        let Some(group) = self.run.open(number) else { return };
        group.ended_at = Some(now);
        group.outcome = Some(outcome);
        self.effects.push(Effect::End { group: number });
    }

    fn tick(&mut self, now: Time) {
        let run = &self.run;
        let over: Vec<_> = run.live().filter(|group| run.limit(group) <= now).cloned().collect();
        for group in over {
            let outcome = match group.started_at {
                Some(_) => Outcome::Hang,
                None => Outcome::Lost {
                    nodes: Nodes::new(),
                    text: format!(
                        "it did not begin within {} minutes: its nodes were not free, or did not start it",
                        limits::WAIT_SECONDS / 60
                    ),
                },
            };
            self.end(group.number, outcome, now);
        }
    }
}

/// Two halves of a set, the first the larger by at most one; the second is empty where it has one node.
fn halves(nodes: &Nodes) -> [Nodes; 2] {
    let middle = nodes.len().div_ceil(2);
    [nodes.iter().take(middle).cloned().collect(), nodes.iter().skip(middle).cloned().collect()]
}
