//! Where the ranks are, and which of them the others wait for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{MAX_GROUPS, MAX_NAMED, Others, Scene, Seen};
use crate::{
    ids::NodeName,
    sync::{RunState, StackKey},
    words,
};

/// Ranks that do the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RankGroup {
    /// The first 256 of them.
    pub ranks: Vec<u32>,
    /// How many they are.
    pub count: u32,
    /// Their nodes, at most 256.
    pub nodes: Vec<NodeName>,
    /// What they are in: `all_reduce`.
    pub place: String,
    /// The innermost frames of their stack; none where it could not be had.
    pub stack: Option<StackKey>,
    /// The others wait for these.
    pub odd: bool,
}

/// The rank, or the few, for which the others wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OddRank {
    /// Which, at most 256.
    pub ranks: Vec<u32>,
    /// Their node, where they have one in common.
    pub node: Option<NodeName>,
    /// How much speaks for it.
    pub strength: Strength,
    /// What does.
    pub why: String,
}

/// How much speaks for a rank being the one that the others wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Strength {
    /// It is elsewhere than most; that may be chance.
    Weak,
    /// It is elsewhere, and the others wait in a collective.
    Moderate,
    /// It cannot move, or it is the only one of several that did not come to the collective in which all others wait.
    Strong,
}

/// Parts of names of functions in which a rank waits for others. Names of collectives of torch.distributed, of its gloo and NCCL
/// backends and of their callers that hide them.
const WAITS: [&str; 18] = [
    "all_reduce",
    "allreduce",
    "all_gather",
    "allgather",
    "reduce_scatter",
    "broadcast",
    "barrier",
    "all_to_all",
    "alltoall",
    "scatter",
    "gather",
    "recv",
    "receive",
    "run_backward",
    "rendezvous",
    "init_process_group",
    "clip_grad_norm",
    "synchronize",
];

/// Names of functions that say only that something is waited for, never what.
const NAMELESS: [&str; 14] = [
    "wait",
    "acquire",
    "select",
    "poll",
    "sleep",
    "read",
    "_read",
    "recv_into",
    "readinto",
    "join",
    "get",
    "_try_get_data",
    "wrapper",
    "__call__",
];
/// Modules of Python that wait on behalf of others: for threads, child processes, queues and sockets.
const WAITERS: [&str; 6] =
    ["multiprocessing/", "threading.py", "selectors.py", "queue.py", "socket.py", "subprocess.py"];

/// The name of the function of a frame: `all_reduce` of `all_reduce (torch/distributed/distributed_c10d.py)`.
fn function(frame: &str) -> &str {
    frame.split(" (").next().unwrap_or(frame).trim()
}

/// Whether the frame is Python's own waiting; a data loader waits for its process by `recv_bytes`.
fn is_nameless(frame: &str) -> bool {
    let file = frame.split_once(" (").map_or("", |(_, file)| file);
    let name = function(frame).rsplit('.').next().unwrap_or_default();
    NAMELESS.contains(&name) || WAITERS.iter().any(|module| file.contains(module))
}

fn waits(frame: &str) -> bool {
    !is_nameless(frame) && WAITS.iter().any(|name| function(frame).to_ascii_lowercase().contains(name))
}

/// The function that says best what a stack is in.
fn place(key: Option<&StackKey>) -> String {
    let Some(key) = key else { return "an unknown place".to_owned() };
    let frames = || key.top.iter().map(String::as_str);
    let best = frames()
        .find(|frame| waits(frame))
        .or_else(|| frames().find(|frame| !is_nameless(frame)))
        .or_else(|| frames().next());
    best.map_or("an unknown place".to_owned(), |frame| function(frame).to_owned())
}

/// Whether the ranks with this stack wait for others.
fn is_waiting(key: Option<&StackKey>) -> bool {
    key.is_some_and(|key| key.top.iter().any(|frame| waits(frame)))
}

