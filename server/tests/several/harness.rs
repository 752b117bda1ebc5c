//! Two servers on one database, before one API server and behind one address.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use sqlx::{AnyConnection, Connection, Row};

use crate::{address::Address, api_server::ApiServer, pods::Pods};

/// How long a level may take to be reached; generous, as the machine may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(90);

/// What requests are made with. Its TLS is the process's, which has to be there though nothing here uses it.
fn http_client() -> reqwest::Client {
    // Another test of this process may have been first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

/// Waits for a level.
pub async fn until<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The servers and what is around them.
pub struct World {
    pub dir: tempfile::TempDir,
    pub api: ApiServer,
    address: Address,
    pods: Pods,
    database: String,
}

impl World {
    pub async fn new(database: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pods = Pods::new(dir.path().join("pods"));
        let api = ApiServer::start(pods.clone()).await;
        Self { api, address: Address::open().await, pods, database: database.to_owned(), dir }
    }

    /// Starts two servers at once and says which of them leads: it comes first.
    pub async fn serve(&self) -> [Server; 2] {
        let servers = ["first", "second"].map(|name| self.start(name));
        for server in &servers {
            until("it serves", async || server.is_ready().await.then_some(())).await;
        }
        self.address.set(servers.iter().map(Server::address));
        let leader = self.leader().await;
        let [first, second] = servers;
        if first.pid() == leader { [first, second] } else { [second, first] }
    }

    /// Ends a server and starts it anew, with what it kept.
    pub async fn restart(&self, server: Server) -> Server {
        let name = server.name;
        drop(server);
        let server = self.start(name);
        until("it serves", async || server.is_ready().await.then_some(())).await;
        server
    }

    /// Where a server keeps its copy of a job's logs.
    pub fn copy(&self, server: &Server, job: &str) -> PathBuf {
        self.dir.path().join(format!("{}.data", server.name)).join("jobs").join(job)
    }

    fn start(&self, name: &'static str) -> Server {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_holdfast"));
        let agent = program.with_file_name("holdfast-agent");
        assert!(agent.exists(), "{} is missing: run `cargo build --workspace --bins` first", agent.display());
        let file = |what: &str| self.dir.path().join(format!("{name}.{what}"));
        // JSON is YAML.
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": self.api.url } }],
            "users": [{ "name": name, "user": { "token": name } }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": name } }],
        });
        fs::write(file("kubeconfig"), config.to_string()).unwrap();
        let log = fs::File::create(file("log")).unwrap();
        let child = Command::new(program)
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--cluster",
                "kubernetes",
                "--database",
                &self.database,
            ])
            .arg("--data")
            .arg(file("data"))
            .arg("--addr-file")
            .arg(file("addr"))
            .arg("--kubeconfig")
            .arg(file("kubeconfig"))
            .arg("--agent-in-image")
            .arg(&agent)
            .args(["--agent-server-url", &self.address.url])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let (addr, log) = (file("addr"), file("log"));
        Server { name, child, addr, log, client: http_client() }
    }

    /// The process that took the lead last.
    async fn leader(&self) -> u32 {
        let mut database = AnyConnection::connect(&self.database).await.unwrap();
        let row =
            sqlx::query("SELECT holder FROM leader WHERE id = 1").fetch_one(&mut database).await.unwrap();
        let holder: String = row.get("holder");
        holder.trim_start_matches("process ").parse().unwrap_or_default()
    }

    pub async fn until_led_by(&self, server: &Server) {
        until("it leads", async || (self.leader().await == server.pid()).then_some(())).await;
    }

    /// A job whose program notes its process and goes on for ever.
    pub fn job(&self, name: &str) -> Value {
        let file = self.pid_file(name);
        let script = format!("echo $$ >{0}.new; mv {0}.new {0}; exec sleep 1000", file.display());
        json!({
            "name": name, "kind": "pytorchjob", "cluster": "kubernetes", "image": "registry.example/train:1",
            "command": ["bash", "-c", script], "replicas": 1,
            "fault_tolerance": { "auto_failover": true, "max_task_restarts": 2, "policy": { "enabled": true } },
        })
    }

    fn pid_file(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.pid"))
    }

    /// The process of a job's program.
    pub fn pid(&self, name: &str) -> i32 {
        fs::read_to_string(self.pid_file(name)).unwrap().trim().parse().unwrap()
    }

    /// When the object of a job's first attempt was made.
    pub async fn made_at(&self, server: &Server, job: &str) -> Instant {
        until("its attempt is made", async || {
            let chain = server.chain(job).await;
            self.api.made_at(chain["attempts"][0]["task_id"].as_str()?)
        })
        .await
    }

    /// Nothing was made twice, whoever made it.
    pub fn assert_made_once(&self) {
        let mut made: Vec<_> = self
            .api
            .changes()
            .into_iter()
            .map(|change| change.what)
            .filter(|what| what.starts_with("POST"))
            .collect();
        made.sort();
        let all = made.len();
        made.dedup();
        assert_eq!(made.len(), all, "{:#?}", self.api.changes());
    }

    /// Stops jobs and waits until the cluster has nothing of them any more.
    pub async fn stop(&self, server: &Server, jobs: &[&str]) {
        for job in jobs {
            let (status, answer) = server.post(&format!("/api/v1/jobs/{job}/stop"), &json!({})).await;
            assert!(status < 300, "{status} {answer}");
        }
        until("nothing is left of them", async || {
            let left = ["pytorchjobs", "pods", "secrets"].map(|kind| self.api.names(kind)).concat();
            (!left.iter().any(|name| jobs.iter().any(|job| name.contains(job)))).then_some(())
        })
        .await;
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for name in ["first", "second"] {
                let log = fs::read_to_string(self.dir.path().join(format!("{name}.log"))).unwrap_or_default();
                eprintln!("--- {name}\n{log}");
            }
            eprintln!("--- agents\n{}\n--- changes\n{:#?}", self.pods.said(), self.api.changes());
        }
    }
}

