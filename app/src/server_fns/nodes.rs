//! Nodes.

use engine::{ids::NodeName, job::FieldError, time::Time};
use leptos::prelude::*;

use crate::{
    console::{ClusterNodes, NodePage, Posted, UsageView},
    error::AppError,
    server_fns::encoding::Json,
};

#[cfg(feature = "ssr")]
use super::{Scope, scope};

/// The nodes of each cluster, when they were read, and what was wrong with a post that is being answered.
#[server(prefix = "/sfn", endpoint = "list_nodes", input = Json, output = Json)]
pub async fn list_nodes() -> Result<(Vec<ClusterNodes>, Time, Vec<FieldError>), AppError> {
    let errors = use_context::<Posted>().map(|posted| posted.errors).unwrap_or_default();
    let Scope { console, caller } = scope()?;
    console.nodes(&caller).await.map(|nodes| (nodes, console.now(), errors))
}

/// One node, when it was read, and a post that was refused.
#[server(prefix = "/sfn", endpoint = "read_node", input = Json, output = Json)]
pub async fn read_node(
    cluster: Option<String>,
    name: NodeName,
) -> Result<(NodePage, Time, Option<Posted>), AppError> {
    let posted = use_context::<Posted>();
    let Scope { console, caller } = scope()?;
    console.node(&caller, cluster.as_deref(), &name).await.map(|page| (page, console.now(), posted))
}

/// What the time of clusters went to in the last days.
#[server(prefix = "/sfn", endpoint = "read_usage", input = Json, output = Json)]
pub async fn read_usage(days: u32) -> Result<UsageView, AppError> {
    let Scope { console, caller } = scope()?;
    console.usage(&caller, days).await
}
