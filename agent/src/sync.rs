//! The talk with the server, in two lanes that never wait for each other: one holds a poll open for the desired state, one
//! sends reports as soon as there are any. Only the poll's answers are obeyed, so answers cannot overtake each other.

use std::{
    error::Error as _,
    hash::{BuildHasher, RandomState},
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use engine::{
    sync::{Desired, PortOffer, Report, SyncReply, SyncRequest, headers, limits::POLL_SECONDS},
    time::Time,
};
use reqwest::StatusCode;
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use tokio::{sync::watch, task::JoinHandle, time};

use crate::{clock, config::Config, net, state::State};

/// A server that is there accepts within this time.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// A poll is answered within this time, or the server is not there any more.
const ANSWER_LIMIT: Duration = Duration::from_secs(POLL_SECONDS + 10);
/// Longest answer that is read, bytes. A desired state has a few hundred.
const ANSWER_BYTES: usize = 64 * 1024;
/// An answer that came at once and said nothing new is not asked for again before.
const IDLE_PAUSE: Duration = Duration::from_millis(100);

/// Whether the server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contact {
    /// The last request was answered.
    Online,
    /// No request was answered since.
    Away(Instant),
}

/// Why a sync brought nothing.
#[derive(Debug, thiserror::Error)]
enum SyncError {
    #[error("the server's address cannot be read")]
    Address(#[source] io::Error),
    #[error("the server does not answer")]
    Unreachable(#[source] reqwest::Error),
    #[error(
        "the server rejects this replica's token ({0}): it belongs to another attempt, replica or installation"
    )]
    Token(StatusCode),
    #[error("the server refused the sync: {status} {text}")]
    Refused { status: StatusCode, text: String },
    #[error("the server's answer is none of this protocol; agent and server are of different versions")]
    Answer(#[source] serde_json::Error),
    #[error("the server's answer is longer than {ANSWER_BYTES} bytes")]
    TooLong,
    #[error("the attempt is over")]
    Gone,
}

impl SyncError {
    /// The whole chain of causes on one line.
    fn words(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(why) = cause {
            text = format!("{text}: {why}");
            cause = why.source();
        }
        text
    }
}

/// The connection with the server, kept up in the background.
#[derive(Debug)]
pub struct Link {
    /// What the server wants; none before its first answer.
    pub desired: watch::Receiver<Option<Desired>>,
    /// Whether it answers.
    pub contact: watch::Receiver<Contact>,
    /// How far its clock was ahead of this machine's when it last answered, microseconds.
    pub clock_off: watch::Receiver<Option<i64>>,
    lanes: [JoinHandle<()>; 2],
}

impl Link {
    /// Starts both lanes. `offer` is the port to be told with each sync.
    ///
    /// # Errors
    /// Where no HTTP client can be made.
    pub fn start(
        config: &Config,
        state: &Arc<State>,
        offer: watch::Receiver<Option<PortOffer>>,
    ) -> anyhow::Result<Self> {
        let (current, is_current) = watch::channel(None);
        let client = Client::new(config, offer, is_current)?;
        let (desired, is_desired) = watch::channel(None);
        let (contact, is_contact) = watch::channel(Contact::Away(Instant::now()));
        let (clock_off, is_off) = watch::channel(None);
        let poll =
            Poll { client: client.clone(), state: Arc::clone(state), desired, current, contact, clock_off };
        let push = Push { client, state: Arc::clone(state), met: is_desired.clone() };
        let lanes = [tokio::spawn(poll.run()), tokio::spawn(push.run())];
        Ok(Self { desired: is_desired, contact: is_contact, clock_off: is_off, lanes })
    }

