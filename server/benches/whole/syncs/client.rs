//! Plays the agents of all replicas: brings them up, then syncs as fast as it is answered, then holds polls. Talks by lines: says
//! `ready` before each phase, waits for a line, and says what the phase brought.

use std::{
    io::{Write, stdin, stdout},
    sync::Arc,
    time::{Duration, Instant},
};

use engine::sync::{Point, PortOffer, Report, ReportBody, SyncReply, SyncRequest, headers};
use server::clock::{Clock, SystemClock};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    task::JoinSet,
};

use super::{JOBS, Phase, REPLICAS, job_id, processor_seconds, replica, task_id};
use crate::support::{Outcome, Samples, tokens};

/// Connections over which it syncs: far more than the server has processors, far fewer than replicas, so that a run is short.
pub const CONNECTIONS: u32 = 64;
/// Length of a measured phase.
const SECONDS: Duration = Duration::from_secs(10);

/// Plays the agents of a server at an address; `rest` is that and how many polls to hold.
pub fn client(rest: &[&str]) -> Outcome<()> {
    let [address, polls] = rest else { return Err("the address and the number of polls are missing".into()) };
    let (address, polls): (Arc<str>, usize) = ((*address).into(), polls.parse()?);
    // One thread: the server is to be measured, not the client.
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut lanes = Vec::new();
        for lane in 0..CONNECTIONS {
            lanes.push(Lane::new(&address, lane).await?);
        }
        let (lanes, _) = each(lanes, |_| Some(ReportBody::Ready), None).await?;
        let (lanes, _) = each(lanes, |_| Some(ReportBody::Started), None).await?;
        let lanes = measured(lanes, Agent::step).await?;
        let lanes = measured(lanes, |_| None).await?;
        told_to_go_on()?;
        let mut held = JoinSet::new();
        for agent in lanes.into_iter().flat_map(|lane| lane.agents).take(polls) {
            let stream = TcpStream::connect(&*address).await?;
            held.spawn(hold(agent, stream));
        }
        // Until it is killed: the server looks at its memory meanwhile.
        match held.join_next().await {
            Some(ended) => Ok(ended??),
            None => Err("there is no poll to hold".into()),
        }
    })
}

/// Polls again and again. What others have reported meanwhile answers the first poll at once.
async fn hold(mut agent: Agent, stream: TcpStream) -> Result<(), std::io::Error> {
    let mut stream = BufReader::new(stream);
    loop {
        let request = agent.request(agent.seen, None).map_err(std::io::Error::other)?;
        stream.write_all(&request).await?;
        agent.seen = answer(&mut stream).await?.version;
    }
}

fn told_to_go_on() -> Outcome<()> {
    writeln!(stdout(), "ready")?;
    let mut line = String::new();
    stdin().read_line(&mut line)?;
    if line.is_empty() { Err("nobody measures any more".into()) } else { Ok(()) }
}

/// What an agent has to say next.
type News = fn(&mut Agent) -> Option<ReportBody>;

/// A phase that is waited for and told of.
async fn measured(lanes: Vec<Lane>, news: News) -> Outcome<Vec<Lane>> {
    told_to_go_on()?;
    let (begin, before) = (Instant::now(), processor_seconds()?);
    let (lanes, millis) = each(lanes, news, Some(begin + SECONDS)).await?;
    let phase = Phase {
        syncs: millis.len() as u64,
        seconds: begin.elapsed().as_secs_f64(),
        median_millis: millis.median(),
        p95_millis: millis.p95(),
        client: processor_seconds()? - before,
    };
    writeln!(stdout(), "{}", serde_json::to_string(&phase)?)?;
    Ok(lanes)
}

/// Every agent syncs, those of a lane one after the other: once, or again and again until a time. Gives the milliseconds of each sync.
async fn each(lanes: Vec<Lane>, news: News, until: Option<Instant>) -> Outcome<(Vec<Lane>, Samples)> {
    let running = lanes.into_iter().map(|lane| tokio::spawn(lane.sync_all(news, until)));
    let (mut lanes, mut all) = (Vec::new(), Samples::default());
    for lane in running.collect::<Vec<_>>() {
        let (lane, millis) = lane.await??;
        lanes.push(lane);
        all.append(millis);
    }
    Ok((lanes, all))
}

