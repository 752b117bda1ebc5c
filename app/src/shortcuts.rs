//! Keyboard shortcuts: small, off in text fields, listed under `?`, and switched off in the settings.

use leptos::prelude::*;

use crate::{components::button::Look, paths, preferences::use_frame};

/// What a key does.
#[cfg(any(feature = "hydrate", test))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// Puts the cursor into the search field.
    Search,
    /// Shows or hides the list of shortcuts.
    Help,
    /// Waits for the second key of `g …`.
    Wait,
    /// Goes to an address.
    Go(&'static str),
    /// Moves to the next row, or with -1 to the one before.
    Row(i32),
    /// Moves to the next hit in a log, or with -1 to the one before.
    Hit(i32),
    /// Presses what says in `aria-keyshortcuts` that this key is its own.
    Press(&'static str),
}

/// Every shortcut: keys and what they do.
const LIST: [(&str, &str); 11] = [
    ("/", "Find a job"),
    ("c", "Create a job"),
    ("g j", "Go to Jobs"),
    ("g n", "Go to Nodes"),
    ("j k", "Next row, row before"),
    ("1 – 6", "Tab of a job"),
    ("[ ]", "Attempt before, next attempt"),
    ("f", "Follow the log, or stop"),
    ("n N", "Next hit in the log, hit before"),
    ("Esc", "Leave a field, close this list"),
    ("?", "Show this list"),
];

/// Keys that belong to one link or button of a page.
#[cfg(any(feature = "hydrate", test))]
const PRESSED: [&str; 9] = ["1", "2", "3", "4", "5", "6", "[", "]", "f"];

/// A key as a link or button names it; none where the person has turned shortcuts off.
pub(crate) fn named<K>(key: K) -> Option<K> {
    use_frame().preferences.shortcuts.then_some(key)
}

/// What a key does, after a `g` or not; none where it does nothing.
#[cfg(any(feature = "hydrate", test))]
fn interpret(after_g: bool, key: &str) -> Option<Act> {
    match (after_g, key) {
        (true, "j") => Some(Act::Go(paths::JOBS)),
        (true, "n") => Some(Act::Go(paths::NODES)),
        (true, _) => None,
        (false, "/") => Some(Act::Search),
        (false, "?") => Some(Act::Help),
        (false, "c") => Some(Act::Go(paths::NEW_JOB)),
        (false, "g") => Some(Act::Wait),
        (false, "j") => Some(Act::Row(1)),
        (false, "k") => Some(Act::Row(-1)),
        (false, "n") => Some(Act::Hit(1)),
        (false, "N") => Some(Act::Hit(-1)),
        (false, key) => PRESSED.into_iter().find(|own| *own == key).map(Act::Press),
    }
}

/// Listens to the keys of this tab and shows their list when asked.
#[component]
pub fn Shortcuts() -> impl IntoView {
    let help = RwSignal::new(false);
    let enabled = use_frame().preferences.shortcuts;
    #[cfg(feature = "hydrate")]
    if enabled {
        browser::listen(help);
    }
    let rows = move || {
        LIST.map(|(keys, what)| {
            view! { <dt class="font-mono">{keys}</dt> <dd>{what}</dd> }
        })
        .collect_view()
    };
    view! {
        <Show when=move || enabled && help.get()>
            <div
                role="dialog"
                id="shortcuts"
                tabindex="-1"
                aria-label="Keyboard shortcuts"
                class="fixed z-(--z-over) right-8 bottom-8 max-sm:right-4 w-80 max-w-[calc(100vw-2rem)] p-4 rounded-lg bg-raised shadow-over"
            >
                <div class="flex items-center justify-between">
                    <p class="font-semibold">"Keyboard shortcuts"</p>
                    <button type="button" class=Look::Quiet.class() on:click=move |_| help.set(false)>"Close"</button>
                </div>
                <dl class="grid grid-cols-[4rem_1fr] gap-y-1 mt-2">{rows()}</dl>
                <p class="mt-2 text-xs text-ink-3">
                    "They rest while you type. " <a href=paths::SETTINGS>"Turn them off"</a>
                </p>
            </div>
        </Show>
    }
}

#[cfg(feature = "hydrate")]
mod browser {
    use leptos::{ev, prelude::*};
    use leptos_router::hooks::use_navigate;
    use wasm_bindgen::JsCast;
    use web_sys::{Element, HtmlElement, KeyboardEvent};

    use super::{Act, interpret};

    pub(super) fn listen(help: RwSignal<bool>) {
        let navigate = use_navigate();
        let after_g = StoredValue::new(false);
        give_focus_back(help);
        let handle = window_event_listener(ev::keydown, move |event| {
            if event.is_composing() {
                // Esc takes back what is being composed, and nothing else.
                return;
            }
            if event.key() == "Escape" {
                leave_field();
                help.set(false);
                return;
            }
            if rests(&event) {
                return;
            }
            let act = interpret(after_g.get_value(), &event.key());
            after_g.set_value(act == Some(Act::Wait));
            match act {
                None | Some(Act::Wait) => return,
                Some(Act::Search) => focus("#find"),
                Some(Act::Help) => {
                    help.update(|shown| *shown = !*shown);
                    // It is drawn in the next turn.
                    request_animation_frame(|| focus("#shortcuts"));
                }
                Some(Act::Go(path)) => navigate(path, Default::default()),
                Some(Act::Row(by)) => step("[data-row] a[data-open]", by),
                Some(Act::Hit(by)) => step("[role=log] [data-hit] a", by),
                Some(Act::Press(key)) => press(key),
            }
            event.prevent_default();
        });
        on_cleanup(move || handle.remove());
    }

    /// Whoever had the focus when the list was opened has it again when it is closed.
    fn give_focus_back(help: RwSignal<bool>) {
        let before = StoredValue::new_local(None::<HtmlElement>);
        Effect::new(move |was_shown: Option<bool>| {
            let shown = help.get();
            if shown {
                before.set_value(document().active_element().and_then(|element| element.dyn_into().ok()));
            } else if was_shown == Some(true)
                && let Some(element) = before.get_value()
            {
                // It may be gone with its page; then nothing has the focus.
                let _ = element.focus();
            }
            shown
        });
    }

    /// The field that takes the keys.
    fn field() -> Option<Element> {
        document()
            .active_element()
            .filter(|element| matches!(element.tag_name().as_str(), "INPUT" | "TEXTAREA" | "SELECT"))
    }

    /// Gives the keys back to the page.
    fn leave_field() {
        if let Some(field) = field().and_then(|field| field.dyn_into::<HtmlElement>().ok()) {
            // Nothing to do about an element that keeps the focus.
            let _ = field.blur();
        }
    }

    /// Keys belong to the browser with a modifier, and to the field while one types.
    fn rests(event: &KeyboardEvent) -> bool {
        let typing = field().is_some();
        event.ctrl_key() || event.alt_key() || event.meta_key() || typing
    }

    fn focus(selector: &str) {
        let element = document().query_selector(selector).ok().flatten();
        if let Some(element) = element.and_then(|element| element.dyn_into::<HtmlElement>().ok()) {
            // Nothing to do about an element that takes no focus.
            let _ = element.focus();
        }
    }

    fn press(key: &str) {
        let element = document().query_selector(&format!("[aria-keyshortcuts=\"{key}\"]")).ok().flatten();
        if let Some(element) = element.and_then(|element| element.dyn_into::<HtmlElement>().ok()) {
            element.click();
        }
    }

    /// Moves the focus to the next of some links, from the first one where none has it.
    fn step(selector: &str, by: i32) {
        let Ok(rows) = document().query_selector_all(selector) else { return };
        let links: Vec<Element> = (0..rows.length()).filter_map(|i| rows.get(i)?.dyn_into().ok()).collect();
        let here =
            document().active_element().and_then(|active| links.iter().position(|link| *link == active));
        let next = match here {
            Some(here) => here.checked_add_signed(by as isize),
            None => Some(0),
        };
        if let Some(link) = next.and_then(|next| links.get(next)?.dyn_ref::<HtmlElement>()) {
            let _ = link.focus();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_key_decides_after_g() {
        assert_eq!(interpret(false, "g"), Some(Act::Wait));
        assert_eq!(interpret(true, "n"), Some(Act::Go(paths::NODES)));
        assert_eq!(interpret(true, "c"), None);
        assert_eq!(interpret(false, "j"), Some(Act::Row(1)));
        assert_eq!(interpret(false, "n"), Some(Act::Hit(1)), "without a g it is another key");
    }

    #[test]
    fn keys_of_a_page_press_what_names_them() {
        assert_eq!(interpret(false, "["), Some(Act::Press("[")));
        assert_eq!(interpret(false, "7"), None);
        assert_eq!(interpret(true, "1"), None);
    }
}
