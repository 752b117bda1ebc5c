//! The test of Exit ckpt Notification that the server orders: the program of a launch that runs is told to save, and goes on.

use std::time::Instant;

use engine::{
    ids::TaskId,
    record::{ExitReason, SaveOutcome},
    sync::{Desired, ExitTestOrder, ExitTestReport, ReportBody},
};
use tokio::sync::oneshot;

use crate::{
    notify::{Answer, Teller},
    state::State,
};

/// One test of one launch.
#[derive(Debug)]
pub struct Testing {
    launch: u32,
    number: u32,
    begun: Instant,
    received_millis: Option<u64>,
    /// Told once, when the program has taken note.
    note: Option<oneshot::Receiver<()>>,
    teller: Teller,
}

/// What a test waits for.
#[derive(Debug)]
pub enum TestNews {
    /// The program has taken note.
    Received,
    /// Its last word.
    Answer(Answer),
}

impl Testing {
    /// Tells the program of a launch, and the server that it is told.
    pub fn begin(
        launch: u32,
        order: ExitTestOrder,
        port: Option<u16>,
        deadline: Instant,
        task_id: &TaskId,
        state: &State,
    ) -> Self {
        let left = deadline.saturating_duration_since(Instant::now());
        tracing::info!("launch {launch} is told to save as a test, {left:?} left");
        let (tell_note, note) = oneshot::channel();
        let noted = || {
            // Nobody waits for it where the test was given up.
            let _ = tell_note.send(());
        };
        // As at a stop: the contract has no word for a test, so that it is answered as the real thing.
        let teller = Teller::begin(port, ExitReason::Stopped, deadline, task_id, noted);
        let testing = Self {
            launch,
            number: order.number,
            begun: Instant::now(),
            received_millis: None,
            note: Some(note),
            teller,
        };
        testing.report(Answer { outcome: SaveOutcome::Saving, step: None, path: None, message: None }, state);
        testing
    }

    /// Which test of which launch.
    pub fn key(&self) -> (u32, u32) {
        (self.launch, self.number)
    }

    /// The server wants it to go on.
    pub fn is_wanted(&self, wanted: Option<&Desired>) -> bool {
        match wanted {
            None | Some(Desired::Wait) => true,
            Some(Desired::Run { launch }) => {
                launch.number == self.launch
                    && launch.exit_test.is_some_and(|order| order.number == self.number)
            }
            Some(Desired::Stop { .. } | Desired::Exit | Desired::Save { .. }) => false,
        }
    }

    /// Waits for what comes next; for ever once it is over.
    pub async fn news(&mut self) -> TestNews {
        loop {
            let Some(note) = self.note.as_mut().filter(|_| self.teller.goes_on()) else {
                return TestNews::Answer(self.teller.answer().await);
            };
            let is_noted = tokio::select! {
                biased;
                noted = note => noted.is_ok(),
                answer = self.teller.answer() => return TestNews::Answer(answer),
            };
            self.note = None;
            if is_noted {
                return TestNews::Received;
            }
        }
    }

    /// Takes what came.
    pub fn take(&mut self, news: TestNews, state: &State) {
        match news {
            TestNews::Received => {
                self.received_millis = Some(self.millis());
                let saving = Answer { outcome: SaveOutcome::Saving, step: None, path: None, message: None };
                self.report(saving, state);
            }
            TestNews::Answer(answer) => self.end(answer, state),
        }
    }

    /// It ended like this.
    pub fn end(&mut self, answer: Answer, state: &State) {
        if !self.teller.end() {
            return;
        }
        self.note = None;
        let words = answer.message.as_deref().unwrap_or_default();
        tracing::info!("launch {}, test: {} {words}", self.launch, answer.outcome.plain());
        self.report(answer, state);
    }

    /// The process that was told is gone; what it said in time still counts.
    pub async fn end_with_program(&mut self, state: &State) {
        if !self.teller.goes_on() {
            return;
        }
        let is_noted = self.note.take().is_some_and(|mut note| note.try_recv().is_ok());
        if is_noted {
            self.take(TestNews::Received, state);
        }
        let answer = self.teller.last_word().await;
        self.end(answer, state);
    }

    /// Something real comes first, and nobody waits for the test any more.
    pub fn give_up(&mut self) {
        self.teller.end();
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn report(&self, answer: Answer, state: &State) {
        let Answer { outcome, step, path, message } = answer;
        let took_millis = (outcome != SaveOutcome::Saving).then(|| self.millis());
        let (number, received_millis) = (self.number, self.received_millis);
        let test = ExitTestReport { number, received_millis, outcome, step, path, message, took_millis };
        state.report(self.launch, ReportBody::ExitTest { test });
    }
}
