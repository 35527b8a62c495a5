//! The bounds, as defaults. Sizes are bytes unless the name says otherwise.

/// One turn's log file.
pub const LOG_BYTES: u64 = 16 << 20;
/// What the driver keeps free at the end of a log for the marker and the terminal part.
pub const LOG_RESERVE_BYTES: u64 = 64 << 10;
/// The controller's buffer for one read of a log: the log, its frame and room to notice an overrun.
pub const READ_BUFFER_BYTES: u64 = 17 << 20;
/// The answer of any exec that is not a log read.
pub const EXEC_ANSWER_BYTES: u64 = 2 << 20;
/// The JSON text of one part.
pub const PART_BYTES: usize = 1 << 20;
/// Published parts of one turn.
pub const PARTS_PER_TURN: u32 = 50_000;
/// The JSON text of all parts of one session.
pub const SESSION_BYTES: u64 = 64 << 20;
/// One line of a log: a part in its envelope. A longer one is damage.
pub const LINE_BYTES: usize = PART_BYTES + (4 << 10);
/// `log/status.json`.
pub const STATUS_BYTES: u64 = 64 << 10;
/// A frame's header line.
pub const HEADER_BYTES: usize = STATUS_BYTES as usize + (4 << 10);
/// A frame's trailer line.
pub const TRAILER_BYTES: usize = 4 << 10;
/// Characters of one prompt.
pub const PROMPT_CHARS: usize = 32_768;
/// Characters of all prompts of a session.
pub const PROMPTS_CHARS: usize = 131_072;
/// Turns of a session.
pub const TURNS: usize = 64;
/// What a follower's frame waits for, at most, before it is sent early.
pub const FOLLOW_BYTES: u64 = 1 << 20;
