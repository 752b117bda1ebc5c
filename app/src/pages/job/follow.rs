//! What a running launch prints after the page was made. Only with script: without it the page is what it was.

use std::time::Duration;

use engine::{ids::TaskId, time::Time};
use leptos::{ev, html::Div, leptos_dom::helpers::TimeoutHandle, prelude::*, task::spawn_local, web_sys};

use crate::{
    components::{button::Look, log_view::log_line},
    console::{LogLine, LogPage, LogQuery},
    error::AppError,
    format,
    live::back_off_millis,
    preferences::use_zone,
    server_fns::jobs::get_logs,
    shortcuts::named,
};

/// How often new lines are asked for.
const EVERY: Duration = Duration::from_secs(2);
/// Lines that are kept; of more the oldest go.
const KEPT: usize = 5_000;
/// So near to the end, in pixels, counts as at the end.
const AT_END: i32 = 40;

/// How following stands after the last answer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    /// More may come.
    Following,
    /// The last tries failed, one after the other.
    Paused { failures: u32 },
    /// The launch ended and all it printed is here.
    Ended,
    /// It will never be answered.
    Refused { why: String },
}

impl Standing {
    fn after(&self, answer: Result<&LogPage, &AppError>) -> Self {
        match answer {
            Ok(page) if page.next.is_none() => Self::Ended,
            Ok(_) => Self::Following,
            Err(error @ (AppError::NotFound { .. } | AppError::SignIn | AppError::Forbidden { .. })) => {
                Self::Refused { why: error.to_string() }
            }
            Err(_) => match self {
                Self::Paused { failures } => Self::Paused { failures: failures.saturating_add(1) },
                _ => Self::Paused { failures: 1 },
            },
        }
    }

    /// How long until the next try; none once there is nothing to try for.
    fn wait(&self) -> Option<Duration> {
        match self {
            Self::Following => Some(EVERY),
            Self::Paused { failures } => {
                Some(EVERY.max(Duration::from_millis(back_off_millis(failures.saturating_add(1)))))
            }
            Self::Ended | Self::Refused { .. } => None,
        }
    }
}

/// A log that is followed. Copies share it.
#[derive(Clone, Copy)]
struct Follower {
    task: StoredValue<TaskId>,
    query: StoredValue<LogQuery>,
    lines: RwSignal<Vec<LogLine>>,
    standing: RwSignal<Standing>,
    /// When lines were last asked for and given.
    answered: RwSignal<Option<Time>>,
    /// New lines go into view.
    scrolls: RwSignal<bool>,
    /// New lines below what is in view.
    unseen: RwSignal<u64>,
    end: NodeRef<Div>,
    timer: StoredValue<Option<TimeoutHandle>>,
    asking: StoredValue<bool>,
}

impl Follower {
    fn new(task: TaskId, query: LogQuery) -> Self {
        Self {
            task: StoredValue::new(task),
            query: StoredValue::new(query),
            lines: RwSignal::default(),
            standing: RwSignal::new(Standing::Following),
            answered: RwSignal::default(),
            scrolls: RwSignal::new(true),
            unseen: RwSignal::default(),
            end: NodeRef::new(),
            timer: StoredValue::default(),
            asking: StoredValue::default(),
        }
    }

    /// Begins once the page is in the browser.
    fn start(self) {
        self.to_end();
        self.answered.set(now());
        self.ask_after(EVERY);
        if let Some(region) = self.region() {
            let listening = region.on(ev::scroll, move |_| self.scrolled());
            on_cleanup(move || drop(listening));
        }
        on_cleanup(move || {
            if let Some(timer) = self.timer.try_update_value(Option::take).flatten() {
                timer.clear();
            }
        });
    }

    fn ask_after(self, wait: Duration) {
        let timer = set_timeout_with_handle(move || self.ask(), wait).ok();
        // The page may be gone; then there is nothing to ask for.
        if let Some(Some(before)) = self.timer.try_update_value(|slot| std::mem::replace(slot, timer)) {
            before.clear();
        }
    }

    fn ask(self) {
        if self.asking.try_get_value() != Some(false) {
            return;
        }
        if document().hidden() {
            return self.ask_after(EVERY);
        }
        self.asking.set_value(true);
        let (task, query) = (self.task.get_value(), self.query.get_value());
        spawn_local(async move {
            let answer = get_logs(task, query).await;
            if self.asking.try_set_value(false).is_some() {
                return;
            }
            let standing = self.standing.with_untracked(|standing| standing.after(answer.as_ref()));
            let wait = standing.wait();
            self.standing.set(standing);
            if let Ok(page) = answer {
                self.take(page);
            }
            if let Some(wait) = wait {
                self.ask_after(wait);
            }
        });
    }

    fn take(self, page: LogPage) {
        self.answered.set(now());
        // Also where nothing matched: what was read once is not read again.
        if page.next.is_some() {
            self.query.update_value(|query| query.from = page.next);
        }
        let new = page.lines.len() as u64;
        if new == 0 {
            return;
        }
        self.lines.update(|lines| {
            lines.extend(page.lines);
            let over = lines.len().saturating_sub(KEPT);
            lines.drain(..over);
        });
        if self.scrolls.get_untracked() {
            self.to_end();
        } else {
            self.unseen.update(|unseen| *unseen += new);
        }
    }

