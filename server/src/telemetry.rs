//! How the server speaks of itself: `tracing` on standard error, numbers for Prometheus.

use std::io::IsTerminal;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;

use crate::config::{LogFormat, Logging};

/// Libraries that repeat each failure of a watch as long as it lasts, which is said once and in our own words. `--log` can ask for them.
const QUIET: &str = "kube_client=off,kube_runtime=off";

/// Why telemetry could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The levels make no sense.
    #[error(
        "--log {levels}: {text}; use error, warn, info, debug or trace, also by module: info,server::driver=debug"
    )]
    Levels {
        /// What was given.
        levels: String,
        /// What is wrong with it.
        text: String,
    },
    /// Something else already took the process's log or recorder.
    #[error("telemetry is set up already")]
    Twice,
}

/// Upper bounds of the time histograms, seconds: a page takes milliseconds, a held agent poll 25 s.
const SECONDS: [f64; 10] = [0.001, 0.005, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];

/// Sends the log of this process to standard error.
///
/// # Errors
/// Levels that cannot be read, or a log that is taken already.
pub fn start_log(logging: &Logging) -> Result<(), TelemetryError> {
    let filter = EnvFilter::try_new(format!("{QUIET},{}", logging.log))
        .map_err(|why| TelemetryError::Levels { levels: logging.log.clone(), text: why.to_string() })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // A line that cannot be written, on a full disk, is lost: saying so on the same standard error would end its task.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match logging.log_format {
        LogFormat::Human => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    }
    .map_err(|_| TelemetryError::Twice)
}

/// Collects the process's numbers; `/metrics` shows them.
///
/// # Errors
/// A recorder that is installed already.
pub fn start_metrics() -> Result<PrometheusHandle, TelemetryError> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)
        .map_err(|_| TelemetryError::Twice)?
        .install_recorder()
        .map_err(|_| TelemetryError::Twice)?;
    metrics::describe_counter!(
        "holdfast_http_requests_total",
        "Requests answered, by route, method and status"
    );
    metrics::describe_histogram!(
        "holdfast_http_request_seconds",
        "Time to the head of an answer, by route and method"
    );
    metrics::describe_gauge!("holdfast_streams", "Open live streams");
    metrics::describe_gauge!("holdfast_jobs", "Jobs, by view of their list");
    metrics::describe_gauge!("holdfast_leader", "1 while this server leads");
    metrics::describe_gauge!(
        "holdfast_cluster_up",
        "1 while a configured cluster can be watched, in one of its namespaces at least, by cluster"
    );
    metrics::describe_gauge!("holdfast_cluster_jobs", "Jobs that the driver acts on or watches, by cluster");
    metrics::describe_gauge!(
        "holdfast_cluster_time_seconds",
        "Accelerator-seconds that jobs held in the last 7 days, by cluster and use; ETTR is kept of all"
    );
    metrics::describe_gauge!(
        "holdfast_jobs_without_cluster",
        "The same on clusters that are not configured here"
    );
    metrics::describe_counter!(
        "holdfast_cluster_failures_total",
        "Calls of the driver to a cluster that were not answered, by cluster"
    );
    metrics::describe_gauge!(
        "holdfast_stray_attempts",
        "Attempts on a cluster that no live job stands for, by cluster"
    );
    metrics::describe_gauge!("holdfast_driver_jobs", "Jobs that this server drives while it leads");
    metrics::describe_counter!("holdfast_driver_steps_total", "Steps of the driver, by outcome");
    metrics::describe_counter!("holdfast_driver_inputs_total", "What steps of the driver took in");
    metrics::describe_counter!("holdfast_driver_failures_total", "Failures of the driver, by what failed");
    Ok(handle)
}
