//! Evidence of a turn → its outcome and verdict, after everything that could be stored is stored.
//!
//! `Complete` is said only with positive proof. There are two proofs:
//!
//! 1. **The driver's word**: a terminal status for this turn and attempt, and every index below its `parts` stored.
//! 2. **The container's end**: the agent's container has ended, the last status is of this turn and attempt and not terminal, and the stored
//!    indexes are exactly `0..n`, with `n` not below the status' `parts`.
//!
//! In both cases the log exists and was read to its end, every part of it is stored, its last line is whole, no line was damaged, no bound was
//! reached, and nothing was refused for want of quota.

use crate::{
    AgentState, AgentStatus, Attempt, Outcome, Reason, Turn, Verdict,
    merge::{ContainerEnd, Evidence, Judgement},
};

/// Bytes of a judgement's message, at most.
pub const MESSAGE_BYTES: usize = 8 << 10;

/// Judges one turn by what was read and stored.
///
/// When several things are wrong, the first of this list is the verdict's reason: what ends a log comes before what leaves a hole in it, and
/// what leaves a hole before what replaces one part.
///
/// | | what | verdict |
/// |---|---|---|
/// | 1 | no log | Incomplete `LogMissing` |
/// | 2 | no status of this turn and attempt; or none that ends it, while the container goes on (pending) | Incomplete `StatusMissing` |
/// | 3 | the driver could not write, by marker or status | Truncated `LogWriteFailed` |
/// | 4 | the log's size bound | Truncated `LogLimit` |
/// | 5 | the bound on parts | Truncated `PartCountLimit` |
/// | 6 | the session's quota | Truncated `QuotaReached` |
/// | 7 | damaged lines, a torn last line, parts that stand in the store with other bytes | Truncated `LogDamaged` |
/// | 8 | indexes missing, or parts of the log not stored (pending) | Incomplete `PartsMissing` |
/// | 9 | a part over its bound, replaced in its place | Truncated `PartLimit` |
/// | 10 | a status that says `truncated` and not why | Truncated `LogLimit` |
/// | 11 | the log not read to its end (pending) | Incomplete `ReadFailed` |
#[must_use]
pub fn judge(turn: Turn, attempt: Attempt, evidence: &Evidence, agent_end: Option<&ContainerEnd>) -> Judgement {
    let status = evidence.status.as_ref().filter(|status| status.turn == turn && status.attempt == attempt);
    let end = match (status.filter(|status| status.state.is_terminal()), agent_end) {
        (Some(status), _) => End::Said(status),
        (None, Some(end)) => End::Container(end),
        (None, None) => End::None,
    };
    let (outcome, reason) = match end {
        End::Said(status) => outcome_of_status(status),
        End::Container(container) => (Outcome::Failed, Some(reason_of_container(status, container))),
        End::None => (Outcome::Lost, None),
    };
    let shortfall = shortfall(evidence, status, end);
    Judgement {
        outcome,
        reason,
        verdict: shortfall.map_or(Verdict::Complete, |(verdict, _)| verdict),
        verdict_reason: shortfall.map(|(_, reason)| reason),
        message: message(outcome, status, end, evidence),
        usage: status.and_then(|status| status.usage),
        pending: matches!(end, End::None) || is_unread(evidence) || is_unstored(evidence),
    }
}

