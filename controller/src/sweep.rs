//! What no object asks for any more: turns whose session is gone, Pods without an owner. At start, every ten minutes, and when an object goes.
//!
//! A finalizer of ours that somebody took off by force must not leave a turn active for ever, nor a Pod held by the other one.

use std::time::Duration;

use controller_core::{Settled, decide::pod_nonce, model::LedgerView};
use crds::{AgentSession, names};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PatchParams},
};
use store::{SessionRecord, Settlement, StoreError};
use tokio_util::sync::CancellationToken;
use transcript::{Outcome, Reason, SessionUid, Verdict};

use crate::{
    context::{API_CALL, Context},
    convert,
    effect::{only, without_finalizer},
    exec::error_chain,
    index::Indexed,
    watch::{self, Scope},
};

/// Time between two sweeps.
const INTERVAL: Duration = Duration::from_secs(600);
/// Pause before a sweep that failed is tried again.
const RETRY: Duration = Duration::from_secs(15);

/// A sweep that could not be finished.
#[derive(Debug, thiserror::Error)]
enum SweepError {
    #[error("the store did not answer")]
    Store(#[from] StoreError),
    #[error("the API server did not answer")]
    Api(#[source] Box<kube::Error>),
    #[error("the API server did not answer in time")]
    TimedOut,
}

/// Sweeps a scope until shut down.
pub async fn run(scope: Scope, context: Context, shutdown: CancellationToken) {
    watch::wait_for_pods(&context, &shutdown).await;
    loop {
        let pause = match sweep(&scope, &context).await {
            Ok(()) => INTERVAL,
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "sweep not finished, will be tried again");
                RETRY
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// An object is gone: what is left of it is looked after at once, and it is forgotten.
pub fn gone(context: &Context, session: SessionUid) {
    context.directory.forget(&session);
    let context = context.clone();
    tokio::spawn(async move {
        for pod in context.pods.of(&session) {
            context.followers.stop(&pod.view.uid);
        }
        // Until the store has it: why records were abandoned is only remembered here.
        let mut pause = Duration::from_secs(1);
        while let Err(error) = orphaned(&context, &session).await {
            tracing::warn!(session.uid = %session, error = %error_chain(&error), "session gone, not closed yet");
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(2).min(RETRY);
        }
        context.memory.forget(&session);
    });
}

async fn sweep(scope: &Scope, context: &Context) -> Result<(), SweepError> {
    // One that cannot be closed does not stand in the way of the others; the first error is what the sweep is tried again for.
    let mut result = Ok(());
    for record in context.store.sessions_with_active_turns().await? {
        let watched = scope.namespace.as_ref().is_none_or(|namespace| *namespace == record.namespace);
        if watched {
            result = result.and(close_if_gone(context, &record).await);
        }
    }
    for (session, pod) in context.pods.all() {
        if pod.view.has_finalizer && context.directory.find(&session).is_none() {
            result = result.and(release_if_alone(context, &session, &pod).await);
        }
    }
    result
}

async fn close_if_gone(context: &Context, record: &SessionRecord) -> Result<(), SweepError> {
    if is_gone(context, &record.namespace, &record.name, &record.uid).await? {
        orphaned(context, &record.uid).await?;
    }
    Ok(())
}

/// A Pod whose label names a session of another namespace says nothing of that session.
async fn release_if_alone(context: &Context, session: &SessionUid, pod: &Indexed) -> Result<(), SweepError> {
    if exists(context, &pod.namespace, session).await? {
        return Ok(());
    }
    let record = context.store.ledger(session).await?.session;
    if record.is_none_or(|record| record.namespace == pod.namespace) {
        orphaned(context, session).await?;
    }
    Ok(())
}

/// Whether a namespace has a session of this uid. A Pod names its session only by uid: its owner may have been stripped.
async fn exists(context: &Context, namespace: &str, uid: &SessionUid) -> Result<bool, SweepError> {
    let api: Api<AgentSession> = Api::namespaced(context.client.clone(), namespace);
    let listed = call(api.list_metadata(&ListParams::default())).await?;
    Ok(listed.items.iter().any(|object| object.uid().as_deref() == Some(uid.as_str())))
}

/// The cache may be behind; only the API server says that an object is gone.
async fn is_gone(context: &Context, namespace: &str, name: &str, uid: &SessionUid) -> Result<bool, SweepError> {
    if context.directory.find(uid).is_some() {
        return Ok(false);
    }
    let api: Api<AgentSession> = Api::namespaced(context.client.clone(), namespace);
    let found = call(api.get_metadata_opt(name)).await?;
    Ok(found.and_then(|object| object.uid()).as_deref() != Some(uid.as_str()))
}

/// Settles what a session that is gone left active, and lets its Pods go.
async fn orphaned(context: &Context, session: &SessionUid) -> Result<(), SweepError> {
    let abandoned = context.memory.of(session).abandoned();
    let ledger = context.store.ledger(session).await?;
    for turn in ledger.turns.iter().filter(|turn| turn.state.is_active()) {
        // What no agent ever had was not lost by anybody.
        let (outcome, missing) = match turn.attempt {
            None => (Outcome::Canceled, Reason::NeverStarted),
            Some(_) => (Outcome::Lost, Reason::PodGone),
        };
        let settlement = Settlement {
            session: session.clone(),
            turn: turn.turn,
            attempt: turn.attempt,
            pod_uid: turn.pod_uid.clone(),
            outcome,
            reason: Some(Reason::SessionDeleted),
            verdict: Verdict::Incomplete,
            verdict_reason: Some(abandoned.unwrap_or(missing)),
            message: None,
            usage: None,
        };
        context.store.settle(&settlement).await?;
        tracing::warn!(session.uid = %session, turn = turn.turn.0, "turn of a session that is gone settled");
    }
    if ledger.session.is_some() {
        context.store.mark_deleted(session).await?;
    }
    let view = convert::ledger_view(&context.store.ledger(session).await?);
    let home = ledger.session.map(|record| record.namespace);
    for pod in context.pods.of(session) {
        if home.as_ref().is_none_or(|home| *home == pod.namespace) {
            release(context, &view, &pod).await?;
        }
    }
    Ok(())
}

async fn release(context: &Context, ledger: &LedgerView, pod: &Indexed) -> Result<(), SweepError> {
    if Settled::for_pod(ledger, &pod.view.uid).is_none() || !pod.view.has_finalizer {
        return Ok(());
    }
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &pod.namespace);
    let Some(standing) = call(api.get_metadata_opt(&pod.view.name)).await? else { return Ok(()) };
    if standing.uid().as_deref() != Some(pod.view.uid.as_str()) {
        return Ok(());
    }
    // A Pod that only looks like ours is let go of and not deleted. Orphaning strips the owner; the nonce stays.
    let owned =
        pod.view.owned && standing.labels().get(names::LABEL_MANAGED_BY).is_some_and(|by| by == names::MANAGED_BY);
    let ours = owned || (!ledger.seed.is_empty() && pod.view.nonce == pod_nonce(&ledger.seed, pod.view.attempt));
    if ours && pod.view.deleting.is_none() {
        let params = DeleteParams::default().grace_period(1).preconditions(only(pod.view.uid.as_str()));
        settle_for(call(api.delete(&pod.view.name, &params)).await, &[404, 409])?;
    }
    if let Some(patch) = without_finalizer(&standing) {
        let patched = call(api.patch_metadata(&pod.view.name, &PatchParams::default(), &patch)).await;
        settle_for(patched, &[404, 409])?;
        tracing::info!(pod.name = pod.view.name, "Pod without a session released");
    }
    Ok(())
}

async fn call<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, SweepError> {
    match tokio::time::timeout(API_CALL, request).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(SweepError::Api(Box::new(error))),
        Err(_) => Err(SweepError::TimedOut),
    }
}

/// Takes these answers for done.
fn settle_for<T>(result: Result<T, SweepError>, codes: &[u16]) -> Result<(), SweepError> {
    match result {
        Ok(_) => Ok(()),
        Err(SweepError::Api(error)) => match *error {
            kube::Error::Api(answer) if codes.contains(&answer.code) => Ok(()),
            other => Err(SweepError::Api(Box::new(other))),
        },
        Err(error) => Err(error),
    }
}
