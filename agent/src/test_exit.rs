//! `test-exit`: whether a program that runs answers Exit ckpt Notification as it should, and how long its save takes. It really saves.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use clap::Args;
use engine::record::{ExitReason, SaveOutcome};

use crate::notify::{self, Answer, Word};

/// What a pod has beside the wait for the save: the grace of a launch, and the agent's own.
const END_SECONDS: u64 = 20;

/// Settings of `test-exit`.
#[derive(Debug, Args)]
pub struct TestExitArgs {
    /// Where the program listens on 127.0.0.1: its $HOLDFAST_EXIT_PORT
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,

    /// Maximum wait for the save, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=600))]
    wait: u64,

    /// The time from TERM to KILL where the program will run, such as a pod's terminationGracePeriodSeconds
    #[arg(long, value_name = "SECONDS")]
    grace: Option<u64>,
}

/// Tells the program and prints what came of it; true where it saved.
#[expect(clippy::print_stdout, reason = "what it prints is what it is for")]
pub async fn run(args: &TestExitArgs) -> bool {
    println!("The program on port {} is told to save; it has at most {} s.", args.port, args.wait);
    let word = Word { reason: ExitReason::Stopped, deadline_seconds: args.wait, job_id: None, task_id: None };
    let begin = Instant::now();
    let taken = Cell::new(None);
    let deadline = begin + Duration::from_secs(args.wait);
    let answer = notify::tell(args.port, &word, deadline, || taken.set(Some(begin.elapsed()))).await;
    for line in lines(args, taken.get(), begin.elapsed(), &answer) {
        println!("{line}");
    }
    answer.outcome == SaveOutcome::Saved
}

fn lines(args: &TestExitArgs, taken: Option<Duration>, took: Duration, answer: &Answer) -> Vec<String> {
    let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
    let why = answer.message.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
    let mut lines = vec![match taken {
        Some(after) => format!("ok      notification received after {}", seconds(after)),
        None => format!("FAILED  notification not received, {}{why}", answer.outcome.plain()),
    }];
    if answer.outcome == SaveOutcome::Saved {
        let step = answer.step.map(|step| format!(" at step {step}")).unwrap_or_default();
        let path = answer.path.as_deref().map(|path| format!(", {path}")).unwrap_or_default();
        lines.push(format!("ok      saved{step}{path}{why}"));
        lines.push(format!("ok      it took {}", seconds(took)));
    } else if taken.is_some() {
        lines.push(format!("FAILED  {} after {}{why}", answer.outcome.plain(), seconds(took)));
    }
    if let Some(grace) = args.grace.filter(|grace| *grace < args.wait + END_SECONDS) {
        lines.push(format!(
            "WARNING the grace period of {grace} s is shorter than {} s, the wait for the save and {END_SECONDS} s to end: it may be killed while it saves",
            args.wait + END_SECONDS
        ));
    }
    if answer.outcome == SaveOutcome::Saved && took * 2 > Duration::from_secs(args.wait) {
        let took = seconds(took);
        lines.push(format!(
            "WARNING the save took {took} of {} s: a busy disk may make it too slow",
            args.wait
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_of_it_is_told_with_the_time_and_a_warning_where_time_is_short() {
        let args = TestExitArgs { port: 9000, wait: 60, grace: Some(30) };
        let saved =
            Answer { outcome: SaveOutcome::Saved, step: Some(7), path: Some("/c".to_owned()), message: None };
        let millis = Duration::from_millis;
        assert_eq!(
            lines(&args, Some(millis(10)), millis(42_000), &saved),
            [
                "ok      notification received after 0.0 s",
                "ok      saved at step 7, /c",
                "ok      it took 42.0 s",
                "WARNING the grace period of 30 s is shorter than 80 s, the wait for the save and 20 s to end: it may be killed while it saves",
                "WARNING the save took 42.0 s of 60 s: a busy disk may make it too slow",
            ]
        );
        let args = TestExitArgs { grace: None, ..args };
        let slow = Answer::of(SaveOutcome::TimedOut, "it was still saving");
        assert_eq!(
            lines(&args, Some(millis(10)), millis(60_000), &slow)[1..],
            ["FAILED  not saved in time after 60.0 s: it was still saving"]
        );
        let closed = Answer::of(SaveOutcome::NoAnswer, "nobody listens on port 9000");
        assert_eq!(
            lines(&args, None, millis(2_000), &closed),
            ["FAILED  notification not received, no answer: nobody listens on port 9000"]
        );
    }
}
