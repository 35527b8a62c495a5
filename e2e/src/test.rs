//! One test: a namespace of its own, and what is left of it when it fails.

use std::{
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context as _, Result, anyhow};
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::{
    cluster::{Cluster, checkout},
    operator::{Operator, Role, Settings},
    session::{Draft, Session},
    wait::{eventually, seconds},
};

/// The program that runs inside agent Pods.
pub const SANDBOX_IMAGE: &str = "localhost/agentsession-sandbox:dev";
/// The scripted agent.
pub const AGENT_IMAGE: &str = "localhost/agentsession-agent:dev";

/// What a test has to itself.
pub struct Test {
    /// The cluster, shared with other tests.
    pub cluster: Cluster,
    /// The namespace, its own.
    pub namespace: String,
    /// A folder for logs and databases; kept when the test fails.
    pub dir: PathBuf,
    files: AtomicU32,
}

/// Runs a test in a namespace of its own and cleans up after it.
///
/// # Panics
/// When the test fails: that is how a test says so.
#[expect(clippy::panic, reason = "a test fails by panicking")]
pub async fn run(name: &str, test: impl AsyncFnOnce(&Test) -> Result<()>) {
    if let Err(error) = attempt(name, test).await {
        panic!("{name}: {error:#}");
    }
}

/// Does something in a namespace of its own and cleans up after it, whatever came of it.
///
/// # Errors
/// What went wrong, and where everything that was there has been written down.
pub async fn attempt<T>(name: &str, work: impl AsyncFnOnce(&Test) -> Result<T>) -> Result<T> {
    let fixture = Test::new(name).await.context("it could not begin")?;
    let result = AssertUnwindSafe(work(&fixture)).catch_unwind().await;
    let failed = !matches!(result, Ok(Ok(_)));
    if failed {
        fixture.dump().await;
    }
    fixture.clean_up(failed).await;
    match result {
        Ok(result) => result.map_err(|error| anyhow!("{error:#}\n(what was there: {})", fixture.dir.display())),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

impl Test {
    async fn new(name: &str) -> Result<Self> {
        let cluster = Cluster::connect().await?;
        install_crd(&cluster).await?;
        let namespace = format!("e2e-{name}-{:06x}", rand::random::<u32>() & 0xff_ffff);
        let dir = std::env::temp_dir().join("agentsession-e2e").join(&namespace);
        std::fs::create_dir_all(&dir)?;
        let object: Namespace = serde_json::from_value(json!({
            "metadata": {"name": namespace, "labels": {
                "agentsession.dev/e2e": "true",
                // Every agent Pod of every test must fit under the strictest standard.
                "pod-security.kubernetes.io/enforce": "restricted",
            }},
        }))?;
        Api::<Namespace>::all(cluster.client.clone()).create(&PostParams::default(), &object).await?;
        let test = Self { cluster, namespace, dir, files: AtomicU32::new(0) };
        std::fs::write(test.key_file(), rand::random::<[u8; 32]>())?;
        let account = ["-n", &test.namespace, "get", "serviceaccount", "default"];
        eventually("the namespace's service account", seconds(30), async || {
            Ok(test.cluster.kubectl(&account, None).await?.ok)
        })
        .await?;
        Ok(test)
    }

    /// The operator's key.
    #[must_use]
    pub fn key_file(&self) -> PathBuf {
        self.dir.join("operator.key")
    }

    /// A new file for a log.
    #[must_use]
    pub fn next_log(&self, what: &str) -> PathBuf {
        self.dir.join(format!("{what}-{}.log", self.files.fetch_add(1, Ordering::Relaxed)))
    }

    /// The store of the default operator: a SQLite file in the test's folder.
    #[must_use]
    pub fn sqlite(&self) -> String {
        format!("sqlite://{}", self.dir.join("store.db").display())
    }

    /// How the default operator is started: controller and gateway over SQLite.
    #[must_use]
    pub fn settings(&self) -> Settings {
        Settings {
            role: Role::Serve,
            store: self.sqlite(),
            kubeconfig: self.cluster.kubeconfig.clone(),
            arguments: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// Starts the default operator.
    ///
    /// # Errors
    /// As [`Operator::start`].
    pub async fn operator(&self) -> Result<Operator> {
        Operator::start(self, self.settings()).await
    }

    /// Applies a session as a user would.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn apply(&self, draft: Draft) -> Result<Session> {
        Session::apply(self, draft).await
    }

    /// Runs kubectl in the test's namespace; it must succeed.
    ///
    /// # Errors
    /// What it wrote to stderr.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.cluster.kubectl_ok(&[&["-n", &self.namespace], arguments].concat(), None).await
    }

    /// Applies objects in the test's namespace.
    ///
    /// # Errors
    /// What kubectl wrote to stderr.
    pub async fn apply_yaml(&self, yaml: &str) -> Result<()> {
        self.cluster.kubectl_ok(&["-n", &self.namespace, "apply", "-f", "-"], Some(yaml)).await.map(drop)
    }

    /// Writes down what the namespace holds, and says the most of it.
    async fn dump(&self) {
        let sections: [&[&str]; 5] = [
            &["get", "agentsessions,pods,events", "-o", "wide"],
            &["get", "agentsessions,pods", "-o", "yaml"],
            &["describe", "pods"],
            &[
                "logs",
                "--selector=app.kubernetes.io/managed-by=agentsession",
                "--all-containers",
                "--prefix",
                "--tail=200",
            ],
            &["get", "networkpolicies,persistentvolumeclaims,leases", "-o", "yaml"],
        ];
        let mut text = String::new();
        for (at, section) in sections.iter().enumerate() {
            let said = self.cluster.kubectl(&[&["-n", &self.namespace], *section].concat(), None).await;
            let said = said.map_or_else(|error| format!("{error:#}"), |said| said.out + &said.err);
            if at == 0 {
                eprintln!("--- {} ---\n{said}", self.namespace);
            }
            text += &format!("--- kubectl {} ---\n{said}\n", section.join(" "));
        }
        if let Err(error) = std::fs::write(self.dir.join("namespace.txt"), text) {
            eprintln!("cannot write down the namespace: {error}");
        }
        for log in logs(&self.dir) {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            let lines: Vec<_> = said.lines().collect();
            eprintln!("--- {} ---\n{}", log.display(), lines[lines.len().saturating_sub(40)..].join("\n"));
        }
    }

    /// Takes the finalizers off all objects of a kind: there may be thousands, so some at once.
    async fn strip(&self, kind: &ApiResource) -> Result<(), kube::Error> {
        let api: Api<DynamicObject> = Api::namespaced_with(self.cluster.client.clone(), &self.namespace, kind);
        let objects = api.list_metadata(&ListParams::default()).await?.items.into_iter();
        let held = objects.filter(|object| !object.finalizers().is_empty()).map(|object| object.name_any());
        let strip = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        let params = PatchParams::default();
        // One that is gone in the meantime has none left.
        let patches = held.map(async |name| drop(api.patch_metadata(&name, &params, &strip).await));
        futures::stream::iter(patches).buffer_unordered(16).collect::<()>().await;
        Ok(())
    }

    /// Deletes the namespace without waiting. The operator may be gone by now, so nobody else would take the finalizers off.
    async fn clean_up(&self, failed: bool) {
        for kind in [Cluster::agent_sessions(), ApiResource::erase::<Pod>(&())] {
            if let Err(error) = self.strip(&kind).await {
                eprintln!("finalizers of {} in {}: {error}", kind.plural, self.namespace);
            }
        }
        let pods: Api<Pod> = Api::namespaced(self.cluster.client.clone(), &self.namespace);
        let by_force = DeleteParams::default().grace_period(0);
        if let Err(error) = pods.delete_collection(&by_force, &ListParams::default()).await {
            eprintln!("pods of {}: {error}", self.namespace);
        }
        let namespaces: Api<Namespace> = Api::all(self.cluster.client.clone());
        if let Err(error) = namespaces.delete(&self.namespace, &DeleteParams::default()).await {
            // A test may have deleted it itself.
            eprintln!("namespace {}: {error}", self.namespace);
        }
        if !failed {
            std::fs::remove_dir_all(&self.dir).ok();
        }
    }
}

fn logs(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten();
    let mut logs: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    logs.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    logs.sort();
    logs
}

/// Installs the CRD of this checkout, once a process.
async fn install_crd(cluster: &Cluster) -> Result<()> {
    static INSTALLED: OnceCell<()> = OnceCell::const_new();
    let install = async || {
        let file = checkout().join("crds/agentsession.dev_agentsessions.yaml");
        let yaml = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        cluster.kubectl_ok(&["apply", "--server-side", "--force-conflicts", "-f", "-"], Some(&yaml)).await?;
        let name = format!("crd/{}.{}", crds::names::PLURAL, crds::names::GROUP);
        cluster.kubectl_ok(&["wait", "--for=condition=Established", &name, "--timeout=30s"], None).await?;
        anyhow::Ok(())
    };
    INSTALLED.get_or_try_init(install).await.map(|&()| ())
}
