//! Keeps the status small, whatever agents, runtimes and databases have to say.

use crds::AgentSessionStatus;

use crate::text::cut;

/// The JSON text of a status, at most.
pub const STATUS_BYTES: usize = 16 << 10;

/// Bounds of texts in bytes, from generous to none: of the message and the conditions, and of each turn record.
const STEPS: [(usize, usize); 6] = [(1024, 384), (1024, 192), (768, 96), (384, 48), (128, 16), (64, 0)];

/// The status with its texts cut on character boundaries until it fits; if names alone do not, the oldest records go.
pub(super) fn fit(status: AgentSessionStatus) -> AgentSessionStatus {
    let mut last = None;
    for (text, record) in STEPS {
        let bounded = cut_texts(&status, text, record);
        if size(&bounded) <= STATUS_BYTES {
            return bounded;
        }
        last = Some(bounded);
    }
    let mut status = last.unwrap_or(status);
    while size(&status) > STATUS_BYTES && !status.turns.is_empty() {
        status.turns.remove(0);
    }
    status
}

/// The last record is the one that people look for: it has as much room as the message.
fn cut_texts(status: &AgentSessionStatus, text: usize, record: usize) -> AgentSessionStatus {
    let mut status = status.clone();
    shorten(&mut status.message, text);
    for condition in &mut status.conditions {
        if condition.message.len() > text {
            condition.message = cut(&condition.message, text).into_owned();
        }
    }
    let last = status.turns.len().saturating_sub(1);
    for (i, turn) in status.turns.iter_mut().enumerate() {
        shorten(&mut turn.message, if i == last { text } else { record });
    }
    status
}

fn shorten(text: &mut Option<String>, limit: usize) {
    if let Some(long) = text.as_ref().filter(|text| text.len() > limit) {
        let short = cut(long, limit).into_owned();
        *text = (!short.is_empty()).then_some(short);
    }
}

/// A status always has a JSON text; were there none, it would count as too large and lose its records.
fn size(status: &AgentSessionStatus) -> usize {
    serde_json::to_vec(status).map_or(usize::MAX, |json| json.len())
}
