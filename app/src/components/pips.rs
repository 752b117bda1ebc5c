//! Budgets: filled is used, hollow is left; the words say the same and are printed even at 0.

use engine::record::Used;
use leptos::prelude::*;

/// Beyond this many pips the words alone are clearer.
const MOST_PIPS: u32 = 10;

/// `■■ 2 of 2 used`, with `, 0 left` where `left` is set.
#[component]
pub fn Pips(
    /// Used and allowed.
    used: Used,
    /// Also print what is left.
    #[prop(optional)]
    left: bool,
) -> impl IntoView {
    let words = format!("{} of {} used", used.used, used.allowed);
    let rest = left.then(|| format!(", {} left", used.left()));
    view! {
        <span class="inline-flex items-center gap-1.5 whitespace-nowrap">
            <PipRow used/>
            <span>{words}{rest}</span>
        </span>
    }
}

/// The pips alone, hidden from screen readers.
#[component]
pub fn PipRow(
    /// Used and allowed.
    used: Used,
) -> impl IntoView {
    (1..=MOST_PIPS).contains(&used.allowed).then(|| {
        let pips = (0..used.allowed)
            .map(|n| {
                let class = if n < used.used {
                    "size-2.5 rounded-[2.5px] border-[1.5px] border-ink-2 bg-ink-2"
                } else {
                    "size-2.5 rounded-[2.5px] border-[1.5px] border-ink-3"
                };
                view! { <i class=class></i> }
            })
            .collect_view();
        view! { <span class="inline-flex gap-[3px]" aria-hidden="true">{pips}</span> }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn html(used: u32, allowed: u32) -> String {
        Owner::new().with(|| view! { <Pips used=Used { used, allowed } left=true/> }.to_html())
    }

    #[test]
    fn one_pip_for_each_that_is_allowed() {
        let html = html(1, 3);
        assert_eq!((html.matches("bg-ink-2").count(), html.matches("border-ink-3").count()), (1, 2));
        assert!(html.contains("1 of 3 used") && html.contains(", 2 left"));
    }

    #[test]
    fn a_budget_of_none_is_still_printed() {
        assert!(html(0, 0).contains("0 of 0 used") && !html(0, 0).contains("<i"));
        assert!(!html(3, 50).contains("<i"));
    }
}
