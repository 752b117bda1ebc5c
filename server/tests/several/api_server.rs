//! An API server with what Holdfast asks of one: objects, lists, watches, and a log of who changed what. Its operator is [`Pods`].

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
    time::Instant,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Query, Request, State},
    response::{IntoResponse, Response},
};
use http::{Method, StatusCode, header};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch};

use crate::pods::Pods;

/// A change that was asked for, by the token it came with.
#[derive(Clone, Debug)]
pub struct Change {
    pub who: String,
    pub what: String,
    pub at: Instant,
}

/// The API server; served until the test ends.
#[derive(Clone)]
pub struct ApiServer {
    pub url: String,
    world: Arc<World>,
}

struct World {
    objects: Mutex<Objects>,
    version: watch::Sender<u64>,
    pods: Pods,
}

#[derive(Default)]
struct Objects {
    version: u64,
    /// By path: `/api/v1/namespaces/default/pods/NAME`.
    live: BTreeMap<String, Value>,
    /// What watches tell: the version, the path of the collection, the event.
    events: Vec<(u64, String, Value)>,
    changes: Vec<Change>,
}

impl Objects {
    fn put(&mut self, path: &str, mut object: Value, kind: &str) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        }
        self.live.insert(path.to_owned(), object.clone());
        self.tell(path, kind, &object);
        object
    }

    fn remove(&mut self, path: &str) {
        if let Some(object) = self.live.remove(path) {
            self.version += 1;
            self.tell(path, "DELETED", &object);
        }
    }

    fn tell(&mut self, path: &str, kind: &str, object: &Value) {
        let collection = path.rsplit_once('/').unwrap().0.to_owned();
        self.events.push((self.version, collection, json!({ "type": kind, "object": object })));
    }
}

impl ApiServer {
    /// Serves a cluster of one node and no job.
    pub async fn start(pods: Pods) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let world = Arc::new(World { objects: Mutex::default(), version: watch::Sender::new(0), pods });
        world.change(|objects| {
            let node = json!({ "metadata": { "name": "n1" }, "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
            objects.put("/api/v1/nodes/n1", node, "ADDED");
            objects.put("/api/v1/namespaces/default", json!({ "metadata": { "name": "default" } }), "ADDED");
        });
        let router = Router::new().fallback(answer).with_state(Arc::clone(&world));
        tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
        Self { url, world }
    }

    /// All changes so far.
    pub fn changes(&self) -> Vec<Change> {
        self.world.objects().changes.clone()
    }

    /// The changes that came with this token.
    pub fn changes_of(&self, who: &str) -> usize {
        self.changes().iter().filter(|change| change.who == who).count()
    }

    /// When the object of this attempt was made.
    pub fn made_at(&self, task: &str) -> Option<Instant> {
        let what = format!("POST pytorchjobs/{task}");
        self.changes().iter().find(|change| change.what == what).map(|change| change.at)
    }

    /// Names of the objects of a collection.
    pub fn names(&self, collection: &str) -> Vec<String> {
        let path = format!("/{collection}/");
        let objects = self.world.objects();
        let found = objects.live.keys().filter(|one| one.contains(&path));
        found.map(|one| one.rsplit('/').next().unwrap().to_owned()).collect()
    }

    /// The token of a replica's agent, and the task it is for.
    pub fn token(&self, task: &str, replica: &str) -> String {
        self.world.objects().token(task, replica)
    }
}

impl Objects {
    fn token(&self, task: &str, replica: &str) -> String {
        let (_, secret) =
            self.live.iter().find(|(path, _)| path.ends_with(&format!("/secrets/{task}-agents"))).unwrap();
        let secret: k8s_openapi::api::core::v1::Secret = serde_json::from_value(secret.clone()).unwrap();
        String::from_utf8(secret.data.unwrap()[replica].0.clone()).unwrap()
    }
}

impl World {
    fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap()
    }

    fn change<T>(&self, change: impl FnOnce(&mut Objects) -> T) -> T {
        let mut objects = self.objects();
        let made = change(&mut objects);
        self.version.send_replace(objects.version);
        made
    }

    /// What the operator and a kubelet do about a new job: a pod for each replica, which runs at once.
    fn run(&self, path: &str, job: &Value) {
        let (namespace, _) = path.rsplit_once("/pytorchjobs/").unwrap();
        let namespace = namespace.rsplit('/').next().unwrap();
        let task = job["metadata"]["name"].as_str().unwrap();
        for (kind, spec) in job["spec"]["pytorchReplicaSpecs"].as_object().unwrap() {
            for index in 0..spec["replicas"].as_u64().unwrap() {
                let kind = kind.to_lowercase();
                let mut pod = spec["template"].clone();
                let name = format!("{task}-{kind}-{index}");
                pod["metadata"]["name"] = json!(name);
                pod["metadata"]["namespace"] = json!(namespace);
                pod["metadata"]["labels"]["training.kubeflow.org/replica-type"] = json!(kind);
                pod["metadata"]["labels"]["training.kubeflow.org/replica-index"] = json!(index.to_string());
                pod["spec"]["nodeName"] = json!("n1");
                pod["status"] = json!({ "phase": "Running", "containerStatuses": [{
                    "name": "pytorch", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                    "state": { "running": { "startedAt": "2026-11-29T19:26:47Z" } } }] });
                let token = self.objects().token(task, &format!("{kind}-{index}"));
                self.pods.start(&pod, &token);
                self.change(|objects| {
                    objects.put(&format!("/api/v1/namespaces/{namespace}/pods/{name}"), pod, "ADDED")
                });
            }
        }
    }

