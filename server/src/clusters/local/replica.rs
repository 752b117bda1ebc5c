//! One replica: an agent process with its own directory, token and environment.

use std::{fs::OpenOptions, process::Stdio};

use anyhow::{Context, anyhow};
use engine::{
    chain::{EndReason, ReplicaStatus},
    failure::Exit,
    ids::ReplicaName,
};
use tokio::process::{Child, Command};

use super::{
    LocalConfig,
    disk::{AGENT_LOG, Attempt, Layout},
    processes::{AGENT_REPLICA, Process, REPLICA, TASK},
};

/// Exit code of an agent that found another agent of its replica at work.
const ANOTHER_AGENT: u8 = 2;

/// Starts the agent of a replica. It is the leader of its own process group, so that a Ctrl-C at the server's terminal does not reach
/// it, and it writes to files, so that it does not notice the end of the server.
pub(super) async fn spawn(
    config: &LocalConfig,
    layout: &Layout,
    attempt: &Attempt,
    replica: &ReplicaName,
) -> anyhow::Result<(Process, Child)> {
    let dir = layout.replica(attempt, replica);
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(dir.join(AGENT_LOG))
        .with_context(|| format!("could not open the agent's log in {}", dir.display()))?;
    let spec = &attempt.order.spec;
    let plan = &attempt.order.plan;
    let mut command = Command::new(&config.agent_program);
    command.arg("run").arg("--").args(&spec.command);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("HOLDFAST_") {
            command.env_remove(name);
        }
    }
    command
        .envs(&spec.env)
        .env("HOLDFAST_JOB_ID", attempt.job_id.as_str())
        .env(TASK, attempt.task_id.as_str())
        .env(REPLICA, replica.as_str())
        .env("HOLDFAST_ATTEMPT", plan.number.to_string())
        .env("HOLDFAST_AGENT_TASK_ID", attempt.task_id.as_str())
        .env(AGENT_REPLICA, replica.as_str())
        .env("HOLDFAST_AGENT_ADDRESS", "127.0.0.1")
        .env("HOLDFAST_AGENT_SERVER_FILE", &config.server_file)
        .env("HOLDFAST_AGENT_TOKEN_FILE", dir.join("token"))
        .env("HOLDFAST_AGENT_STATE_DIR", &dir)
        .env("HOLDFAST_AGENT_LOG_DIR", &dir);
    if let Some(previous) = &plan.previous_task_id {
        command.env("HOLDFAST_PREVIOUS_TASK_ID", previous.as_str());
    }
    if let Some(dir) = &attempt.checkpoint_dir {
        command.env("HOLDFAST_CHECKPOINT_DIR", dir);
    }
    if let Some(dir) = &spec.working_dir {
        command.current_dir(dir);
    }
    if let Some(node) = attempt.placement.get(replica) {
        command.env("HOLDFAST_NODE", node.as_str());
    }
    let errors = log.try_clone().context("could not open the agent's log twice")?;
    let child = command
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .process_group(0)
        .kill_on_drop(false)
        .spawn()
        .with_context(|| format!("could not start the agent {}", config.agent_program.display()))?;
    let pid = child.id().ok_or_else(|| anyhow!("the agent ended before it could be watched"))?;
    Ok((Process::child(pid), child))
}

/// What the end of an agent says about its replica.
pub(super) fn end_of(status: std::io::Result<std::process::ExitStatus>) -> ReplicaStatus {
    use std::os::unix::process::ExitStatusExt;
    let (exit, reason) = match status {
        Err(why) => (None, EndReason::Lost(format!("its agent could not be waited for: {why}"))),
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) if code == i32::from(ANOTHER_AGENT) => (
                Some(Exit::from_code(i64::from(code))),
                EndReason::StartError("its agent refused to start; see agent.log".into()),
            ),
            (Some(code), _) => (Some(Exit::from_code(i64::from(code))), EndReason::Exited),
            // How the agent died says nothing about how its program did.
            (None, Some(signal)) => {
                (None, EndReason::Lost(format!("its agent was killed by signal {signal}")))
            }
            (None, None) => (None, EndReason::Lost("its agent ended without a status".into())),
        },
    };
    ReplicaStatus::Ended { exit, reason }
}
