//! What the groups of a round say, and which are tested next.

use super::{
    Alone, Case, Effect, Family, Group, Half, Known, Nodes, Outcome, Round, RoundKind, Run, Search, Step,
    Why, halves,
};
use crate::{ids::NodeName, time::Time};

/// A group that is still to be numbered.
pub(super) struct Wanted {
    pub nodes: Nodes,
    pub partner: Option<NodeName>,
    pub why: Why,
}

impl Step {
    /// Takes what the last round says.
    pub(super) fn settle(&mut self) {
        let groups = self.run.rounds.last().map(|round| round.groups.clone()).unwrap_or_default();
        let run = &mut self.run;
        for group in &groups {
            let Some(outcome) = &group.outcome else { continue };
            match (&group.why, outcome) {
                (Why::Part { family, tried }, Outcome::Lost { nodes, .. }) => {
                    run.lost(group, nodes, *family, *tried);
                }
                (Why::Part { family, .. }, outcome) => run.part(group, outcome.failed(), *family),
                (Why::Match, Outcome::Pass { .. }) => run.passes(&group.nodes),
                (Why::Suspect, Outcome::Lost { .. }) => {}
                (Why::Suspect, outcome) => run.suspect(group, outcome.failed()),
                (Why::Pair, Outcome::Lost { .. }) => {}
                (Why::Pair, outcome) => run.count_pair(&group.nodes, outcome.failed()),
                (Why::Rest, Outcome::Pass { .. }) => run.passes(&group.nodes),
                (Why::Rest, outcome) if outcome.failed() => run.split(&group.nodes),
                (Why::Cross { .. } | Why::Match | Why::Rest, _) => {}
            }
        }
        run.narrow(&groups);
        run.match_families();
    }

    /// Orders the groups of a round.
    pub(super) fn order(&mut self, kind: RoundKind, wanted: Vec<Wanted>, now: Time) {
        let first = self.run.rounds.iter().map(|round| round.groups.len() as u32).sum::<u32>() + 1;
        let groups: Vec<_> = (first..)
            .zip(wanted)
            .map(|(number, Wanted { nodes, partner, why })| Group {
                number,
                nodes,
                partner,
                why,
                ordered_at: now,
                started_at: None,
                ended_at: None,
                outcome: None,
            })
            .collect();
        for group in &groups {
            self.effects.push(Effect::Start { group: group.number, nodes: group.all() });
        }
        let nodes: usize = groups.iter().map(|group| group.nodes.len()).sum();
        let text =
            format!("Round {} tests {nodes} nodes in {} groups.", self.run.rounds.len() + 1, groups.len());
        self.tell(now, text);
        self.run.rounds.push(Round { kind, groups });
    }
}

