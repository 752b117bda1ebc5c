//! Why a launch was judged to hang: what every witness says, and where the ranks are.

use engine::{
    hang::{HangRecord, HangWitness, RankGroup, Strength},
    ids::IncidentId,
    record::IncidentRecord,
    sync::WitnessKind,
};
use leptos::prelude::*;

use super::when::ClockTime;
use crate::{format, paths};

/// Ranks of a group that are named before the rest is counted.
const NAMED: usize = 16;

/// The name of a kind of sign.
const fn name(kind: WitnessKind) -> &'static str {
    match kind {
        WitnessKind::Stack => "Stacks",
        WitnessKind::Step => "Steps",
        WitnessKind::Output => "Output",
        WitnessKind::Checkpoint => "Checkpoints",
        WitnessKind::Cpu => "CPU time",
        WitnessKind::Collective => "Collectives",
        WitnessKind::KernelState => "Kernel",
    }
}

/// The rows of an incident's record that only a hang has; nothing where it is none.
pub fn rows(incident: &IncidentRecord) -> Option<AnyView> {
    let hang = incident.hang.as_ref()?;
    let rows = view! {
        <dt>"Witnesses"</dt>
        <dd>{witnesses(hang)}</dd>
        <dt>"Where the ranks are"</dt>
        <dd>{groups(hang, &incident.id)}</dd>
    };
    Some(rows.into_any())
}

fn witnesses(hang: &HangRecord) -> AnyView {
    let compared = format!(
        " had passed without movement when it was found; {} were waited for.",
        format::duration(f64::from(hang.allowed_seconds))
    );
    let passed = format::duration(hang.until.seconds_since(hang.since));
    view! {
        <p><b>{passed}</b>{compared}</p>
        <ul class="mt-1.5 grid gap-1">{hang.witnesses.iter().map(witness).collect_view()}</ul>
    }
    .into_any()
}

fn witness(witness: &HangWitness) -> AnyView {
    let says = if witness.changed == 0 && witness.unknown == 0 {
        "does not move"
    } else if witness.unchanged == 0 && witness.changed == 0 {
        "not known"
    } else {
        "in part"
    };
    let since = witness.since.map(|at| view! { <span class="text-ink-3">"since " <ClockTime at /></span> });
    view! {
        <li class="grid grid-cols-[88px_88px_minmax(0,1fr)_auto] items-baseline gap-x-2 max-sm:grid-cols-2">
            <b class="font-medium">{name(witness.kind)}</b>
            <span class="text-ink-2">{says}</span>
            <span class="wrap-anywhere max-sm:col-span-2">{witness.words.clone()}</span>
            {since}
        </li>
    }
    .into_any()
}

/// `0, 2, 3 and 12 more`.
fn ranks(group: &RankGroup) -> String {
    let named: Vec<String> = group.ranks.iter().take(NAMED).map(u32::to_string).collect();
    let noun = if group.count == 1 { "rank" } else { "ranks" };
    match group.count as usize - named.len().min(group.count as usize) {
        0 => format!("{noun} {}", named.join(", ")),
        more => format!("{noun} {} and {} more", named.join(", "), format::count(more as u64)),
    }
}

fn groups(hang: &HangRecord, id: &IncidentId) -> AnyView {
    let strength = hang.odd.as_ref().map(|odd| match odd.strength {
        Strength::Strong => "strong evidence",
        Strength::Moderate => "some evidence",
        Strength::Weak => "weak evidence",
    });
    let why = match (&hang.odd, strength) {
        (Some(odd), Some(strength)) => {
            let named = odd.ranks.iter().take(NAMED).map(u32::to_string).collect::<Vec<_>>().join(", ");
            let noun = if odd.ranks.len() == 1 { "Rank" } else { "Ranks" };
            let node = odd.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
            format!("{noun} {named}{node}: {} ({strength}).", odd.why)
        }
        _ => "No rank stands out.".to_owned(),
    };
    view! {
        <p>{why}</p>
        <ul class="mt-1.5 grid gap-1.5">{hang.groups.iter().map(group).collect_view()}</ul>
        <p class="mt-2 text-xs">
            <a rel="external" href=paths::incident_stacks(id)>"Download all stacks"</a>
        </p>
    }
    .into_any()
}

fn group(group: &RankGroup) -> AnyView {
    let tone = if group.odd { "border-amber-edge bg-evidence" } else { "border-edge bg-hover" };
    let nodes: Vec<String> = group.nodes.iter().take(4).map(ToString::to_string).collect();
    let more = match group.nodes.len() - nodes.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let on = if nodes.is_empty() { String::new() } else { format!(" on {}{more}", nodes.join(", ")) };
    let odd = group.odd.then(|| view! { <b class="text-amber">" the others wait for it"</b> });
    let stack = group.stack.as_ref().map(|stack| {
        let frames = stack.top.iter().map(|frame| view! { <li>{frame.clone()}</li> }).collect_view();
        view! {
            <details class="mt-1">
                <summary class="cursor-pointer text-xs text-ink-3 underline decoration-edge underline-offset-3">
                    "Innermost frames"
                </summary>
                <ol class="mt-1 font-mono text-xs wrap-anywhere">{frames}</ol>
            </details>
        }
    });
    view! {
        <li class=format!("rounded-sm border border-l-[3px] px-2.5 py-1.5 {tone}")>
            <span>
                <code class="font-mono text-xs font-medium">{group.place.clone()}</code>
                ": " {ranks(group)} {on} {odd}
            </span>
            {stack}
        </li>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn a_hang_names_its_witnesses_and_the_odd_rank() {
        let html = Owner::new().with(|| rows(&samples::stood_still()).unwrap().to_html());
        for wanted in [
            "Where the ranks are",
            "32 ranks in the same functions",
            "no step after 15,120",
            "read_batch",
            "the others wait for it",
            "Rank 5 on node-03: not where 31 ranks wait for it (strong evidence).",
            "ranks 0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 15 more",
            "/stacks?format=text",
        ] {
            assert!(html.contains(wanted), "{wanted} is missing in {html}");
        }
        assert!(html.contains("&lt;module&gt;") || html.contains("&lt;module>"), "frames are text: {html}");
        assert!(!html.contains("style="), "the content security policy forbids style attributes");
    }

    #[test]
    fn other_failures_have_no_such_rows() {
        assert!(rows(&samples::incident(1, 10)).is_none());
    }
}
