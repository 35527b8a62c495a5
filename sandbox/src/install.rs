//! `install`: this program into the volume that it shares with the agent container, whose image does not have it.

use std::{fs, io, path::PathBuf};

use clap::Args;

use crate::files;

/// Its name there.
const NAME: &str = "agentsession-sandbox";

/// Why it could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program cannot read itself.
    #[error("this program cannot be read")]
    Read(#[source] io::Error),
    /// It cannot be written there.
    #[error("{} cannot be written", path.display())]
    Write {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Copy this program into a directory, as a whole or not at all.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Exits 0 when DIR/agentsession-sandbox is this program, with mode 0755; 1 when it could not be written."
)]
pub struct Options {
    /// The directory; it has to be there.
    #[arg(value_name = "DIR", default_value = files::BIN)]
    pub dir: PathBuf,
}

/// Installs.
///
/// # Errors
/// When the program cannot be read or written.
pub fn run(options: &Options) -> Result<(), Error> {
    let program = fs::read("/proc/self/exe").map_err(Error::Read)?;
    let path = options.dir.join(NAME);
    files::replace(&path, &program, 0o755).map_err(|source| Error::Write { path, source })
}
