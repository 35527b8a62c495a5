//! Stored parts → an AI SDK UI message stream. What a client receives for what is stored; pure, incremental, in bounded memory.
//!
//! The client stops reading at the first chunk that it does not understand, so whatever an agent may have written has to leave here as a
//! stream that AI SDK 5, 6 and 7 read to its end, and at the same time byte for byte as stored wherever that is legal. Hence:
//!
//! - one envelope: `start`, the turns, `finish`, `[DONE]`. The stored `start` and `finish` of each turn are left out;
//! - a part that is legal where it stands goes out verbatim, with its identity as the SSE id;
//! - a part that only lacks something before it gets that first: a block that was never opened is opened, blocks and tool inputs that nobody
//!   ended are ended, `dynamic` is made the same over all parts of a call. What is made up carries no SSE id;
//! - everything else is wrapped as `data-wrapped` {turn, partIndex, why, part | text}; a stored `error` becomes `data-turn-error`;
//! - what is missing is said at its place by `data-gap`, what a turn lacks by its `data-user-prompt` and a closing `data-turn-end`.
//!
//! The same input always gives the same bytes.

use serde::Serialize;

use crate::{Outcome, PartIndex, Reason, SessionUid, Turn, TurnState, Verdict};

mod chunk;
mod open;
mod repair;
mod write;

use repair::TurnReplay;
use write::Sse;

/// One turn as replay needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayTurn {
    /// The turn.
    pub turn: Turn,
    /// What the user asked.
    pub prompt: String,
    /// Its state.
    pub state: TurnState,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// Why it ended so.
    pub reason: Option<Reason>,
    /// How much of it is held.
    pub verdict: Option<Verdict>,
    /// What is missing.
    pub verdict_reason: Option<Reason>,
    /// For people.
    pub message: Option<String>,
}

/// What a client asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayOptions {
    /// Only what comes after this identity. The parts of that turn before it may still be pushed: they are not sent, but tell what is open there.
    pub after: Option<(Turn, PartIndex)>,
    /// Join adjacent deltas of one block. The joined one has the SSE id of the last.
    pub coalesce: bool,
}

/// Turns stored parts into the bytes of an SSE body.
///
/// Call [`begin`](Self::begin) once, [`push`](Self::push) for every stored part in identity order, and [`finish`](Self::finish) or
/// [`fail`](Self::fail) once. Each appends whole events to `out`, so `out` may be sent and emptied between any two calls. What is held
/// between calls is bounded: the turns given, and ids of blocks and tool calls of one turn.
#[derive(Debug)]
pub struct Replay {
    session: SessionUid,
    turns: std::vec::IntoIter<ReplayTurn>,
    next: Option<ReplayTurn>,
    options: ReplayOptions,
    current: Option<(Turn, Option<ReplayTurn>, TurnReplay)>,
    /// The last identity that was pushed.
    last: Option<(Turn, PartIndex)>,
    /// Whether a turn was sent, wholly or in part: the next one begins with a step.
    any_turn_sent: bool,
    still_running: Option<(Turn, TurnState)>,
    ending: Option<Outcome>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UserPrompt<'a> {
    turn: Turn,
    text: &'a str,
    settled: bool,
    state: &'static str,
    outcome: Option<Outcome>,
    reason: Option<Reason>,
    transcript: Option<Verdict>,
    transcript_reason: Option<Reason>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TurnEnd<'a> {
    turn: Turn,
    outcome: Option<Outcome>,
    reason: Option<Reason>,
    transcript: Verdict,
    transcript_reason: Option<Reason>,
    message: Option<&'a str>,
}

#[derive(Serialize)]
struct StillRunning {
    turn: Turn,
    state: &'static str,
}

#[derive(Serialize)]
struct Gap {
    turn: Turn,
    after: Option<PartIndex>,
    before: PartIndex,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Resync<'a> {
    turn: Option<Turn>,
    after: Option<PartIndex>,
    message: &'a str,
}

impl Replay {
    /// A replay of the session, whose turns are given in order.
    #[must_use]
    pub fn new(session: &SessionUid, turns: Vec<ReplayTurn>, options: ReplayOptions) -> Self {
        let mut turns = turns.into_iter();
        Self {
            session: session.clone(),
            next: turns.next(),
            turns,
            options,
            current: None,
            last: None,
            any_turn_sent: false,
            still_running: None,
            ending: None,
        }
    }

