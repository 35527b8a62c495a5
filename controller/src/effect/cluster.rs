//! Effects on objects of the cluster. Each is bounded in time, names the UID that it means, and takes "gone" and "newer" for an answer.

use std::{future::Future, time::Duration};

use controller_core::{
    decide::pod_nonce,
    events,
    model::{PodRef, PodRefusal, RefusalKind},
    names::{attempt_of, claim_name, pod_name},
    pod_spec::{PodPlan, agent_pod, network_policy, workspace_claim},
    view,
};
use crds::{AgentSession, names};
use k8s_openapi::api::{
    core::v1::{PersistentVolumeClaim, Pod},
    networking::v1::NetworkPolicy,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
    core::PartialObjectMeta,
};
use serde_json::{Value, json};
use transcript::Attempt;

use super::{EffectError, Pass};
use crate::{context::API_CALL, say};

/// Grace that our own deletion gives: the record is safe, nothing is waited for.
const GRACE_SECONDS: u32 = 1;

/// Bounds a call in time.
async fn call<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, EffectError> {
    match tokio::time::timeout(API_CALL, request).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(EffectError::TimedOut),
    }
}

/// The HTTP status code of an answer that is one of these, which are no failures here.
fn expected<T>(result: Result<T, EffectError>, codes: &[u16]) -> Result<Option<T>, EffectError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(EffectError::Api(error)) => match *error {
            kube::Error::Api(answer) if codes.contains(&answer.code) => Ok(None),
            other => Err(other.into()),
        },
        Err(error) => Err(error),
    }
}

fn sessions(pass: &Pass<'_>) -> Api<AgentSession> {
    Api::namespaced(pass.context.client.clone(), &pass.observed.session.namespace)
}

fn pods(pass: &Pass<'_>) -> Api<Pod> {
    Api::namespaced(pass.context.client.clone(), &pass.observed.session.namespace)
}

/// The session as the API server has it now; `None` when it is gone or another one has its name.
pub(super) async fn standing_session(pass: &Pass<'_>) -> Result<Option<AgentSession>, EffectError> {
    let session = &pass.observed.session;
    let found = call(sessions(pass).get_opt(&session.name)).await?;
    Ok(found.filter(|object| object.uid().as_deref() == Some(session.uid.as_str())))
}

/// By server-side apply without resourceVersion: a writer that is quicker than we are cannot keep the finalizer off. The UID keeps the apply
/// from touching, or making, an object of the same name.
pub(super) async fn add_finalizer(pass: &Pass<'_>) -> Result<(), EffectError> {
    let session = &pass.observed.session;
    let body = json!({
        "apiVersion": names::API_VERSION,
        "kind": names::KIND,
        "metadata": {
            "name": session.name, "namespace": session.namespace, "uid": session.uid, "finalizers": [names::FINALIZER],
        },
    });
    let params = PatchParams::apply(names::MANAGER_CONTROLLER).force();
    let api = sessions(pass);
    let patched = call(api.patch_metadata(&session.name, &params, &Patch::Apply(&body))).await;
    if let Some(written) = expected(patched, &[404, 409])? {
        pass.memory.wrote_session(written.metadata.resource_version.as_deref());
    }
    Ok(())
}

pub(super) async fn create_pod(
    pass: &Pass<'_>,
    attempt: Attempt,
    nonce: &str,
    fresh_workspace: bool,
) -> Result<(), EffectError> {
    // An object that cannot be read has no turn that could be accepted.
    let Some(session) = pass.session else { return Ok(()) };
    if earlier_pod_stands(pass, attempt).await? {
        return Err(EffectError::Behind);
    }
    ensure_policy(pass).await?;
    ensure_claim(pass, session).await?;
    let plan = PodPlan {
        attempt,
        nonce: nonce.to_owned(),
        recorder_token_sha256: pass.context.recorder_token_sha256(&pass.observed.session.uid, attempt),
    };
    let pod = agent_pod(session, &plan, &pass.context.pod_settings);
    match call(pods(pass).create(&PostParams { field_manager: manager(), ..PostParams::default() }, &pod)).await {
        Ok(made) => {
            pass.memory.wrote_pod(made.metadata.resource_version.as_deref());
            pass.memory.set_refusal(None);
            tracing::info!(
                session.uid = %pass.observed.session.uid,
                session.namespace = pass.observed.session.namespace,
                session.name = pass.observed.session.name,
                attempt = attempt.0,
                pod.name = made.name_any(),
                "agent Pod created"
            );
            say::event(pass, events::attempt_started(attempt, &made.name_any()));
            if fresh_workspace && workspace_claim(session).is_none() {
                say::event(pass, events::workspace_empty(attempt));
            }
            Ok(())
        }
        Err(EffectError::Api(error)) => match *error {
            kube::Error::Api(answer) => refused(pass, attempt, nonce, *answer).await,
            other => Err(other.into()),
        },
        Err(error) => Err(error),
    }
}

