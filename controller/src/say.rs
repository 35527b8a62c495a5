//! Events on the session: what a user should see, once. An event that cannot be written stops nothing.
//!
//! An event's name is made from what it says, so that the same words about the same thing are one event, whoever says them and however often:
//! a second controller, or this one after a restart, finds it there.

use controller_core::events::EventPlan;
use crds::names;
use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, api::PostParams};
use sha2::{Digest, Sha256};

use crate::{context::API_CALL, effect::Pass, exec::error_chain};

/// Publishes an event on the pass' session, beside the reconcile: nothing waits for it.
pub fn event(pass: &Pass<'_>, plan: EventPlan) {
    let event = build(pass, plan);
    let api: Api<Event> = Api::namespaced(pass.context.client.clone(), &pass.observed.session.namespace);
    tokio::spawn(async move {
        match tokio::time::timeout(API_CALL, api.create(&PostParams::default(), &event)).await {
            Ok(Ok(_)) => {}
            // Said already.
            Ok(Err(kube::Error::Api(answer))) if answer.code == 409 => {}
            Ok(Err(error)) => tracing::debug!(error = %error_chain(&error), "event not published"),
            Err(_) => tracing::debug!("event not published in time"),
        }
    });
}

fn build(pass: &Pass<'_>, plan: EventPlan) -> Event {
    let session = &pass.observed.session;
    let EventPlan { warning, reason, action, note, field } = plan;
    let said = format!("{}|{reason}|{action}|{}|{note}", session.uid, field.as_deref().unwrap_or_default());
    let mut digest = hex::encode(Sha256::digest(said));
    digest.truncate(16);
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{}.{digest}", session.name)),
            namespace: Some(session.namespace.clone()),
            ..ObjectMeta::default()
        },
        type_: Some(if warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(reason.as_str().to_owned()),
        action: Some(action.to_owned()),
        note: Some(note),
        event_time: Some(MicroTime(Timestamp::now())),
        reporting_controller: Some(names::MANAGER_CONTROLLER.to_owned()),
        reporting_instance: Some(pass.context.instance.to_string()),
        regarding: Some(ObjectReference {
            api_version: Some(names::API_VERSION.to_owned()),
            kind: Some(names::KIND.to_owned()),
            name: Some(session.name.clone()),
            namespace: Some(session.namespace.clone()),
            uid: Some(session.uid.0.clone()),
            field_path: field,
            ..ObjectReference::default()
        }),
        ..Event::default()
    }
}
