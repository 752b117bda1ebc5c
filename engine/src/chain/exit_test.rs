//! A test of Exit ckpt Notification (R18): the program is told to save in every replica, really, and goes on.
//!
//! Choices:
//! - The attempt keeps its stage: training goes on as far as the program lets it. Whatever really happens meanwhile, a stop, a preemption, a
//!   failure, ends the test; a real end tells the program anew, and its time counts from then.
//! - The contract lets a program go on after a save. One that ends because it was told to is no failure: it is started again on the same
//!   nodes, nothing is charged, and the decision says that the test ended it. How a program that was told ended counts as the test's doing
//!   while the test goes on, whatever it prints of its save, and for [`limits::EXIT_TEST_AFTER_SECONDS`] where no line of it names an error;
//!   never where the cluster says more, or the type is another than an error of the program.
//! - An agent that does not know the order says nothing. So one that has not said that it began is given up, and named.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    Chain, Course, Intent,
    attempt::{self, Attempt, Stage},
    incident::Gathering,
    limits,
    saving::{may_save, weight},
    turn::{Turn, bounded},
};
use crate::{
    failure::{Confidence, FailureType, Role, Verdict},
    job::JobKind,
    policy::{Need, Refusal},
    record::{
        Action, AttemptCause, AttemptResult, Budget, EventReason, ExitTestRecord, ExitTestVerdict,
        LaunchCause, ReplicaTestRecord, SaveOutcome, State, Used,
    },
    sync::{CheckpointEvent, ExitTestOrder, ExitTestReport},
    time::Time,
    words,
};

/// The rule of a verdict and a decision that a test brought about.
pub(super) const RULE: &str = "exit-test";

/// The newest test of an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ExitTest {
    number: u32,
    launch: u32,
    by: String,
    asked_at: Time,
    deadline_at: Time,
    max_wait_seconds: u32,
    /// Agents that have not said by then that they began are given up.
    begun_by: Time,
    /// When all the others are; later than the deadline, as their word has to get here.
    given_up_at: Time,
    /// Replicas that are asked.
    asked: u32,
    /// What replicas said, by index; the first end of each.
    said: BTreeMap<u32, Said>,
    over_at: Option<Time>,
    verdict: ExitTestVerdict,
    text: String,
    warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Said {
    received_at: Option<Time>,
    /// None where nothing was heard.
    outcome: Option<SaveOutcome>,
    step: Option<u64>,
    path: Option<String>,
    message: Option<String>,
    millis: Option<u64>,
}

impl Said {
    fn has_ended(&self) -> bool {
        self.outcome.is_some_and(|outcome| outcome != SaveOutcome::Saving)
    }
}

impl ExitTest {
    pub fn goes_on(&self) -> bool {
        self.over_at.is_none()
    }

    fn has_ended(&self, index: usize) -> bool {
        self.said.get(&(index as u32)).is_some_and(Said::has_ended)
    }

    /// What the agents of a launch are told.
    pub fn order(&self, launch: u32) -> Option<ExitTestOrder> {
        let is_wanted = self.goes_on() && self.launch == launch;
        is_wanted.then_some(ExitTestOrder { number: self.number, deadline_at: self.deadline_at })
    }

    /// Whether what a process of this launch does now is an answer to being told.
    fn covers(&self, launch: u32, at: Time) -> bool {
        let until = self.over_at.map(|over| over.plus_seconds(limits::EXIT_TEST_AFTER_SECONDS));
        self.launch == launch
            && self.verdict != ExitTestVerdict::CutShort
            && until.is_none_or(|until| at <= until)
    }

    /// Whether a replica's program was told, or may have been: its agent has begun, and somebody listened.
    fn was_told(&self, index: usize) -> bool {
        let outcome = self.said.get(&(index as u32)).and_then(|said| said.outcome);
        outcome.is_some_and(|outcome| outcome != SaveOutcome::NoAnswer)
    }

    /// When it was over; none while it goes on.
    pub const fn over_at(&self) -> Option<Time> {
        self.over_at
    }

    /// Nobody could be heard for a while. A program that was not told by then has all its time yet.
    pub fn put_off(&mut self, until: Time) {
        self.begun_by = self.begun_by.max(until);
        if self.said.values().all(|said| said.outcome.is_none()) {
            self.deadline_at = self.deadline_at.max(until.plus_seconds(self.max_wait_seconds.into()));
        }
        let word_by = self.deadline_at.plus_seconds(limits::SAVE_WORD_SECONDS);
        self.given_up_at = self.given_up_at.max(until).max(word_by);
    }

