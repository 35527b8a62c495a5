//! The first stage of a reconcile: caches, store, followers and memory → one [`Observed`].

use std::collections::BTreeMap;

use controller_core::{
    model::{DriverView, LedgerView, Observed, PodView, SessionView, Trouble},
    view,
};
use store::Ledger;
use transcript::SessionUid;

use crate::{context::Context, convert, memory::SessionMemory};

/// What a reconcile sees, and the ledger that it was made from.
pub struct Seen {
    /// For the decision.
    pub observed: Observed,
    /// The records, for effects and status; `None` when the store did not answer.
    pub ledger: Option<Ledger>,
}

/// Gathers everything that a decision may know.
pub async fn observe(context: &Context, session: SessionView, memory: &SessionMemory) -> Seen {
    let pods = pods(context, &session.uid).await;
    let ledger = match memory.store_trouble() {
        Some((trouble, false)) => Err(trouble),
        Some((_, true)) | None => read_ledger(context, &session.uid).await,
    };
    let (view, ledger) = match ledger {
        Ok(ledger) => (Ok(convert::ledger_view(&ledger)), Some(ledger)),
        Err(trouble) => (Err(trouble), None),
    };
    let active = view.as_ref().ok().and_then(active_turn);
    let observed = Observed {
        drivers: drivers(context, &pods),
        harvest: memory.harvest(active),
        refusal: memory.refusal(),
        elapsed: memory.elapsed(),
        abandoned: memory.abandoned(),
        done: memory.done(),
        fresh_seed: uuid::Uuid::new_v4().simple().to_string(),
        session,
        ledger: view,
        pods,
    };
    Seen { observed, ledger }
}

async fn read_ledger(context: &Context, uid: &SessionUid) -> Result<Ledger, Trouble> {
    let _turn = context.looks.ledger_reads.acquire().await;
    context.store.ledger(uid).await.map_err(|error| convert::trouble(&error))
}

fn active_turn(ledger: &LedgerView) -> Option<transcript::Turn> {
    ledger.turns.iter().find(|turn| turn.state.is_active()).map(|turn| turn.turn)
}

/// The session's Pods. Whether a node answers is only asked for Pods that are being deleted: it is what tells a slow end from none.
async fn pods(context: &Context, uid: &SessionUid) -> Vec<PodView> {
    let mut views = Vec::new();
    for indexed in context.pods.of(uid) {
        let mut view = indexed.view;
        if let (Some(_), Some(node)) = (view.deleting, &indexed.node) {
            let ready = context.node_ready(node).await;
            view = view::with_node(view, ready);
        }
        views.push(view);
    }
    views
}

fn drivers(context: &Context, pods: &[PodView]) -> BTreeMap<transcript::PodUid, DriverView> {
    let heard = |pod: &PodView| {
        let view = context.followers.view(&pod.uid)?;
        let trouble = view.trouble.map(|trouble| Trouble { reason: trouble.reason, message: trouble.message });
        Some((pod.uid.clone(), DriverView { status: view.status, trouble }))
    };
    pods.iter().filter_map(heard).collect()
}