    /// The time by the server's clock; this machine's where the server has not told it.
    pub fn server_now(&self) -> Time {
        Time(clock::now().micros().saturating_add(self.clock_off.borrow().unwrap_or(0)))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for lane in &self.lanes {
            lane.abort();
        }
    }
}

/// The lane that asks what the server wants.
struct Poll {
    client: Client,
    state: Arc<State>,
    desired: watch::Sender<Option<Desired>>,
    /// What the server is told it said, in case it is started again.
    current: watch::Sender<Option<PortOffer>>,
    contact: watch::Sender<Contact>,
    clock_off: watch::Sender<Option<i64>>,
}

impl Poll {
    async fn run(self) {
        let mut seen = 0;
        let mut failures = Failures::default();
        loop {
            let asked_at = Instant::now();
            match self.client.sync(seen, Vec::new()).await {
                Ok(reply) => {
                    failures.end();
                    self.contact.send_replace(Contact::Online);
                    self.state.acknowledge(reply.acknowledged);
                    // What the answer took to come makes it seem a little less.
                    let off = |now: Time| now.micros().saturating_sub(clock::now().micros());
                    self.clock_off.send_replace(reply.now.map(off));
                    let idle = reply.version == seen && asked_at.elapsed() < IDLE_PAUSE;
                    seen = reply.version;
                    self.want(reply.desired);
                    if idle {
                        time::sleep(IDLE_PAUSE).await;
                    }
                }
                Err(SyncError::Gone) => {
                    tracing::info!("the server says that this attempt is over");
                    self.want(Desired::Exit);
                    // Nobody is asked again; the channel stays open for those who wait on it.
                    return std::future::pending().await;
                }
                Err(why) => {
                    self.contact.send_if_modified(|contact| {
                        let was_online = *contact == Contact::Online;
                        if was_online {
                            *contact = Contact::Away(Instant::now());
                        }
                        was_online
                    });
                    // A server that was started again may count from anew: ask for an answer at once.
                    seen = 0;
                    failures.wait(&why).await;
                }
            }
        }
    }

    fn want(&self, desired: Desired) {
        if let Desired::Run { launch } = &desired {
            self.current.send_replace(Some(PortOffer { launch: launch.number, port: launch.master_port }));
        }
        self.desired.send_if_modified(|known| {
            let is_new = known.as_ref() != Some(&desired);
            if is_new {
                tracing::debug!("desired: {desired:?}");
                *known = Some(desired);
            }
            is_new
        });
    }
}

/// The lane that sends reports.
struct Push {
    client: Client,
    state: Arc<State>,
    met: watch::Receiver<Option<Desired>>,
}

impl Push {
    async fn run(mut self) {
        // The first answer says which numbers the server has, in case this replica's memory was lost.
        if self.met.wait_for(Option::is_some).await.is_err() {
            return;
        }
        let mut failures = Failures::default();
        loop {
            self.state.any_pending().await;
            let batch = self.state.batch();
            let first = batch.first().map_or(0, |report| report.sequence);
            // `seen` 0: answered at once, whatever the poll is waiting for.
            match self.client.sync(0, batch).await {
                Ok(reply) if reply.acknowledged >= first => {
                    failures.end();
                    self.state.acknowledge(reply.acknowledged);
                }
                Ok(reply) => failures.wait(&SyncError::untaken(first, reply.acknowledged)).await,
                // Nobody will ever take them.
                Err(SyncError::Gone) => self.state.drop_reports(),
                Err(why) => {
                    if why.is_about_content() {
                        self.state.reduce();
                    }
                    failures.wait(&why).await;
                }
            }
        }
    }
}

impl SyncError {
    /// The same reports would be refused again.
    fn is_about_content(&self) -> bool {
        let about_content =
            [StatusCode::BAD_REQUEST, StatusCode::PAYLOAD_TOO_LARGE, StatusCode::UNPROCESSABLE_ENTITY];
        matches!(self, Self::Refused { status, .. } if about_content.contains(status))
    }

