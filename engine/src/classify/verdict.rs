//! Weighs what is known of one failure: the cluster's facts, then the lines of all ranks in order of time,
//! then exit codes.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    MAX_EVIDENCE, MAX_LINE_CHARS, Signatures,
    exits::{self, Meaning},
    fingerprint::fingerprint,
    signatures::Signature,
};
use crate::{
    chain::EndReason,
    failure::{Confidence, Evidence, Exit, FailureType, Role, Root, Verdict},
    ids::{NodeName, ReplicaName},
    time::Time,
};

/// A line that is older than the first death by more than this explains it no more, seconds: whatever it
/// told, the program lived with it. Twice the longest usual time limit of a collective (30 minutes), the
/// slowest way from a root to a death.
const STALE_SECONDS: f64 = 3600.0;

/// How one process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankExit {
    /// Its replica.
    pub replica: ReplicaName,
    /// Its rank, where it is known.
    pub rank: Option<u32>,
    /// How.
    pub exit: Exit,
    /// When.
    pub at: Time,
    /// It was being stopped; how it ended then says nothing.
    pub asked: bool,
}

/// What the cluster says about the end of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterFact {
    /// Which replica.
    pub replica: ReplicaName,
    /// Why it is over.
    pub reason: EndReason,
}

/// All that is known of one failure of an attempt when its gathering window ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerdictInput {
    /// Where the replicas of the attempt ran; empty where that is not known.
    pub placement: BTreeMap<ReplicaName, NodeName>,
    /// Every process that ended.
    pub exits: Vec<RankExit>,
    /// The lines of all ranks, in any order.
    pub evidence: Vec<Evidence>,
    /// What the cluster says.
    pub facts: Vec<ClusterFact>,
}

/// What the failure was; none where there was none: all processes that were not being stopped finished with
/// 0, or the attempt was preempted, which is no failure (R14).
///
/// First match wins:
/// 1. a fact of the cluster: killed for memory, node gone, never started, evicted;
/// 2. the earliest root line; a line that is only a symptom yields to a decisive one that came later;
/// 3. an exit that says something: a death by SIGKILL or SIGSEGV, 127 and the like;
/// 4. the one rank that failed without a word, where the lines of the others show only that a peer was gone;
/// 5. a replica that disappeared: what the lines of the others show may be no more than that;
/// 6. the earliest cascade line that names a type;
/// 7. `UNKNOWN`.
pub fn verdict(input: &VerdictInput) -> Option<Verdict> {
    let case = Case::new(input);
    if let Some(verdict) = case.by_cluster_fact() {
        return Some(verdict);
    }
    let preempted = input.facts.iter().any(|fact| matches!(fact.reason, EndReason::Preempted(_)));
    let lost = input.facts.iter().any(|fact| matches!(fact.reason, EndReason::Lost(_)));
    let all_ended_well = case.failed.is_empty() && !input.exits.is_empty() && !lost;
    if preempted || all_ended_well {
        return None;
    }
    case.by_root_line()
        .or_else(|| case.by_exit(true))
        .or_else(|| case.by_silent_rank())
        .or_else(|| case.by_loss())
        .or_else(|| case.by_cascade_line())
        .or_else(|| case.by_exit(false))
        .or_else(|| case.by_any_line())
}

/// The input, put in order.
struct Case<'a> {
    input: &'a VerdictInput,
    /// Processes that failed by themselves, in order of time.
    failed: Vec<&'a RankExit>,
    /// Lines that count with their signatures, in order of time.
    lines: Vec<(&'a Evidence, &'static Signature)>,
}

/// What a verdict rests on, before it is put into words.
struct Ground<'a> {
    failure_type: FailureType,
    confidence: Confidence,
    rule: String,
    replica: &'a ReplicaName,
    rank: Option<u32>,
    line: Option<&'a Evidence>,
    /// What happened, without where.
    fault: String,
    hint: Option<String>,
    suspects: Vec<NodeName>,
    link_down: bool,
}

