//! A server without a socket.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use axum::{Router, body::Body};
use engine::{
    ids::JobId,
    job::{Site, SiteCluster},
    time::Time,
};
use http::{Request, Response, StatusCode, header};
use serde_json::Value;
use server::{
    clock::{Clock, SystemClock},
    clusters::{
        Cluster,
        kubernetes::{ACCELERATOR, AgentSource, Kubernetes, KubernetesSettings},
        local::{LocalCluster, LocalConfig},
    },
    config::PublicUrl,
    driver::Change,
    logs::LogReader,
    secrets,
    service::{Drives, Service},
    store::{self, Store, accounts},
    web::{self, WebParts, sessions::Access},
};
use tempfile::TempDir;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// Hears hints and does nothing.
pub struct Listener {
    pub hints: Mutex<Vec<JobId>>,
    pub changes: broadcast::Sender<Change>,
}

impl Drives for Listener {
    fn hint(&self, job: &JobId) {
        self.hints.lock().unwrap().push(job.clone());
        // As if the request had been taken at once, so that no test waits.
        let _ = self.changes.send(Change { job_id: job.clone(), generation: 1 });
    }

    fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    fn is_ready(&self) -> bool {
        true
    }
}

/// How a server is set up.
#[derive(Clone, Default)]
pub struct Setup {
    pub open: bool,
    pub public_url: Option<PublicUrl>,
    pub metrics_open: bool,
    /// Beside the local cluster there is one of Kubernetes, which does not answer.
    pub kubernetes: bool,
    /// The local cluster is connected; it is where there is another, too.
    pub local: bool,
}

/// A cluster that is configured and never answers.
async fn kubernetes(dir: &std::path::Path, stop: &CancellationToken) -> (SiteCluster, Arc<dyn Cluster>) {
    let kubeconfig = dir.join("kubeconfig");
    let text = r#"{"apiVersion":"v1","kind":"Config","current-context":"a",
      "contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}],"users":[{"name":"a","user":{}}],
      "clusters":[{"name":"a","cluster":{"server":"http://127.0.0.1:9"}}]}"#;
    std::fs::write(&kubeconfig, text).unwrap();
    let settings = KubernetesSettings {
        server_ca: None,
        name: "kubernetes".to_owned(),
        instance: "0123456789abcdef".to_owned(),
        data_dir: dir.to_owned(),
        kubeconfig: Some(kubeconfig),
        context: None,
        namespaces: vec!["train".to_owned()],
        agent: AgentSource::Image("registry.example/agent:1".to_owned()),
        server_url: "http://holdfast.holdfast:3000".to_owned(),
        accelerator: ACCELERATOR.to_owned(),
        node_lost_seconds: 60,
        allow_host_paths: false,
    };
    let site = settings.site();
    (site, Arc::new(Kubernetes::start(settings, stop.clone()).await.unwrap()))
}

/// The cluster of this machine, on which nothing is started.
async fn local(dir: &std::path::Path, stop: &CancellationToken) -> (SiteCluster, Arc<dyn Cluster>) {
    let config = LocalConfig {
        name: "local".to_owned(),
        data_dir: dir.to_owned(),
        nodes: 4,
        slots_per_node: 2,
        agent_program: dir.join("holdfast-agent"),
        server_file: dir.join("address"),
    };
    let site = config.site();
    (site, Arc::new(LocalCluster::new(config, stop.clone()).await.unwrap()))
}

pub struct Server {
    pub router: Router,
    pub store: Store,
    pub driver: Arc<Listener>,
    pub stop: CancellationToken,
    /// Removed with the server.
    dir: TempDir,
}

impl Server {
    /// On loopback with an empty database.
    pub async fn new() -> Self {
        Self::with(Setup::default()).await
    }

