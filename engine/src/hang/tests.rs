use super::*;
use crate::sync::Witness;

const INTERVAL: u32 = 60;
const WINDOW: u32 = 600;
const BEGAN: Time = Time(1_764_446_400_000_000);

fn at(seconds: u64) -> Time {
    BEGAN.plus_seconds(seconds)
}

fn key(top: &[&str]) -> StackKey {
    StackKey { hash: top.join("/"), top: top.iter().map(|frame| format!("{frame} (train.py)")).collect() }
}

/// One rank in a test: what its agent says.
#[derive(Clone)]
struct Told {
    still: Option<StillRank>,
    finished: bool,
}

fn witness(kind: WitnessKind, says: WitnessSays, since: Option<Time>) -> Witness {
    Witness { kind, says, since, detail: String::new() }
}

/// A process that stands still in these functions from second 100 to second 100 + `seconds`.
fn stuck(top: &[&str], seconds: u64) -> Told {
    Told {
        still: Some(StillRank {
            rank: 0,
            since: at(100),
            until: at(100 + seconds),
            samples: (seconds / u64::from(INTERVAL)) as u32,
            witnesses: vec![
                witness(WitnessKind::Stack, WitnessSays::Unchanged, Some(at(100))),
                witness(WitnessKind::Output, WitnessSays::Unchanged, Some(at(90))),
                witness(WitnessKind::Cpu, WitnessSays::Unchanged, Some(at(100))),
            ],
            stack: Some(key(top)),
            state: None,
            phase: None,
            collective: None,
        }),
        finished: false,
    }
}

impl Told {
    fn moves() -> Self {
        Self { still: None, finished: false }
    }

    fn finished() -> Self {
        Self { still: None, finished: true }
    }

    fn change(mut self, change: impl FnOnce(&mut StillRank)) -> Self {
        if let Some(still) = &mut self.still {
            change(still);
        }
        self
    }

    fn says(self, kind: WitnessKind, says: WitnessSays, since: Option<Time>) -> Self {
        self.change(|still| {
            still.witnesses.retain(|witness| witness.kind != kind);
            still.witnesses.push(witness(kind, says, since));
        })
    }

    fn without_stack(self) -> Self {
        self.says(WitnessKind::Stack, WitnessSays::Unknown("no permission".to_owned()), None)
            .change(|still| still.stack = None)
    }

    fn is(self, state: RunState) -> Self {
        let since = self.still.as_ref().map(|still| still.since);
        self.says(WitnessKind::KernelState, WitnessSays::Unchanged, since)
            .change(|still| still.state = Some(ProcessState { is: state, waits_in: None }))
    }

    fn begun(self, last_enqueued: u64) -> Self {
        self.change(|still| {
            still.collective =
                Some(Collective { last_enqueued: Some(last_enqueued), last_completed: Some(7), name: None });
        })
    }
}

struct Case {
    told: Vec<Told>,
    phase: Phase,
    quiet: Quiet,
    moved_at: Option<Time>,
    start_after_seconds: u32,
}

impl Case {
    fn of(told: Vec<Told>) -> Self {
        Self {
            told,
            phase: Phase::Training,
            quiet: Quiet::default(),
            moved_at: Some(at(90)),
            start_after_seconds: 0,
        }
    }

    fn judge(&self) -> Outcome {
        let stills: Vec<_> = self
            .told
            .iter()
            .map(|told| told.still.as_ref().map(|still| (Still::of(still), still.stack.clone())))
            .collect();
        let nodes: Vec<NodeName> =
            (0..self.told.len()).map(|n| NodeName::new(format!("n{n}")).unwrap()).collect();
        let ranks = self
            .told
            .iter()
            .zip(&stills)
            .zip(&nodes)
            .map(|((told, still), node)| Rank {
                node: Some(node),
                fate: match still {
                    Some((still, key)) => Fate::Still(still, key.as_ref()),
                    None if told.finished => Fate::Finished,
                    None => Fate::Moves,
                },
            })
            .collect();
        judge(&Scene {
            ranks,
            watch: HangWatch {
                interval_seconds: INTERVAL,
                window_seconds: WINDOW,
                start_after_seconds: self.start_after_seconds,
            },
            began: BEGAN,
            moved_at: self.moved_at,
            phase: self.phase,
            step: Some(41),
            quiet: &self.quiet,
        })
    }