    fn untaken(first: u64, acknowledged: u64) -> Self {
        let text = format!("reports from {first} on were sent, but only those up to {acknowledged} are kept");
        Self::Refused { status: StatusCode::OK, text }
    }
}

/// One HTTP client with all that is the same for each sync.
#[derive(Clone)]
struct Client {
    http: reqwest::Client,
    config: Arc<Config>,
    agent_id: Arc<str>,
    offer: watch::Receiver<Option<PortOffer>>,
    current: watch::Receiver<Option<PortOffer>>,
}

impl Client {
    fn new(
        config: &Config,
        offer: watch::Receiver<Option<PortOffer>>,
        current: watch::Receiver<Option<PortOffer>>,
    ) -> anyhow::Result<Self> {
        // A proxy is for the program's way out; the server is near.
        let builder = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        let builder = builder.tls_backend_preconfigured(tls(config.authorities.clone())?);
        let http = builder.connect_timeout(CONNECT_LIMIT).timeout(ANSWER_LIMIT).build()?;
        let agent_id = format!("{}-{}", std::process::id(), clock::now().micros());
        Ok(Self { http, config: Arc::new(config.clone()), agent_id: agent_id.into(), offer, current })
    }

    async fn sync(&self, seen: u64, reports: Vec<Report>) -> Result<SyncReply, SyncError> {
        let url = self.config.server.url().map_err(SyncError::Address)?;
        let address = self.config.address.clone().or_else(|| net::address_towards(&url));
        let request = SyncRequest {
            task_id: self.config.task_id.clone(),
            replica: self.config.replica.clone(),
            agent_id: self.agent_id.as_ref().to_owned(),
            seen,
            address: address.unwrap_or_else(|| "127.0.0.1".to_owned()),
            offer: *self.offer.borrow(),
            current: *self.current.borrow(),
            sent_at: clock::now(),
            reports,
        };
        let call = self.http.post(format!("{url}/agent/v1/sync"));
        let call = call.header(headers::TASK, request.task_id.as_str());
        let call = call.header(headers::REPLICA, request.replica.as_str());
        let call = call.bearer_auth(self.config.token.reveal()).json(&request);
        let response = call.send().await.map_err(SyncError::Unreachable)?;
        match response.status() {
            StatusCode::OK => serde_json::from_slice(&read(response).await?).map_err(SyncError::Answer),
            StatusCode::GONE => Err(SyncError::Gone),
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => Err(SyncError::Token(status)),
            status => {
                let body = read(response).await.unwrap_or_default();
                let text = String::from_utf8_lossy(&body).chars().take(300).collect();
                Err(SyncError::Refused { status, text })
            }
        }
    }
}

/// TLS with servers for which one of these authorities vouches.
pub fn tls(authorities: RootCertStore) -> Result<ClientConfig, rustls::Error> {
    let builder = ClientConfig::builder_with_provider(ring::default_provider().into());
    let versions = builder.with_safe_default_protocol_versions()?;
    Ok(versions.with_root_certificates(authorities).with_no_client_auth())
}

async fn read(mut response: reqwest::Response) -> Result<Vec<u8>, SyncError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(SyncError::Unreachable)? {
        if body.len() + chunk.len() > ANSWER_BYTES {
            return Err(SyncError::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Waits longer after each failure, and logs a failure once.
#[derive(Debug, Default)]
struct Failures {
    count: u32,
    logged: Option<String>,
}

impl Failures {
    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(5);

    async fn wait(&mut self, why: &SyncError) {
        let words = why.words();
        if self.logged.as_ref() != Some(&words) {
            tracing::warn!("{words}; trying again, training goes on");
            self.logged = Some(words);
        }
        let pause = Self::pause(self.count, RandomState::new().hash_one(self.count));
        self.count = self.count.saturating_add(1);
        time::sleep(pause).await;
    }

    fn end(&mut self) {
        if self.logged.take().is_some() {
            tracing::info!("the server answers again");
        }
        self.count = 0;
    }

    /// Between half and all of the doubled pause, so that the agents of a server that comes back do not come in step.
    fn pause(count: u32, seed: u64) -> Duration {
        let full = Self::FIRST.saturating_mul(1 << count.min(10)).min(Self::LONGEST);
        full / 2 + full.mul_f64((seed % 1000) as f64 / 2000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit() {
        for (count, longest) in [(0, 100), (1, 200), (5, 3200), (6, 5000), (u32::MAX, 5000)] {
            for seed in [0, 499, 999] {
                let pause = Failures::pause(count, seed).as_millis();
                assert!(pause >= longest / 2 && pause <= longest, "{count} {seed} {pause}");
            }
        }
    }
}
