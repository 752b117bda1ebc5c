use super::*;

/// Nodes `n00` and up.
fn nodes(count: usize) -> Nodes {
    (0..count).map(name).collect()
}

fn name(number: usize) -> NodeName {
    NodeName::new(format!("n{number:02}")).unwrap()
}

fn numbers(numbers: &[usize]) -> Vec<NodeName> {
    numbers.iter().map(|n| name(*n)).collect()
}

/// A small generator, so that every failure can be repeated from its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

fn setup(count: usize, alone: Alone) -> Setup {
    Setup { nodes: nodes(count), alone, probe_seconds: 60, accelerators_per_node: 8 }
}

fn pass() -> Outcome {
    Outcome::Pass { megabytes_per_second: Some(180.0) }
}

/// Faulty nodes and pairs of nodes.
#[derive(Clone, Debug, Default)]
struct Faults {
    bad: Vec<NodeName>,
    /// Found only with others.
    bad_with_others: Vec<NodeName>,
    pairs: Vec<[NodeName; 2]>,
}

impl Faults {
    fn bad(numbers: &[usize]) -> Self {
        Self { bad: self::numbers(numbers), ..Self::default() }
    }

    fn test(&self, group: &Nodes) -> Outcome {
        let fails = self.bad.iter().any(|node| group.contains(node))
            || (group.len() > 1 && self.bad_with_others.iter().any(|node| group.contains(node)))
            || self.pairs.iter().any(|pair| pair.iter().all(|node| group.contains(node)));
        if fails { Outcome::Fail { text: "wrong result".to_owned() } } else { pass() }
    }
}

/// Runs to the end, asserts what holds for every run, and gives the run.
fn run(setup: Setup, mut test: impl FnMut(&Nodes) -> Outcome) -> Run {
    let cost = setup.cost();
    let mut now = Time(0);
    let mut step = start(setup, now);
    let mut todo = std::mem::take(&mut step.effects);
    while step.run.finding().is_none() {
        let round = step.run.rounds().last().expect("a run without an end has a round").clone();
        let mut seen = Nodes::new();
        for group in &round.groups {
            for node in group.all() {
                assert!(step.run.setup().nodes.contains(&node), "{node} is none of ours");
                assert!(seen.insert(node.clone()), "{node} is twice in {round:?}");
            }
            assert!(todo.contains(&Effect::Start { group: group.number, nodes: group.all() }));
        }
        todo.clear();
        for group in &round.groups {
            step = advance(&step.run, &Input::Started { group: group.number }, now);
        }
        now = now.plus_seconds(60);
        // What is stored in the middle of a round is all there is.
        let stored = serde_json::to_string(&step.run).unwrap();
        step.run = serde_json::from_str(&stored).unwrap();
        for group in &round.groups {
            let outcome = test(&group.all());
            step = advance(&step.run, &Input::Ended { group: group.number, outcome }, now);
            todo.append(&mut step.effects);
            assert!(todo.contains(&Effect::End { group: group.number }));
        }
        let used = |kind| step.run.rounds().iter().filter(|round| round.kind == kind).count() as u32;
        assert!(used(RoundKind::Halves) <= cost.rounds);
        assert!(used(RoundKind::Check) <= cost.checks);
        assert!(used(RoundKind::Extra) <= cost.extra_rounds);
        assert!(step.run.accelerator_seconds(now) <= cost.accelerator_seconds as f64);
    }
    assert_eq!(step.run.wake_at(), None);
    assert_eq!(advance(&step.run, &Input::Tick, now).run, step.run, "a run that ended stays as it is");
    step.run
}

fn found(count: usize, faults: &Faults) -> Run {
    run(setup(count, Alone::TellsSome), |group| faults.test(group))
}

#[test]
fn every_bad_node_of_64_is_found_in_six_rounds_and_two_checks() {
    for bad in 0..64 {
        let run = found(64, &Faults::bad(&[bad]));
        let finding = run.finding().unwrap();
        assert_eq!(finding.verdict, Verdict::Suspects);
        assert_eq!(finding.confirmed, numbers(&[bad]));
        assert!(finding.unconfirmed.is_empty() && finding.pairs.is_empty() && finding.together.is_empty());
        assert_eq!(run.rounds().len(), 8, "{bad}");
    }
}

#[test]
fn every_two_bad_nodes_of_64_are_found() {
    for a in 0..64 {
        for b in a + 1..64 {
            for faults in
                [Faults::bad(&[a, b]), Faults { bad_with_others: numbers(&[a, b]), ..Faults::default() }]
            {
                let run = found(64, &faults);
                let finding = run.finding().unwrap();
                assert_eq!(finding.verdict, Verdict::Suspects, "{faults:?} {finding:?}");
                assert_eq!(finding.confirmed, numbers(&[a, b]), "{faults:?}");
                assert!(finding.pairs.is_empty() && finding.together.is_empty(), "{faults:?} {finding:?}");
                assert_eq!(run.rounds().len(), 8, "{faults:?}");
            }
        }
    }
}