    fn hang(&self) -> HangRecord {
        match self.judge() {
            Outcome::Hang(hang) => *hang,
            other => panic!("no hang: {other:?}"),
        }
    }
}

fn waits(seconds: u64) -> Told {
    stuck(&["wait", "all_reduce"], seconds)
}

/// What healthy programs look like. None of them is a hang, however long it goes on.
#[test]
fn healthy_programs_raise_nothing() {
    use WitnessKind::{Checkpoint, Collective, Cpu, Output, Stack, Step};
    use WitnessSays::{Changed, Unchanged, Unknown};
    let long = 3_000;
    let reason = || Unknown("not Python".to_owned());
    for (case, told) in [
        ("one rank moves and the others wait for it", vec![Told::moves(), waits(long), waits(long)]),
        (
            "one rank is in ever other functions",
            vec![stuck(&["eval"], long).says(Stack, Changed, None), waits(long)],
        ),
        ("a progress bar goes on", vec![stuck(&["eval"], long).says(Output, Changed, None), waits(long)]),
        ("it printed not long ago", vec![stuck(&["eval"], long).says(Output, Changed, Some(at(long)))]),
        (
            "its functions changed not long ago",
            vec![stuck(&["eval"], long).says(Stack, Changed, Some(at(long)))],
        ),
        ("a checkpoint grows", vec![stuck(&["save"], long).says(Checkpoint, Changed, None)]),
        ("steps are made", vec![stuck(&["step"], long).says(Step, Changed, None)]),
        ("collectives are done", vec![stuck(&["step"], long).says(Collective, Changed, None)]),
        ("a debugger is attached", vec![waits(long), stuck(&["step"], long).is(RunState::Traced)]),
        (
            "nothing is known but that it prints nothing",
            vec![stuck(&[], long).without_stack().says(Cpu, reason(), None)],
        ),
        ("no stack, and it uses the CPU", vec![stuck(&[], long).without_stack().says(Cpu, Changed, None)]),
        (
            "no stack, idle, and nobody reads its output",
            vec![stuck(&[], long).without_stack().says(Output, reason(), None).says(Cpu, Unchanged, None)],
        ),
        ("all are done", vec![Told::finished(), Told::finished()]),
        ("there is nobody", vec![]),
        (
            "one finished and the other works on",
            vec![Told::finished(), stuck(&["eval"], long).says(Stack, Changed, None)],
        ),
        (
            "a stopped one, yet another prints",
            vec![waits(long).is(RunState::Stopped), stuck(&["eval"], long).says(Output, Changed, None)],
        ),
    ] {
        assert_eq!(Case::of(told).judge(), Outcome::Moves, "{case}");
    }
}

