//! The first stage of a reconcile: caches, store, followers and memory → one [`Observed`].

use std::collections::BTreeMap;

use controller_core::{
    model::{DriverView, LedgerView, Observed, PodView, SessionView, Trouble},
    names::pod_name,
    view,
};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use store::Ledger;
use transcript::SessionUid;

use crate::{
    context::{API_CALL, Context},
    convert,
    memory::SessionMemory,
};

/// What decisions need and nobody could say.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The API server refused or failed.
    #[error("the Pod of the active turn could not be looked up")]
    Api(#[source] Box<kube::Error>),
    /// It did not answer in time.
    #[error("the Pod of the active turn could not be looked up within {} s", API_CALL.as_secs())]
    TimedOut,
}

/// What a reconcile sees, and the ledger that it was made from.
pub struct Seen {
    /// For the decision.
    pub observed: Observed,
    /// The records, for effects and status; `None` when the store did not answer.
    pub ledger: Option<Ledger>,
}

/// Gathers everything that a decision may know.
///
/// # Errors
/// [`ObserveError`]: whether a Pod is gone could not be asked, and a guess would close its turn.
pub async fn observe(context: &Context, session: SessionView, memory: &SessionMemory) -> Result<Seen, ObserveError> {
    let mut pods = pods(context, &session).await;
    let ledger = match memory.store_trouble() {
        Some((trouble, false)) => Err(trouble),
        Some((_, true)) | None => read_ledger(context, &session.uid).await,
    };
    let (view, ledger) = match ledger {
        Ok(ledger) => (Ok(convert::ledger_view(&ledger)), Some(ledger)),
        Err(trouble) => (Err(trouble), None),
    };
    if let Some(name) = view.as_ref().ok().and_then(|ledger| missing_pod(ledger, &session, &pods)) {
        pods.extend(look_for(context, &session, &name).await?);
    }
    let active = view.as_ref().ok().and_then(active_turn);
    let observed = Observed {
        drivers: drivers(context, &pods),
        harvest: memory.harvest(active),
        refusal: memory.refusal(),
        elapsed: memory.elapsed(),
        abandoned: memory.abandoned(),
        done: memory.done(),
        fresh_seed: uuid::Uuid::new_v4().simple().to_string(),
        session,
        ledger: view,
        pods,
    };
    Ok(Seen { observed, ledger })
}

async fn read_ledger(context: &Context, uid: &SessionUid) -> Result<Ledger, Trouble> {
    let _turn = context.looks.ledger_reads.acquire().await;
    if let Some(trouble) = context.store_away() {
        return Err(trouble);
    }
    let read = context.store.ledger(uid).await.map_err(|error| convert::trouble(&error));
    context.note_store(read.as_ref().err().cloned());
    read
}

fn active_turn(ledger: &LedgerView) -> Option<transcript::Turn> {
    ledger.turns.iter().find(|turn| turn.state.is_active()).map(|turn| turn.turn)
}

/// Name of the Pod that has the active turn, when the cache does not show it: gone, or not here yet.
fn missing_pod(ledger: &LedgerView, session: &SessionView, pods: &[PodView]) -> Option<String> {
    let turn = ledger.turns.iter().find(|turn| turn.state.is_active())?;
    let uid = turn.pod_uid.as_ref()?;
    let shown = pods.iter().any(|pod| pod.uid == *uid);
    (!shown).then(|| pod_name(&session.name, &session.uid, turn.attempt.unwrap_or_default()))
}

/// Asks the API server itself: a Pod that another controller made may be younger than our cache.
async fn look_for(context: &Context, session: &SessionView, name: &str) -> Result<Option<PodView>, ObserveError> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &session.namespace);
    let found = match tokio::time::timeout(API_CALL, api.get_opt(name)).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return Err(ObserveError::Api(Box::new(error))),
        Err(_) => return Err(ObserveError::TimedOut),
    };
    let Some(pod) = found else { return Ok(None) };
    let mut pod_view = view::pod_view(&pod, &session.uid, None);
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    if let (Some(_), Some(node)) = (pod_view.deleting, node) {
        pod_view = view::with_node(pod_view, context.node_ready(node).await);
    }
    Ok(Some(pod_view))
}

/// The session's Pods. Whether a node answers is only asked for Pods that are being deleted: it is what tells a slow end from none.
/// A Pod of another namespace that carries our label is none of ours.
async fn pods(context: &Context, session: &SessionView) -> Vec<PodView> {
    let mut views = Vec::new();
    let pods = context.pods.of(&session.uid).into_iter();
    for indexed in pods.filter(|indexed| indexed.namespace == session.namespace) {
        let mut view = indexed.view;
        if let (Some(_), Some(node)) = (view.deleting, &indexed.node) {
            let ready = context.node_ready(node).await;
            view = view::with_node(view, ready);
        }
        views.push(view);
    }
    views
}

fn drivers(context: &Context, pods: &[PodView]) -> BTreeMap<transcript::PodUid, DriverView> {
    let heard = |pod: &PodView| {
        let view = context.followers.view(&pod.uid)?;
        let trouble = view.trouble.map(|trouble| Trouble { reason: trouble.reason, message: trouble.message });
        Some((pod.uid.clone(), DriverView { status: view.status, trouble }))
    };
    pods.iter().filter_map(heard).collect()
}
