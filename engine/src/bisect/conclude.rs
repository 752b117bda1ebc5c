//! Which round is next, and what a run comes to.

use super::{
    Alone, Effect, Finding, Known, Nodes, Outcome, RoundKind, Run, Step, Verdict, Why, limits, round::Wanted,
};
use crate::{ids::NodeName, time::Time};

/// Names in a sentence; the finding itself has all.
const NAMES: usize = 8;

impl Step {
    /// Orders the next round, or ends the run.
    pub(super) fn go_on(&mut self, now: Time) {
        let cost = self.run.cost;
        let used = |kind| self.run.rounds.iter().filter(|round| round.kind == kind).count() as u32;
        let (halves, extra) = (used(RoundKind::Halves), used(RoundKind::Extra));
        let kind = if halves < cost.rounds { RoundKind::Halves } else { RoundKind::Extra };
        if kind == RoundKind::Halves || extra < cost.extra_rounds {
            let mut wanted = self.run.next_groups();
            if wanted.is_empty()
                && !self.run.queue.is_empty()
                && self.run.good.is_empty()
                && self.run.matches < 2
            {
                wanted = self.run.matches();
            }
            if !wanted.is_empty() {
                return self.order(kind, wanted, now);
            }
        }
        self.run.leave_open();
        if self.conclude(now) {
            return;
        }
        // Before any check, so that what it shows has as many of them.
        if self.run.suspects.is_empty() && self.run.pairs.is_empty() && extra < cost.extra_rounds {
            let wanted = self.run.rest(&Nodes::new());
            if !wanted.is_empty() {
                return self.order(RoundKind::Extra, wanted, now);
            }
        }
        if self.run.checks < limits::CHECKS {
            let wanted = self.run.checks();
            self.run.checks += 1;
            if !wanted.is_empty() {
                return self.order(RoundKind::Check, wanted, now);
            }
        }
        self.name(now);
    }

    /// Ends the run where more tests could say nothing.
    fn conclude(&mut self, now: Time) -> bool {
        let run = &self.run;
        let (bad, well) = (run.suspects.len(), run.good.len() + run.alone.len());
        let tested = run.setup.nodes.len() - run.untested.len();
        let outcomes =
            || run.rounds.iter().flat_map(|round| &round.groups).filter_map(|group| group.outcome.as_ref());
        let nothing_passed = !outcomes().any(|outcome| matches!(outcome, Outcome::Pass { .. }));
        if nothing_passed && !outcomes().any(Outcome::failed) {
            self.finish(Verdict::Inconclusive, "No node could be tested.".to_owned(), now);
        } else if nothing_passed || bad == tested {
            let text = if tested == 1 {
                "The only node tested failed, so nothing tells the node from the test; test it together with others. It is not marked.".to_owned()
            } else {
                format!(
                    "All {tested} nodes failed, however they were tested: the test or the job is at fault. No node is marked."
                )
            };
            self.finish(Verdict::AllFail, text, now);
        } else if bad > well {
            let text = format!(
                "{bad} of {tested} nodes failed: so many at once share a cause, such as the network, the image or the test. No node is marked."
            );
            self.finish(Verdict::Widespread, text, now);
        } else {
            return false;
        }
        true
    }

