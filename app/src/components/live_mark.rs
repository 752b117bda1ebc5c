//! Whether what is shown follows the world: "live 14:02:31 UTC", or since when it does not.

use engine::time::Time;
use leptos::prelude::*;

use crate::{
    format,
    live::{Live, LiveState},
    preferences::use_zone,
};

/// The mark beside a page's title. `now` is when the shown data was read.
#[component]
pub fn LiveMark(
    /// When the shown data was read.
    now: Time,
) -> impl IntoView {
    let zone = use_zone();
    let at = format!("{} {}", format::clock(now, zone), zone.label());
    let live = use_context::<Live>();
    let state = move || live.map_or(LiveState::Off, |live| live.state());
    let dot = move || match state() {
        LiveState::Live => "size-1.5 rounded-full bg-green ring-3 ring-green-soft",
        LiveState::Paused => "size-1.5 rounded-full bg-amber ring-3 ring-amber-soft",
        LiveState::Off => "size-1.5 rounded-full bg-ink-3 ring-3 ring-hover",
    };
    let words = move || match state() {
        LiveState::Live => format!("live {at}"),
        LiveState::Paused => format!("Live updates paused; as of {at}"),
        LiveState::Off => format!("as of {at}"),
    };
    let loaded = move || live.map(Live::loaded).filter(|changes| *changes > 0);
    view! {
        <span class="inline-flex items-center gap-1.5 text-ink-3 whitespace-nowrap">
            <span class=dot aria-hidden="true"></span>
            {words}
            <span role="status">
                {move || loaded().map(|changes| format!("· {} loaded", format::plural(changes, "change", "changes")))}
            </span>
        </span>
    }
}
