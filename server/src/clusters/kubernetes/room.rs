//! Whether a job's quota and the cluster's nodes have room for it now. Pure.
//!
//! Nothing here refuses a job: quotas are raised, nodes come and go, and other jobs end.

use std::collections::BTreeMap;

use engine::{
    ids::NodeName,
    job::{Finding, Fit},
    words,
};
use k8s_openapi::api::core::v1::{ResourceQuota, Taint, Toleration};
use kube::ResourceExt;

use super::{
    capacity::Held,
    facts::Nodes,
    names, queue,
    requests::{self, Amounts},
    seen::NodeSeen,
    wants::{Part, Wants},
};

const PODS: &str = "pods";
/// Labels and taints that are told.
const REASONS: usize = 4;

/// What a namespace's quota leaves for a job.
pub(super) fn quota(quota: &ResourceQuota, wants: &Wants) -> Finding {
    let name = quota.name_any();
    let spec = quota.spec.as_ref();
    let is_partial = spec.is_some_and(|spec| {
        spec.scope_selector.is_some() || spec.scopes.as_ref().is_some_and(|scopes| !scopes.is_empty())
    });
    if is_partial {
        let text = format!("Quota {name} counts some pods only, by its scopes; it is not compared.");
        return Finding::whole(Fit::NotChecked, text);
    }
    let status = quota.status.clone().unwrap_or_default();
    let [hard, used] = [status.hard, status.used].map(|amounts| requests::amounts(amounts.as_ref()));
    let asked = asked(wants);
    let mut short = Vec::new();
    for (key, &allowed) in &hard {
        if let Some(unsaid) = unsaid(key, wants) {
            short.push(format!("it asks every container for {unsaid}, and some say none; pods are refused unless a LimitRange says it for them"));
        }
        let Some(wanted) = asked.get(plain(key)) else { continue };
        let left = (allowed - used.get(key).unwrap_or(&0.0)).max(0.0);
        let of = |number| shown(plain(key), number);
        if *wanted > allowed {
            short.push(format!(
                "the job asks for {} of {key}, and it allows {} in all",
                of(*wanted),
                of(allowed)
            ));
        } else if *wanted > left {
            short.push(format!(
                "the job asks for {} of {key}, and {} of {} are left",
                of(*wanted),
                of(left),
                of(allowed)
            ));
        }
    }
    if short.is_empty() {
        let text = format!("Quota {name} of namespace {} has room for the job.", wants.namespace);
        return Finding::whole(Fit::Ok, text);
    }
    let text = format!("Quota {name} of namespace {}: {}.", wants.namespace, short.join("; "));
    Finding::whole(Fit::Later, text)
}

/// A quota's key without the word for what is usual.
fn plain(key: &str) -> &str {
    key.strip_prefix("requests.").or_else(|| key.strip_prefix("count/")).unwrap_or(key)
}

/// The kind of amount that a quota asks every container for and some leave unsaid.
fn unsaid<'a>(key: &str, wants: &'a Wants) -> Option<&'a str> {
    let key = match key {
        "cpu" => "requests.cpu",
        "memory" => "requests.memory",
        key => key,
    };
    wants.parts.iter().find_map(|part| part.asked.unsaid.get(key).copied())
}

/// All that a job asks a namespace for, by the keys of quotas as [`plain`] makes them.
fn asked(wants: &Wants) -> Amounts {
    let mut sum = Amounts::new();
    for part in &wants.parts {
        let times = f64::from(part.replicas);
        *sum.entry(PODS.to_owned()).or_default() += times;
        for (name, amount) in &part.asked.requests {
            *sum.entry(name.clone()).or_default() += times * amount;
        }
        for (name, amount) in &part.asked.limits {
            *sum.entry(format!("limits.{name}")).or_default() += times * amount;
        }
    }
    let resource = names::resource(wants.kind);
    sum.insert(format!("{}.{}", resource.plural, resource.group), 1.0);
    sum.insert("secrets".to_owned(), 1.0);
    sum
}