/// One connection and the agents that share it.
struct Lane {
    stream: BufReader<TcpStream>,
    agents: Vec<Agent>,
    next: usize,
}

impl Lane {
    async fn new(address: &str, lane: u32) -> Outcome<Self> {
        let mine = (0..JOBS * REPLICAS).filter(|number| number % CONNECTIONS == lane);
        let agents = mine.map(Agent::new).collect::<Outcome<Vec<_>>>()?;
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), agents, next: 0 })
    }

    async fn sync_all(
        mut self,
        news: News,
        until: Option<Instant>,
    ) -> Result<(Self, Samples), std::io::Error> {
        let mut millis = Samples::default();
        let mut left = self.agents.len();
        while until.map_or(left > 0, |until| Instant::now() < until) {
            left = left.saturating_sub(1);
            let (place, count) = (self.next, self.agents.len());
            self.next = (place + 1) % count;
            let agent = &mut self.agents[place];
            let news = news(agent);
            let request = agent.request(0, news).map_err(std::io::Error::other)?;
            let begin = Instant::now();
            self.stream.write_all(&request).await?;
            agent.seen = answer(&mut self.stream).await?.version;
            millis.push(begin.elapsed().as_secs_f64() * 1e3);
        }
        Ok((self, millis))
    }
}

/// Reads one answer of the server.
async fn answer(stream: &mut BufReader<TcpStream>) -> Result<SyncReply, std::io::Error> {
    let (mut length, mut is_ok) = (0, false);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        is_ok |= line.starts_with("HTTP/1.1 200");
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().map_err(std::io::Error::other)?;
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    if !is_ok {
        return Err(std::io::Error::other(String::from_utf8_lossy(&body).into_owned()));
    }
    serde_json::from_slice(&body).map_err(std::io::Error::other)
}

/// The agent of one replica.
struct Agent {
    request: SyncRequest,
    token: String,
    sequence: u64,
    steps: u64,
    seen: u64,
}

impl Agent {
    fn new(number: u32) -> Outcome<Self> {
        let (task_id, replica) = (task_id(&job_id(number / REPLICAS)?), replica(number % REPLICAS));
        let token = tokens().of(&task_id, &replica);
        let request = SyncRequest {
            task_id,
            replica,
            agent_id: format!("agent-{number}"),
            sent_at: SystemClock.now(),
            seen: 0,
            address: "127.0.0.1".to_owned(),
            offer: Some(PortOffer { launch: 0, port: 29_500 }),
            current: None,
            reports: Vec::new(),
        };
        Ok(Self { request, token, sequence: 0, steps: 0, seen: 0 })
    }

    /// It has made one more step.
    fn step(&mut self) -> Option<ReportBody> {
        self.steps += 1;
        let (step, at) = (self.steps, SystemClock.now());
        let point = Point { step, at, loss: Some(0.5), samples: None, total: Some(1_000_000) };
        Some(ReportBody::Progress { points: vec![point] })
    }

    /// A whole request over HTTP.
    fn request(&mut self, seen: u64, news: Option<ReportBody>) -> Result<Vec<u8>, serde_json::Error> {
        self.request.seen = seen;
        self.request.sent_at = SystemClock.now();
        self.request.reports.clear();
        if let Some(body) = news {
            self.sequence += 1;
            self.request.reports.push(Report {
                sequence: self.sequence,
                at: SystemClock.now(),
                launch: 0,
                body,
            });
        }
        let body = serde_json::to_string(&self.request)?;
        let (token, length) = (&self.token, body.len());
        let (task, replica) = (&self.request.task_id, &self.request.replica);
        let head = format!(
            "POST /agent/v1/sync HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
             {}: {task}\r\n{}: {replica}\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n",
            headers::TASK,
            headers::REPLICA,
        );
        Ok((head + &body).into_bytes())
    }
}
