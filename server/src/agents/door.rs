//! Lets syncs in: so many at a time, each within its time. Whoever sends slowly keeps nobody else waiting, and nothing is read of
//! whoever is no agent of ours.
//!
//! Nearly all bodies are small. Those are read without a place, since each needs no more memory than its connection has anyway. A
//! large one, and one that does not say its length, needs one of few places. A poll takes its place only once its body was read.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{Json, RequestExt, extract::Request, http::header};
use engine::sync::{SyncReply, SyncRequest, limits};
use tokio::sync::Semaphore;

use super::{Hub, Speaker, SyncError};

/// How much is let in at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Longest body that needs no place, bytes.
    pub(super) small_bytes: u64,
    /// Large bodies at a time; each takes at most [`limits::BODY_BYTES`].
    pub(super) large_bodies: usize,
    /// Longest time until a body has arrived; a large one waits for its place within it.
    pub(super) body_time: Duration,
    /// Polls that are held at a time.
    pub(super) polls: usize,
}

impl Limits {
    /// For 10,000 jobs with 8 replicas each, and some. A sync without news has some hundred bytes; 32 large bodies are 128 MiB. Ten
    /// seconds are 3 Mbit/s for the largest, and with the answer's time still less than an agent waits.
    pub(super) const USUAL: Self =
        Self { small_bytes: 64 * 1024, large_bodies: 32, body_time: Duration::from_secs(10), polls: 100_000 };
}

/// The way to the hub.
#[derive(Clone)]
pub(super) struct Door {
    hub: Arc<Hub>,
    limits: Limits,
    large: Arc<Semaphore>,
    polls: Arc<Semaphore>,
}

impl Door {
    pub(super) fn new(hub: Arc<Hub>, limits: Limits) -> Self {
        Self {
            hub,
            limits,
            large: Arc::new(Semaphore::new(limits.large_bodies)),
            polls: Arc::new(Semaphore::new(limits.polls)),
        }
    }

    /// Whether this is the token of the one who says it speaks.
    pub(super) fn admits(&self, speaker: &Speaker, token: &str) -> bool {
        self.hub.is_token_of(&speaker.task, &speaker.replica, token)
    }

    /// Reads a sync and answers it. The whole takes no longer than a poll, however long its body took.
    pub(super) async fn pass(&self, speaker: &Speaker, request: Request) -> Result<SyncReply, SyncError> {
        // Before the body: how long that takes says nothing about the agent's clock.
        let (begun, arrived_at) = (Instant::now(), self.hub.now());
        let body = tokio::time::timeout(self.limits.body_time, self.read(request)).await;
        let request = body.map_err(|_| SyncError::Slow(self.limits.body_time))??;
        if (&request.task_id, &request.replica) != (&speaker.task, &speaker.replica) {
            return Err(SyncError::Token);
        }
        let Ok(_place) = self.polls.try_acquire() else {
            return Err(SyncError::NotNow(anyhow::anyhow!("{} polls are held already", self.limits.polls)));
        };
        let hold = Duration::from_secs(limits::POLL_SECONDS).saturating_sub(begun.elapsed());
        self.hub.sync(request, arrived_at, hold).await
    }

    async fn read(&self, request: Request) -> Result<SyncRequest, SyncError> {
        let length = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        let is_small = length
            .and_then(|text| text.parse::<u64>().ok())
            .is_some_and(|bytes| bytes <= self.limits.small_bytes);
        // The semaphore is never closed; its queue is in order, and who stands before the end of it leaves when its time is over.
        let _place = if is_small { None } else { self.large.acquire().await.ok() };
        let body = request.extract::<Json<SyncRequest>, _>().await;
        body.map(|Json(request)| request).map_err(|why| SyncError::Invalid(why.body_text()))
    }
}
