//! Events on the session: what a user should see, once. An event that cannot be written stops nothing.

use controller_core::events::EventPlan;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType};

use crate::effect::Pass;

/// Publishes an event on the pass' session, beside the reconcile: nothing waits for it.
pub fn event(pass: &Pass<'_>, plan: EventPlan) {
    let session = &pass.observed.session;
    let reference = ObjectReference {
        api_version: Some(crds::names::API_VERSION.to_owned()),
        kind: Some(crds::names::KIND.to_owned()),
        name: Some(session.name.clone()),
        namespace: Some(session.namespace.clone()),
        uid: Some(session.uid.0.clone()),
        ..ObjectReference::default()
    };
    let event = Event {
        type_: if plan.warning { EventType::Warning } else { EventType::Normal },
        reason: plan.reason.as_str().to_owned(),
        note: Some(plan.note),
        action: plan.action.to_owned(),
        secondary: None,
    };
    let recorder = pass.context.events.clone();
    tokio::spawn(async move {
        match tokio::time::timeout(crate::context::API_CALL, recorder.publish(&event, &reference)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(error = %crate::exec::error_chain(&error), "event not published"),
            Err(_) => tracing::debug!("event not published in time"),
        }
    });
}
