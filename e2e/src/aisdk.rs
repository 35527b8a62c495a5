//! The real AI SDK as a reader of a stream: what `useChat` makes of it.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use tokio::{process::Command, sync::OnceCell};

use crate::cluster::{checkout, run};

/// The majors that must read every stream.
pub const MAJORS: [u32; 3] = [5, 6, 7];

/// Reads a stream by URL with one major. Returns the messages that the client ends up with.
///
/// # Errors
/// When the client ends in an error, or finds a fault that it passes over in silence.
pub async fn messages(major: u32, url: &str, token: &str) -> Result<Vec<Value>> {
    install().await?;
    let mut command = Command::new("node");
    command.current_dir(checkout().join("e2e/aisdk")).args(["check.mjs", "--timeout-ms", "60000", "--url", url]);
    command.args(["--sdk", &major.to_string(), "--header", &format!("authorization: Bearer {token}")]);
    let said = run(command, None).await?;
    let result: Value = serde_json::from_str(&said.out).with_context(|| format!("check.mjs: {}", said.err))?;
    ensure!(
        said.ok,
        "AI SDK {major}: status {}, error {}, problems {}",
        result["status"],
        result["error"],
        result["problems"]
    );
    match result["messages"].as_array() {
        Some(messages) => Ok(messages.clone()),
        None => bail!("AI SDK {major} has no messages"),
    }
}

async fn install() -> Result<()> {
    static INSTALLED: OnceCell<()> = OnceCell::const_new();
    let install = async || {
        let folder = checkout().join("e2e/aisdk");
        if folder.join("node_modules/.package-lock.json").exists() {
            return Ok(());
        }
        let mut command = Command::new("npm");
        command.current_dir(folder).args(["ci", "--no-audit", "--no-fund"]);
        let said = run(command, None).await?;
        ensure!(said.ok, "npm ci: {}", said.err);
        Ok(())
    };
    INSTALLED.get_or_try_init(install).await.map(|&()| ())
}