/// A server; it ends with the test.
pub struct Server {
    pub name: &'static str,
    child: Child,
    addr: PathBuf,
    log: PathBuf,
    client: reqwest::Client,
}

impl Server {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid() as i32), signal).unwrap();
    }

    fn address(&self) -> SocketAddr {
        read(&self.addr).trim().parse().unwrap()
    }

    pub fn log(&self) -> String {
        read(&self.log)
    }

    async fn is_ready(&self) -> bool {
        if read(&self.addr).trim().is_empty() {
            return false;
        }
        let answer = self.client.get(format!("http://{}/readyz", self.address())).send().await;
        answer.is_ok_and(|answer| answer.status().is_success())
    }

    pub async fn send(&self, request: reqwest::RequestBuilder) -> (u16, Value) {
        let answer = request.timeout(PATIENCE).send().await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// A request to post to this server.
    pub fn request(&self, path: &str, body: &Value) -> reqwest::RequestBuilder {
        self.client.post(format!("http://{}{path}", self.address())).json(body)
    }

    pub async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send(self.request(path, body)).await
    }

    /// Deletes a job and waits until it is forgotten.
    pub async fn delete(&self, job: &str) {
        let url = format!("http://{}/api/v1/jobs/{job}", self.address());
        let (status, answer) = self.send(self.client.delete(&url)).await;
        assert!(status < 300, "{status} {answer}");
        until("it is forgotten", async || (self.send(self.client.get(&url)).await.0 == 404).then_some(()))
            .await;
    }

    /// Creates a job and gives its id.
    pub async fn create(&self, body: &Value) -> String {
        let (status, answer) = self.post("/api/v1/jobs", body).await;
        assert_eq!(status, 201, "{answer}");
        answer["job_id"].as_str().unwrap().to_owned()
    }

    pub async fn chain(&self, job: &str) -> Value {
        let url = format!("http://{}/api/v1/jobs/{job}/chain", self.address());
        let (status, chain) = self.send(self.client.get(url)).await;
        assert_eq!(status, 200, "{chain}");
        chain
    }

    /// Waits until the chain of a job looks as wanted.
    pub async fn until(&self, job: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        until(what, async || Some(self.chain(job).await).filter(|chain| wanted(chain))).await
    }

    /// Waits until the program of this launch of a job's first attempt runs.
    pub async fn until_launch(&self, job: &str, number: usize) -> Value {
        let is_there = |chain: &Value| !chain["attempts"][0]["launches"][number].is_null();
        self.until(job, "it runs", |chain| chain["state"] == "running" && is_there(chain)).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