#[test]
fn every_pair_of_64_that_fails_only_together_is_named_as_a_pair_and_neither_is_marked() {
    for a in 0..64 {
        for b in a + 1..64 {
            let faults = Faults { pairs: vec![[name(a), name(b)]], ..Faults::default() };
            let run = found(64, &faults);
            let finding = run.finding().unwrap();
            assert_eq!(finding.verdict, Verdict::Together, "{a} {b}: {finding:?}");
            assert_eq!(finding.pairs, [[name(a), name(b)]]);
            assert!(finding.confirmed.is_empty() && finding.unconfirmed.is_empty(), "{a} {b}");
        }
    }
}

#[test]
fn a_thousand_random_sets_of_faults_are_found_and_no_good_node_is_confirmed() {
    for seed in 0..1_000 {
        let mut random = Random(seed);
        let count = 2 + random.below(63);
        let mut all: Vec<_> = (0..count).collect();
        for i in (1..count).rev() {
            all.swap(i, random.below(i + 1));
        }
        let bad = 1 + random.below(count);
        let (bad, rest) = all.split_at(bad);
        let mut faults = Faults::bad(bad);
        faults.bad.sort();
        let has_pair = rest.len() > 1 && random.below(3) == 0;
        if has_pair {
            let mut pair = [name(rest[0]), name(rest[1])];
            pair.sort();
            faults.pairs.push(pair);
        }
        let run = found(count, &faults);
        let finding = run.finding().unwrap();
        let told = format!("seed {seed}: {count} nodes, {faults:?}: {finding:?}");
        if bad.len() == count {
            assert_eq!(finding.verdict, Verdict::AllFail, "{told}");
            assert!(finding.confirmed.is_empty(), "{told}");
        } else if bad.len() > count / 2 {
            assert!(finding.confirmed.is_empty() || finding.confirmed == faults.bad, "{told}");
        } else if has_pair {
            // What fails together may hide behind what fails alone, so it may be missed; never is a good node blamed.
            assert!(finding.confirmed.iter().all(|node| faults.bad.contains(node)), "{told}");
        } else {
            assert_eq!((finding.verdict, &finding.confirmed), (Verdict::Suspects, &faults.bad), "{told}");
        }
    }
}

#[test]
fn small_and_odd_numbers_of_nodes_are_told_right() {
    for count in 1..=17 {
        for alone in [Alone::Tells, Alone::TellsSome, Alone::Never] {
            let none = run(setup(count, alone), |_| pass());
            let verdict = none.finding().unwrap().verdict;
            assert_eq!(
                verdict,
                if count == 1 && alone == Alone::Never { Verdict::Inconclusive } else { Verdict::AllPass },
                "{count} {alone:?}"
            );
            let all = run(setup(count, alone), |_| Outcome::Hang);
            let finding = all.finding().unwrap();
            assert_eq!(
                finding.verdict,
                if count == 1 && alone == Alone::Never { Verdict::Inconclusive } else { Verdict::AllFail },
                "{count} {alone:?}"
            );
            assert!(finding.confirmed.is_empty());
            for bad in 0..count {
                let faults = Faults::bad(&[bad]);
                let run = run(setup(count, alone), |group| faults.test(group));
                let finding = run.finding().unwrap();
                if count == 1 || (alone == Alone::Never && count < 4) {
                    assert!(
                        finding.confirmed.is_empty() || finding.confirmed == numbers(&[bad]),
                        "{count} {bad}"
                    );
                } else {
                    assert_eq!(finding.confirmed, numbers(&[bad]), "{count} {bad} {alone:?}: {finding:?}");
                }
            }
        }
    }
}

#[test]
fn a_fault_that_shows_only_with_others_is_found_where_there_are_others() {
    for count in 3..=17 {
        for bad in 0..count {
            let faults = Faults { bad_with_others: numbers(&[bad]), ..Faults::default() };
            let run = found(count, &faults);
            let finding = run.finding().unwrap();
            assert_eq!(finding.confirmed, numbers(&[bad]), "{count} {bad}: {finding:?}");
        }
    }
    let two = found(2, &Faults { bad_with_others: numbers(&[0]), ..Faults::default() });
    assert_eq!(two.finding().unwrap().verdict, Verdict::Together, "of two it is never known which");
}

#[test]
fn one_bad_node_in_each_pair_is_found_without_a_partner_to_begin_with() {
    let faults = Faults { bad_with_others: numbers(&[0, 2]), ..Faults::default() };
    let run = found(4, &faults);
    assert_eq!(run.finding().unwrap().confirmed, numbers(&[0, 2]), "{run:#?}");
}

#[test]
fn a_node_that_is_lost_is_untested_and_not_suspected_and_the_others_are_tested_again() {
    let faults = Faults::bad(&[5]);
    let mut lost = false;
    let run = run(setup(8, Alone::TellsSome), |group| {
        if group.contains(&name(4)) && !lost {
            lost = true;
            return Outcome::Lost { nodes: [name(4)].into(), text: "the node is gone".to_owned() };
        }
        assert!(!group.contains(&name(4)), "a lost node is left out");
        faults.test(group)
    });
    let finding = run.finding().unwrap();
    assert_eq!(finding.confirmed, numbers(&[5]));
    assert_eq!(finding.untested, numbers(&[4]));
}

