//! Strikes against nodes.
