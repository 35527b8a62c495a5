//! `agentsession release --all`: lets every session go, before an uninstall or for good.
//!
//! It only asks: an annotation on each session, upon which the controller ends the turn that runs, reads and settles it, and takes both finalizers off.
//! When no controller answers, the finalizers are taken off by this command itself, and it says what that costs.

use std::{collections::HashMap, time::Duration};

use crds::{AgentSession, names};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    core::PartialObjectMeta,
};
use serde_json::json;
use tokio::time::Instant;

use crate::{directory::Guarded, effect::without_finalizer, exec::error_chain, watch::Scope};

/// How long nothing at all may happen before no controller is believed to be there.
const SILENCE: Duration = Duration::from_secs(45);
/// What is given beyond the longest `harvestTimeout`: a cancel, a settle, the writes.
const MARGIN: Duration = Duration::from_secs(60);
/// Pause between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// A release that did not come through.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// The API server refused or failed.
    #[error("{operation} failed")]
    Api {
        /// What was tried.
        operation: &'static str,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
}

/// What a release did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Sessions that the controller let go, its records being whole.
    pub by_controller: usize,
    /// Sessions and Pods whose finalizer this command took off itself.
    pub by_force: usize,
}

/// Releases all sessions of these scopes; `say` gets a line for people now and then.
///
/// # Errors
/// [`ReleaseError`].
pub async fn run(client: &Client, scopes: &[Scope], say: impl Fn(&str)) -> Result<Released, ReleaseError> {
    let sessions = ask(client, scopes).await?;
    if sessions.is_empty() && held_pods(client, scopes).await?.is_empty() {
        say("no session is held");
        return Ok(Released::default());
    }
    let timeout = |session: &Guarded| session.0.as_ref().ok().map(|session| session.spec.harvest_timeout());
    let longest = sessions.iter().filter_map(timeout).max().unwrap_or_default();
    say(&format!(
        "{} sessions asked to be let go; turns that run are cancelled and their transcripts read, at most {} s",
        sessions.len(),
        (longest + MARGIN).as_secs()
    ));
    let left = wait(client, scopes, longest + MARGIN, &say).await?;
    let forced = force(client, scopes, &say).await?;
    Ok(Released { by_controller: sessions.len().saturating_sub(left), by_force: forced })
}

/// Annotates every session that is held.
async fn ask(client: &Client, scopes: &[Scope]) -> Result<Vec<Guarded>, ReleaseError> {
    let failed = |operation| move |source| ReleaseError::Api { operation, source: Box::new(source) };
    let mut asked = Vec::new();
    for scope in scopes {
        // One object that this version cannot read must not keep all others from being let go.
        let api: Api<Guarded> = scope.api(client);
        for session in api.list(&ListParams::default()).await.map_err(failed("listing AgentSessions"))? {
            let held = session.finalizers().iter().any(|finalizer| finalizer == names::FINALIZER);
            // A session without a Pod yet could get one while others are being released.
            let patch = json!({"metadata": {"annotations": {names::ANNOTATION_RELEASE: "true"}}});
            let api: Api<AgentSession> = Api::namespaced(client.clone(), &session.namespace().unwrap_or_default());
            let params =
                PatchParams { field_manager: Some(names::MANAGER_RELEASE.to_owned()), ..PatchParams::default() };
            match api.patch_metadata(&session.name_any(), &params, &Patch::Merge(&patch)).await {
                Ok(_) => {}
                Err(kube::Error::Api(answer)) if answer.code == 404 => continue,
                Err(source) => return Err(failed("annotating an AgentSession")(source)),
            }
            if held {
                asked.push(session);
            }
        }
    }
    Ok(asked)
}

