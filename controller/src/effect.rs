//! The third stage of a reconcile: carries out one [`Step`]. Leaves nothing to choose; every effect may be repeated.
//!
//! `store` writes records, `cluster` writes objects, `inside` talks to recorders. What each must not be taken for: an effect that finds its work done
//! already, its object gone or a newer writer in place has done its work.

mod cluster;
mod inside;
mod store;

pub(crate) use cluster::{only, without_finalizer};
use controller_core::{
    Settled, events,
    model::{Observed, Step},
};
use crds::AgentSession;

use crate::{
    context::{API_CALL, Context},
    deliver::DeliverError,
    failpoint,
    memory::SessionMemory,
    metrics::{ReasonLabel, StepErrorLabel, StepLabel},
    say,
};

/// Steps that write the store.
pub const WRITES_STORE: [&str; 7] =
    ["accept", "record-lost", "open-attempt", "start", "begin-harvest", "settle", "reclaim"];

/// An effect that failed. `Display` leaves the cause to the error chain.
#[derive(Debug, thiserror::Error)]
pub enum EffectError {
    /// The store did not take it.
    #[error("the store did not take it")]
    Store(#[from] ::store::StoreError),
    /// The API server refused or failed.
    #[error("the API server did not take it")]
    Api(#[source] Box<kube::Error>),
    /// The API server did not answer in time.
    #[error("the API server did not answer within {} s", API_CALL.as_secs())]
    TimedOut,
    /// The cache that was decided on is behind the API server; tried again with pauses, since a watch that stalls stays behind for long.
    #[error("the cache is behind the API server")]
    Behind,
    /// The recorder did not take it.
    #[error("the recorder did not take it")]
    Deliver(#[from] DeliverError),
}

impl EffectError {
    /// Bounded label for metrics.
    #[must_use]
    pub fn category(&self) -> &'static str {
        match self {
            Self::Store(error) => match error.category() {
                ::store::Category::Unavailable => "store_unavailable",
                ::store::Category::Full => "store_full",
                ::store::Category::Unusable => "store_unusable",
                ::store::Category::Refused => "store_refused",
                ::store::Category::Fenced => "store_fenced",
            },
            Self::Api(_) => "api",
            Self::TimedOut => "api_timeout",
            Self::Behind => "behind",
            Self::Deliver(error) => error.category(),
        }
    }
}

impl From<kube::Error> for EffectError {
    fn from(error: kube::Error) -> Self {
        Self::Api(Box::new(error))
    }
}

/// One pass of a session: what all effects need.
pub struct Pass<'a> {
    /// What is shared.
    pub context: &'a Context,
    /// The object as it was observed; `None` when it cannot be read, so that nothing can be made from it.
    pub session: Option<&'a AgentSession>,
    /// What was observed.
    pub observed: &'a Observed,
    /// What is remembered.
    pub memory: &'a std::sync::Arc<SessionMemory>,
}

/// Carries out one step.
///
/// # Errors
/// [`EffectError`]; the step may be repeated.
pub async fn carry_out(pass: &Pass<'_>, step: Step) -> Result<(), EffectError> {
    let name = step.name();
    if step == Step::Wait {
        return Ok(());
    }
    failpoint::pass(name, "before");
    let result = dispatch(pass, &step).await;
    failpoint::pass(name, "after");
    let metrics = &pass.context.metrics;
    match &result {
        Ok(()) => {
            metrics.steps.get_or_create(&StepLabel { step: name }).inc();
        }
        Err(error) => {
            metrics.step_errors.get_or_create(&StepErrorLabel { step: name, category: error.category() }).inc();
        }
    }
    result
}

async fn dispatch(pass: &Pass<'_>, step: &Step) -> Result<(), EffectError> {
    match step {
        Step::Wait => Ok(()),
        Step::AcceptTurns(turns) => store::accept(pass, turns).await,
        Step::RecordLostTurns(turns) => store::record_lost(pass, turns).await,
        Step::OpenAttempt { attempt, seed } => store::open_attempt(pass, *attempt, seed).await,
        Step::StartTurn { turn, attempt, pod } => store::start_turn(pass, *turn, *attempt, pod).await,
        Step::BeginHarvest { turn, attempt } => store::begin_harvest(pass, *turn, *attempt).await,
        Step::Settle(settle) => store::settle(pass, settle).await,
        Step::Reclaim { delete } => store::reclaim(pass, *delete).await,
        Step::AddFinalizer => cluster::add_finalizer(pass).await,
        Step::CreatePod { attempt, nonce, fresh_workspace } => {
            cluster::create_pod(pass, *attempt, nonce, *fresh_workspace).await
        }
        Step::DeletePod { pod, proof } => {
            note_abandonment(pass, proof);
            cluster::delete_pod(pass, pod).await
        }
        Step::ReleasePod { pod, proof } => {
            note_abandonment(pass, proof);
            cluster::release_pod(pass, pod).await
        }
        Step::ReleaseSession { proof } => {
            note_abandonment(pass, proof);
            cluster::release_session(pass).await
        }
        Step::DeleteSession => cluster::delete_session(pass).await,
        Step::Deliver { turn, pod } => inside::deliver(pass, *turn, pod).await,
        Step::CancelTurn { turn, pod } => inside::cancel(pass, *turn, pod).await,
        Step::ReleaseRecorder { pod, proof } => {
            note_abandonment(pass, proof);
            inside::release_recorder(pass, pod).await;
            Ok(())
        }
        Step::Harvest { turn, attempt, pod, after_agent_end } => {
            inside::harvest(pass, *turn, *attempt, pod, *after_agent_end);
            Ok(())
        }
    }
}

/// Records that were abandoned have no line in the store to speak for them: metric, log and event do, once.
fn note_abandonment(pass: &Pass<'_>, proof: &Settled) {
    let Some(reason) = proof.abandonment() else { return };
    if !pass.memory.abandon(reason) {
        return;
    }
    pass.context.metrics.abandoned.get_or_create(&ReasonLabel { reason: reason.as_str() }).inc();
    tracing::error!(
        session.uid = %pass.observed.session.uid,
        session.name = pass.observed.session.name,
        reason = reason.as_str(),
        "the deadline passed with the store out of reach: what was not stored is abandoned"
    );
    say::event(pass, events::abandoned(reason));
}