    pub async fn with(setup: Setup) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&format!("sqlite://{}", dir.path().join("test.db").display())).await.unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let driver = Arc::new(Listener { hints: Mutex::default(), changes: broadcast::Sender::new(100) });
        let stop = CancellationToken::new();
        let secure = setup.public_url.as_ref().is_some_and(|url| url.secure);
        let access = Access::new(store.clone(), Arc::clone(&clock), !setup.open, secure).unwrap();
        let (mut site, mut clusters) = (Site::default(), BTreeMap::new());
        if setup.kubernetes {
            let (known, cluster) = kubernetes(dir.path(), &stop).await;
            clusters.insert(known.name.clone(), cluster);
            site.clusters.push(known);
        }
        if setup.kubernetes || setup.local {
            let (known, cluster) = local(dir.path(), &stop).await;
            clusters.insert(known.name.clone(), cluster);
            site.clusters[0] = known;
        }
        let service = Arc::new(Service {
            store: store.clone(),
            driver: driver.clone(),
            clusters,
            clock,
            site,
            logs: LogReader::new(dir.path().to_owned()),
        });
        let router = web::router(WebParts {
            service,
            access: Arc::new(access),
            metrics: None,
            agents: Router::new(),
            site: leptos::config::LeptosOptions::builder().output_name("holdfast").build(),
            loopback: !setup.open,
            public_url: setup.public_url,
            metrics_open: setup.metrics_open,
            server_id: "test".into(),
            stop: stop.clone(),
        })
        .unwrap();
        Self { router, store, driver, stop, dir }
    }

    /// The data directory.
    pub fn data(&self) -> &std::path::Path {
        self.dir.path()
    }

    /// Adds an account with the password `correct horse` and answers a token of it.
    pub async fn account(&self, name: &str) -> String {
        let token = secrets::new_secret().unwrap();
        let mut tx = self.store.write().await.unwrap();
        let hash = secrets::hash_password("correct horse").unwrap();
        accounts::add(&mut tx, name, &hash, Time(1)).await.unwrap();
        accounts::add_token(&mut tx, &secrets::fingerprint(token.as_bytes()), name, "test", Time(1))
            .await
            .unwrap();
        store::commit(tx).await.unwrap();
        token
    }

    pub async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        Answer::read(response).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(request("GET", path).body(Body::empty()).unwrap()).await
    }

    pub async fn post(&self, path: &str, body: &str) -> Answer {
        self.send(json("POST", path, body)).await
    }

    /// Creates a job and answers its id.
    pub async fn job(&self, body: &str) -> String {
        let answer = self.post("/api/v1/jobs", body).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
        answer.json()["job_id"].as_str().unwrap().to_owned()
    }
}

pub fn request(method: &str, path: &str) -> http::request::Builder {
    Request::builder().method(method).uri(path).header(header::HOST, "localhost:3000")
}

pub fn json(method: &str, path: &str, body: &str) -> Request<Body> {
    request(method, path)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(body.to_owned()))
        .unwrap()
}

pub struct Answer {
    pub status: StatusCode,
    pub headers: http::HeaderMap,
    pub text: String,
}

impl Answer {
    async fn read(response: Response<Body>) -> Self {
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, 10_000_000).await.unwrap();
        Self {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|why| panic!("{why}: {}", self.text))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Status and problem, without what differs each time.
    pub fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), "application/problem+json", "{} {}", self.status, self.text);
        let mut body = self.json();
        assert_eq!(body["request_id"].as_str().unwrap(), self.header("x-request-id"));
        assert_eq!(body["status"], self.status.as_u16());
        let fields = body["errors"].take();
        let fields: Vec<_> = fields
            .as_array()
            .unwrap()
            .iter()
            .map(|error| {
                format!("\n  {}: {}", error["field"].as_str().unwrap(), error["message"].as_str().unwrap())
            })
            .collect();
        let kind = body["type"].as_str().unwrap().trim_start_matches("urn:holdfast:problem:");
        format!("{} {kind}: {}{}", self.status.as_u16(), body["detail"].as_str().unwrap(), fields.concat())
    }
}
