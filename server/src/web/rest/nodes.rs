//! Nodes with what is held against them.

use app::{
    console::{CapView, ClusterNodes, Console, NodePage, NodeView, QuarantineOrder},
    error::AppError,
};
use axum::{Json, extract::State};
use engine::{ids::NodeName, job::ClusterTrouble};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Refusals;
use crate::web::{
    WebState,
    extract::{ApiJson, ApiPath, OptionalJson},
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
    /// How many nodes of each cluster are quarantined, and may be.
    caps: Vec<CapView>,
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
    let (items, troubles, caps) = apart(state.service.nodes(&caller).await?);
    match troubles.first() {
        Some(trouble) if items.is_empty() => {
            Err(AppError::Unreachable { why: format!("cluster {}: {}", trouble.cluster, trouble.text) }
                .into())
        }
        _ => Ok(Json(NodesList { items, troubles, caps, next_cursor: None })),
    }
}

/// One node, who changed how it stands, and what would follow if it were quarantined.
#[utoipa::path(get, operation_id = "get_node", path = "/api/v1/nodes/{name}", tag = "nodes", params(("name" = String, Path), NodeQuery),
    responses((status = 200, body = NodePage), Refusals))]
pub async fn get(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(name): ApiPath<NodeName>,
    ApiQuery(query): ApiQuery<NodeQuery>,
) -> Result<Json<NodePage>, Problem> {
    Ok(Json(state.service.node(&caller, query.cluster.as_deref(), &name).await?))
}

/// Keeps a node out of every new attempt. Where that keeps a job from starting it is refused with the forecast, unless it is confirmed. What
/// runs on it runs on.
#[utoipa::path(post, operation_id = "quarantine_node", path = "/api/v1/nodes/{name}/quarantine", tag = "nodes", params(("name" = String, Path)),
    request_body = QuarantineOrder, responses((status = 200, body = NodePage), Refusals))]
pub async fn quarantine(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(name): ApiPath<NodeName>,
    ApiJson(order): ApiJson<QuarantineOrder>,
) -> Result<Json<NodePage>, Problem> {
    state.service.quarantine(&caller, &name, &order).await?;
    Ok(Json(state.service.node(&caller, order.cluster.as_deref(), &name).await?))
}

/// Which cluster is meant.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OfCluster {
    /// Its configured name; none: the only one, or the first that has a node of the name.
    cluster: Option<String>,
}

/// A node that was released.
#[derive(Debug, Serialize, ToSchema)]
pub struct Released {
    /// Its name.
    name: NodeName,
    /// As it stands now; null where its cluster does not answer.
    node: Option<NodePage>,
}

/// Lets a node in again: what was held against it so far counts no more, and jobs that kept off it do so no more from their next attempt on.
/// Never refused for the cap.
#[utoipa::path(post, operation_id = "release_node", path = "/api/v1/nodes/{name}/release", tag = "nodes", params(("name" = String, Path)),
    request_body = Option<OfCluster>, responses((status = 200, body = Released), Refusals))]
pub async fn release(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(name): ApiPath<NodeName>,
    OptionalJson(of): OptionalJson<OfCluster>,
) -> Result<Json<Released>, Problem> {
    state.service.release_node(&caller, of.cluster.as_deref(), &name).await?;
    let node = match state.service.node(&caller, of.cluster.as_deref(), &name).await {
        Err(AppError::Unreachable { .. } | AppError::NotFound { .. }) => None,
        found => Some(found?),
    };
    Ok(Json(Released { name, node }))
}

/// Lets nodes of a cluster be quarantined by themselves again, after the cap stopped one. Those that are out stay out and do not count for
/// the cap any more.
#[utoipa::path(post, operation_id = "reset_node_cap", path = "/api/v1/nodes:reset-cap", tag = "nodes", request_body = Option<OfCluster>,
    responses((status = 200, body = CapView), Refusals))]
pub async fn reset_cap(
    State(state): State<WebState>,
    Asks(caller): Asks,
    OptionalJson(of): OptionalJson<OfCluster>,
) -> Result<Json<CapView>, Problem> {
    Ok(Json(state.service.reset_cap(&caller, of.cluster.as_deref()).await?))
}

/// The nodes that are known, why others are not, and the caps of all clusters.
fn apart(clusters: Vec<ClusterNodes>) -> (Vec<NodeView>, Vec<ClusterTrouble>, Vec<CapView>) {
    let (mut nodes, mut troubles, mut caps) = (Vec::new(), Vec::new(), Vec::new());
    for ClusterNodes { cluster, nodes: found, trouble, cap } in clusters {
        nodes.extend(found);
        caps.push(cap);
        troubles.extend(trouble.map(|text| ClusterTrouble { cluster, kind: None, namespace: None, text }));
    }
    (nodes, troubles, caps)
}
