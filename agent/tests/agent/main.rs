//! The agent with real processes, against a server that plays the desired state.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod checks;
mod exit_test;
mod harness;
mod output;
mod probe;
mod saving;
mod server_away;
mod supervision;
mod tls;
mod watching;
