//! What a running launch prints after the page was made. Only with script: without it the page is what it was.

use std::time::Duration;

use engine::ids::TaskId;
use leptos::{html::Div, prelude::*, task::spawn_local};

use crate::{
    components::{button::Look, log_view::log_line},
    console::{LogLine, LogQuery},
    format,
    preferences::use_zone,
    server_fns::jobs::get_logs,
};

/// How often new lines are asked for.
const EVERY: Duration = Duration::from_secs(2);
/// Lines that are kept; of more the oldest go.
const KEPT: usize = 5_000;
/// So near to the end, in pixels, counts as at the end.
const AT_END: i32 = 40;

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
    let lines = RwSignal::new(Vec::<LogLine>::new());
    let unseen = RwSignal::new(0_u64);
    let interactive = RwSignal::new(false);
    let following = RwSignal::new(true);
    let end = NodeRef::<Div>::new();
    let next = StoredValue::new(query.from);
    let asking = StoredValue::new(false);
    let ask = move || {
        if asking.get_value() {
            return;
        }
        asking.set_value(true);
        let (task, query) = (task.clone(), LogQuery { from: next.get_value(), ..query.clone() });
        spawn_local(async move {
            // A failed try is followed by the next one.
            if let Ok(page) = get_logs(task, query).await {
                let new = page.lines.len() as u64;
                // Also where nothing matched: what was read once is not read again.
                if page.next.is_some() {
                    next.set_value(page.next);
                }
                if new > 0 {
                    lines.update(|lines| {
                        lines.extend(page.lines);
                        let over = lines.len().saturating_sub(KEPT);
                        lines.drain(..over);
                    });
                    if is_at_end(end) && following.get_untracked() {
                        scroll_to_end(end);
                    } else {
                        unseen.update(|n| *n += new);
                    }
                }
            }
            asking.set_value(false);
        });
    };
    Effect::new(move |_| {
        interactive.set(true);
        scroll_to_end(end);
        let ask = ask.clone();
        if let Ok(timer) = set_interval_with_handle(ask, EVERY) {
            on_cleanup(move || timer.clear());
        }
    });
    let to_end = move |_| {
        following.set(true);
        unseen.set(0);
        scroll_to_end(end);
    };
    view! {
        <ol>{move || lines.get().iter().map(|line| log_line(line, None, &q, zone)).collect_view()}</ol>
        <div node_ref=end class="sticky bottom-0 left-0 flex justify-end px-3 font-sans">
            {move || {
                (interactive.get() && unseen.get() > 0)
                    .then(|| {
                        view! {
                            <button type="button" class=Look::Small.class() on:click=to_end>
                                {move || format::plural(unseen.get(), "new line", "new lines")}
                            </button>
                        }
                    })
            }}
        </div>
    }
}

/// The scrolling region around the lines.
fn region(end: NodeRef<Div>) -> Option<leptos::web_sys::Element> {
    end.get_untracked()?.closest("[role=log]").ok()?
}

fn is_at_end(end: NodeRef<Div>) -> bool {
    // The new lines are not laid out yet, so this is where the reader was before them.
    region(end).is_some_and(|r| r.scroll_height() - r.scroll_top() - r.client_height() <= AT_END)
}

fn scroll_to_end(end: NodeRef<Div>) {
    request_animation_frame(move || {
        if let Some(region) = region(end) {
            region.set_scroll_top(region.scroll_height());
        }
    });
}