#[test]
fn real_hangs_are_found_with_the_odd_rank() {
    use WitnessKind::{Cpu, Stack};
    use WitnessSays::{Changed, Unknown};
    for (case, told, words, odd) in [
        (
            "a collective that one rank does not come to",
            vec![waits(600), stuck(&["wait", "read_batch"], 600), waits(600), waits(600)],
            "rank 1 on n1 in read_batch, 3 others in all_reduce",
            Some((vec![1], Strength::Strong)),
        ),
        ("all in the same collective", vec![waits(600), waits(600)], "all 2 ranks in all_reduce", None),
        (
            "two collectives that do not fit",
            vec![waits(600), waits(600), stuck(&["barrier"], 600), waits(600)],
            "rank 2 on n2 in barrier, 3 others in all_reduce",
            Some((vec![2], Strength::Weak)),
        ),
        (
            "others come to the same place by different ways",
            vec![
                stuck(&["all_reduce", "a"], 600),
                stuck(&["read_batch"], 600),
                stuck(&["all_reduce", "b"], 600),
            ],
            "rank 1 on n1 in read_batch, 2 others in all_reduce",
            Some((vec![1], Strength::Strong)),
        ),
        (
            "a stuck data loader of two",
            vec![waits(600), stuck(&["select", "read_batch"], 600)],
            "rank 1 on n1 in read_batch, rank 0 in all_reduce",
            Some((vec![1], Strength::Moderate)),
        ),
        (
            "a loop without end: the CPU is busy and the functions are the same",
            vec![stuck(&["spin"], 600).says(Cpu, Changed, None), waits(600), waits(600)],
            "rank 0 on n0 in spin, 2 others in all_reduce",
            Some((vec![0], Strength::Strong)),
        ),
        ("one process of one", vec![stuck(&["spin"], 600)], "rank 0 in spin", None),
        (
            "a stopped process, while another waits in ever other functions",
            vec![
                waits(600),
                stuck(&["step"], 600).is(RunState::Stopped),
                stuck(&["poll", "check"], 600).says(Stack, Changed, Some(at(690))),
            ],
            "rank 1 on n1 in step, stopped, rank 0 in all_reduce, rank 2 in check",
            Some((vec![1], Strength::Strong)),
        ),
        (
            "one is in the hands of the disk",
            vec![waits(600), stuck(&["load"], 600).is(RunState::Uninterruptible), waits(600)],
            "rank 1 on n1 in load, 2 others in all_reduce",
            Some((vec![1], Strength::Strong)),
        ),
        (
            "one finished and the others wait for it",
            vec![waits(600), Told::finished(), waits(600)],
            "rank 1 on n1 finished, 2 others in all_reduce",
            Some((vec![1], Strength::Moderate)),
        ),
        (
            "one is left behind at the end",
            vec![Told::finished(), Told::finished(), stuck(&["close"], 600)],
            "rank 2 on n2 in close, 2 ranks finished",
            Some((vec![2], Strength::Moderate)),
        ),
        (
            "one finished, and of the other neither stack nor CPU time is known",
            vec![
                Told::finished(),
                stuck(&[], 600).without_stack().says(Cpu, Unknown("not Linux".to_owned()), None),
            ],
            "1 rank finished, rank 1 in an unknown place",
            None,
        ),
        (
            "the numbers of collectives tell who is behind",
            vec![waits(600).begun(120), waits(600).begun(119), waits(600).begun(120)],
            "rank 1 on n1 in all_reduce, 2 others in all_reduce",
            Some((vec![1], Strength::Strong)),
        ),
        (
            "no stacks, and all is idle",
            vec![stuck(&[], 600).without_stack(), stuck(&[], 600).without_stack()],
            "all 2 ranks in an unknown place",
            None,
        ),
    ] {
        let hang = Case::of(told).hang();
        assert_eq!(hang.words, format!("no progress for 10 min: {words}"), "{case}");
        let found = hang.odd.map(|odd| (odd.ranks, odd.strength));
        assert_eq!(found, odd, "{case}");
    }
}

#[test]
fn a_hang_takes_the_whole_window_of_the_samples() {
    for (seconds, want) in [(299, "moves"), (300, "suspected"), (599, "suspected"), (600, "hang")] {
        let outcome = Case::of(vec![waits(seconds), waits(seconds)]).judge();
        let name = match outcome {
            Outcome::Moves => "moves",
            Outcome::Suspected(suspicion) => {
                let want = Suspicion { since: at(100), allowed_seconds: WINDOW, stacks: true };
                assert_eq!(suspicion, want);
                "suspected"
            }
            Outcome::Hang(_) => "hang",
        };
        assert_eq!(name, want, "{seconds} s");
    }
}

#[test]
fn a_process_that_was_stopped_for_a_moment_stands_still_since_then_only() {
    let stopped = |since| {
        stuck(&["step"], 7200).without_stack().is(RunState::Stopped).says(
            WitnessKind::KernelState,
            WitnessSays::Changed,
            since,
        )
    };
    for (since, hangs) in [(Some(at(7290)), false), (None, false), (Some(at(6699)), true)] {
        let is_hang = matches!(Case::of(vec![stopped(since), waits(7200)]).judge(), Outcome::Hang(_));
        assert_eq!(is_hang, hangs, "{since:?}");
    }
}

#[test]
fn the_window_begins_when_the_last_rank_stopped_to_move() {
    // Rank 1 changed its functions at second 400.
    let late = |until: u64| {
        stuck(&["read_batch"], until - 100).says(WitnessKind::Stack, WitnessSays::Changed, Some(at(400)))
    };
    assert!(matches!(Case::of(vec![waits(899), late(999)]).judge(), Outcome::Suspected(_)));
    assert_eq!(Case::of(vec![waits(900), late(1000)]).hang().since, at(400));
    // A step of any rank that came later than the report says.
    let mut case = Case::of(vec![waits(900), waits(900)]);
    case.moved_at = Some(at(500));
    assert!(matches!(case.judge(), Outcome::Suspected(suspicion) if suspicion.since == at(500)));
}

