//! How well the watches of a cluster do.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use engine::job::JobKind;
use tokio::time::Instant;

use super::names;

/// A watch that has been failing for so long makes its cluster out of reach; shorter gaps are an API server that is restarted.
pub(super) const FAILING: Duration = Duration::from_secs(15);

/// What is watched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Watched {
    /// Whether the API server answers at all.
    Server,
    /// Job objects of a kind in a namespace. Only jobs of that kind wait for this watch.
    Jobs(JobKind, String),
    /// Pods of a namespace.
    Pods(String),
    /// Events of a namespace about a kind of jobs. Only words come from them, so nothing waits for this watch.
    Events(JobKind, String),
    /// Events of a namespace about pods, with this reason. Likewise.
    PodEvents(&'static str, String),
    /// The nodes. Likewise.
    Nodes,
    /// Objects of a queueing system, of a namespace or of the cluster. Likewise; many clusters have none.
    Queueing(&'static str, Option<String>),
}

impl std::fmt::Display for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Server => f.write_str("API server"),
            Self::Jobs(kind, namespace) => {
                write!(f, "{}s of namespace {namespace}", names::resource(*kind).kind)
            }
            Self::Pods(namespace) => write!(f, "pods of namespace {namespace}"),
            Self::Events(kind, namespace) => {
                write!(f, "events about {}s of namespace {namespace}", names::resource(*kind).kind)
            }
            Self::PodEvents(reason, namespace) => write!(f, "events {reason} of namespace {namespace}"),
            Self::Nodes => f.write_str("nodes"),
            Self::Queueing(what, Some(namespace)) => write!(f, "{what} of namespace {namespace}"),
            Self::Queueing(what, None) => f.write_str(what),
        }
    }
}

/// How a watch does.
#[derive(Clone, Debug, Default)]
struct Watch {
    /// There was a full list.
    synced: bool,
    /// Since when it fails, and how.
    failing: Option<(Instant, String)>,
}

impl Watch {
    /// How it fails, once that is no short gap: before the first full list there is nothing to bridge one with.
    fn failing(&self, now: Instant) -> Option<&str> {
        let (since, words) = self.failing.as_ref()?;
        (!self.synced || now.duration_since(*since) >= FAILING).then_some(words)
    }
}

/// How all of them do.
#[derive(Default)]
pub(super) struct Health(Mutex<BTreeMap<Watched, Watch>>);

impl Health {
    fn watches(&self) -> MutexGuard<'_, BTreeMap<Watched, Watch>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A watch brought something; `complete` at the end of a full list. Answers whether it had been failing: what comes during a list does
    /// not yet show that the list will be whole.
    pub(super) fn heard(&self, watched: &Watched, complete: bool) -> bool {
        let mut watches = self.watches();
        let watch = watches.entry(watched.clone()).or_default();
        watch.synced |= complete;
        complete && watch.failing.take().is_some()
    }

    /// A watch failed. Answers whether these are new words.
    pub(super) fn failed(&self, watched: &Watched, words: &str, now: Instant) -> bool {
        let mut watches = self.watches();
        let failing = &mut watches.entry(watched.clone()).or_default().failing;
        let (since, is_news) = match failing {
            Some((since, known)) => (*since, known.as_str() != words),
            None => (now, true),
        };
        *failing = Some((since, words.to_owned()));
        is_news
    }

    /// Whether the first lists of a namespace are still on their way, and nothing has gone wrong yet.
    pub(super) fn is_beginning(&self, kind: JobKind, namespace: &str) -> bool {
        let watches = self.watches();
        needed(kind, namespace).iter().any(|watched| {
            let watch = watches.get(watched);
            watch.is_none_or(|watch| !watch.synced && watch.failing.is_none())
        })
    }

    /// Whether there was a full list.
    pub(super) fn is_synced(&self, watched: &Watched) -> bool {
        self.watches().get(watched).is_some_and(|watch| watch.synced)
    }

    /// Why nothing may be concluded from what is known of a kind of jobs in a namespace; none where it may.
    pub(super) fn blind(&self, kind: JobKind, namespace: &str, now: Instant) -> Option<String> {
        needed(kind, namespace).iter().find_map(|watched| self.blind_to(watched, now))
    }

    /// The same of what one watch shows.
    pub(super) fn blind_to(&self, watched: &Watched, now: Instant) -> Option<String> {
        let watches = self.watches();
        let unknown = Watch::default();
        let watch = watches.get(watched).unwrap_or(&unknown);
        match (watch.failing(now), watched) {
            (Some(words), Watched::Server) => Some(words.to_owned()),
            (Some(words), _) => Some(format!("the {watched} cannot be watched: {words}")),
            (None, _) if watch.synced || watch.failing.is_some() => None,
            (None, Watched::Server) => Some("the API server has not answered yet".to_owned()),
            (None, _) => Some(format!("the {watched} are not listed yet")),
        }
    }

    /// What fails now, and how. A watch that only begins is not among it.
    pub(super) fn failing(&self, now: Instant) -> Vec<(Watched, String)> {
        let watches = self.watches();
        let failing = watches.iter().filter_map(|(watched, watch)| Some((watched, watch.failing(now)?)));
        failing.map(|(watched, words)| (watched.clone(), words.to_owned())).collect()
    }

    /// Why the API server is taken to be away.
    pub(super) fn is_away(&self, now: Instant) -> Option<String> {
        self.watches().get(&Watched::Server)?.failing(now).map(str::to_owned)
    }
}

/// What must be seen for anything to follow.
fn needed(kind: JobKind, namespace: &str) -> [Watched; 3] {
    [Watched::Server, Watched::Jobs(kind, namespace.to_owned()), Watched::Pods(namespace.to_owned())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_concluded_before_full_lists_and_while_a_watch_fails() {
        let (health, namespace) = (Health::default(), "train");
        let now = Instant::now();
        assert!(health.blind(JobKind::PyTorchJob, namespace, now).unwrap().contains("has not answered yet"));
        health.heard(&Watched::Server, true);
        assert!(health.blind(JobKind::PyTorchJob, namespace, now).unwrap().contains("are not listed yet"));
        let pods = Watched::Pods("train".to_owned());
        assert!(health.failed(&pods, "refused", now), "new words are said");
        assert!(!health.failed(&pods, "refused", now), "once");
        health.heard(&Watched::Jobs(JobKind::PyTorchJob, "train".to_owned()), true);
        health.heard(&pods, true);
        assert_eq!(health.blind(JobKind::PyTorchJob, namespace, now), None);

        assert!(health.failed(&pods, "away", now));
        health.failed(&pods, "away", now + Duration::from_secs(14));
        assert_eq!(
            health.blind(JobKind::PyTorchJob, namespace, now + Duration::from_secs(14)),
            None,
            "a restart of the API server"
        );
        let why = health.blind(JobKind::PyTorchJob, namespace, now + Duration::from_secs(15)).unwrap();
        assert!(why.contains("pods of namespace train") && why.contains("away"), "{why}");
        assert!(health.heard(&pods, true), "and it is said when it is over");
        assert_eq!(health.blind(JobKind::PyTorchJob, namespace, now + Duration::from_secs(15)), None);
        // Events and nodes bring words only.
        health.failed(&Watched::Nodes, "forbidden", now);
        assert_eq!(health.blind(JobKind::PyTorchJob, namespace, now + Duration::from_secs(60)), None);
        assert!(health.blind_to(&Watched::Nodes, now).unwrap().contains("forbidden"));
    }
}
