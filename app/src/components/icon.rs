//! Marks of 12 px. Each stands for one thing only and always beside a word.

use leptos::prelude::*;

/// A mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A clock: waits.
    Queued,
    /// A quarter: starting.
    Starting,
    /// A triangle to the right: runs.
    Running,
    /// A turning arrow: recovering.
    Recovering,
    /// A half: saving or stopping.
    Saving,
    /// A square: stopped.
    Stopped,
    /// A tick: good.
    Ok,
    /// A cross: failed; beside a filter, take it away.
    Failed,
    /// A crossed circle: cannot be scheduled.
    Unschedulable,
    /// A filled triangle: suspected, or mind this.
    Warning,
    /// A question mark: unknown.
    Unknown,
    /// A dashed circle: not yet.
    NotYet,
    /// A circled i.
    Info,
    /// An arrow down.
    Down,
    /// An arrow up.
    Up,
    /// A chevron to the right, turned when open.
    Chevron,
    /// A chevron down.
    ChevronDown,
    /// A magnifying glass.
    Search,
    /// Three lines.
    Menu,
    /// A plus.
    Plus,
    /// Two sheets.
    Copy,
    /// An arrow into a tray.
    Download,
    /// A bar across: a person ended it.
    Bar,
    /// A crossed stub: nothing is left.
    Stub,
    /// An octagon with a bar: a rule ended it.
    StopSign,
    /// A person.
    Person,
    /// A diamond: nodes are tested.
    Diamond,
}

impl Mark {
    const fn body(self) -> &'static str {
        match self {
            Self::Queued => r#"<circle cx="6" cy="6" r="4.6"/><path d="M6 3.4V6l1.8 1.2"/>"#,
            Self::Starting => {
                r#"<circle cx="6" cy="6" r="4.6"/><path fill="currentColor" d="M6 6V1.4A4.6 4.6 0 0 1 10.6 6Z"/>"#
            }
            Self::Running => r#"<path fill="currentColor" d="M3.2 1.9v8.2L10 6Z"/>"#,
            Self::Recovering => r#"<path d="M10.3 5.2A4.4 4.4 0 1 0 9.6 8.6"/><path d="M10.6 1.8v3.5H7.1"/>"#,
            Self::Saving => {
                r#"<circle cx="6" cy="6" r="4.6"/><path fill="currentColor" d="M6 1.4a4.6 4.6 0 0 0 0 9.2Z"/>"#
            }
            Self::Stopped => r#"<rect fill="currentColor" x="2.4" y="2.4" width="7.2" height="7.2" rx="1"/>"#,
            Self::Ok => r#"<path d="m2 6.6 2.7 2.7L10 3.2"/>"#,
            Self::Failed => r#"<path d="m2.6 2.6 6.8 6.8M9.4 2.6 2.6 9.4"/>"#,
            Self::Unschedulable => r#"<circle cx="6" cy="6" r="4.6"/><path d="m2.8 9.2 6.4-6.4"/>"#,
            Self::Warning => r#"<path fill="currentColor" d="M6 1.6 11 10.3H1Z"/>"#,
            Self::Unknown => {
                r#"<path d="M3.6 4.1a2.4 2.4 0 1 1 3.7 2C6.5 6.6 6 7 6 7.9"/><path d="M6 10.2v.1"/>"#
            }
            Self::NotYet => r#"<circle cx="6" cy="6" r="4" stroke-dasharray="1.6 1.55"/>"#,
            Self::Info => r#"<circle cx="6" cy="6" r="4.6"/><path d="M6 5.6v2.8M6 3.6v.1"/>"#,
            Self::Down => r#"<path d="M6 1.5v8.5M2.7 6.9 6 10.2l3.3-3.3"/>"#,
            Self::Up => r#"<path d="M6 10.5V2M2.7 5.1 6 1.8l3.3 3.3"/>"#,
            Self::Chevron => r#"<path d="m4.2 2 4 4-4 4"/>"#,
            Self::ChevronDown => r#"<path d="m2 4.2 4 4 4-4"/>"#,
            Self::Search => r#"<circle cx="5.2" cy="5.2" r="3.5"/><path d="m8 8 2.8 2.8"/>"#,
            Self::Menu => r#"<path d="M1.5 3h9M1.5 6h9M1.5 9h9"/>"#,
            Self::Plus => r#"<path d="M6 1.8v8.4M1.8 6h8.4"/>"#,
            Self::Bar => r#"<path d="M6 1.5v6M1.8 8h8.4"/>"#,
            Self::Stub => r#"<path d="M6 1v6M2.5 7h7M4 9.5h4"/>"#,
            Self::StopSign => r#"<path d="M4 1.2h4L10.8 4v4L8 10.8H4L1.2 8V4Z"/><path d="M3.8 6h4.4"/>"#,
            Self::Person => r#"<circle cx="6" cy="3.6" r="2.2"/><path d="M1.8 10.8c.5-4.4 7.9-4.4 8.4 0"/>"#,
            Self::Diamond => r#"<path d="M6 1.2 10.8 6 6 10.8 1.2 6Z"/>"#,
            Self::Copy => r#"<rect x="4" y="4" width="6.6" height="6.6" rx="1"/><path d="M8 1.4H1.4V8"/>"#,
            Self::Download => r#"<path d="M6 1.4v5.8M3.4 5 6 7.6 8.6 5M1.4 10.4h9.2"/>"#,
        }
    }
}

/// Draws a mark; hidden from screen readers, since the word beside it says the same.
#[component]
pub fn Icon(
    /// Which.
    mark: Mark,
    /// More classes.
    #[prop(default = "mark")]
    class: &'static str,
) -> impl IntoView {
    view! { <svg class=class viewBox="0 0 12 12" aria-hidden="true" inner_html=mark.body()></svg> }
}
