//! Effects inside agent Pods, by exec into the recorder.

use std::sync::Arc;

use controller_core::model::{Done, PodRef, Trouble};
use tokio::time::Instant;
use transcript::{Attempt, Reason, Turn, frame::Prompt};

use super::{EffectError, Pass};
use crate::{
    context::Context,
    deliver,
    exec::PodTarget,
    harvest::{HarvestRequest, Harvested},
    memory::{HarvestKey, SessionMemory},
    metrics::ReasonLabel,
};

pub(super) async fn deliver(pass: &Pass<'_>, turn: Turn, pod: &PodRef) -> Result<(), EffectError> {
    let session = &pass.observed.session;
    let index = usize::try_from(turn.0).unwrap_or(usize::MAX).wrapping_sub(1);
    // Turns are append-only: the object has what was accepted, or our view of it is older than that.
    let Some(spec) = session.turns.get(index) else { return Err(EffectError::Behind) };
    let prompt = Prompt { turn, prompt: spec.prompt.clone(), context: None };
    deliver::deliver_prompt(&pass.context.execs, &target(pass, pod), &prompt).await?;
    pass.memory.mark(Done::Delivered(pod.uid.clone(), turn));
    tracing::info!(session.uid = %session.uid, turn = turn.0, pod.name = pod.name, "prompt delivered");
    Ok(())
}

pub(super) async fn cancel(pass: &Pass<'_>, turn: Turn, pod: &PodRef) -> Result<(), EffectError> {
    deliver::cancel(&pass.context.execs, &target(pass, pod), turn).await?;
    pass.memory.mark(Done::Canceled(pod.uid.clone(), turn));
    tracing::info!(session.uid = %pass.observed.session.uid, turn = turn.0, pod.name = pod.name, "turn told to stop");
    Ok(())
}

/// Told once, whether it listens or not: what follows does not depend on it.
pub(super) async fn release_recorder(pass: &Pass<'_>, pod: &PodRef) {
    pass.context.followers.stop(&pod.uid);
    let told = deliver::release_recorder(&pass.context.execs, &target(pass, pod)).await;
    pass.memory.mark(Done::RecorderReleased(pod.uid.clone()));
    if let Err(error) = told
        && !error.is_ended()
    {
        tracing::debug!(error = %crate::exec::error_chain(&error), pod.name = pod.name, "recorder not told to go");
    }
}

/// Begins the settling read in a task of its own: a reconcile never waits for a log.
pub(super) fn harvest(pass: &Pass<'_>, turn: Turn, attempt: Attempt, pod: &PodRef, after_agent_end: bool) {
    let key = HarvestKey { turn, attempt, pod: pod.uid.clone() };
    if !pass.memory.begin_harvest(key.clone()) {
        return;
    }
    let request = HarvestRequest {
        session: pass.observed.session.uid.clone(),
        pod: target(pass, pod),
        turn,
        attempt,
        quota_bytes: pass.context.quota_bytes,
        checkpoint: pass
            .context
            .followers
            .view(&pod.uid)
            .filter(|view| view.turn == turn)
            .and_then(|view| view.checkpoint),
    };
    tokio::spawn(run_harvest(pass.context.clone(), Arc::clone(pass.memory), key, request, after_agent_end));
}

/// A read that is dropped or panics has failed: a session must not wait for it for ever.
struct EndOfHarvest<'a> {
    memory: &'a SessionMemory,
    key: &'a HarvestKey,
}

impl Drop for EndOfHarvest<'_> {
    fn drop(&mut self) {
        let trouble = Trouble { reason: Reason::ReadFailed, message: "the read was broken off".to_owned() };
        self.memory.end_harvest(self.key, Err(trouble));
    }
}

async fn run_harvest(
    context: Context,
    memory: Arc<SessionMemory>,
    key: HarvestKey,
    request: HarvestRequest,
    after_agent_end: bool,
) {
    let began = Instant::now();
    let guard = EndOfHarvest { memory: &memory, key: &key };
    let result = context.harvester.harvest(&request).await;
    std::mem::forget(guard);
    let duration = began.elapsed();
    context.metrics.harvest_seconds.observe(duration.as_secs_f64());
    let result = match result {
        Ok(Harvested { evidence, figures }) => {
            context.metrics.harvest_parts.inc_by(evidence.inserted.into());
            context.metrics.part_conflicts.inc_by(evidence.conflicts.into());
            tracing::info!(
                session.uid = %request.session,
                turn = request.turn.0,
                part.count = evidence.inserted,
                size_bytes = figures.read_bytes,
                duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
                "log read and stored"
            );
            Ok((Box::new(evidence), after_agent_end))
        }
        Err(error) => {
            let reason = error.reason();
            context.metrics.harvest_failures.get_or_create(&ReasonLabel { reason: reason.as_str() }).inc();
            tracing::warn!(session.uid = %request.session, turn = request.turn.0, error = %error.chain(), "log not read");
            Err(Trouble { reason, message: error.chain() })
        }
    };
    memory.end_harvest(&key, result);
    context.directory.poke(&request.session);
}

fn target(pass: &Pass<'_>, pod: &PodRef) -> PodTarget {
    PodTarget { namespace: pass.observed.session.namespace.clone(), name: pod.name.clone(), uid: pod.uid.clone() }
}
