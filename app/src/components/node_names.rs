//! The nodes of an attempt by their names: a few are shown, hundreds unfold.

use engine::ids::NodeName;
use leptos::prelude::*;

use crate::format;

/// Names that are shown at once.
const SHOWN: usize = 8;

/// The names, the first ones at once.
pub fn node_names(nodes: &[NodeName]) -> AnyView {
    let names = |nodes: &[NodeName]| nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", ");
    // One that would be hidden alone is shown.
    let shown = if nodes.len() > SHOWN + 1 { SHOWN } else { nodes.len() };
    let (first, rest) = nodes.split_at(shown);
    let rest = (!rest.is_empty()).then(|| {
        let more = format!("and {} more", format::count(rest.len() as u64));
        view! {
            <details>
                <summary class="w-fit cursor-pointer underline decoration-edge underline-offset-3 max-sm:min-h-11">{more}</summary>
                {names(rest)}
            </details>
        }
    });
    view! { {names(first)} {rest} }.into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn html(count: usize) -> String {
        let nodes: Vec<_> = (1..=count).map(|n| NodeName::new(format!("n{n}")).unwrap()).collect();
        Owner::new().with(|| node_names(&nodes).to_html())
    }

    #[test]
    fn a_few_are_shown_and_hundreds_unfold() {
        assert!(html(9).contains("n1, n2") && html(9).contains("n9") && !html(9).contains("<details"));
        let many = html(512);
        let (shown, folded) = many.split_once("<details").unwrap();
        assert!(shown.contains("n8") && !shown.contains("n9"), "{shown}");
        assert!(folded.contains("and 504 more") && folded.contains("n512"), "{folded}");
    }
}
