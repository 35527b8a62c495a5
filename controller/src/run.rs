//! Puts a controller together and runs it: election, watches, sweep, shutdown.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use controller_core::pod_spec::{Egress, NetworkSettings, PodSettings};
use crds::{PullPolicy, names};
use kube::Client;
use prometheus_client::registry::Registry;
use store::SharedStore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    args::{AgentEgress, Args},
    context::{Context, Looks},
    directory::Directory,
    exec::{ExecSettings, Execs, KubeExec},
    follow::{FollowSettings, Followers, SessionRef},
    harvest::{HarvestSettings, Harvester},
    index::PodIndex,
    key::{KeyError, OperatorKey},
    leader::{LeaderError, Leadership},
    memory::Memory,
    metrics::Metrics,
    ops::Check,
    sweep,
    watch::{self, Scope},
};

/// How often gauges are set.
const GAUGES: Duration = Duration::from_secs(5);

/// A controller that cannot run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A setting is none.
    #[error("{0}")]
    Setting(String),
    /// The operator's key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The election.
    #[error(transparent)]
    Leader(#[from] LeaderError),
    /// A part of the controller ended that must not.
    #[error("a part of the controller ended by itself; ending, so that a fresh process begins")]
    Ended,
}

/// A controller, ready to run.
pub struct Controller {
    args: Args,
    context: Context,
    scopes: Vec<(Scope, Arc<PodIndex>)>,
}

impl Controller {
    /// Puts a controller together.
    ///
    /// # Errors
    /// [`RunError::Setting`] and [`RunError::Key`].
    pub fn new(args: Args, client: Client, store: SharedStore, registry: &mut Registry) -> Result<Self, RunError> {
        let pod_settings = pod_settings(&args)?;
        let network_settings = network_settings(&args)?;
        let key = args.operator_key_file.as_deref().map(OperatorKey::read).transpose()?.map(Arc::new);
        let directory = Arc::new(Directory::default());
        let exec_settings = ExecSettings { concurrent: args.exec_concurrency, ..ExecSettings::default() };
        let execs = Execs::new(Arc::new(KubeExec::new(client.clone())), exec_settings);
        let harvest_settings =
            HarvestSettings { memory_bytes: args.harvest_memory_bytes, ..HarvestSettings::default() };
        let poked = Arc::clone(&directory);
        let followers = Followers::new(
            execs.clone(),
            Arc::clone(&store),
            FollowSettings::default(),
            move |session: &SessionRef| poked.poke_named(session),
        );
        let instance = std::env::var("HOSTNAME").unwrap_or_else(|_| names::MANAGER_CONTROLLER.to_owned());
        let context = Context {
            harvester: Harvester::new(execs.clone(), Arc::clone(&store), harvest_settings),
            instance: instance.into(),
            metrics: Metrics::new(registry),
            memory: Arc::new(Memory::default()),
            pods: Arc::new(PodIndex::default()),
            looks: Arc::new(Looks::default()),
            pod_settings: Arc::new(pod_settings),
            network_settings: Arc::new(network_settings),
            quota_bytes: args.session_quota_bytes,
            key,
            client,
            store,
            directory,
            execs,
            followers,
        };
        let namespaces = args.namespaces();
        let scopes = if namespaces.is_empty() {
            vec![Scope { namespace: None }]
        } else {
            namespaces.into_iter().map(|namespace| Scope { namespace: Some(namespace) }).collect()
        };
        let scopes = scopes.into_iter().map(|scope| (scope, Arc::new(PodIndex::default()))).collect();
        Ok(Self { args, context, scopes })
    }

    /// What `/readyz` asks: the store answers. A standby is ready, it only waits for the lease.
    #[must_use]
    pub fn checks(&self) -> Vec<(&'static str, Check)> {
        let store = Arc::clone(&self.context.store);
        let check: Check = Arc::new(move || {
            let store = Arc::clone(&store);
            Box::pin(async move { store.ping().await.map_err(|error| crate::exec::error_chain(&error)) })
        });
        vec![("store", check)]
    }

    /// Runs until shut down or until the lease is lost.
    ///
    /// # Errors
    /// [`RunError::Leader`].
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), RunError> {
        let leadership = self.lead(&shutdown).await?;
        let stop = shutdown.child_token();
        self.context.metrics.leader.set(1);
        let mut tasks = JoinSet::new();
        for (scope, pods) in &self.scopes {
            let context = Context { pods: Arc::clone(pods), ..self.context.clone() };
            tasks.spawn(watch::run(scope.clone(), context.clone(), stop.clone()));
            tasks.spawn(sweep::run(scope.clone(), context, stop.clone()));
        }
        tasks.spawn(gauges(self.context.clone(), stop.clone()));
        tracing::info!(store = self.context.store.backend(), scope.count = self.scopes.len(), "controller runs");

        let lost = async {
            match leadership {
                Some(leadership) => leadership.lost().await,
                None => std::future::pending().await,
            }
        };
        let result = tokio::select! {
            () = shutdown.cancelled() => Ok(()),
            lost = lost => Err(lost.into()),
            // None ends before it is told to, but by a panic: a process that leads and is deaf is worse than none.
            _ = tasks.join_next() => Err(RunError::Ended),
        };
        self.context.metrics.leader.set(0);
        stop.cancel();
        while tasks.join_next().await.is_some() {}
        self.context.followers.shutdown().await;
        tracing::info!("controller ended");
        result
    }

    async fn lead(&self, shutdown: &CancellationToken) -> Result<Option<Leadership>, RunError> {
        if !self.args.leader_elect {
            return Ok(None);
        }
        let identity = std::env::var("HOSTNAME").unwrap_or_else(|_| "agentsession".to_owned());
        let identity = format!("{identity}-{}", uuid::Uuid::new_v4().simple());
        let leadership =
            Leadership::acquire(self.context.client.clone(), &self.args.namespace, &identity, shutdown).await?;
        Ok(Some(leadership))
    }
}

async fn gauges(context: Context, shutdown: CancellationToken) {
    loop {
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        context.metrics.sessions.set(count(context.memory.len()));
        context.metrics.followers.set(count(context.followers.len()));
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(GAUGES) => {}
        }
    }
}

fn pod_settings(args: &Args) -> Result<PodSettings, RunError> {
    let policy = match args.sandbox_image_pull_policy.as_str() {
        "Always" => PullPolicy::Always,
        "IfNotPresent" => PullPolicy::IfNotPresent,
        "Never" => PullPolicy::Never,
        other => {
            let text = format!("--sandbox-image-pull-policy {other:?}: give Always, IfNotPresent or Never");
            return Err(RunError::Setting(text));
        }
    };
    let mut settings = PodSettings::new(args.sandbox_image.clone());
    settings.sandbox_pull_policy = policy;
    settings.sandbox_pull_secret = args.sandbox_image_pull_secret.clone().filter(|name| !name.is_empty());
    settings.run_as_user = args.run_as_user.0;
    Ok(settings)
}

fn network_settings(args: &Args) -> Result<NetworkSettings, RunError> {
    let labels = args.gateway_labels().map_err(RunError::Setting)?;
    Ok(NetworkSettings {
        gateway_namespace: args.gateway_namespace.clone(),
        gateway_labels: labels.into_iter().collect::<BTreeMap<_, _>>(),
        egress: match args.agent_egress {
            AgentEgress::Internet => Egress::Internet,
            AgentEgress::None => Egress::None,
        },
        cluster_ranges: args.cluster_cidrs.iter().filter(|cidr| !cidr.is_empty()).cloned().collect(),
        extra: args.agent_egress_extra.0.clone(),
    })
}
