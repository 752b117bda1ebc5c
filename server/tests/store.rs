//! Every query of the store on SQLite and, where `HOLDFAST_TEST_POSTGRES` names a server on which databases may be created, on
//! Postgres too, each test in a database of its own.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[cfg(test)]
mod accounts;
#[cfg(test)]
mod databases;
#[cfg(test)]
mod diagnoses;
#[cfg(test)]
mod idempotency;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod usage;
#[cfg(test)]
mod wards;

use sqlx::AnyConnection;

use app::console::{CheckpointMark, EventsQuery, JobsQuery, JobsSort, JobsViewName};
use databases::{on_each_database, on_new_postgres};
use engine::{
    chain::Request,
    failure::FailureType,
    ids::{IncidentId, JobId, NodeName, TaskId},
    job::JobKind,
    record::{EventKind, EventReason, EventRecord, Record, State},
    time::Time,
};
use samples::{Sample, at, event, incident, job_id, launch, points, strike, task_id};
use server::{
    logs::sweep::Sweep,
    store::{
        Store, StoreError, Write, attempts, changes, checkpoints, commit, events, inbox, incidents, instance,
        jobs, launches, leader, nodes, points as curve, stacks, steps,
    },
};

/// Takes the lead, as a driver does at its start.
async fn lead(store: &Store) -> i64 {
    let mut tx = store.write().await.unwrap();
    let epoch = leader::take(&mut tx, "test", at(0), at(10), true).await.unwrap().unwrap();
    commit(tx).await.unwrap();
    epoch
}

async fn create(store: &Store, sample: &Sample) {
    let mut tx = store.write().await.unwrap();
    steps::create(&mut tx, sample.origin(), sample.kept()).await.unwrap();
    commit(tx).await.unwrap();
}

async fn write(store: &Store, epoch: i64, seen: i64, sample: &Sample) -> Write {
    let mut tx = store.write().await.unwrap();
    let written = steps::write(&mut tx, epoch, seen, sample.kept()).await.unwrap();
    commit(tx).await.unwrap();
    written
}

fn ids(page: &jobs::Page) -> Vec<&str> {
    page.items.iter().map(|job| job.job_id.as_str()).collect()
}

/// Makes jobs and deletes them.
async fn forget(store: &Store, jobs: &[u32]) {
    let epoch = lead(store).await;
    for n in jobs {
        create(store, &Sample::new(*n)).await;
        let mut tx = store.write().await.unwrap();
        assert_eq!(steps::forget(&mut tx, epoch, &job_id(*n), at(1)).await.unwrap(), Write::Done);
        commit(tx).await.unwrap();
    }
}