#[test]
fn detection_starts_late_and_anew_with_each_launch() {
    let mut case = Case::of(vec![waits(900), waits(900)]);
    case.start_after_seconds = 401;
    assert!(matches!(case.judge(), Outcome::Suspected(_)), "900 s, of which 599 count");
    case.start_after_seconds = 400;
    assert_eq!(case.hang().since, at(400));
}

#[test]
fn phases_that_are_long_have_their_own_time() {
    for (case, launch, rank, learned, seconds, hangs) in [
        ("no phase", Phase::Training, None, None, 600, true),
        ("a marked evaluation", Phase::Evaluation, None, None, 3_599, false),
        ("… is not endless", Phase::Evaluation, None, None, 3_600, true),
        (
            "rank 0 saves, the others said that they train",
            Phase::Training,
            Some(Phase::Saving),
            None,
            3_599,
            false,
        ),
        ("communication has none", Phase::Communication, None, None, 600, true),
        ("the job was as quiet before", Phase::Training, None, Some((Phase::Training, 1_000)), 1_499, false),
        ("… and then half as long again", Phase::Training, None, Some((Phase::Training, 1_000)), 1_500, true),
        ("in another phase", Phase::Training, None, Some((Phase::Starting, 1_000)), 600, true),
        ("short ones do not shorten it", Phase::Training, None, Some((Phase::Training, 10)), 599, false),
    ] {
        let mut scene =
            Case::of(vec![stuck(&["save"], seconds).change(|still| still.phase = rank), waits(seconds)]);
        scene.phase = launch;
        if let Some((phase, seconds)) = learned {
            scene.quiet.learn(phase, at(0), at(seconds));
        }
        assert_eq!(matches!(scene.judge(), Outcome::Hang(_)), hangs, "{case}");
    }
    // A stopped process does not evaluate.
    let mut scene = Case::of(vec![stuck(&["eval"], 600).is(RunState::Stopped), waits(600)]);
    scene.phase = Phase::Evaluation;
    assert!(matches!(scene.judge(), Outcome::Hang(_)));
}

#[test]
fn what_is_learned_is_the_longest_stretch_that_is_believed() {
    let mut quiet = Quiet::default();
    for (phase, seconds) in
        [(Phase::Training, 5), (Phase::Training, 300), (Phase::Training, 20), (Phase::Saving, 90_000)]
    {
        quiet.learn(phase, at(0), at(seconds));
    }
    quiet.learn(Phase::Data, at(10), at(5));
    assert_eq!(quiet.longest(), Some(QuietPhase { phase: Phase::Training, seconds: 300 }));
    assert_eq!((quiet.of(Phase::Saving), quiet.of(Phase::Data)), (0, 0));
    let text = serde_json::to_string(&quiet).unwrap();
    assert_eq!(text, r#"{"training":300}"#);
    assert_eq!(serde_json::from_str::<Quiet>(&text).unwrap(), quiet);
}

#[test]
fn every_witness_is_named_whatever_it_says() {
    let told = vec![waits(600), stuck(&["read"], 600).without_stack(), waits(600).begun(3)];
    let hang = Case::of(told).hang();
    let words: Vec<_> = hang.witnesses.iter().map(|witness| (witness.kind, witness.words.as_str())).collect();
    assert_eq!(
        words,
        [
            (WitnessKind::Stack, "2 ranks in the same functions, not known of 1 rank (no permission)"),
            (WitnessKind::Output, "3 ranks printed nothing"),
            (WitnessKind::Cpu, "3 ranks idle"),
            (WitnessKind::Step, "no step after 41"),
            (WitnessKind::Checkpoint, "no file of the checkpoint directory grew"),
            (WitnessKind::Collective, "no collective was done by 1 rank that number them"),
        ]
    );
    assert_eq!(hang.witnesses[1].since, Some(at(90)));
}

#[test]
fn a_thousand_ranks_are_a_few_groups() {
    let mut told: Vec<Told> = (0..1_024).map(|_| waits(600)).collect();
    told[700] = stuck(&["read_batch"], 600);
    let hang = Case::of(told).hang();
    assert!(
        hang.words.ends_with("rank 700 on n700 in read_batch, 1023 others in all_reduce"),
        "{}",
        hang.words
    );
    assert_eq!(hang.groups.len(), 2);
    assert_eq!((hang.groups[0].count, hang.groups[0].ranks.len()), (1_023, 256));
    // Each elsewhere.
    let told: Vec<Told> = (0..40).map(|rank| stuck(&[&format!("place_{rank}")], 600)).collect();
    let hang = Case::of(told).hang();
    assert_eq!(hang.groups.len(), 16);
    assert_eq!(hang.groups.iter().map(|group| group.count).sum::<u32>(), 40);
    assert!(hang.words.ends_with("rank 2 in place_2, and 13 more places"), "{}", hang.words);
}

#[test]
fn the_place_of_a_stack_is_what_says_most() {
    for (frames, place) in [
        (
            &[
                "recv_bytes (multiprocessing/connection.py)",
                "get (multiprocessing/queues.py)",
                "next_batch (data.py)",
            ][..],
            "next_batch",
        ),
        (&["wait (threading.py)", "_engine_run_backward (torch/autograd/graph.py)"], "_engine_run_backward"),
        (&["readinto (socket.py)", "receive (peers.py)", "mean (peers.py)"], "receive"),
        (&["helper (a.py)", "all_reduce (torch/distributed/distributed_c10d.py)"], "all_reduce"),
        (&["poll", "select"], "poll"),
        (&[], "an unknown place"),
    ] {
        let mut told = stuck(&[], 600);
        told = told.change(|still| {
            let top = frames.iter().map(|frame| (*frame).to_owned()).collect();
            still.stack = Some(StackKey { hash: "h".to_owned(), top });
        });
        assert_eq!(Case::of(vec![told]).hang().groups[0].place, place);
    }
}

/// A small generator (xorshift64*), so that a case is its seed.
fn roll(state: &mut u64, sides: u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) % sides
}

