//! The cluster: the one that `KUBECONFIG` names, else the project's own.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, Config,
    api::{ApiResource, ListParams, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::GroupVersionKind,
};
use serde_json::json;
use tokio::{io::AsyncWriteExt as _, process::Command};

/// Taint of the node that tests may destroy, so that no other Pod is there.
pub const SPARE_TAINT: &str = "agentsession.dev/spare";

/// A cluster and how to reach it.
#[derive(Clone)]
pub struct Cluster {
    /// Client with the rights of the kubeconfig.
    pub client: Client,
    /// The file.
    pub kubeconfig: PathBuf,
    /// Everything that the client was made from.
    pub config: Config,
}

/// What a program said.
#[derive(Clone, Debug)]
pub struct Said {
    /// Whether it exited with 0.
    pub ok: bool,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Cluster {
    /// Connects.
    ///
    /// # Errors
    /// When there is no kubeconfig or the cluster does not answer.
    pub async fn connect() -> Result<Self> {
        let kubeconfig = std::env::var_os("KUBECONFIG").map_or_else(|| state_dir().join("kubeconfig"), PathBuf::from);
        Self::from_file(&kubeconfig).await
    }

    /// Connects by a file.
    ///
    /// # Errors
    /// When the file cannot be used or the cluster does not answer.
    pub async fn from_file(kubeconfig: &Path) -> Result<Self> {
        // Another test of this process may have installed it already.
        rustls::crypto::ring::default_provider().install_default().ok();
        let file = Kubeconfig::read_from(kubeconfig)
            .with_context(|| format!("no cluster: cannot read {}", kubeconfig.display()))?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config.clone())?;
        client.apiserver_version().await.context("the cluster does not answer")?;
        Ok(Self { client, kubeconfig: kubeconfig.to_owned(), config })
    }

    /// AgentSessions as plain objects: a test sees what a user sees, by the names of the wire.
    #[must_use]
    pub fn agent_sessions() -> ApiResource {
        let kind = GroupVersionKind::gvk(crds::names::GROUP, crds::names::VERSION, crds::names::KIND);
        ApiResource::from_gvk_with_plural(&kind, crds::names::PLURAL)
    }

    /// Whether this is the project's own cluster, whose nodes may be destroyed.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.kubeconfig.starts_with(state_dir())
    }

    /// Runs kubectl.
    ///
    /// # Errors
    /// When it cannot be run; that it failed is in what it said.
    pub async fn kubectl(&self, arguments: &[&str], stdin: Option<&str>) -> Result<Said> {
        let mut command = Command::new(program("kubectl"));
        command.env("KUBECONFIG", &self.kubeconfig).args(arguments);
        run(command, stdin).await
    }

    /// Runs kubectl, which must succeed. Returns its output.
    ///
    /// # Errors
    /// What it wrote to stderr.
    pub async fn kubectl_ok(&self, arguments: &[&str], stdin: Option<&str>) -> Result<String> {
        let said = self.kubectl(arguments, stdin).await?;
        if !said.ok {
            bail!("kubectl {}: {}", arguments.join(" "), said.err.trim());
        }
        Ok(said.out)
    }

    /// The node that tests may destroy: the last of several. It is tainted, so that only Pods that tolerate [`SPARE_TAINT`] are there.
    ///
    /// # Errors
    /// When there is only one node.
    pub async fn spare_node(&self) -> Result<String> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let mut names: Vec<_> =
            nodes.list(&ListParams::default()).await?.items.into_iter().filter_map(|node| node.metadata.name).collect();
        names.sort();
        let Some(spare) = names.pop().filter(|_| !names.is_empty()) else {
            bail!("only one node: bring the cluster up with CLUSTER_NODES=2");
        };
        let taint = json!({"spec": {"taints": [{"key": SPARE_TAINT, "effect": "NoExecute"}]}});
        nodes.patch(&spare, &PatchParams::default(), &Patch::Strategic(taint)).await?;
        Ok(spare)
    }
}

/// Runs a program with these bytes on its stdin.
///
/// # Errors
/// When it cannot be run.
pub async fn run(mut command: Command, stdin: Option<&str>) -> Result<Said> {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    let input = if stdin.is_some() { Stdio::piped() } else { Stdio::null() };
    command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().with_context(|| format!("cannot run {name}"))?;
    if let (Some(text), Some(mut pipe)) = (stdin, child.stdin.take()) {
        let text = text.to_owned();
        // A program that does not read all of it is not at fault.
        tokio::spawn(async move { pipe.write_all(text.as_bytes()).await.ok() });
    }
    let output = child.wait_with_output().await.with_context(|| format!("cannot wait for {name}"))?;
    Ok(Said {
        ok: output.status.success(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Where the project's own cluster keeps everything.
#[must_use]
pub fn state_dir() -> PathBuf {
    std::env::var_os("CLUSTER_DIR").map_or_else(|| PathBuf::from("/var/tmp/agentsession-cluster"), PathBuf::from)
}

/// A program of the cluster's own when it is there, else the one on the path.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let programs = std::env::var_os("CLUSTER_BIN").map_or_else(|| state_dir().join("bin"), PathBuf::from);
    let own = programs.join(name);
    if own.exists() { own } else { PathBuf::from(name) }
}

/// The checkout.
#[must_use]
pub fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_owned)
}
