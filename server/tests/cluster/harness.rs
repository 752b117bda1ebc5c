//! A server beside the test cluster, with a namespace of its own; leaves nothing behind.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

/// How long a level may take to be reached: pods start in seconds, and an image that cannot be pulled is given up after three minutes.
const PATIENCE: Duration = Duration::from_secs(300);

/// The server, its namespace and its data directory.
pub struct World {
    dir: tempfile::TempDir,
    namespace: String,
    /// A folder that pods on both nodes see under the same path.
    pub shared: PathBuf,
    client: reqwest::Client,
    token: String,
    server: Option<Child>,
    base: String,
    /// Variables of the next server that is started.
    pub env: Vec<(&'static str, String)>,
}

/// What requests are made with. Its TLS is the process's, which has to be there though nothing here uses it.
fn http_client() -> reqwest::Client {
    // Another test of this process may have been first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

impl World {
    /// None where there is no test cluster.
    pub async fn start(name: &str) -> Option<Self> {
        let Ok(cluster) = std::env::var("HOLDFAST_TEST_CLUSTER") else {
            eprintln!("{name}: not run, there is no test cluster here (make test-cluster)");
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        let namespace = format!("test-{name}");
        let shared = PathBuf::from(cluster).join("shared").join(name);
        // An earlier run on the same cluster left its checkpoints there.
        let _ = fs::remove_dir_all(&shared);
        fs::create_dir_all(&shared).unwrap();
        let examples = PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("examples");
        for file in ["train.py", "failing.py", "peers.py"] {
            if examples.join(file).exists() {
                fs::copy(examples.join(file), shared.join(file)).unwrap();
            }
        }
        let mut world = Self {
            dir,
            namespace,
            shared,
            client: http_client(),
            token: String::new(),
            server: None,
            base: String::new(),
            env: Vec::new(),
        };
        world.kubectl(&["create", "namespace", &world.namespace.clone()]);
        world.take_rights();
        world.token = world.make_token();
        world.serve().await;
        Some(world)
    }

    fn holdfast(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.env("HOLDFAST_DATA", self.dir.path().join("data")).stdin(Stdio::null());
        command
    }

    fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    /// The server has the rights that the chart gives it, and no more.
    fn take_rights(&self) {
        let script =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("end2end/cluster/rights");
        let output = Command::new(script).arg(&self.namespace).arg(self.kubeconfig()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn make_token(&self) -> String {
        assert!(self.holdfast().args(["user", "add", "tester"]).output().unwrap().status.success());
        let token = self.holdfast().args(["token", "create", "--user", "tester"]).output().unwrap();
        assert!(token.status.success());
        String::from_utf8(token.stdout).unwrap().trim().to_owned()
    }

    /// Starts the server where pods reach it, always at the same address.
    pub async fn serve(&mut self) {
        let address = std::env::var("HOLDFAST_TEST_CLUSTER_IP").unwrap();
        if self.base.is_empty() {
            // Agents are told the port before it is served, so it has to be known.
            let listener = std::net::TcpListener::bind((address.as_str(), 0)).unwrap();
            self.base = format!("http://{}", listener.local_addr().unwrap());
        }
        let log =
            fs::File::options().create(true).append(true).open(self.dir.path().join("server.log")).unwrap();
        let child = self
            .holdfast()
            .args(["serve", "--cluster", "kubernetes", "--agent-image", "localhost/holdfast-agent:1"])
            .args(["--kube-namespace", &self.namespace, "--kube-allow-host-paths"])
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .args(["--listen", self.base.trim_start_matches("http://"), "--agent-server-url", &self.base])
            .envs(self.env.drain(..))
            .stderr(log)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        self.server = Some(child);
        let begin = Instant::now();
        while self.client.get(format!("{}/healthz", self.base)).send().await.is_err() {
            if !self.is_up() {
                return; // it died at a failpoint, which is what the test wants to see
            }
            assert!(begin.elapsed() < PATIENCE, "it does not serve:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Whether the server lives.
    pub fn is_up(&mut self) -> bool {
        self.server.as_mut().is_some_and(|server| server.try_wait().unwrap().is_none())
    }

    /// Waits until the server has died by itself.
    pub async fn until_down(&mut self) {
        let begin = Instant::now();
        while self.is_up() {
            assert!(begin.elapsed() < PATIENCE, "it lives:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Ends the server without a warning.
    pub fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    /// Sends the server a signal by its name.
    pub fn signal(&self, name: &str) {
        let pid = self.server.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Does something to a part of the cluster: `end2end/cluster/component` says what there is.
    pub fn component(&self, args: &[&str]) {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../end2end/cluster/component");
        let output = Command::new(script).args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Waits until a node is ready, or until it is not.
    pub async fn until_node(&self, node: &str, ready: &str) {
        let path = r#"{.status.conditions[?(@.type=="Ready")].status}"#;
        self.until_answer(&["get", "node", node, "-o", &format!("jsonpath={path}")], |said| said == ready)
            .await;
    }

    /// Asks `kubectl` until the answer is as wanted.
    pub async fn until_answer(&self, args: &[&str], wanted: impl Fn(&str) -> bool) -> String {
        let begin = Instant::now();
        loop {
            let output = Command::new("kubectl").args(args).output().unwrap();
            let answer = String::from_utf8_lossy(&output.stdout).into_owned();
            if output.status.success() && wanted(&answer) {
                return answer;
            }
            assert!(begin.elapsed() < PATIENCE, "kubectl {args:?}: {answer}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Waits for a file in the folder that pods share.
    pub async fn until_file(&self, name: &str) {
        let begin = Instant::now();
        while !self.shared.join(name).exists() {
            assert!(begin.elapsed() < PATIENCE, "there is no {name}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Makes an object in this test's namespace.
    pub fn create(&self, object: &Value) {
        let file = self.dir.path().join("object.json");
        fs::write(&file, object.to_string()).unwrap();
        self.kubectl(&["-n", &self.namespace, "create", "-f", file.to_str().unwrap()]);
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("server.log")).unwrap_or_default()
    }

    /// What `kubectl` answers.
    pub fn kubectl(&self, args: &[&str]) -> String {
        let output = Command::new("kubectl").args(args).output().unwrap();
        assert!(output.status.success(), "kubectl {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same about this test's namespace.
    pub fn get(&self, what: &str, path: &str) -> String {
        self.kubectl(&["-n", &self.namespace, "get", what, "-o", &format!("jsonpath={path}")])
    }

    /// This test's namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    async fn answer(&self, request: reqwest::RequestBuilder) -> (u16, Value) {
        let answer = request.bearer_auth(&self.token).timeout(Duration::from_secs(30)).send().await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// Reads from the REST API.
    pub async fn read(&self, path: &str) -> Value {
        let (status, value) = self.answer(self.client.get(format!("{}/api/v1{path}", self.base))).await;
        assert_eq!(status, 200, "{path}: {value}");
        value
    }

    /// A page as the server draws it.
    pub async fn page(&self, path: &str) -> String {
        let (status, page) = self.answer(self.client.get(format!("{}{path}", self.base))).await;
        assert_eq!(status, 200, "{path}: {page}");
        page.as_str().unwrap_or_default().to_owned()
    }

    /// Posts to the REST API.
    pub async fn post(&self, path: &str, body: &Value) -> Value {
        let request = self.client.post(format!("{}/api/v1{path}", self.base)).json(body);
        let (status, value) = self.answer(request).await;
        assert!(status < 300, "{path}: {status} {value}");
        value
    }

    /// Creates a job that trains `examples/train.py` on two nodes; `changes` replaces whole fields.
    pub async fn train(&self, name: &str, steps: u32, env: &[(&str, &str)], changes: Value) -> String {
        let shared = self.shared.to_str().unwrap();
        let env: serde_json::Map<_, _> =
            env.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        let mut body = json!({
            "name": name,
            "image": "localhost/train:1",
            "command": ["python3", format!("{shared}/train.py"), "--steps", steps.to_string()],
            "env": env,
            "replicas": 2,
            "checkpoint_dir": format!("{shared}/checkpoints-{name}"),
            "kubernetes": { "volumes": [{ "mount_path": shared, "source": { "host_path": shared } }] },
            "fault_tolerance": { "auto_failover": true, "max_task_restarts": 2, "policy": { "enabled": true } },
        });
        for (field, value) in changes.as_object().into_iter().flatten() {
            body[field] = value.clone();
        }
        self.post("/jobs", &body).await["job_id"].as_str().unwrap().to_owned()
    }

    /// Waits until the chain of a job looks as wanted.
    pub async fn until(&self, job: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begin = Instant::now();
        loop {
            let chain = self.read(&format!("/jobs/{job}/chain")).await;
            if wanted(&chain) {
                return chain;
            }
            assert!(begin.elapsed() < PATIENCE, "not {what}: {chain:#}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until a job is in this state.
    pub async fn until_state(&self, job: &str, state: &str) -> Value {
        self.until(job, state, |chain| chain["state"] == state).await
    }

    /// Waits until nothing of any job is left in the namespace.
    pub async fn until_nothing_is_left(&self) {
        let begin = Instant::now();
        loop {
            let left = self
                .get("pytorchjobs,rayjobs,rayclusters,pods,services,secrets", "{.items[*].metadata.name}");
            if left.is_empty() {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "still there: {left}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.kill();
        // What a failed test left must not disturb the next; the cluster goes with the suite.
        let _ =
            Command::new("kubectl").args(["delete", "namespace", &self.namespace, "--wait=false"]).output();
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}
