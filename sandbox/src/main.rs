//! What runs inside agent Pods: install, drive, record, read, deliver. One small static program.
//!
//! `install` puts it into the agent container; there `drive` runs the agent and writes the log. In the recorder container `record`
//! stays, and `read` and `deliver` are called by exec. The log volume is the only thing between the two.

mod clock;
mod deliver;
mod drive;
mod files;
mod install;
mod json;
mod part;
mod peer;
mod read;
mod record;

use std::{
    error::Error,
    io::{self, Write},
    process::ExitCode,
};

use clap::{Parser, Subcommand};

/// Exit code when the other side of an exec took too long.
const HELD_TOO_LONG: u8 = 3;
/// Exit code when the log was replaced or became shorter while it was read.
const LOG_CHANGED: u8 = 4;

/// What runs inside agent Pods.
#[derive(Debug, Parser)]
#[command(name = "agentsession-sandbox", version, after_help = "Every command exits 2 when it is called wrongly.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Install(install::Options),
    Drive(drive::Options),
    Record(record::Options),
    Read(read::Options),
    Deliver(deliver::Options),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Install(options) => install::run(&options).map_err(|e| fail(&e)),
        Command::Record(options) => record::run(&options).map_err(|e| fail(&e)),
        Command::Deliver(options) => deliver::run(&options).map_err(|e| fail(&e)),
        Command::Read(options) => read::run(&options).map_err(|e| {
            let code = fail(&e);
            if matches!(e, read::Error::Replaced | read::Error::Shrunk) { ExitCode::from(LOG_CHANGED) } else { code }
        }),
        Command::Drive(options) => return drive::run(options).unwrap_or_else(|e| fail(&e)),
    };
    done.err().unwrap_or(ExitCode::SUCCESS)
}

fn fail(error: &dyn Error) -> ExitCode {
    say(&chain(error));
    ExitCode::FAILURE
}

/// An error with its causes, in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Says something in the container's log. That nobody can hear it changes nothing.
fn say(text: &str) {
    let _ = writeln!(io::stderr(), "agentsession: {text}");
}
