//! What this browser prefers: theme, time zone, shortcuts.

use leptos::prelude::*;
use leptos_meta::Title;

use crate::{
    components::{
        badge::Tone,
        button::{Look, Submit},
        field::SELECT,
        icon::Mark,
        notice::Notice,
    },
    format::Zone,
    paths,
    preferences::{Theme, use_frame},
};

/// The profile. A plain form that posts `profile`, `theme`, `zone` and `shortcuts`.
#[component]
pub fn Settings() -> impl IntoView {
    let frame = use_frame();
    let preferences = frame.preferences;
    let single_user = frame.caller.as_ref().is_some_and(|caller| caller.single_user);
    let zones = Zone::ALL_MINUTES.into_iter().filter_map(Zone::of_minutes).map(|zone| {
        view! { <option value=zone.minutes() selected=zone == preferences.zone>{zone.label()}</option> }
    });
    let themes = Theme::ALL.map(|theme| {
        let words = match theme {
            Theme::System => "As the system",
            Theme::Light => "Light",
            Theme::Dark => "Dark",
        };
        view! {
            <label class="inline-flex items-center gap-2 min-h-6 max-sm:min-h-11 cursor-pointer">
                <input class="tick" type="radio" name="theme" value=theme.as_str() checked=theme == preferences.theme/>
                {words}
            </label>
        }
    });
    view! {
        <Title text="Settings"/>
        <h1>"Settings"</h1>
        <div class="max-w-form">
            {single_user.then(|| view! { <div class="mt-5"><SingleUserNotice/></div> })}
            <form method="post" action=paths::SETTINGS class="grid gap-6 mt-6">
                <input type="hidden" name="profile" value="1"/>
                <fieldset>
                    <legend class="mb-1 font-medium">"Theme"</legend>
                    <div class="flex flex-wrap gap-x-6 gap-y-1">{themes.collect_view()}</div>
                </fieldset>
                <div>
                    <label for="zone" class="block mb-1 font-medium">"Time zone"</label>
                    <select id="zone" name="zone" class=SELECT aria-describedby="zone-hint">{zones.collect_view()}</select>
                    <p id="zone-hint" class="mt-1 text-xs text-ink-3">
                        "A fixed distance from UTC; it does not follow summer time."
                    </p>
                </div>
                <fieldset>
                    <legend class="mb-1 font-medium">"Keyboard"</legend>
                    <label class="inline-flex items-center gap-2 min-h-6 max-sm:min-h-11 cursor-pointer">
                        <input class="tick" type="checkbox" name="shortcuts" checked=preferences.shortcuts/>
                        "Shortcuts of one key, listed under ?"
                    </label>
                </fieldset>
                <p class="flex flex-wrap items-center gap-3">
                    <Submit look=Look::Primary>"Save"</Submit>
                    <span class="text-ink-3">"Kept in this browser for a year."</span>
                </p>
            </form>
            {frame.caller.filter(|caller| !caller.single_user).map(|caller| view! {
                <form method="post" action=paths::LOGOUT class="flex flex-wrap items-center gap-3 mt-8 pt-6 border-t border-hair">
                    <Submit>"Sign out"</Submit>
                    <span class="text-ink-3">"Signed in as " {caller.name}</span>
                </form>
            })}
        </div>
    }
}

/// Said where it matters: whoever reaches this console may do everything.
#[component]
pub fn SingleUserNotice() -> impl IntoView {
    view! {
        <Notice tone=Tone::Blue mark=Mark::Info>
            <b>"Single-user mode."</b>
            " No account has been created, so this console answers only on this machine. "
            <code>"holdfast user add"</code>
            " creates the first account."
        </Notice>
    }
}