impl<'a> Case<'a> {
    fn new(input: &'a VerdictInput) -> Self {
        let mut failed: Vec<&RankExit> =
            input.exits.iter().filter(|exit| !exit.asked && !exit.exit.is_success()).collect();
        failed.sort_by_key(|exit| (exit.at, exit.rank));
        let died_at = failed.first().map(|exit| exit.at);
        let is_fresh = |line: &Evidence| died_at.is_none_or(|at| at.seconds_since(line.at) <= STALE_SECONDS);
        let mut lines: Vec<(&Evidence, &Signature)> = input
            .evidence
            .iter()
            .filter(|line| line.role != Role::Advice && is_fresh(line))
            .filter_map(|line| Some((line, Signatures::builtin().get(&line.signature)?)))
            .collect();
        lines.sort_by_key(|(line, _)| (line.at, line.line_number));
        Self { input, failed, lines }
    }

    fn by_cluster_fact(&self) -> Option<Verdict> {
        use FailureType::{EnvError, HwNode, OomHost, Unknown};
        let weigh = |reason: &EndReason| match reason {
            EndReason::OomKilled => {
                Some((0, OomHost, "cluster-oom-killed", "killed for its memory".to_owned()))
            }
            EndReason::NodeLost(text) => Some((1, HwNode, "cluster-node-lost", with("node lost", text))),
            EndReason::StartError(text) => {
                Some((2, EnvError, "cluster-start-error", with("did not start", text)))
            }
            EndReason::Evicted(text) => {
                let words = text.to_ascii_lowercase();
                let failure_type = if words.contains("memory") {
                    OomHost
                } else if words.contains("storage") || words.contains("disk") {
                    EnvError
                } else {
                    Unknown
                };
                Some((3, failure_type, "cluster-evicted", with("evicted", text)))
            }
            EndReason::Exited | EndReason::Preempted(_) | EndReason::Lost(_) => None,
        };
        let weighed =
            self.input.facts.iter().filter_map(|fact| weigh(&fact.reason).map(|found| (fact, found)));
        let (fact, (_, failure_type, rule, fault)) = weighed.min_by_key(|(_, (weight, ..))| *weight)?;
        let lost_nodes = self.input.facts.iter().filter(|fact| matches!(fact.reason, EndReason::NodeLost(_)));
        let suspects = if failure_type == HwNode {
            self.nodes(lost_nodes.map(|fact| &fact.replica))
        } else {
            Vec::new()
        };
        Some(self.found(Ground {
            failure_type,
            confidence: Confidence::High,
            rule: rule.to_owned(),
            replica: &fact.replica,
            rank: None,
            line: None,
            fault,
            hint: cluster_hint(&fact.reason).map(str::to_owned),
            suspects,
            link_down: false,
        }))
    }

    fn by_root_line(&self) -> Option<Verdict> {
        let mut roots = self.lines.iter().filter(|(line, _)| line.role == Role::Root);
        let earliest = roots.next()?;
        let (line, signature) = if earliest.1.symptom {
            roots.find(|(_, signature)| signature.decisive).unwrap_or(earliest)
        } else {
            earliest
        };
        let confidence = if signature.symptom { Confidence::Medium } else { Confidence::High };
        Some(self.found(self.ground_of_line(line, signature, confidence, self.suspects_of(line, signature))))
    }

    fn by_cascade_line(&self) -> Option<Verdict> {
        let (line, signature) =
            self.lines.iter().find(|(_, signature)| signature.failure_type != FailureType::Unknown)?;
        Some(self.found(self.ground_of_line(line, signature, Confidence::Medium, Vec::new())))
    }

    /// By any line at all: something failed, and that is all that is known.
    fn by_any_line(&self) -> Option<Verdict> {
        let (line, signature) = self.lines.first()?;
        Some(self.found(self.ground_of_line(line, signature, Confidence::Low, Vec::new())))
    }

    fn by_exit(&self, telling: bool) -> Option<Verdict> {
        let says = |exit: &&&RankExit| exits::meaning(exit.exit).telling || !telling;
        self.failed.iter().find(says).map(|exit| self.of_exit(exit))
    }

