//! `status.json`: written beside its place and moved there, on every change and now and then while a turn runs.

use std::{
    io,
    path::PathBuf,
    time::{Duration, Instant},
};

use transcript::AgentStatus;

use crate::{files, say};

/// How old the counts in the status may be while a turn runs: what a crash of the driver costs.
const REFRESH: Duration = Duration::from_millis(250);

/// The status as it should stand, and as it stands.
#[derive(Debug)]
pub struct StatusFile {
    path: PathBuf,
    written: Option<AgentStatus>,
    tried: Option<Instant>,
    complained: bool,
}

impl StatusFile {
    /// The status in this log directory.
    pub fn new(path: PathBuf) -> Self {
        Self { path, written: None, tried: None, complained: false }
    }

    /// Writes the status when it changed; counts alone at most every 250 ms. A write that fails (a full disk) is tried again at
    /// the same pace: the last status stands until then.
    pub fn keep(&mut self, status: &AgentStatus, now: Instant) {
        if self.written.as_ref() == Some(status) {
            return;
        }
        let recent = self.tried.is_some_and(|tried| now.duration_since(tried) < REFRESH);
        let only_counts = self.written.as_ref().is_some_and(|written| {
            let counted = AgentStatus {
                parts: status.parts,
                log_bytes: status.log_bytes,
                usage: status.usage,
                ..written.clone()
            };
            counted == *status
        });
        if recent && (only_counts || self.complained) {
            return;
        }
        self.tried = Some(now);
        match self.write(status) {
            Ok(()) => {
                self.written = Some(status.clone());
                self.complained = false;
            }
            Err(error) => {
                if !self.complained {
                    say(&format!("cannot write {}: {error}; trying again", self.path.display()));
                }
                self.complained = true;
            }
        }
    }

    /// Whether what should stand does stand.
    pub fn stands(&self, status: &AgentStatus) -> bool {
        self.written.as_ref() == Some(status)
    }

    fn write(&self, status: &AgentStatus) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(status)?;
        bytes.push(b'\n');
        files::replace(&self.path, &bytes, 0o644)
    }
}
