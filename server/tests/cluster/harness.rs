//! A server beside the test cluster, with a namespace of its own; leaves nothing behind.

use std::{
    ffi::OsString,
    fs,
    net::{IpAddr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU16, Ordering},
    },
    time::{Duration, Instant},
};

use app::console::JobsQuery;
use serde_json::{Value, json};
use server::store::{Store, jobs};

use crate::jobs::last_step;

/// How long a level may take to be reached: pods start in seconds, and an image that cannot be pulled is given up after three minutes.
const PATIENCE: Duration = Duration::from_secs(300);
/// The first port of a server. Below those that the kernel gives to connections: a server that is started again needs its own free.
const FIRST_PORT: u16 = 20_000;

/// The server, its namespace and its data directory.
pub struct World {
    dir: tempfile::TempDir,
    namespace: String,
    /// A folder that pods on both nodes see under the same path.
    pub shared: PathBuf,
    client: reqwest::Client,
    token: String,
    server: Option<Child>,
    listen: SocketAddr,
    /// Where agents find it.
    agents: String,
    /// A database that it shares with another server; it has its own, if there is none.
    database: Option<String>,
    /// The namespace is another's.
    guest: bool,
    /// Variables of the next server that is started.
    pub env: Vec<(&'static str, String)>,
    /// `[[cluster]]` tables of the servers that are started from now on, instead of flags for one cluster.
    pub tables: Option<String>,
    /// What brings back the parts of the cluster that are down.
    returns: Mutex<Vec<[String; 2]>>,
}

/// What requests are made with. Its TLS is the process's, which has to be there though nothing here uses it.
pub fn http_client() -> reqwest::Client {
    // Another test of this process may have been first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

/// The addresses at which pods reach what runs beside the cluster.
fn addresses() -> Vec<IpAddr> {
    let addresses = std::env::var("HOLDFAST_TEST_CLUSTER_IPS").unwrap();
    addresses.split(' ').map(|address| address.parse().unwrap()).collect()
}

/// A port that is free at all of them.
fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(FIRST_PORT);
    let is_free = |port: &u16| addresses().iter().all(|address| TcpListener::bind((*address, *port)).is_ok());
    std::iter::repeat_with(|| NEXT.fetch_add(1, Ordering::Relaxed)).find(is_free).unwrap()
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../end2end/cluster").join(name)
}

impl World {
    /// None where there is no test cluster.
    pub async fn start(name: &str) -> Option<Self> {
        let mut world = Self::prepare(name, None)?;
        world.serve().await;
        Some(world)
    }

