//! The operator as a process on this host, for one test's namespace.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail};
use tokio::process::Command;

use crate::{
    cluster::{Said, checkout},
    process::{Process, free_port},
    test::Test,
    wait::await_condition,
};

/// How long the operator may take to be ready.
const READY: Duration = Duration::from_secs(30);

/// Which of the program's long-running commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Controller and gateway in one.
    Serve,
    /// The controller alone.
    Controller,
    /// The gateway alone.
    Gateway,
}

impl Role {
    fn command(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::Controller => "controller",
            Self::Gateway => "gateway",
        }
    }
}

/// How to start an operator.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which command.
    pub role: Role,
    /// Its store, as `--store` takes it.
    pub store: String,
    /// The cluster as it sees it: a kubeconfig that may lead through a proxy.
    pub kubeconfig: PathBuf,
    /// Further arguments.
    pub arguments: Vec<String>,
    /// Further environment, such as a failpoint; it comes last and may say `AGENTSESSION_LOG_FORMAT` otherwise.
    pub environment: Vec<(String, String)>,
}

impl Settings {
    /// Another command.
    #[must_use]
    pub fn role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    /// Another store.
    #[must_use]
    pub fn store(mut self, url: &str) -> Self {
        url.clone_into(&mut self.store);
        self
    }

    /// Another way to the cluster.
    #[must_use]
    pub fn through(mut self, kubeconfig: &std::path::Path) -> Self {
        kubeconfig.clone_into(&mut self.kubeconfig);
        self
    }

    /// One more argument.
    #[must_use]
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// One more variable.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The controller kills itself when it comes to this point, `<effect>:before` or `<effect>:after`.
    #[must_use]
    pub fn failpoint(self, point: &str) -> Self {
        self.variable("AGENTSESSION_FAILPOINT", point)
    }
}

/// A running operator.
#[derive(Debug)]
pub struct Operator {
    /// The process.
    pub process: Process,
    /// Where its gateway listens.
    pub http: String,
    /// Where `/livez`, `/readyz` and `/metrics` are.
    pub ops: String,
    /// How it was started.
    pub settings: Settings,
}

impl Operator {
    /// Starts it and waits until it is ready.
    ///
    /// # Errors
    /// When it ends or is not ready in time; with its last words.
    pub async fn start(test: &Test, settings: Settings) -> Result<Self> {
        let mut operator = Self::spawn(test, settings)?;
        operator.ready().await?;
        Ok(operator)
    }

    /// Starts it and does not wait.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn spawn(test: &Test, settings: Settings) -> Result<Self> {
        let (http, ops) = (format!("127.0.0.1:{}", free_port()?), format!("127.0.0.1:{}", free_port()?));
        let mut command = Command::new(program());
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("KUBECONFIG", &settings.kubeconfig)
            .env("AGENTSESSION_LOG_FORMAT", "text")
            .envs(settings.environment.iter().map(|(name, value)| (name, value)))
            .arg(settings.role.command())
            .args(["--store", &settings.store])
            .args(["--ops-listen", &ops])
            .args(["--log", "info,agentsession=debug,controller=debug,gateway=debug"]);
        if settings.role != Role::Controller {
            command.args(["--http-listen", &http]);
        }
        if settings.role != Role::Gateway {
            command.args(["--sandbox-image", crate::test::SANDBOX_IMAGE]);
            command.args(["--watch-namespaces", &test.namespace, "--namespace", &test.namespace]);
            command.args(["--operator-key-file", &test.key_file().display().to_string()]);
        }
        command.args(&settings.arguments);
        let process = Process::spawn(command, &test.next_log("operator"))?;
        Ok(Self { process, http: format!("http://{http}"), ops: format!("http://{ops}"), settings })
    }

    /// Waits until it says that it is ready.
    ///
    /// # Errors
    /// When it ends or is not ready in time; with its last words.
    pub async fn ready(&mut self) -> Result<()> {
        let url = format!("{}/readyz", self.ops);
        let waited = await_condition("the operator to be ready", READY, async || {
            if !self.process.runs() {
                return Ok(Some(false));
            }
            Ok((crate::replay::get(&url, None).await?.status == 200).then_some(true))
        });
        match waited.await {
            Ok(true) => Ok(()),
            Ok(false) => bail!("the operator ended:\n{}", self.process.last_words(30)),
            Err(error) => Err(error.context(self.process.last_words(30))),
        }
    }

    /// Kills it and starts another with the same settings, without its failpoint.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn restart(&mut self, test: &Test) -> Result<()> {
        if self.process.runs() {
            self.process.kill().await?;
        }
        let mut settings = self.settings.clone();
        settings.environment.retain(|(name, _)| name != "AGENTSESSION_FAILPOINT");
        *self = Self::start(test, settings).await?;
        Ok(())
    }

    /// The value of a metric, summed over its labels; 0 when there is none.
    ///
    /// # Errors
    /// When the operator does not answer.
    pub async fn metric(&self, name: &str) -> Result<f64> {
        let text = crate::replay::get(&format!("{}/metrics", self.ops), None).await?.text();
        let samples =
            text.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
        Ok(samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }
}

/// The program under test.
#[must_use]
pub fn program() -> PathBuf {
    let default = || {
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| checkout().join("target"), PathBuf::from);
        target.join("e2e/agentsession")
    };
    std::env::var_os("AGENTSESSION_PROGRAM").map_or_else(default, PathBuf::from)
}

/// Runs a short command of the program, such as `migrate` or `crd`.
///
/// # Errors
/// When it cannot be run; that it failed is in what it said.
pub async fn command(arguments: &[&str], environment: &[(&str, &str)]) -> Result<Said> {
    let mut command = Command::new(program());
    command.args(arguments).envs(environment.iter().copied());
    crate::cluster::run(command, None).await.context("build it with: e2e/operator-build")
}