/// Whether the nodes have room, by their size and what Holdfast's own pods on them ask for; what others use is not known here.
pub(super) fn nodes(wants: &Wants, nodes: &Nodes, held: &BTreeMap<NodeName, Held>) -> Vec<Finding> {
    if nodes.is_empty() {
        return vec![Finding::whole(Fit::Later, "The cluster has no nodes now.")];
    }
    // Replicas of which the same is to be said.
    let mut hindered: Vec<(Hindrance, Vec<&str>)> = Vec::new();
    let parts = wants.parts.iter().filter(|part| part.replicas > 0);
    for part in parts.clone() {
        let Some(why) = hindrance(part, nodes) else { continue };
        match hindered.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(&part.name),
            None => hindered.push((why, vec![&part.name])),
        }
    }
    if !hindered.is_empty() {
        let all = parts.count();
        let who = |names: &[&str]| match names {
            [name] => format!("a {name}"),
            names if names.len() == all => "a replica".to_owned(),
            names => format!("a pod of {}", words::list(names)),
        };
        let told = hindered.iter().map(|(why, names)| Finding::whole(Fit::Later, why.sentence(&who(names))));
        return told.collect();
    }
    let (fit, total) = placed(wants, nodes, held);
    let finding = if fit == total {
        let all =
            if total == 1 { "The replica fits".to_owned() } else { format!("All {total} replicas fit") };
        Finding::whole(Fit::Ok, format!("{all} now, as far as Holdfast's own pods fill the nodes."))
    } else {
        let wait = total - fit;
        let text = format!("{fit} of {} now, {wait} will wait.", fits(total));
        Finding::whole(Fit::Later, text)
    };
    vec![finding]
}

/// Why no node could hold a replica, whatever else is on them.
#[derive(PartialEq)]
enum Hindrance {
    /// All keep it off, each for what is said.
    KeptOff(String),
    /// None that takes it is large enough.
    TooLarge {
        asked: String,
        /// What those nodes have less of.
        short: String,
        /// What keeps it off nodes that are large enough.
        kept_off: String,
    },
}

impl Hindrance {
    fn sentence(&self, who: &str) -> String {
        match self {
            Self::KeptOff(why) => format!("No node takes {who} as the cluster is now: {why}."),
            Self::TooLarge { asked, short, kept_off } => {
                let besides =
                    if kept_off.is_empty() { String::new() } else { format!("; of larger ones, {kept_off}") };
                format!("Does not fit: {who} asks for {asked}, and {short}{besides}.")
            }
        }
    }
}

fn hindrance(part: &Part, nodes: &Nodes) -> Option<Hindrance> {
    let requests = &part.asked.requests;
    let (open, closed): (Vec<_>, Vec<_>) = nodes.iter().partition(|(_, node)| takes(node, part));
    if open.iter().any(|(_, node)| queue::holds(&node.allocatable, requests)) {
        return None;
    }
    if open.is_empty() {
        return Some(Hindrance::KeptOff(kept_off(&closed, part)));
    }
    let large: Vec<_> =
        closed.into_iter().filter(|(_, node)| queue::holds(&node.allocatable, requests)).collect();
    Some(Hindrance::TooLarge {
        asked: amounts(part),
        short: short(&open, requests),
        kept_off: kept_off(&large, part),
    })
}

/// What nodes have too little of.
fn short(nodes: &[(&NodeName, &NodeSeen)], requests: &Amounts) -> String {
    let most = |name: &String| {
        let there = nodes.iter().filter_map(|(_, node)| node.allocatable.get(name).copied());
        there.fold(0.0, f64::max)
    };
    let short = requests.iter().map(|(name, wanted)| (name, *wanted, most(name)));
    let short: Vec<_> = short
        .filter(|(_, wanted, most)| wanted > most)
        .map(|(name, _, most)| {
            if most > 0.0 {
                format!("the largest node for it has {} of {name}", shown(name, most))
            } else {
                format!("no node for it has {name}")
            }
        })
        .collect();
    if short.is_empty() {
        return "no node for it has all of that".to_owned();
    }
    short.join(" and ")
}

/// Which labels and taints keep a part's pods off these nodes.
fn kept_off(nodes: &[(&NodeName, &NodeSeen)], part: &Part) -> String {
    let mut by_reason: BTreeMap<Obstacle<'_>, Vec<&str>> = BTreeMap::new();
    for (name, node) in nodes {
        for obstacle in obstacles(node, part) {
            by_reason.entry(obstacle).or_default().push(name.as_str());
        }
    }
    let reasons: Vec<_> =
        by_reason.iter().map(|(obstacle, names)| obstacle.words(names)).take(REASONS).collect();
    reasons.join("; ")
}

fn fits(total: u32) -> String {
    if total == 1 { "1 replica fits".to_owned() } else { format!("{total} replicas fit") }
}

