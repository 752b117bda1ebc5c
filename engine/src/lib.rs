//! Holdfast's engine decides: what a failure of a training job means, and what follows from it.
//!
//! It is pure. It does no I/O, reads no clock, draws no random numbers and makes up no ids, so the same
//! input gives the same output for ever: every decision can be replayed, explained and tested without a
//! runtime. It also compiles to WebAssembly, so that the browser validates a job with the very same rules.
//!
//! The one entry is [`chain::advance`].

pub mod advice;
pub mod bisect;
pub mod chain;
pub mod checks;
pub mod classify;
pub mod failure;
pub mod hang;
pub mod ids;
pub mod job;
pub mod ledger;
pub mod nodes;
pub mod output;
pub mod policy;
pub mod progress;
pub mod record;
pub mod sync;
pub mod time;
pub mod words;
