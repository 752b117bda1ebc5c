//! Live streams: what changed, as Server-Sent Events that resume by `Last-Event-ID`.
//!
//! A stream reads the store from its position on; the driver's broadcast only tells it when to look, and a timer covers lost
//! hints and changes made by another server. So no change is lost or sent twice, whatever happens to hints or connection.

use std::{
    collections::{HashMap, VecDeque},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};

use app::console::{Caller, Console};
use axum::{
    extract::State,
    response::{
        Sse,
        sse::{Event, KeepAlive},
    },
};
use engine::{ids::JobId, time::Time};
use futures::stream::{self, Stream};
use http::HeaderMap;
use serde::Deserialize;
use tokio::{
    sync::{OwnedSemaphorePermit, broadcast},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use utoipa::IntoParams;

use super::{
    WebState,
    extract::ApiPath,
    limits,
    problem::Problem,
    query::{ApiQuery, Parameters},
    rest::Refusals,
    sessions::{self, Asks},
};
use crate::{
    driver::Change as Hint,
    service::Service,
    store::{
        StoreError,
        changes::{self, Position},
        jobs,
    },
};

/// How often the store is looked at without a hint.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Steps are dated before they are committed, so one that is committed late has an older date than one already sent.
const LATE_COMMITS_SECONDS: i64 = 10;

/// Where a stream goes on, for clients that cannot set the header.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub struct From {
    /// The id of the last event that was seen; the header `Last-Event-ID` wins.
    last_event_id: Option<String>,
}

impl Parameters for From {}

type Events = Sse<
    axum::response::sse::KeepAliveStream<
        std::pin::Pin<Box<dyn Stream<Item = Result<Event, Infallible>> + Send>>,
    >,
>;

/// Changes of one job: events `job`, `attempt`, `launch`, `incident`, `decision`, `progress`, `event`. `reset` says that more
/// was missed than is kept, so everything has to be read again; `deleted` is the last.
#[utoipa::path(get, operation_id = "stream_job", path = "/api/v1/jobs/{job_id}/stream", tag = "streams", params(("job_id" = String, Path), From),
    responses((status = 200, body = String, content_type = "text/event-stream"), Refusals))]
pub async fn of_job(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiPath(id): ApiPath<JobId>,
    ApiQuery(query): ApiQuery<From>,
    headers: HeaderMap,
) -> Result<Events, Problem> {
    let feed = Feed::open(&state, caller)?;
    feed.service.job(&feed.caller, &id).await?;
    let position = last_event_id(&headers, query).and_then(|text| parse_position(&text));
    Ok(sse(feed, JobFeed { id, position }))
}

/// Changes of all jobs: one `job` event with its row for each job that changed.
#[utoipa::path(get, operation_id = "stream_jobs", path = "/api/v1/stream", tag = "streams", params(From),
    responses((status = 200, body = String, content_type = "text/event-stream"), Refusals))]
pub async fn of_all(
    State(state): State<WebState>,
    Asks(caller): Asks,
    ApiQuery(query): ApiQuery<From>,
    headers: HeaderMap,
) -> Result<Events, Problem> {
    let feed = Feed::open(&state, caller)?;
    let since = last_event_id(&headers, query).and_then(|text| text.parse().ok().map(Time));
    let since = since.unwrap_or_else(|| feed.service.now());
    Ok(sse(feed, AllFeed { since, sent: HashMap::new() }))
}

/// What every stream has.
struct Feed {
    service: Arc<Service>,
    caller: Caller,
    hints: broadcast::Receiver<Hint>,
    ends: Instant,
    stop: CancellationToken,
    ready: VecDeque<Event>,
    over: bool,
    _place: OwnedSemaphorePermit,
}

impl Feed {
    fn open(state: &WebState, caller: Caller) -> Result<Self, Problem> {
        let place = Arc::clone(&state.streams).try_acquire_owned().map_err(|_| {
            Problem::busy(format!("{} live streams are open, which is the limit.", limits::STREAMS))
        })?;
        metrics::gauge!("holdfast_streams").increment(1.0);
        Ok(Self {
            service: Arc::clone(&state.service),
            caller,
            // Before the first look at the store, so that nothing falls between the two.
            hints: state.service.driver.changes(),
            ends: Instant::now() + limits::STREAM_LIFE,
            stop: state.stop.clone(),
            ready: VecDeque::new(),
            over: false,
            _place: place,
        })
    }

    /// Waits for a reason to look at the store; false once the stream is over.
    async fn wait(&mut self, about: Option<&JobId>) -> bool {
        let hint = async {
            loop {
                match self.hints.recv().await {
                    Ok(hint) if about.is_some_and(|id| *id != hint.job_id) => {}
                    // Hints that were dropped may have been ours.
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => return,
                    // The driver is gone; the timer goes on.
                    Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
                }
            }
        };
        tokio::select! {
            () = self.stop.cancelled() => false,
            () = tokio::time::sleep_until(self.ends) => false,
            () = hint => true,
            () = tokio::time::sleep(LOOK_AGAIN) => true,
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        metrics::gauge!("holdfast_streams").decrement(1.0);
    }
}

/// Reads what is new since the last time.
trait Source: Send + 'static {
    /// The job it is about; none is all.
    fn about(&self) -> Option<&JobId>;
    /// Puts what is new into `feed.ready`.
    fn read(&mut self, feed: &mut Feed) -> impl Future<Output = Result<(), StoreError>> + Send;
}

