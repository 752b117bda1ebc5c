//! Nodes with what is held against them.

use app::{
    console::{ClusterNodes, Console, NodeView},
    error::AppError,
};
use axum::{Json, extract::State};
use engine::{ids::NodeName, job::ClusterTrouble};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Refusals;
use crate::web::{
    WebState,
    extract::ApiPath,
    problem::Problem,
    query::{ApiQuery, Parameters},
    sessions::Asks,
};

/// All nodes.
#[derive(Debug, Serialize, ToSchema)]
pub struct NodesList {
    /// The nodes.
    items: Vec<NodeView>,
    /// Clusters whose nodes are not known now, and why.
    troubles: Vec<ClusterTrouble>,
    /// Always null: all nodes fit one page.
    next_cursor: Option<String>,
}

/// Which node of that name.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct NodeQuery {
    /// Its cluster; none: the first that has a node of this name.
    cluster: Option<String>,
}

impl Parameters for NodeQuery {}

/// All nodes of all clusters. Where none of them answers it is an error.
#[utoipa::path(get, operation_id = "list_nodes", path = "/api/v1/nodes", tag = "nodes", responses((status = 200, body = NodesList), Refusals))]
pub async fn list(State(state): State<WebState>, Asks(caller): Asks) -> Result<Json<NodesList>, Problem> {
    let (items, troubles) = apart(state.service.nodes(&caller).await?);
    match troubles.first() {
        Some(trouble) if items.is_empty() => {
            Err(AppError::Unreachable { why: format!("cluster {}: {}", trouble.cluster, trouble.text) }
                .into())
        }
        _ => Ok(Json(NodesList { items, troubles, next_cursor: None })),
    }
}

/// One node.
#[utoipa::path(get, operation_id = "get_node", path = "/api/v1/nodes/{name}", tag = "nodes", params(("name" = String, Path), NodeQuery),
    responses((status = 200, body = NodeView), Refusals))]
pub async fn get(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(name): ApiPath<NodeName>,
    ApiQuery(query): ApiQuery<NodeQuery>,
) -> Result<Json<NodeView>, Problem> {
    let (nodes, troubles) = apart(state.service.nodes(&caller).await?);
    let is_meant = |cluster: &str| query.cluster.as_deref().is_none_or(|wanted| wanted == cluster);
    let node = nodes.into_iter().find(|node| node.name == name && is_meant(&node.cluster));
    // Not listed is not absent.
    let unknown = troubles.into_iter().find(|trouble| is_meant(&trouble.cluster));
    match (node, unknown) {
        (Some(node), _) => Ok(Json(node)),
        (None, Some(ClusterTrouble { cluster, text, .. })) => {
            Err(AppError::Unreachable { why: format!("cluster {cluster}: {text}") }.into())
        }
        (None, None) => Err(Problem::not_found(format!("There is no node {name}."))),
    }
}

/// The nodes that are known, and why others are not.
fn apart(clusters: Vec<ClusterNodes>) -> (Vec<NodeView>, Vec<ClusterTrouble>) {
    let (mut nodes, mut troubles) = (Vec::new(), Vec::new());
    for ClusterNodes { cluster, nodes: found, trouble } in clusters {
        nodes.extend(found);
        troubles.extend(trouble.map(|text| ClusterTrouble { cluster, kind: None, namespace: None, text }));
    }
    (nodes, troubles)
}