    /// The `start` of the one message. Its id is always the same for a session, so that a client that reads again replaces what it has.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        Sse(out).start(&format!("durable-{}", self.session));
    }

    /// One stored part. A part that does not come after the last one is passed over: identity order is the caller's part of the contract.
    pub fn push(&mut self, turn: Turn, index: PartIndex, raw: &str, out: &mut Vec<u8>) {
        if self.last.is_some_and(|last| (turn, index) <= last) {
            return;
        }
        self.go_to(turn, out);
        self.say_gap(turn, index, out);
        self.last = Some((turn, index));
        let is_past = self.is_before_cursor(turn, index);
        self.any_turn_sent |= !is_past;
        if let Some((_, _, replay)) = &mut self.current {
            replay.part(index, raw, is_past, out);
        }
    }

    /// The end of a stream that could be read: ends what is open, says what is missing and whether a turn still runs, `finish`, `[DONE]`.
    pub fn finish(mut self, out: &mut Vec<u8>) {
        while let Some(turn) = self.next.as_ref().map(|turn| turn.turn) {
            self.go_to(turn, out);
        }
        self.end_turn(out);
        if let Some((turn, state)) = self.still_running {
            let data = StillRunning { turn, state: state.as_str() };
            Sse(out).data("data-still-running", Some("still-running"), &data);
        }
        let reason = match (self.still_running, self.ending) {
            (Some(_), _) | (None, None) => None,
            (None, Some(Outcome::Succeeded)) => Some("stop"),
            (None, Some(Outcome::Failed)) => Some("error"),
            (None, Some(Outcome::Canceled | Outcome::Lost)) => Some("other"),
        };
        Sse(out).finish(reason);
    }

    /// The end of a stream whose source failed: ends what is open, says by `data-resync` after which identity to read again, `finish`, `[DONE]`.
    pub fn fail(mut self, message: &str, out: &mut Vec<u8>) {
        if let Some((_, _, replay)) = self.current.take() {
            replay.end(out);
        }
        let after = self.last.max(self.options.after);
        let data = Resync { turn: after.map(|(turn, _)| turn), after: after.map(|(_, index)| index), message };
        Sse(out).data("data-resync", None, &data);
        Sse(out).finish(Some("error"));
    }

    /// Ends and begins turns until `turn` is the current one.
    fn go_to(&mut self, turn: Turn, out: &mut Vec<u8>) {
        while self.current.as_ref().is_none_or(|(current, ..)| *current < turn) {
            self.end_turn(out);
            match self.next.take_if(|next| next.turn <= turn) {
                Some(next) => {
                    self.next = self.turns.next();
                    self.begin_turn(next.turn, Some(next), out);
                }
                // A part whose turn is not among the records: it was accepted after they were read.
                None => self.begin_turn(turn, None, out),
            }
        }
    }

    fn begin_turn(&mut self, turn: Turn, record: Option<ReplayTurn>, out: &mut Vec<u8>) {
        let is_new = self.options.after.is_none_or(|(after, _)| after < turn);
        if is_new && self.any_turn_sent {
            Sse(out).bare("start-step");
        }
        if let Some(record) = &record
            && is_new
        {
            let data = UserPrompt {
                turn,
                text: &record.prompt,
                settled: !record.state.is_active(),
                state: record.state.as_str(),
                outcome: record.outcome,
                reason: record.reason,
                transcript: record.verdict,
                transcript_reason: record.verdict_reason,
            };
            Sse(out).data("data-user-prompt", Some(&format!("prompt-{turn}")), &data);
        }
        self.any_turn_sent |= is_new;
        self.current = Some((turn, record, TurnReplay::new(turn, self.options.coalesce)));
    }

    fn end_turn(&mut self, out: &mut Vec<u8>) {
        let Some((turn, record, replay)) = self.current.take() else { return };
        replay.end(out);
        let Some(record) = record else { return };
        if record.state.is_active() {
            self.still_running.get_or_insert((turn, record.state));
            return;
        }
        self.ending = record.outcome;
        let is_past = self.options.after.is_some_and(|(after, _)| turn < after);
        if let Some(transcript @ (Verdict::Truncated | Verdict::Incomplete)) = record.verdict
            && !is_past
        {
            let data = TurnEnd {
                turn,
                outcome: record.outcome,
                reason: record.reason,
                transcript,
                transcript_reason: record.verdict_reason,
                message: record.message.as_deref(),
            };
            Sse(out).data("data-turn-end", Some(&format!("end-{turn}")), &data);
        }
    }

    fn say_gap(&mut self, turn: Turn, index: PartIndex, out: &mut Vec<u8>) {
        let of_turn =
            |identity: Option<(Turn, PartIndex)>| identity.filter(|(t, _)| *t == turn).map(|(_, index)| index);
        let pushed = of_turn(self.last);
        // Whoever resumes has what stands before the cursor, whether or not it is pushed again.
        let has = pushed.max(of_turn(self.options.after).filter(|after| *after < index));
        let expected = has.map_or(0, |has| has.0.saturating_add(1));
        if index.0 > expected && !self.is_before_cursor(turn, index) {
            if let Some((_, _, replay)) = &mut self.current {
                replay.flush(out);
            }
            Sse(out).data("data-gap", None, &Gap { turn, after: has, before: index });
        }
    }

    fn is_before_cursor(&self, turn: Turn, index: PartIndex) -> bool {
        self.options.after.is_some_and(|after| (turn, index) <= after)
    }
}
