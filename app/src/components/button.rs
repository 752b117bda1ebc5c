//! Buttons, and links that look like them. A button names its verb; one that asks first ends in "…".

use leptos::prelude::*;

/// How a button looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Look {
    /// The one main action of a page.
    Primary,
    /// Any other.
    #[default]
    Plain,
    /// Without an edge: cancel, undo.
    Quiet,
    /// Plain and small, in tables and beside text.
    Small,
}

impl Look {
    /// Its classes.
    pub const fn class(self) -> &'static str {
        match self {
            Self::Primary => {
                "inline-flex items-center justify-center gap-1.5 h-7.5 px-3 border border-ink rounded-md bg-ink text-on-ink font-medium no-underline whitespace-nowrap cursor-pointer transition-colors hover:bg-ink-2 max-sm:min-h-11 disabled:bg-hover disabled:text-ink-3 disabled:border-rule disabled:cursor-not-allowed"
            }
            Self::Plain => {
                "inline-flex items-center justify-center gap-1.5 h-7.5 px-3 border border-edge rounded-md bg-raised font-medium no-underline whitespace-nowrap cursor-pointer transition-colors hover:bg-hover max-sm:min-h-11 disabled:bg-hover disabled:text-ink-3 disabled:border-rule disabled:cursor-not-allowed"
            }
            Self::Quiet => {
                "inline-flex items-center justify-center gap-1.5 h-7.5 px-3 border border-transparent rounded-md bg-transparent font-medium no-underline whitespace-nowrap cursor-pointer transition-colors hover:bg-hover max-sm:min-h-11"
            }
            Self::Small => {
                "inline-flex items-center justify-center gap-1.5 h-6.5 px-2.5 border border-edge rounded-md bg-raised text-xs font-medium no-underline whitespace-nowrap cursor-pointer transition-colors hover:bg-hover max-sm:min-h-11 disabled:bg-hover disabled:text-ink-3 disabled:border-rule disabled:cursor-not-allowed"
            }
        }
    }
}

/// A button that submits its form.
#[component]
pub fn Submit(
    /// How it looks.
    #[prop(default = Look::Plain)]
    look: Look,
    /// What it does, where the verb does not say it.
    #[prop(optional)]
    title: Option<&'static str>,
    /// Its verb.
    children: Children,
) -> impl IntoView {
    view! { <button type="submit" class=look.class() title=title>{children()}</button> }
}

/// A link that looks like a button.
#[component]
pub fn LinkButton(
    /// Where to.
    #[prop(into)]
    href: String,
    /// How it looks.
    #[prop(default = Look::Plain)]
    look: Look,
    /// Its verb.
    children: Children,
) -> impl IntoView {
    view! { <a href=href class=look.class()>{children()}</a> }
}