    pub fn record(&self) -> ExitTestRecord {
        let mut replicas: Vec<(u32, ReplicaTestRecord)> = self
            .said
            .iter()
            .map(|(index, said)| {
                let one = ReplicaTestRecord {
                    replica: attempt::name(JobKind::PyTorchJob, *index as usize),
                    received_at: said.received_at,
                    outcome: said.outcome,
                    step: said.step,
                    path: said.path.clone(),
                    seconds: said.millis.map(|millis| millis as f64 / 1e3),
                    message: said.message.clone(),
                };
                (u32::from(said.outcome == Some(SaveOutcome::Saved)), one)
            })
            .collect();
        replicas.sort_by_key(|(is_saved, _)| *is_saved);
        replicas.truncate(limits::EXIT_TEST_REPLICAS);
        ExitTestRecord {
            number: self.number,
            launch: self.launch,
            by: self.by.clone(),
            asked_at: self.asked_at,
            deadline_at: self.deadline_at,
            max_wait_seconds: self.max_wait_seconds,
            ended_at: self.over_at,
            verdict: self.verdict,
            text: self.text.clone(),
            warnings: self.warnings.clone(),
            replicas_total: self.asked,
            replicas: replicas.into_iter().map(|(_, one)| one).collect(),
        }
    }
}

/// Why a test cannot begin now, a sentence; none where it can.
pub(super) fn refusal(chain: &Chain) -> Option<String> {
    let attempt = &chain.attempt;
    let state = super::summary::state(chain);
    if !chain.spec.fault_tolerance.exit_checkpoint.enabled {
        let why = "Exit ckpt Notification is off for this job, so its program is told nothing and cannot be tested.";
        return Some(why.to_owned());
    }
    if let Stage::Saving(_) = attempt.stage {
        return Some(
            "It is told to save already, because it ends: what comes of that is shown here.".to_owned(),
        );
    }
    if chain.intent != Intent::Run || chain.course != Course::Attempt || attempt.stage != Stage::Running {
        return Some(format!("It is {}. Only a program that runs can be told to save.", state.as_str()));
    }
    if let Some(test) = attempt.exit_test.as_ref().filter(|test| test.goes_on()) {
        return Some(format!("{} tests it already; one test at a time.", test.by));
    }
    let silent = attempt.starting().iter().position(|replica| replica.silent.is_some());
    silent.map(|index| {
        let name = attempt::name(chain.spec.kind, index);
        format!("The agent of {name} is not heard now, so its program cannot be told.")
    })
}

impl Turn {
    /// A person wants a test. What forbids it was said to them before; where it came about since, the history says it.
    pub fn test_exit(&mut self, by: &str) {
        if let Some(why) = refusal(&self.chain) {
            let text = format!("No test of Exit ckpt Notification. {why}");
            return self.tell(EventReason::ExitTestAsked, by, &text);
        }
        let wait = self.chain.spec.fault_tolerance.exit_checkpoint.max_wait_seconds;
        let now = self.now;
        let deadline_at = now.plus_seconds(wait.into());
        let attempt = &mut self.chain.attempt;
        let number = attempt.exit_test.as_ref().map_or(0, |test| test.number).saturating_add(1);
        let empty =
            Said { received_at: None, outcome: None, step: None, path: None, message: None, millis: None };
        let asked = (0..attempt.starting().len()).filter(|index| may_save(attempt, *index));
        let said: BTreeMap<u32, Said> = asked.map(|index| (index as u32, empty.clone())).collect();
        attempt.exit_test = Some(Box::new(ExitTest {
            number,
            launch: attempt.launch.number,
            by: by.to_owned(),
            asked_at: now,
            deadline_at,
            max_wait_seconds: wait,
            begun_by: now.plus_seconds(limits::EXIT_TEST_BEGIN_SECONDS),
            given_up_at: deadline_at.plus_seconds(limits::SAVE_WORD_SECONDS),
            asked: said.len() as u32,
            said,
            over_at: None,
            verdict: ExitTestVerdict::Running,
            text: "It is told to save in every replica.".to_owned(),
            warnings: Vec::new(),
        }));
        self.touch_attempt();
        let text = format!(
            "Asked to test Exit ckpt Notification: the program is told to save, has at most {}, and goes on.",
            words::duration(f64::from(wait))
        );
        self.tell(EventReason::ExitTestAsked, by, &text);
    }

    /// A replica tells how the test stands.
    pub fn take_exit_test(&mut self, index: usize, at: Time, report: &ExitTestReport) {
        let Some(test) = &mut self.chain.attempt.exit_test else { return };
        if test.number != report.number || !test.goes_on() || report.outcome == SaveOutcome::Forced {
            return;
        }
        let Some(said) = test.said.get_mut(&(index as u32)).filter(|said| !said.has_ended()) else { return };
        // The agent says how long ago, by one clock; when it says so is known by the other.
        let since = |millis: u64| Time(at.micros().saturating_sub_unsigned(millis.saturating_mul(1000)));
        if let Some(received) = report.received_millis {
            let ago = report.took_millis.unwrap_or(received).saturating_sub(received);
            said.received_at.get_or_insert(since(ago));
        }
        let text = |text: &Option<String>| text.as_deref().map(bounded);
        said.outcome = Some(report.outcome);
        said.step = report.step.and_then(crate::progress::as_step);
        (said.path, said.message) = (text(&report.path), text(&report.message));
        said.millis = report.took_millis;
        self.touch_attempt();
    }

