//! Debug resubmission (R29): the same inputs in one replica, with a shell that waits instead of the program.

use super::{JobDraft, limits};
use crate::words;

/// How long the shell waits, seconds: a day, so that one that was forgotten gives its resources back.
pub const DEBUG_SECONDS: u32 = 86_400;
/// What a debug job's name ends in.
const SUFFIX: &str = "-debug";

impl JobDraft {
    /// The job to look into this one with: one replica with one process, nothing that restarts, judges or checks it, and in place of the program a
    /// shell that prints the program's command and waits for [`DEBUG_SECONDS`]. Image, environment, accelerators, volumes and directories stay.
    ///
    /// # Errors
    /// It is made of a pasted object, whose replicas and command are its own.
    pub fn into_debug(self) -> Result<Self, String> {
        if self.kubernetes.manifest.is_some() {
            let why = "It was made from a pasted object, whose replicas and command are its own. Paste the object again with one replica and a shell.";
            return Err(why.to_owned());
        }
        let wait = format!("printf '%s\\n' \"$0\"; exec sleep {DEBUG_SECONDS}");
        let name: String = self.name.chars().take(limits::NAME_CHARS - SUFFIX.len()).collect();
        let mut draft = Self {
            name: format!("{name}{SUFFIX}"),
            command: vec!["sh".to_owned(), "-c".to_owned(), wait, words::shell_line(&self.command)],
            replicas: Some(1),
            processes_per_replica: Some(1),
            ..self
        };
        draft.fault_tolerance.auto_failover = Some(false);
        draft.fault_tolerance.policy.enabled = Some(false);
        draft.fault_tolerance.hang_detection.enabled = Some(false);
        draft.fault_tolerance.exit_checkpoint.enabled = Some(false);
        // Whoever looks into a job that a check stopped has to get in.
        draft.fault_tolerance.health_checks.enabled = Some(false);
        Ok(draft)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Site;

    #[test]
    fn a_debug_job_has_the_same_inputs_one_replica_and_a_shell() {
        let body = r#"{"name":"pretrain","command":["python3","a b.py"],"env":{"A":"1"},"replicas":4,"processes_per_replica":2,
            "accelerators_per_replica":2,"checkpoint_dir":"ckpt","fault_tolerance":{"auto_failover":true,"max_task_restarts":2,
            "policy":{"enabled":true},"hang_detection":{"enabled":true},"health_checks":{"enabled":true}}}"#;
        let original: JobDraft = serde_json::from_str(body).unwrap();
        let debug = original.clone().into_debug().unwrap();
        assert_eq!((debug.name.as_str(), debug.replicas), ("pretrain-debug", Some(1)));
        assert_eq!((&debug.env, &debug.checkpoint_dir), (&original.env, &original.checkpoint_dir));
        assert_eq!(debug.accelerators_per_replica, Some(2));
        assert_eq!(debug.command[..2], ["sh", "-c"]);
        assert_eq!(debug.command[3], "'python3' 'a b.py'");
        let spec = debug.validate(&Site::default()).unwrap();
        assert!(!spec.fault_tolerance.auto_failover && !spec.fault_tolerance.hang_detection.enabled);
        assert!(!spec.fault_tolerance.health_checks.enabled);
    }

    #[test]
    fn a_long_name_stays_within_its_limit_and_a_pasted_object_is_refused() {
        let long = JobDraft { name: "x".repeat(63), command: vec!["true".to_owned()], ..JobDraft::default() };
        assert_eq!(long.into_debug().unwrap().name.len(), limits::NAME_CHARS);
        let mut pasted = JobDraft::default();
        pasted.kubernetes.manifest = Some(serde_json::json!({}).into());
        assert!(pasted.into_debug().unwrap_err().contains("pasted object"));
    }
}
