//! Tests that need the cluster for themselves.

mod history;
mod nodes;
mod parts;
mod scale;
