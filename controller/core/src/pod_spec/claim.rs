//! The workspace claim: made once, kept over attempts and suspension, gone with the session.

use crds::AgentSession;
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::metadata::{owner_reference, session_labels, theirs, uid};
use crate::names::claim_name;

/// The claim of a session's workspace; `None` when it has an emptyDir.
#[must_use]
pub fn workspace_claim(session: &AgentSession) -> Option<PersistentVolumeClaim> {
    let template = session.spec.workspace.as_ref()?.volume_claim_template.as_ref()?;
    let metadata = template.metadata.clone().unwrap_or_default();
    let mut labels = theirs(metadata.labels);
    labels.extend(session_labels(session));
    let annotations = theirs(metadata.annotations);
    Some(PersistentVolumeClaim {
        metadata: ObjectMeta {
            annotations: (!annotations.is_empty()).then_some(annotations),
            labels: Some(labels),
            name: Some(claim_name(&uid(session))),
            namespace: session.metadata.namespace.clone(),
            owner_references: Some(vec![owner_reference(session)]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec::from(&template.spec)),
        status: None,
    })
}
