//! Tests that keep to their own namespace.

mod admission;
mod clusters;
mod control;
mod leaders;
mod manifest;
mod queues;
mod ray;
mod recovery;
mod story;
