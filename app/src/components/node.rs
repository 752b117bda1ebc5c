//! How a node stands: its badge, its strikes, until when it is kept out.

use engine::{
    nodes::standing::{NodeState, Quarantine, Uncounted},
    record::Used,
};
use leptos::prelude::*;

use super::{
    badge::{Badge, Tone},
    icon::Mark,
    pips::PipRow,
};
use crate::{format, preferences::use_zone};

/// The badge of a node.
#[component]
pub fn NodeBadge(
    /// How it stands.
    state: NodeState,
    /// In a page's title.
    #[prop(optional)]
    large: bool,
) -> impl IntoView {
    let (tone, mark, text) = match state {
        NodeState::Ready => (Tone::Green, Mark::Ok, "Ready"),
        NodeState::Suspected => (Tone::Amber, Mark::Warning, "Suspected"),
        NodeState::OnTrial => (Tone::Amber, Mark::Warning, "On trial"),
        NodeState::Quarantined => (Tone::Red, Mark::Unschedulable, "Quarantined"),
    };
    view! { <Badge tone mark text large/> }
}

/// `■■□ 2 of 3`: strikes that count, and how many put a node out.
#[component]
pub fn StrikeCount(
    /// Strikes that count.
    counted: u32,
    /// How many put it out.
    limit: u32,
) -> impl IntoView {
    let used = Used { used: counted, allowed: limit };
    view! {
        <span class="inline-flex items-center gap-1.5 whitespace-nowrap">
            <PipRow used/>
            <span>{format!("{counted} of {limit}")}</span>
        </span>
    }
}

/// Until when a node is kept out.
#[component]
pub fn Until(
    /// Its quarantine.
    out: Quarantine,
) -> impl IntoView {
    let zone = use_zone();
    match out.until {
        Some(until) => view! {
            <time datetime=until.to_string()>{format::date_time(until, zone)}</time> ", then on trial"
        }
        .into_any(),
        None => view! { "until released" }.into_any(),
    }
}

/// Why a strike does not count, in a few words.
pub const fn uncounted_words(why: Uncounted) -> &'static str {
    match why {
        Uncounted::Expired => "too old to count",
        Uncounted::Released => "before the last release, does not count",
        Uncounted::Correlated => "its job struck many nodes at once, does not count",
    }
}
