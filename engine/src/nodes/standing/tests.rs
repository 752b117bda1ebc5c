use super::*;

const NOW: Time = Time(1_767_225_600_000_000);
const DAY: u64 = 86_400;

fn node(number: u32) -> NodeName {
    NodeName::new(format!("n{number}")).unwrap()
}

/// Strike `number` of a node, of a job of its own where none is named.
fn mark(number: u32, on: u32, job: char, seconds_ago: u64) -> Mark {
    Mark {
        node: node(on),
        job: JobId::new(format!("j{}", String::from(job).repeat(11))).unwrap(),
        incident: IncidentId::new(format!("demo-jabcdefghij2-1-i{number}")).unwrap(),
        at: Time(NOW.0 - seconds_ago as i64 * 1_000_000),
    }
}

fn ward(total: u32, marks: Vec<Mark>) -> Ward {
    Ward { total: Some(total), marks, ..Ward::default() }
}

/// Reviews and takes the changes, as whoever keeps them does.
fn settle(ward: &mut Ward, now: Time) -> Vec<String> {
    let mut told = Vec::new();
    for change in review(&NodeRules::default(), ward, now) {
        match change {
            Change::Node { node, record, text } => {
                ward.records.insert(node, record);
                told.push(text);
            }
            Change::Tripped(trip) => {
                told.push(trip.text.clone());
                ward.cap.tripped = Some(trip);
            }
        }
    }
    assert_eq!(review(&NodeRules::default(), ward, now), [], "asked again, nothing follows");
    told
}

fn out(ward: &Ward) -> Vec<&str> {
    ward.records
        .iter()
        .filter(|(_, record)| record.quarantine.is_some())
        .map(|(name, _)| name.as_str())
        .collect()
}

#[test]
fn the_third_strike_within_a_week_puts_a_node_out_for_a_day() {
    let mut ward = ward(16, vec![mark(1, 7, 'a', 6 * DAY), mark(2, 7, 'b', DAY)]);
    assert_eq!(settle(&mut ward, NOW), [""; 0]);
    ward.marks.push(mark(3, 7, 'c', 1));
    assert_eq!(settle(&mut ward, NOW), ["n7 is quarantined for 1 d 0 h: 3 strikes within 7 d 0 h."]);
    let held = ward.records[&node(7)].quarantine.clone().unwrap();
    assert_eq!((held.until, held.by.as_str()), (Some(NOW.plus_seconds(DAY)), "holdfast"));
}

#[test]
fn a_strike_that_is_old_released_or_the_jobs_own_does_not_count() {
    let rules = NodeRules::default();
    let many = vec![mark(1, 1, 'a', 20), mark(2, 2, 'a', 15), mark(3, 3, 'a', 10), mark(4, 3, 'b', 10)];
    let released = NodeRecord { counts_from: Some(Time(NOW.0 - 12_000_000)), ..NodeRecord::default() };
    for (case, record, mark, want) in [
        ("on the last second", NodeRecord::default(), mark(5, 4, 'c', 7 * DAY - 1), None),
        ("too old", NodeRecord::default(), mark(5, 4, 'c', 7 * DAY), Some(Uncounted::Expired)),
        ("before a release", released.clone(), mark(5, 4, 'c', 13), Some(Uncounted::Released)),
        ("after it", released, mark(5, 4, 'c', 11), None),
        ("one job, three nodes", NodeRecord::default(), many[0].clone(), Some(Uncounted::Correlated)),
        ("another job on the same node", NodeRecord::default(), many[3].clone(), None),
    ] {
        assert_eq!(Tally::new(&rules, &Marks::of(&many), NOW).uncounted(&record, &mark), want, "{case}");
    }
    let two = &many[..2];
    assert_eq!(
        Tally::new(&rules, &Marks::of(two), NOW).uncounted(&NodeRecord::default(), &two[0]),
        None,
        "two nodes are not many"
    );
}

#[test]
fn nothing_is_put_out_while_the_size_of_the_cluster_is_not_known() {
    let marks: Vec<_> = ['a', 'b', 'c'].into_iter().zip(1..).map(|(job, n)| mark(n, 7, job, 1)).collect();
    let mut ward = Ward { total: None, ..ward(0, marks) };
    assert_eq!(settle(&mut ward, NOW), [""; 0]);
    ward.total = Some(4);
    assert_eq!(settle(&mut ward, NOW).len(), 1);
}

