//! The HTTP side by the real router, with a database for each test and a driver that only listens.

mod access;
mod contract;
mod jobs;
mod requests;
mod support;
