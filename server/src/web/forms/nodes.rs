//! What people do with nodes by plain forms.

use app::{
    console::{Console, QuarantineOrder},
    paths,
};
use axum::{Router, extract::State, response::Response, routing::post};
use engine::{ids::NodeName, time::Time};

use super::{Form, answer};
use crate::web::{WebState, extract::ApiPath, sessions::Asks};

pub(super) fn router() -> Router<WebState> {
    Router::new()
        .route("/nodes/{name}/quarantine", post(quarantine))
        .route("/nodes/{name}/release", post(release))
        .route(paths::RESET_CAP, post(reset_cap))
}

/// `reason`, `hours` (none: until a person releases it), `cluster`, and `confirm` where the forecast was shown that names jobs.
async fn quarantine(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(name): ApiPath<NodeName>,
    form: Form,
) -> Response {
    let page = paths::node(Some(form.get("cluster")).filter(|cluster| !cluster.is_empty()), &name);
    let order = QuarantineOrder {
        reason: form.get("reason").to_owned(),
        until: until(form.get("hours"), state.service.now()),
        cluster: cluster(&form),
        confirm: form.has("confirm"),
    };
    let done = state.service.quarantine(&caller, &name, &order).await;
    answer(&state, form, done, &page, &page).await
}

async fn release(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(name): ApiPath<NodeName>,
    form: Form,
) -> Response {
    let page = paths::node(Some(form.get("cluster")).filter(|cluster| !cluster.is_empty()), &name);
    let done = state.service.release_node(&caller, cluster(&form).as_deref(), &name).await;
    answer(&state, form, done, &page, &page).await
}

async fn reset_cap(State(state): State<WebState>, Asks(caller): Asks, form: Form) -> Response {
    let done = state.service.reset_cap(&caller, cluster(&form).as_deref()).await.map(|_| ());
    answer(&state, form, done, paths::NODES, paths::NODES).await
}

fn cluster(form: &Form) -> Option<String> {
    Some(form.get("cluster").to_owned()).filter(|name| !name.is_empty())
}

/// So many hours from now; empty: no end. What is no number is a time that has passed, which is refused at its field.
fn until(hours: &str, now: Time) -> Option<Time> {
    match hours.trim() {
        "" => None,
        text => Some(text.parse::<u32>().map_or(now, |hours| now.plus_seconds(u64::from(hours) * 3_600))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_in_hours() {
        let now = Time(7);
        for (text, want) in
            [("", None), (" ", None), ("24", Some(now.plus_seconds(86_400))), ("soon", Some(now))]
        {
            assert_eq!(until(text, now), want, "{text:?}");
        }
    }
}
