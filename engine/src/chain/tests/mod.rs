//! Scenarios of scenarios.md, by their numbers, and random histories.

mod hangs;
mod late;
mod people;
mod random;
mod ray;
mod recovery;
mod suspended;
mod watching;
