//! The word to a program that its end is near, and its answer: `POST /v1/preempt/notify`, then `GET /v1/preempt/status` until it has
//! saved, has failed, or its time is over. Only 127.0.0.1 is spoken to.
//!
//! A program may be anything: what it answers is bounded in size and time, and whatever is none of the contract is called what it was.
//! One that is silent is not given up before its time is over: many write a checkpoint while nothing else of them runs.

mod teller;

use std::time::{Duration, Instant};

use engine::{
    ids::TaskId,
    record::{ExitReason, SaveOutcome},
};
use reqwest::{Method, Response, StatusCode, header::CONTENT_TYPE, redirect::Policy};
use rustls::RootCertStore;
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

pub use self::teller::Teller;
use crate::sync;

/// A program on this machine accepts within this time.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// A program that is about to listen is tried again for so long.
const LISTEN_LIMIT: Duration = Duration::from_secs(2);
/// Longest wait for the answer to the notification: it only has to be taken note of.
const NOTIFY_LIMIT: Duration = Duration::from_secs(30);
/// Longest wait for one answer to the question how it stands; it is asked again.
const STATUS_LIMIT: Duration = Duration::from_secs(5);
/// A port that was open and is closed for so long stays closed.
const CLOSED_LIMIT: Duration = Duration::from_secs(5);
/// A process that broke a connection by its death is seen to be dead within this time.
const END_LIMIT: Duration = Duration::from_secs(1);
/// Longest answer that is read, bytes. One of the contract has a few hundred.
const ANSWER_BYTES: usize = 64 * 1024;
/// First pause between two questions; it grows by half up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// A save takes seconds to minutes, and who waits for it should not notice the pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Characters of a message or path that are kept.
const TEXT_CHARS: usize = 1000;

/// What the program is told.
#[derive(Clone, Debug, Serialize)]
pub struct Word {
    /// Why.
    pub reason: ExitReason,
    /// How long it has, whole seconds.
    pub deadline_seconds: u64,
    /// The job; none in a test without one.
    pub job_id: Option<String>,
    /// The attempt.
    pub task_id: Option<TaskId>,
}

/// How it went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Never `saving`.
    pub outcome: SaveOutcome,
    /// The step it saved.
    pub step: Option<u64>,
    /// Where.
    pub path: Option<String>,
    /// In words, where there is more to say.
    pub message: Option<String>,
}

impl Answer {
    /// One that says only why.
    pub fn of(outcome: SaveOutcome, message: impl Into<String>) -> Self {
        Self { outcome, step: None, path: None, message: Some(message.into()) }
    }
}

/// What a program answers to the question how it stands.
#[derive(Debug, Deserialize)]
struct Status {
    status: StatusWord,
    step: Option<u64>,
    path: Option<String>,
    message: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StatusWord {
    Idle,
    Saving,
    Saved,
    Failed,
}

/// Why a call brought nothing of the contract.
#[derive(Debug)]
enum Trouble {
    /// Nobody listens.
    Closed,
    /// Nothing came, or not all of it.
    Silent(String),
    /// The connection broke.
    Broken(String),
    /// What came is wrong.
    Wrong(String),
}

/// Tells the program behind `port` and waits for what it says, until `deadline` at most. `taken` is called once it has taken note.
pub async fn tell(port: u16, word: &Word, deadline: Instant, taken: impl FnOnce()) -> Answer {
    let http = match client() {
        Ok(http) => http,
        Err(why) => return Answer::of(SaveOutcome::NoAnswer, format!("no HTTP client can be made: {why:#}")),
    };
    let program = Program { http, port };
    match program.notify(word, deadline).await {
        Ok(()) => taken(),
        Err(Trouble::Closed) => {
            return Answer::of(SaveOutcome::NoAnswer, format!("nobody listens on port {port}"));
        }
        Err(Trouble::Silent(why)) => return Answer::of(SaveOutcome::NoAnswer, why),
        Err(Trouble::Broken(why)) => {
            // A program that dies of it breaks the connection first, and its end says more.
            sleep(END_LIMIT).await;
            return Answer::of(SaveOutcome::NoAnswer, why);
        }
        Err(Trouble::Wrong(why)) => return Answer::of(SaveOutcome::WrongAnswer, why),
    }
    program.wait(deadline).await
}

fn client() -> anyhow::Result<reqwest::Client> {
    // A proxy is for the way out, and a redirect might lead there.
    let builder = reqwest::Client::builder().no_proxy().redirect(Policy::none()).http1_only();
    // It is never used, and cannot be left out.
    let builder = builder.tls_backend_preconfigured(sync::tls(RootCertStore::empty())?);
    Ok(builder.connect_timeout(CONNECT_LIMIT).build()?)
}

struct Program {
    http: reqwest::Client,
    port: u16,
}

impl Program {
    async fn notify(&self, word: &Word, deadline: Instant) -> Result<(), Trouble> {
        let path = "/v1/preempt/notify";
        let until = (Instant::now() + LISTEN_LIMIT).min(deadline);
        let response = loop {
            let call = self.call(Method::POST, path).json(word).send();
            match within(NOTIFY_LIMIT, deadline, path, call).await {
                Err(Trouble::Closed) if Instant::now() < until => sleep(LONGEST_PAUSE / 2).await,
                done => break done?,
            }
        };
        match response.status() {
            status if status.is_success() => Ok(()),
            status => Err(Trouble::Wrong(refused(path, status))),
        }
    }

