//! Holdfast on a real Kubernetes: API server, scheduler, two kubelets, the training operator and KubeRay of `end2end/cluster`, real pods.
//!
//! `make test-cluster` starts the cluster and runs these within its network; elsewhere there is nothing to test against, and they say so.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends where it stands")]
#![expect(
    clippy::print_stderr,
    reason = "a test says why it did not run, and what the server said when it failed"
)]

mod control;
mod harness;
mod manifest;
mod nodes;
mod queues;
mod ray;
mod recovery;
