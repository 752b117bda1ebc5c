//! Where the accelerator time went: kept, standing still, starting, made twice, diagnosing; and what share was kept.

use engine::record::Ledger;
use leptos::prelude::*;

use super::{incident::device_time, strip::bar};
use crate::format;

/// Its word, class and pattern of its fill, seconds.
type Part = (&'static str, &'static str, &'static str, f64);

/// The parts of a ledger in order.
fn parts(ledger: &Ledger) -> Vec<Part> {
    let all = [
        ("kept", "fill-kept", "", ledger.kept),
        ("standing still", "", "url(#h-still)", ledger.stalled),
        ("starting", "fill-start", "", ledger.starting),
        ("run twice or to redo", "", "url(#h-ghost)", ledger.redone),
        ("diagnosing", "", "url(#h-probe)", ledger.diagnosing),
    ];
    // Diagnosing has a row only where it took something; the others are always there, also at 0.
    all.into_iter()
        .map(|(word, class, fill, s)| (word, class, fill, if s.is_finite() { s.max(0.0) } else { 0.0 }))
        .filter(|(word, _, _, s)| *word != "diagnosing" || *s > 0.0)
        .collect()
}

/// The time ledger of a job as a bar and a table.
#[component]
pub fn TimeLedger(
    /// The ledger.
    ledger: Ledger,
    /// The job has accelerators; else its slots are counted.
    per_gpu: bool,
) -> impl IntoView {
    let parts = parts(&ledger);
    let held: f64 = parts.iter().map(|(_, _, _, s)| s).sum();
    let title = if per_gpu { "Where the GPU time went" } else { "Where the slot time went" };
    let what = if per_gpu { "GPUs" } else { "slots" };
    if held <= 0.0 {
        let text = format!("No {what} were held, so there is nothing to account for.");
        return view! {
            <h3>{title}</h3>
            <p class="text-ink-3">{text}</p>
        }
        .into_any();
    }
    let ettr = ledger.ettr.filter(|e| e.is_finite());
    let words: Vec<String> =
        parts.iter().map(|(word, _, _, s)| format!("{word} {}", format::percent(s / held))).collect();
    view! {
        <h3>{title}</h3>
        <p class="text-ink-3">
            {match ettr {
                Some(ettr) => format!("ETTR {}: kept of the time holding {what}", format::percent(ettr)),
                None => "ETTR is not known".to_owned(),
            }}
        </p>
        <svg class="my-1.5 h-2 w-full overflow-hidden rounded-xs" role="img" aria-label=words.join(", ")>
            {bar(parts.iter().map(|(_, class, fill, s)| (*class, *fill, *s)), held)}
        </svg>
        <table class="w-full">
            <caption class="unseen">"Time ledger"</caption>
            <thead class="unseen">
                <tr>
                    <th scope="col">"Use"</th>
                    <th scope="col">"Time"</th>
                    <th scope="col">"Share"</th>
                </tr>
            </thead>
            <tbody>
                {rows(&parts, held, per_gpu)} <tr class="border-t border-hair font-semibold">
                    <th scope="row" class="pt-1.5 font-semibold">
                        {format!("{what} held")}
                    </th>
                    <td class="pt-1.5 pl-3 text-right whitespace-nowrap">{device_time(held, per_gpu)}</td>
                    <td></td>
                </tr>
            </tbody>
        </table>
        {(ledger.queued_seconds > 0.0)
            .then(|| {
                let text = format!("Queued {} besides, holding none.", format::duration(ledger.queued_seconds));
                view! { <p class="mt-1 text-xs text-ink-3">{text}</p> }
            })}
    }
    .into_any()
}

fn rows(parts: &[Part], held: f64, per_gpu: bool) -> AnyView {
    parts
        .iter()
        .map(|(word, class, fill, s)| {
            view! {
                <tr>
                    <th scope="row" class="py-1 font-normal">
                        <span class="inline-flex items-center gap-2">
                            <svg width="16" height="6" aria-hidden="true">
                                <rect width="16" height="6" rx="1.5" class=*class fill=(!fill.is_empty()).then_some(*fill) />
                            </svg>
                            {*word}
                        </span>
                    </th>
                    <td class="py-1 pl-3 text-right whitespace-nowrap">{device_time(*s, per_gpu)}</td>
                    <td class="py-1 pl-3 text-right whitespace-nowrap text-ink-3">{format::percent(s / held)}</td>
                </tr>
            }
        })
        .collect_view()
        .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_no_number_counts_as_nothing() {
        let ledger = Ledger { kept: f64::NAN, stalled: -3.0, starting: 80.0, ..Ledger::default() };
        let seconds: Vec<f64> = parts(&ledger).iter().map(|p| p.3).collect();
        assert_eq!(seconds, [0.0, 0.0, 80.0, 0.0]);
    }
}