/// How many replicas find a place now, each on the first node that has one, and how many there are.
fn placed(wants: &Wants, nodes: &Nodes, held: &BTreeMap<NodeName, Held>) -> (u32, u32) {
    let open = nodes.iter().filter(|(_, node)| node.ready && !node.cordoned);
    let mut free: Vec<_> = open
        .map(|(name, node)| {
            let mut free = node.allocatable.clone();
            held.get(name).into_iter().for_each(|held| take(&mut free, &held.requests, held.pods));
            (node, free)
        })
        .collect();
    let (mut fit, mut total) = (0_u32, 0_u32);
    for part in &wants.parts {
        let mut left = part.replicas;
        for (_, free) in free.iter_mut().filter(|(node, _)| takes(node, part)) {
            while left > 0 && has_room(free, &part.asked.requests) {
                take(free, &part.asked.requests, 1.0);
                left -= 1;
            }
        }
        total = total.saturating_add(part.replicas);
        fit = fit.saturating_add(part.replicas - left);
    }
    (fit, total)
}

fn has_room(free: &Amounts, requests: &Amounts) -> bool {
    queue::holds(free, requests) && free.get(PODS).is_none_or(|pods| *pods >= 1.0)
}

fn take(free: &mut Amounts, requests: &Amounts, pods: f64) {
    for (name, amount) in requests {
        if let Some(free) = free.get_mut(name) {
            *free -= amount;
        }
    }
    if let Some(free) = free.get_mut(PODS) {
        *free -= pods;
    }
}

/// What keeps pods off a node.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Obstacle<'a> {
    /// A label that they ask for and the node does not have.
    Label { name: &'a str, value: &'a str },
    /// A taint that they do not bear.
    Taint { key: &'a str, value: Option<&'a str>, effect: &'a str },
}

impl Obstacle<'_> {
    fn words(&self, nodes: &[&str]) -> String {
        let who = words::list(nodes);
        let (lack, have) = if nodes.len() == 1 { ("lacks", "has") } else { ("lack", "have") };
        match self {
            Self::Label { name, value } => format!("{who} {lack} the label {name}={value}"),
            Self::Taint { key, value, effect } => {
                let value = value.map(|value| format!("={value}")).unwrap_or_default();
                format!("{who} {have} the taint {key}{value}:{effect}, which no toleration of the job bears")
            }
        }
    }
}

/// Whether a node is one that a part's pods may be on.
fn takes(node: &NodeSeen, part: &Part) -> bool {
    obstacles(node, part).next().is_none()
}

/// What keeps a part's pods off a node: its labels and taints. Rules of affinity are the scheduler's.
fn obstacles<'a>(node: &'a NodeSeen, part: &'a Part) -> impl Iterator<Item = Obstacle<'a>> {
    let selector = part.pod.node_selector.iter().flatten();
    let lacking = selector
        .filter(|(label, value)| node.labels.get(*label) != Some(*value))
        .map(|(name, value)| Obstacle::Label { name, value });
    let borne = |taint: &&Taint| part.pod.tolerations.iter().flatten().any(|one| bears(one, taint));
    let keeping_off = node.taints.iter().filter(|taint| {
        // A node that is not heard for a moment, or cordoned, will be again.
        matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
            && !taint.key.starts_with("node.kubernetes.io/")
    });
    lacking.chain(keeping_off.filter(move |taint| !borne(taint)).map(|taint| Obstacle::Taint {
        key: &taint.key,
        value: taint.value.as_deref().filter(|value| !value.is_empty()),
        effect: &taint.effect,
    }))
}

fn bears(toleration: &Toleration, taint: &Taint) -> bool {
    let effect =
        toleration.effect.as_deref().is_none_or(|effect| effect.is_empty() || effect == taint.effect);
    let key = toleration.key.as_deref().is_none_or(|key| key.is_empty() || key == taint.key);
    let value = toleration.operator.as_deref() == Some("Exists")
        || toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default();
    effect && key && value
}

/// What a part's pod asks for, in words.
fn amounts(part: &Part) -> String {
    let asked: Vec<_> = part
        .asked
        .requests
        .iter()
        .map(|(name, amount)| format!("{} of {name}", shown(name, *amount)))
        .collect();
    let asked: Vec<_> = asked.iter().map(String::as_str).collect();
    if asked.is_empty() { "nothing".to_owned() } else { words::list(&asked) }
}

/// An amount of a resource as people write it.
fn shown(name: &str, amount: f64) -> String {
    let is_size = name.contains("memory") || name.contains("storage") || name.contains("hugepages");
    let units = [("Ti", 1_099_511_627_776.0), ("Gi", 1_073_741_824.0), ("Mi", 1_048_576.0), ("Ki", 1_024.0)];
    let (number, unit) = match units.into_iter().find(|(_, size)| is_size && amount >= *size) {
        Some((unit, size)) => (amount / size, unit),
        None => (amount, ""),
    };
    // At most two digits behind the point, and none that are 0.
    format!("{}{unit}", (number * 100.0).round() / 100.0)
}

#[cfg(test)]
#[path = "tests/room.rs"]
mod tests;