    /// Where several ranks are silent, as when only the first one logs, none of them stands out.
    fn by_silent_rank(&self) -> Option<Verdict> {
        let speaks = |exit: &RankExit| {
            let own = |line: &Evidence| line.rank.is_none() || exit.rank.is_none() || line.rank == exit.rank;
            self.lines.iter().any(|(line, _)| line.replica == exit.replica && own(line))
        };
        let mut silent = self.failed.iter().filter(|exit| !speaks(exit));
        let exit = silent.next().filter(|_| silent.next().is_none() && !self.lines.is_empty())?;
        Some(self.of_exit(exit))
    }

    fn of_exit(&self, exit: &'a RankExit) -> Verdict {
        let Meaning { failure_type, hint, .. } = exits::meaning(exit.exit);
        let of_type =
            || self.failed.iter().filter(|other| exits::meaning(other.exit).failure_type == failure_type);
        let suspects = match failure_type {
            FailureType::HwNode => self.uncorrelated(self.nodes(of_type().map(|exit| &exit.replica))),
            _ => Vec::new(),
        };
        self.found(Ground {
            failure_type,
            confidence: Confidence::Low,
            rule: exits::rule(exit.exit),
            replica: &exit.replica,
            rank: exit.rank,
            line: None,
            fault: exits::words(exit.exit),
            hint: hint.map(str::to_owned),
            suspects,
            link_down: false,
        })
    }