    /// Names what was found, after the checks.
    fn name(&mut self, now: Time) {
        let run = &self.run;
        let confirmed = run.confirmed();
        let unconfirmed = run.suspects.len() - confirmed.len();
        let pairs = run.confirmed_pairs();
        let is_together = !pairs.is_empty() || !run.together.is_empty();
        let (verdict, text) = if !confirmed.is_empty() {
            let text = format!(
                "{} suspected: failed by itself or with partners that pass, and again in {} of {} checks.",
                names(confirmed.iter()),
                limits::CHECKS,
                limits::CHECKS
            );
            (Verdict::Suspects, text)
        } else if let Some([a, b]) = pairs.first() {
            let more =
                if pairs.len() > 1 { format!(", and {} more pairs", pairs.len() - 1) } else { String::new() };
            let text = format!(
                "{a} and {b} fail only together{more}: look at what is between them. Neither is marked."
            );
            (Verdict::Together, text)
        } else if is_together {
            let text = format!(
                "{} fail only together, and could not be narrowed down. No node is marked.",
                names(run.together.iter().flatten())
            );
            (Verdict::Together, text)
        } else if unconfirmed > 0 && !run.any_passed_again() {
            let text = format!(
                "{} failed, and could not be tested {} times again. No node is marked.",
                names(run.suspects.keys()),
                limits::CHECKS
            );
            (Verdict::Inconclusive, text)
        } else if unconfirmed > 0 {
            let text = format!(
                "{} failed and passed when tested again: the fault comes and goes. No node is marked.",
                names(run.suspects.keys())
            );
            (Verdict::Inconclusive, text)
        } else if run.untested.is_empty() && run.pairs.is_empty() && run.rest_passed() {
            let nodes = run.setup.nodes.len();
            let text = match nodes {
                1 => "The node passed: the fault did not come back.".to_owned(),
                _ => format!(
                    "All {nodes} nodes passed, apart and together: the fault did not come back. No node is marked."
                ),
            };
            (Verdict::AllPass, text)
        } else if run.untested.is_empty() && run.rest_lost() {
            let text = "The nodes passed apart; together they could not be tested. No node is marked.";
            (Verdict::Inconclusive, text.to_owned())
        } else if run.untested.is_empty() {
            let text = "The tests contradict each other: the fault comes and goes. No node is marked.";
            (Verdict::Inconclusive, text.to_owned())
        } else {
            let text = format!(
                "The nodes that were tested passed; {} could not be tested.",
                names(run.untested.iter())
            );
            (Verdict::Inconclusive, text)
        };
        self.finish(verdict, text, now);
    }

    /// Ends the run, and whatever of it is not over.
    pub(super) fn finish(&mut self, verdict: Verdict, text: String, now: Time) {
        let open: Vec<_> = self.run.live().map(|group| group.number).collect();
        for group in open {
            if let Some(group) = self.run.open(group) {
                group.ended_at = Some(now);
                group.outcome =
                    Some(Outcome::Lost { nodes: Nodes::new(), text: "the run was stopped".to_owned() });
            }
            self.effects.push(Effect::End { group });
        }
        let run = &mut self.run;
        let confirmed = if verdict == Verdict::Suspects { run.confirmed() } else { Vec::new() };
        run.finding = Some(Finding {
            verdict,
            unconfirmed: run.suspects.keys().filter(|node| !confirmed.contains(node)).cloned().collect(),
            confirmed,
            pairs: run.confirmed_pairs(),
            together: run.together.iter().map(|nodes| nodes.iter().cloned().collect()).collect(),
            untested: run.untested.iter().cloned().collect(),
            text: text.clone(),
        });
        run.ended_at = Some(now);
        self.tell(now, text);
    }
}

impl Run {
    fn confirmed(&self) -> Vec<NodeName> {
        let all = |(node, failed): (&NodeName, &u32)| (*failed >= limits::CHECKS).then(|| node.clone());
        self.suspects.iter().filter_map(all).collect()
    }

    fn confirmed_pairs(&self) -> Vec<[NodeName; 2]> {
        let each = self.pairs.iter().flat_map(|(a, others)| others.iter().map(move |(b, n)| (a, b, n)));
        each.filter(|(_, _, checked)| checked.times > 0 && checked.failed == checked.times)
            .map(|(a, b, _)| [a.clone(), b.clone()])
            .collect()
    }

    fn any_passed_again(&self) -> bool {
        let mut groups = self.rounds.iter().flat_map(|round| &round.groups);
        groups.any(|group| group.is_check() && matches!(group.outcome, Some(Outcome::Pass { .. })))
    }

    fn rest_outcome(&self) -> Option<&Outcome> {
        let mut groups = self.rounds.iter().flat_map(|round| &round.groups);
        groups.rfind(|group| group.why == Why::Rest)?.outcome.as_ref()
    }

    fn rest_passed(&self) -> bool {
        self.rest_outcome().is_none_or(|outcome| matches!(outcome, Outcome::Pass { .. }))
    }

