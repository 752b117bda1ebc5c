//! Decision tables as data.
