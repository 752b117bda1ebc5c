//! What was decided, told on the clusters' own objects: whoever looks at a job with the cluster's tools reads its story there.
//!
//! Notes are made of the committed history, after the commit and in no step's way: a queue with a limit leads to a few calls at a time,
//! each tried again for a while. What finds no room, or is refused, is not told, and nothing else follows from that. A note has the
//! same name whoever tells it, so a server that takes a job up whose attempt may be there tells the last hour again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use engine::time::Time;
use futures::{StreamExt, stream};
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::status::Counts;
use crate::{
    clock::Clock,
    clusters::{Cluster, ClusterError, Note},
};

/// Notes that wait for one cluster: a few for each of a thousand jobs that fail at once.
const QUEUE: usize = 4_096;
/// Notes that wait until their attempt is made. More are about a job that nobody can follow anyway.
const HELD: usize = 256;
/// Calls at a time; they are small, and the cluster has more important ones to answer.
const AT_A_TIME: usize = 8;
/// Tries of one note, and the first pause between two, which doubles: two minutes in all.
const TRIES: u32 = 8;
const FIRST_PAUSE_SECONDS: u64 = 1;
/// How long a call may take. Clusters have shorter limits of their own.
const CALL: Duration = Duration::from_secs(60);
/// What is older is not told again: clusters keep events for an hour.
const KEPT_SECONDS: i64 = 3_600;

/// From when on the history is told again.
pub(super) fn kept_since(now: Time) -> Time {
    Time(now.micros().saturating_sub(KEPT_SECONDS * 1_000_000))
}

/// Notes of one job that are not in the queue yet.
#[derive(Default)]
pub(super) struct Notes(Vec<Note>);

impl Notes {
    pub(super) fn extend(&mut self, notes: impl Iterator<Item = Note>) {
        let room = HELD - self.0.len();
        self.0.extend(notes.take(room));
    }

    /// Puts them into a cluster's queue.
    pub(super) fn send(&mut self, queue: &mpsc::Sender<Note>, counts: &Counts) {
        for note in self.0.drain(..) {
            // It is closed when the server stops; the next one tells it.
            if let Err(mpsc::error::TrySendError::Full(note)) = queue.try_send(note) {
                counts.failed("note");
                tracing::debug!(task_id = %note.task_id, "too many notes wait; this one is not told");
            }
        }
    }
}

/// Who tells one cluster.
pub(super) struct Teller {
    pub(super) cluster: Arc<dyn Cluster>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) counts: Arc<Counts>,
}

/// Begins to tell a cluster what comes into the queue, until `shutdown`.
pub(super) fn begin(teller: Teller, tasks: &TaskTracker, shutdown: CancellationToken) -> mpsc::Sender<Note> {
    let (queue, notes) = mpsc::channel(QUEUE);
    tasks.spawn(async move {
        let said_aloud = AtomicBool::new(false);
        let notes = stream::unfold(notes, |mut notes| async { Some((notes.recv().await?, notes)) });
        let told = notes.for_each_concurrent(AT_A_TIME, |note| teller.tell(note, &said_aloud));
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = told => {}
        }
    });
    queue
}

impl Teller {
    async fn tell(&self, note: Note, said_aloud: &AtomicBool) {
        for tried in 1..=TRIES {
            let error = match tokio::time::timeout(CALL, self.cluster.tell(&note)).await {
                Ok(Ok(())) => return said_aloud.store(false, Ordering::Relaxed),
                Ok(Err(error)) => error,
                Err(_) => return self.failed(&note, &anyhow::anyhow!("no answer in time"), said_aloud),
            };
            let is_final = matches!(error, ClusterError::Refused { .. });
            if is_final || tried == TRIES {
                return self.failed(&note, &error.into(), said_aloud);
            }
            let pause = FIRST_PAUSE_SECONDS << (tried - 1);
            self.clock.sleep_until(self.clock.now().plus_seconds(pause)).await;
        }
    }

    /// The first of several is said aloud.
    fn failed(&self, note: &Note, error: &anyhow::Error, said_aloud: &AtomicBool) {
        self.counts.failed("note");
        let error = format!("{error:#}");
        if said_aloud.swap(true, Ordering::Relaxed) {
            tracing::debug!(task_id = %note.task_id, error, "a note could not be told either");
        } else {
            tracing::warn!(task_id = %note.task_id, error, "what was decided could not be told on the cluster");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, sync::Mutex};

    use async_trait::async_trait;
    use engine::{
        chain::Observation,
        ids::{JobId, TaskId},
        job::{ClusterKind, JobKind, JobSpec},
        record::{EventReason, EventRecord},
    };
    use futures::future::BoxFuture;

    use super::*;
    use crate::clusters::{Node, Order};

    /// A clock on which nobody waits.
    struct Hasty(Mutex<Vec<f64>>);

    impl Clock for Hasty {
        fn now(&self) -> Time {
            Time(0)
        }

        fn sleep_until(&self, at: Time) -> BoxFuture<'static, ()> {
            self.0.lock().unwrap().push(at.seconds_since(Time(0)));
            Box::pin(std::future::ready(()))
        }
    }

