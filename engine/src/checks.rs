//! Health checks before training: what agents are asked to look at, what they found, and what a failed one stands for.
//!
//! An agent measures and says whether it is enough; what follows from that is decided here like any other failure. Names, limits and
//! failure types stand in one place, so that the form, the agent and the chain cannot disagree about them.

use serde::{Deserialize, Serialize};

use crate::{failure::FailureType, job::JobSpec};

/// Limits of the checks and of what is kept of them. Where no source is named the number is Holdfast's own.
pub mod limits {
    /// Findings in one report: one of each check, and room for those of a newer agent.
    pub const FINDINGS: usize = 16;
    /// Characters of a finding's text and of its remedy.
    pub const TEXT_CHARS: usize = 600;
    /// Measured values of one finding.
    pub const MEASURES: usize = 8;
    /// Free bytes a checkpoint directory must have: below it not even a small model's checkpoint fits, and the disk counts as full.
    pub const FREE_BYTES: u64 = 256 << 20;
    /// Free bytes `/dev/shm` must have. A container gets 64 MiB where nothing is asked for, which is enough for programs without
    /// accelerators and data loader workers; below half of that something else has filled it.
    pub const SHM_BYTES: u64 = 32 << 20;
    /// How far a replica's clock may be from the server's, seconds. Holdfast itself understands the times of any clock; certificates,
    /// tokens of object stores and file times do not, most of them from 5 minutes on.
    pub const CLOCK_SECONDS: u64 = 60;
    /// How old a line of the kernel's log may be to count against the node, seconds. What lasts (a GPU that is gone) is still seen by
    /// the devices check afterwards; what was mended is not held against the node for long.
    pub const KERNEL_SECONDS: u64 = 900;
    /// Failed findings that are kept of one launch, for each check.
    pub const FAILURES: usize = 4;
}

/// One health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// The checkpoint directory is there, can be written, has room; how long a small file takes to the disk.
    CheckpointDir,
    /// `/dev/shm` is there and has room.
    Shm,
    /// The name of the rendezvous resolves and its host answers.
    Rendezvous,
    /// The clock is near the server's.
    Clock,
    /// As many devices are visible as the replica asks for.
    Devices,
    /// The kernel has not told of a broken device lately.
    KernelLog,
    /// A command of the job's own.
    Command,
}

impl Check {
    /// All, in the order in which they are listed.
    pub const ALL: [Self; 7] = [
        Self::CheckpointDir,
        Self::Shm,
        Self::Rendezvous,
        Self::Clock,
        Self::Devices,
        Self::KernelLog,
        Self::Command,
    ];

    /// The name, as the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CheckpointDir => "checkpoint_dir",
            Self::Shm => "shm",
            Self::Rendezvous => "rendezvous",
            Self::Clock => "clock",
            Self::Devices => "devices",
            Self::KernelLog => "kernel_log",
            Self::Command => "command",
        }
    }

    /// The name in sentences.
    pub const fn label(self) -> &'static str {
        match self {
            Self::CheckpointDir => "checkpoint directory",
            Self::Shm => "shared memory",
            Self::Rendezvous => "rendezvous",
            Self::Clock => "clock",
            Self::Devices => "devices",
            Self::KernelLog => "kernel log",
            Self::Command => "own command",
        }
    }

    /// The check of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|check| check.as_str() == name)
    }

    /// How long it may take, seconds; then it is a finding that it did not end. A storage that is woken up and a driver that starts
    /// take seconds; all limits together are far below the start limit of a launch.
    pub const fn limit_seconds(self) -> u64 {
        match self {
            Self::CheckpointDir => 30,
            Self::Devices => 20,
            Self::Rendezvous => 15,
            Self::Command => 120,
            Self::Shm | Self::Clock | Self::KernelLog => 5,
        }
    }

    /// What a failure of it is, where the fault is not seen on many nodes at once.
    pub const fn failure_type(self) -> FailureType {
        match self {
            Self::Devices | Self::KernelLog => FailureType::HwNode,
            Self::Rendezvous => FailureType::NetFabric,
            Self::CheckpointDir | Self::Shm | Self::Clock | Self::Command => FailureType::EnvError,
        }
    }
}

/// What the agents of a launch are asked to check before they start anything.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CheckOrder {
    /// Which, each once.
    pub checks: Vec<Check>,
    /// The job's own command, where there is one; [`Check::Command`] stands for it in findings.
    #[serde(default)]
    pub command: Option<Vec<String>>,
    /// NVIDIA devices that the replica asks for; 0 where it asks for none, or for others.
    #[serde(default)]
    pub devices: u32,
}

