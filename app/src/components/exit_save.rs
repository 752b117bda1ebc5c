//! The save before the end: how long it may still take, and how it went.

use engine::{
    record::{ExitCheckpointRecord, ExitReason, SaveOutcome},
    time::Time,
    words,
};
use leptos::prelude::*;

use crate::format;

/// What is left until a moment, in words; counted down in the browser, right without it.
#[component]
pub fn Countdown(
    /// When it is over.
    until: Time,
    /// When the data was read, by the server's clock, so that both sides print the same.
    now: Time,
) -> impl IntoView {
    let left = RwSignal::new(until.seconds_since(now));
    #[cfg(feature = "hydrate")]
    browser::count(left);
    view! { <span role="timer">{move || words::time_left(left.get())}</span> }
}

/// How a save went, in a sentence of its own: `saved at step 140 (/ckpt/140) before it was stopped`.
pub fn save_words(save: &ExitCheckpointRecord) -> String {
    let step = save.step.map(|step| format!(" at step {}", format::count(step))).unwrap_or_default();
    let path = save.path.as_ref().map(|path| format!(" ({path})")).unwrap_or_default();
    let before = match save.reason {
        ExitReason::Preempted => "before it was preempted",
        ExitReason::Stopped => "before it was stopped",
        ExitReason::Deleted => "before it was deleted",
    };
    let what = match save.outcome {
        SaveOutcome::Saving => return format!("told to save {before}"),
        SaveOutcome::Forced => return "ended at once, without waiting for a save".to_owned(),
        outcome => outcome.plain(),
    };
    let why = save.message.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    format!("{what}{step}{path} {before}{why}")
}

#[cfg(feature = "hydrate")]
mod browser {
    use std::time::Duration;

    use leptos::prelude::*;

    const EVERY: Duration = Duration::from_secs(1);

    /// Goes by the time since the page came and not by the number of turns: hidden pages have few.
    pub(super) fn count(left: RwSignal<f64>) {
        Effect::new(move |_| {
            let (began, whole) = (js_sys::Date::now(), left.get_untracked());
            let tick = move || {
                let passed = (js_sys::Date::now() - began) / 1_000.0;
                // The page may be gone.
                let _ = left.try_set((whole - passed).max(0.0));
            };
            if let Ok(ticking) = set_interval_with_handle(tick, EVERY) {
                on_cleanup(move || ticking.clear());
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn save(outcome: SaveOutcome, reason: ExitReason) -> ExitCheckpointRecord {
        ExitCheckpointRecord {
            reason,
            notified_at: None,
            deadline_at: None,
            outcome,
            step: None,
            path: None,
            message: None,
        }
    }

    #[test]
    fn every_outcome_is_told() {
        let saved = ExitCheckpointRecord {
            step: Some(1_400),
            path: Some("/ckpt/1400".to_owned()),
            ..save(SaveOutcome::Saved, ExitReason::Preempted)
        };
        assert_eq!(save_words(&saved), "saved at step 1,400 (/ckpt/1400) before it was preempted");
        let failed = ExitCheckpointRecord {
            message: Some("disk full".to_owned()),
            ..save(SaveOutcome::Failed, ExitReason::Stopped)
        };
        assert_eq!(save_words(&failed), "not saved before it was stopped: disk full");
        assert_eq!(
            save_words(&save(SaveOutcome::TimedOut, ExitReason::Deleted)),
            "not saved in time before it was deleted"
        );
        assert_eq!(
            save_words(&save(SaveOutcome::Forced, ExitReason::Stopped)),
            "ended at once, without waiting for a save"
        );
    }

    #[test]
    fn the_time_left_is_right_without_script() {
        let html =
            Owner::new().with(|| view! { <Countdown until=Time(541_000_000) now=Time(0) /> }.to_html());
        assert!(html.contains("at most 10 min left") && html.contains("role=\"timer\""), "{html}");
    }
}