    /// The scrolling region around the lines.
    fn region(self) -> Option<web_sys::Element> {
        // A frame that was asked for may be drawn when the page is gone.
        self.end.try_get_untracked()??.closest("[role=log]").ok()?
    }

    fn scrolled(self) {
        let at_end =
            self.region().is_some_and(|r| r.scroll_height() - r.scroll_top() - r.client_height() <= AT_END);
        if at_end != self.scrolls.get_untracked() {
            self.scrolls.set(at_end);
        }
        if at_end {
            self.unseen.set(0);
        }
    }

    fn to_end(self) {
        self.scrolls.set(true);
        self.unseen.set(0);
        request_animation_frame(move || {
            if let Some(region) = self.region() {
                region.set_scroll_top(region.scroll_height());
            }
        });
    }

    /// The one button of a log that is followed: to its end, or no further.
    fn toggle(self) {
        if self.scrolls.get_untracked() { self.scrolls.set(false) } else { self.to_end() }
    }

    fn button_words(self) -> String {
        match (self.scrolls.get(), self.unseen.get()) {
            (true, _) => "Following".to_owned(),
            (false, 0) => "Follow".to_owned(),
            (false, new) => format::plural(new, "new line", "new lines"),
        }
    }
}

/// The browser's clock; none outside a browser.
fn now() -> Option<Time> {
    #[cfg(feature = "hydrate")]
    return Some(Time((js_sys::Date::now() * 1_000.0) as i64));
    #[cfg(not(feature = "hydrate"))]
    None
}

/// Follows a log while it is looked at; scrolling up stops the scrolling and counts what is new.
#[component]
pub fn Follow(
    /// The attempt.
    task: TaskId,
    /// Where to go on.
    query: LogQuery,
    /// Text to mark.
    q: String,
) -> impl IntoView {
    let zone = use_zone();
    let follower = Follower::new(task, query);
    let interactive = RwSignal::new(false);
    Effect::new(move |_| {
        interactive.set(true);
        follower.start();
    });
    view! {
        <ol>{move || follower.lines.get().iter().map(|line| log_line(line, None, &q, zone)).collect_view()}</ol>
        <div class="px-4 font-sans" role="status">
            {move || standing_view(follower)}
        </div>
        <div node_ref=follower.end class="sticky bottom-0 left-0 flex justify-end px-3 font-sans">
            {move || {
                (interactive.get() && follower.standing.with(|standing| standing.wait().is_some()))
                    .then(|| view! {
                        <button
                            type="button"
                            class=Look::Small.class()
                            title=named("Follow, or stop (f)")
                            aria-keyshortcuts=named("f")
                            aria-pressed=move || if follower.scrolls.get() { "true" } else { "false" }
                            on:click=move |_| follower.toggle()
                        >
                            {move || follower.button_words()}
                        </button>
                    })
            }}
        </div>
    }
}

/// A line below the log where following does not simply go on.
fn standing_view(follower: Follower) -> Option<AnyView> {
    let zone = use_zone();
    match follower.standing.get() {
        Standing::Following => None,
        Standing::Ended => Some(view! { <p class="py-2 text-ink-2">"The launch ended."</p> }.into_any()),
        Standing::Refused { why } => {
            Some(view! { <p class="py-2 text-ink-2">"Not followed any more. " {why}</p> }.into_any())
        }
        Standing::Paused { .. } => {
            let as_of = follower
                .answered
                .get()
                .map(|at| format!("; as of {} {}", format::clock(at, zone), zone.label()))
                .unwrap_or_default();
            Some(
                view! {
                    <p class="flex flex-wrap items-center gap-2 py-2 text-ink-2">
                        {format!("Paused{as_of}. It is tried again by itself.")}
                        <button type="button" class=Look::Small.class() on:click=move |_| follower.ask()>
                            "Try again"
                        </button>
                    </p>
                }
                .into_any(),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn page(next: Option<u64>) -> LogPage {
        LogPage {
            replica: samples::replica("master-0"),
            launch: 0,
            replicas: vec![],
            launches: vec![],
            lines: vec![],
            next,
            total: None,
        }
    }

    #[test]
    fn errors_are_tried_again_ever_later_and_an_answer_ends_that() {
        let full = AppError::Internal { request_id: "r".to_owned() };
        let mut standing = Standing::Following;
        let waits: Vec<u64> = (0..6)
            .map(|_| {
                standing = standing.after(Err(&full));
                standing.wait().map_or(0, |wait| wait.as_secs())
            })
            .collect();
        assert_eq!(waits, [2, 4, 8, 16, 30, 30]);
        assert_eq!(standing.after(Ok(&page(Some(7)))), Standing::Following);
    }

    #[test]
    fn following_ends_with_the_launch_or_where_no_answer_can_come() {
        let ended = Standing::Following.after(Ok(&page(None)));
        assert_eq!((&ended, ended.wait()), (&Standing::Ended, None));
        let gone = AppError::NotFound { what: "attempt".to_owned(), id: "t-1".to_owned() };
        assert_eq!(Standing::Following.after(Err(&gone)).wait(), None);
        let no_log = AppError::NotFound { what: "log of".to_owned(), id: "worker-9".to_owned() };
        assert_eq!(Standing::Following.after(Err(&no_log)).wait(), None);
    }
}
