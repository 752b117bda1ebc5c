//! Tests that need the cluster for themselves.

mod diagnose;
mod hangs;
mod history;
mod kuberay;
mod nodes;
mod parts;
mod scale;
