//! Programs that a test starts, pauses and kills.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use tokio::process::{Child, Command};

/// A process with its log. It dies with this value.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Where its stdout and stderr go.
    pub log: PathBuf,
}

impl Process {
    /// Starts a program.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(mut command: Command, log: &Path) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).kill_on_drop(true);
        let name = command.as_std().get_program().to_string_lossy().into_owned();
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// Its id; `None` when it has ended and was waited for.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Sends a signal by name, such as `STOP`.
    ///
    /// # Errors
    /// When the process has ended.
    pub async fn signal(&self, name: &str) -> Result<()> {
        let Some(pid) = self.child.id() else { bail!("the process has ended") };
        let status = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status().await?;
        if !status.success() {
            bail!("kill -{name} {pid} failed");
        }
        Ok(())
    }

    /// Ends it with SIGKILL and waits for its end.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub async fn kill(&mut self) -> Result<()> {
        self.child.kill().await.context("cannot kill")
    }

    /// Asks it to end and waits. Returns its exit code.
    ///
    /// # Errors
    /// When it does not end in time.
    pub async fn terminate(&mut self, timeout: Duration) -> Result<Option<i32>> {
        self.signal("TERM").await?;
        self.wait(timeout).await
    }

    /// Waits for its end. Returns its exit code; `None` when a signal ended it.
    ///
    /// # Errors
    /// When it does not end in time.
    pub async fn wait(&mut self, timeout: Duration) -> Result<Option<i32>> {
        let ended = tokio::time::timeout(timeout, self.child.wait()).await;
        Ok(ended.with_context(|| format!("the process still runs after {} s", timeout.as_secs()))??.code())
    }

    /// Whether it runs.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// What it has written.
    #[must_use]
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The last lines of what it has written.
    #[must_use]
    pub fn last_words(&self, lines: usize) -> String {
        let said = self.said();
        let all: Vec<_> = said.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }
}

/// A port of loopback that is free now.
///
/// # Errors
/// When there is none.
pub fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
