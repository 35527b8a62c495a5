//! `drive`: process 1 of the agent container. Starts the agent, gives it the turns that are delivered, writes down what it says.
//!
//! `agent` (the process and its pipes) → `rpc` (lines, messages) → `driver` (what to do next) → `map`, `tool` (parts) → `log`,
//! `status` (files). One thread decides; the others only read and write pipes.

pub mod agent;
pub mod driver;
pub mod early;
pub mod inbox;
pub mod log;
pub mod map;
#[cfg(test)]
mod mapping_tests;
pub mod oom;
pub mod rpc;
pub mod run;
pub mod status;
pub mod tool;

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use rustix::{fs::Mode, process};
use signal_hook::{
    consts::{SIGCHLD, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::{clock, files, say};
use driver::Driver;
use rpc::Line;

/// How often the inbox and the deadlines are looked at.
const TICK: Duration = Duration::from_millis(50);
/// Batches of lines that wait for the driver: bounded, so that an agent that writes faster than the disk is slowed down.
const EVENTS: usize = 4;

/// Why the driver could not run at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The number of the attempt is neither in the flag nor in the environment.
    #[error("AGENTSESSION_ATTEMPT is {0:?}; set it to the number of this attempt, or give --attempt")]
    Attempt(String),
    /// Signals cannot be received.
    #[error("signals cannot be received")]
    Signals(#[source] std::io::Error),
    /// Orphans cannot be collected.
    #[error("orphaned processes cannot be collected")]
    Subreaper(#[source] std::io::Error),
    /// A thread cannot be started.
    #[error("a thread cannot be started")]
    Thread(#[source] std::io::Error),
}

/// Runs the agent and writes its log.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Exits 0 when it was stopped by SIGTERM or SIGINT and its last status stands, 1 when that status could not be written."
)]
pub struct Options {
    /// The agent: a command that speaks the Agent Client Protocol on stdin and stdout.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Directory for turn-<N>.jsonl and status.json.
    #[arg(long, value_name = "DIR", default_value = files::LOG)]
    pub log: PathBuf,
    /// Directory in which prompts and orders to cancel arrive.
    #[arg(long, value_name = "DIR", default_value = files::INBOX)]
    pub inbox: PathBuf,
    /// Working directory of the agent.
    #[arg(long, value_name = "DIR", default_value = files::WORKSPACE)]
    pub cwd: PathBuf,
    /// Number of this attempt; AGENTSESSION_ATTEMPT of the environment when not given.
    #[arg(long, value_name = "N")]
    pub attempt: Option<u32>,
    /// How long the agent may take to be ready for its first turn.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = clock::duration)]
    pub start_timeout: Duration,
    /// How long a cancelled turn, or an agent that is told to stop, may take before it is killed.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = clock::duration)]
    pub grace: Duration,
    /// Where control groups are mounted.
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/cgroup", hide = true)]
    pub cgroup: PathBuf,
}

/// What the driver's threads tell it.
#[derive(Debug)]
pub enum Event {
    /// Lines of the agent.
    Lines(Vec<Line>),
    /// The agent's stdout has ended.
    StdoutEnded,
    /// A signal arrived.
    Signal(i32),
}

/// Runs until it is told to stop.
///
/// # Errors
/// When it cannot run at all; what goes wrong with the agent stands in the status instead.
pub fn run(options: Options) -> Result<ExitCode, Error> {
    let attempt = attempt(&options)?;
    process::umask(Mode::from_raw_mode(0o022));
    process::set_child_subreaper(Some(process::getpid())).map_err(|e| Error::Subreaper(e.into()))?;
    let (sender, events) = sync_channel(EVENTS);
    // Before the first child, so that its end is not missed.
    listen(sender.clone())?;
    let mut driver = Driver::start(options, attempt, &sender);
    loop {
        let now = Instant::now();
        match events.recv_timeout(driver.wait(now).min(TICK)) {
            Ok(event) => driver.handle(event),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        if let Some(code) = driver.tick(Instant::now()) {
            return Ok(code);
        }
    }
}

fn attempt(options: &Options) -> Result<u32, Error> {
    if let Some(attempt) = options.attempt {
        return Ok(attempt);
    }
    let value = std::env::var("AGENTSESSION_ATTEMPT").unwrap_or_default();
    value.parse().map_err(|_| Error::Attempt(value))
}

fn listen(events: SyncSender<Event>) -> Result<(), Error> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGCHLD]).map_err(Error::Signals)?;
    let forward = move || {
        for signal in signals.forever() {
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
        say("no more signals are received");
    };
    thread::Builder::new().name("signals".into()).spawn(forward).map_err(Error::Thread)?;
    Ok(())
}