#[test]
fn after_its_quarantine_a_node_is_on_trial_and_the_first_strike_puts_it_out_again_at_last_until_a_person_acts()
 {
    let marks: Vec<_> = ['a', 'b', 'c'].into_iter().zip(1..).map(|(job, n)| mark(n, 7, job, 1)).collect();
    let mut ward = ward(16, marks);
    settle(&mut ward, NOW);
    let mut now = NOW;
    for round in 2..=LIMIT_OF_ROUNDS {
        now = now.plus_seconds(DAY);
        assert!(settle(&mut ward, now)[0].contains("on trial"));
        assert_eq!(state(&ward.records[&node(7)], 0, false), NodeState::OnTrial);
        now = now.plus_seconds(60);
        ward.marks.push(Mark { at: now, ..mark(round + 2, 7, 'd', 0) });
        let told = settle(&mut ward, now);
        assert!(told[0].contains("a strike while it was on trial"), "{told:?}");
    }
    assert_eq!(ward.records[&node(7)].quarantine.as_ref().unwrap().until, None);
    now = now.plus_seconds(365 * DAY);
    assert_eq!(settle(&mut ward, now), [""; 0], "it stays out");
    ward.records.get_mut(&node(7)).unwrap().release(now);
    assert_eq!(settle(&mut ward, now), [""; 0]);
    assert_eq!(out(&ward), [""; 0]);
}

#[test]
fn a_quiet_trial_ends_well() {
    let until = Some(NOW);
    let mut record = NodeRecord { rounds: 2, ..NodeRecord::default() };
    record.quarantine("ann", "fan noise", until, Time(NOW.0 - 1));
    let mut ward = ward(4, Vec::new());
    ward.records.insert(node(1), record);
    assert!(settle(&mut ward, NOW)[0].contains("on trial"));
    assert!(settle(&mut ward, NOW.plus_seconds(7 * DAY))[0].contains("is ready"));
    assert_eq!(ward.records[&node(1)].rounds, 0);
}

#[test]
fn the_cap_trips_once_is_latched_and_works_again_when_it_was_reset() {
    let struck = |on: u32, number: u32| -> Vec<Mark> {
        ['a', 'b', 'c']
            .into_iter()
            .zip(number..)
            .map(|(job, n)| mark(n, on, job, u64::from(on) * 100))
            .collect()
    };
    // A cap of 1 of 4.
    let mut ward = ward(4, [struck(1, 1), struck(2, 4), struck(3, 7)].concat());
    let told = settle(&mut ward, NOW);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told[1]
            .starts_with("n2 has 3 strikes and is not quarantined: 1 of 4 nodes are out, and the cap is 1."),
        "{told:?}"
    );
    assert_eq!(out(&ward), ["n1"]);
    // A release goes on, and alone it does not lift the latch.
    ward.records.get_mut(&node(1)).unwrap().release(NOW);
    assert_eq!(settle(&mut ward, NOW), [""; 0]);
    assert_eq!(out(&ward), [""; 0]);
    ward.cap = Cap { reset_at: Some(NOW), tripped: None };
    let now = NOW.plus_seconds(1);
    assert_eq!(settle(&mut ward, now).len(), 2);
    assert_eq!(out(&ward), ["n2"]);
    // Reset again, one more may go: what the person has seen does not count; half of the cluster always stays.
    ward.cap = Cap { reset_at: Some(now), tripped: None };
    settle(&mut ward, now.plus_seconds(1));
    assert_eq!(out(&ward), ["n2", "n3"]);
    ward.cap = Cap { reset_at: Some(now.plus_seconds(1)), tripped: None };
    ward.marks.extend(struck(4, 10));
    let told = settle(&mut ward, now.plus_seconds(2));
    assert!(told[0].contains("never more than half"), "{told:?}");
}

#[test]
fn the_cap_is_a_share_at_least_one_and_never_more_than_half() {
    let rules = NodeRules::default();
    for (total, want) in [(0, 0), (1, 0), (2, 1), (4, 1), (7, 1), (8, 2), (16, 4), (1000, 250)] {
        assert_eq!(rules.cap(total), want, "{total}");
    }
    let all = NodeRules { cap_percent: 100, ..rules };
    assert_eq!(all.cap(9), 4);
}

#[test]
fn a_person_may_put_out_and_let_in_whatever_the_cap_says() {
    let mut record = NodeRecord::default();
    record.quarantine("ann", &"x".repeat(1_000), None, NOW);
    let held = record.quarantine.clone().unwrap();
    assert_eq!((held.reason.len(), held.by.as_str()), (REASON_CHARS, "ann"));
    record.quarantine("bob", "longer", Some(NOW.plus_seconds(9)), NOW.plus_seconds(5));
    assert_eq!(
        record.quarantine.as_ref().unwrap().since,
        NOW,
        "the time that it is out began with the first"
    );
    record.release(NOW.plus_seconds(6));
    assert_eq!(state(&record, 0, false), NodeState::Ready);
    assert_eq!(state(&record, 0, true), NodeState::Suspected);
}