/// The groups, the largest first, and the odd one among the ranks.
pub(super) fn groups(
    scene: &Scene<'_>,
    live: &[Seen<'_>],
    finished: &[u32],
    others: Others,
) -> (Vec<RankGroup>, Option<OddRank>) {
    let mut by_key: BTreeMap<(bool, Option<&StackKey>), Vec<&Seen<'_>>> = BTreeMap::new();
    for seen in live {
        by_key.entry((seen.still.is(RunState::Stopped), seen.key)).or_default().push(seen);
    }
    let mut groups: Vec<Vec<&Seen<'_>>> = by_key.into_values().collect();
    groups.sort_by_key(|group| (std::cmp::Reverse(group.len()), group[0].number));
    let odd = find(scene, live, &groups, finished, others);
    // The odd ranks may be in the same functions as others.
    if let Some(odd) = &odd {
        let split = |group: Vec<_>| -> [Vec<&Seen<'_>>; 2] {
            let (odd, others) =
                group.into_iter().partition(|seen: &&Seen<'_>| odd.ranks.contains(&seen.number));
            [others, odd]
        };
        groups = groups.into_iter().flat_map(split).filter(|group| !group.is_empty()).collect();
        groups.sort_by_key(|group| (std::cmp::Reverse(group.len()), group[0].number));
    }
    let mut shown: Vec<RankGroup> = groups
        .iter()
        .map(|group| RankGroup {
            ranks: group.iter().take(MAX_NAMED).map(|seen| seen.number).collect(),
            count: group.len() as u32,
            nodes: nodes(group),
            place: if group[0].still.is(RunState::Stopped) {
                format!("{}, stopped", place(group[0].key))
            } else {
                place(group[0].key)
            },
            stack: group[0].key.cloned(),
            odd: odd.as_ref().is_some_and(|odd| odd.ranks.contains(&group[0].number)),
        })
        .collect();
    if shown.len() > MAX_GROUPS {
        let rest = shown.split_off(MAX_GROUPS - 1);
        let mut last = RankGroup {
            ranks: Vec::new(),
            count: rest.iter().map(|group| group.count).sum(),
            nodes: Vec::new(),
            place: format!("{} other places", rest.len()),
            stack: None,
            odd: rest.iter().any(|group| group.odd),
        };
        last.ranks = rest.into_iter().flat_map(|group| group.ranks).take(MAX_NAMED).collect();
        shown.push(last);
    }
    (shown, odd)
}

fn nodes(group: &[&Seen<'_>]) -> Vec<NodeName> {
    let mut nodes: Vec<NodeName> = group.iter().filter_map(|seen| seen.rank.node.cloned()).collect();
    nodes.sort();
    nodes.dedup();
    nodes.truncate(MAX_NAMED);
    nodes
}

fn odd(scene: &Scene<'_>, ranks: Vec<u32>, strength: Strength, why: String) -> OddRank {
    let mut nodes = ranks.iter().map(|rank| scene.ranks[*rank as usize].node);
    let first = nodes.next().flatten();
    let node = first.filter(|first| nodes.all(|node| node == Some(*first))).cloned();
    OddRank { ranks: ranks.into_iter().take(MAX_NAMED).collect(), node, strength, why }
}

/// What proves most is asked first.
fn find(
    scene: &Scene<'_>,
    live: &[Seen<'_>],
    groups: &[Vec<&Seen<'_>>],
    finished: &[u32],
    others: Others,
) -> Option<OddRank> {
    let number = |seen: &&Seen<'_>| seen.number;
    let all = scene.ranks.len();
    let few = |count: usize| count > 0 && count * 2 < all;
    if others.stopped {
        let stopped: Vec<u32> =
            live.iter().filter(|seen| seen.still.is(RunState::Stopped)).map(|seen| seen.number).collect();
        // All of them: the whole job was put to sleep, and none of them is the odd one.
        return (stopped.len() < all)
            .then(|| odd(scene, stopped, Strength::Strong, "stopped by a signal".to_owned()));
    }
    let stuck: Vec<u32> =
        live.iter().filter(|seen| seen.still.is(RunState::Uninterruptible)).map(|seen| seen.number).collect();
    if few(stuck.len()) {
        let why = "in the hands of a disk, a network file system or a driver".to_owned();
        return Some(odd(scene, stuck, Strength::Strong, why));
    }
    if let Some(behind) = behind(live).filter(|(ranks, _)| few(ranks.len())) {
        return Some(odd(scene, behind.0, Strength::Strong, behind.1));
    }
    if few(finished.len()) {
        let why = "finished while the others wait".to_owned();
        return Some(odd(scene, finished.to_vec(), Strength::Moderate, why));
    }
    if !finished.is_empty() && few(live.len()) {
        let left = live.iter().map(|seen| seen.number).collect();
        return Some(odd(scene, left, Strength::Moderate, "left behind by ranks that finished".to_owned()));
    }
    let (waiting, elsewhere): (Vec<_>, Vec<_>) = groups.iter().partition(|group| is_waiting(group[0].key));
    if let ([one], false) = (elsewhere.as_slice(), waiting.is_empty()) {
        // All others wait, in whichever collectives.
        let others = live.len() - one.len();
        let ranks: Vec<u32> = one.iter().map(number).collect();
        let alone = ranks.len() == 1 && others >= 2 && one[0].key.is_some();
        let strength = if alone { Strength::Strong } else { Strength::Moderate };
        if one.len() <= others {
            let verb = if others == 1 { "waits" } else { "wait" };
            let why = format!("not where {} {verb} for it", words::count(others as u32, "rank"));
            return Some(odd(scene, ranks, strength, why));
        }
    }
    if let [most, one] = groups
        && few(one.len())
        && one.len() < most.len()
    {
        let why = "elsewhere than the others".to_owned();
        return Some(odd(scene, one.iter().map(number).collect(), Strength::Weak, why));
    }
    None
}

/// Ranks that began fewer collectives than the others.
fn behind(live: &[Seen<'_>]) -> Option<(Vec<u32>, String)> {
    let begun = |seen: &Seen<'_>| seen.still.collective.as_ref().and_then(|of| of.last_enqueued);
    let most = live.iter().filter_map(begun).max()?;
    // Every rank has to say its number: one that says none may be anywhere.
    if live.iter().any(|seen| begun(seen).is_none()) {
        return None;
    }
    let behind: Vec<&Seen<'_>> = live.iter().filter(|seen| begun(seen) < Some(most)).collect();
    let last = begun(behind.first()?)?;
    let why = format!(
        "its last collective is {}, the others are in {}",
        words::grouped(last),
        words::grouped(most)
    );
    Some((behind.iter().map(|seen| seen.number).collect(), why))
}

/// `rank 1 on n2 in read_batch, 3 others in all_reduce`.
pub(super) fn words(groups: &[RankGroup], odd: Option<&OddRank>, finished: &[u32]) -> String {
    let who = |ranks: &[u32], count: u32| match ranks {
        [one] => format!("rank {one}"),
        ranks if count as usize == ranks.len() && count <= 4 => {
            let names: Vec<String> = ranks.iter().map(u32::to_string).collect();
            format!("ranks {}", words::list(&names.iter().map(String::as_str).collect::<Vec<_>>()))
        }
        _ => words::count(count, "rank"),
    };
    let on = |node: Option<&NodeName>| node.map(|node| format!(" on {node}")).unwrap_or_default();
    let mut parts = Vec::new();
    for group in groups.iter().filter(|group| group.odd) {
        let node = group.nodes.first().filter(|_| group.nodes.len() == 1);
        parts.push(format!("{}{} in {}", who(&group.ranks, group.count), on(node), group.place));
    }
    if let Some(odd) = odd.filter(|odd| odd.ranks.iter().all(|rank| finished.contains(rank))) {
        let count = finished.len() as u32;
        parts.push(format!("{}{} finished", who(&odd.ranks, count), on(odd.node.as_ref())));
    } else if !finished.is_empty() {
        parts.push(format!("{} finished", words::count(finished.len() as u32, "rank")));
    }
    let named = !parts.is_empty();
    // Ranks may come to the same place by different ways.
    let mut rest: Vec<(&str, Vec<u32>, u32)> = Vec::new();
    for group in groups.iter().filter(|group| !group.odd) {
        match rest.iter_mut().find(|(place, ..)| *place == group.place) {
            Some((_, ranks, count)) => {
                ranks.extend(&group.ranks);
                *count += group.count;
            }
            None => rest.push((&group.place, group.ranks.clone(), group.count)),
        }
    }
    for (index, (place, ranks, count)) in rest.iter().take(3).enumerate() {
        let who = match (named, *count) {
            (true, 1) => who(ranks, 1),
            (true, count) if rest.len() == 1 => format!("{count} others"),
            (false, count) if rest.len() == 1 && finished.is_empty() && count > 1 => {
                format!("all {count} ranks")
            }
            (_, count) => who(ranks, count),
        };
        parts.push(format!("{who} in {place}"));
        if index == 2 && rest.len() > 3 {
            parts.push(format!("and {} more places", rest.len() - 3));
        }
    }
    parts.join(", ")
}