fn random(state: &mut u64) -> Told {
    match roll(state, 8) {
        0 => Told::moves(),
        1 => Told::finished(),
        _ => {
            let tops: [&[&str]; 3] = [&["all_reduce"], &["read"], &["spin"]];
            let mut told = stuck(tops[roll(state, 3) as usize], roll(state, 2_000));
            for kind in [WitnessKind::Stack, WitnessKind::Output, WitnessKind::Cpu, WitnessKind::Step] {
                let since = (roll(state, 2) == 0).then(|| at(roll(state, 2_000)));
                let says = match roll(state, 4) {
                    0 => WitnessSays::Changed,
                    1 => WitnessSays::Unknown("because".to_owned()),
                    _ => WitnessSays::Unchanged,
                };
                told = told.says(kind, says, since);
            }
            let states = [RunState::Running, RunState::Sleeping, RunState::Stopped, RunState::Traced];
            told.is(states[roll(state, 4) as usize])
        }
    }
}

/// Properties of whatever ranks say: one that moves is never in a hang, a hang has the whole window behind it, every live rank is in
/// exactly one group, and to say less of a rank never makes a hang of what was none.
#[test]
fn whatever_is_said_a_hang_has_grounds() {
    let mut hangs = 0;
    for seed in 1..=4_000u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let told: Vec<Told> = (0..1 + roll(&mut state, 4)).map(|_| random(&mut state)).collect();
        let case = Case::of(told);
        let Outcome::Hang(hang) = case.judge() else { continue };
        hangs += 1;
        assert!(hang.until.seconds_since(hang.since) >= f64::from(hang.allowed_seconds), "seed {seed}");
        let live = case.told.iter().filter(|told| told.still.is_some()).count() as u32;
        assert_eq!(hang.groups.iter().map(|group| group.count).sum::<u32>(), live, "seed {seed}");
        assert!(case.told.iter().all(|told| told.finished || told.still.is_some()), "seed {seed}");
        for told in case.told.iter().filter_map(|told| told.still.as_ref()) {
            assert!(told.state.as_ref().is_none_or(|state| state.is != RunState::Traced), "seed {seed}");
        }
        assert!(hang.odd.iter().all(|odd| !odd.ranks.is_empty() && !odd.why.is_empty()), "seed {seed}");
        assert!(!hang.words.is_empty() && hang.witnesses.iter().all(|witness| !witness.words.is_empty()));
        // The same with one rank more that moves, or of which nothing is known.
        let mut more = case.told.clone();
        more.push(Told::moves());
        assert_eq!(Case::of(more).judge(), Outcome::Moves, "seed {seed}");
    }
    assert!(hangs > 50, "{hangs} hangs in all");
}