/// Whether a Pod of ours of another attempt is still there. The cache said no; only the API server knows, and two would share a workspace.
async fn earlier_pod_stands(pass: &Pass<'_>, attempt: Attempt) -> Result<bool, EffectError> {
    let session = &pass.observed.session;
    let Ok(ledger) = &pass.observed.ledger else { return Ok(true) };
    if attempt.0 <= 1 {
        return Ok(false);
    }
    let params = ListParams::default().labels(&format!("{}={}", names::LABEL_SESSION_UID, session.uid));
    let standing = call(pods(pass).list_metadata(&params)).await?;
    Ok(standing.iter().any(|pod| {
        let other = attempt_of(&pod.name_any(), &session.uid).filter(|other| *other != attempt);
        let nonce = pod.annotations().get(names::ANNOTATION_NONCE);
        other.is_some_and(|other| nonce.is_some_and(|nonce| *nonce == pod_nonce(&ledger.seed, other)))
    }))
}

/// The API server did not make the Pod. One of that name which carries our nonce was made by us before: a reply that got lost.
async fn refused(
    pass: &Pass<'_>,
    attempt: Attempt,
    nonce: &str,
    answer: kube::core::Status,
) -> Result<(), EffectError> {
    let Some(kind) = view::refusal(answer.code, &answer.reason, &answer.message) else {
        return Err(kube::Error::Api(Box::new(answer)).into());
    };
    if kind == RefusalKind::NameTaken {
        let name = pod_name(&pass.observed.session.name, &pass.observed.session.uid, attempt);
        let standing = call(pods(pass).get_opt(&name)).await?;
        let Some(standing) = standing else { return Ok(()) };
        if standing.annotations().get(names::ANNOTATION_NONCE).is_some_and(|has| has == nonce) {
            pass.memory.wrote_pod(standing.metadata.resource_version.as_deref());
            return Ok(());
        }
    }
    let refusal = PodRefusal { attempt, kind, message: answer.message, age: Duration::ZERO };
    // What the session waits for is said when its status first says so; a name that is taken is nowhere else.
    if kind == RefusalKind::NameTaken {
        events::refused(&refusal).into_iter().for_each(|plan| say::event(pass, plan));
    }
    tracing::info!(
        session.uid = %pass.observed.session.uid, attempt = attempt.0, refusal = ?kind, "the API server did not make the Pod"
    );
    pass.memory.set_refusal(Some(refusal));
    Ok(())
}

/// Applied before every Pod, not remembered: a namespace may be another one by the same name.
async fn ensure_policy(pass: &Pass<'_>) -> Result<(), EffectError> {
    let namespace = &pass.observed.session.namespace;
    let policy = network_policy(namespace, &pass.context.network_settings);
    let api: Api<NetworkPolicy> = Api::namespaced(pass.context.client.clone(), namespace);
    let params = PatchParams::apply(names::MANAGER_CONTROLLER).force();
    let applied = call(api.patch(names::NETWORK_POLICY, &params, &Patch::Apply(&policy))).await;
    // 404 comes from a namespace that is gone: the Pod's own refusal says it in better words.
    expected(applied, &[404])?;
    Ok(())
}

async fn ensure_claim(pass: &Pass<'_>, session: &AgentSession) -> Result<(), EffectError> {
    let Some(claim) = workspace_claim(session) else { return Ok(()) };
    let api: Api<PersistentVolumeClaim> =
        Api::namespaced(pass.context.client.clone(), &pass.observed.session.namespace);
    if call(api.get_metadata_opt(&claim_name(&pass.observed.session.uid))).await?.is_some() {
        return Ok(());
    }
    let params = PostParams { field_manager: manager(), ..PostParams::default() };
    expected(call(api.create(&params, &claim)).await, &[409])?;
    Ok(())
}

