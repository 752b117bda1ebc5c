//! Holdfast on a real Kubernetes: API server, scheduler, two kubelets, the training operator and KubeRay of `end2end/cluster`, real pods.
//!
//! `make test-cluster` starts two clusters and runs these within their networks; elsewhere there is nothing to test against, and they
//! say so. Where a test belongs:
//!
//! ```text
//! shared    keeps to its own namespace: several at once
//! alone     does something to the cluster itself: one after the other, after those
//! outage    takes so long that it has the second cluster
//! ```

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends where it stands")]
#![expect(
    clippy::print_stderr,
    reason = "a test says why it did not run, and what the server said when it failed"
)]

mod alone;
#[path = "../databases/mod.rs"]
#[expect(dead_code, clippy::print_stdout, reason = "other tests have it do more")]
mod databases;
mod diagnoses;
mod harness;
mod jobs;
mod outage;
mod shared;
#[path = "../simulated/mod.rs"]
mod simulated;