/// What ended the turn.
#[derive(Clone, Copy)]
enum End<'a> {
    /// The driver says so.
    Said(&'a AgentStatus),
    /// The container ended, and the driver said nothing.
    Container(&'a ContainerEnd),
    /// Nothing yet.
    None,
}

fn is_unread(evidence: &Evidence) -> bool {
    evidence.facts.exists && evidence.facts.read_to < evidence.facts.size
}

fn is_unstored(evidence: &Evidence) -> bool {
    evidence.over_quota == 0 && !evidence.facts.indexes.is_subset(&evidence.stored)
}

/// The first rule of [`judge`] that holds; `None` is the proof.
fn shortfall(evidence: &Evidence, status: Option<&AgentStatus>, end: End<'_>) -> Option<(Verdict, Reason)> {
    let (facts, stored) = (&evidence.facts, &evidence.stored);
    if !facts.exists {
        return Some((Verdict::Incomplete, Reason::LogMissing));
    }
    let Some(status) = status else { return Some((Verdict::Incomplete, Reason::StatusMissing)) };

    let said = status.truncated_reason.as_deref().and_then(|word| word.parse::<Reason>().ok());
    let reached = |bound: Reason| facts.marker == Some(bound) || said == Some(bound);
    let has_all = match end {
        End::Said(status) => stored.covers(status.parts),
        End::Container(_) => stored.is_exactly(stored.len()) && stored.len() >= status.parts,
        End::None => false,
    };
    let rules = [
        (matches!(end, End::None), Verdict::Incomplete, Reason::StatusMissing),
        (reached(Reason::LogWriteFailed), Verdict::Truncated, Reason::LogWriteFailed),
        (reached(Reason::LogLimit), Verdict::Truncated, Reason::LogLimit),
        (reached(Reason::PartCountLimit), Verdict::Truncated, Reason::PartCountLimit),
        (evidence.over_quota > 0, Verdict::Truncated, Reason::QuotaReached),
        (facts.damaged_lines > 0 || facts.torn_tail || evidence.conflicts > 0, Verdict::Truncated, Reason::LogDamaged),
        (!has_all || is_unstored(evidence), Verdict::Incomplete, Reason::PartsMissing),
        (reached(Reason::PartLimit), Verdict::Truncated, Reason::PartLimit),
        (status.truncated || said.is_some() || facts.marker.is_some(), Verdict::Truncated, Reason::LogLimit),
        (is_unread(evidence), Verdict::Incomplete, Reason::ReadFailed),
    ];
    rules.into_iter().find(|(holds, ..)| *holds).map(|(_, verdict, reason)| (verdict, reason))
}

fn outcome_of_status(status: &AgentStatus) -> (Outcome, Option<Reason>) {
    let said = status.reason.as_deref().and_then(|word| word.parse().ok());
    match status.state {
        AgentState::Failed => {
            let guess = match status.exit {
                Some(exit) if exit.oom => Reason::OOMKilled,
                Some(_) => Reason::AgentExited,
                None => Reason::AgentError,
            };
            (Outcome::Failed, Some(said.unwrap_or(guess)))
        }
        AgentState::Canceled => (Outcome::Canceled, said),
        AgentState::Succeeded => (Outcome::Succeeded, None),
        // Not terminal, so never asked.
        AgentState::Starting | AgentState::Idle | AgentState::Running => (Outcome::Lost, None),
    }
}

fn reason_of_container(status: Option<&AgentStatus>, end: &ContainerEnd) -> Reason {
    // Where the kernel kills only the agent process, no container status tells of it, but the driver may have seen it.
    let driver_saw_oom = status.and_then(|status| status.exit).is_some_and(|exit| exit.oom);
    if end.oom_killed || driver_saw_oom { Reason::OOMKilled } else { Reason::AgentExited }
}

/// What a person wants to know first: the error, how the process ended, its last words, what is wrong with the log.
fn message(outcome: Outcome, status: Option<&AgentStatus>, end: End<'_>, evidence: &Evidence) -> Option<String> {
    let mut lines = Vec::new();
    if outcome != Outcome::Succeeded {
        lines.extend(status.and_then(|status| status.error.clone()));
        match (end, status.and_then(|status| status.exit)) {
            (End::Container(end), _) => {
                lines.push(describe_end(Some(end.exit_code), end.signal, end.oom_killed));
                lines.extend(end.message.clone());
            }
            (_, Some(exit)) => lines.push(describe_end(exit.code, exit.signal, exit.oom)),
            (_, None) => {}
        }
        let stderr = status.map(|status| status.stderr_tail.trim()).filter(|text| !text.is_empty());
        lines.extend(stderr.map(|text| format!("stderr: {text}")));
    }
    let damaged = evidence.facts.damaged_lines;
    if damaged > 0 {
        lines.push(format!("{damaged} damaged lines in the log: {}", evidence.facts.defects.join(", ")));
    }
    lines.retain(|line| !line.trim().is_empty());
    (!lines.is_empty()).then(|| bounded(&lines.join("\n")))
}

fn describe_end(code: Option<i32>, signal: Option<i32>, oom: bool) -> String {
    let why = if oom { ": out of memory" } else { "" };
    match (signal.filter(|signal| *signal > 0), code) {
        (Some(signal), _) => format!("agent ended by signal {signal}{why}"),
        (None, Some(code @ 129..=192)) => format!("agent exited with code {code} (signal {}){why}", code - 128),
        (None, Some(code)) => format!("agent exited with code {code}{why}"),
        (None, None) => format!("agent ended{why}"),
    }
}

/// A message within its bound: cut on a character boundary, and saying so.
pub(super) fn bounded(text: &str) -> String {
    const NOTE: &str = " … (cut)";
    if text.len() <= MESSAGE_BYTES {
        return text.to_owned();
    }
    let mut end = MESSAGE_BYTES - NOTE.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{NOTE}", &text[..end])
}