pub(super) async fn delete_pod(pass: &Pass<'_>, pod: &PodRef) -> Result<(), EffectError> {
    pass.context.followers.stop(&pod.uid);
    let params = DeleteParams::default().grace_period(GRACE_SECONDS).preconditions(only(&pod.uid.0));
    // 409: the name is another Pod's by now.
    let deleted = expected(call(pods(pass).delete(&pod.name, &params)).await, &[404, 409])?;
    if let Some(either) = deleted
        && let Some(object) = either.left()
    {
        pass.memory.wrote_pod(object.metadata.resource_version.as_deref());
    }
    Ok(())
}

pub(super) async fn release_pod(pass: &Pass<'_>, pod: &PodRef) -> Result<(), EffectError> {
    let api = pods(pass);
    let Some(standing) = call(api.get_metadata_opt(&pod.name)).await? else { return Ok(()) };
    if standing.uid().as_deref() != Some(pod.uid.as_str()) {
        return Ok(());
    }
    let Some(patch) = without_finalizer(&standing) else { return Ok(()) };
    let patched = call(api.patch_metadata(&pod.name, &PatchParams::default(), &patch)).await;
    // 422 is a test of the patch that failed, or a policy that denies it: tried again with pauses, and said in the log.
    if let Some(written) = expected(patched, &[404, 409])? {
        pass.memory.wrote_pod(written.metadata.resource_version.as_deref());
    }
    Ok(())
}

pub(super) async fn release_session(pass: &Pass<'_>) -> Result<(), EffectError> {
    let session = &pass.observed.session;
    let api = sessions(pass);
    let Some(standing) = call(api.get_metadata_opt(&session.name)).await? else { return Ok(()) };
    if standing.uid().as_deref() != Some(session.uid.as_str()) {
        return Ok(());
    }
    // A wish that was withdrawn in the meantime is none: a turn may run by now.
    let deleted = standing.metadata.deletion_timestamp.is_some();
    if !(deleted || standing.annotations().contains_key(names::ANNOTATION_RELEASE)) {
        return Ok(());
    }
    let Some(patch) = without_finalizer(&standing) else { return Ok(()) };
    let patched = call(api.patch_metadata(&session.name, &PatchParams::default(), &patch)).await;
    if let Some(written) = expected(patched, &[404, 409])? {
        pass.memory.wrote_session(written.metadata.resource_version.as_deref());
        tracing::info!(session.uid = %session.uid, session.name = session.name, "session released");
    }
    Ok(())
}

pub(super) async fn delete_session(pass: &Pass<'_>) -> Result<(), EffectError> {
    let session = &pass.observed.session;
    let params = DeleteParams::background().preconditions(only(&session.uid.0));
    expected(call(sessions(pass).delete(&session.name, &params)).await, &[404, 409])?;
    tracing::info!(session.uid = %session.uid, session.name = session.name, "session deleted after its ttl");
    Ok(())
}

/// Takes our finalizer off and no other's: the patch holds only for this object and this place in the list.
pub(crate) fn without_finalizer<K>(object: &PartialObjectMeta<K>) -> Option<Patch<Value>>
where
    PartialObjectMeta<K>: ResourceExt,
{
    let at = object.finalizers().iter().position(|finalizer| finalizer == names::FINALIZER)?;
    let path = format!("/metadata/finalizers/{at}");
    let operations = json!([
        {"op": "test", "path": "/metadata/uid", "value": object.uid()},
        {"op": "test", "path": path, "value": names::FINALIZER},
        {"op": "remove", "path": path},
    ]);
    let patch = serde_json::from_value(operations).ok()?;
    Some(Patch::Json(patch))
}

pub(crate) fn only(uid: &str) -> Preconditions {
    Preconditions { uid: Some(uid.to_owned()), resource_version: None }
}

fn manager() -> Option<String> {
    Some(names::MANAGER_CONTROLLER.to_owned())
}
