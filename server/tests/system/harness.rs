//! Starts a server in a directory of its own and talks to it; leaves no process behind.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

/// How long a level may take to be reached; generous, as the machine may be busy with other tests.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// A server with its data directory.
pub struct World {
    pub dir: tempfile::TempDir,
    client: reqwest::Client,
    server: Option<Child>,
    base: String,
    options: Vec<String>,
    /// Where the next server writes its log.
    pub log: PathBuf,
}

/// The repository, where `examples/` is.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The Python that has PyTorch, as the set-up of tests found it.
pub fn python() -> String {
    std::env::var("HOLDFAST_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

/// What requests are made with. Its TLS is the process's, which has to be there though nothing here uses it.
fn http_client() -> reqwest::Client {
    // Another test of this process may have been first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

impl World {
    /// A running server with 4 nodes of 2 slots.
    pub async fn start() -> Self {
        Self::with(&[]).await
    }

    /// A running server with further options.
    pub async fn with(options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut world = Self {
            log: dir.path().join("server.log"),
            dir,
            client: http_client(),
            server: None,
            base: String::new(),
            options: options.iter().map(|text| (*text).to_owned()).collect(),
        };
        world.restart(&[]).await;
        world
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// The command that serves this world's data.
    pub fn command(&self) -> Command {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_holdfast"));
        let agent = program.with_file_name("holdfast-agent");
        assert!(agent.exists(), "{} is missing: run `cargo build --workspace --bins` first", agent.display());
        let mut command = Command::new(&program);
        command
            .args(["serve", "--listen", "127.0.0.1:0"])
            .arg("--addr-file")
            .arg(self.dir.path().join("addr"))
            .arg("--data")
            .arg(self.data())
            .arg("--agent-program")
            .arg(&agent)
            .args(&self.options)
            .current_dir(repository())
            .stdin(Stdio::null());
        command
    }

    /// Starts the server (again) and waits until it serves; `env` is for failpoints.
    pub async fn restart(&mut self, env: &[(&str, &str)]) {
        self.kill();
        let addr = self.dir.path().join("addr");
        let _ = fs::remove_file(&addr);
        let log = fs::OpenOptions::new().create(true).append(true).open(&self.log).unwrap();
        let child = self
            .command()
            .envs(env.iter().copied())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.server = Some(child);
        let begin = Instant::now();
        loop {
            if let Ok(text) = fs::read_to_string(&addr)
                && !text.trim().is_empty()
            {
                self.base = format!("http://{}", text.trim());
                return;
            }
            if let Some(status) = self.server.as_mut().unwrap().try_wait().unwrap() {
                // A failpoint may already have been reached.
                if !env.is_empty() {
                    return;
                }
                panic!("the server ended with {status}:\n{}", self.server_log());
            }
            assert!(begin.elapsed() < PATIENCE, "the server does not serve:\n{}", self.server_log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Ends the server with SIGKILL; its replicas go on.
    pub fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    /// Whether the server still runs.
    pub fn is_up(&mut self) -> bool {
        self.server.as_mut().is_some_and(|server| server.try_wait().unwrap().is_none())
    }

    pub fn server_log(&self) -> String {
        fs::read_to_string(self.dir.path().join("server.log")).unwrap_or_default()
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        self.send(self.client.get(format!("{}{path}", self.base))).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send(self.client.post(format!("{}{path}", self.base)).json(body)).await
    }

    pub async fn delete(&self, path: &str) -> (u16, Value) {
        self.send(self.client.delete(format!("{}{path}", self.base))).await
    }

    pub async fn send(&self, request: reqwest::RequestBuilder) -> (u16, Value) {
        let answer = request.timeout(Duration::from_secs(60)).send().await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// A request to the server by path, for what the helpers above do not cover.
    pub fn request(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("{}{path}", self.base))
    }

    /// Creates a job and gives its id.
    pub async fn create(&self, body: &Value) -> String {
        let (status, answer) = self.post("/api/v1/jobs", body).await;
        assert_eq!(status, 201, "{answer}");
        answer["job_id"].as_str().unwrap().to_owned()
    }

    pub async fn chain(&self, job: &str) -> Value {
        let (status, chain) = self.get(&format!("/api/v1/jobs/{job}/chain")).await;
        assert_eq!(status, 200, "{chain}");
        chain
    }

    /// Waits until the chain of a job looks as wanted.
    pub async fn until(&self, job: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begin = Instant::now();
        loop {
            let chain = self.chain(job).await;
            if wanted(&chain) {
                return chain;
            }
            assert!(
                begin.elapsed() < PATIENCE,
                "job {job} is not {what}:\n{}\n{}",
                serde_json::to_string_pretty(&chain).unwrap(),
                self.server_log()
            );
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    /// Waits until a job is in a state.
    pub async fn until_state(&self, job: &str, state: &str) -> Value {
        self.until(job, state, |chain| chain["state"] == state).await
    }

    /// Waits until the newest attempt has made `step`.
    pub async fn until_step(&self, job: &str, step: u64) -> Value {
        self.until(job, &format!("at step {step}"), |chain| last_step(chain).is_some_and(|last| last >= step))
            .await
    }

    /// Waits until a job is forgotten.
    pub async fn until_gone(&self, job: &str) {
        let begin = Instant::now();
        while self.get(&format!("/api/v1/jobs/{job}")).await.0 != 404 {
            assert!(begin.elapsed() < PATIENCE, "job {job} is still there:\n{}", self.server_log());
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    /// Processes that belong to an attempt of this world, found by their environment.
    pub fn processes(&self) -> Vec<(i32, String)> {
        let data = self.data();
        let data = data.to_string_lossy();
        let entries = fs::read_dir("/proc").unwrap().flatten();
        entries
            .filter_map(|entry| {
                let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
                let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
                let text = String::from_utf8_lossy(&environ).into_owned();
                let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
                let dead = stat.rsplit(')').next()?.trim_start().starts_with('Z');
                let ours = text.contains("HOLDFAST_TASK_ID=") && text.contains(data.as_ref());
                (ours && !dead).then_some((pid, text))
            })
            .collect()
    }

    /// The training process of a rank.
    pub async fn pid_of_rank(&self, rank: u32) -> i32 {
        let wanted = format!("RANK={rank}");
        let begin = Instant::now();
        loop {
            let found =
                self.processes().into_iter().find(|(_, env)| env.split('\0').any(|entry| entry == wanted));
            if let Some((pid, _)) = found {
                return pid;
            }
            assert!(begin.elapsed() < PATIENCE, "no process of rank {rank}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until no process of any attempt is left.
    pub async fn until_no_process(&self) {
        let begin = Instant::now();
        while let Some((pid, env)) = self.processes().first() {
            assert!(begin.elapsed() < PATIENCE, "process {pid} is left: {env}");
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.kill();
        for (pid, _) in self.processes() {
            let _ =
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
        }
    }
}

/// The body of a job that runs `examples/train.py`; it saves every 10 steps.
pub fn train(name: &str, steps: u32, step_seconds: f64, env: &[(&str, &str)]) -> Value {
    let env: serde_json::Map<_, _> =
        env.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    json!({
        "name": name, "kind": "pytorchjob", "cluster": "local",
        "command": ["python3", "examples/train.py", "--steps", steps.to_string(), "--save-every", "10",
                    "--step-seconds", step_seconds.to_string()],
        "env": env, "replicas": 2, "checkpoint_dir": format!("checkpoints/{name}"),
        "fault_tolerance": advanced(2),
    })
}

/// Advanced mode with so many task restarts.
pub fn advanced(max_task_restarts: u32) -> Value {
    json!({"auto_failover": true, "max_task_restarts": max_task_restarts, "policy": {"enabled": true}})
}

/// Basic mode with so many task restarts.
pub fn basic(max_task_restarts: u32) -> Value {
    json!({"auto_failover": true, "max_task_restarts": max_task_restarts})
}

pub fn attempts(chain: &Value) -> &Vec<Value> {
    chain["attempts"].as_array().unwrap()
}

/// All launches of an attempt.
pub fn launches(attempt: &Value) -> &Vec<Value> {
    attempt["launches"].as_array().unwrap()
}

/// The last step of the newest launch that made one.
pub fn last_step(chain: &Value) -> Option<u64> {
    attempts(chain).last()?["launches"].as_array()?.last()?["steps"]["last"].as_u64()
}

/// What holds of every chain at every moment (design.md §5).
pub fn assert_invariants(chain: &Value) {
    let attempts = attempts(chain);
    let live = attempts
        .iter()
        .filter(|attempt| !["succeeded", "failed", "stopped"].contains(&attempt["state"].as_str().unwrap()));
    assert!(live.count() <= 1, "two live attempts: {chain}");
    let charged = attempts.iter().filter(|attempt| attempt["cause"] == "failure").count() as u64;
    let restarts = &chain["budgets"]["task_restarts"];
    assert_eq!(
        restarts["used"].as_u64().unwrap(),
        charged,
        "task restarts are not the attempts they paid for: {chain}"
    );
    assert!(restarts["used"].as_u64() <= restarts["allowed"].as_u64());
    for (index, attempt) in attempts.iter().enumerate() {
        assert_eq!(
            attempt["number"].as_u64().unwrap(),
            index as u64 + 1,
            "an attempt is lost or doubled: {chain}"
        );
        assert_eq!(attempt["cause"] == "initial", index == 0);
        let numbers: Vec<_> =
            launches(attempt).iter().map(|launch| launch["number"].as_u64().unwrap()).collect();
        assert_eq!(
            numbers,
            (0..numbers.len() as u64).collect::<Vec<_>>(),
            "a launch is lost or doubled: {chain}"
        );
        let in_place =
            attempt["in_place_restarts"].as_u64().unwrap() + attempt["hang_restarts"].as_u64().unwrap();
        assert!(in_place >= (numbers.len() as u64).saturating_sub(1), "a restart was not charged: {chain}");
    }
}