/// Waits until nothing is held; gives up when the time is over or nobody seems to be there. Returns how many sessions are left.
async fn wait(client: &Client, scopes: &[Scope], bound: Duration, say: &impl Fn(&str)) -> Result<usize, ReleaseError> {
    let began = Instant::now();
    let mut moved = false;
    let mut seen = HashMap::new();
    let mut said = usize::MAX;
    loop {
        let looked =
            async { Ok::<_, ReleaseError>((held_sessions(client, scopes).await?, held_pods(client, scopes).await?)) };
        let (sessions, pods) = match looked.await {
            Ok(looked) => looked,
            // The API server may be busy; the bound holds all the same.
            Err(error) if began.elapsed() < bound => {
                say(&error_chain(&error));
                tokio::time::sleep(LOOK).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        if sessions.is_empty() && pods.is_empty() {
            return Ok(0);
        }
        let versions: HashMap<Option<String>, Option<String>> = sessions
            .iter()
            .map(|session| (session.uid(), session.resource_version()))
            .chain(pods.iter().map(|pod| (pod.uid(), pod.resource_version())))
            .collect();
        // Who has once answered is there, and may have to hold for all of its harvestTimeout without a word.
        moved |= !seen.is_empty() && versions != seen;
        seen = versions;
        if sessions.len() != said {
            said = sessions.len();
            say(&format!("{said} sessions and {} Pods are still held", pods.len()));
        }
        if began.elapsed() >= bound {
            say("the time is over");
            return Ok(sessions.len());
        }
        if !moved && began.elapsed() >= SILENCE {
            say("nothing has happened for a while: no controller seems to run");
            return Ok(sessions.len());
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn held_sessions(
    client: &Client,
    scopes: &[Scope],
) -> Result<Vec<PartialObjectMeta<AgentSession>>, ReleaseError> {
    let mut held = Vec::new();
    for scope in scopes {
        let api: Api<AgentSession> = scope.api(client);
        let listed = api.list_metadata(&ListParams::default()).await;
        let listed = listed
            .map_err(|source| ReleaseError::Api { operation: "listing AgentSessions", source: Box::new(source) })?;
        held.extend(listed.items.into_iter().filter(is_held));
    }
    Ok(held)
}

async fn held_pods(client: &Client, scopes: &[Scope]) -> Result<Vec<PartialObjectMeta<Pod>>, ReleaseError> {
    let mut held = Vec::new();
    for scope in scopes {
        let api: Api<Pod> = scope.api(client);
        let listed = api.list_metadata(&ListParams::default().labels(names::LABEL_SESSION_UID)).await;
        let listed =
            listed.map_err(|source| ReleaseError::Api { operation: "listing Pods", source: Box::new(source) })?;
        held.extend(listed.items.into_iter().filter(is_held));
    }
    Ok(held)
}

fn is_held<K>(object: &PartialObjectMeta<K>) -> bool
where
    PartialObjectMeta<K>: ResourceExt,
{
    object.finalizers().iter().any(|finalizer| finalizer == names::FINALIZER)
}

/// Takes the finalizers off that are left.
async fn force(client: &Client, scopes: &[Scope], say: &impl Fn(&str)) -> Result<usize, ReleaseError> {
    let mut forced = 0;
    for pod in held_pods(client, scopes).await? {
        let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
        let Some(patch) = without_finalizer(&pod) else { continue };
        forced +=
            usize::from(stripped(api.patch_metadata(&pod.name_any(), &PatchParams::default(), &patch).await, say)?);
        say(&format!(
            "Pod {}: finalizer taken off; what of its log was not stored is lost when it goes",
            pod.name_any()
        ));
    }
    for session in held_sessions(client, scopes).await? {
        let api: Api<AgentSession> = Api::namespaced(client.clone(), &session.namespace().unwrap_or_default());
        let Some(patch) = without_finalizer(&session) else { continue };
        let done = stripped(api.patch_metadata(&session.name_any(), &PatchParams::default(), &patch).await, say)?;
        forced += usize::from(done);
        say(&format!(
            "AgentSession {}/{}: finalizer taken off without the controller; its active turn has no verdict",
            session.namespace().unwrap_or_default(),
            session.name_any()
        ));
    }
    Ok(forced)
}

/// Gone or changed meanwhile is no failure.
fn stripped<T>(result: Result<T, kube::Error>, say: &impl Fn(&str)) -> Result<bool, ReleaseError> {
    match result {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(answer)) if matches!(answer.code, 404 | 409 | 422) => {
            say(&error_chain(&kube::Error::Api(answer)));
            Ok(false)
        }
        Err(source) => Err(ReleaseError::Api { operation: "taking a finalizer off", source: Box::new(source) }),
    }
}
