//! What this site has: clusters, prefilled values, policies; and its version.

use app::console::Console;
use axum::{Json, extract::State};
use engine::{job::Site, policy::Policy};
use serde::Serialize;
use utoipa::ToSchema;

use super::Refusals;
use crate::web::{WebState, problem::Problem, sessions::Asks};

/// Clusters, policies and the values that forms are prefilled with.
#[utoipa::path(get, operation_id = "get_settings", path = "/api/v1/settings", tag = "site", responses((status = 200, body = Site), Refusals))]
pub async fn settings(State(state): State<WebState>, Asks(caller): Asks) -> Result<Json<Site>, Problem> {
    Ok(Json(state.service.site(&caller).await?))
}

/// Decision tables.
#[derive(Debug, Serialize, ToSchema)]
pub struct PoliciesList {
    /// The tables.
    #[schema(value_type = Vec<Policy>)]
    items: Vec<&'static Policy>,
    /// Always null: all policies fit one page.
    next_cursor: Option<String>,
}

/// The decision tables that jobs may name.
#[utoipa::path(get, operation_id = "list_policies", path = "/api/v1/policies", tag = "site", responses((status = 200, body = PoliciesList), Refusals))]
pub async fn policies(
    State(state): State<WebState>,
    Asks(caller): Asks,
) -> Result<Json<PoliciesList>, Problem> {
    Ok(Json(PoliciesList { items: state.service.policies(&caller)?, next_cursor: None }))
}

/// The program.
#[derive(Debug, Serialize, ToSchema)]
pub struct Version {
    /// Its name.
    name: &'static str,
    /// Its version.
    version: &'static str,
    /// The version of this API.
    api: u32,
    /// Nobody has to sign in, since no account exists and only this machine can reach the server.
    single_user: bool,
}

/// The version of the program.
#[utoipa::path(get, operation_id = "get_version", path = "/api/v1/version", tag = "site", responses((status = 200, body = Version), Refusals))]
pub async fn version(Asks(caller): Asks) -> Json<Version> {
    Json(Version {
        name: "holdfast",
        version: env!("CARGO_PKG_VERSION"),
        api: 1,
        single_user: caller.single_user,
    })
}
