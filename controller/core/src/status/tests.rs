mod decided;
mod life;
mod properties;
mod shape;

use std::time::Duration;

use crds::{AgentSessionStatus, Phase};
use serde_json::json;
use transcript::{Attempt, Outcome, PodUid, Turn, Verdict, merge::ContainerEnd, status::Usage};

use super::*;
use crate::{
    fixtures::{UID, session},
    model::{ContainerState, Desired, PodPhase, Trouble},
    view::session_view,
};

// --- fixtures: a session, its ledger and its Pod at some moment

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_796_000_000 + seconds).unwrap()
}

fn accepted(turn: u32) -> TurnView {
    TurnView {
        turn: Turn(turn),
        state: TurnState::Accepted,
        attempt: None,
        pod_uid: None,
        outcome: None,
        reason: None,
        verdict: None,
        verdict_reason: None,
        message: None,
        parts: 0,
        usage: None,
        accepted_at: at(0),
        started_at: None,
        settled_at: None,
        running_for: None,
        settled_for: None,
    }
}

fn running(turn: u32, parts: u32) -> TurnView {
    TurnView {
        state: TurnState::Running,
        attempt: Some(Attempt(1)),
        pod_uid: Some(PodUid::from("p1")),
        parts,
        started_at: Some(at(5)),
        running_for: Some(Duration::from_secs(1)),
        ..accepted(turn)
    }
}

fn harvesting(turn: u32, parts: u32) -> TurnView {
    TurnView { state: TurnState::Harvesting, ..running(turn, parts) }
}

fn settled(turn: u32, outcome: Outcome, verdict: Verdict) -> TurnView {
    TurnView {
        state: TurnState::Settled,
        outcome: Some(outcome),
        verdict: Some(verdict),
        settled_at: Some(at(60)),
        settled_for: Some(Duration::ZERO),
        running_for: None,
        ..running(turn, 10)
    }
}

fn succeeded(turn: u32) -> TurnView {
    settled(turn, Outcome::Succeeded, Verdict::Complete)
}

fn ledger(attempt: u32, turns: Vec<TurnView>) -> LedgerView {
    let parts: u64 = turns.iter().map(|turn| u64::from(turn.parts)).sum();
    LedgerView {
        known: true,
        attempt: Attempt(attempt),
        seed: "seed".to_owned(),
        turns,
        parts,
        bytes: parts * 100,
        last_seq: parts,
    }
}

fn pod() -> PodView {
    PodView {
        name: "agentsession-fix-login-7f3c9a52-1".to_owned(),
        uid: PodUid::from("p1"),
        attempt: Attempt(1),
        nonce: crate::decide::pod_nonce("seed", Attempt(1)),
        owned: true,
        template_digest: "t1".to_owned(),
        has_finalizer: true,
        deleting: None,
        ip: None,
        phase: PodPhase::Pending,
        agent: ContainerState::Waiting,
        recorder: ContainerState::Waiting,
        disruption: None,
        start_error: None,
        node_ready: Some(true),
    }
}

fn up() -> PodView {
    PodView {
        ip: Some("10.1.2.3".to_owned()),
        phase: PodPhase::Running,
        agent: ContainerState::Running,
        recorder: ContainerState::Running,
        ..pod()
    }
}

fn view(turns: usize) -> SessionView {
    let prompts: Vec<_> = (1..=turns).map(|n| json!({"prompt": format!("prompt {n}")})).collect();
    session_view(&session(json!({"spec": {"turns": prompts}})))
}

fn waiting(reason: Reason, message: &str) -> Facts {
    Facts { waiting: Some((reason, message.to_owned())), ..Facts::default() }
}

fn tearing_down() -> Facts {
    Facts { tearing_down: true, ..Facts::default() }
}

fn brief() -> Facts {
    Facts { brief: true, ..Facts::default() }
}

/// Plays the shell: projects, and writes what differs.
struct Object {
    session: SessionView,
    generation: i64,
    status: Option<AgentSessionStatus>,
    clock: i64,
    writes: Vec<Phase>,
}

impl Object {
    fn new(turns: usize) -> Self {
        Self { session: view(turns), generation: 1, status: None, clock: 0, writes: Vec::new() }
    }

    /// One pass; `None` for a store that does not answer.
    fn pass(&mut self, ledger: Option<&LedgerView>, pod: Option<&PodView>, facts: &Facts) -> &AgentSessionStatus {
        self.clock += 1;
        let next = Projection {
            previous: self.status.as_ref(),
            session: &self.session,
            generation: self.generation,
            ledger,
            pod,
            facts,
            now: at(self.clock),
        }
        .status();
        if differs(self.status.as_ref(), &next) {
            self.writes.push(next.phase.unwrap());
            self.status = Some(next);
            self.session.accepted_turns =
                self.status().accepted_turns.and_then(|turns| u32::try_from(turns).ok()).unwrap_or(0);
        }
        self.status.get_or_insert_default()
    }

    fn status(&self) -> &AgentSessionStatus {
        self.status.as_ref().unwrap()
    }

    fn condition(&self, type_: &str) -> (String, String) {
        let condition = condition(self.status(), type_).unwrap();
        (condition.status.clone(), condition.reason.clone())
    }

    /// `status/reason` of the four conditions, in their order.
    fn conditions(&self) -> Vec<String> {
        let conditions = &self.status().conditions;
        assert_eq!(conditions.iter().map(|c| c.type_.as_str()).collect::<Vec<_>>(), names::CONDITIONS);
        conditions.iter().map(|c| format!("{}/{}", c.status, c.reason)).collect()
    }
}

/// From nothing to the end of turn 1, with the Pod still up: what every pass of an ordinary life sees.
fn live_through_turn_one(object: &mut Object) {
    let empty = LedgerView::default();
    let one = ledger(0, vec![accepted(1)]);
    let opened = ledger(1, vec![accepted(1)]);
    object.pass(Some(&empty), None, &brief());
    object.pass(Some(&one), None, &Facts::default());
    object.pass(Some(&one), None, &Facts::default());
    object.pass(Some(&opened), None, &Facts::default());
    object.pass(Some(&opened), Some(&pod()), &Facts::default());
    object.pass(Some(&opened), Some(&PodView { ip: Some("10.1.2.3".to_owned()), ..pod() }), &Facts::default());
    object.pass(Some(&opened), Some(&up()), &Facts::default());
    for parts in [0, 0, 40, 80, 120] {
        object.pass(Some(&ledger(1, vec![running(1, parts)])), Some(&up()), &Facts::default());
    }
    object.pass(Some(&ledger(1, vec![running(1, 120)])), Some(&up()), &brief());
    object.pass(Some(&ledger(1, vec![harvesting(1, 120)])), Some(&up()), &Facts::default());
    object.pass(Some(&ledger(1, vec![harvesting(1, 121)])), Some(&up()), &brief());
}
