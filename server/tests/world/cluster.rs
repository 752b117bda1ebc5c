//! A cluster in a directory: a file is an attempt, so it outlives the process; a log tells what was really done. Its faults are
//! those of real ones: answers are lost, it cannot be reached, it refuses, removals take their time.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use engine::{
    chain::{Observation, ReplicaObservation, ReplicaStatus},
    ids::{JobId, NodeName, TaskId},
    job::{ClusterKind, JobKind, JobSpec},
    record::QueueReason,
};
use server::clusters::{Cluster, ClusterError, Note, Order, Present};
use tokio::sync::{Semaphore, mpsc, watch};

use super::master;

/// What goes wrong.
#[derive(Clone, Default)]
pub struct Faults {
    /// So many creations are done and their answers lost.
    pub lost_answers: u32,
    /// Nothing gets through.
    pub unreachable: bool,
    /// It is not configured with the namespace of its jobs.
    pub without_namespace: bool,
    /// Attempts are refused with these words.
    pub refuse: Option<&'static str>,
    /// Attempts are not taken for now, with these words.
    pub delay: Option<&'static str>,
    /// Removals are taken and not carried out.
    pub slow_removal: bool,
    /// Creations wait for a permit.
    pub gate: Option<Arc<Semaphore>>,
    /// Looks at attempts do.
    pub looks: Option<Arc<Semaphore>>,
}

/// The cluster.
pub struct FileCluster {
    dir: PathBuf,
    faults: Mutex<Faults>,
    /// How many calls were made; tests wait for it to move.
    pub calls: watch::Sender<u64>,
    /// It has objects that notes are told on.
    pub has_objects: AtomicBool,
    /// The notes that it was told.
    pub told: watch::Sender<Vec<Note>>,
    hints: Mutex<Option<mpsc::Receiver<TaskId>>>,
    pub hint: mpsc::Sender<TaskId>,
}

impl FileCluster {
    pub fn new(dir: &Path) -> Arc<Self> {
        let dir = dir.join("cluster");
        fs::create_dir_all(&dir).unwrap();
        let (hint, hints) = mpsc::channel(16);
        Arc::new(Self {
            dir,
            faults: Mutex::default(),
            calls: watch::Sender::new(0),
            has_objects: AtomicBool::new(false),
            told: watch::Sender::default(),
            hints: Mutex::new(Some(hints)),
            hint,
        })
    }

    pub fn set(&self, faults: Faults) {
        *self.faults.lock().unwrap() = faults;
    }

    /// What was done, in order, without what changed nothing.
    pub fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The attempts that exist.
    pub fn live(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.dir).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut live: Vec<_> = names.filter(|name| name != "log").collect();
        live.sort();
        live
    }

    /// Makes an attempt that nobody asked for, as a call that comes late does.
    pub fn appear(&self, task: &TaskId) {
        fs::write(self.dir.join(task.as_str()), "").unwrap();
    }

    fn note(&self, line: &str) {
        let mut log = fs::OpenOptions::new().create(true).append(true).open(self.dir.join("log")).unwrap();
        log.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn remove(&self, task: &TaskId) {
        if fs::remove_file(self.dir.join(task.as_str())).is_ok() {
            self.note(&format!("delete {task}"));
        }
    }

    fn begin(&self) -> Result<Faults, ClusterError> {
        self.calls.send_modify(|calls| *calls += 1);
        let faults = self.faults.lock().unwrap().clone();
        if faults.unreachable { Err(unreachable()) } else { Ok(faults) }
    }
}

fn unreachable() -> ClusterError {
    let source = anyhow::anyhow!("no answer");
    ClusterError::Unreachable { cluster: "local".to_owned(), doing: "asking", source }
}

#[async_trait]
impl Cluster for FileCluster {
    fn name(&self) -> &str {
        "local"
    }

    fn kind(&self) -> ClusterKind {
        if self.has_objects.load(Ordering::Relaxed) { ClusterKind::Kubernetes } else { ClusterKind::Local }
    }

    fn missing_namespace(&self, _: &JobSpec) -> Option<String> {
        self.faults.lock().unwrap().without_namespace.then(|| "research".to_owned())
    }

    async fn tell(&self, note: &Note) -> Result<(), ClusterError> {
        self.told.send_modify(|told| told.push(note.clone()));
        Ok(())
    }

    async fn create(&self, order: &Order) -> Result<(), ClusterError> {
        let faults = self.begin()?;
        if let Some(gate) = &faults.gate {
            gate.acquire().await.unwrap().forget();
        }
        if let Some(text) = faults.refuse {
            return Err(ClusterError::Refused { text: text.to_owned() });
        }
        if let Some(text) = faults.delay {
            return Err(ClusterError::Delayed { reason: QueueReason::Quota, text: text.to_owned() });
        }
        let task = order.plan.task_id.as_str();
        let others = self.live();
        if fs::OpenOptions::new().create_new(true).write(true).open(self.dir.join(task)).is_ok() {
            assert!(order.tokens.contains_key(&master()));
            self.note(&format!("create {task}"));
            if !others.is_empty() {
                self.note(&format!("two attempts live: {task} beside {others:?}"));
            }
        }
        if faults.lost_answers > 0 {
            self.faults.lock().unwrap().lost_answers -= 1;
            return Err(unreachable());
        }
        Ok(())
    }

    async fn delete(
        &self,
        task: &TaskId,
        _: JobKind,
        _: Option<&str>,
        _force: bool,
    ) -> Result<Option<String>, ClusterError> {
        if self.begin()?.slow_removal {
            return Ok(Some("it is slow".to_owned()));
        }
        self.remove(task);
        Ok(None)
    }

    async fn observe(&self, task: &TaskId, _: JobKind, _: Option<&str>) -> Result<Observation, ClusterError> {
        if let Some(looks) = &self.begin()?.looks {
            looks.acquire().await.unwrap().forget();
        }
        if !self.dir.join(task.as_str()).exists() {
            return Ok(Observation::Absent);
        }
        let node = NodeName::new("n1").unwrap();
        let replica = ReplicaObservation { node: Some(node), status: ReplicaStatus::Running };
        Ok(Observation::Placed { replicas: BTreeMap::from([(master(), replica)]) })
    }

    async fn present(&self) -> Result<Vec<Present>, ClusterError> {
        if self.faults.lock().unwrap().unreachable {
            return Err(unreachable());
        }
        let present = self.live().into_iter().map(|name| Present {
            place: format!("file {name}"),
            task: TaskId::new(name).unwrap(),
            kind: JobKind::PyTorchJob,
        });
        Ok(present.collect())
    }

    async fn forget(&self, job: &JobId, _spec: &JobSpec, tasks: &[TaskId]) -> Result<(), ClusterError> {
        self.begin()?;
        self.note(&format!("forget {job} with {} attempts", tasks.len()));
        Ok(())
    }

    fn hints(&self) -> Option<mpsc::Receiver<TaskId>> {
        self.hints.lock().unwrap().take()
    }
}
