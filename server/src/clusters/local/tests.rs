//! Against real processes: a shell script plays the agent.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

use engine::{
    chain::Plan,
    job::{JobDraft, Site},
    record::QueueReason,
};

use super::*;

const PYTORCH: JobKind = JobKind::PyTorchJob;
/// How long a level may take to be reached on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

struct World {
    dir: tempfile::TempDir,
    config: LocalConfig,
}

impl World {
    /// A cluster whose agents run `script`.
    fn new(nodes: u32, slots_per_node: u32, script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let agent = dir.path().join("agent.sh");
        fs::write(&agent, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
        let config = LocalConfig {
            name: "local".into(),
            data_dir: dir.path().join("data"),
            nodes,
            slots_per_node,
            agent_program: agent,
            server_file: dir.path().join("address"),
        };
        Self { dir, config }
    }

    async fn open(&self) -> Arc<LocalCluster> {
        LocalCluster::new(self.config.clone(), CancellationToken::new()).await.unwrap()
    }

    fn replica_dir(&self, order: &Order, replica: &str) -> PathBuf {
        self.config
            .data_dir
            .join("jobs")
            .join(order.job_id.as_str())
            .join(order.plan.task_id.as_str())
            .join(replica)
    }
}

fn order(job: &str, replicas: u32, avoid: &[&str]) -> Order {
    let job_id = JobId::new(job).unwrap();
    let draft = JobDraft {
        name: "demo".into(),
        command: vec!["true".into()],
        replicas: Some(replicas.into()),
        checkpoint_dir: Some(format!("checkpoints/{job}")),
        ..JobDraft::default()
    };
    let spec = draft.validate(&Site::default()).unwrap();
    let task_id = TaskId::of_attempt("demo", &job_id, 1);
    let tokens = (0..replicas).map(|i| (ReplicaName::of_index(spec.kind, i), "secret".to_owned())).collect();
    let avoid: BTreeSet<_> = avoid.iter().map(|name| NodeName::new(*name).unwrap()).collect();
    Order {
        job_id,
        spec,
        plan: Plan {
            task_id,
            number: 1,
            previous_task_id: None,
            avoid,
            quarantined: BTreeSet::new(),
            only: BTreeSet::new(),
        },
        tokens,
    }
}

/// Waits until an attempt looks as wanted.
async fn until(
    cluster: &Arc<LocalCluster>,
    order: &Order,
    what: &str,
    wanted: impl Fn(&Observation) -> bool,
) {
    let begin = Instant::now();
    loop {
        let seen = cluster.observe(&order.plan.task_id, PYTORCH, None).await.unwrap();
        if wanted(&seen) {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "not {what}: {seen:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Deletes attempts, one after the other, and waits until nothing of them is left.
async fn delete(cluster: &Arc<LocalCluster>, orders: &[&Order], force: bool) {
    for order in orders {
        cluster.delete(&order.plan.task_id, PYTORCH, None, force).await.unwrap();
        until(cluster, order, "gone", absent).await;
    }
}

/// The agents of an attempt, once all of them have begun their program: in the middle of an `exec` a process shows no environment.
async fn agents_of(order: &Order, count: usize) -> HashMap<String, Process> {
    let begin = Instant::now();
    loop {
        let found = processes::agents().await.into_iter();
        let ours = found.filter(|((task, _), _)| *task == order.plan.task_id);
        let agents: HashMap<_, _> =
            ours.map(|((_, replica), mut agents)| (replica.to_string(), agents.remove(0))).collect();
        if agents.len() == count {
            return agents;
        }
        assert!(begin.elapsed() < PATIENCE, "{agents:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn statuses(seen: &Observation) -> Vec<ReplicaStatus> {
    match seen {
        Observation::Placed { replicas } => replicas.values().map(|replica| replica.status.clone()).collect(),
        _ => Vec::new(),
    }
}

fn runs(seen: &Observation) -> bool {
    let statuses = statuses(seen);
    !statuses.is_empty() && statuses.iter().all(|status| *status == ReplicaStatus::Running)
}

fn lost(why: &str) -> ReplicaStatus {
    ReplicaStatus::Ended { exit: None, reason: EndReason::Lost(why.to_owned()) }
}

fn absent(seen: &Observation) -> bool {
    *seen == Observation::Absent
}

/// Ends an agent as a crash would. A signal only begins that: until it is over the next server would take the agent for a living one.
async fn kill(agent: &Process) {
    let begin = Instant::now();
    agent.kill();
    while agent.is_alive() {
        assert!(begin.elapsed() < PATIENCE, "{agent:?} cannot be killed");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until a file is there and gives its text.
async fn text_of(path: PathBuf) -> String {
    let begin = Instant::now();
    loop {
        match fs::read_to_string(&path) {
            Ok(text) if text.ends_with('\n') => return text,
            _ => assert!(begin.elapsed() < PATIENCE, "{} is not there", path.display()),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn an_attempt_is_made_once_runs_and_leaves_nothing_but_its_logs() {
    let world = World::new(2, 2, "echo here; env > env.txt.$HOLDFAST_REPLICA; exec sleep 600");
    let mut job = order("jmadeonce", 2, &[]);
    job.spec.working_dir = Some(world.dir.path().to_str().unwrap().into());
    let cluster = world.open().await;
    cluster.create(&job).await.unwrap();
    cluster.create(&job).await.unwrap();
    until(&cluster, &job, "running", runs).await;
    assert_eq!(cluster.nodes().await.unwrap().iter().map(|node| node.used).collect::<Vec<_>>(), [1, 1]);

    text_of(world.replica_dir(&job, "master-0").join("agent.log")).await;
    let token = world.replica_dir(&job, "master-0").join("token");
    assert_eq!(fs::metadata(token).unwrap().permissions().mode() & 0o777, 0o600);

    delete(&cluster, &[&job], false).await;
    assert!(processes::agents().await.keys().all(|(task, _)| *task != job.plan.task_id));
    assert!(world.replica_dir(&job, "master-0").join("agent.log").exists());
    cluster.delete(&job.plan.task_id, PYTORCH, None, false).await.unwrap();

    cluster.forget(&job.job_id, &job.spec, std::slice::from_ref(&job.plan.task_id)).await.unwrap();
    assert!(!world.config.data_dir.join("jobs/jmadeonce").exists());
    assert!(!world.config.data_dir.join("checkpoints/jmadeonce").exists());
}

#[tokio::test]
async fn the_program_sees_its_attempt_and_none_of_the_servers_settings() {
    let world = World::new(1, 1, "env > \"$HOLDFAST_AGENT_STATE_DIR/env\"; exec sleep 600");
    let mut job = order("jenvironment", 1, &[]);
    job.plan.previous_task_id = Some(TaskId::new("before").unwrap());
    job.spec.env.insert("MINE".into(), "a b".into());
    let cluster = world.open().await;
    cluster.create(&job).await.unwrap();
    let env = text_of(world.replica_dir(&job, "master-0").join("env")).await;
    let dir = world.config.data_dir.join("checkpoints/jenvironment");
    for want in [
        "HOLDFAST_JOB_ID=jenvironment".to_owned(),
        format!("HOLDFAST_TASK_ID={}", job.plan.task_id),
        "HOLDFAST_ATTEMPT=1".to_owned(),
        "HOLDFAST_PREVIOUS_TASK_ID=before".to_owned(),
        format!("HOLDFAST_CHECKPOINT_DIR={}", dir.display()),
        "MINE=a b".to_owned(),
    ] {
        assert!(env.lines().any(|line| line == want), "{want} is missing");
    }
    assert!(!env.contains("secret"));
    delete(&cluster, &[&job], true).await;
}

#[tokio::test]
async fn an_attempt_waits_with_its_reason_until_slots_are_free() {
    let world = World::new(2, 1, "exec sleep 600");
    let cluster = world.open().await;
    let (first, second, third) = (order("jfirst", 2, &[]), order("jsecond", 1, &[]), order("jthird", 1, &[]));
    for job in [&first, &second, &third] {
        cluster.create(job).await.unwrap();
    }
    until(&cluster, &first, "running", runs).await;
    for (job, position) in [(&second, 1), (&third, 2)] {
        let Observation::Waiting(queue) = cluster.observe(&job.plan.task_id, PYTORCH, None).await.unwrap()
        else {
            panic!("it runs")
        };
        assert_eq!((queue.reason, queue.position), (QueueReason::Busy, Some(position)));
    }
    cluster.delete(&first.plan.task_id, PYTORCH, None, true).await.unwrap();
    until(&cluster, &second, "running", runs).await;
    until(&cluster, &third, "running", runs).await;
    delete(&cluster, &[&second, &third], true).await;
}

#[tokio::test]
async fn one_that_waits_for_its_avoided_node_lets_others_pass() {
    let world = World::new(2, 1, "exec sleep 600");
    let cluster = world.open().await;
    let (runner, picky, other) =
        (order("jrunner", 1, &[]), order("jpicky", 2, &["node-2"]), order("jother", 1, &[]));
    for job in [&runner, &picky, &other] {
        cluster.create(job).await.unwrap();
    }
    until(&cluster, &other, "running", runs).await;
    let Observation::Waiting(queue) = cluster.observe(&picky.plan.task_id, PYTORCH, None).await.unwrap()
    else {
        panic!("it runs")
    };
    assert_eq!(queue.reason, QueueReason::AvoidedNodes, "{}", queue.text);
    delete(&cluster, &[&runner, &picky, &other], true).await;
}

#[tokio::test]
async fn one_that_is_bound_to_its_nodes_holds_nobody_up_and_is_held_up_by_them_alone() {
    let world = World::new(3, 1, "exec sleep 600");
    let cluster = world.open().await;
    let bound = |job: &str, node: &str| {
        let mut order = order(job, 1, &[]);
        order.plan.only.insert(NodeName::new(node).unwrap());
        order
    };
    let (runner, other, large) = (order("jrunner", 1, &[]), order("jother", 1, &[]), order("jlarge", 2, &[]));
    let (busy, free) = (bound("jbusy", "node-1"), bound("jfree", "node-3"));
    let [known, gone] = ["node-3", "node-4"].map(|name| NodeName::new(name).unwrap());
    let closed: Vec<_> = cluster.closed(&[known, gone.clone()].into()).into_keys().collect();
    assert_eq!(closed, [gone], "a node that there is takes it sooner or later");
    for job in [&runner, &busy, &other, &large, &free] {
        cluster.create(job).await.unwrap();
    }
    for job in [&runner, &other, &free] {
        until(&cluster, job, "running", runs).await;
    }
    for job in [&busy, &large] {
        let seen = cluster.observe(&job.plan.task_id, PYTORCH, None).await.unwrap();
        assert!(
            matches!(&seen, Observation::Waiting(queue) if queue.reason == QueueReason::Busy),
            "{seen:?}"
        );
    }
    delete(&cluster, &[&runner, &other, &free, &busy, &large], true).await;
}

#[tokio::test]
async fn replicas_outlive_the_server_and_are_adopted() {
    let world = World::new(2, 2, "exec sleep 600");
    let job = order("jadopted", 2, &[]);
    let waiting = order("jwaiting", 3, &[]);
    let first = world.open().await;
    first.create(&job).await.unwrap();
    first.create(&waiting).await.unwrap();
    until(&first, &job, "running", runs).await;
    let before = first.observe(&job.plan.task_id, PYTORCH, None).await.unwrap();
    let agents = agents_of(&job, 2).await;
    drop(first);

    let second = world.open().await;
    assert_eq!(second.observe(&job.plan.task_id, PYTORCH, None).await.unwrap(), before);
    assert!(matches!(
        second.observe(&waiting.plan.task_id, PYTORCH, None).await.unwrap(),
        Observation::Waiting(_)
    ));
    agents["worker-0"].kill();
    until(&second, &job, "one lost", |seen| {
        statuses(seen)
            .iter()
            .any(|status| matches!(status, ReplicaStatus::Ended { reason: EndReason::Lost(_), .. }))
    })
    .await;
    for job in [&job, &waiting] {
        second.delete(&job.plan.task_id, PYTORCH, None, true).await.unwrap();
        until(&second, job, "gone", absent).await;
    }
}

#[tokio::test]
async fn what_outlived_an_agent_while_the_server_was_away_is_ended() {
    let world =
        World::new(1, 1, "setsid sleep 600 & echo $! > \"$HOLDFAST_AGENT_STATE_DIR/child\"; exec sleep 600");
    let job = order("joutlived", 1, &[]);
    let first = world.open().await;
    first.create(&job).await.unwrap();
    let child = text_of(world.replica_dir(&job, "master-0").join("child")).await;
    let child = Process::child(child.trim().parse().unwrap());
    let agent = agents_of(&job, 1).await.remove("master-0").unwrap();
    first.shutdown.cancel();
    first.stopped().await;
    drop(first);
    kill(&agent).await;
    assert!(child.is_alive());
    let second = world.open().await;
    assert!(!child.is_alive());
    let seen = second.observe(&job.plan.task_id, PYTORCH, None).await.unwrap();
    assert!(matches!(statuses(&seen)[..], [ReplicaStatus::Ended { reason: EndReason::Lost(_), .. }]));
    second.delete(&job.plan.task_id, PYTORCH, None, true).await.unwrap();
    until(&second, &job, "gone", absent).await;
}

/// Starts a process with the variables of its arguments that SIGKILL does not end: killed, it waits for its tracer as it exits, and that
/// lets it go only when its own input ends.
const HELD: &str = r#"
import ctypes, os, subprocess, sys
variables = dict(argument.split("=", 1) for argument in sys.argv[1:])
process = subprocess.Popen(["sleep", "600"], env={**os.environ, **variables}, stdin=subprocess.DEVNULL)
ptrace = ctypes.CDLL(None, use_errno=True).ptrace
ptrace.argtypes = [ctypes.c_long] * 4
SEIZE, TRACE_EXIT = 0x4206, 0x40
if ptrace(SEIZE, process.pid, 0, TRACE_EXIT) != 0:
    sys.exit(os.strerror(ctypes.get_errno()))
print("held", flush=True)
sys.stdin.read()
"#;

#[tokio::test]
async fn what_could_not_be_ended_keeps_its_slots_when_the_server_comes_back() {
    let world = World::new(1, 1, "exec sleep 600");
    let (job, next) = (order("jstillthere", 1, &[]), order("jwaitsforit", 1, &[]));
    let layout = Layout::new(world.config.data_dir.clone());
    for (ordinal, order) in [(0, &job), (1, &next)] {
        let checkpoints = layout.prepare(order).await.ok().unwrap();
        let mut attempt = Attempt::new(order, ordinal, checkpoints);
        if ordinal == 0 {
            let replica = ReplicaName::new("master-0").unwrap();
            attempt.placement.insert(replica.clone(), NodeName::new("node-1").unwrap());
            attempt.ended.insert(replica, lost("an earlier server saw it end"));
        }
        layout.write(&attempt).await.unwrap();
    }
    let mut held = std::process::Command::new("python3")
        .args(["-c", HELD])
        .arg(format!("{}={}", processes::TASK, job.plan.task_id))
        .arg(format!("{}=master-0", processes::REPLICA))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(held.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "held\n");
    let cluster = world.open().await;
    assert_eq!(cluster.nodes().await.unwrap()[0].used, 1);
    assert!(matches!(
        cluster.observe(&next.plan.task_id, PYTORCH, None).await.unwrap(),
        Observation::Waiting(_)
    ));
    drop(held.stdin.take());
    held.wait().unwrap();
    until(&cluster, &next, "running", runs).await;
    delete(&cluster, &[&job, &next], true).await;
}

#[tokio::test]
async fn a_replica_that_was_placed_but_not_started_is_started_by_the_next_server() {
    let world = World::new(2, 2, "exec sleep 600");
    let job = order("junstarted", 2, &[]);
    // As if the server had died between writing the placement down and starting the agents.
    let layout = Layout::new(world.config.data_dir.clone());
    let checkpoints = layout.prepare(&job).await.ok().unwrap();
    let mut attempt = Attempt::new(&job, 0, checkpoints);
    for (replica, node) in [("master-0", "node-1"), ("worker-0", "node-2")] {
        attempt.placement.insert(ReplicaName::new(replica).unwrap(), NodeName::new(node).unwrap());
    }
    layout.write(&attempt).await.unwrap();

    let second = world.open().await;
    until(&second, &job, "running", runs).await;
    second.delete(&job.plan.task_id, PYTORCH, None, true).await.unwrap();
    until(&second, &job, "gone", absent).await;
}

#[tokio::test]
async fn the_end_of_an_agent_is_seen_and_takes_its_processes_along() {
    let world = World::new(1, 2, "setsid sleep 600 & exit 7");
    let job = order("jended", 1, &[]);
    let cluster = world.open().await;
    cluster.create(&job).await.unwrap();
    until(&cluster, &job, "ended with 7", |seen| {
        statuses(seen)
            == [ReplicaStatus::Ended {
                exit: Some(engine::failure::Exit::Code(7)),
                reason: EndReason::Exited,
            }]
    })
    .await;
    assert_eq!(cluster.nodes().await.unwrap()[0].used, 0);
    delete(&cluster, &[&job], false).await;
}

#[tokio::test]
async fn the_death_of_an_agent_is_not_taken_for_that_of_its_program() {
    let world = World::new(1, 2, "exec sleep 600");
    let job = order("jkilled", 1, &[]);
    let cluster = world.open().await;
    cluster.create(&job).await.unwrap();
    agents_of(&job, 1).await["master-0"].kill();
    until(&cluster, &job, "lost", |seen| {
        statuses(seen).iter().any(|status| {
            matches!(status, ReplicaStatus::Ended { exit: None, reason: EndReason::Lost(text) } if text.contains("signal 9"))
        })
    })
    .await;
    delete(&cluster, &[&job], false).await;
}

#[tokio::test]
async fn directories_that_cannot_be_used_are_refused_with_the_reason() {
    let world = World::new(1, 1, "exec sleep 600");
    let cluster = world.open().await;
    let file = world.dir.path().join("file");
    fs::write(&file, "").unwrap();
    let mut checkpoints = order("jcheckpoints", 1, &[]);
    checkpoints.spec.checkpoint_dir = Some(file.join("below").to_str().unwrap().into());
    let mut working = order("jworking", 1, &[]);
    working.spec.working_dir = Some("/nowhere/at/all".into());
    for (job, want) in [(&checkpoints, "checkpoint_dir"), (&working, "working_dir")] {
        match cluster.create(job).await {
            Err(ClusterError::Refused { text }) => assert!(text.starts_with(want), "{text}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(cluster.observe(&job.plan.task_id, PYTORCH, None).await.unwrap(), Observation::Absent);
    }
}

#[tokio::test]
async fn no_job_saves_where_holdfast_removes_files_of_its_own() {
    let world = World::new(1, 1, "exec sleep 600");
    let cluster = world.open().await;
    let data = &world.config.data_dir;
    fs::create_dir_all(data.join("trash")).unwrap();
    let link = world.dir.path().join("link");
    std::os::unix::fs::symlink(data, &link).unwrap();
    let absolute = |path: PathBuf| path.to_str().unwrap().to_owned();
    for path in [
        "trash".to_owned(),
        "trash/run1".to_owned(),
        "./trash/x".to_owned(),
        "jobs/mine".to_owned(),
        absolute(data.join("trash/run1")),
        absolute(data.join("jobs")),
        absolute(link.join("trash/run1")),
    ] {
        let mut job = order("jownplace", 1, &[]);
        job.spec.checkpoint_dir = Some(path.clone());
        match cluster.create(&job).await {
            Err(ClusterError::Refused { text }) => {
                assert!(text.starts_with("checkpoint_dir") && text.contains("files of its own"), "{text}");
            }
            other => panic!("{path}: {other:?}"),
        }
    }
    assert!(!data.join("trash/run1").exists() && !data.join("jobs/mine").exists());
}

#[tokio::test]
async fn a_missing_agent_is_an_end_with_the_reason() {
    let mut world = World::new(1, 1, "");
    world.config.agent_program = "/nowhere/holdfast-agent".into();
    let job = order("jnoagent", 1, &[]);
    let cluster = world.open().await;
    cluster.create(&job).await.unwrap();
    until(&cluster, &job, "ended", |seen| {
        statuses(seen).iter().any(|status| {
            matches!(status, ReplicaStatus::Ended { reason: EndReason::StartError(text), .. } if text.contains("/nowhere/holdfast-agent"))
        })
    })
    .await;
    delete(&cluster, &[&job], false).await;
}

#[tokio::test]
async fn a_stranger_that_calls_itself_an_agent_is_not_adopted() {
    use std::os::unix::process::CommandExt;
    let world = World::new(1, 1, "exec sleep 600");
    let job = order("jstranger", 1, &[]);
    let first = world.open().await;
    first.create(&job).await.unwrap();
    let agent = agents_of(&job, 1).await.remove("master-0").unwrap();
    drop(first);
    kill(&agent).await;
    let mut stranger = std::process::Command::new("sleep")
        .arg("600")
        .env(processes::TASK, job.plan.task_id.as_str())
        .env(processes::AGENT_REPLICA, "master-0")
        .process_group(0)
        .spawn()
        .unwrap();
    agents_of(&job, 1).await;
    let second = world.open().await;
    let seen = second.observe(&job.plan.task_id, PYTORCH, None).await.unwrap();
    assert!(
        matches!(statuses(&seen)[..], [ReplicaStatus::Ended { reason: EndReason::Lost(_), .. }]),
        "{seen:?}"
    );
    second.delete(&job.plan.task_id, PYTORCH, None, true).await.unwrap();
    until(&second, &job, "gone", absent).await;
    stranger.wait().unwrap();
}

#[tokio::test]
async fn processes_that_cannot_be_ended_keep_their_attempt_and_its_slots() {
    let world = World::new(1, 1, "exec sleep 600");
    let cluster = world.open().await;
    let (job, next) = (order("jleftover", 1, &[]), order("jnext", 1, &[]));
    for job in [&job, &next] {
        cluster.create(job).await.unwrap();
    }
    until(&cluster, &job, "running", runs).await;
    // Nothing that a test may start cannot be killed, so a process that nobody tries to kill plays one.
    let mut stuck = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let process = Process::child(stuck.id());
    {
        let mut state = cluster.state.lock().await;
        let entry = state.attempts.get_mut(&job.plan.task_id).unwrap();
        entry.leftovers.insert(ReplicaName::new("master-0").unwrap(), vec![process.clone()]);
    }
    agents_of(&job, 1).await["master-0"].kill();
    until(&cluster, &job, "over", |seen| matches!(statuses(seen)[..], [ReplicaStatus::Ended { .. }])).await;
    cluster.removed(&job.plan.task_id, &[process]).await;
    assert!(matches!(
        cluster.observe(&job.plan.task_id, PYTORCH, None).await.unwrap(),
        Observation::Placed { .. }
    ));
    assert!(matches!(
        cluster.observe(&next.plan.task_id, PYTORCH, None).await.unwrap(),
        Observation::Waiting(_)
    ));
    assert_eq!(cluster.nodes().await.unwrap()[0].used, 1);

    stuck.kill().unwrap();
    stuck.wait().unwrap();
    until(&cluster, &next, "running", runs).await;
    delete(&cluster, &[&job, &next], true).await;
}

#[tokio::test]
async fn a_placement_that_cannot_be_written_down_waits_with_the_reason_and_is_tried_again() {
    let world = World::new(1, 1, "exec sleep 600");
    let cluster = world.open().await;
    let (first, second) = (order("jholder", 1, &[]), order("junwritten", 1, &[]));
    for job in [&first, &second] {
        cluster.create(job).await.unwrap();
    }
    // Where the new file would be written stands a directory.
    let attempt = world.replica_dir(&second, "").join("attempt.new");
    fs::create_dir(&attempt).unwrap();
    cluster.delete(&first.plan.task_id, PYTORCH, None, true).await.unwrap();
    until(
        &cluster,
        &second,
        "waiting for its file",
        |seen| matches!(seen, Observation::Waiting(queue) if queue.text.contains("could not write")),
    )
    .await;
    assert_eq!(cluster.nodes().await.unwrap()[0].used, 0);
    // What it could not take is there for the next one.
    let third = order("jbehind", 1, &[]);
    cluster.create(&third).await.unwrap();
    until(&cluster, &third, "running", runs).await;
    delete(&cluster, &[&third], true).await;
    fs::remove_dir(&attempt).unwrap();
    until(&cluster, &second, "running", runs).await;
    delete(&cluster, &[&second], true).await;
}

#[tokio::test]
async fn what_a_dying_server_left_of_a_forgotten_job_is_removed_at_the_next_start() {
    let world = World::new(1, 1, "exec sleep 600");
    let trash = world.config.data_dir.join("trash");
    let left = trash.join("jforgotten.files/task/master-0");
    fs::create_dir_all(&left).unwrap();
    fs::write(left.join("launch-0.log"), "1 0 o a line\n").unwrap();
    fs::create_dir_all(trash.join("run1")).unwrap();
    let cluster = world.open().await;
    // It ends with its tasks, the first of which empties the trash.
    cluster.shutdown.cancel();
    tokio::time::timeout(PATIENCE, cluster.stopped()).await.unwrap();
    assert!(!trash.join("jforgotten.files").exists());
    assert!(trash.join("run1").exists(), "what was not discarded stays");
}

#[tokio::test]
async fn a_server_that_stops_begins_nothing_whatever_ends_or_comes_then() {
    let world = World::new(1, 1, "exec sleep 600");
    let cluster = world.open().await;
    let (first, next, late) = (order("jlast", 1, &[]), order("jheldback", 1, &[]), order("jlate", 1, &[]));
    for job in [&first, &next] {
        cluster.create(job).await.unwrap();
    }
    until(&cluster, &first, "running", runs).await;
    cluster.shutdown.cancel();
    delete(&cluster, &[&first], true).await;
    cluster.create(&late).await.unwrap();
    tokio::time::timeout(PATIENCE, cluster.stopped()).await.unwrap();
    assert_eq!(cluster.nodes().await.unwrap()[0].used, 0);
    for job in [&next, &late] {
        assert!(!world.replica_dir(job, "master-0").join("agent.log").exists());
    }
    drop(cluster);
    // The next server does.
    let second = world.open().await;
    until(&second, &next, "running", runs).await;
    for job in [&next, &late] {
        second.delete(&job.plan.task_id, PYTORCH, None, true).await.unwrap();
        until(&second, job, "gone", absent).await;
    }
}

#[tokio::test]
async fn a_server_that_stops_leaves_its_replicas_running() {
    let script = "trap '' TERM; echo up > \"$HOLDFAST_AGENT_STATE_DIR/up\"; exec sleep 600";
    let world = World::new(1, 1, script);
    let job = order("jstopping", 1, &[]);
    let cluster = world.open().await;
    cluster.create(&job).await.unwrap();
    text_of(world.replica_dir(&job, "master-0").join("up")).await;
    let agent = agents_of(&job, 1).await.remove("master-0").unwrap();
    cluster.delete(&job.plan.task_id, PYTORCH, None, false).await.unwrap();
    cluster.shutdown.cancel();
    tokio::time::timeout(PATIENCE, cluster.stopped()).await.unwrap();
    drop(cluster);
    assert!(agent.is_alive());
    let second = world.open().await;
    assert!(matches!(
        second.observe(&job.plan.task_id, PYTORCH, None).await.unwrap(),
        Observation::Placed { .. }
    ));
    second.delete(&job.plan.task_id, PYTORCH, None, true).await.unwrap();
    until(&second, &job, "gone", absent).await;
    assert!(!agent.is_alive());
}
