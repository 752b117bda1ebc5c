//! Nodes.

use engine::time::Time;
use leptos::prelude::*;

use crate::{console::ClusterNodes, error::AppError, server_fns::encoding::Json};

#[cfg(feature = "ssr")]
use super::{Scope, scope};

/// The nodes of each cluster, and when they were read.
#[server(prefix = "/sfn", endpoint = "list_nodes", input = Json, output = Json)]
pub async fn list_nodes() -> Result<(Vec<ClusterNodes>, Time), AppError> {
    let Scope { console, caller } = scope()?;
    console.nodes(&caller).await.map(|nodes| (nodes, console.now()))
}