    fn rest_lost(&self) -> bool {
        matches!(self.rest_outcome(), Some(Outcome::Lost { .. }))
    }

    /// What no round is left for: what is known of it is kept as that.
    fn leave_open(&mut self) {
        for search in std::mem::take(&mut self.searches) {
            self.together.push(search.halves.into_iter().flatten().collect());
        }
        for family in std::mem::take(&mut self.families) {
            let passes = |known| matches!(known, Some(Known::Passes | Known::PassesAlone) | None);
            let nodes: Nodes = family.halves.iter().flat_map(|half| half.nodes.clone()).collect();
            let is_open = family.halves.iter().all(|half| passes(half.known));
            match nodes.iter().collect::<Vec<_>>()[..] {
                [a, b] if is_open && nodes.iter().all(|node| !self.suspects.contains_key(node)) => {
                    self.pair(a, b);
                }
                _ if is_open => self.together.push(nodes),
                _ => {}
            }
        }
        for case in std::mem::take(&mut self.queue) {
            let unknown = case.nodes.into_iter().filter(|node| {
                !self.good.contains(node) && !self.alone.contains(node) && !self.in_a_pair(node)
            });
            self.untested.extend(unknown.collect::<Vec<_>>());
        }
    }

    /// Each suspect with a partner, each pair, and with the first check the rest together.
    fn checks(&mut self) -> Vec<Wanted> {
        let mut wanted = Vec::new();
        let mut taken = Nodes::new();
        let pairs =
            self.pairs.iter().flat_map(|(a, others)| others.iter().map(move |(b, n)| (n.times, a, b)));
        let mut pairs: Vec<_> = pairs.collect();
        pairs.sort();
        for (_, a, b) in pairs {
            // A node of two pairs is tested in one of them; a round has each node once.
            if taken.contains(a) || taken.contains(b) {
                continue;
            }
            taken.extend([a.clone(), b.clone()]);
            wanted.push(Wanted { nodes: [a.clone(), b.clone()].into(), partner: None, why: Why::Pair });
        }
        let mut partners = self.partners(&wanted);
        for node in self.suspects.keys() {
            let partner =
                if self.setup.alone == Alone::Tells { None } else { self.partner_of(node, &mut partners) };
            if partner.is_none() && self.setup.alone == Alone::Never {
                continue;
            }
            taken.extend(partner.clone());
            wanted.push(Wanted { nodes: [node.clone()].into(), partner, why: Why::Suspect });
        }
        wanted.extend(self.rest(&taken));
        wanted
    }

    /// The partner that a node was tested with the least, of those that are left.
    fn partner_of(&self, node: &NodeName, left: &mut Vec<NodeName>) -> Option<NodeName> {
        let groups = self.rounds.iter().flat_map(|round| &round.groups);
        let met = |other: &NodeName| {
            groups
                .clone()
                .filter(|group| group.nodes.contains(node) && group.partner.as_ref() == Some(other))
                .count()
        };
        // Of those alike the last, which was used the least altogether.
        let (place, _) = left.iter().enumerate().rev().min_by_key(|(_, other)| met(other))?;
        Some(left.remove(place))
    }

    /// All that are well and not in the round otherwise; once in a run.
    fn rest(&mut self, taken: &Nodes) -> Vec<Wanted> {
        if std::mem::replace(&mut self.rest_tested, true) {
            return Vec::new();
        }
        let well =
            self.good.union(&self.alone).filter(|node| !taken.contains(*node) && !self.in_a_pair(node));
        let nodes: Nodes = well.cloned().collect();
        let is_group = nodes.len() > 1;
        is_group.then_some(Wanted { nodes, partner: None, why: Why::Rest }).into_iter().collect()
    }
}

/// Nodes in a sentence, the first of them by name.
fn names<'a>(nodes: impl Iterator<Item = &'a NodeName>) -> String {
    let all: Vec<_> = nodes.map(NodeName::as_str).collect();
    let shown = all[..all.len().min(NAMES)].join(", ");
    if all.len() > NAMES { format!("{shown} and {} more", all.len() - NAMES) } else { shown }
}
