//! Tests that keep to their own namespace.

mod admission;
mod control;
mod leaders;
mod manifest;
mod ray;
mod recovery;
