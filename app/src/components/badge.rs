//! States as badges: always a mark, a word and a tone, so that they read in grey too.

use engine::{
    failure::FailureType,
    job::{JobKind, Mode},
    record::{State, Substate},
};
use leptos::prelude::*;

use super::icon::{Icon, Mark};

/// The tone of a state. Never used without a mark and a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Waits, or has ended by a person.
    Grey,
    /// Works.
    Blue,
    /// Recovers.
    Violet,
    /// Mind this.
    Amber,
    /// Good.
    Green,
    /// Failed.
    Red,
}

impl Tone {
    /// The colour of its text.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Grey => "text-grey",
            Self::Blue => "text-blue",
            Self::Violet => "text-violet",
            Self::Amber => "text-amber",
            Self::Green => "text-green",
            Self::Red => "text-red",
        }
    }

    /// Text, ground and edge.
    pub const fn boxed(self) -> &'static str {
        match self {
            Self::Grey => "text-grey bg-grey-soft border-grey-edge",
            Self::Blue => "text-blue bg-blue-soft border-blue-edge",
            Self::Violet => "text-violet bg-violet-soft border-violet-edge",
            Self::Amber => "text-amber bg-amber-soft border-amber-edge",
            Self::Green => "text-green bg-green-soft border-green-edge",
            Self::Red => "text-red bg-red-soft border-red-edge",
        }
    }
}

/// Tone, mark and word of a state.
pub const fn of_state(state: State) -> (Tone, Mark, &'static str) {
    match state {
        State::Queued => (Tone::Grey, Mark::Queued, "Queued"),
        State::Starting => (Tone::Blue, Mark::Starting, "Starting"),
        State::Running => (Tone::Blue, Mark::Running, "Running"),
        State::Recovering => (Tone::Violet, Mark::Recovering, "Recovering"),
        State::Saving => (Tone::Grey, Mark::Saving, "Saving"),
        State::Stopping => (Tone::Grey, Mark::Saving, "Stopping"),
        State::Succeeded => (Tone::Green, Mark::Ok, "Succeeded"),
        State::Failed => (Tone::Red, Mark::Failed, "Failed"),
        State::Stopped => (Tone::Grey, Mark::Stopped, "Stopped"),
    }
}

/// Tone, mark and word of a substate that stands beside the state; none for those that the words beside the badge tell.
pub const fn of_substate(substate: Substate) -> Option<(Tone, Mark, &'static str)> {
    match substate {
        Substate::SuspectedHang => Some((Tone::Amber, Mark::Warning, "Suspected hang")),
        Substate::Unschedulable => Some((Tone::Red, Mark::Unschedulable, "Cannot be scheduled")),
        Substate::Unknown => Some((Tone::Amber, Mark::Unknown, "State unknown")),
        Substate::InPlaceRestart | Substate::BackOff | Substate::Resubmitted | Substate::Diagnosing => None,
    }
}

/// A mark and a word on a toned ground.
#[component]
pub fn Badge(
    /// The tone.
    tone: Tone,
    /// The mark.
    mark: Mark,
    /// The word.
    #[prop(into)]
    text: String,
    /// In a page's title.
    #[prop(optional)]
    large: bool,
) -> impl IntoView {
    let size = if large { "h-6 pl-2 pr-2.5 text-sm" } else { "h-5 pl-1.5 pr-2 text-xs" };
    let class = format!(
        "inline-flex items-center gap-1.5 border rounded-sm font-medium leading-none! whitespace-nowrap align-top {size} {}",
        tone.boxed()
    );
    view! { <span class=class><Icon mark=mark/>{text}</span> }
}

/// The badge of a state.
#[component]
pub fn StateBadge(
    /// The state.
    state: State,
    /// In a page's title.
    #[prop(optional)]
    large: bool,
) -> impl IntoView {
    let (tone, mark, text) = of_state(state);
    view! { <Badge tone mark text large/> }
}

/// The badges of a job: its state and what stands beside it.
#[component]
pub fn JobBadges(
    /// The state.
    state: State,
    /// What stands beside it.
    substate: Option<Substate>,
    /// In a page's title.
    #[prop(optional)]
    large: bool,
) -> impl IntoView {
    let beside = substate.and_then(of_substate);
    view! {
        <span class="inline-flex flex-wrap gap-1 align-top">
            <StateBadge state large/>
            {beside.map(|(tone, mark, text)| view! { <Badge tone mark text large/> })}
        </span>
    }
}

/// A mark and a word without a ground, inside text.
#[component]
pub fn Bare(
    /// The tone.
    tone: Tone,
    /// The mark.
    mark: Mark,
    /// The word.
    #[prop(into)]
    text: String,
) -> impl IntoView {
    let class =
        format!("inline-flex items-center gap-1.5 font-medium whitespace-nowrap align-top {}", tone.text());
    view! { <span class=class><Icon mark=mark/>{text}</span> }
}

/// A word on a pale ground: `original`, `newest`.
#[component]
pub fn Tag(
    /// The word.
    #[prop(into)]
    text: String,
) -> impl IntoView {
    view! {
        <span class="inline-flex items-center h-4.5 px-1.5 rounded-sm bg-hover text-ink-2 text-xs leading-none! whitespace-nowrap">
            {text}
        </span>
    }
}

/// A failure type: its code, and its plain words where `plain` is set.
#[component]
pub fn TypeCode(
    /// The type.
    failure: FailureType,
    /// With its plain words behind it.
    #[prop(optional)]
    plain: bool,
) -> impl IntoView {
    view! {
        <span class="font-mono text-xs whitespace-nowrap" title=failure.plain()>{failure.as_str()}</span>
        {plain.then(|| view! { <span class="text-ink-3">" " {failure.plain()}</span> })}
    }
}

/// A kind as it is shown.
pub const fn kind_name(kind: JobKind) -> &'static str {
    match kind {
        JobKind::PyTorchJob => "PyTorchJob",
        JobKind::RayJob => "RayJob",
    }
}

/// A mode as it is shown.
pub const fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::None => "Auto Failover off",
        Mode::Basic => "Basic mode",
        Mode::Advanced => "Advanced mode",
        Mode::Full => "Full mode",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_has_its_own_word_and_recovering_is_never_red() {
        let words: std::collections::BTreeSet<_> =
            State::ALL.map(|state| of_state(state).2).into_iter().collect();
        assert_eq!(words.len(), State::ALL.len());
        assert_eq!(of_state(State::Recovering).0, Tone::Violet);
    }

    #[test]
    fn a_badge_holds_mark_word_and_tone() {
        let html = Owner::new().with(|| view! { <StateBadge state=State::Failed/> }.to_html());
        assert!(html.contains("Failed") && html.contains("<svg") && html.contains("text-red"), "{html}");
    }
}
