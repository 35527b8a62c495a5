//! What all reconciles share.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use controller_core::{
    model::Trouble,
    pod_spec::{NetworkSettings, PodSettings},
};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::{Api, Client};
use store::SharedStore;
use tokio::{sync::Semaphore, time::Instant};
use transcript::{Attempt, SessionUid};

use crate::{
    directory::Directory, exec::Execs, follow::Followers, harvest::Harvester, index::PodIndex, key::OperatorKey,
    memory::Memory, metrics::Metrics,
};

/// How long a look at a node is believed.
const NODE_LASTS: Duration = Duration::from_secs(5);
/// How long a store that did not answer one session is not asked by others.
const STORE_AWAY_LASTS: Duration = Duration::from_secs(2);
/// Reads of the ledger at once: what waits here waits without a deadline, what waits in the pool does not.
const LEDGER_READS: usize = 16;
/// How long one call to the API server may take, its client's own retries included.
pub const API_CALL: Duration = Duration::from_secs(20);

/// What all reconciles share.
#[derive(Clone)]
pub struct Context {
    /// The API server.
    pub client: Client,
    /// The store.
    pub store: SharedStore,
    /// What is remembered of sessions.
    pub memory: Arc<Memory>,
    /// Where sessions are.
    pub directory: Arc<Directory>,
    /// The Pods of the watch that this context belongs to.
    pub pods: Arc<PodIndex>,
    /// Execs.
    pub execs: Execs,
    /// Settling reads.
    pub harvester: Harvester,
    /// Followers.
    pub followers: Followers,
    /// Who says events: this process.
    pub instance: Arc<str>,
    /// Metrics.
    pub metrics: Metrics,
    /// What Pods are made with.
    pub pod_settings: Arc<PodSettings>,
    /// What their network is made with.
    pub network_settings: Arc<NetworkSettings>,
    /// The operator's key; `None` keeps recorders' ports closed to everybody.
    pub key: Option<Arc<OperatorKey>>,
    /// Bytes that one session may store.
    pub quota_bytes: u64,
    /// What was looked at lately.
    pub looks: Arc<Looks>,
}

/// Short memory of what does not change often.
#[derive(Debug)]
pub struct Looks {
    nodes: Mutex<HashMap<String, (Option<bool>, Instant)>>,
    store_away: Mutex<Option<(Trouble, Instant)>>,
    /// Bounds reads of the ledger.
    pub ledger_reads: Semaphore,
}

impl Default for Looks {
    fn default() -> Self {
        Self { nodes: Mutex::default(), store_away: Mutex::default(), ledger_reads: Semaphore::new(LEDGER_READS) }
    }
}

impl Context {
    /// Whether a node answers; `None` when nobody can tell.
    pub async fn node_ready(&self, name: &str) -> Option<bool> {
        let cached = {
            let nodes = self.looks.nodes.lock().unwrap_or_else(PoisonError::into_inner);
            nodes.get(name).filter(|(_, at)| at.elapsed() < NODE_LASTS).map(|(ready, _)| *ready)
        };
        if let Some(ready) = cached {
            return ready;
        }
        let api: Api<Node> = Api::all(self.client.clone());
        let ready = match tokio::time::timeout(API_CALL, api.get_opt(name)).await {
            Ok(Ok(Some(node))) => Some(is_ready(&node)),
            // A node that was taken out of the cluster does not come back with what ran on it.
            Ok(Ok(None)) => Some(false),
            Ok(Err(error)) => {
                tracing::debug!(error = %crate::exec::error_chain(&error), node.name = name, "node not read");
                None
            }
            Err(_) => None,
        };
        let mut nodes = self.looks.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.retain(|_, (_, at)| at.elapsed() < NODE_LASTS);
        nodes.insert(name.to_owned(), (ready, Instant::now()));
        ready
    }

    /// Digest of the token that the recorder of an attempt asks for.
    pub fn recorder_token_sha256(&self, session: &SessionUid, attempt: Attempt) -> Option<String> {
        self.key.as_ref().map(|key| key.recorder_token_sha256(session, attempt))
    }

    /// Why the store did not answer just now, whoever asked: hundreds of sessions must not each wait for the same silence.
    pub fn store_away(&self) -> Option<Trouble> {
        let away = self.looks.store_away.lock().unwrap_or_else(PoisonError::into_inner);
        away.as_ref().filter(|(_, at)| at.elapsed() < STORE_AWAY_LASTS).map(|(trouble, _)| trouble.clone())
    }

    /// Notes whether the store answered.
    pub fn note_store(&self, trouble: Option<Trouble>) {
        let mut away = self.looks.store_away.lock().unwrap_or_else(PoisonError::into_inner);
        *away = trouble.map(|trouble| (trouble, Instant::now()));
    }

    /// UID of a namespace, from the API server: a later namespace of the same name is another one.
    ///
    /// # Errors
    /// The API server's.
    pub async fn namespace_uid(&self, name: &str) -> Result<String, kube::Error> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        Ok(api.get_metadata(name).await?.metadata.uid.unwrap_or_default())
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
