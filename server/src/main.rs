//! The `holdfast` program: reads the command line and hands over.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use anyhow::Context;
use server::{
    accounts, classify,
    config::{self, Command, UsageError},
    serve, telemetry,
};

fn main() -> ExitCode {
    let cli = match config::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(UsageError::Flags(error)) => {
            // Help and version come this way too, and go to standard output. Nothing is left to be done if printing fails.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
        Err(error) => return fail(&error.into(), 2),
    };
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, 1),
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Serve(settings) => {
            telemetry::start_log(&settings.logging)?;
            let metrics = telemetry::start_metrics()?;
            runtime()?.block_on(serve::run(*settings, Some(metrics)))
        }
        Command::Classify(args) => {
            Ok(classify::run(&args, io::stdin().lock(), io::BufWriter::new(io::stdout().lock()))?)
        }
        Command::User(command) => {
            runtime()?.block_on(accounts::user(&command, io::stdin().lock(), io::stdout().lock()))
        }
        Command::Token(command) => runtime()?.block_on(accounts::token(&command, io::stdout().lock())),
    }
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")
}

/// One line: what failed and why.
fn fail(error: &anyhow::Error, code: u8) -> ExitCode {
    let _ = writeln!(io::stderr(), "holdfast: {error:#}");
    ExitCode::from(code)
}
