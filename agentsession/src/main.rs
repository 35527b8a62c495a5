//! The operator: one program, a command for each role.
//!
//! `serve` is controller and gateway in one process (the small installation), `controller` and `gateway` are its halves, `migrate` owns the
//! schema, `crd` prints the CustomResourceDefinition, `release` lets sessions go before an uninstall.

mod cli;
mod commands;
mod logging;
mod roles;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    if let Err(error) = logging::init(&cli.log) {
        eprintln!("agentsession: {error:#}");
        return ExitCode::from(2);
    }
    match commands::run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "ended by an error");
            ExitCode::FAILURE
        }
    }
}
