//! Stand-ins for the other side: a Pod that speaks the protocol, a link that fails in chosen ways, a store that can be made to refuse.

#![expect(dead_code, reason = "every test binary uses its own part of this")]

pub mod apiserver;
pub mod link;
pub mod pod;
pub mod store;

use std::time::Duration;

use agentsession_controller::exec::{ExecSettings, PodTarget};
use transcript::{AgentState, AgentStatus, Attempt, Turn};

/// The session of most tests.
pub const SESSION: &str = "5e551011-0000-4000-8000-000000000001";

/// The Pod of most tests.
pub fn target() -> PodTarget {
    PodTarget {
        namespace: "team-a".into(),
        name: "agentsession-fix-login-5e551011-1".into(),
        uid: "90d00000-0000-4000-8000-000000000001".into(),
    }
}

/// Deadlines that a test can wait for.
pub fn quick() -> ExecSettings {
    ExecSettings {
        concurrent: 4,
        connect: Duration::from_millis(400),
        idle: Duration::from_millis(400),
        small_whole: Duration::from_secs(2),
        read_whole: Duration::from_secs(8),
        lookup: Duration::from_millis(400),
        farewell: Duration::from_millis(300),
    }
}

/// A status of attempt 1.
pub fn status(state: AgentState, turn: u32, parts: u32) -> AgentStatus {
    AgentStatus {
        state,
        turn: Turn(turn),
        attempt: Attempt(1),
        parts,
        log_bytes: 0,
        truncated: false,
        truncated_reason: None,
        error: None,
        reason: None,
        exit: None,
        stderr_tail: String::new(),
        agent_ready: true,
        agent_session_id: None,
        resume: None,
        continuity: None,
        usage: None,
    }
}

/// The JSON text of a part.
pub fn part(index: u32) -> String {
    format!(r#"{{"type":"text-delta","id":"t","delta":"piece {index}","z":1.0}}"#)
}

/// A line of the log of `turn`.
pub fn line(turn: u32, index: u32, part: &str) -> String {
    format!(
        "{{\"at\":\"2026-11-30T18:00:00.000Z\",\"type\":\"ui-message\",\"turn\":{turn},\"partIndex\":{index},\"part\":{part}}}\n"
    )
}

/// The lines of parts `range` of `turn`.
pub fn lines(turn: u32, range: std::ops::Range<u32>) -> Vec<u8> {
    range.map(|index| line(turn, index, &part(index))).collect::<String>().into_bytes()
}

/// Fails with a sentence instead of hanging, should the code under test do so.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.unwrap_or_else(|_| panic!("{what} hangs"))
}