/// The strike of job `job` that came so many seconds after [`NOW`].
fn later(number: u32, on: u32, job: char, seconds: u64) -> Mark {
    Mark { at: NOW.plus_seconds(seconds), ..mark(number, on, job, 0) }
}

#[test]
fn a_quarantine_is_withdrawn_when_the_job_goes_on_to_strike_other_nodes() {
    let mut ward = ward(16, vec![mark(1, 7, 'a', DAY), mark(2, 7, 'b', DAY), mark(3, 7, 'c', 0)]);
    settle(&mut ward, NOW);
    assert_eq!(out(&ward), ["n7"]);
    ward.marks.push(later(4, 8, 'c', 10));
    assert_eq!(settle(&mut ward, NOW.plus_seconds(11)), [""; 0], "two nodes are not many");
    ward.marks.push(later(5, 9, 'c', 20));
    let told = settle(&mut ward, NOW.plus_seconds(21));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("The quarantine of n7 is withdrawn: a job that struck it"), "{told:?}");
    assert_eq!(ward.records[&node(7)], NodeRecord::default(), "it stands as before");
    // A strike of a job of its own counts beside those that did before.
    ward.marks.push(later(6, 7, 'd', 60));
    assert_eq!(settle(&mut ward, NOW.plus_seconds(60)).len(), 1);
    assert_eq!(out(&ward), ["n7"]);
}

#[test]
fn a_quarantine_stands_that_a_person_took_over_or_that_other_strikes_carry() {
    let marks = || vec![mark(1, 7, 'a', DAY), mark(2, 7, 'b', DAY), mark(3, 7, 'c', 0)];
    let many = [later(4, 8, 'c', 10), later(5, 9, 'c', 20)];
    let now = NOW.plus_seconds(21);

    let mut taken = ward(16, marks());
    settle(&mut taken, NOW);
    taken.records.get_mut(&node(7)).unwrap().quarantine("ann", "fan", None, NOW.plus_seconds(5));
    taken.marks.extend(many.clone());
    assert_eq!(settle(&mut taken, now), [""; 0], "a person keeps it out");

    let mut carried = ward(16, [marks(), vec![mark(9, 7, 'e', 60)]].concat());
    settle(&mut carried, NOW);
    carried.marks.extend(many.clone());
    assert_eq!(settle(&mut carried, now), [""; 0], "three others are left");

    let mut forgotten = ward(16, marks());
    settle(&mut forgotten, NOW);
    forgotten.marks.clear();
    forgotten.marks.extend(many);
    assert_eq!(settle(&mut forgotten, now), [""; 0], "a deleted job does not let it in");
    assert_eq!(out(&forgotten), ["n7"]);
}

#[test]
fn a_node_whose_quarantine_is_withdrawn_is_on_trial_again_and_the_round_does_not_count() {
    let trial_since = Some(Time(NOW.0 - 1_000_000));
    let before = NodeRecord { counts_from: trial_since, trial_since, rounds: 2, ..NodeRecord::default() };
    let mut ward = ward(16, vec![mark(1, 7, 'a', 0)]);
    ward.records.insert(node(7), before.clone());
    settle(&mut ward, NOW);
    assert_eq!(ward.records[&node(7)].quarantine.as_ref().unwrap().until, None, "the third in a row");
    ward.marks.extend([later(2, 8, 'a', 1), later(3, 9, 'a', 1)]);
    settle(&mut ward, NOW.plus_seconds(2));
    assert_eq!(ward.records[&node(7)], before);
}

#[test]
fn strikes_of_one_job_are_many_as_they_were_known_then() {
    let all = [
        mark(1, 7, 'a', 20),
        mark(2, 8, 'a', 10),
        mark(3, 9, 'a', 0),
        mark(4, 9, 'b', 10),
        mark(5, 7, 'a', 60),
    ];
    let marks = Marks::of(&all);
    let ago = |seconds: i64| Time(NOW.micros() - seconds * 1_000_000);
    assert!(marks.is_correlated(&all[0], NOW));
    assert!(!marks.is_correlated(&all[0], ago(1)), "the third node was not struck yet");
    assert!(!marks.is_correlated(&all[3], NOW), "another job");
    assert!(!marks.is_correlated(&all[4], NOW), "too long before");
    // Any three nodes within reach of it count, those before and after.
    assert!(marks.is_correlated(&all[2], NOW));
    assert_eq!(marks.of_node(&all[0].node).len(), 2);
    assert_eq!(marks.nodes().count(), 3);
}
