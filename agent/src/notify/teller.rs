//! The task that tells a program of its end, or of a test of that, until the program's last word.

use std::time::Instant;

use engine::{
    ids::TaskId,
    record::{ExitReason, SaveOutcome},
};
use tokio::task::JoinHandle;

use super::{Answer, Word, tell};

/// A program that is being told. None once that is over.
#[derive(Debug)]
pub struct Teller(Option<JoinHandle<Answer>>);

impl Teller {
    /// Tells the program that listens on a port; `noted` is called when it has taken note.
    pub fn begin(
        port: Option<u16>,
        reason: ExitReason,
        deadline: Instant,
        task_id: &TaskId,
        noted: impl FnOnce() + Send + 'static,
    ) -> Self {
        let left = deadline.saturating_duration_since(Instant::now());
        let word = Word {
            reason,
            deadline_seconds: left.as_secs_f64().round() as u64,
            job_id: task_id.job_id().map(|job| job.to_string()),
            task_id: Some(task_id.clone()),
        };
        Self(Some(tokio::spawn(async move {
            match port {
                Some(port) => tell(port, &word, deadline, noted).await,
                None => Answer::of(SaveOutcome::NoAnswer, "no port was free for the notification"),
            }
        })))
    }

    /// One whose word is somebody else's.
    #[cfg(test)]
    pub fn of(task: JoinHandle<Answer>) -> Self {
        Self(Some(task))
    }

    /// It is not over.
    pub fn goes_on(&self) -> bool {
        self.0.is_some()
    }

    /// Waits for the program's last word; for ever once it is over.
    pub async fn answer(&mut self) -> Answer {
        match &mut self.0 {
            None => std::future::pending().await,
            Some(task) => task.await.unwrap_or_else(|why| {
                Answer::of(SaveOutcome::NoAnswer, format!("the notification broke off: {why}"))
            }),
        }
    }

    /// The word of a program that is gone: what it said in time still counts.
    pub async fn last_word(&mut self) -> Answer {
        let gone = || Answer::of(SaveOutcome::Failed, "the program ended before it had saved");
        let is_said = self.0.as_ref().is_some_and(JoinHandle::is_finished);
        let answer = if is_said { self.answer().await } else { gone() };
        // Its port closed with it, before its end was seen.
        if answer.outcome == SaveOutcome::NoAnswer { gone() } else { answer }
    }

    /// Tells no more; false where it was over.
    pub fn end(&mut self) -> bool {
        self.0.take().inspect(JoinHandle::abort).is_some()
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.end();
    }
}
