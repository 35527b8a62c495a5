//! A Postgres server of a test's own, which can be stopped, started again and made read-only.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;

use crate::{
    cluster::run,
    process::{Process, free_port},
    test::Test,
    wait::eventually,
};

/// How long a server may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running server.
pub struct Postgres {
    process: Process,
    log: PathBuf,
    data: tempfile::TempDir,
    port: u16,
}

impl Postgres {
    /// Makes a database and serves it on loopback.
    ///
    /// # Errors
    /// When Postgres is not installed or does not start.
    pub async fn start(test: &Test) -> Result<Self> {
        let data = tempfile::Builder::new().prefix("agentsession-postgres").tempdir()?;
        let path = data.path().display().to_string();
        if is_root() {
            let mut chown = Command::new("chown");
            chown.args(["postgres", &path]);
            ensure!(run(chown, None).await?.ok, "there is no user postgres: run make deps");
        }
        let mut initdb = tool("initdb")?;
        initdb.args(["--pgdata", &path, "--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-sync"]);
        let said = run(initdb, None).await?;
        ensure!(said.ok, "initdb: {}", said.err);
        let port = free_port()?;
        let log = test.next_log("postgres");
        let postgres = Self { process: Self::serve(&path, port, &log)?, log, data, port };
        postgres.answers().await?;
        Ok(postgres)
    }

    /// Its URL, as `--store` takes it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Makes the schema, as an administrator does.
    ///
    /// # Errors
    /// What `migrate` says.
    pub async fn migrate(&self) -> Result<()> {
        let said = crate::operator::command(&["migrate", "--store", &self.url()], &[]).await?;
        ensure!(said.ok, "migrate: {}", said.err);
        Ok(())
    }

    /// Stops the server.
    ///
    /// # Errors
    /// When it does not stop.
    pub async fn down(&mut self) -> Result<()> {
        // SIGINT: connections are cut, and what is committed is kept.
        self.process.signal("INT").await?;
        self.process.wait(PATIENCE).await?;
        Ok(())
    }

    /// Starts it again.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn up(&mut self) -> Result<()> {
        self.process =
            Self::serve(&self.data.path().display().to_string(), self.port, &self.log.with_extension("again.log"))?;
        self.answers().await
    }

    /// Makes new transactions read-only, or writable again.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn read_only(&self, on: bool) -> Result<()> {
        let setting = if on { "on" } else { "off" };
        self.sql(&format!("alter system set default_transaction_read_only = {setting}")).await?;
        self.sql("select pg_reload_conf()").await?;
        Ok(())
    }

    /// Runs a statement, also while the server is read-only.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn sql(&self, statement: &str) -> Result<String> {
        let mut psql = tool("psql")?;
        psql.env("PGOPTIONS", "-c default_transaction_read_only=off");
        psql.args([
            "--no-psqlrc",
            "--tuples-only",
            "--no-align",
            "--set=ON_ERROR_STOP=1",
            "--dbname",
            &self.url(),
            "--command",
            statement,
        ]);
        let said = run(psql, None).await?;
        ensure!(said.ok, "psql: {}", said.err);
        Ok(said.out.trim().to_owned())
    }

    fn serve(data: &str, port: u16, log: &std::path::Path) -> Result<Process> {
        let mut command = tool("postgres")?;
        command.args([
            "-D",
            data,
            "-p",
            &port.to_string(),
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "unix_socket_directories=",
        ]);
        Process::spawn(command, log)
    }

    async fn answers(&self) -> Result<()> {
        eventually("Postgres to answer", PATIENCE, async || Ok(self.sql("select 1").await? == "1")).await
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|data| std::os::unix::fs::MetadataExt::uid(&data) == 0)
}

/// A program of Postgres', which refuses to run as root.
fn tool(name: &str) -> Result<Command> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").context("Postgres is not installed: run make deps")?;
    let mut folders: Vec<PathBuf> = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin"))).collect();
    folders.sort();
    let program = folders.pop().context("Postgres is not installed: run make deps")?.join(name);
    if !is_root() {
        return Ok(Command::new(program));
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(program);
    Ok(command)
}