impl CheckOrder {
    /// What the agents of a job are asked for; none where nothing is to be checked.
    pub fn of(spec: &JobSpec) -> Option<Self> {
        let settings = &spec.fault_tolerance.health_checks;
        if !settings.enabled {
            return None;
        }
        let mut checks: Vec<Check> = settings.checks.iter().filter_map(|name| Check::parse(name)).collect();
        checks.extend(settings.command.is_some().then_some(Check::Command));
        checks.sort_unstable();
        checks.dedup();
        // The slots of this machine's own nodes are no devices.
        let is_nvidia = spec.kubernetes.accelerator.as_deref().is_none_or(|name| name == "nvidia.com/gpu");
        let devices = if spec.image.is_some() && is_nvidia { spec.accelerators_per_replica } else { 0 };
        (!checks.is_empty()).then(|| Self { checks, command: settings.command.clone(), devices })
    }
}

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CheckOutcome {
    /// All is well.
    Passed,
    /// It is not.
    Failed,
    /// It could not be looked at, or there is nothing to look at; never a failure.
    Skipped,
    /// It did not end within its limit.
    TimedOut,
}

impl CheckOutcome {
    /// Training may not begin.
    pub const fn is_bad(self) -> bool {
        matches!(self, Self::Failed | Self::TimedOut)
    }
}

/// Something that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Measure {
    /// What, with its unit at the end: `free_bytes`, `write_seconds`.
    pub name: String,
    /// How much.
    pub value: f64,
}

/// What one check found in one replica.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CheckFinding {
    /// Which check.
    pub check: Check,
    /// How it went.
    pub outcome: CheckOutcome,
    /// How long it took.
    pub seconds: f64,
    /// What was found, or why it was skipped, at most [`limits::TEXT_CHARS`] characters.
    pub text: String,
    /// What to do about it; none where it passed.
    pub remedy: Option<String>,
    /// What was measured.
    #[serde(default)]
    pub measures: Vec<Measure>,
}

/// Xids that mostly come from the program, by the NVIDIA Xid catalogue: no check holds them against the node.
const PROGRAM_XIDS: &[(u32, u32)] = &[
    (8, 8),
    (11, 11),
    (13, 13),
    (25, 25),
    (31, 32),
    (39, 41),
    (43, 43),
    (45, 45),
    (60, 60),
    (68, 72),
    (75, 77),
    (80, 80),
    (82, 86),
    (88, 89),
    (96, 105),
    (126, 135),
    (139, 139),
];
/// Xids on which it asks for no action.
const QUIET_XIDS: &[(u32, u32)] = &[
    (37, 38),
    (44, 44),
    (63, 63),
    (66, 67),
    (92, 93),
    (106, 107),
    (121, 121),
    (137, 137),
    (141, 141),
    (152, 153),
    (157, 157),
    (160, 161),
];

/// Whether an Xid says that the GPU or its node is broken. The signatures of logs say the same, which a test holds together.
pub fn is_hardware_xid(xid: u32) -> bool {
    let is_in = |list: &[(u32, u32)]| list.iter().any(|(first, last)| (*first..=*last).contains(&xid));
    (10..1000).contains(&xid) && !is_in(PROGRAM_XIDS) && !is_in(QUIET_XIDS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        chain::testing,
        classify::LineScanner,
        failure::Role,
        job::{HEALTH_CHECKS, Site},
    };

    #[test]
    fn names_are_those_of_the_interface() {
        let names: Vec<_> = Check::ALL.iter().map(|check| check.as_str()).collect();
        assert_eq!(names[..6], HEALTH_CHECKS);
        assert_eq!(names[6], "command");
        for check in Check::ALL {
            assert_eq!(Check::parse(check.as_str()), Some(check));
            assert_eq!(serde_json::to_string(&check).unwrap(), format!("\"{}\"", check.as_str()));
            assert!(check.limit_seconds() < crate::chain::limits::START_SECONDS / 2, "{check:?}");
        }
    }

    #[test]
    fn an_order_is_what_the_job_asks_for() {
        let mut spec = testing::spec(2);
        assert_eq!(CheckOrder::of(&spec), None, "the switch is off");
        spec.fault_tolerance.health_checks = Site::default().defaults.health_checks;
        spec.accelerators_per_replica = 4;
        let order = CheckOrder::of(&spec).unwrap();
        assert_eq!((order.checks.len(), order.devices), (6, 0), "slots of the local cluster are no devices");
        spec.image = Some("train:1".to_owned());
        assert_eq!(CheckOrder::of(&spec).unwrap().devices, 4);
        spec.kubernetes.accelerator = Some("amd.com/gpu".to_owned());
        spec.fault_tolerance.health_checks.checks = vec!["shm".into(), "clock".into(), "shm".into()];
        spec.fault_tolerance.health_checks.command = Some(vec!["true".into()]);
        let order = CheckOrder::of(&spec).unwrap();
        assert_eq!((order.checks, order.devices), (vec![Check::Shm, Check::Clock, Check::Command], 0));
        spec.fault_tolerance.health_checks.checks = Vec::new();
        spec.fault_tolerance.health_checks.command = None;
        assert_eq!(CheckOrder::of(&spec), None, "nothing is left");
    }

    #[test]
    fn an_xid_blames_the_node_where_the_signatures_do() {
        for xid in 10..200 {
            let line = format!("NVRM: Xid (PCI:0000:3b:00): {xid}, pid=4711, name=python");
            let signature = LineScanner::new().line(line.as_bytes()).matched.unwrap().signature;
            let blames = signature.role == Role::Root && !signature.spares_node;
            assert_eq!(is_hardware_xid(xid), blames, "Xid {xid}: {}", signature.id);
        }
    }
}
