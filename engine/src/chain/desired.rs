//! What each replica shall do: read from the chain, never stored, so that it cannot disagree with it.

use super::{
    Chain,
    attempt::{Presence, Stage},
    checks::Checks,
    limits,
};
use crate::{
    ids::{ReplicaName, TaskId},
    record::LaunchCause,
    sync::{Desired, ExitSettings, HangWatch, Launch, PortOffer},
};

pub(super) fn of(
    chain: &Chain,
    task: &TaskId,
    replica: &ReplicaName,
    rendezvous: Option<(&str, PortOffer)>,
) -> Desired {
    let attempt = &chain.attempt;
    let Some(index) = attempt.replica(replica).filter(|_| attempt.task_id == *task) else {
        return Desired::Exit;
    };
    if matches!(attempt.presence, Presence::Removing { .. } | Presence::Gone) {
        return Desired::Exit;
    }
    let launch = &attempt.launch;
    match &attempt.stage {
        Stage::Stopping | Stage::Over(_) => Desired::Exit,
        Stage::Failing(gathering) if gathering.last_words_until.is_none() => {
            Desired::Stop { launch: launch.number }
        }
        Stage::Saving(saving) if saving.goes_on() => {
            Desired::Save { launch: launch.number, notice: saving.notice() }
        }
        Stage::Saving(_) => Desired::Stop { launch: launch.number },
        Stage::Queued => Desired::Wait,
        Stage::Failing(_) | Stage::Starting | Stage::Running => {
            let offered = rendezvous.filter(|(_, offer)| offer.launch == launch.number);
            let (Some(_), Some((address, offer))) = (launch.ordered_at, offered) else {
                // One that outlived a suspension may still run what was before it, and only an agent without a process is ready. While
                // its resources are away nobody is told: those that then end, with their pods, would seem to be ready.
                let is_left = launch.cause == LaunchCause::Requeue && !attempt.replicas[index].ready;
                return match launch.number.checked_sub(1).filter(|_| is_left) {
                    Some(before) => Desired::Stop { launch: before },
                    None => Desired::Wait,
                };
            };
            let processes = chain.spec.processes_per_replica;
            let exit = &chain.spec.fault_tolerance.exit_checkpoint;
            Desired::Run {
                launch: Launch {
                    number: launch.number,
                    master_addr: address.to_owned(),
                    master_port: offer.port,
                    world_size: chain.spec.told_world_size(),
                    first_rank: (index as u32).saturating_mul(processes),
                    local_world_size: processes,
                    stop_grace_seconds: limits::STOP_GRACE_SECONDS,
                    exit: exit
                        .enabled
                        .then_some(ExitSettings { port: exit.port, max_wait_seconds: exit.max_wait_seconds }),
                    checks: launch.checks.as_ref().filter(|checks| checks.is_pending()).map(Checks::order),
                    watch: watch(chain),
                    exit_test: attempt.exit_test.as_ref().and_then(|test| test.order(launch.number)),
                },
            }
        }
    }
}

/// How the processes of every launch are watched, where Job Hang Detection is on.
pub(super) fn watch(chain: &Chain) -> Option<HangWatch> {
    let hang = &chain.spec.fault_tolerance.hang_detection;
    hang.enabled.then_some(HangWatch {
        interval_seconds: hang.interval_seconds,
        window_seconds: hang.window_seconds,
        start_after_seconds: hang.start_after_seconds,
    })
}
