//! Signing in.

use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_query_map;

use crate::{
    components::{
        badge::Tone,
        button::{LinkButton, Look, Submit},
        field::INPUT,
        icon::Mark,
        notice::Notice,
    },
    paths,
    preferences::use_frame,
};

/// The form, or why there is none. Posts `name`, `password` and `next`; `?failed` comes back where they did not fit.
#[component]
pub fn Login() -> impl IntoView {
    let params = use_query_map();
    let failed = move || params.read().get("failed").is_some();
    // Only an address of this site is gone back to; `//host` would be another one.
    let next = move || {
        params
            .read()
            .get("next")
            .filter(|next| next.starts_with('/') && !next.starts_with("//"))
            .unwrap_or_default()
    };
    let single_user = use_frame().caller.is_some_and(|caller| caller.single_user);
    view! {
        <Title text="Sign in"/>
        <div class="max-w-sm mx-auto mt-10">
            <h1>"Sign in"</h1>
            {if single_user {
                view! {
                    <div class="grid gap-4 mt-5">
                        <Notice tone=Tone::Blue mark=Mark::Info>
                            <b>"Single-user mode."</b>
                            " No account has been created, so this console answers only on this machine and nobody has to sign in. "
                            <code>"holdfast user add"</code>
                            " creates the first account."
                        </Notice>
                        <p><LinkButton href=paths::JOBS look=Look::Primary>"All jobs"</LinkButton></p>
                    </div>
                }.into_any()
            } else {
                view! {
                    <form method="post" action=paths::LOGIN class="grid gap-4 mt-5">
                        {move || failed().then(|| view! {
                            <div role="alert">
                                <Notice tone=Tone::Red mark=Mark::Failed>"User name and password do not fit together."</Notice>
                            </div>
                        })}
                        <input type="hidden" name="next" value=next/>
                        <div>
                            <label for="name" class="block mb-1 font-medium">"User name"</label>
                            <input class=INPUT id="name" name="name" autocomplete="username" required/>
                        </div>
                        <div>
                            <label for="password" class="block mb-1 font-medium">"Password"</label>
                            <input class=INPUT id="password" name="password" type="password" autocomplete="current-password" required/>
                        </div>
                        <p><Submit look=Look::Primary>"Sign in"</Submit></p>
                    </form>
                }.into_any()
            }}
        </div>
    }
}