    fn by_loss(&self) -> Option<Verdict> {
        let lost = |fact: &'a ClusterFact| match &fact.reason {
            EndReason::Lost(text) => Some((&fact.replica, with("disappeared", text))),
            _ => None,
        };
        let (replica, fault) = self.input.facts.iter().find_map(lost)?;
        Some(self.found(Ground {
            failure_type: FailureType::Unknown,
            confidence: Confidence::Low,
            rule: "cluster-lost".to_owned(),
            replica,
            rank: None,
            line: None,
            fault,
            hint: Some("Something outside Holdfast ended the replica: see the cluster's events.".to_owned()),
            suspects: Vec::new(),
            link_down: false,
        }))
    }

    fn ground_of_line(
        &self,
        line: &'a Evidence,
        signature: &Signature,
        confidence: Confidence,
        suspects: Vec<NodeName>,
    ) -> Ground<'a> {
        Ground {
            failure_type: signature.failure_type,
            confidence,
            rule: signature.id.clone(),
            replica: &line.replica,
            rank: line.rank.or_else(|| self.only_rank_of(&line.replica)),
            line: Some(line),
            fault: signature.fault_of(&line.line).chars().take(MAX_LINE_CHARS).collect(),
            hint: signature.hint.clone(),
            suspects,
            link_down: signature.link_down,
        }
    }

    /// The nodes that a root line blames: all that show such a fault of the node, or the one that saw the
    /// network fail first.
    fn suspects_of(&self, root: &Evidence, signature: &Signature) -> Vec<NodeName> {
        let blames =
            |signature: &Signature| signature.failure_type == root.failure_type && !signature.spares_node;
        if !blames(signature) {
            return Vec::new();
        }
        let own_roots =
            self.lines.iter().filter(|(line, signature)| line.role == Role::Root && blames(signature));
        let nodes = self.nodes(own_roots.map(|(line, _)| &line.replica));
        match root.failure_type {
            FailureType::HwNode => self.uncorrelated(nodes),
            FailureType::NetFabric if self.uncorrelated(nodes).is_empty() => Vec::new(),
            FailureType::NetFabric => self.nodes(std::iter::once(&root.replica)),
            _ => Vec::new(),
        }
    }

    /// What many nodes show at once is the job's fault, not theirs (R33): more than two, and more than
    /// half.
    fn uncorrelated(&self, nodes: Vec<NodeName>) -> Vec<NodeName> {
        let all: BTreeSet<&NodeName> = self.input.placement.values().collect();
        if nodes.len() > 2 && nodes.len() * 2 > all.len() { Vec::new() } else { nodes }
    }

    fn nodes<'r>(&self, replicas: impl Iterator<Item = &'r ReplicaName>) -> Vec<NodeName> {
        let nodes: BTreeSet<&NodeName> =
            replicas.filter_map(|replica| self.input.placement.get(replica)).collect();
        nodes.into_iter().cloned().collect()
    }

    /// The rank that failed in a replica, if it is one.
    fn only_rank_of(&self, replica: &ReplicaName) -> Option<u32> {
        let mut ranks = self.failed.iter().filter(|exit| exit.replica == *replica).map(|exit| exit.rank);
        let first = ranks.next()?;
        if ranks.next().is_none() { first } else { None }
    }

    fn found(&self, ground: Ground<'_>) -> Verdict {
        let Ground { failure_type, confidence, rule, replica, rank, line, fault, hint, suspects, link_down } =
            ground;
        let node = self.input.placement.get(replica).cloned();
        let exit =
            self.failed.iter().find(|exit| exit.replica == *replica && (rank.is_none() || exit.rank == rank));
        let place = self.place(failure_type, rank, replica, node.as_ref());
        Verdict {
            failure_type,
            confidence,
            fingerprint: fingerprint(failure_type, &rule, line.map_or("", |line| &line.line)),
            rule,
            root: Some(Root {
                replica: replica.clone(),
                rank,
                node,
                line: line.map(|line| line.line.clone()),
                exit_code: exit.map(|exit| exit.exit.shell_code()),
                signal: exit.and_then(|exit| exit.exit.signal()),
            }),
            evidence: self.shown(line),
            cascade_ranks: self.cascade_ranks(replica, rank),
            suspects,
            fault: format!("{fault}{place}"),
            hint,
            link_down,
        }
    }

    /// Where it happened: the node counts where the node may be at fault.
    fn place(
        &self,
        failure_type: FailureType,
        rank: Option<u32>,
        replica: &ReplicaName,
        node: Option<&NodeName>,
    ) -> String {
        let of_node = matches!(failure_type, FailureType::HwNode | FailureType::NetFabric);
        match (node.filter(|_| of_node), rank) {
            (Some(node), Some(rank)) => format!(" on {node}, rank {rank}"),
            (Some(node), None) => format!(" on {node}"),
            (None, Some(rank)) => format!(" on rank {rank}"),
            (None, None) if self.input.placement.is_empty() => String::new(),
            (None, None) => format!(" on {replica}"),
        }
    }

    /// Root lines first, then the others, each in order of time; what decided is always among them.
    fn shown(&self, decided: Option<&Evidence>) -> Vec<Evidence> {
        let roots = self.lines.iter().filter(|(line, _)| line.role == Role::Root);
        let others = self.lines.iter().filter(|(line, _)| line.role != Role::Root);
        let mut shown: Vec<Evidence> =
            roots.chain(others).map(|(line, _)| (*line).clone()).take(MAX_EVIDENCE).collect();
        if let Some(line) = decided.filter(|line| !shown.contains(line)) {
            shown.pop();
            shown.insert(0, line.clone());
        }
        shown
    }

    /// Ranks that failed and show no root of their own.
    fn cascade_ranks(&self, replica: &ReplicaName, rank: Option<u32>) -> u32 {
        let followed = self.failed.iter().filter(|exit| {
            let is_root = exit.replica == *replica && (rank.is_none() || exit.rank == rank);
            let has_root = self.lines.iter().any(|(line, _)| {
                line.role == Role::Root
                    && line.replica == exit.replica
                    && (line.rank.is_none() || line.rank == exit.rank)
            });
            !is_root && !has_root
        });
        u32::try_from(followed.count()).unwrap_or(u32::MAX)
    }
}

fn with(fault: &str, text: &str) -> String {
    let text: String = text.trim().chars().take(MAX_LINE_CHARS).collect();
    if text.is_empty() { fault.to_owned() } else { format!("{fault} ({text})") }
}

fn cluster_hint(reason: &EndReason) -> Option<&'static str> {
    match reason {
        EndReason::OomKilled => {
            Some("Raise the memory limit, or use fewer data loader workers and smaller caches.")
        }
        EndReason::StartError(_) => Some("Check the image, its pull secret, the mounts and the command."),
        EndReason::Evicted(_) => Some("The node was short of something: request what the job uses."),
        EndReason::NodeLost(_) => Some("Look at the node before jobs use it again."),
        EndReason::Exited | EndReason::Preempted(_) | EndReason::Lost(_) => None,
    }
}

#[cfg(test)]
mod tests;
