//! Places where tests kill this process, to see that the next one finishes what this one began.
//!
//! `HOLDFAST_FAILPOINT=<name>[:<count>]` kills it with SIGKILL when it passes that place for the `count`-th time (the first, if
//! there is no count). Only in debug builds.

/// A place between two steps of *decide, then do*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failpoint {
    /// The step is written, not committed.
    BeforeCommit,
    /// The step is committed, nobody knows it.
    AfterCommit,
    /// The attempt is about to be made.
    BeforeCreate,
    /// The attempt is made, the chain does not know it.
    AfterCreate,
    /// The attempt is about to be removed.
    BeforeDelete,
    /// The removal is asked for.
    AfterDelete,
    /// Logs and checkpoints of the job are about to be removed.
    BeforeForget,
    /// They are removed, the job's rows are not.
    AfterForget,
}

impl Failpoint {
    /// All places.
    pub const ALL: [Self; 8] = [
        Self::BeforeCommit,
        Self::AfterCommit,
        Self::BeforeCreate,
        Self::AfterCreate,
        Self::BeforeDelete,
        Self::AfterDelete,
        Self::BeforeForget,
        Self::AfterForget,
    ];

    /// The name in `HOLDFAST_FAILPOINT`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BeforeCommit => "before_commit",
            Self::AfterCommit => "after_commit",
            Self::BeforeCreate => "before_create",
            Self::AfterCreate => "after_create",
            Self::BeforeDelete => "before_delete",
            Self::AfterDelete => "after_delete",
            Self::BeforeForget => "before_forget",
            Self::AfterForget => "after_forget",
        }
    }

    /// Dies here if this is the place and the time.
    #[cfg(debug_assertions)]
    pub(super) fn pass(self) {
        use std::sync::{
            OnceLock,
            atomic::{AtomicU32, Ordering},
        };
        static ARMED: OnceLock<Option<(String, AtomicU32)>> = OnceLock::new();
        let armed = ARMED.get_or_init(|| {
            let value = std::env::var("HOLDFAST_FAILPOINT").ok()?;
            let (name, count) = value.split_once(':').unwrap_or((&value, "1"));
            Some((name.to_owned(), AtomicU32::new(count.parse().ok()?)))
        });
        if let Some((name, left)) = armed
            && name == self.as_str()
            && left.fetch_sub(1, Ordering::Relaxed) == 1
        {
            let killed = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
            tracing::error!(name, ?killed, "a fail point could not kill this process");
        }
    }

    /// Nothing, in a release.
    #[cfg(not(debug_assertions))]
    pub(super) const fn pass(self) {}
}
