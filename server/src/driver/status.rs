//! What the driver did and has to do, for operators.

use std::sync::atomic::{AtomicU64, Ordering};

/// A snapshot of the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The epoch in which this server leads; none while another one does.
    pub epoch: Option<i64>,
    /// Jobs in memory, those that live and those that ended a moment ago.
    pub jobs: usize,
    /// Inputs that were found: reports, requests, observations, timers, answers of clusters.
    pub found: u64,
    /// Steps that were committed.
    pub done: u64,
    /// Steps that were lost to another writer and made again.
    pub changed_under_us: u64,
    /// Steps and cluster calls that failed and are tried again.
    pub failed: u64,
}

/// The counters behind it, which `/metrics` shows too.
#[derive(Default)]
pub(super) struct Counts {
    found: AtomicU64,
    done: AtomicU64,
    changed_under_us: AtomicU64,
    failed: AtomicU64,
}

impl Counts {
    pub(super) fn found(&self, inputs: usize) {
        self.found.fetch_add(inputs as u64, Ordering::Relaxed);
        metrics::counter!("holdfast_driver_inputs_total").increment(inputs as u64);
    }

    pub(super) fn done(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
        metrics::counter!("holdfast_driver_steps_total", "outcome" => "done").increment(1);
    }

    pub(super) fn changed_under_us(&self) {
        self.changed_under_us.fetch_add(1, Ordering::Relaxed);
        metrics::counter!("holdfast_driver_steps_total", "outcome" => "changed_under_us").increment(1);
    }

    pub(super) fn failed(&self, what: &'static str) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        metrics::counter!("holdfast_driver_failures_total", "what" => what).increment(1);
    }

    pub(super) fn status(&self, term: Option<(i64, usize)>) -> Status {
        Status {
            epoch: term.map(|(epoch, _)| epoch),
            jobs: term.map_or(0, |(_, jobs)| jobs),
            found: self.found.load(Ordering::Relaxed),
            done: self.done.load(Ordering::Relaxed),
            changed_under_us: self.changed_under_us.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }
}