#[test]
fn groups_that_are_never_tested_end_the_run_without_a_suspect() {
    let run = run(setup(8, Alone::TellsSome), |_| Outcome::Lost {
        nodes: Nodes::new(),
        text: "no room".to_owned(),
    });
    let finding = run.finding().unwrap();
    assert_eq!((finding.verdict, finding.untested.len()), (Verdict::Inconclusive, 8));
    assert!(finding.confirmed.is_empty() && finding.unconfirmed.is_empty());
}

#[test]
fn a_test_that_answers_by_chance_ends_within_the_plan() {
    // The limits are asserted after every round.
    for seed in 0..500 {
        let mut random = Random(seed);
        let count = 1 + random.below(40);
        let alone = [Alone::Tells, Alone::TellsSome, Alone::Never][random.below(3)];
        run(setup(count, alone), |_| match random.below(4) {
            0 => Outcome::Fail { text: String::new() },
            1 => Outcome::Lost { nodes: Nodes::new(), text: String::new() },
            _ => pass(),
        });
    }
}

#[test]
fn a_suspect_that_passes_a_check_is_not_confirmed() {
    let mut failures = 0;
    let run = run(setup(8, Alone::TellsSome), |group| {
        if group.contains(&name(3)) && failures < 4 {
            failures += 1;
            return Outcome::Hang;
        }
        pass()
    });
    let finding = run.finding().unwrap();
    assert_eq!((finding.verdict, finding.confirmed.len()), (Verdict::Inconclusive, 0), "{finding:?}");
    assert_eq!(finding.unconfirmed, numbers(&[3]));
}

#[test]
fn a_suspect_that_is_gone_when_it_is_tested_again_is_not_said_to_have_passed() {
    let mut tests = 0;
    let run = run(setup(2, Alone::TellsSome), |group| {
        tests += u32::from(group.contains(&name(1)));
        match tests {
            3 if group.contains(&name(1)) => {
                Outcome::Lost { nodes: Nodes::new(), text: "cordoned".to_owned() }
            }
            _ => Faults::bad(&[1]).test(group),
        }
    });
    let finding = run.finding().unwrap();
    assert_eq!((finding.verdict, &finding.unconfirmed), (Verdict::Inconclusive, &numbers(&[1])));
    assert_eq!(finding.text, "n01 failed, and could not be tested 2 times again. No node is marked.");
}

#[test]
fn a_group_beyond_its_time_hangs_and_one_without_nodes_is_lost() {
    let step = start(setup(4, Alone::TellsSome), Time(0));
    let waits = step.run.wake_at().unwrap();
    assert_eq!(waits, Time(0).plus_seconds(limits::WAIT_SECONDS));
    let step = advance(&step.run, &Input::Started { group: 1 }, Time(0).plus_seconds(1));
    let hangs = step.run.wake_at().unwrap();
    assert_eq!(hangs, Time(0).plus_seconds(1 + 60 + u64::from(limits::AROUND_SECONDS)));
    let early = advance(&step.run, &Input::Tick, Time(hangs.micros() - 1));
    assert_eq!(early.run, step.run);
    let step = advance(&step.run, &Input::Tick, hangs);
    assert_eq!(step.effects, [Effect::End { group: 1 }]);
    assert_eq!(step.run.rounds()[0].groups[0].outcome, Some(Outcome::Hang));
    let step = advance(&step.run, &Input::Tick, waits);
    assert!(matches!(step.run.rounds()[0].groups[1].outcome, Some(Outcome::Lost { .. })));
    assert_eq!(step.run.rounds().len(), 2, "the next round follows at once");
}

#[test]
fn a_stop_ends_what_runs_and_nothing_follows() {
    let step = start(setup(8, Alone::TellsSome), Time(0));
    let step = advance(&step.run, &Input::Stop { by: "user-1".to_owned() }, Time(5));
    assert_eq!(step.effects, [Effect::End { group: 1 }, Effect::End { group: 2 }]);
    assert_eq!(step.run.finding().unwrap().verdict, Verdict::Stopped);
    assert_eq!(step.run.ended_at(), Some(Time(5)));
    let late = advance(&step.run, &Input::Ended { group: 1, outcome: Outcome::Hang }, Time(6));
    assert_eq!((late.run, late.effects.len()), (step.run, 0));
}

#[test]
fn the_plan_is_said_in_numbers() {
    let cost = setup(64, Alone::TellsSome).cost();
    assert_eq!((cost.rounds, cost.checks), (6, 2));
    assert_eq!(cost.accelerator_seconds, cost.seconds * 64 * 8);
    assert_eq!(setup(5, Alone::TellsSome).cost().rounds, 3);
    assert_eq!(setup(1, Alone::TellsSome).cost().rounds, 1);
}
