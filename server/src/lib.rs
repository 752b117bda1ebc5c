//! Holdfast's server connects: store, clusters, driver, service, web.

pub mod accountant;
pub mod accounts;
pub mod agents;
pub mod classify;
pub mod clock;
pub mod clusters;
pub mod config;
pub mod diagnose;
pub mod driver;
pub mod keeper;
pub mod logs;
mod redact;
mod request_id;
pub mod secrets;
pub mod serve;
pub mod service;
pub mod store;
pub mod telemetry;
pub mod tokens;
pub mod web;
pub mod yaml;
