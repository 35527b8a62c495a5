//! One reconcile: observe → decide → effect, and the status of it all.

use std::{sync::Arc, time::Duration};

use controller_core::{
    decide, events,
    model::{Decision, Observed, SessionView, Step},
    view,
};
use crds::{AgentSession, names};
use kube::{ResourceExt, core::Resource, runtime::controller::Action};
use store::Category;
use transcript::SessionUid;

use crate::{
    context::Context,
    convert,
    directory::Guarded,
    effect::{self, EffectError, Pass},
    exec::{PodTarget, error_chain},
    follow::{FollowSpec, SessionRef},
    memory::SessionMemory,
    observe::{self, observe},
    project::{ProjectError, Projected, project},
    say,
};

/// How soon a pass that came before its own writes is tried again; the event of the write usually comes first.
const CATCH_UP: Duration = Duration::from_millis(50);
/// When a pass that carried out an effect looks again if no event of it comes.
const REMINDER: Duration = Duration::from_millis(250);
/// First pause after a pass that failed; doubled up to [`MAX_PAUSE`].
const PAUSE: Duration = Duration::from_millis(500);
/// Longest pause after a pass that failed.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// A reconcile that failed; tried again with growing pauses.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// An effect.
    #[error("{step} failed")]
    Effect {
        /// Which.
        step: &'static str,
        /// The cause.
        #[source]
        source: EffectError,
    },
    /// What the decision needs.
    #[error(transparent)]
    Observe(#[from] observe::ObserveError),
    /// The status.
    #[error(transparent)]
    Project(#[from] ProjectError),
}

/// Reconciles one session.
///
/// # Errors
/// [`ReconcileError`]. Waiting is not an error.
pub async fn reconcile(object: Arc<Guarded>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    let Some(uid) = object.meta().uid.clone().map(SessionUid) else { return Ok(Action::await_change()) };
    let memory = context.memory.of(&uid);
    if !memory.caught_up(object.meta().resource_version.as_deref(), &context.pods.seen()) {
        return Ok(Action::requeue(CATCH_UP));
    }
    let (session, view) = read(&object);
    let observe::Seen { observed, ledger: _ } = observe(&context, view, &memory).await?;
    let decision = decide(&observed);
    memory.hold(&decision.clocks);
    follow(&context, session, &observed.session, &decision);
    trace(&observed.session, &decision);

    let pass = Pass { context: &context, session, observed: &observed, memory: &memory };
    // A pass that tries a store again which took no writes does not know yet what to say.
    let tries_again = memory.store_trouble().is_some() && observed.ledger.is_ok() && decision.step != Step::Wait;
    let mut later = None;
    let mut unwritten = None;
    if let Some(session) = session.filter(|_| !tries_again) {
        match project(&context, session, &observed, &decision, &memory).await {
            Ok(Projected::Stands) => {}
            Ok(Projected::Written) => {
                let news = events::waiting(session.status.as_ref(), decision.waiting.as_ref());
                news.into_iter().for_each(|note| say::event(&pass, note));
            }
            Ok(Projected::Stale) => return Ok(Action::requeue(CATCH_UP)),
            Ok(Projected::Later(after)) => later = Some(after),
            // A status that nobody lets us write must not keep a record from being made or an object from going.
            Err(error) if decision.step.needs_status() => return Err(error.into()),
            Err(error) => unwritten = Some(error),
        }
    }
    let step = decision.step.name();
    let waits = decision.step == Step::Wait;
    let carried_out = effect::carry_out(&pass, decision.step).await;
    note_store(&memory, &observed, step, &carried_out);
    carried_out.map_err(|source| ReconcileError::Effect { step, source })?;
    if let Some(error) = unwritten {
        return Err(error.into());
    }
    memory.succeeded();
    Ok(match decision.requeue.into_iter().chain(later).min() {
        // What the store took, the next pass reads at once; what the cluster or a Pod took comes back as an event, and this is only the reminder.
        _ if effect::WRITES_STORE.contains(&step) => Action::requeue(Duration::ZERO),
        _ if !waits => Action::requeue(REMINDER),
        Some(after) => Action::requeue(after),
        None => Action::await_change(),
    })
}

/// A store that can be read but takes no writes is away for decisions, until a write goes through.
fn note_store(memory: &SessionMemory, observed: &Observed, step: &str, result: &Result<(), EffectError>) {
    match result {
        // A fence did its work; anything else is a store that does not take what must be recorded, and no deadline may wait for it.
        Err(EffectError::Store(error)) if error.category() != Category::Fenced => {
            memory.set_store_trouble(Some(convert::trouble(error)));
        }
        Ok(()) if observed.ledger.is_ok() && effect::WRITES_STORE.contains(&step) => memory.set_store_trouble(None),
        _ => {}
    }
}

/// An object that cannot be read is still let go when it is deleted.
fn read(object: &Guarded) -> (Option<&AgentSession>, SessionView) {
    match &object.0 {
        Ok(session) => (Some(session), view::session_view(session)),
        Err(invalid) => {
            let metadata = object.meta();
            let has = |finalizer: &str| metadata.finalizers.iter().flatten().any(|has| has == finalizer);
            let view = SessionView::unreadable(
                SessionUid(metadata.uid.clone().unwrap_or_default()),
                metadata.namespace.clone().unwrap_or_default(),
                object.name_any(),
                metadata.deletion_timestamp.is_some(),
                has(names::FINALIZER),
                format!("the object cannot be read by this version: {}", invalid.error),
            );
            (None, view)
        }
    }
}

/// Keeps the follower that the decision wants, and no other.
fn follow(context: &Context, session: Option<&AgentSession>, view: &SessionView, decision: &Decision) {
    let wanted = decision.follow.as_ref();
    for indexed in context.pods.of(&view.uid) {
        let uid = &indexed.view.uid;
        let gone = controller_core::decide::is_terminal(&indexed.view, Duration::ZERO);
        if gone && wanted.is_none_or(|wanted| wanted.pod.uid != *uid) {
            context.followers.stop(uid);
        }
    }
    let (Some(wanted), Some(session)) = (wanted, session) else { return };
    context.followers.ensure(FollowSpec {
        session: SessionRef { namespace: view.namespace.clone(), name: view.name.clone() },
        session_uid: view.uid.clone(),
        pod: PodTarget {
            namespace: view.namespace.clone(),
            name: wanted.pod.name.clone(),
            uid: wanted.pod.uid.clone(),
        },
        turn: wanted.turn,
        attempt: wanted.attempt,
        interval: session.spec.checkpoint_interval(),
        quota_bytes: context.quota_bytes,
    });
}

fn trace(session: &SessionView, decision: &Decision) {
    tracing::debug!(
        session.uid = %session.uid,
        session.namespace = session.namespace,
        session.name = session.name,
        step = decision.step.name(),
        waiting = decision.waiting.as_ref().map(|(reason, _)| reason.as_str()),
        requeue_ms = decision.requeue.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
        "decided"
    );
}

/// What to do after a reconcile that failed.
pub fn after_error(object: &Guarded, error: &ReconcileError, context: &Context) -> Action {
    let uid = SessionUid(object.meta().uid.clone().unwrap_or_default());
    let tries = context.memory.of(&uid).failed();
    let pause = PAUSE.saturating_mul(1 << tries.min(8)).min(MAX_PAUSE);
    tracing::warn!(
        session.uid = %uid,
        session.name = object.name_any(),
        error = %error_chain(error),
        tries,
        "reconcile failed, will be tried again"
    );
    Action::requeue(pause)
}
