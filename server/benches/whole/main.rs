//! What people wait for, measured through the whole server: `cargo bench --workspace --bench whole [-- restart syncs list scale]`.
//!
//! `restart`: a rank dies; how long until all ranks run again. `syncs`: how many reports of agents a server takes, and what a waiting
//! one costs. `list`: how long the list of jobs takes to be filtered and rendered. `scale`: 500 jobs on Kubernetes. docs/performance.md
//! has figures.
//! Nothing here fails for being slow: the machine is shared, the figures are for people.

mod list;
mod restart;
mod scale;
mod support;
mod syncs;

#[path = "../../tests/databases/mod.rs"]
#[expect(clippy::unwrap_used, clippy::print_stdout, reason = "shared with the tests")]
mod databases;
#[path = "../../tests/system/harness.rs"]
#[expect(clippy::unwrap_used, dead_code, reason = "shared with the tests, which use all of it")]
mod harness;
#[path = "../../tests/cluster/jobs.rs"]
#[expect(clippy::unwrap_used, dead_code, reason = "shared with the tests, which use all of it")]
mod jobs;
#[path = "../../tests/cluster/harness.rs"]
#[expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    dead_code,
    reason = "shared with the tests, which use all of it"
)]
mod kubernetes;
#[path = "../../tests/samples/mod.rs"]
#[expect(clippy::unwrap_used, dead_code, reason = "shared with the tests, which use all of it")]
mod samples;
#[path = "../../tests/simulated/mod.rs"]
#[expect(clippy::unwrap_used, reason = "shared with the tests")]
mod simulated;

use std::env;

use support::Outcome;

/// A measurement by its name.
type Measurement = (&'static str, fn() -> Outcome<()>);

const ALL: [Measurement; 4] =
    [("restart", restart::run), ("syncs", syncs::run), ("list", list::run), ("scale", scale::run)];

fn main() -> Outcome<()> {
    // cargo adds `--bench`.
    let asked: Vec<_> = env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    if let [syncs::CLIENT, rest @ ..] = asked.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        return syncs::client(rest);
    }
    if asked.iter().any(|asked| asked == scale::INSIDE) {
        return scale::inside();
    }
    for (name, run) in ALL {
        if asked.is_empty() || asked.iter().any(|asked| asked == name) {
            run()?;
        }
    }
    Ok(())
}
