//! What a user should see, once: the Events that go with completed steps and standing records.
//!
//! The shell calls these after an effect and publishes what comes back. A one-turn session has two: its attempt and its end. Nothing is said of steps that
//! are repeated or that somebody else has said: `settled` and `upgraded` are for the winner of the compare-and-set alone, `waiting` speaks
//! only when the reason is another one than the status had.

use crds::{AgentSession, AgentSessionStatus};
use transcript::{Attempt, Outcome, Reason, Turn, Verdict};

use crate::{
    model::{Settle, Step},
    text::cut,
};

/// Bound of a note, in bytes; the API server refuses more.
pub const NOTE_BYTES: usize = 1024;

/// `type` of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// As it should be.
    Normal,
    /// Somebody may want to act.
    Warning,
}

/// An Event on an AgentSession, without what the shell adds (time, reporter, the object).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Its type.
    pub kind: Kind,
    /// Why: a [`Reason`], an [`Outcome`] or a [`Verdict`] as its word.
    pub reason: &'static str,
    /// What was done, as one CamelCase word.
    pub action: &'static str,
    /// For people, at most [`NOTE_BYTES`].
    pub note: String,
}

fn note(kind: Kind, reason: &'static str, action: &'static str, text: &str) -> Note {
    Note { kind, reason, action, note: cut(text, NOTE_BYTES).into_owned() }
}

/// What a step says by having been carried out. `pod` is the name of the Pod that a [`Step::CreatePod`] made.
#[must_use]
pub fn after_step(step: &Step, pod: Option<&str>) -> Vec<Note> {
    match step {
        Step::CreatePod { attempt, fresh_workspace, nonce: _ } => attempt_started(*attempt, *fresh_workspace, pod),
        Step::RecordLostTurns(turns) => {
            turns.first().map(|_| lost_turns(turns.iter().map(|(turn, _)| *turn))).into_iter().collect()
        }
        Step::ReleaseRecorder { proof, .. }
        | Step::DeletePod { proof, .. }
        | Step::ReleasePod { proof, .. }
        | Step::ReleaseSession { proof } => proof.abandonment().map(abandoned).into_iter().collect(),
        // A settle speaks by its standing record, the rest is machinery.
        Step::Wait
        | Step::AcceptTurns(_)
        | Step::AddFinalizer
        | Step::OpenAttempt { .. }
        | Step::StartTurn { .. }
        | Step::Deliver { .. }
        | Step::CancelTurn { .. }
        | Step::BeginHarvest { .. }
        | Step::Harvest { .. }
        | Step::Settle(_)
        | Step::Reclaim { .. }
        | Step::DeleteSession => Vec::new(),
    }
}

fn attempt_started(attempt: Attempt, fresh_workspace: bool, pod: Option<&str>) -> Vec<Note> {
    let name = pod.unwrap_or("the agent Pod");
    let started =
        note(Kind::Normal, Reason::AttemptStarted.as_str(), "CreatePod", &format!("attempt {attempt}: created {name}"));
    let empty = fresh_workspace.then(|| {
        note(
            Kind::Warning,
            Reason::WorkspaceEmpty.as_str(),
            "CreatePod",
            &format!(
                "attempt {attempt} begins with an empty workspace: files of earlier attempts went with their Pod \
                 (spec.workspace.volumeClaimTemplate would keep them)"
            ),
        )
    });
    std::iter::once(started).chain(empty).collect()
}

fn lost_turns(turns: impl Iterator<Item = Turn>) -> Note {
    let turns: Vec<String> = turns.map(|turn| turn.to_string()).collect();
    let text = format!(
        "the store no longer knows turn {}, accepted earlier: recorded as Lost, and not run again",
        turns.join(", ")
    );
    note(Kind::Warning, Reason::StoreLost.as_str(), "RecordLostTurns", &text)
}

/// Records that could not be written before the Pod or the object had to go.
#[must_use]
pub fn abandoned(reason: Reason) -> Note {
    note(
        Kind::Warning,
        reason.as_str(),
        "Abandon",
        "the deadline passed while the store was out of reach: what had not been stored of the active turn is lost; \
         the store will say so too once it is back",
    )
}

/// The final record of a turn, said by the one who wrote it. `parts` is what is stored of the turn.
#[must_use]
pub fn settled(record: &Settle, parts: u32) -> Note {
    let good = record.outcome == Outcome::Succeeded && record.verdict == Verdict::Complete;
    let reason = match (record.reason, record.verdict_reason) {
        (Some(reason), _) => reason.as_str(),
        (None, Some(reason)) if record.outcome == Outcome::Succeeded => reason.as_str(),
        (None, _) => record.outcome.as_str(),
    };
    let mut text = format!("turn {} {}, transcript {}", record.turn, record.outcome, record.verdict);
    if let Some(missing) = record.verdict_reason {
        text.push_str(&format!(" ({missing})"));
    }
    text.push_str(&format!(", {parts} parts"));
    if let Some(message) = &record.message {
        text.push_str(": ");
        text.push_str(message);
    }
    let asked_for = record.outcome == Outcome::Canceled && record.verdict == Verdict::Complete;
    note(if good || asked_for { Kind::Normal } else { Kind::Warning }, reason, "Settle", &text)
}

/// A later harvest brought the proof.
#[must_use]
pub fn upgraded(turn: Turn, parts: u32) -> Note {
    let text = format!("the transcript of turn {turn} is Complete after all, {parts} parts");
    note(Kind::Normal, Verdict::Complete.as_str(), "Settle", &text)
}

/// What the session waits for, when the status does not say so yet. The ordinary start of a Pod and a wish of the user are no news.
#[must_use]
pub fn waiting(previous: Option<&AgentSessionStatus>, waiting: Option<&(Reason, String)>) -> Option<Note> {
    let (reason, message) = waiting?;
    let known = previous.and_then(|status| status.reason) == Some(*reason);
    let ordinary = matches!(reason, Reason::PodStarting | Reason::Suspended);
    (!known && !ordinary).then(|| note(Kind::Warning, reason.as_str(), "Wait", message))
}

/// Both finalizers are off because `agentsession release` asked for it.
#[must_use]
pub fn released() -> Note {
    let text = "let go by `agentsession release`: no finalizer of ours is left, and no Pod will be made while the annotation stands";
    note(Kind::Normal, Reason::Released.as_str(), "Release", text)
}

/// Fields that validation would not let in today, if the object has any: their defaults are in force.
#[must_use]
pub fn invalid_fields(session: &AgentSession) -> Option<Note> {
    let fields = session.spec.invalid_fields();
    let text: Vec<String> = fields.iter().map(|invalid| format!("{invalid}: {}", invalid.source)).collect();
    (!text.is_empty()).then(|| note(Kind::Warning, Reason::InvalidField.as_str(), "Read", &text.join("; ")))
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
