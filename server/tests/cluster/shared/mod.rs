//! Tests that keep to their own namespace.

mod admission;
mod checks;
mod clusters;
mod control;
mod diagnose;
mod leaders;
mod manifest;
mod queues;
mod ray;
mod recovery;
mod saving;
mod story;