    fn end(&self, path: &str) {
        let task = path.rsplit('/').next().unwrap();
        let pods: Vec<_> = {
            let objects = self.objects();
            let of_task = |path: &&String| {
                objects.live[*path]["metadata"]["labels"]["holdfast.dev/task"] == task
                    && path.contains("/pods/")
            };
            objects.live.keys().filter(of_task).cloned().collect()
        };
        for pod in pods {
            self.pods.end(pod.rsplit('/').next().unwrap());
            self.change(|objects| objects.remove(&pod));
        }
    }
}

async fn answer(
    State(world): State<Arc<World>>,
    Query(query): Query<BTreeMap<String, String>>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap_or_default();
    let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let path = parts.uri.path().to_owned();
    // Events only say what was committed by then, whoever says it.
    if parts.method != Method::GET && !path.ends_with("/events") {
        let who = parts.headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
        let name = body["metadata"]["name"].as_str().filter(|_| parts.method == Method::POST);
        let collection =
            path.split('/').skip_while(|part| *part != "namespaces").skip(2).collect::<Vec<_>>().join("/");
        let what = [Some(collection.as_str()), name].into_iter().flatten().collect::<Vec<_>>().join("/");
        let change = Change {
            who: who.unwrap_or_default().replace("Bearer ", ""),
            what: format!("{} {what}", parts.method),
            at: Instant::now(),
        };
        world.objects().changes.push(change);
    }
    match parts.method {
        Method::GET if path == "/version" => version(),
        Method::GET if query.contains_key("watch") => follow(world, path, &query),
        Method::GET if path.ends_with("/log") => StatusCode::OK.into_response(),
        Method::GET => get(&world, &path),
        Method::POST => create(&world, &path, body).await,
        Method::PATCH => patch(&world, &path, &body),
        Method::DELETE => delete(&world, &path),
        _ => failed(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
    }
}

fn version() -> Response {
    let names = [
        "major",
        "minor",
        "gitVersion",
        "gitCommit",
        "gitTreeState",
        "buildDate",
        "goVersion",
        "compiler",
        "platform",
    ];
    axum::Json(names.iter().map(|name| ((*name).to_owned(), json!("1"))).collect::<serde_json::Map<_, _>>())
        .into_response()
}

/// An object, or the collection.
fn get(world: &World, path: &str) -> Response {
    let objects = world.objects();
    if let Some(object) = objects.live.get(path) {
        return axum::Json(object).into_response();
    }
    if !is_collection(path) {
        return failed(StatusCode::NOT_FOUND, "NotFound");
    }
    let begin = format!("{path}/");
    let items: Vec<_> =
        objects.live.iter().filter(|(path, _)| path.starts_with(&begin)).map(|(_, one)| one).collect();
    let metadata = json!({ "resourceVersion": objects.version.to_string() });
    axum::Json(json!({ "kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items }))
        .into_response()
}

fn is_collection(path: &str) -> bool {
    ["nodes", "pods", "secrets", "events", "resourcequotas", "pytorchjobs"]
        .iter()
        .any(|kind| path.ends_with(&format!("/{kind}")))
}

async fn create(world: &Arc<World>, path: &str, mut body: Value) -> Response {
    let object = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap());
    body["metadata"]["namespace"] = json!(path.rsplit('/').nth(1).unwrap());
    let made = world
        .change(|objects| (!objects.live.contains_key(&object)).then(|| objects.put(&object, body, "ADDED")));
    let Some(made) = made else { return failed(StatusCode::CONFLICT, "AlreadyExists") };
    if path.ends_with("/pytorchjobs") {
        world.run(&object, &made);
    }
    (StatusCode::CREATED, axum::Json(made)).into_response()
}

/// A merge of metadata, which is all that is asked for.
fn patch(world: &World, path: &str, body: &Value) -> Response {
    let patched = world.change(|objects| {
        let mut object = objects.live.get(path)?.clone();
        for (field, value) in body["metadata"].as_object().into_iter().flatten() {
            object["metadata"][field] = value.clone();
        }
        Some(objects.put(path, object, "MODIFIED"))
    });
    patched.map_or_else(
        || failed(StatusCode::NOT_FOUND, "NotFound"),
        |object| axum::Json(object).into_response(),
    )
}

fn delete(world: &World, path: &str) -> Response {
    let found = world.objects().live.contains_key(path);
    if is_collection(path) {
        return axum::Json(json!({ "metadata": {}, "items": [] })).into_response();
    }
    if !found {
        return failed(StatusCode::NOT_FOUND, "NotFound");
    }
    world.change(|objects| objects.remove(path));
    if path.contains("/pytorchjobs/") {
        world.end(path);
    }
    axum::Json(json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success" }))
        .into_response()
}

/// All events of a collection from a version on, as they come.
fn follow(world: Arc<World>, path: String, query: &BTreeMap<String, String>) -> Response {
    let seen: u64 = query.get("resourceVersion").and_then(|text| text.parse().ok()).unwrap_or(0);
    let changes = world.version.subscribe();
    let events = futures::stream::unfold(
        (world, path, seen, changes),
        |(world, path, seen, mut changes)| async move {
            loop {
                changes.borrow_and_update();
                let (lines, now) = {
                    let objects = world.objects();
                    let new = objects.events.iter().filter(|(version, of, _)| *version > seen && *of == path);
                    (new.map(|(_, _, event)| format!("{event}\n")).collect::<String>(), objects.version)
                };
                if !lines.is_empty() {
                    return Some((Ok::<_, Infallible>(Bytes::from(lines)), (world, path, now, changes)));
                }
                changes.changed().await.ok()?;
            }
        },
    );
    Response::new(Body::from_stream(events))
}

fn failed(code: StatusCode, reason: &str) -> Response {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason,
        "message": reason, "code": code.as_u16() });
    (code, axum::Json(status)).into_response()
}
