//! A moment: short in the text, in full with its zone on hover and for machines.

use engine::time::Time;
use leptos::prelude::*;

use crate::{format, preferences::use_zone};

/// How long ago it was, seen from `now`, which comes with the data so that both sides print the same.
#[component]
pub fn Ago(
    /// The moment.
    at: Time,
    /// When the data was read.
    now: Time,
) -> impl IntoView {
    let zone = use_zone();
    view! { <time datetime=at.to_string() title=format::date_time(at, zone)>{format::ago(at, now, zone)}</time> }
}

/// `14:02:31`.
#[component]
pub fn ClockTime(
    /// The moment.
    at: Time,
) -> impl IntoView {
    let zone = use_zone();
    view! { <time datetime=at.to_string() title=format::date_time(at, zone)>{format::clock(at, zone)}</time> }
}
