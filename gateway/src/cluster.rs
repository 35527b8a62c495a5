//! Questions to the API server, each bounded in time and all bounded in number.
//!
//! kube retries some answers for a long time and has no read timeout of its own, so no call is made without one here.

use std::{future::Future, time::Duration};

use crds::names::{GROUP, KIND, PLURAL, VERSION};
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{ApiResource, ListParams, PostParams},
    core::Object,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use transcript::SessionUid;

use crate::metrics::{Call, CallResult, Metrics};

/// Questions about tokens that were never seen before. They are few, so that a flood of bad tokens cannot take the way of good ones.
const STRANGERS: usize = 8;
/// Questions on behalf of tokens that were good before.
const KNOWN: usize = 32;
/// Lists of a namespace: each holds a page of whole objects for a moment.
const LISTS: usize = 4;
/// Objects of one page of a list; at worst each has prompts of some 500 KB.
const LIST_PAGE: u32 = 50;
/// Live objects that a list looks at.
const LIST_OBJECTS: usize = 2000;

/// A failed question.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClusterError {
    /// No answer in time.
    #[error("{call:?} timed out")]
    TimedOut {
        /// What was asked.
        call: Call,
    },
    /// An error for an answer, or no connection.
    #[error("{call:?} failed")]
    Failed {
        /// What was asked.
        call: Call,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
}

/// Which bound a question counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// For a token that nobody vouched for yet.
    Stranger,
    /// For everybody else.
    Known,
}

/// What is read of an AgentSession. Tolerant on purpose: a field that a newer version writes must not make a transcript unreadable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReadSpec {
    mode: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReadStatus {
    phase: Option<String>,
    accepted_turns: Option<i64>,
}

type ReadSession = Object<ReadSpec, ReadStatus>;

/// An AgentSession that exists at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LiveSession {
    /// `metadata.uid`.
    pub(crate) uid: SessionUid,
    /// `metadata.name`.
    pub(crate) name: String,
    /// `spec.mode`.
    pub(crate) mode: Option<String>,
    /// `status.phase`; `Pending` before the controller has seen it.
    pub(crate) phase: String,
    /// `status.acceptedTurns`: how many turns the store must know.
    pub(crate) accepted_turns: u32,
    /// `metadata.creationTimestamp`.
    pub(crate) created_at: Option<Timestamp>,
}

/// The live objects of a namespace.
#[derive(Debug, Default)]
pub(crate) struct LiveList {
    /// The objects.
    pub(crate) sessions: Vec<LiveSession>,
    /// Whether there are more than were looked at.
    pub(crate) cut: bool,
}

