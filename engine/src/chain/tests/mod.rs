//! Scenarios of scenarios.md, by their numbers, and random histories.

mod late;
mod people;
mod random;
mod recovery;
mod watching;