fn sse(feed: Feed, source: impl Source) -> Events {
    let events = stream::unfold((feed, source), async |(mut feed, mut source)| {
        loop {
            if let Some(event) = feed.ready.pop_front() {
                return Some((Ok(event), (feed, source)));
            }
            if feed.over {
                return None;
            }
            if let Err(error) = source.read(&mut feed).await {
                // The client comes back with its position; by then the database may answer again.
                sessions::failed(&error);
                return None;
            }
            if feed.ready.is_empty() && !feed.wait(source.about()).await {
                return None;
            }
        }
    });
    let events: std::pin::Pin<Box<dyn Stream<Item = _> + Send>> = Box::pin(events);
    Sse::new(events).keep_alive(KeepAlive::new().interval(limits::STREAM_KEEP_ALIVE))
}

struct JobFeed {
    id: JobId,
    /// None before the first reading of a client that has seen nothing.
    position: Option<Position>,
}

impl Source for JobFeed {
    fn about(&self) -> Option<&JobId> {
        Some(&self.id)
    }

    async fn read(&mut self, feed: &mut Feed) -> Result<(), StoreError> {
        let mut conn = feed.service.store.read().await?;
        let Some(head) = jobs::head(&mut conn, &self.id).await? else {
            feed.ready.push_back(Event::default().event("deleted").data("{}"));
            feed.over = true;
            return Ok(());
        };
        let Some(position) = self.position else {
            // What was there before comes with the page; this tells where the stream begins.
            let at = Position { generation: head.generation, n: i64::MAX };
            let doc = serde_json::json!({ "state": head.summary.state, "substate": head.summary.substate, "tail": head.summary.tail });
            feed.ready.push_back(event("job", at, &doc.to_string()));
            self.position = Some(at);
            return Ok(());
        };
        // Of an equal generation the client may have seen the first changes only: the connection is cut anywhere.
        if position.generation > head.generation {
            return Ok(());
        }
        let since = changes::since(&mut conn, &self.id, position).await?;
        if !since.complete {
            feed.ready.push_back(event("reset", position, "{}"));
        }
        for change in since.changes {
            feed.ready.push_back(event(change.kind.as_str(), change.position, &change.doc));
            self.position = Some(change.position);
        }
        Ok(())
    }
}

struct AllFeed {
    /// The date of the newest change that was sent.
    since: Time,
    /// Generations of what was sent lately, so that looking back a little sends nothing twice.
    sent: HashMap<JobId, (i64, Time)>,
}

impl Source for AllFeed {
    fn about(&self) -> Option<&JobId> {
        None
    }

    async fn read(&mut self, feed: &mut Feed) -> Result<(), StoreError> {
        let back = Time(self.since.micros().saturating_sub(LATE_COMMITS_SECONDS * 1_000_000));
        self.sent.retain(|_, (_, at)| *at >= back);
        let mut conn = feed.service.store.read().await?;
        let mut changed = Vec::new();
        let mut from = back;
        // Of many jobs that changed at about the same time the first ones were sent already: go on behind them.
        loop {
            let batch = jobs::changed_since(&mut conn, from, limits::STREAM_BATCH).await?;
            let last = batch.last().map(|(_, _, at)| *at);
            let full = batch.len() >= limits::STREAM_BATCH as usize;
            let news = |(id, generation, _): &(JobId, i64, Time)| {
                self.sent.get(id).is_none_or(|(sent, _)| sent < generation)
            };
            changed.extend(batch.into_iter().filter(news));
            match last.filter(|at| full && changed.is_empty() && *at > from) {
                Some(at) => from = at,
                None => break,
            }
        }
        for (id, generation, at) in changed {
            self.sent.insert(id.clone(), (generation, at));
            self.since = self.since.max(at);
            let Some(head) = jobs::head(&mut conn, &id).await? else { continue };
            let row = app::console::JobRow {
                job_id: head.job_id,
                name: head.name,
                kind: head.kind,
                replicas: head.replicas,
                accelerators_per_replica: head.accelerators_per_replica,
                owner: head.owner,
                created_at: head.created_at,
                changed_at: head.changed_at,
                summary: head.summary,
            };
            let Ok(doc) = serde_json::to_string(&row) else { continue };
            feed.ready.push_back(Event::default().event("job").id(at.micros().to_string()).data(doc));
        }
        Ok(())
    }
}

fn event(kind: &str, at: Position, doc: &str) -> Event {
    Event::default().event(kind).id(format!("{}.{}", at.generation, at.n)).data(doc)
}

fn last_event_id(headers: &HeaderMap, query: From) -> Option<String> {
    let header = headers.get("last-event-id").and_then(|value| value.to_str().ok()).map(str::to_owned);
    header.or(query.last_event_id)
}

/// An id we did not give is as good as none: the stream begins now.
fn parse_position(text: &str) -> Option<Position> {
    let (generation, n) = text.split_once('.')?;
    Some(Position { generation: generation.parse().ok()?, n: n.parse().ok()? })
}