/// The API server, as far as this crate asks it.
pub(crate) struct Cluster {
    client: Client,
    timeout: Duration,
    strangers: Semaphore,
    known: Semaphore,
    lists: Semaphore,
    metrics: Metrics,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Cluster {
    pub(crate) fn new(client: Client, timeout: Duration, metrics: Metrics) -> Self {
        Self {
            client,
            timeout,
            strangers: Semaphore::new(STRANGERS),
            known: Semaphore::new(KNOWN),
            lists: Semaphore::new(LISTS),
            metrics,
        }
    }

    /// Asks one question: waits for its turn and for the answer, together no longer than the timeout.
    async fn ask<T: Send>(
        &self,
        call: Call,
        bound: &Semaphore,
        question: impl Future<Output = kube::Result<T>> + Send,
    ) -> Result<T, ClusterError> {
        let answer = tokio::time::timeout(self.timeout, async {
            // The semaphores are never closed; without a permit the bound would only be missed, not the answer.
            let _permit = bound.acquire().await.ok();
            question.await
        })
        .await;
        let (result, answer) = match answer {
            Ok(Ok(value)) => (CallResult::Answered, Ok(value)),
            Ok(Err(source)) => (CallResult::Failed, Err(ClusterError::Failed { call, source: Box::new(source) })),
            Err(_) => (CallResult::TimedOut, Err(ClusterError::TimedOut { call })),
        };
        self.metrics.cluster_call(call, result);
        answer
    }

    /// Posts a review, a resource that is answered and never stored.
    pub(crate) async fn review<K>(&self, call: Call, lane: Lane, review: &K) -> Result<K, ClusterError>
    where
        K: kube::Resource<Scope = k8s_openapi::ClusterResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + Serialize
            + serde::de::DeserializeOwned
            + Send
            + Sync,
    {
        let api: Api<K> = Api::all(self.client.clone());
        let bound = match lane {
            Lane::Stranger => &self.strangers,
            Lane::Known => &self.known,
        };
        self.ask(call, bound, async move { api.create(&PostParams::default(), review).await }).await
    }

    /// Asks for something that need not be there.
    async fn look<T: Send>(
        &self,
        call: Call,
        question: impl Future<Output = kube::Result<T>> + Send,
    ) -> Result<Option<T>, ClusterError> {
        let question = async {
            match question.await {
                Ok(found) => Ok(Some(found)),
                Err(error) if is_absent(&error) => Ok(None),
                Err(error) => Err(error),
            }
        };
        self.ask(call, &self.known, question).await
    }

    /// The AgentSession of that name, if there is one.
    pub(crate) async fn session(&self, namespace: &str, name: &str) -> Result<Option<LiveSession>, ClusterError> {
        let api = self.sessions_api(namespace);
        let object = self.look(Call::GetSession, async move { api.get(name).await }).await?;
        Ok(object.and_then(live))
    }

    /// The AgentSessions of a namespace, page by page.
    pub(crate) async fn sessions(&self, namespace: &str) -> Result<LiveList, ClusterError> {
        let mut found = LiveList::default();
        let mut params = ListParams::default().limit(LIST_PAGE);
        loop {
            let api = self.sessions_api(namespace);
            let this = params.clone();
            let page: BoxFuture<'_, _> = Box::pin(async move { api.list(&this).await });
            let page = match self.ask(Call::ListSessions, &self.lists, page).await {
                Ok(page) => page,
                // Without the resource there are no objects; what is stored of earlier ones can still be listed.
                Err(ClusterError::Failed { source, .. }) if is_absent(&source) => return Ok(found),
                Err(error) => return Err(error),
            };
            found.sessions.extend(page.items.into_iter().filter_map(live));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                None => return Ok(found),
                Some(_) if found.sessions.len() >= LIST_OBJECTS => {
                    found.cut = true;
                    return Ok(found);
                }
                Some(token) => params = params.continue_token(&token),
            }
        }
    }

    /// The UID of the namespace that has this name now.
    pub(crate) async fn namespace_uid(&self, namespace: &str) -> Result<Option<String>, ClusterError> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let meta = self.look(Call::GetNamespace, async move { api.get_metadata(namespace).await }).await?;
        Ok(meta.and_then(|namespace| namespace.metadata.uid))
    }

    fn sessions_api(&self, namespace: &str) -> Api<ReadSession> {
        let resource = ApiResource {
            group: GROUP.to_owned(),
            version: VERSION.to_owned(),
            api_version: format!("{GROUP}/{VERSION}"),
            kind: KIND.to_owned(),
            plural: PLURAL.to_owned(),
        };
        Api::namespaced_with(self.client.clone(), namespace, &resource)
    }
}

/// Goes by the code: a path that the API server does not have, for want of the resource, is answered without a reason.
fn is_absent(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// What counts of an object. One without a UID is none: every stored object has one.
fn live(object: ReadSession) -> Option<LiveSession> {
    let status = object.status.unwrap_or_default();
    Some(LiveSession {
        uid: SessionUid(object.metadata.uid?),
        name: object.metadata.name?,
        mode: object.spec.mode,
        phase: status.phase.unwrap_or_else(|| "Pending".to_owned()),
        accepted_turns: status.accepted_turns.and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
        created_at: object.metadata.creation_timestamp.map(|time| time.0),
    })
}
