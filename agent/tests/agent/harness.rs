//! A server that plays the desired state and collects reports, and the agent as a process.

use std::{
    ffi::OsStr,
    fs,
    future::Future,
    net::SocketAddr,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use engine::{
    failure::Exit,
    sync::{self, Desired, Launch, PortOffer, Report, ReportBody, SyncReply, SyncRequest, limits},
    time::Time,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rustls::ServerConfig;
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use crate::tls::TlsListener;

/// Every wait of a test ends here.
pub const DEADLINE: Duration = Duration::from_secs(40);
pub const TOKEN: &str = "token-of-master-0";

/// Waits for a level.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < end, "{what}: not within {DEADLINE:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What the server knows.
pub struct Knowledge {
    pub desired: Desired,
    version: u64,
    pub reports: Vec<Report>,
    pub acknowledged: u64,
    pub offer: Option<PortOffer>,
    pub current: Option<PortOffer>,
    /// Requests with reports that are still to be taken without an answer.
    pub lose_answers: u32,
    /// Refuse reports that carry evidence.
    pub refuse_evidence: bool,
    pub answered: u64,
    pub rejected: u64,
    pub gone: bool,
    /// The clock that answers tell.
    pub now: Option<Time>,
}

type Shared = Arc<watch::Sender<Knowledge>>;

/// The server; it may go away and come back on another port with all it knows.
pub struct Server {
    known: Shared,
    address_file: PathBuf,
    tls: Option<Arc<ServerConfig>>,
    serving: Mutex<Option<JoinHandle<()>>>,
    dir: TempDir,
}

impl Server {
    pub async fn start() -> Self {
        Self::start_with(None).await
    }

    /// A server with TLS, where it is told how.
    pub async fn start_with(tls: Option<Arc<ServerConfig>>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let known = watch::Sender::new(Knowledge {
            desired: Desired::Wait,
            version: 1,
            reports: Vec::new(),
            acknowledged: 0,
            offer: None,
            current: None,
            lose_answers: 0,
            refuse_evidence: false,
            answered: 0,
            rejected: 0,
            gone: false,
            now: None,
        });
        let address_file = dir.path().join("address");
        let server = Self { known: Arc::new(known), address_file, tls, serving: Mutex::new(None), dir };
        server.come_back().await;
        server
    }

    pub async fn come_back(&self) {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        fs::write(&self.address_file, format!("{scheme}://{}\n", listener.local_addr().unwrap())).unwrap();
        let router = Router::new().route("/agent/v1/sync", post(answer)).with_state(Arc::clone(&self.known));
        let serving = match self.tls.clone() {
            Some(tls) => {
                tokio::spawn(async { axum::serve(TlsListener::new(listener, tls), router).await.unwrap() })
            }
            None => tokio::spawn(async { axum::serve(listener, router).await.unwrap() }),
        };
        *self.serving.lock().unwrap() = Some(serving);
    }

    /// Nobody listens any more; connections that are open break.
    pub fn go_away(&self) {
        self.serving.lock().unwrap().take().unwrap().abort();
        // Requests that are held live in tasks of their own: answer them, as a dying server breaks them.
        self.change(|known| known.version += 1);
    }

    pub fn change(&self, change: impl FnOnce(&mut Knowledge)) {
        self.known.send_modify(change);
    }

    pub fn want(&self, desired: Desired) {
        self.change(|known| {
            known.desired = desired;
            known.version += 1;
        });
    }

    /// Waits until what is known gives an answer.
    pub async fn wait<T>(&self, what: &str, mut answer: impl FnMut(&Knowledge) -> Option<T>) -> T {
        let mut found = None;
        let mut known = self.known.subscribe();
        let wait = known.wait_for(|known| {
            found = answer(known);
            found.is_some()
        });
        let is_there = tokio::time::timeout(DEADLINE, wait).await.is_ok();
        assert!(is_there, "{what}: not within {DEADLINE:?}; reports: {:#?}", self.known.borrow().reports);
        found.unwrap()
    }

    /// Waits for a report of this launch.
    pub async fn report<T>(
        &self,
        launch: u32,
        what: &str,
        mut answer: impl FnMut(&ReportBody) -> Option<T>,
    ) -> T {
        let find = |known: &Knowledge| {
            known.reports.iter().filter(|r| r.launch == launch).find_map(|r| answer(&r.body))
        };
        self.wait(what, find).await
    }

    pub async fn started(&self, launch: u32) {
        self.report(launch, "Started", |body| (*body == ReportBody::Started).then_some(())).await;
    }

    pub async fn stopped(&self, launch: u32) {
        self.report(launch, "Stopped", |body| (*body == ReportBody::Stopped).then_some(())).await;
    }

    /// How a rank ended, and whether it had been asked to.
    pub async fn exited(&self, launch: u32, wanted: u32) -> (Exit, bool) {
        self.report(launch, "Exited", |body| match body {
            ReportBody::Exited { rank, exit, asked, .. } if *rank == wanted => Some((*exit, *asked)),
            _ => None,
        })
        .await
    }

    /// Orders a launch of one process, at the port that the agent offered for it.
    pub async fn run(&self, number: u32) -> Launch {
        self.run_with(number, |_| {}).await
    }

    pub async fn run_with(&self, number: u32, change: impl FnOnce(&mut Launch)) -> Launch {
        let offer = self.wait("an offer", |k| k.offer.filter(|offer| offer.launch == number)).await;
        let mut launch = Launch {
            number,
            master_addr: "127.0.0.1".to_owned(),
            master_port: offer.port,
            world_size: 1,
            first_rank: 0,
            local_world_size: 1,
            stop_grace_seconds: 20,
            exit: None,
            checks: None,
            watch: None,
            exit_test: None,
        };
        change(&mut launch);
        self.want(Desired::Run { launch: launch.clone() });
        launch
    }

    pub fn reports(&self) -> Vec<Report> {
        self.known.borrow().reports.clone()
    }

    /// An agent with a program of bash.
    pub fn bash(&self, script: &str) -> Agent {
        self.agent(&["bash", "-c", script], |_| {})
    }

    pub fn agent(&self, program: &[&str], change: impl FnOnce(&mut Command)) -> Agent {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast-agent"));
        self.configure(&mut command, program);
        change(&mut command);
        Agent::spawn(command, self.log_dir())
    }

    /// Arguments and environment of an agent.
    pub fn configure(&self, command: &mut Command, program: &[&str]) {
        command.args(["run", "--task-id", "demo-jabcdefghij2-1", "--replica", "master-0"]);
        command.arg("--server-file").arg(&self.address_file);
        command.arg("--state-dir").arg(self.dir.path().join("state"));
        command.arg("--log-dir").arg(self.log_dir());
        command.arg("--").args(program);
        command.env("HOLDFAST_AGENT_TOKEN", TOKEN).env("DIR", self.dir.path());
    }

    /// A directory for the test, which the program sees as `$DIR`.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn log_dir(&self) -> PathBuf {
        self.dir.path().join("logs")
    }

    /// Waits until the program has written this file.
    pub async fn file(&self, name: &str) -> String {
        let path = self.dir.path().join(name);
        eventually(name, || fs::read_to_string(&path).is_ok_and(|text| text.ends_with('\n'))).await;
        fs::read_to_string(path).unwrap()
    }
}

async fn answer(
    State(known): State<Shared>,
    headers: HeaderMap,
    Json(request): Json<SyncRequest>,
) -> Response {
    let is =
        |name: &str, want: &str| headers.get(name).is_some_and(|value| value.as_bytes() == want.as_bytes());
    let authorised = is("authorization", &format!("Bearer {TOKEN}"))
        && is(sync::headers::TASK, request.task_id.as_str())
        && is(sync::headers::REPLICA, request.replica.as_str());
    if !authorised {
        known.send_modify(|k| k.rejected += 1);
        return StatusCode::UNAUTHORIZED.into_response();
    }
    if known.borrow().gone {
        return StatusCode::GONE.into_response();
    }
    let has_evidence =
        |report: &Report| matches!(&report.body, ReportBody::Exited { evidence, .. } if !evidence.is_empty());
    if known.borrow().refuse_evidence && request.reports.iter().any(has_evidence) {
        return StatusCode::UNPROCESSABLE_ENTITY.into_response();
    }
    let mut lost = false;
    known.send_modify(|k| {
        k.offer = request.offer;
        k.current = request.current;
        for report in &request.reports {
            if report.sequence > k.acknowledged {
                assert_eq!(report.sequence, k.acknowledged + 1, "a gap in the numbers");
                k.acknowledged = report.sequence;
                k.reports.push(report.clone());
            }
        }
        if !request.reports.is_empty() && k.lose_answers > 0 {
            k.lose_answers -= 1;
            lost = true;
        }
    });
    if lost {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let mut changes = known.subscribe();
    let held = changes.wait_for(|k| k.version != request.seen || k.gone);
    let _ = tokio::time::timeout(Duration::from_secs(limits::POLL_SECONDS), held).await;
    let reply = {
        let k = known.borrow();
        let now = k.now;
        SyncReply { acknowledged: k.acknowledged, version: k.version, desired: k.desired.clone(), now }
    };
    known.send_modify(|k| k.answered += 1);
    Json(reply).into_response()
}

/// The agent as a process; killed when the test is over.
pub struct Agent {
    child: Child,
    logs: PathBuf,
    stderr: PathBuf,
}

impl Agent {
    pub fn spawn(mut command: Command, logs: PathBuf) -> Self {
        let stderr = logs.with_file_name(format!("agent-{}.err", Instant::now().elapsed().as_nanos()));
        let file = fs::OpenOptions::new().create(true).append(true).open(&stderr).unwrap();
        command.stderr(file);
        if command.get_envs().all(|(name, _)| name != OsStr::new("KEEP_STDOUT")) {
            command.stdout(Stdio::null());
        } else {
            command.stdout(fs::File::create(logs.with_file_name("agent.out")).unwrap());
        }
        Self { child: command.spawn().unwrap(), logs, stderr }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// Waits for its end: the code as a shell shows it.
    pub async fn exit(&mut self) -> i32 {
        let mut status: Option<ExitStatus> = None;
        eventually("the agent's end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        })
        .await;
        let status = status.unwrap();
        status.code().unwrap_or_else(|| 128 + status.signal().unwrap())
    }

    /// What it logged.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap()
    }

    /// Highest memory use, bytes.
    pub fn peak_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    /// The texts of a launch's log without heads, first file.
    pub fn log(&self, launch: u32) -> Vec<String> {
        let bytes = fs::read(self.logs.join(format!("launch-{launch}.log"))).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        text.lines().map(|line| line.splitn(4, ' ').nth(3).unwrap_or_default().to_owned()).collect()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            std::io::Write::write_all(&mut std::io::stderr(), self.said().as_bytes()).unwrap_or_default();
        }
    }
}

/// Whether a process lives; a zombie does not.
pub fn lives(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(") ").unwrap().1.starts_with(['Z', 'X']))
}

/// What tests run on.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Runs a test with a server.
pub fn with_server<F: Future<Output = ()>>(test: impl FnOnce(Server) -> F) {
    runtime().block_on(async { test(Server::start().await).await });
}
