//! One file a page. Pages fetch; components show.

pub mod diagnose;
pub mod job;
pub mod jobs;
pub mod login;
pub mod new_job;
pub mod node;
pub mod nodes;
pub mod not_found;
pub mod settings;
