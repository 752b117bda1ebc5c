//! Fields: a visible label, the allowed range under it, the error in its place. Names are the API's dotted paths, so an
//! error finds its field by itself.

use leptos::prelude::*;

use super::icon::{Icon, Mark};

/// Classes of a one-line input.
pub const INPUT: &str = "h-8 w-full min-w-0 px-2.5 border border-edge rounded-md bg-raised placeholder:text-ink-3 placeholder:opacity-100 focus-visible:outline-offset-0 focus-visible:border-focus max-sm:h-11 disabled:bg-hover disabled:text-ink-3 disabled:border-rule disabled:cursor-not-allowed aria-invalid:border-red aria-invalid:ring-1 aria-invalid:ring-red aria-invalid:ring-inset";
/// Classes of a select.
pub const SELECT: &str = "select-arrow h-8 min-w-0 pl-2.5 border border-edge rounded-md bg-raised focus-visible:outline-offset-0 focus-visible:border-focus max-sm:h-11 disabled:bg-hover disabled:text-ink-3 disabled:border-rule disabled:cursor-not-allowed";
/// Classes of a text area.
pub const TEXTAREA: &str = "block w-full px-2.5 py-2 border border-edge rounded-md bg-raised font-mono text-xs resize-y placeholder:text-ink-3 placeholder:opacity-100 focus-visible:outline-offset-0 focus-visible:border-focus aria-invalid:border-red aria-invalid:ring-1 aria-invalid:ring-red aria-invalid:ring-inset";

/// The error of one field; nothing where it has none.
pub type FieldErrorText = Signal<Option<String>>;

/// What a field is bound to. The browser owns its text; this hears of it, so nothing typed before hydration is lost.
#[derive(Clone)]
pub struct Bound {
    /// Its name and id.
    pub name: &'static str,
    /// Its label.
    pub label: &'static str,
    /// Its first text.
    pub value: String,
    /// What is wrong with it.
    pub error: FieldErrorText,
    /// Hears of every change.
    pub changed: Callback<String>,
    /// Hears that the field was left.
    pub left: Callback<()>,
}

/// The label, the control and what stands under it.
#[component]
pub fn Field(
    /// The control's name and id.
    name: &'static str,
    /// Its label.
    label: &'static str,
    /// What is wrong with it.
    #[prop(into)]
    error: FieldErrorText,
    /// What is allowed, and what a value means.
    #[prop(optional, into)]
    hint: Option<ViewFn>,
    /// The control itself.
    children: Children,
) -> impl IntoView {
    view! {
        <div class="min-w-0">
            <label for=name class="block mb-1 font-medium">{label}</label>
            {children()}
            {move || error.get().map(|why| view! {
                <p class="flex gap-1.5 mt-1 text-xs text-red font-medium" id=error_id(name)>
                    <span class="mt-0.5"><Icon mark=Mark::Failed/></span><span>{why}</span>
                </p>
            })}
            {hint.map(|hint| view! { <p class="mt-1 text-xs text-ink-3" id=hint_id(name)>{hint.run()}</p> })}
        </div>
    }
}

/// The id of a field's hint.
pub fn hint_id(name: &str) -> String {
    format!("{name}-hint")
}

/// The id of a field's error.
pub fn error_id(name: &str) -> String {
    format!("{name}-error")
}

/// A one-line field.
#[component]
pub fn TextField(
    /// What it is bound to.
    bound: Bound,
    /// It holds a number: phones show digits. Still text, so that "10m" can be typed.
    #[prop(optional)]
    numeric: bool,
    /// A unit shown at its end.
    #[prop(optional_no_strip)]
    unit: Option<&'static str>,
    /// In a fixed-width face.
    #[prop(optional)]
    mono: bool,
    /// What is allowed.
    #[prop(optional, into)]
    hint: Option<ViewFn>,
    /// Disabled.
    #[prop(optional, into)]
    disabled: Signal<bool>,
) -> impl IntoView {
    let Bound { name, label, value, error, changed, left } = bound;
    let described = move || {
        if error.get().is_some() { format!("{} {}", error_id(name), hint_id(name)) } else { hint_id(name) }
    };
    let class = match (mono, unit.is_some()) {
        (true, _) => format!("{INPUT} font-mono text-xs"),
        (false, true) => format!("{INPUT} pr-8"),
        (false, false) => INPUT.to_owned(),
    };
    let has_hint = hint.is_some();
    let input = view! {
        <div class="relative">
            <input
                type="text"
                class=class
                id=name
                name=name
                value=value
                autocomplete="off"
                spellcheck="false"
                inputmode=numeric.then_some("numeric")
                aria-invalid=move || error.get().is_some().then_some("true")
                aria-describedby=move || (has_hint || error.get().is_some()).then(described)
                disabled=move || disabled.get()
                on:input=move |event| changed.run(event_target_value(&event))
                on:blur=move |_| left.run(())
            />
            {unit.map(|unit| view! {
                <span class="absolute right-2.5 top-1.5 max-sm:top-3 text-ink-3" aria-hidden="true">{unit}</span>
            })}
        </div>
    };
    match hint {
        Some(hint) => view! { <Field name label error hint>{input}</Field> }.into_any(),
        None => view! { <Field name label error>{input}</Field> }.into_any(),
    }
}

/// A field of several lines.
#[component]
pub fn TextArea(
    /// What it is bound to.
    bound: Bound,
    /// Lines shown.
    rows: u32,
    /// In a fixed-width face.
    #[prop(optional)]
    mono: bool,
    /// What is allowed.
    #[prop(into)]
    hint: ViewFn,
) -> impl IntoView {
    let class = if mono { format!("{TEXTAREA} font-mono text-xs") } else { TEXTAREA.to_owned() };
    let Bound { name, label, value, error, changed, left } = bound;
    let described = move || {
        if error.get().is_some() { format!("{} {}", error_id(name), hint_id(name)) } else { hint_id(name) }
    };
    view! {
        <Field name label error hint>
            <textarea
                class=class
                id=name
                name=name
                rows=rows
                autocomplete="off"
                spellcheck="false"
                aria-invalid=move || error.get().is_some().then_some("true")
                aria-describedby=described
                on:input=move |event| changed.run(event_target_value(&event))
                on:blur=move |_| left.run(())
            >
                {value}
            </textarea>
        </Field>
    }
}

/// An option of a select: value and words.
pub type Choice = (String, String);

/// A select without a visible label of its own, for a row of filters.
#[component]
pub fn FilterSelect(
    /// Its name.
    name: &'static str,
    /// Its label, for screen readers.
    label: &'static str,
    /// The words of the empty choice.
    any: &'static str,
    /// The chosen value; empty is the empty choice.
    chosen: String,
    /// All choices.
    choices: Vec<Choice>,
) -> impl IntoView {
    let options = choices.into_iter().map(move |(value, words)| {
        let selected = value == chosen;
        view! { <option value=value selected=selected>{words}</option> }
    });
    view! {
        <select name=name aria-label=label class=SELECT>
            <option value="">{any}</option>
            {options.collect_view()}
        </select>
    }
}
