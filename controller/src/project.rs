//! The last stage of a reconcile: what was observed and decided → the object's status, written only when it says something new.

use std::time::Duration;

use controller_core::{
    model::{Decision, Observed},
    status,
};
use crds::{AgentSession, AgentSessionStatus, names};
use jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};

use crate::{
    context::{API_CALL, Context},
    failpoint,
    memory::SessionMemory,
};

/// A status that could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    /// The API server refused or failed.
    #[error("status not written")]
    Api(#[source] Box<kube::Error>),
    /// It did not answer in time.
    #[error("status not written in {} s", API_CALL.as_secs())]
    TimedOut,
}

/// What became of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Projected {
    /// It stands as it should be.
    Stands,
    /// It was written.
    Written,
    /// Something newer stands, so that this pass is over.
    Stale,
    /// It was written too often lately; again after this time.
    Later(Duration),
}

/// Writes the status if it differs in more than time.
///
/// It carries the resourceVersion that was observed: a stale pass gets a conflict and can never overwrite a newer status.
///
/// # Errors
/// [`ProjectError`].
pub async fn project(
    context: &Context,
    session: &AgentSession,
    observed: &Observed,
    decision: &Decision,
    memory: &SessionMemory,
) -> Result<Projected, ProjectError> {
    let next = status::project(session, observed, decision, Timestamp::now());
    if !status::differs(session.status.as_ref(), &next) {
        return Ok(Projected::Stands);
    }
    if let Err(after) = memory.may_write_status() {
        tracing::warn!(
            session.uid = %observed.session.uid,
            session.name = observed.session.name,
            "the status changes too often: does another controller look after this session?"
        );
        return Ok(Projected::Later(after));
    }
    write(context, session, &next, memory).await
}

async fn write(
    context: &Context,
    session: &AgentSession,
    status: &AgentSessionStatus,
    memory: &SessionMemory,
) -> Result<Projected, ProjectError> {
    let namespace = session.namespace().unwrap_or_default();
    let api: Api<AgentSession> = Api::namespaced(context.client.clone(), &namespace);
    let body = serde_json::json!({
        "apiVersion": names::API_VERSION,
        "kind": names::KIND,
        "metadata": {
            "name": session.name_any(),
            "namespace": namespace,
            "uid": session.uid(),
            "resourceVersion": session.resource_version(),
        },
        "status": status,
    });
    let (name, params, patch) =
        (session.name_any(), PatchParams::apply(names::MANAGER_STATUS).force(), Patch::Apply(&body));
    failpoint::pass("status", "before");
    let patched = tokio::time::timeout(API_CALL, api.patch_status(&name, &params, &patch)).await;
    failpoint::pass("status", "after");
    match patched {
        Ok(Ok(written)) => {
            memory.wrote_session(written.metadata.resource_version.as_deref());
            context.metrics.status_writes.inc();
            Ok(Projected::Written)
        }
        Ok(Err(kube::Error::Api(answer))) if answer.code == 409 || answer.code == 404 => {
            context.metrics.conflicts.inc();
            Ok(Projected::Stale)
        }
        Ok(Err(error)) => Err(ProjectError::Api(Box::new(error))),
        Err(_) => Err(ProjectError::TimedOut),
    }
}
