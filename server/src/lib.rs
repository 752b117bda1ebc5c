//! Holdfast's server connects: store, clusters, driver, service, web.

pub mod clusters;
