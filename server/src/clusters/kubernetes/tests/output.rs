use std::sync::atomic::{AtomicU32, Ordering};

use app::console::LogQuery;
use engine::ids::JobId;
use serde_json::{Value, json};

use super::{
    super::fake::{self, client, refusal, task},
    *,
};
use crate::logs::LogReader;

/// Two pieces of output, as the API server gives them: the second time from the last line's second on.
const FIRST: &str =
    "2026-11-30T04:00:00.100000000Z [holdfast-agent] launch 0\n2026-11-30T04:00:00.200000000Z [rank0]: one\n";
const SECOND: &str =
    "2026-11-30T04:00:00.200000000Z [rank0]: one\n2026-11-30T04:00:01.000000000Z [rank0]: two\n";

fn printing(over: bool) -> Printing {
    Printing {
        task: task(),
        replica: ReplicaName::new("master-0").unwrap(),
        namespace: "train".to_owned(),
        pod: "demo-master-0".to_owned(),
        uid: "m-1".to_owned(),
        container: "pytorch".to_owned(),
        ending: false,
        over,
    }
}

fn outputs(
    answer: impl Fn(&str, &Value) -> Option<(u16, Value)> + Send + Sync + 'static,
) -> (tempfile::TempDir, Outputs, super::super::fake::Asked) {
    let dir = tempfile::tempdir().unwrap();
    let (client, asked) = client(answer);
    let outputs = Outputs::new(client, dir.path().to_owned());
    (dir, outputs, asked)
}

fn lines(dir: &tempfile::TempDir) -> Vec<String> {
    let job = JobId::new("jabcdefghij2").unwrap();
    let page = LogReader::new(dir.path().to_owned()).page(&job, &task(), &LogQuery::default()).unwrap();
    page.lines.into_iter().map(|line| line.text).collect()
}

#[tokio::test]
async fn what_is_new_is_fetched_until_the_container_has_ended() {
    let times = AtomicU32::new(0);
    let (dir, outputs, asked) = outputs(move |_, _| {
        let text = if times.fetch_add(1, Ordering::Relaxed) == 0 { FIRST } else { SECOND };
        Some((200, json!(text)))
    });
    outputs.fetch(&printing(false)).await.unwrap();
    assert_eq!(lines(&dir), ["one"]);
    outputs.fetch(&printing(false)).await.unwrap();
    assert_eq!(asked.lock().unwrap().len(), 1, "a moment later nobody is asked again");
    outputs.fetch(&printing(true)).await.unwrap();
    assert_eq!(lines(&dir), ["one", "two"]);
    outputs.fetch(&printing(true)).await.unwrap();
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 2, "nothing comes after the end");
    let path = "/api/v1/namespaces/train/pods/demo-master-0/log";
    assert!(
        asked.iter().all(|(what, _)| what.contains(path) && what.contains("container=pytorch")),
        "{asked:?}"
    );
    assert!(asked[1].0.contains("sinceTime=2026-11-30T04%3A00%3A00Z"), "{}", asked[1].0);
}

#[tokio::test]
async fn before_an_attempt_is_removed_its_last_words_are_fetched_however_new_they_are() {
    let times = AtomicU32::new(0);
    let (dir, outputs, _asked) = outputs(move |_, _| {
        let text = if times.fetch_add(1, Ordering::Relaxed) == 0 { FIRST } else { SECOND };
        Some((200, json!(text)))
    });
    let (hint, _hints) = tokio::sync::mpsc::channel(4);
    let world = World::new(hint);
    world.set_pod("train", fake::pod("master-0", "m-1", "n1", fake::running()), Instant::now());
    outputs.fetch(&printing(false)).await.unwrap();
    outputs.fetch_all(&world, &task()).await;
    assert_eq!(lines(&dir), ["one", "two"]);
}