#[tokio::test]
async fn what_a_server_keeps_of_a_job_goes_once_the_job_is_deleted() {
    on_each_database(async |store| {
        create(&store, &Sample::new(1)).await;
        forget(&store, &[2]).await;
        let dir = tempfile::tempdir().unwrap();
        let mut sweep = Sweep::new(dir.path(), store.clone());
        assert_eq!(sweep.round().await.unwrap(), [], "nothing is kept yet");
        let (here, gone, unknown) = (job_id(1), job_id(2), job_id(3));
        for name in [here.as_str(), gone.as_str(), unknown.as_str(), "notes"] {
            std::fs::create_dir_all(dir.path().join("jobs").join(name).join("attempt")).unwrap();
        }
        assert_eq!(sweep.round().await.unwrap(), [gone]);
        assert_eq!(sweep.round().await.unwrap(), []);
        let mut left: Vec<_> = std::fs::read_dir(dir.path().join("jobs"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort_unstable();
        // A job that the database does not know may have come after the copy that it was put back from.
        assert_eq!(left, [here.as_str(), unknown.as_str(), "notes"], "nobody deleted them");
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_removed_keeps_nothing_behind_it() {
    on_each_database(async |store| {
        forget(&store, &[1, 2]).await;
        let dir = tempfile::tempdir().unwrap();
        let jobs = dir.path().join("jobs");
        std::fs::create_dir_all(jobs.join(job_id(2).as_str())).unwrap();
        // No directory, so it cannot be removed as one.
        std::fs::write(jobs.join(job_id(1).as_str()), "").unwrap();
        let mut sweep = Sweep::new(dir.path(), store);
        assert_eq!(sweep.round().await.unwrap(), [job_id(2)]);
        assert_eq!(sweep.round().await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn a_database_that_is_opened_twice_keeps_what_it_holds() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/holdfast.db", dir.path().display());
    let store = Store::open(&url).await.unwrap();
    create(&store, &Sample::new(1)).await;
    store.close().await;
    let store = Store::open(&url).await.unwrap();
    assert!(jobs::head(&mut store.read().await.unwrap(), &job_id(1)).await.unwrap().is_some());
    store.ping().await.unwrap();
}

#[tokio::test]
async fn an_address_of_no_database_says_what_one_looks_like() {
    for url in ["mysql://me:secret@db/x", "/data/holdfast.db", ""] {
        let error = Store::open(url).await.unwrap_err();
        assert!(matches!(error, StoreError::Address { .. }), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    let missing = Store::open("sqlite:///no/such/directory/holdfast.db").await.unwrap_err();
    assert!(matches!(missing, StoreError::Open { .. }), "{missing}");
}

#[tokio::test]
async fn the_installation_keeps_its_first_secret() {
    on_each_database(async |store| {
        let mut conn = store.read().await.unwrap();
        let first = instance::open(&mut conn, [171; 32], at(1)).await.unwrap();
        let second = instance::open(&mut conn, [2; 32], at(2)).await.unwrap();
        assert_eq!((first.secret, second.secret), ([171; 32], [171; 32]));
        assert!(!format!("{first:?}").contains("171"));
    })
    .await;
}

#[tokio::test]
async fn one_server_leads_until_its_time_is_over() {
    on_each_database(async |store| {
        let mut conn = store.write().await.unwrap();
        let first = leader::take(&mut conn, "a", at(0), at(15), false).await.unwrap().unwrap();
        assert_eq!(leader::take(&mut conn, "b", at(14), at(29), false).await.unwrap(), None);
        assert!(leader::renew(&mut conn, first, at(20)).await.unwrap());
        assert_eq!(leader::take(&mut conn, "b", at(19), at(34), false).await.unwrap(), None);
        let second = leader::take(&mut conn, "b", at(20), at(35), false).await.unwrap().unwrap();
        assert!(second > first);
        assert!(!leader::renew(&mut conn, first, at(40)).await.unwrap());
        assert!(!leader::is_current(&mut conn, first).await.unwrap());
        leader::release(&mut conn, first).await.unwrap();
        assert!(leader::is_current(&mut conn, second).await.unwrap(), "only its own lead can be given up");
        leader::release(&mut conn, second).await.unwrap();
        assert!(leader::take(&mut conn, "a", at(21), at(36), false).await.unwrap().is_some());
    })
    .await;
}

#[tokio::test]
async fn a_step_is_written_once_and_only_by_the_leader() {
    on_each_database(async |store| {
        let epoch = lead(&store).await;
        let sample = Sample::new(1);
        create(&store, &sample).await;
        assert_eq!(write(&store, epoch, 1, &sample).await, Write::Done);
        assert_eq!(write(&store, epoch, 1, &sample).await, Write::ChangedUnderUs);
        assert_eq!(write(&store, epoch - 1, 2, &sample).await, Write::NotLeader);
        assert_eq!(write(&store, epoch, 2, &Sample::new(2)).await, Write::ChangedUnderUs, "no such job");
        let mut conn = store.read().await.unwrap();
        let stored = jobs::chain(&mut conn, &job_id(1)).await.unwrap().unwrap();
        assert_eq!((stored.generation, &stored.chain), (2, &sample.chain));
        let events = events::page(&mut conn, &job_id(1), &EventsQuery::default()).await.unwrap();
        assert_eq!(events.total, 2, "a lost step leaves nothing");
    })
    .await;
}

#[tokio::test]
async fn a_job_that_ends_has_an_end_until_it_is_reopened() {
    on_each_database(async |store| {
        let epoch = lead(&store).await;
        let ended = async || {
            jobs::head(&mut store.read().await.unwrap(), &job_id(1)).await.unwrap().unwrap().ended_at
        };
        create(&store, &Sample::new(1).at(1)).await;
        assert_eq!(ended().await, None);
        write(&store, epoch, 1, &Sample::new(1).at(5).state(State::Failed)).await;
        write(&store, epoch, 2, &Sample::new(1).at(9).state(State::Failed)).await;
        assert_eq!(ended().await, Some(at(5)), "the end stays where it was");
        write(&store, epoch, 3, &Sample::new(1).at(12).state(State::Queued)).await;
        assert_eq!(ended().await, None);
    })
    .await;
}

#[tokio::test]
async fn jobs_are_found_by_every_filter_and_in_every_order() {
    on_each_database(async |store| {
        for (n, sample) in [
            Sample::new(1).at(1).name("alpha").owner("ann").state(State::Running),
            Sample::new(2).at(2).name("Beta 50%").owner("bob").state(State::Recovering).restarts(3),
            Sample::new(3).at(3).name("gamma_ray").owner("ann").kind(JobKind::RayJob).state(State::Running),
            Sample::new(4)
                .at(4)
                .name("delta")
                .owner("bob")
                .state(State::Failed)
                .fault(FailureType::HwNode)
                .attention(),
        ]
        .into_iter()
        .enumerate()
        {
            create(&store, &sample).await;
            assert!(n < 4);
        }
        let mut conn = store.read().await.unwrap();
        let all = JobsQuery::default;
        for (case, query, want) in [
            ("newest first", all(), vec![4, 3, 2, 1]),
            ("oldest first", JobsQuery { sort: Some(JobsSort::Oldest), ..all() }, vec![1, 2, 3, 4]),
            ("most restarts", JobsQuery { sort: Some(JobsSort::Restarts), ..all() }, vec![2, 4, 3, 1]),
            ("attention", JobsQuery { view: Some(JobsViewName::Attention), ..all() }, vec![4]),
            ("running", JobsQuery { view: Some(JobsViewName::Running), ..all() }, vec![3, 1]),
            ("recovering", JobsQuery { view: Some(JobsViewName::Recovering), ..all() }, vec![2]),
            ("mine", JobsQuery { view: Some(JobsViewName::Mine), ..all() }, vec![3, 1]),
            ("state", JobsQuery { state: Some(State::Failed), ..all() }, vec![4]),
            ("kind", JobsQuery { kind: Some(JobKind::RayJob), ..all() }, vec![3]),
            ("fault", JobsQuery { fault: Some(FailureType::HwNode), ..all() }, vec![4]),
            ("owner", JobsQuery { owner: Some("bob".to_owned()), ..all() }, vec![4, 2]),
            ("restarts", JobsQuery { restarts: Some(3), ..all() }, vec![2]),
            ("part of a name", JobsQuery { q: Some(" ALPH ".to_owned()), ..all() }, vec![1]),
            ("an id", JobsQuery { q: Some(job_id(3).to_string()), ..all() }, vec![3]),
            ("a percent sign is no wildcard", JobsQuery { q: Some("50%".to_owned()), ..all() }, vec![2]),
            ("an underscore is no wildcard", JobsQuery { q: Some("a_r".to_owned()), ..all() }, vec![3]),
            ("a quote is no SQL", JobsQuery { q: Some("' OR 1=1 --".to_owned()), ..all() }, vec![]),
            (
                "two filters",
                JobsQuery { state: Some(State::Running), owner: Some("bob".to_owned()), ..all() },
                vec![],
            ),
        ] {
            let page = jobs::page(&mut conn, &query, "ann").await.unwrap();
            let want: Vec<_> = want.into_iter().map(|n| job_id(n).to_string()).collect();
            assert_eq!(ids(&page), want, "{case}");
            assert_eq!(page.total, want.len() as u64, "{case}");
        }
        let counts = jobs::counts(&mut conn, "ann").await.unwrap();
        assert_eq!(
            (counts.attention, counts.running, counts.recovering, counts.all, counts.mine),
            (1, 2, 1, 4, 2)
        );
    })
    .await;
}

#[tokio::test]
async fn what_is_read_in_a_snapshot_is_of_one_moment() {
    on_each_database(async |store| {
        create(&store, &Sample::new(1)).await;
        let mut conn = store.snapshot().await.unwrap();
        assert_eq!(jobs::counts(&mut conn, "ann").await.unwrap().all, 1);
        create(&store, &Sample::new(2)).await;
        assert_eq!(jobs::counts(&mut conn, "ann").await.unwrap().all, 1, "the second came after that moment");
        drop(conn);
        let mut conn = store.snapshot().await.unwrap();
        assert_eq!(jobs::counts(&mut conn, "ann").await.unwrap().all, 2);
    })
    .await;
}

#[tokio::test]
async fn pages_of_jobs_do_not_overlap() {
    on_each_database(async |store| {
        for n in 0..25 {
            create(&store, &Sample::new(n).at(7)).await;
        }
        let mut conn = store.read().await.unwrap();
        let mut seen = Vec::new();
        for number in 1..=4 {
            let query = JobsQuery { page: Some(number), size: Some(10), ..JobsQuery::default() };
            let page = jobs::page(&mut conn, &query, "ann").await.unwrap();
            assert_eq!((page.total, page.size), (25, 10));
            seen.extend(page.items.into_iter().map(|job| job.job_id));
        }
        assert_eq!(seen.len(), 25);
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 25);
        let huge = JobsQuery { size: Some(u32::MAX), page: Some(u32::MAX), ..JobsQuery::default() };
        assert_eq!(jobs::page(&mut conn, &huge, "ann").await.unwrap().size, jobs::PAGE_MAX);
    })
    .await;
}

#[tokio::test]
async fn live_and_changed_jobs_are_listed_by_their_cursors() {
    on_each_database(async |store| {
        for n in 0..5 {
            let sample = Sample::new(n).at(u64::from(n));
            create(&store, &if n == 2 { sample.idle() } else { sample }).await;
        }
        let mut conn = store.read().await.unwrap();
        let first = jobs::live(&mut conn, None, 3).await.unwrap();
        let rest = jobs::live(&mut conn, first.last().map(|(id, _)| id), 3).await.unwrap();
        let live: Vec<_> = first.iter().chain(&rest).map(|(id, _)| id.clone()).collect();
        assert_eq!(live, [0, 1, 3, 4].map(job_id));
        assert!(first.iter().all(|(id, stored)| stored.as_ref().unwrap().chain.job_id() == id));
        assert_eq!(jobs::live_ids(&mut conn, Some(&job_id(0)), 2).await.unwrap(), [1, 3].map(job_id));
        assert_eq!(jobs::live_since(&mut conn, at(1), 2).await.unwrap(), [4, 3].map(job_id));
        assert_eq!(jobs::live_since(&mut conn, at(1), 9).await.unwrap(), [4, 3, 1].map(job_id));
        let changed = jobs::changed_since(&mut conn, at(3), 10).await.unwrap();
        assert_eq!(changed, [(job_id(3), 1, at(3)), (job_id(4), 1, at(4))]);
    })
    .await;
}

#[tokio::test]
async fn records_replace_those_of_the_same_key_and_come_back_in_order() {
    on_each_database(async |store| {
        let epoch = lead(&store).await;
        let (one, two) = (task_id(1, 1), task_id(1, 2));
        let first = Sample::new(1).records(vec![
            Record::Attempt(samples::attempt(1, 1)),
            Record::Launch(one.clone(), launch(0)),
            Record::Launch(one.clone(), launch(1)),
            Record::Incident(one.clone(), incident(&one, 1)),
        ]);
        create(&store, &first).await;
        let mut changed = samples::attempt(1, 1);
        changed.state = State::Failed;
        let mut restarted = launch(1);
        restarted.ended_at = Some(at(30));
        let second = Sample::new(1).records(vec![
            Record::Attempt(samples::attempt(1, 2)),
            Record::Attempt(changed.clone()),
            Record::Launch(one.clone(), restarted.clone()),
            Record::Launch(two.clone(), launch(0)),
            Record::Incident(two.clone(), incident(&two, 1)),
        ]);
        assert_eq!(write(&store, epoch, 1, &second).await, Write::Done);

        let mut conn = store.read().await.unwrap();
        let page = attempts::page(&mut conn, &job_id(1), 1, 100).await.unwrap();
        assert_eq!(page, [changed.clone(), samples::attempt(1, 2)]);
        assert_eq!(attempts::page(&mut conn, &job_id(1), 2, 1).await.unwrap().len(), 1);
        assert_eq!(attempts::find(&mut conn, &one).await.unwrap(), Some((job_id(1), changed)));
        assert_eq!(attempts::find(&mut conn, &task_id(9, 1)).await.unwrap(), None);
        assert_eq!(
            attempts::task_ids(&mut conn, &job_id(1), 1, 10).await.unwrap(),
            [one.clone(), two.clone()]
        );
        let all = launches::of_attempts(&mut conn, &job_id(1), 1..=2).await.unwrap();
        assert_eq!(all, [(1, launch(0)), (1, restarted.clone()), (2, launch(0))]);
        assert_eq!(launches::newest(&mut conn, &job_id(1), 1).await.unwrap(), Some(restarted));
        assert_eq!(launches::newest(&mut conn, &job_id(1), 3).await.unwrap(), None);
        assert_eq!(launches::of_attempts(&mut conn, &job_id(1), 2..=2).await.unwrap().len(), 1);
        let all = incidents::of_attempts(&mut conn, &job_id(1), 1..=9).await.unwrap();
        assert_eq!(all, [(1, incident(&one, 1)), (2, incident(&two, 1))]);
    })
    .await;
}

#[tokio::test]
async fn a_persons_answer_survives_that_the_incident_is_written_again() {
    on_each_database(async |store| {
        let epoch = lead(&store).await;
        let task = task_id(1, 1);
        let written = incident(&task, 1);
        let sample = Sample::new(1).records(vec![Record::Incident(task.clone(), written.clone())]);
        create(&store, &sample).await;
        for answer in [Some(true), Some(false), None] {
            let mut tx = store.write().await.unwrap();
            let job = incidents::answer(&mut tx, &written.id, answer).await.unwrap();
            commit(tx).await.unwrap();
            assert_eq!(job, Some(job_id(1)));
            let mut conn = store.read().await.unwrap();
            let seen = jobs::head(&mut conn, &job_id(1)).await.unwrap().unwrap().generation;
            assert_eq!(write(&store, epoch, seen, &sample).await, Write::Done);
            let read = incidents::of_attempts(&mut conn, &job_id(1), 1..=1).await.unwrap();
            assert_eq!(read[0].1.right, answer);
        }
        let mut tx = store.write().await.unwrap();
        let nobody = IncidentId::of_attempt(&task, 7);
        assert_eq!(incidents::answer(&mut tx, &nobody, Some(true)).await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn events_page_from_the_newest_and_filter() {
    on_each_database(async |store| {
        let epoch = lead(&store).await;
        let task = task_id(1, 1);
        let three = |from: u64| {
            vec![
                Record::Event(event(from, EventKind::State, None)),
                Record::Event(event(from + 1, EventKind::Decision, Some(&task))),
                Record::Event(event(from + 2, EventKind::State, Some(&task))),
            ]
        };
        create(&store, &Sample::new(1).records(three(1))).await;
        write(&store, epoch, 1, &Sample::new(1).records(three(4))).await;
        let mut conn = store.read().await.unwrap();
        let mut query = EventsQuery { limit: Some(4), ..EventsQuery::default() };
        let first = events::page(&mut conn, &job_id(1), &query).await.unwrap();
        query.cursor = first.next_cursor.clone();
        let second = events::page(&mut conn, &job_id(1), &query).await.unwrap();
        let times: Vec<_> = first.items.iter().chain(&second.items).map(|event| event.at).collect();
        assert_eq!(times, [6, 5, 4, 3, 2, 1].map(at));
        assert_eq!((first.total, second.next_cursor), (6, None));
        let states =
            EventsQuery { kind: Some(EventKind::State), task: Some(task.clone()), ..EventsQuery::default() };
        let page = events::page(&mut conn, &job_id(1), &states).await.unwrap();
        assert_eq!(
            page.items,
            [event(6, EventKind::State, Some(&task)), event(3, EventKind::State, Some(&task))]
        );
        assert_eq!(page.total, 2, "all that match, not all there are");
        let resumed =
            EventRecord { reason: Some(EventReason::Resumed), ..event(7, EventKind::Progress, None) };
        let saved = EventRecord { reason: None, ..event(8, EventKind::Progress, None) };
        let more = [Record::Event(resumed.clone()), Record::Event(saved)];
        write(&store, epoch, 2, &Sample::new(1).records(more.to_vec())).await;
        let told = EventsQuery { checkpoints: Some(false), limit: Some(2), ..EventsQuery::default() };
        let page = events::page(&mut conn, &job_id(1), &told).await.unwrap();
        assert_eq!((page.items[0].clone(), page.items[1].at, page.total), (resumed, at(6), 7));
        let bad = EventsQuery { cursor: Some("nonsense".to_owned()), ..EventsQuery::default() };
        let error = events::page(&mut conn, &job_id(1), &bad).await.unwrap_err();
        assert!(matches!(error, StoreError::Cursor { .. }), "{error}");
    })
    .await;
}

#[tokio::test]
async fn what_is_told_again_is_looked_for_among_the_newest_entries() {
    on_each_database(async |store| {
        let epoch = lead(&store).await;
        let entry = |seconds, kind| Record::Event(event(seconds, kind, Some(&task_id(1, 1))));
        let first = [10, 20].map(|seconds| entry(seconds, EventKind::Decision));
        create(&store, &Sample::new(1).records(first.into())).await;
        // Together with one of the first two they are all that is looked at.
        let last = events::RECENT_LIMIT - 2;
        let mut many: Vec<_> = (0..last).map(|_| entry(30, EventKind::State)).collect();
        many.push(entry(40, EventKind::Decision));
        write(&store, epoch, 1, &Sample::new(1).records(many)).await;
        let mut conn = store.read().await.unwrap();
        let mut recent = async |since| {
            let found = events::recent(&mut conn, &job_id(1), at(since)).await.unwrap();
            found.iter().map(|placed| (placed.generation, placed.n, placed.event.at)).collect::<Vec<_>>()
        };
        assert_eq!(recent(0).await, [(1, 1, at(20)), (2, last, at(40))]);
        assert_eq!(recent(21).await, [(2, last, at(40))]);
    })
    .await;
}

#[tokio::test]
async fn the_curve_shows_which_points_count() {
    on_each_database(async |store| {
        let epoch = lead(&store).await;
        let (one, two) = (task_id(1, 1), task_id(1, 2));
        let first = Sample::new(1).records(vec![
            Record::Attempt(samples::attempt(1, 1)),
            Record::Points(one.clone(), points(0, &[1, 2, 3])),
            Record::Points(one.clone(), points(0, &[4, 5])),
            Record::Points(one.clone(), points(1, &[4])),
            Record::Points(one.clone(), points(1, &[])),
        ]);
        create(&store, &first).await;
        let second = Sample::new(1).records(vec![
            Record::Attempt(samples::attempt(1, 2)),
            Record::Points(two.clone(), points(0, &[3, 4])),
        ]);
        write(&store, epoch, 1, &second).await;
        let mut conn = store.read().await.unwrap();
        let read: Vec<_> = curve::loss(&mut conn, &job_id(1))
            .await
            .unwrap()
            .into_iter()
            .map(|point| (point.task_id.number().unwrap(), point.launch, point.step, point.kept))
            .collect();
        assert_eq!(
            read,
            [
                (1, 0, 1, true),
                (1, 0, 2, true),
                (1, 0, 3, false),
                (1, 0, 4, false),
                (1, 0, 5, false),
                (1, 1, 4, false),
                (2, 0, 3, true),
                (2, 0, 4, true)
            ]
        );
        assert!(curve::loss(&mut conn, &job_id(2)).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn replicas_that_save_the_same_step_make_one_mark() {
    on_each_database(async |store| {
        create(&store, &Sample::new(1)).await;
        let mut tx = store.write().await.unwrap();
        for (attempt, launch, step, seconds) in [(1, 0, 20, 1), (1, 0, 20, 2), (1, 0, 40, 3), (2, 0, 40, 9)] {
            let mark = CheckpointMark { step, at: at(seconds) };
            checkpoints::keep(&mut tx, &job_id(1), &task_id(1, attempt), launch, &mark).await.unwrap();
        }
        commit(tx).await.unwrap();
        let marks = checkpoints::of_job(&mut store.read().await.unwrap(), &job_id(1)).await.unwrap();
        let want =
            [(20, 1), (40, 3), (40, 9)].map(|(step, seconds)| CheckpointMark { step, at: at(seconds) });
        assert_eq!(marks, want);
    })
    .await;
}

#[tokio::test]
async fn a_node_shows_its_strikes_and_who_keeps_off_it() {
    on_each_database(async |store| {
        let epoch = lead(&store).await;
        let (node, task) = (NodeName::new("n2").unwrap(), task_id(1, 2));
        let mut blaming = incident(&task_id(1, 1), 1);
        blaming.decision.avoid = vec![node.clone()];
        let sample = Sample::new(1).name("alpha").records(vec![
            Record::Strike(strike(&node, &task_id(1, 1), 1, 3)),
            Record::Strike(strike(&node, &task_id(1, 1), 1, 3)),
            Record::Strike(strike(&node, &task_id(1, 1), 2, 5)),
            Record::Incident(task_id(1, 1), blaming.clone()),
            Record::Incident(task.clone(), incident(&task, 1)),
            Record::Attempt(samples::attempt(1, 2)),
        ]);
        let sample = sample.suspects(&[&node]);
        create(&store, &sample).await;
        let mut conn = store.read().await.unwrap();
        let strikes = nodes::strikes(&mut conn, "local", &node).await.unwrap();
        let times: Vec<_> = strikes.iter().map(|view| view.strike.at).collect();
        assert_eq!(times, [at(5), at(3)]);
        assert_eq!(strikes[0].job_name, "alpha");
        assert!(nodes::strikes(&mut conn, "local", &NodeName::new("n1").unwrap()).await.unwrap().is_empty());
        let avoided = nodes::avoided(&mut conn, "local").await.unwrap();
        assert_eq!(avoided.len(), 1);
        assert_eq!(
            (&avoided[0].0, &avoided[0].1.task_id, avoided[0].1.name.as_str()),
            (&node, &task_id(1, 1), "alpha")
        );
        assert_eq!(nodes::keeping_off(&mut conn, "local", &node).await.unwrap(), [job_id(1)]);
        let other = NodeName::new("n1").unwrap();
        assert_eq!(nodes::keeping_off(&mut conn, "local", &other).await.unwrap(), []);
        assert_eq!(nodes::keeping_off(&mut conn, "other", &node).await.unwrap(), []);
        assert_eq!(incidents::that_avoid(&mut conn, &job_id(1)).await.unwrap(), [blaming]);
        write(&store, epoch, 1, &Sample::new(1).idle().state(State::Failed).suspects(&[&node])).await;
        assert_eq!(
            nodes::keeping_off(&mut conn, "local", &node).await.unwrap(),
            [job_id(1)],
            "a job that has ended would keep off it when it is resubmitted"
        );
        write(&store, epoch, 2, &Sample::new(1)).await;
        assert!(nodes::avoided(&mut conn, "local").await.unwrap().is_empty(), "it was released");
    })
    .await;
}

#[tokio::test]
async fn a_stream_resumes_where_it_was_cut_or_is_told_to_begin_again() {
    on_each_database(async |store| {
        let epoch = lead(&store).await;
        let sample = Sample::new(1).records(vec![Record::Points(task_id(1, 1), points(0, &[7]))]);
        create(&store, &sample).await;
        write(&store, epoch, 1, &sample).await;
        let mut conn = store.read().await.unwrap();
        let begin = changes::since(&mut conn, &job_id(1), changes::Position::default()).await.unwrap();
        assert!(begin.complete);
        let kinds: Vec<_> = begin.changes.iter().map(|change| change.kind).collect();
        use changes::ChangeKind::{Job, Progress};
        assert_eq!(kinds, [Job, Progress, Job, Progress]);
        let middle = changes::since(&mut conn, &job_id(1), begin.changes[1].position).await.unwrap();
        assert_eq!(middle.changes, begin.changes[2..]);
        let newest = 2 + changes::KEPT_GENERATIONS + changes::DROP_EVERY;
        for seen in 2..newest {
            assert_eq!(write(&store, epoch, seen, &sample).await, Write::Done);
        }
        let late = changes::since(&mut conn, &job_id(1), begin.changes[0].position).await.unwrap();
        assert!(!late.complete);
        let kept = changes::Position { generation: newest - changes::KEPT_GENERATIONS, n: 1 };
        let near = changes::since(&mut conn, &job_id(1), kept).await.unwrap();
        assert!(near.complete);
        assert_eq!(near.changes.len() as i64, 2 * changes::KEPT_GENERATIONS);
    })
    .await;
}

#[tokio::test]
async fn requests_wait_in_order_until_a_step_takes_them() {
    on_each_database(async |store| {
        create(&store, &Sample::new(1)).await;
        let mut tx = store.write().await.unwrap();
        let (stop, forced) = (Request::Stop { force: false }, Request::Stop { force: true });
        assert!(inbox::add(&mut tx, &job_id(1), "b", &stop, "ann", at(1)).await.unwrap());
        assert!(inbox::add(&mut tx, &job_id(1), "a", &forced, "bob", at(2)).await.unwrap());
        assert!(!inbox::add(&mut tx, &job_id(9), "c", &stop, "ann", at(1)).await.unwrap(), "no such job");
        assert_eq!(inbox::jobs(&mut tx, 10).await.unwrap(), [job_id(1)]);
        let waiting = inbox::take(&mut tx, &job_id(1)).await.unwrap();
        let requests: Vec<_> =
            waiting.iter().map(|waiting| (&waiting.request, waiting.by.as_str())).collect();
        assert_eq!(requests, [(&stop, "ann"), (&forced, "bob")]);
        inbox::remove(&mut tx, &job_id(1), &waiting[0]).await.unwrap();
        assert_eq!(inbox::take(&mut tx, &job_id(1)).await.unwrap(), waiting[1..]);
        for n in 1..inbox::LIMIT {
            assert!(inbox::add(&mut tx, &job_id(1), &format!("x{n}"), &stop, "ann", at(3)).await.unwrap());
        }
        let full = inbox::add(&mut tx, &job_id(1), "z", &stop, "ann", at(3)).await.unwrap_err();
        assert!(matches!(full, StoreError::InboxFull { .. }), "{full}");
    })
    .await;
}

#[tokio::test]
async fn a_forgotten_job_leaves_nothing_and_its_neighbour_everything() {
    on_each_database(async |store| {
        let epoch = lead(&store).await;
        let node = NodeName::new("n2").unwrap();
        for n in [1, 2] {
            let task = task_id(n, 1);
            let sample = Sample::new(n).suspects(&[&node]).records(vec![
                Record::Attempt(samples::attempt(n, 1)),
                Record::Launch(task.clone(), launch(0)),
                Record::Incident(task.clone(), incident(&task, 1)),
                Record::Points(task.clone(), points(0, &[1, 2])),
                Record::Event(event(1, EventKind::State, Some(&task))),
                Record::Strike(strike(&node, &task, 1, 3)),
                Record::Stacks(task.clone(), samples::stacks(0, &[0])),
            ]);
            create(&store, &sample).await;
            let mut tx = store.write().await.unwrap();
            inbox::add(&mut tx, &job_id(n), "a", &Request::Acknowledge, "ann", at(1)).await.unwrap();
            let mark = CheckpointMark { step: 1, at: at(1) };
            checkpoints::keep(&mut tx, &job_id(n), &task, 0, &mark).await.unwrap();
            commit(tx).await.unwrap();
        }
        let mut tx = store.write().await.unwrap();
        assert_eq!(steps::forget(&mut tx, epoch - 1, &job_id(1), at(1)).await.unwrap(), Write::NotLeader);
        assert_eq!(steps::forget(&mut tx, epoch, &job_id(1), at(1)).await.unwrap(), Write::Done);
        assert_eq!(steps::forget(&mut tx, epoch, &job_id(1), at(1)).await.unwrap(), Write::ChangedUnderUs);
        commit(tx).await.unwrap();
        assert_eq!(left(&store, &job_id(1), &task_id(1, 1)).await, [0; 10]);
        assert_eq!(left(&store, &job_id(2), &task_id(2, 1)).await, [1, 1, 1, 2, 1, 1, 1, 1, 1, 1]);
        let mut conn = store.read().await.unwrap();
        assert_eq!(nodes::strikes(&mut conn, "local", &node).await.unwrap().len(), 1);
        assert_eq!(nodes::avoided(&mut conn, "local").await.unwrap().len(), 1);
    })
    .await;
}

/// How much there is of a job, by aggregate.
async fn left(store: &Store, job: &JobId, task: &TaskId) -> [usize; 10] {
    let mut conn = store.read().await.unwrap();
    let since = changes::since(&mut conn, job, changes::Position::default()).await.unwrap();
    [
        jobs::chain(&mut conn, job).await.unwrap().iter().len(),
        attempts::find(&mut conn, task).await.unwrap().iter().len(),
        launches::of_attempts(&mut conn, job, 1..=9).await.unwrap().len(),
        curve::loss(&mut conn, job).await.unwrap().len(),
        incidents::of_attempts(&mut conn, job, 1..=9).await.unwrap().len(),
        events::page(&mut conn, job, &EventsQuery::default()).await.unwrap().items.len(),
        checkpoints::of_job(&mut conn, job).await.unwrap().len(),
        inbox::take(&mut conn, job).await.unwrap().len(),
        usize::from(!since.changes.is_empty()),
        stacks::of_launch(&mut conn, job, (1, 0), 0).await.unwrap().len(),
    ]
}

#[tokio::test]
async fn stacks_are_kept_by_launch_and_process_and_those_of_old_launches_go() {
    on_each_database(async |store| {
        let epoch = lead(&store).await;
        let task = task_id(1, 1);
        let sample = Sample::new(1).records(vec![
            Record::Attempt(samples::attempt(1, 1)),
            Record::Incident(task.clone(), incident(&task, 1)),
            Record::Stacks(task.clone(), samples::stacks(0, &[1, 0])),
        ]);
        create(&store, &sample).await;
        // A newer one takes the place of the same process; what another launch has is its own.
        let mut newer = samples::stacks(0, &[1]);
        newer.stacks[0].missing = Some("timed out".to_owned());
        let sample = Sample::new(1).records(vec![
            Record::Stacks(task.clone(), newer),
            Record::Stacks(task.clone(), samples::stacks(1, &[7])),
        ]);
        write(&store, epoch, 1, &sample).await;
        let mut conn = store.read().await.unwrap();
        let read = async |conn: &mut AnyConnection, launch, from| {
            let kept = stacks::of_launch(conn, &job_id(1), (1, launch), from).await.unwrap();
            kept.into_iter().map(|(_, stack)| (stack.rank, stack.missing)).collect::<Vec<_>>()
        };
        let old = Some("not Python".to_owned());
        let timed_out = Some("timed out".to_owned());
        assert_eq!(read(&mut conn, 0, 0).await, [(0, old.clone()), (1, timed_out.clone())]);
        assert_eq!(read(&mut conn, 0, 1).await, [(1, timed_out)]);
        assert_eq!(read(&mut conn, 1, 0).await, [(7, old.clone())]);
        drop(conn);

        let later = (2..18).map(|launch| Record::Stacks(task.clone(), samples::stacks(launch, &[0])));
        let sample = Sample::new(1).records(later.collect());
        write(&store, epoch, 2, &sample).await;
        let mut conn = store.read().await.unwrap();
        assert_eq!((read(&mut conn, 1, 0).await, read(&mut conn, 2, 0).await), (vec![], vec![(0, old)]));
        let id = IncidentId::of_attempt(&task, 1);
        let (job, attempt, found) = stacks::incident(&mut conn, &id).await.unwrap().unwrap();
        assert_eq!((job, attempt, found.id), (job_id(1), 1, id));
        let none = IncidentId::of_attempt(&task, 9);
        assert!(stacks::incident(&mut conn, &none).await.unwrap().is_none());
    })
    .await;
}

#[tokio::test]
async fn writers_beside_each_other_lose_no_step() {
    on_each_database(async |store| {
        let epoch = lead(&store).await;
        for n in 0..8 {
            create(&store, &Sample::new(n)).await;
        }
        let writers = (0..8).map(|n| {
            let store = store.clone();
            tokio::spawn(async move {
                for seen in 1..=25 {
                    assert_eq!(write(&store, epoch, seen, &Sample::new(n)).await, Write::Done);
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
        let changed = jobs::changed_since(&mut store.read().await.unwrap(), Time(0), 100).await.unwrap();
        assert!(changed.iter().all(|(_, generation, _)| *generation == 26), "{changed:?}");
    })
    .await;
}

#[tokio::test]
async fn a_full_disk_is_known_and_the_next_write_succeeds_once_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&format!("sqlite://{}", dir.path().join("full.db").display())).await.unwrap();
    let mut tx = store.write().await.unwrap();
    // As large as it is now and no page more; the next connection has room again.
    sqlx::query("PRAGMA max_page_count = 1").execute(&mut *tx).await.unwrap();
    let much = "CREATE TABLE much AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 100000) SELECT x FROM n";
    let source = sqlx::query(much).execute(&mut *tx).await.unwrap_err();
    let error = StoreError::Query { doing: "filling the disk", source };
    assert!(error.is_full(), "{error:?}");
    let _ = commit(tx).await;
    let tx = store.write().await.unwrap();
    commit(tx).await.unwrap();
}

/// SQLite ends a transaction by itself when the disk is full (https://sqlite.org/lang_transaction.html, "Response to errors").
#[tokio::test]
async fn a_transaction_that_the_database_ended_itself_does_not_spoil_the_next_one() {
    on_each_database(async |store| {
        let mut tx = store.write().await.unwrap();
        sqlx::query("ROLLBACK").execute(&mut *tx).await.unwrap();
        // SQLite calls this an error, Postgres a warning.
        let _ = commit(tx).await;
        let tx = store.write().await.unwrap();
        commit(tx).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn what_a_paused_server_has_locked_is_free_again_for_the_next() {
    on_new_postgres(async |url| {
        let (paused, next) = (Store::open(url).await.unwrap(), Store::open(url).await.unwrap());
        let mut tx = paused.write().await.unwrap();
        leader::take(&mut tx, "paused", at(0), at(10), true).await.unwrap().unwrap();
        let mut free = next.write().await.unwrap();
        assert!(leader::take(&mut free, "next", at(0), at(10), true).await.unwrap().is_some());
        commit(free).await.unwrap();
        assert!(commit(tx).await.is_err(), "it can write nothing any more");
    })
    .await;
}