    /// Asks until there is an end.
    async fn wait(&self, deadline: Instant) -> Answer {
        let (mut pause, mut closed_since) = (FIRST_PAUSE, None);
        let mut last = Err("it was not asked in time".to_owned());
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let was_closed = closed_since.take();
            match self.status(deadline).await {
                Ok(status) => match status.end() {
                    Some(answer) => return answer,
                    None => last = Ok(status),
                },
                Err(Trouble::Wrong(why)) => return Answer::of(SaveOutcome::WrongAnswer, why),
                Err(Trouble::Closed) => {
                    let since = *closed_since.insert(was_closed.unwrap_or(Instant::now()));
                    if since.elapsed() >= CLOSED_LIMIT {
                        let why = format!("port {} was closed while it saved", self.port);
                        return Answer::of(SaveOutcome::NoAnswer, why);
                    }
                }
                // What it said before is still the last word.
                Err(Trouble::Silent(why) | Trouble::Broken(why)) => last = last.map_err(|_| why),
            }
            sleep(pause.min(deadline.saturating_duration_since(Instant::now()))).await;
            pause = (pause * 3 / 2).min(LONGEST_PAUSE);
        }
        match last {
            Ok(status) => Answer {
                outcome: SaveOutcome::TimedOut,
                step: None,
                path: None,
                message: Some(match status.status {
                    StatusWord::Idle => "it took note and did not begin to save".to_owned(),
                    _ => text(status.message).unwrap_or_else(|| "it was still saving".to_owned()),
                }),
            },
            Err(why) => Answer::of(SaveOutcome::NoAnswer, why),
        }
    }

    async fn status(&self, deadline: Instant) -> Result<Status, Trouble> {
        let path = "/v1/preempt/status";
        let ask = async {
            let response = self.call(Method::GET, path).send().await?;
            let (status, kind) = (response.status(), content_type(&response));
            Ok((status, kind, body(response).await?))
        };
        let (status, kind, body) = within(STATUS_LIMIT, deadline, path, ask).await?;
        if !status.is_success() {
            return Err(Trouble::Wrong(refused(path, status)));
        }
        if !kind.starts_with("application/json") {
            let kind = if kind.is_empty() { "no content type".to_owned() } else { format!("`{kind}`") };
            return Err(Trouble::Wrong(format!("GET {path} was answered with {kind}, not application/json")));
        }
        let Some(body) = body else {
            let why = format!("the answer to GET {path} has more than {ANSWER_BYTES} bytes");
            return Err(Trouble::Wrong(why));
        };
        serde_json::from_slice(&body).map_err(|why| {
            let wanted = r#"{"status":"idle|saving|saved|failed","step","path","message"}"#;
            Trouble::Wrong(format!("the answer to GET {path} is not {wanted}: {why}"))
        })
    }

    fn call(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("http://127.0.0.1:{}{path}", self.port))
    }
}

impl Status {
    fn end(&self) -> Option<Answer> {
        let outcome = match self.status {
            StatusWord::Idle | StatusWord::Saving => return None,
            StatusWord::Saved => SaveOutcome::Saved,
            StatusWord::Failed => SaveOutcome::Failed,
        };
        let (path, message) = (text(self.path.clone()), text(self.message.clone()));
        let step = self.step.filter(|_| outcome == SaveOutcome::Saved);
        Some(Answer { outcome, step, path: path.filter(|_| outcome == SaveOutcome::Saved), message })
    }
}

/// One call with its limits.
async fn within<T>(
    limit: Duration,
    deadline: Instant,
    path: &str,
    call: impl Future<Output = reqwest::Result<T>>,
) -> Result<T, Trouble> {
    let limit = limit.min(deadline.saturating_duration_since(Instant::now()));
    match timeout(limit, call).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(why)) if why.is_connect() => Err(Trouble::Closed),
        Ok(Err(why)) => Err(Trouble::Broken(format!("{path} was not answered: {}", root(&why)))),
        Err(_) => {
            Err(Trouble::Silent(format!("{path} was not answered within {} s", limit.as_secs_f32().ceil())))
        }
    }
}

/// The innermost cause: the others say which URL it was.
fn root(why: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = why;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

fn refused(path: &str, status: StatusCode) -> String {
    if status.is_redirection() {
        format!("{path} answers with a redirect ({status}), which is not followed")
    } else {
        format!("{path} answers {status}")
    }
}

fn content_type(response: &Response) -> String {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.chars().take(100).collect::<String>().to_ascii_lowercase()
}

/// None where it is too long.
async fn body(mut response: Response) -> reqwest::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > ANSWER_BYTES {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

fn text(text: Option<String>) -> Option<String> {
    text.map(|text| text.chars().take(TEXT_CHARS).collect()).filter(|text: &String| !text.is_empty())
}

#[cfg(test)]
mod tests;
