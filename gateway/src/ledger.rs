//! Sessions and turns as an answer shows them. The store's records are the truth; of a live object only the phase is taken.

use jiff::Timestamp;
use serde::Serialize;
use store::{SessionRecord, TurnRecord};
use transcript::{Attempt, Outcome, Reason, Seq, SessionUid, Turn, TurnState, Verdict, status::Usage};

use crate::cluster::LiveSession;

/// One turn.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TurnView {
    turn: Turn,
    client_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<String>,
    state: TurnState,
    outcome: Option<Outcome>,
    reason: Option<Reason>,
    transcript: Option<Verdict>,
    transcript_reason: Option<Reason>,
    message: Option<String>,
    parts: u32,
    attempt: Option<Attempt>,
    image: Option<String>,
    usage: Option<Usage>,
    accepted_at: Timestamp,
    started_at: Option<Timestamp>,
    settled_at: Option<Timestamp>,
}

impl TurnView {
    /// The turn with its prompt.
    pub(crate) fn whole(record: TurnRecord) -> Self {
        let TurnRecord {
            turn,
            client_id,
            prompt,
            state,
            attempt,
            // A Pod is of no use to a reader; the attempt names it.
            pod_uid: _,
            image,
            outcome,
            reason,
            verdict,
            verdict_reason,
            message,
            parts,
            usage,
            accepted_at,
            started_at,
            settled_at,
        } = record;
        Self {
            turn,
            client_id,
            prompt: Some(prompt),
            state,
            outcome,
            reason,
            transcript: verdict,
            transcript_reason: verdict_reason,
            message,
            parts,
            attempt,
            image,
            usage,
            accepted_at,
            started_at,
            settled_at,
        }
    }

    /// The turn without its prompt.
    pub(crate) fn brief(record: TurnRecord) -> Self {
        Self { prompt: None, ..Self::whole(record) }
    }
}

/// One session, summed up.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionView {
    namespace: String,
    name: String,
    uid: SessionUid,
    mode: Option<String>,
    live: bool,
    phase: String,
    outcome: Option<Outcome>,
    reason: Option<Reason>,
    transcript: Option<Verdict>,
    transcript_reason: Option<Reason>,
    turns: usize,
    parts: u64,
    bytes: u64,
    last_seq: Seq,
    created_at: Option<Timestamp>,
    last_activity_at: Option<Timestamp>,
    deleted_at: Option<Timestamp>,
}

impl SessionView {
    /// A session that the store knows.
    pub(crate) fn stored(record: SessionRecord, turns: &[TurnRecord], live: Option<&LiveSession>) -> Self {
        let SessionRecord {
            uid,
            namespace,
            // The gate has looked at it; the nonce and the attempt are between the controller and the Pod.
            namespace_uid: _,
            name,
            mode,
            attempt: _,
            nonce: _,
            parts,
            bytes,
            last_seq,
            created_at,
            last_activity_at,
            deleted_at,
        } = record;
        let (transcript, transcript_reason) = verdict(turns);
        let last = turns.last();
        Self {
            namespace,
            name,
            uid,
            mode: Some(mode),
            live: live.is_some(),
            phase: live.map_or_else(|| phase(turns).to_owned(), |live| live.phase.clone()),
            outcome: last.and_then(|turn| turn.outcome),
            reason: last.and_then(|turn| turn.reason),
            transcript,
            transcript_reason,
            turns: turns.len(),
            parts,
            bytes,
            last_seq,
            created_at: Some(created_at),
            last_activity_at: Some(last_activity_at),
            // A live object is the newer word on whether it is gone.
            deleted_at: deleted_at.filter(|_| live.is_none()),
        }
    }

    /// A session that exists and that the store has not seen yet.
    pub(crate) fn unseen(namespace: &str, live: LiveSession) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: live.name,
            uid: live.uid,
            mode: live.mode,
            live: true,
            phase: live.phase,
            outcome: None,
            reason: None,
            transcript: None,
            transcript_reason: None,
            turns: 0,
            parts: 0,
            bytes: 0,
            last_seq: Seq(0),
            created_at: live.created_at,
            last_activity_at: None,
            deleted_at: None,
        }
    }

    /// When it was made, for sorting.
    pub(crate) fn created_at(&self) -> Option<Timestamp> {
        self.created_at
    }
}

/// The verdict over a session: the first one that is not `Complete`; `Complete` when all are; none while a turn is still to be judged.
fn verdict(turns: &[TurnRecord]) -> (Option<Verdict>, Option<Reason>) {
    let flawed = turns.iter().find(|turn| turn.verdict.is_some_and(|verdict| verdict != Verdict::Complete));
    match flawed {
        Some(turn) => (turn.verdict, turn.verdict_reason),
        None if !turns.is_empty() && turns.iter().all(|turn| turn.verdict.is_some()) => (Some(Verdict::Complete), None),
        None => (None, None),
    }
}

/// The phase of a session whose object is gone, from its last turn.
fn phase(turns: &[TurnRecord]) -> &'static str {
    let Some(last) = turns.last() else {
        return "Pending";
    };
    match (last.state, last.outcome) {
        (TurnState::Accepted, _) => "Pending",
        (TurnState::Running, _) => "Running",
        (TurnState::Harvesting, _) => "Harvesting",
        (TurnState::Settled, Some(Outcome::Succeeded)) => "Completed",
        (TurnState::Settled, Some(Outcome::Canceled)) => "Canceled",
        (TurnState::Settled, Some(Outcome::Failed | Outcome::Lost) | None) => "Failed",
    }
}