    /// Two servers on one database and behind one name. The first leads.
    pub async fn start_two(name: &str, database: &str) -> Option<[Self; 2]> {
        let mut first = Self::prepare(name, Some(database.to_owned()))?;
        let port = first.listen.port();
        let addresses = addresses();
        // The name has both addresses, as that of a Service with two ready pods has.
        let service = json!({ "name": "servers" });
        let ports = json!([{ "name": "http", "port": port }]);
        first.create(&json!({
            "apiVersion": "v1", "kind": "Service", "metadata": service, "spec": { "clusterIP": "None", "ports": ports },
        }));
        first.create(&json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "ports": ports,
            "metadata": { "name": "servers", "labels": { "kubernetes.io/service-name": "servers" } },
            "endpoints": [{ "addresses": addresses[..1] }, { "addresses": addresses[1..2] }],
        }));
        first.agents = format!("http://servers.{}.svc.cluster.local:{port}", first.namespace);
        first.serve().await;
        first.until_log("this server leads").await;
        let mut second = Self {
            dir: tempfile::tempdir().unwrap(),
            namespace: first.namespace.clone(),
            shared: first.shared.clone(),
            client: http_client(),
            token: first.token.clone(),
            server: None,
            listen: SocketAddr::new(addresses[1], port),
            agents: first.agents.clone(),
            database: first.database.clone(),
            guest: true,
            env: Vec::new(),
            tables: None,
            returns: Mutex::default(),
        };
        second.take_rights();
        second.serve().await;
        Some([first, second])
    }

    /// Has the name of two servers mean these: the kubelet takes a server that does not answer its probe out of the name.
    pub fn name_means(&self, ready: &[&Self]) {
        let endpoints: Vec<_> =
            ready.iter().map(|world| json!({ "addresses": [world.listen.ip()] })).collect();
        let patch = json!({ "endpoints": endpoints }).to_string();
        self.kubectl(&[
            "-n",
            &self.namespace,
            "patch",
            "endpointslice",
            "servers",
            "--type=merge",
            "-p",
            &patch,
        ]);
    }

    /// All but a server that serves.
    fn prepare(name: &str, database: Option<String>) -> Option<Self> {
        let Ok(cluster) = std::env::var("HOLDFAST_TEST_CLUSTER") else {
            eprintln!("{name}: not run, there is no test cluster here (make test-cluster)");
            return None;
        };
        let shared = PathBuf::from(cluster).join("shared").join(name);
        // An earlier run on the same cluster left its checkpoints there.
        let _ = fs::remove_dir_all(&shared);
        fs::create_dir_all(&shared).unwrap();
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
        for file in
            ["train.py", "exit_behaviours.py", "failing.py", "hangs.py", "holdfast_exit.py", "peers.py"]
        {
            fs::copy(examples.join(file), shared.join(file)).unwrap();
        }
        // Agents are told the port before it is served, so it has to be known.
        let listen = SocketAddr::new(addresses()[0], port());
        let mut world = Self {
            dir: tempfile::tempdir().unwrap(),
            namespace: format!("test-{name}"),
            shared,
            client: http_client(),
            token: String::new(),
            server: None,
            listen,
            agents: format!("http://{listen}"),
            database,
            guest: false,
            env: Vec::new(),
            tables: None,
            returns: Mutex::default(),
        };
        world.kubectl(&["create", "namespace", &world.namespace.clone()]);
        world.take_rights();
        world.token = world.make_token();
        Some(world)
    }

    fn holdfast(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.env("HOLDFAST_DATA", self.dir.path().join("data")).stdin(Stdio::null());
        if let Some(database) = &self.database {
            command.env("HOLDFAST_DATABASE", database);
        }
        command
    }

    fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    /// The server has the rights that the chart gives it, and no more.
    fn take_rights(&self) {
        let output =
            Command::new(script("rights")).arg(&self.namespace).arg(self.kubeconfig()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// A table for the test cluster under this name.
    pub fn table(&self, name: &str) -> String {
        format!(
            "[[cluster]]\nname = {name:?}\nkind = \"kubernetes\"\nkubeconfig = {:?}\nnamespaces = [{:?}]\n\
             agent-image = \"localhost/holdfast-agent:1\"\nagent-server-url = {:?}\nallow-host-paths = true\n",
            self.kubeconfig(),
            self.namespace,
            self.agents
        )
    }

    /// What says where jobs run: the tables, or flags for one cluster.
    fn clusters(&self) -> Vec<OsString> {
        let image = "localhost/holdfast-agent:1";
        match &self.tables {
            Some(tables) => {
                let file = self.dir.path().join("holdfast.toml");
                fs::write(&file, tables).unwrap();
                vec!["--config".into(), file.into()]
            }
            None => {
                let mut flags: Vec<OsString> =
                    ["--cluster", "kubernetes", "--kube-allow-host-paths", "--agent-image", image]
                        .map(OsString::from)
                        .into();
                flags.extend(["--kube-namespace".into(), self.namespace.clone().into()]);
                flags.extend(["--kubeconfig".into(), self.kubeconfig().into()]);
                flags.extend(["--agent-server-url".into(), self.agents.clone().into()]);
                flags
            }
        }
    }

    fn make_token(&self) -> String {
        assert!(self.holdfast().args(["user", "add", "tester"]).output().unwrap().status.success());
        let token = self.holdfast().args(["token", "create", "--user", "tester"]).output().unwrap();
        assert!(token.status.success());
        String::from_utf8(token.stdout).unwrap().trim().to_owned()
    }

    /// Starts the server where pods reach it, always at the same address.
    pub async fn serve(&mut self) {
        let log =
            fs::File::options().create(true).append(true).open(self.dir.path().join("server.log")).unwrap();
        let child = self
            .holdfast()
            .args(["serve", "--listen", &self.listen.to_string()])
            .args(self.clusters())
            .envs(self.env.drain(..))
            .stderr(log)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        self.server = Some(child);
        let begin = Instant::now();
        while self.client.get(self.url("/healthz")).send().await.is_err() {
            if !self.is_up() {
                return; // it died at a failpoint, which is what the test wants to see
            }
            assert!(begin.elapsed() < PATIENCE, "it does not serve");
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
            assert!(begin.elapsed() < PATIENCE, "it lives");
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
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Does something to a part of the cluster: `end2end/cluster/component` says what there is. What is down when the test ends,
    /// however that goes, is brought back.
    pub fn component(&self, args: [&str; 2]) {
        let mut returns = self.returns.lock().unwrap();
        match args {
            ["kill", part] => returns.push(["start", part].map(str::to_owned)),
            ["crash-node", node] => returns.push(["boot-node", node].map(str::to_owned)),
            _ => returns.retain(|back| back != &args),
        }
        let output = Command::new(script("component")).args(args).output().unwrap();
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
            assert!(begin.elapsed() < PATIENCE, "kubectl {args:?}: {answer}");
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

    /// Waits until the server has said this.
    pub async fn until_log(&self, words: &str) {
        let begin = Instant::now();
        while !self.log().contains(words) {
            assert!(begin.elapsed() < PATIENCE, "it did not say: {words}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the API server is there, both nodes are ready, and the server has heard so.
    pub async fn until_well(&self) {
        self.until_answer(&["get", "--raw", "/readyz"], |said| said == "ok").await;
        self.until_node("n1", "True").await;
        self.until_node("n2", "True").await;
        let begin = Instant::now();
        while self.answer(self.client.get(self.url("/api/v1/nodes"))).await.0 != 200 {
            assert!(begin.elapsed() < PATIENCE, "the server does not see its cluster");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until a job that trains has made so many more steps.
    pub async fn until_steps_more(&self, job: &str, more: u64) {
        let chain = self.read(&format!("/jobs/{job}/chain")).await;
        let goal = last_step(&chain).unwrap() + more;
        self.until(job, "training on", |chain| last_step(chain).is_some_and(|step| step >= goal)).await;
    }

    /// Stops a job and waits until it is.
    pub async fn stop(&self, job: &str) -> Value {
        self.post(&format!("/jobs/{job}/stop"), &json!({})).await;
        self.until_state(job, "stopped").await
    }

    /// Makes an object in this test's namespace.
    pub fn create(&self, object: &Value) {
        let file = self.dir.path().join("object.json");
        fs::write(&file, object.to_string()).unwrap();
        self.kubectl(&["-n", &self.namespace, "create", "-f", file.to_str().unwrap()]);
    }

    /// Evicts a pod by the API that drains use.
    pub fn evict(&self, pod: &str) {
        let metadata = json!({ "name": pod, "namespace": self.namespace });
        let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata });
        let file = self.dir.path().join("eviction.json");
        fs::write(&file, eviction.to_string()).unwrap();
        let path = format!("/api/v1/namespaces/{}/pods/{pod}/eviction", self.namespace);
        self.kubectl(&["create", "--raw", &path, "-f", file.to_str().unwrap()]);
    }

    /// What the server said.
    pub fn log(&self) -> String {
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

    /// Where agents reach the server.
    pub fn agents_url(&self) -> &str {
        &self.agents
    }

    /// The server's process.
    pub fn pid(&self) -> u32 {
        self.server.as_ref().unwrap().id()
    }

    /// This test's namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.listen)
    }

    async fn answer(&self, request: reqwest::RequestBuilder) -> (u16, Value) {
        let answer = request.bearer_auth(&self.token).timeout(Duration::from_secs(30)).send().await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// Reads from the REST API.
    pub async fn read(&self, path: &str) -> Value {
        let (status, value) = self.answer(self.client.get(self.url(&format!("/api/v1{path}")))).await;
        assert_eq!(status, 200, "{path}: {value}");
        value
    }

    /// What the REST API answers now.
    pub async fn look(&self, path: &str) -> (u16, Value) {
        self.answer(self.client.get(self.url(&format!("/api/v1{path}")))).await
    }

    /// A page as the server draws it.
    pub async fn page(&self, path: &str) -> String {
        let (status, page) = self.answer(self.client.get(self.url(path))).await;
        assert_eq!(status, 200, "{path}: {page}");
        page.as_str().unwrap_or_default().to_owned()
    }

    /// Posts to the REST API.
    pub async fn post(&self, path: &str, body: &Value) -> Value {
        let request = self.client.post(self.url(&format!("/api/v1{path}"))).json(body);
        let (status, value) = self.answer(request).await;
        assert!(status < 300, "{path}: {status} {value}");
        value
    }

    /// Deletes by the REST API.
    pub async fn delete(&self, path: &str) -> (u16, Value) {
        self.answer(self.client.delete(self.url(&format!("/api/v1{path}")))).await
    }

    /// Posts to the REST API what may be refused.
    pub async fn ask(&self, path: &str, body: &Value) -> (u16, Value) {
        self.answer(self.client.post(self.url(&format!("/api/v1{path}"))).json(body)).await
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
        let request = self.client.post(self.url("/api/v1/jobs")).json(&body);
        match request.bearer_auth(&self.token).timeout(Duration::from_secs(30)).send().await {
            Ok(answer) => {
                let (status, job) = (answer.status(), answer.json::<Value>().await.unwrap());
                assert!(status.is_success(), "{status} {job}");
                job["job_id"].as_str().unwrap().to_owned()
            }
            // A server that is told to die at the first step of a job may do so before it has answered.
            Err(_) => self.kept_job(name).await,
        }
    }

    /// The server's own database.
    async fn store(&self) -> Store {
        Store::open(&format!("sqlite://{}/data/holdfast.db", self.dir.path().display())).await.unwrap()
    }

    /// The job of this name that a server has kept which gave no answer, and may still be about to.
    async fn kept_job(&self, name: &str) -> String {
        let (begin, store) = (Instant::now(), self.store().await);
        let query = JobsQuery { q: Some(name.to_owned()), ..JobsQuery::default() };
        loop {
            let page = jobs::page(&mut store.read().await.unwrap(), &query, "").await.unwrap();
            if let [job] = &page.items[..] {
                return job.job_id.to_string();
            }
            assert!(begin.elapsed() < PATIENCE, "{name}: {} jobs were kept", page.items.len());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until the chain of a job looks as wanted.
    pub async fn until(&self, job: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.until_read(&format!("/jobs/{job}/chain"), what, wanted).await
    }

    /// Waits until what is read looks as wanted; that it cannot be had now is none.
    pub async fn until_read(&self, path: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begin = Instant::now();
        loop {
            let (status, found) = self.answer(self.client.get(self.url(&format!("/api/v1{path}")))).await;
            if status == 200 && wanted(&found) {
                return found;
            }
            assert!(begin.elapsed() < PATIENCE, "not {what}: {status} {found:#}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until a job is in this state.
    pub async fn until_state(&self, job: &str, state: &str) -> Value {
        self.until(job, state, |chain| chain["state"] == state).await
    }

    /// Waits until the server has nothing more to do: it has seen, too, that what it removed is gone.
    pub async fn until_settled(&self) {
        let (begin, store) = (Instant::now(), self.store().await);
        loop {
            let live = jobs::live_ids(&mut store.read().await.unwrap(), None, 10).await.unwrap();
            if live.is_empty() {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "still acted on: {live:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
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
            assert!(begin.elapsed() < PATIENCE, "still there: {left}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("--- the server at {} said:\n{}", self.listen, self.log());
        }
        for back in self.returns.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = Command::new(script("component")).args(back).output();
        }
        if self.guest {
            return;
        }
        // What a failed test left must not disturb the next; the cluster goes with the suite.
        for what in ["validatingwebhookconfiguration", "priorityclass", "namespace"] {
            let _ = Command::new("kubectl")
                .args(["delete", what, &self.namespace, "--ignore-not-found", "--wait=false"])
                .output();
        }
    }
}