#[tokio::test]
async fn a_container_that_has_not_started_has_printed_nothing_yet() {
    let (dir, outputs, _) =
        outputs(|_, _| refusal(400, "BadRequest", "container \"pytorch\" is waiting to start"));
    outputs.fetch(&printing(false)).await.unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn an_api_server_that_fails_is_named_and_asked_again() {
    let times = AtomicU32::new(0);
    let (dir, outputs, _) = outputs(move |_, _| match times.fetch_add(1, Ordering::Relaxed) {
        0 => refusal(500, "InternalError", "the kubelet is away"),
        _ => Some((200, json!(FIRST))),
    });
    let error = format!("{:#}", anyhow::Error::from(outputs.fetch(&printing(true)).await.unwrap_err()));
    assert!(error.contains("demo-master-0") && error.contains("the kubelet is away"), "{error}");
    outputs.fetch(&printing(true)).await.unwrap();
    assert_eq!(lines(&dir), ["one"]);
}

#[tokio::test]
async fn a_pod_that_takes_the_place_of_one_that_was_withdrawn_is_fetched_from_its_beginning() {
    let times = AtomicU32::new(0);
    let (dir, outputs, _) = outputs(move |_, _| {
        let text = if times.fetch_add(1, Ordering::Relaxed) == 0 { FIRST } else { SECOND };
        Some((200, json!(text)))
    });
    outputs.fetch(&printing(true)).await.unwrap();
    let next = Printing { uid: "m-2".to_owned(), ..printing(false) };
    assert_eq!(outputs.due_of_all(vec![next.clone()], Instant::now()).len(), 1);
    outputs.fetch(&next).await.unwrap();
    assert_eq!(lines(&dir), ["one", "two"]);
}

#[tokio::test]
async fn who_ended_is_due_at_once_and_who_runs_now_and_then() {
    let (_dir, outputs, _) = outputs(|_, _| Some((200, json!(FIRST))));
    let due = |outputs: &Outputs, one: Printing, after| {
        outputs.due_of_all(vec![one], Instant::now() + Duration::from_secs(after)).len()
    };
    assert_eq!(due(&outputs, printing(false), 0), 1, "never fetched");
    outputs.fetch(&printing(false)).await.unwrap();
    assert_eq!(due(&outputs, printing(false), 0), 0);
    assert_eq!(due(&outputs, printing(false), 31), 1);
    let ending = Printing { ending: true, ..printing(false) };
    assert_eq!(due(&outputs, ending.clone(), 0), 1);
    outputs.fetch_after(&ending, Duration::ZERO).await.unwrap();
    assert_eq!(due(&outputs, ending.clone(), 4), 0, "it was fetched after it had been told to end");
    assert_eq!(due(&outputs, ending, 6), 1);
    assert_eq!(due(&outputs, printing(true), 0), 1);
    outputs.fetch(&printing(true)).await.unwrap();
    assert_eq!(due(&outputs, printing(true), 3_600), 0, "all of it is kept");
}

/// Of this replica of the attempt.
fn of(index: usize, over: bool) -> Printing {
    Printing { replica: ReplicaName::new(format!("worker-{index}")).unwrap(), ..printing(over) }
}

/// Notes what a try brought.
fn note(outputs: &Outputs, one: &Printing, bytes: u64, now: Instant) {
    let output = outputs.output(&one.task, &one.replica);
    let mut fetched = output.0.try_lock().unwrap();
    fetched.pod.clone_from(&one.uid);
    fetched.note(bytes, false, now);
}

fn names(due: &[Printing]) -> Vec<&str> {
    due.iter().map(|one| one.replica.as_str()).collect()
}

#[tokio::test]
async fn however_many_run_only_so_many_are_fetched_at_a_look_and_all_have_their_turn() {
    let (_dir, outputs, _) = outputs(|_, _| None);
    let all: Vec<_> = (0..5 * RUNNING).map(|index| of(index, false)).collect();
    let (begin, mut turns) = (Instant::now(), std::collections::BTreeSet::new());
    for look in 0..5 {
        let now = begin + LOOK * look;
        let due = outputs.due_of_all(all.clone(), now);
        assert_eq!(due.len(), RUNNING);
        for one in due {
            note(&outputs, &one, 0, now);
            assert!(turns.insert(one.replica));
        }
    }
    assert!(
        outputs.due_of_all(all.clone(), begin + LOOK * 5).is_empty(),
        "the first are due again after a while"
    );
    let with_ended: Vec<_> = (0..5 * RUNNING).map(|index| of(index, index < 2 * RUNNING)).collect();
    assert_eq!(
        outputs.due_of_all(with_ended, begin + LOOK * 5).len(),
        2 * RUNNING,
        "those that end do not wait for a turn"
    );
    assert_eq!(outputs.due_of_all(vec![all[0].clone()], begin + EACH).len(), 1);
    assert_eq!(outputs.known.lock().unwrap().len(), 1, "what is no more is forgotten");
}

#[tokio::test(start_paused = true)]
async fn pods_that_end_do_not_have_those_fetched_more_often_that_run() {
    let (_dir, outputs, asked) = outputs(|_, _| Some((200, json!(FIRST))));
    let world = World::new(tokio::sync::mpsc::channel(4).0);
    for index in 0..3 * RUNNING {
        let (replica, uid) = (format!("worker-{index}"), format!("w-{index}"));
        world.set_pod("train", fake::pod(&replica, &uid, "n1", fake::running()), Instant::now());
    }
    let fetched = |part: &str| {
        let asked = asked.lock().unwrap();
        asked.iter().filter(|(what, _)| what.contains(part)).count()
    };
    let stop = CancellationToken::new();
    let ends = async {
        for index in 0..10 {
            tokio::time::sleep(LOOK / 20).await;
            let (replica, uid) = (format!("master-{index}"), format!("m-{index}"));
            let over = fake::terminated("Failed", 1, "Error");
            world.set_pod("train", fake::pod(&replica, &uid, "n1", over), Instant::now());
        }
        tokio::time::sleep(LOOK / 20).await;
        stop.cancel();
    };
    tokio::join!(outputs.keep_going(&world, stop.clone()), ends);
    assert_eq!((fetched("master-"), fetched("worker-")), (10, RUNNING));
}

#[tokio::test]
async fn who_prints_most_is_fetched_first() {
    let (_dir, outputs, _) = outputs(|_, _| None);
    let begin = Instant::now();
    for (index, bytes) in [(0, 0), (1, 3_000_000), (2, 3_000)] {
        note(&outputs, &of(index, false), bytes, begin);
    }
    let all = || (0..3).map(|index| of(index, false)).collect::<Vec<_>>();
    let due = outputs.due_of_all(all(), begin + EACH);
    assert_eq!(names(&due), ["worker-1", "worker-2", "worker-0"]);
    // A quiet one is not forgotten beside one that prints.
    let busy = outputs.output(&task(), &of(2, false).replica);
    busy.0.try_lock().unwrap().note(3_000, false, begin + EACH * 20);
    assert_eq!(names(&outputs.due_of_all(all(), begin + EACH * 21)), ["worker-1", "worker-0", "worker-2"]);
}

#[tokio::test]
async fn a_node_that_does_not_answer_is_asked_less_and_less() {
    let (_dir, outputs, _) = outputs(|_, _| refusal(500, "InternalError", "no route to host"));
    let pauses: Vec<_> = [1, 2, 3, 5, 6, 7, u32::MAX].map(|failures| retry_pause(failures).as_secs()).into();
    assert_eq!(pauses, [10, 20, 40, 160, 300, 300, 300]);
    outputs.fetch(&of(0, true)).await.unwrap_err();
    let all = || vec![of(0, true), of(1, true)];
    assert_eq!(names(&outputs.due_of_all(all(), Instant::now())), ["worker-1"]);
    let later = Instant::now() + Duration::from_secs(11);
    assert_eq!(
        names(&outputs.due_of_all(all(), later)),
        ["worker-1", "worker-0"],
        "and lets the others go first"
    );
}
