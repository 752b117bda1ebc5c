//! `holdfast-agent`: supervises the training processes of one replica.

mod capture;
mod checks;
mod clock;
mod config;
mod findings;
mod install;
mod launch;
mod lines;
mod log;
mod net;
mod notify;
mod outbox;
mod outcome;
mod pass;
mod probe;
mod running;
mod saving;
mod scan;
mod state;
mod supervise;
mod sync;
mod telemetry;
mod test_exit;
mod testing;
mod tree;
mod watch;

use std::process::ExitCode;

use clap::Parser;
use config::{Cli, Command, Config};

fn main() -> ExitCode {
    let args = match Cli::parse().command {
        Command::Run(args) => *args,
        Command::Preflight(args) => return checks::preflight::run(&args),
        Command::Probe(args) => return probe::run(&args),
        Command::Install { directory } => {
            telemetry::start(false);
            return match install::into(&directory) {
                Ok(_) => ExitCode::SUCCESS,
                Err(why) => refuse(&why.into(), 1),
            };
        }
        Command::TestExit(args) => {
            telemetry::start(false);
            return match runtime().map(|runtime| runtime.block_on(test_exit::run(&args))) {
                Ok(true) => ExitCode::SUCCESS,
                Ok(false) => ExitCode::FAILURE,
                Err(why) => refuse(&why.into(), 1),
            };
        }
    };
    telemetry::start(args.log_json);
    let config = match Config::new(args) {
        Ok(config) => config,
        Err(why) => return refuse(&why.into(), 2),
    };
    // The signatures are compiled while the server is asked for the first time, not when the first line waits for them.
    std::thread::spawn(engine::classify::Signatures::builtin);
    let code = match run(config) {
        Ok(code) => code,
        Err(why) if why.is::<state::Taken>() => return refuse(&why, 2),
        Err(why) => return refuse(&why, 1),
    };
    ExitCode::from(code)
}

/// Runs on one thread, the main one: the kernel kills a process whose parent *thread* ends, so nothing may be started
/// from a thread that can end before the agent.
fn run(config: Config) -> anyhow::Result<u8> {
    runtime()?.block_on(supervise::run(config))
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn refuse(why: &anyhow::Error, code: u8) -> ExitCode {
    tracing::error!("{why:#}");
    ExitCode::from(code)
}
