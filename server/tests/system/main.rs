//! The whole of Holdfast on one machine: the real server, real agents, real programs, driven through the REST API.
//!
//! The server's program is built by cargo for these tests; the agent's stands beside it (`cargo test --workspace` builds both).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends where it stands")]

mod harness;

mod bad_input;
mod checks;
mod clusters;
mod crashes;
mod ddp;
mod diagnose;
mod exit_tests;
mod hangs;
mod nodes;
mod policy;
mod recovery;
mod saving;
mod stopping;
