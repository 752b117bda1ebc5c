//! Nodes with what is held against them.

use app::console::{Console, NodeView};
use axum::{Json, extract::State};
use engine::ids::NodeName;
use serde::Serialize;
use utoipa::ToSchema;

use super::Refusals;
use crate::web::{WebState, extract::ApiPath, problem::Problem, sessions::Asks};

/// All nodes.
#[derive(Debug, Serialize, ToSchema)]
pub struct NodesList {
    /// The nodes.
    items: Vec<NodeView>,
    /// Always null: all nodes fit one page.
    next_cursor: Option<String>,
}

/// All nodes of all clusters.
#[utoipa::path(get, operation_id = "list_nodes", path = "/api/v1/nodes", tag = "nodes", responses((status = 200, body = NodesList), Refusals))]
pub async fn list(State(state): State<WebState>, Asks(caller): Asks) -> Result<Json<NodesList>, Problem> {
    Ok(Json(NodesList { items: state.service.nodes(&caller).await?, next_cursor: None }))
}

/// One node.
#[utoipa::path(get, operation_id = "get_node", path = "/api/v1/nodes/{name}", tag = "nodes", params(("name" = String, Path)),
    responses((status = 200, body = NodeView), Refusals))]
pub async fn get(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(name): ApiPath<NodeName>,
) -> Result<Json<NodeView>, Problem> {
    let mut nodes = state.service.nodes(&caller).await?.into_iter();
    let node = nodes.find(|node| node.name == name);
    node.map(Json).ok_or_else(|| Problem::not_found(format!("There is no node {name}.")))
}