    /// A test that is over is told; one that something else ends, too.
    pub fn settle_exit_test(&mut self) {
        let attempt = &self.chain.attempt;
        let Some(test) = attempt.exit_test.as_ref().filter(|test| test.goes_on()) else { return };
        let cut_short = match &attempt.stage {
            _ if test.launch != attempt.launch.number => Some("another launch began first"),
            Stage::Running | Stage::Failing(_) => None,
            Stage::Saving(_) => Some("a real end came first, and the program is told anew"),
            Stage::Over(State::Succeeded) => Some("the program finished its work first"),
            Stage::Queued | Stage::Starting | Stage::Stopping | Stage::Over(_) => {
                Some("the launch ended first")
            }
        };
        let waits = |index: usize| {
            let has_begun = test.said.get(&(index as u32)).is_some_and(|said| said.outcome.is_some());
            may_save(attempt, index)
                && !test.has_ended(index)
                && self.now < if has_begun { test.given_up_at } else { test.begun_by }
        };
        if cut_short.is_none() && (0..attempt.starting().len()).any(waits) {
            return;
        }
        self.end_exit_test(cut_short);
    }

    fn end_exit_test(&mut self, cut_short: Option<&str>) {
        let now = self.now;
        let Some(mut test) = self.chain.attempt.exit_test.take() else { return };
        for (index, said) in test.said.iter_mut().filter(|(_, said)| !said.has_ended()) {
            let quiet = self.chain.attempt.replicas[*index as usize].is_quiet();
            let (outcome, message) = match said.outcome {
                _ if cut_short.is_some() => continue,
                Some(_) if quiet => (SaveOutcome::Failed, "it ended before it had saved"),
                Some(_) => (SaveOutcome::TimedOut, "it was still saving"),
                None if quiet => (SaveOutcome::NoAnswer, "it ended before it was told"),
                None => (
                    SaveOutcome::NoAnswer,
                    "its agent did not begin: it cannot be heard, or is of an older Holdfast that knows no test",
                ),
            };
            said.outcome = Some(outcome);
            said.message.get_or_insert(message.to_owned());
        }
        let outcome = test.said.values().filter_map(|said| said.outcome).min_by_key(|one| weight(*one));
        let saved = outcome == Some(SaveOutcome::Saved);
        (test.verdict, test.text) = match cut_short {
            Some(why) => (ExitTestVerdict::CutShort, format!("The test was cut short: {why}.")),
            None if saved => (ExitTestVerdict::Passed, passed(&test)),
            None => (ExitTestVerdict::Failed, failed(&test, outcome.unwrap_or(SaveOutcome::NoAnswer))),
        };
        test.over_at = Some(now);
        if saved && cut_short.is_none() {
            test.warnings = warnings(&test);
        }
        let text = test.text.clone();
        let save = test.said.values().filter(|said| said.outcome == Some(SaveOutcome::Saved));
        let newest = save.min_by_key(|said| said.step.unwrap_or(u64::MAX));
        let newest =
            newest.filter(|_| saved && cut_short.is_none()).map(|said| (said.step, said.path.clone()));
        self.chain.attempt.exit_test = Some(test);
        self.touch_attempt();
        self.tell(EventReason::ExitTested, "holdfast", &text);
        if let Some((step, path)) = newest {
            self.take_checkpoint(&CheckpointEvent { at: now, loaded: false, step, path });
        }
    }

    /// Whether a process of a replica that ended well then did so because it was told to save, and not because its work is done.
    pub fn ends_by_test(&self, index: usize, at: Time) -> bool {
        let attempt = &self.chain.attempt;
        let is_told = attempt
            .exit_test
            .as_ref()
            .is_some_and(|test| test.was_told(index) && test.covers(attempt.launch.number, at));
        let is_done = self.chain.history.total.is_some_and(|total| self.chain.history.reached >= Some(total));
        is_told && !is_done
    }