impl Run {
    fn id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }

    fn passes(&mut self, nodes: &Nodes) {
        self.good.extend(nodes.iter().cloned());
        self.alone.retain(|node| !nodes.contains(node));
    }

    fn know(&mut self, family: Option<u32>, nodes: &Nodes, known: Known) {
        let Some(family) = self.families.iter_mut().find(|one| Some(one.id) == family) else { return };
        for half in family.halves.iter_mut().filter(|half| half.nodes == *nodes) {
            half.known = Some(known);
        }
    }

    fn part(&mut self, group: &Group, failed: bool, family: Option<u32>) {
        let nodes = &group.nodes;
        let is_alone = nodes.len() == 1 && group.partner.is_none() && self.setup.alone == Alone::TellsSome;
        if failed {
            self.know(family, nodes, Known::Fails);
            if nodes.len() > 1 {
                self.split(nodes);
            } else {
                self.suspects.extend(nodes.iter().map(|node| (node.clone(), 0)));
                self.alone.retain(|node| !nodes.contains(node));
            }
        } else if is_alone && self.setup.nodes.len() > 1 {
            self.know(family, nodes, Known::PassesAlone);
            self.alone.extend(nodes.iter().cloned());
        } else {
            self.know(family, nodes, Known::Passes);
            self.passes(nodes);
        }
    }

    /// Nodes that could not be tested are tested once more, without those that are gone.
    fn lost(&mut self, group: &Group, gone: &Nodes, family: Option<u32>, tried: bool) {
        let gone: Nodes = gone.intersection(&group.all()).cloned().collect();
        self.good.retain(|node| !gone.contains(node));
        let left: Nodes = group.nodes.difference(&gone).cloned().collect();
        self.untested.extend(gone);
        let again = !tried && !left.is_empty();
        if let Some(family) = self.families.iter_mut().find(|one| Some(one.id) == family) {
            for half in family.halves.iter_mut().filter(|half| half.nodes == group.nodes) {
                half.nodes.clone_from(&left);
                half.known = (!again).then_some(Known::Untested);
            }
        }
        if again {
            let needs_partner = self.setup.alone == Alone::Never;
            self.queue.push(Case { nodes: left, family, tried: true, needs_partner });
        } else {
            self.untested.extend(left);
        }
    }

    /// Halves a set that failed. A half that was seen to pass, with others even, is not tested again.
    fn split(&mut self, nodes: &Nodes) {
        let id = self.id();
        let halves = halves(nodes).map(|nodes| {
            let known = self.seen_to_pass(&nodes).then_some(Known::Passes);
            Half { nodes, known }
        });
        for half in halves.iter().filter(|half| half.known.is_none()) {
            let needs_partner = self.setup.alone == Alone::Never;
            self.queue.push(Case {
                nodes: half.nodes.clone(),
                family: Some(id),
                tried: false,
                needs_partner,
            });
        }
        self.families.push(Family { id, halves });
    }

    fn seen_to_pass(&self, nodes: &Nodes) -> bool {
        let passed = |group: &Group| matches!(group.outcome, Some(Outcome::Pass { .. }));
        let told_all = |group: &Group| self.setup.alone != Alone::TellsSome || group.all().len() > 1;
        let groups = self.rounds.iter().flat_map(|round| &round.groups).filter(|group| told_all(group));
        groups.filter(|group| passed(group)).any(|group| nodes.is_subset(&group.all()))
    }

    /// Goes on with what fails only together.
    fn narrow(&mut self, groups: &[Group]) {
        for search in std::mem::take(&mut self.searches) {
            let mine = |group: &&Group| matches!(group.why, Why::Cross { search: id } if id == search.id);
            let failed: Vec<_> = groups
                .iter()
                .filter(mine)
                .filter(|group| group.outcome.as_ref().is_some_and(Outcome::failed))
                .collect();
            for group in &failed {
                let halves =
                    [0, 1].map(|i| group.nodes.intersection(&search.halves[i]).cloned().collect::<Nodes>());
                self.search(halves);
            }
            if failed.is_empty() {
                let all = search.halves.iter().flatten().cloned().collect();
                match search.crossed {
                    false => self.searches.push(Search { crossed: true, ..search }),
                    true => self.together.push(all),
                }
            }
        }
        let (known, open): (Vec<_>, Vec<_>) = std::mem::take(&mut self.families)
            .into_iter()
            .partition(|family| family.halves.iter().all(|half| half.known.is_some()));
        self.families = open;
        for family in known {
            let is = |known| family.halves.iter().any(|half| half.known == Some(known));
            if is(Known::Fails) || is(Known::Untested) {
                // Explained, or not to be explained any more.
            } else if is(Known::PassesAlone) && self.setup.nodes.len() > 2 {
                self.ask_for_partners(family);
            } else {
                self.search(family.halves.map(|half| half.nodes));
            }
        }
    }

    /// Both passed, but alone, and that does not tell all.
    fn ask_for_partners(&mut self, mut family: Family) {
        for half in family.halves.iter_mut().filter(|half| half.known == Some(Known::PassesAlone)) {
            half.known = None;
            self.queue.push(Case {
                nodes: half.nodes.clone(),
                family: Some(family.id),
                tried: false,
                needs_partner: true,
            });
        }
        self.families.push(family);
    }

    fn search(&mut self, halves: [Nodes; 2]) {
        if let [Some(a), Some(b)] = [0, 1].map(|i| halves[i].first().filter(|_| halves[i].len() == 1)) {
            let (a, b) = (a.clone(), b.clone());
            self.pair(&a, &b);
        } else {
            let id = self.id();
            self.searches.push(Search { id, halves, crossed: false });
        }
    }

    /// A suspect that passes with another partner than the one it failed with makes a pair with that one.
    fn suspect(&mut self, group: &Group, failed: bool) {
        let Some(node) = group.nodes.first() else { return };
        if failed {
            *self.suspects.entry(node.clone()).or_default() += 1;
            return;
        }
        if self.suspects.get(node).is_some_and(|checks| *checks > 0) {
            return;
        }
        let groups = self.rounds.iter().flat_map(|round| &round.groups);
        let mut before = groups
            .filter(|one| matches!(one.why, Why::Part { .. }) && one.nodes == group.nodes)
            .filter(|one| one.outcome.as_ref().is_some_and(Outcome::failed));
        let partner = before.next_back().and_then(|one| one.partner.clone());
        let Some(partner) = partner.filter(|one| group.partner.as_ref().is_some_and(|other| other != one))
        else {
            return;
        };
        self.suspects.remove(node);
        self.passes(&group.nodes);
        self.pair(node, &partner);
    }

    pub(super) fn pair(&mut self, a: &NodeName, b: &NodeName) {
        let (a, b) = if a < b { (a, b) } else { (b, a) };
        self.pairs.entry(a.clone()).or_default().entry(b.clone()).or_default();
    }

    fn count_pair(&mut self, nodes: &Nodes, failed: bool) {
        let (Some(a), Some(b)) = (nodes.first(), nodes.last()) else { return };
        if let Some(checked) = self.pairs.get_mut(a).and_then(|others| others.get_mut(b)) {
            checked.times += 1;
            checked.failed += u32::from(failed);
        }
    }

    /// Families whose last nodes pass only alone: where a partner is known now, they are tested with it; that is the queue's work. What
    /// is a pair with a node that passes elsewhere stays in the family.
    fn match_families(&mut self) {
        let good = &self.good;
        for family in &mut self.families {
            for half in family.halves.iter_mut().filter(|half| half.known.is_none()) {
                if half.nodes.len() == 1 && half.nodes.is_subset(good) {
                    half.known = Some(Known::Passes);
                }
            }
        }
        self.queue.retain(|case| !(case.needs_partner && case.nodes.is_subset(good)));
    }

    /// The groups of the next round: all that waits, as far as partners suffice.
    pub(super) fn next_groups(&mut self) -> Vec<Wanted> {
        let mut wanted = Vec::new();
        for search in &self.searches {
            let [a, b] = search.halves.clone().map(|half| halves(&half));
            let combined = if search.crossed {
                [(&a[0], &b[1]), (&a[1], &b[0])]
            } else {
                [(&a[0], &b[0]), (&a[1], &b[1])]
            };
            for (a, b) in combined.into_iter().filter(|(a, b)| !a.is_empty() && !b.is_empty()) {
                let why = Why::Cross { search: search.id };
                wanted.push(Wanted { nodes: a.union(b).cloned().collect(), partner: None, why });
            }
        }
        let mut partners = self.partners(&wanted);
        for case in std::mem::take(&mut self.queue) {
            let is_one = case.nodes.len() == 1;
            let partner = if is_one && self.setup.alone != Alone::Tells { partners.pop() } else { None };
            if is_one && partner.is_none() && case.needs_partner {
                self.queue.push(case);
                continue;
            }
            let why = Why::Part { family: case.family, tried: case.tried };
            wanted.push(Wanted { nodes: case.nodes, partner, why });
        }
        wanted
    }

    /// Nodes that passed and are in no group of the coming round, the least used last.
    pub(super) fn partners(&self, wanted: &[Wanted]) -> Vec<NodeName> {
        let groups = self.rounds.iter().flat_map(|round| &round.groups);
        let uses =
            |node: &NodeName| groups.clone().filter(|group| group.partner.as_ref() == Some(node)).count();
        let in_question = |node: &NodeName| {
            let mut halves = self.families.iter().flat_map(|family| &family.halves);
            halves.any(|half| half.nodes.contains(node))
        };
        // Where no node has passed with others, one that passed alone and that nothing is held against has to do.
        let alone: Nodes = self.alone.iter().filter(|node| !in_question(node)).cloned().collect();
        let mut free: Vec<_> = if self.good.is_empty() { &alone } else { &self.good }
            .iter()
            .filter(|node| !wanted.iter().any(|group| group.nodes.contains(*node)))
            .filter(|node| !self.in_a_pair(node))
            .map(|node| (uses(node), node.clone()))
            .collect();
        free.sort_by(|a, b| b.cmp(a));
        free.into_iter().map(|(_, node)| node).collect()
    }

    pub(super) fn in_a_pair(&self, node: &NodeName) -> bool {
        self.pairs.iter().any(|(a, others)| a == node || others.contains_key(node))
    }

    /// Where no node has passed with another yet, nodes of two families are tested with each other: of two good ones, whichever they are,
    /// the second try at the latest finds both.
    pub(super) fn matches(&mut self) -> Vec<Wanted> {
        let one = |half: &Half| half.nodes.first().cloned().filter(|_| half.nodes.len() == 1);
        let pairs: Vec<_> = self
            .families
            .iter()
            .filter_map(|family| Some((one(&family.halves[0])?, one(&family.halves[1])?)))
            .collect();
        let is_crossed = self.matches % 2 == 1;
        let mut wanted = Vec::new();
        for two in pairs.chunks_exact(2) {
            let ((a, b), (c, d)) = (&two[0], &two[1]);
            let (c, d) = if is_crossed { (d, c) } else { (c, d) };
            for (x, y) in [(a, c), (b, d)] {
                let nodes = [x.clone(), y.clone()].into();
                wanted.push(Wanted { nodes, partner: None, why: Why::Match });
            }
        }
        if !wanted.is_empty() {
            self.matches += 1;
        }
        wanted
    }
}
