//! Names, labels and annotations of what we make, and who owns it.

use std::collections::BTreeMap;

use crds::{AgentSession, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use transcript::SessionUid;

use super::{PodPlan, digest::template_digest, is_ours};
use crate::names::{label_value, pod_name};

/// Not the name of the program: Services of the controller and the gateway may select by that one.
const APP_NAME: (&str, &str) = ("app.kubernetes.io/name", "agentsession-agent");
const APP_COMPONENT: (&str, &str) = ("app.kubernetes.io/component", "agent");
/// `kubectl logs` and `kubectl exec` without `-c` go there.
const DEFAULT_CONTAINER: (&str, &str) = ("kubectl.kubernetes.io/default-container", names::CONTAINER_AGENT);
/// Annotations that change what a runtime confines. They are older than the fields, and still obeyed.
const SECURITY_ANNOTATIONS: [&str; 3] = [
    "container.apparmor.security.beta.kubernetes.io/",
    "container.seccomp.security.alpha.kubernetes.io/",
    "seccomp.security.alpha.kubernetes.io/",
];

pub(super) fn pod(session: &AgentSession, plan: &PodPlan) -> ObjectMeta {
    let template = session.spec.pod_template.clone().unwrap_or_default();
    let name = session.metadata.name.clone().unwrap_or_default();
    let mut labels = theirs(template.labels);
    labels.extend(session_labels(session));
    labels.insert(names::LABEL_ATTEMPT.to_owned(), plan.attempt.to_string());
    let mut annotations = theirs(template.annotations);
    annotations.retain(|key, _| !SECURITY_ANNOTATIONS.iter().any(|prefix| key.starts_with(prefix)));
    annotations.extend(pairs([
        (names::ANNOTATION_NONCE, plan.nonce.as_str()),
        (names::ANNOTATION_TEMPLATE, template_digest(&session.spec).as_str()),
        (names::ANNOTATION_SAFE_TO_EVICT, "false"),
        (names::ANNOTATION_DO_NOT_DISRUPT, "true"),
        DEFAULT_CONTAINER,
    ]));
    ObjectMeta {
        annotations: Some(annotations),
        finalizers: Some(vec![names::FINALIZER.to_owned()]),
        labels: Some(labels),
        name: Some(pod_name(&name, &uid(session), plan.attempt)),
        namespace: session.metadata.namespace.clone(),
        owner_references: Some(vec![owner_reference(session)]),
        ..ObjectMeta::default()
    }
}

/// The session as the controlling owner. Always in the object's own namespace: a reference across namespaces would have it collected.
#[must_use]
pub fn owner_reference(session: &AgentSession) -> OwnerReference {
    OwnerReference {
        api_version: names::API_VERSION.to_owned(),
        block_owner_deletion: Some(true),
        controller: Some(true),
        kind: names::KIND.to_owned(),
        name: session.metadata.name.clone().unwrap_or_default(),
        uid: session.metadata.uid.clone().unwrap_or_default(),
    }
}

/// Labels of everything that belongs to one session.
pub(super) fn session_labels(session: &AgentSession) -> BTreeMap<String, String> {
    let name = label_value(session.metadata.name.as_deref().unwrap_or_default());
    let mut labels = common_labels();
    labels.extend(pairs([(names::LABEL_SESSION_UID, uid(session).as_str()), (names::LABEL_SESSION, name.as_str())]));
    labels
}

/// Labels of everything that we make.
pub(super) fn common_labels() -> BTreeMap<String, String> {
    pairs([APP_NAME, APP_COMPONENT, (names::LABEL_MANAGED_BY, names::MANAGED_BY)]).collect()
}

pub(super) fn uid(session: &AgentSession) -> SessionUid {
    SessionUid(session.metadata.uid.clone().unwrap_or_default())
}

/// What a session may set: everything outside of our prefix. What we set ourselves outside of it is put over it afterwards.
pub(super) fn theirs(mut map: BTreeMap<String, String>) -> BTreeMap<String, String> {
    map.retain(|key, _| !is_ours(key));
    map
}

fn pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> impl Iterator<Item = (String, String)> {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()))
}
