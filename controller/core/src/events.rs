//! What a user should see, once: the Events that go with completed effects and standing records.
//!
//! The shell calls these after an effect and publishes what comes back. A one-turn session has two: its attempt and its end. Nothing is said of steps
//! that are repeated or that somebody else has said: [`turn_settled`] is for the winner of the compare-and-set alone, [`refused`] and [`waiting`]
//! speak only when it is news.

use crds::{AgentSession, AgentSessionStatus};
use transcript::{Attempt, Outcome, Reason, Verdict};

use crate::{
    model::{PodRefusal, RefusalKind, TurnView},
    text::cut,
};

/// Bound of a note, in bytes; the API server refuses more.
pub const NOTE_BYTES: usize = 1024;

/// An Event on an AgentSession, without what the shell adds (time, reporter, the object).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventPlan {
    /// Whether somebody may want to act: `type` Warning instead of Normal.
    pub warning: bool,
    /// Why.
    pub reason: Reason,
    /// What was done, as one CamelCase word.
    pub action: &'static str,
    /// For people, at most [`NOTE_BYTES`].
    pub note: String,
    /// What of the session it is about, as a path: two events that differ only in it are two, and not one that happened twice.
    pub field: Option<String>,
}

fn plan(warning: bool, reason: Reason, action: &'static str, note: &str) -> EventPlan {
    EventPlan { warning, reason, action, note: cut(note, NOTE_BYTES).into_owned(), field: None }
}

/// The Pod of an attempt was made.
#[must_use]
pub fn attempt_started(attempt: Attempt, pod: &str) -> EventPlan {
    let started = plan(false, Reason::AttemptStarted, "CreatePod", &format!("attempt {attempt}: created Pod {pod}"));
    EventPlan { field: Some(format!("status.attempt={attempt}")), ..started }
}

/// A fresh attempt of a session without a claim: what earlier attempts left in the workspace went with their Pods.
#[must_use]
pub fn workspace_empty(attempt: Attempt) -> EventPlan {
    let note = format!(
        "attempt {attempt} begins with an empty workspace, since files of earlier attempts went with their Pods; \
         spec.workspace.volumeClaimTemplate keeps them"
    );
    plan(true, Reason::WorkspaceEmpty, "CreatePod", &note)
}

/// The API server did not make the Pod; `None` for what the session's end says by itself.
#[must_use]
pub fn refused(refusal: &PodRefusal) -> Option<EventPlan> {
    let reason = match refusal.kind {
        RefusalKind::Quota => Reason::QuotaExceeded,
        RefusalKind::NameTaken => Reason::NameTaken,
        RefusalKind::Fatal => Reason::PodRefused,
        RefusalKind::NamespaceTerminating => return None,
    };
    Some(plan(true, reason, "CreatePod", &refusal.message))
}

/// Turns that the object says were accepted once and the store does not know.
#[must_use]
pub fn store_lost(turns: usize) -> EventPlan {
    let plural = if turns == 1 { "" } else { "s" };
    let note = format!(
        "the store no longer knows {turns} turn{plural} that it once had: recorded as Lost, not to be run again"
    );
    plan(true, Reason::StoreLost, "RecordLostTurns", &note)
}

/// The record of a turn that stands, said by the one who wrote it (also when it was raised to `Complete` later).
#[must_use]
pub fn turn_settled(turn: &TurnView) -> EventPlan {
    let outcome = turn.outcome.unwrap_or(Outcome::Lost);
    let verdict = turn.verdict.unwrap_or(Verdict::Incomplete);
    let reason = turn.reason.or(turn.verdict_reason).unwrap_or(Reason::TurnSettled);
    let mut note = format!("turn {} {outcome}", turn.turn);
    if let Some(reason) = turn.reason {
        note.push_str(&format!(" ({reason})"));
    }
    note.push_str(&format!(", transcript {verdict}"));
    if let Some(reason) = turn.verdict_reason {
        note.push_str(&format!(" ({reason})"));
    }
    note.push_str(&format!(", {} parts", turn.parts));
    if let Some(message) = &turn.message {
        note.push_str(": ");
        note.push_str(message);
    }
    // A cancel that lost nothing is what somebody asked for.
    let fine = matches!(outcome, Outcome::Succeeded | Outcome::Canceled) && verdict == Verdict::Complete;
    let settled = plan(!fine, reason, "Settle", &note);
    EventPlan { field: Some(format!("spec.turns[{}]", turn.turn.0.saturating_sub(1))), ..settled }
}

/// Records that could not be written before the Pod or the object had to go.
#[must_use]
pub fn abandoned(reason: Reason) -> EventPlan {
    let note = "the deadline passed while the store was out of reach: what had not been stored of the active turn is lost, \
                and the store will say so too once it is back";
    plan(true, reason, "Abandon", note)
}

/// What the session waits for, unless its status says so already. The ordinary start of a Pod and a wish of the user are no news.
#[must_use]
pub fn waiting(previous: Option<&AgentSessionStatus>, waiting: Option<&(Reason, String)>) -> Option<EventPlan> {
    let (reason, message) = waiting?;
    let known = previous.and_then(|status| status.reason) == Some(*reason);
    let ordinary = matches!(reason, Reason::PodStarting | Reason::Suspended);
    (!known && !ordinary).then(|| plan(true, *reason, "Wait", message))
}

/// Both finalizers are off because `agentsession release` asked for it.
#[must_use]
pub fn released() -> EventPlan {
    let note = "let go by `agentsession release`: no finalizer of ours is left, and no Pod is made while its annotation stands";
    plan(false, Reason::Released, "Release", note)
}

/// Fields that validation would not let in today, if the object has any: their defaults are in force.
#[must_use]
pub fn invalid_fields(session: &AgentSession) -> Option<EventPlan> {
    let fields = session.spec.invalid_fields();
    let texts: Vec<String> = fields.iter().map(|invalid| format!("{invalid}: {}", invalid.source)).collect();
    (!texts.is_empty()).then(|| plan(true, Reason::InvalidField, "Read", &texts.join("; ")))
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
