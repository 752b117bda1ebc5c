//! Scenarios of scenarios.md, by their numbers, and random histories.

mod checks;
mod diagnosing;
mod exit_test;
mod hangs;
mod late;
mod people;
mod random;
mod ray;
mod recovery;
mod saving;
mod suspended;
mod watching;
