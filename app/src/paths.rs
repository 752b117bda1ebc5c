//! Every address of the console, in one place: pages link and post through these functions only.

use engine::ids::{IncidentId, JobId, NodeName, TaskId};

use crate::{console::JobsQuery, forms::jobs_query};

/// The jobs list.
pub const JOBS: &str = "/jobs";
/// The create form, and where it posts to.
pub const NEW_JOB: &str = "/jobs/new";
/// The create form filled with the demo job.
pub const NEW_DEMO_JOB: &str = "/jobs/new?from=demo";
/// The create form of a pasted manifest.
pub const NEW_JOB_FROM_MANIFEST: &str = "/jobs/new?from=manifest";
/// Nodes with what is held against them.
pub const NODES: &str = "/nodes";
/// Runs of Bisect Diagnose.
pub const DIAGNOSE: &str = "/diagnose";
/// Where the reset of the cap on quarantined nodes is posted to.
pub const RESET_CAP: &str = "/nodes/cap/reset";
/// The profile: theme, time zone, shortcuts. Its form posts here too.
pub const SETTINGS: &str = "/settings";
/// Signing in, and where the form posts to.
pub const LOGIN: &str = "/login";
/// Where signing out posts to.
pub const LOGOUT: &str = "/logout";
/// Where the theme alone is posted to.
pub const THEME: &str = "/theme";
/// The API's description.
pub const OPENAPI: &str = "/api/v1/openapi.json";
/// Where jobs are created by API.
pub const API_JOBS: &str = "/api/v1/jobs";
/// Live changes of all jobs.
pub const STREAM: &str = "/api/v1/stream";

/// The jobs list with these filters.
pub fn jobs(query: &JobsQuery) -> String {
    let query = jobs_query::write(query);
    if query.is_empty() { JOBS.to_owned() } else { format!("{JOBS}?{query}") }
}

/// The create form filled with what a job is made of.
pub fn new_job_like(job: &JobId) -> String {
    format!("{NEW_JOB}?from={job}")
}

/// The create form filled with a debug job of a job: one replica and a shell.
pub fn debug_job_like(job: &JobId) -> String {
    format!("{NEW_JOB}?from={job}&mode=debug")
}

/// What to keep of a job for troubleshooting, as a file.
pub fn bundle(id: &JobId) -> String {
    format!("{API_JOBS}/{id}/bundle")
}

/// A job's Overview.
pub fn job(id: &JobId) -> String {
    format!("{JOBS}/{id}")
}

/// A job's Fault Tolerance Detail.
pub fn fault_tolerance(id: &JobId) -> String {
    format!("{JOBS}/{id}/fault-tolerance")
}

/// The Fault Tolerance Detail at one attempt.
pub fn attempt(id: &JobId, task: &TaskId) -> String {
    format!("{JOBS}/{id}/fault-tolerance?task={task}")
}

/// The Fault Tolerance Detail at one incident.
pub fn incident(id: &JobId, incident: &IncidentId) -> String {
    format!("{JOBS}/{id}/fault-tolerance#{incident}")
}

/// A job's logs.
pub fn logs(id: &JobId) -> String {
    format!("{JOBS}/{id}/logs")
}

/// A job's events.
pub fn events(id: &JobId) -> String {
    format!("{JOBS}/{id}/events")
}

/// A job's loss curve and time ledger.
pub fn metrics(id: &JobId) -> String {
    format!("{JOBS}/{id}/metrics")
}

/// What a job is made of.
pub fn spec(id: &JobId) -> String {
    format!("{JOBS}/{id}/spec")
}

/// Where stopping a job is posted to.
pub fn stop(id: &JobId) -> String {
    format!("{JOBS}/{id}/stop")
}

/// Where deleting a job is posted to.
pub fn delete(id: &JobId) -> String {
    format!("{JOBS}/{id}/delete")
}

/// Where resubmitting a job as a new attempt is posted to.
pub fn resubmit(id: &JobId) -> String {
    format!("{JOBS}/{id}/resubmit")
}

/// Where "mark as seen" is posted to.
pub fn acknowledge(id: &JobId) -> String {
    format!("{JOBS}/{id}/acknowledge")
}

/// Where a test of the exit notification is asked for.
pub fn test_exit(id: &JobId) -> String {
    format!("{JOBS}/{id}/test-exit")
}

/// Where "Was this right?" is posted to.
pub fn feedback(incident: &IncidentId) -> String {
    format!("/incidents/{incident}/feedback")
}

/// The stacks of a hang as a file.
pub fn incident_stacks(incident: &IncidentId) -> String {
    format!("/api/v1/incidents/{incident}/stacks?format=text")
}

/// A node's page; without a cluster that of the first cluster that has one of this name.
pub fn node(cluster: Option<&str>, name: &NodeName) -> String {
    match cluster {
        Some(cluster) => format!("{NODES}/{name}?cluster={}", encode(cluster)),
        None => format!("{NODES}/{name}"),
    }
}

/// Where the quarantine of a node is posted to.
pub fn quarantine(name: &NodeName) -> String {
    format!("{NODES}/{name}/quarantine")
}

/// Where the release of a node is posted to.
pub fn release(name: &NodeName) -> String {
    format!("{NODES}/{name}/release")
}

/// One run of Bisect Diagnose.
pub fn diagnosis(run_id: &str) -> String {
    format!("{DIAGNOSE}/{run_id}")
}

/// The form that begins a run, with the plan for a job.
pub fn new_diagnosis(job: &JobId) -> String {
    format!("{DIAGNOSE}/new?job={job}")
}

/// Where beginning a run is posted to.
pub fn begin_diagnosis(job: &JobId) -> String {
    format!("{JOBS}/{job}/diagnose")
}

/// Where stopping a run is posted to.
pub fn stop_diagnosis(run_id: &str) -> String {
    format!("{DIAGNOSE}/{run_id}/stop")
}

/// The object of an attempt as a file.
pub fn task_manifest(task: &TaskId) -> String {
    format!("/api/v1/tasks/{task}/manifest")
}

/// Live changes of one job.
pub fn job_stream(id: &JobId) -> String {
    format!("/api/v1/jobs/{id}/stream")
}

/// One value of a query string: everything but unreserved characters is percent-encoded (RFC 3986 §2.3).
pub fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_the_interface_document() {
        let id = JobId::new("jabcdefghij2").unwrap();
        assert_eq!(job(&id), "/jobs/jabcdefghij2");
        assert_eq!(fault_tolerance(&id), "/jobs/jabcdefghij2/fault-tolerance");
        assert_eq!(job_stream(&id), "/api/v1/jobs/jabcdefghij2/stream");
        assert_eq!(jobs(&JobsQuery::default()), "/jobs");
    }

    #[test]
    fn a_value_cannot_leave_its_place_in_the_address() {
        assert_eq!(encode("a b&c=d/é"), "a%20b%26c%3Dd%2F%C3%A9");
    }
}
