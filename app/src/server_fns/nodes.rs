//! Nodes.

use engine::time::Time;
use leptos::prelude::*;

use crate::{console::NodeView, error::AppError, server_fns::encoding::Json};

#[cfg(feature = "ssr")]
use super::{Scope, scope};

/// All nodes, and when they were read.
#[server(prefix = "/sfn", endpoint = "list_nodes", input = Json, output = Json)]
pub async fn list_nodes() -> Result<(Vec<NodeView>, Time), AppError> {
    let Scope { console, caller } = scope()?;
    console.nodes(&caller).await.map(|nodes| (nodes, console.now()))
}