    /// A cluster that answers in turn, and takes everything after that.
    struct Scripted {
        answers: Mutex<VecDeque<ClusterError>>,
        asked: mpsc::UnboundedSender<i64>,
    }

    #[async_trait]
    impl Cluster for Scripted {
        fn name(&self) -> &str {
            "scripted"
        }

        fn kind(&self) -> ClusterKind {
            ClusterKind::Kubernetes
        }

        async fn create(&self, _: &Order) -> Result<(), ClusterError> {
            unreachable!()
        }

        async fn delete(
            &self,
            _: &TaskId,
            _: JobKind,
            _: Option<&str>,
            _: bool,
        ) -> Result<Option<String>, ClusterError> {
            unreachable!()
        }

        async fn observe(
            &self,
            _: &TaskId,
            _: JobKind,
            _: Option<&str>,
        ) -> Result<Observation, ClusterError> {
            unreachable!()
        }

        async fn tell(&self, note: &Note) -> Result<(), ClusterError> {
            self.asked.send(note.place.0).unwrap();
            self.answers.lock().unwrap().pop_front().map_or(Ok(()), Err)
        }

        async fn nodes(&self) -> Result<Vec<Node>, ClusterError> {
            unreachable!()
        }

        async fn forget(&self, _: &JobId, _: &JobSpec, _: &[TaskId]) -> Result<(), ClusterError> {
            unreachable!()
        }

        fn hints(&self) -> Option<mpsc::Receiver<TaskId>> {
            None
        }
    }

    fn note(generation: i64) -> Note {
        let task_id = TaskId::new("demo-jabcdefghij2-1").unwrap();
        let event = EventRecord {
            at: Time(0),
            kind: EventReason::Resubmit.kind(),
            reason: Some(EventReason::Resubmit),
            task_id: Some(task_id.clone()),
            by: "holdfast".to_owned(),
            text: "It is resubmitted.".to_owned(),
        };
        Note { task_id, kind: JobKind::PyTorchJob, namespace: None, place: (generation, 0), event }
    }

    fn unreachable_now() -> ClusterError {
        let source = anyhow::anyhow!("no answer");
        ClusterError::Unreachable { cluster: "scripted".to_owned(), doing: "telling", source }
    }

    fn refused() -> ClusterError {
        ClusterError::Refused { text: "no right".to_owned() }
    }

    /// Tells two notes to a cluster that answers so; which calls were made, and when the tries after the first.
    async fn told(answers: Vec<ClusterError>, calls: usize) -> (Vec<i64>, Vec<f64>, u64) {
        let (asked, mut were_asked) = mpsc::unbounded_channel();
        let cluster = Arc::new(Scripted { answers: Mutex::new(answers.into()), asked });
        let (clock, counts) = (Arc::new(Hasty(Mutex::default())), Arc::new(Counts::default()));
        let teller =
            Teller { cluster, clock: Arc::clone(&clock) as Arc<dyn Clock>, counts: Arc::clone(&counts) };
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let queue = begin(teller, &tasks, stop.clone());
        let mut found = Vec::new();
        for generation in [1, 2] {
            queue.send(note(generation)).await.unwrap();
            while found.len() < if generation == 1 { calls - 1 } else { calls } {
                found.push(were_asked.recv().await.unwrap());
            }
        }
        stop.cancel();
        tasks.close();
        tasks.wait().await;
        let pauses = clock.0.lock().unwrap().clone();
        (found, pauses, counts.status(None).failed)
    }

    #[tokio::test]
    async fn a_note_is_tried_again_with_growing_pauses_and_a_refused_one_is_not() {
        let (asked, pauses, failed) = told(vec![unreachable_now(), unreachable_now()], 4).await;
        assert_eq!((asked, pauses, failed), (vec![1, 1, 1, 2], vec![1.0, 2.0], 0));
        let (asked, pauses, failed) = told(vec![refused()], 2).await;
        assert_eq!((asked, pauses, failed), (vec![1, 2], vec![], 1));
    }

    #[tokio::test]
    async fn a_note_is_given_up_after_its_tries() {
        let never = (0..TRIES).map(|_| unreachable_now()).collect();
        let (asked, pauses, failed) = told(never, TRIES as usize + 1).await;
        assert_eq!(asked, [1, 1, 1, 1, 1, 1, 1, 1, 2]);
        assert_eq!(pauses, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]);
        assert_eq!(failed, 1);
    }

    #[test]
    fn what_finds_no_room_is_left_out_and_nobody_waits() {
        let (counts, (queue, mut taken)) = (Counts::default(), mpsc::channel(2));
        let mut notes = Notes::default();
        notes.extend((1..).map(note).take(HELD + 1));
        assert_eq!(notes.0.len(), HELD);
        notes.send(&queue, &counts);
        assert!(notes.0.is_empty());
        assert_eq!(counts.status(None).failed, HELD as u64 - 2);
        assert_eq!([taken.try_recv().unwrap().place.0, taken.try_recv().unwrap().place.0], [1, 2]);
    }
}
