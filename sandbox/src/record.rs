//! `record`: process 1 of the recorder container. It stays, so that the log can be read by exec whatever becomes of the agent.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    thread,
    time::Duration,
};

use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::{files, say};

/// How often the release is looked for.
const LOOK: Duration = Duration::from_millis(100);
/// What an answer to the release needs to get out: the exec that carried it ends with this process.
const ANSWER: Duration = Duration::from_millis(100);

/// Why the recorder cannot stay.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// SIGTERM cannot be ignored.
    #[error("signals cannot be handled")]
    Signals(#[source] io::Error),
}

/// Stay until released, so that the log can be read by exec.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Ignores SIGTERM and SIGINT: only the release, or SIGKILL at the end of the grace period, ends it.\nExits 0 within 300 ms \
of `deliver --release`."
)]
pub struct Options {
    /// Directory in which the release appears.
    #[arg(long, value_name = "DIR", default_value = files::INBOX)]
    pub inbox: PathBuf,
}

/// Stays until released.
///
/// # Errors
/// When signals cannot be handled.
pub fn run(options: &Options) -> Result<(), Error> {
    // Handlers, because process 1 of a container and a process in a shell differ in what they ignore by default.
    let heard = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&heard)).map_err(Error::Signals)?;
    }
    say("the recorder stays until it is released");
    while !is_released(&options.inbox) {
        thread::sleep(LOOK);
    }
    thread::sleep(ANSWER);
    Ok(())
}

fn is_released(inbox: &Path) -> bool {
    fs::symlink_metadata(inbox.join(files::RELEASE)).is_ok_and(|file| file.is_file())
}
