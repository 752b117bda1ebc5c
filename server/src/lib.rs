//! Holdfast's server connects: store, clusters, driver, service, web.

pub mod agents;
pub mod clock;
pub mod clusters;
pub mod driver;
pub mod logs;
pub mod store;
pub mod tokens;
