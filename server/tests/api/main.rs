//! The HTTP side by the real router, with a database for each test and a driver that only listens.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod access;
mod clusters;
mod contract;
mod diagnoses;
mod exit_tests;
mod forms;
mod import;
mod jobs;
mod logs;
mod nodes;
mod records;
mod requests;
mod stacks;
mod streams;
mod support;
mod usage;