    /// The program ended because of a test: it goes on from its newest checkpoint, and nothing is charged.
    pub fn go_on_after_test(&mut self, stop_ends: Time) {
        let attempt = &self.chain.attempt;
        let restless = attempt.starting().iter().filter(|replica| !replica.is_quiet()).count();
        if restless > 0 && self.now < stop_ends {
            let need = Need::of_holdfast(Action::RestartInPlace, RULE, String::new());
            return self.put_off(&need, &Refusal::StillStopping { replicas: restless as u32 });
        }
        let told = "It ended because a test of Exit ckpt Notification told it to save; that is no failure and is not charged.";
        if restless == 0 && attempt.first_ended().is_none() {
            let text = format!("{told} It is started again on the same nodes.");
            let need = Need::of_holdfast(Action::RestartInPlace, RULE, text);
            return self.restart_in_place(&need, LaunchCause::ExitTest, FailureType::Unknown);
        }
        let why = if restless > 0 { "did not stop in time" } else { "are gone" };
        let text = format!("{told} Some of its replicas {why}, so it is resubmitted.");
        let need = Need::of_holdfast(Action::Resubmit, RULE, text.clone());
        let answer = (Action::Resubmit, Some(EventReason::Resubmit));
        self.write_decision(&need, answer, text, Budget::None, Used::default(), &[]);
        self.close_attempt(State::Stopped, AttemptResult::Resubmitted);
        self.chain.course = Course::Next { cause: AttemptCause::ExitTest, not_before: self.now };
    }
}

fn passed(test: &ExitTest) -> String {
    let slowest = test.said.values().filter_map(|said| said.millis).max().unwrap_or_default();
    let saved = test.said.values().filter(|said| said.outcome == Some(SaveOutcome::Saved)).count();
    format!(
        "The test passed: {saved} of {} saved, the slowest within {}.",
        words::count(test.asked, "replica"),
        words::duration(slowest as f64 / 1e3)
    )
}

fn failed(test: &ExitTest, outcome: SaveOutcome) -> String {
    let first = test.said.iter().find(|(_, said)| said.outcome == Some(outcome));
    let why = first.map(|(index, said)| {
        let name = attempt::name(JobKind::PyTorchJob, *index as usize);
        let message = said.message.as_deref().map(|text| format!(": {text}")).unwrap_or_default();
        format!(" {name}: {}{message}.", outcome.plain())
    });
    format!("The test failed.{}", why.unwrap_or_default())
}

fn warnings(test: &ExitTest) -> Vec<String> {
    let mut all = Vec::new();
    let slowest = test.said.values().filter_map(|said| said.millis).max().unwrap_or_default();
    if slowest.saturating_mul(2) > u64::from(test.max_wait_seconds) * 1000 {
        all.push(format!(
            "The save took {} of the {} that it may: a busy disk may make it too slow. Raise the Maximum wait for the save.",
            words::duration(slowest as f64 / 1e3),
            words::duration(f64::from(test.max_wait_seconds))
        ));
    }
    let silent = |said: &&Said| said.outcome == Some(SaveOutcome::NoAnswer);
    let silent = test.said.values().filter(silent).count() as u32;
    if silent > 0 {
        all.push(format!(
            "{} did not answer. That is right only where those that did save for all.",
            words::count(silent, "replica")
        ));
    }
    if test.said.values().any(|said| said.outcome == Some(SaveOutcome::Saved) && said.step.is_none()) {
        all.push(
            "The step that was saved was not named, so the next launch cannot be checked against it."
                .to_owned(),
        );
    }
    all
}

/// Whether an incident is the test's doing.
pub(super) fn caused(attempt: &Attempt, gathered: &Gathering, verdict: &Verdict) -> bool {
    let Some(test) = &attempt.exit_test else { return false };
    let is_meanwhile = test.over_at.is_none_or(|over| gathered.noticed_at <= over);
    let says_nothing_else = matches!(verdict.failure_type, FailureType::Unknown | FailureType::AppError)
        && (is_meanwhile || verdict.evidence.iter().all(|line| line.role != Role::Root));
    says_nothing_else
        && gathered.facts.is_empty()
        && gathered.checks.is_none()
        && gathered.hang.is_none()
        && (0..attempt.starting().len()).any(|index| test.was_told(index))
        && test.covers(attempt.launch.number, gathered.noticed_at)
}

/// The verdict on a program that ended because of a test.
pub(super) fn verdict(found: Verdict) -> Verdict {
    Verdict {
        failure_type: FailureType::Unknown,
        confidence: Confidence::High,
        rule: RULE.to_owned(),
        fingerprint: format!("{}:{RULE}:", FailureType::Unknown),
        fault: "the program ended because a test told it to save".to_owned(),
        suspects: Vec::new(),
        hint: Some(
            "After a save the program should go on: it is ended for it when it is really to end.".to_owned(),
        ),
        ..found
    }
}

/// When something of a test is over without news.
pub(super) fn due(attempt: &Attempt) -> Option<Time> {
    let test = attempt.exit_test.as_ref().filter(|test| test.goes_on())?;
    let unheard = test.said.values().any(|said| said.outcome.is_none());
    Some(if unheard { test.begun_by.min(test.given_up_at) } else { test.given_up_at })
}
