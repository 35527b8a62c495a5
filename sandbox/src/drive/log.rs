//! The log of one turn: bounded, append-only, one `write(2)` a line.
//!
//! What does not fit is replaced by a marker that says what it was; the last bytes and indexes are kept for markers and the end of
//! the turn, so that `finish` or `abort` is never what gets cut.

use std::{io, os::fd::OwnedFd, path::Path};

use sha2::{Digest, Sha256};
use transcript::{Reason, Turn, frame::sha256_hex, limits};

use crate::{
    files,
    part::{Edge, OMITTED, Part, omitted},
};

/// Indexes that are kept for the end: two markers, the end of an open block, `error`, `finish-step` and `finish`.
const RESERVED_PARTS: u32 = 8;

/// The bounds of one turn's log.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes of the file.
    pub log: u64,
    /// Bytes of it that are kept for the end.
    pub reserve: u64,
    /// Bytes of one part.
    pub part: usize,
    /// Parts.
    pub parts: u32,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            log: limits::LOG_BYTES,
            reserve: limits::LOG_RESERVE_BYTES,
            part: limits::PART_BYTES,
            parts: limits::PARTS_PER_TURN,
        }
    }
}

/// What was left out after a bound was reached.
#[derive(Debug, Default)]
struct Dropped {
    parts: u32,
    bytes: u64,
    digest: Sha256,
}

/// The log of one turn, open for appending.
#[derive(Debug)]
pub struct TurnLog {
    file: OwnedFd,
    turn: Turn,
    bounds: Bounds,
    parts: u32,
    bytes: u64,
    open_block: Option<u32>,
    dropped: Option<Dropped>,
    truncated: Option<Reason>,
    failed: Option<String>,
}

impl TurnLog {
    /// Creates the log.
    ///
    /// # Errors
    /// As `open(2)`; a log that stands there already is refused, because a turn is never run twice.
    pub fn create(dir: &Path, turn: Turn, bounds: Bounds) -> io::Result<Self> {
        let file = files::create(&files::turn_log(dir, turn))?;
        Ok(Self {
            file,
            turn,
            bounds,
            parts: 0,
            bytes: 0,
            open_block: None,
            dropped: None,
            truncated: None,
            failed: None,
        })
    }

    /// Publishes a part, or the marker that stands for it. Failures are kept: see [`TurnLog::failed`].
    pub fn publish(&mut self, part: Part) {
        if self.failed.is_some() {
            return;
        }
        if part.text.len() > self.bounds.part {
            let marker = omitted(part.kind, part.text.len() as u64, &sha256_hex(part.text.as_bytes())).at(&part.at);
            self.publish(marker);
            if let Some(instead) = part.instead {
                self.publish(*instead);
            }
            return;
        }
        if part.kind == OMITTED {
            self.truncate(Reason::PartLimit);
        }
        let line = self.line(&part);
        if self.dropped.is_some() || !self.fits(&line) {
            return self.publish_at_the_end(&part, &line);
        }
        self.write(&part, &line);
    }

    /// Says that a whole line of the agent was too long to be looked at.
    pub fn publish_omitted(&mut self, kind: &str, bytes: u64, sha256: &str, at: &str) {
        self.publish(omitted(kind, bytes, sha256).at(at));
    }

    /// Says, once, how much was left out since a bound was reached. Before the parts that end the turn.
    pub fn publish_dropped(&mut self, at: &str) {
        if let Some(dropped) = self.dropped.as_mut().filter(|dropped| dropped.parts > 1) {
            let dropped = std::mem::take(dropped);
            let marker = omitted("log", dropped.bytes, &hex::encode(dropped.digest.finalize()));
            self.publish(marker.terminal().at(at));
        }
    }

    /// Flushes the log to its disk.
    pub fn sync(&mut self) {
        if self.failed.is_none()
            && let Err(error) = rustix::fs::fsync(&self.file)
        {
            self.fail(&error.into());
        }
    }

    /// Parts published.
    pub fn parts(&self) -> u32 {
        self.parts
    }

    /// Bytes written.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Which bound cut something, if any.
    pub fn truncated(&self) -> Option<Reason> {
        self.truncated
    }

    /// Why nothing more can be written, if that is so.
    pub fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    fn line(&self, part: &Part) -> String {
        format!(
            "{{\"at\":\"{}\",\"type\":\"ui-message\",\"turn\":{},\"partIndex\":{},\"part\":{}}}\n",
            part.at, self.turn, self.parts, part.text
        )
    }

    fn fits(&self, line: &str) -> bool {
        self.bytes + line.len() as u64 + self.bounds.reserve <= self.bounds.log
            && self.parts + RESERVED_PARTS < self.bounds.parts
    }

    /// A bound is reached. The first part that falls out leaves a marker in its place; afterwards only the end of the open block
    /// and the parts that end the turn are let through.
    fn publish_at_the_end(&mut self, part: &Part, line: &str) {
        let closes = matches!(part.edge, Some(Edge::Close(block)) if self.open_block == Some(block));
        if (part.terminal && part.edge.is_none()) || closes {
            if self.bytes + line.len() as u64 <= self.bounds.log && self.parts < self.bounds.parts {
                self.write(part, line);
            }
            return;
        }
        if part.edge.is_some_and(|edge| matches!(edge, Edge::Close(_))) {
            return;
        }
        let first = self.dropped.is_none();
        let dropped = self.dropped.get_or_insert_default();
        dropped.parts += 1;
        dropped.bytes += part.text.len() as u64;
        dropped.digest.update(part.text.as_bytes());
        if first {
            let full = self.bytes + line.len() as u64 + self.bounds.reserve > self.bounds.log;
            self.truncate(if full { Reason::LogLimit } else { Reason::PartCountLimit });
            let digest = sha256_hex(part.text.as_bytes());
            self.mark(part, &digest);
            self.publish(omitted(part.kind, part.text.len() as u64, &digest).terminal().at(&part.at));
        }
    }

    /// Says which bound was reached in a line that is no part: whoever reads the log without its status must know too.
    fn mark(&mut self, part: &Part, digest: &str) {
        let reason = self.truncated.unwrap_or(Reason::LogLimit);
        let line = format!(
            "{{\"at\":\"{}\",\"type\":\"marker\",\"turn\":{},\"partIndex\":{},\"reason\":\"{reason}\",\"bytes\":{},\"sha256\":\"{digest}\"}}\n",
            part.at,
            self.turn,
            self.parts,
            part.text.len()
        );
        self.append(&line);
    }

    fn append(&mut self, line: &str) -> bool {
        match write_line(&self.file, line.as_bytes()) {
            Ok(()) => self.bytes += line.len() as u64,
            Err(error) => self.fail(&error),
        }
        self.failed.is_none()
    }

    fn write(&mut self, part: &Part, line: &str) {
        if self.append(line) {
            self.parts += 1;
            match part.edge {
                Some(Edge::Open(block)) => self.open_block = Some(block),
                Some(Edge::Close(_)) => self.open_block = None,
                None => {}
            }
        }
    }

    fn fail(&mut self, error: &io::Error) {
        self.failed = Some(error.to_string());
        self.truncated = Some(Reason::LogWriteFailed);
    }

    /// The whole log being full says more than one part being too long.
    fn truncate(&mut self, reason: Reason) {
        if self.truncated.is_none_or(|known| known == Reason::PartLimit) {
            self.truncated = Some(reason);
        }
    }
}

/// Writes a line by one `write(2)`. What a full disk left of it stays a line without an end, which is not a line: nothing may
/// follow it.
fn write_line(file: &OwnedFd, line: &[u8]) -> io::Result<()> {
    let written = loop {
        match rustix::io::write(file, line) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    if written == line.len() {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::StorageFull,
            format!("only {written} of {} bytes could be written", line.len()),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: &str = "2026-11-30T18:00:00.123Z";

    fn delta(text: &str) -> Part {
        Part::begin("text-delta").str("id", "t0").str("delta", text).at(AT)
    }

    fn lines(dir: &Path) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(files::turn_log(dir, Turn(1))).unwrap();
        assert!(text.ends_with('\n'));
        let mut lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        lines.retain(|line| line["type"] != "marker");
        for (index, line) in lines.iter().enumerate() {
            assert_eq!(line["partIndex"], index);
            assert_eq!(line["turn"], 1);
            assert_eq!(line["type"], "ui-message");
            assert_eq!(line["at"], line["part"]["at"]);
        }
        lines
    }

    fn end(log: &mut TurnLog) {
        log.publish_dropped(AT);
        log.publish(Part::begin("finish-step").terminal().at(AT));
        log.publish(Part::begin("finish").str("finishReason", "stop").terminal().at(AT));
    }

    #[test]
    fn a_line_is_the_part_in_its_envelope() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = TurnLog::create(dir.path(), Turn(1), Bounds::default()).unwrap();
        log.publish(Part::begin("start").at(AT));
        let text = std::fs::read_to_string(files::turn_log(dir.path(), Turn(1))).unwrap();
        assert_eq!(
            text,
            "{\"at\":\"2026-11-30T18:00:00.123Z\",\"type\":\"ui-message\",\"turn\":1,\"partIndex\":0,\"part\":{\"type\":\"start\",\"at\":\"2026-11-30T18:00:00.123Z\"}}\n"
        );
        assert_eq!((log.parts(), log.bytes()), (1, text.len() as u64));
    }

    #[test]
    fn a_log_is_never_begun_twice() {
        let dir = tempfile::tempdir().unwrap();
        let _first = TurnLog::create(dir.path(), Turn(1), Bounds::default()).unwrap();
        assert!(TurnLog::create(dir.path(), Turn(1), Bounds::default()).is_err());
    }

    #[test]
    fn a_part_that_is_too_long_leaves_a_marker_and_its_neighbours() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = TurnLog::create(dir.path(), Turn(1), Bounds { part: 200, ..Bounds::default() }).unwrap();
        let long = delta(&"x".repeat(200));
        let digest = sha256_hex(long.text.as_bytes());
        let bytes = long.text.len();
        log.publish(long);
        log.publish(delta("after"));
        let lines = lines(dir.path());
        assert_eq!(lines[0]["part"]["type"], "data-omitted");
        assert_eq!(
            lines[0]["part"]["data"],
            serde_json::json!({"type": "text-delta", "bytes": bytes, "sha256": digest})
        );
        assert_eq!(lines[1]["part"]["delta"], "after");
        assert_eq!(log.truncated(), Some(Reason::PartLimit));
    }

    #[test]
    fn a_full_log_keeps_room_for_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let bounds = Bounds { log: 8192, reserve: 2048, part: 4096, parts: 1000 };
        let mut log = TurnLog::create(dir.path(), Turn(1), bounds).unwrap();
        log.publish(Part::begin("text-start").str("id", "t0").edge(Edge::Open(0)).at(AT));
        for _ in 0..100 {
            log.publish(delta(&"x".repeat(400)));
        }
        log.publish(Part::begin("text-end").str("id", "t0").edge(Edge::Close(0)).terminal().at(AT));
        end(&mut log);
        let lines = lines(dir.path());
        let kinds: Vec<_> = lines.iter().rev().take(5).map(|line| line["part"]["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["finish", "finish-step", "data-omitted", "text-end", "data-omitted"]);
        assert_eq!(log.truncated(), Some(Reason::LogLimit));
        assert!(log.bytes() <= bounds.log);
        assert_eq!(log.bytes(), std::fs::metadata(files::turn_log(dir.path(), Turn(1))).unwrap().len());
    }

    #[test]
    fn the_bound_on_parts_holds_with_the_end_inside_it() {
        let dir = tempfile::tempdir().unwrap();
        let bounds = Bounds { parts: 20, ..Bounds::default() };
        let mut log = TurnLog::create(dir.path(), Turn(1), bounds).unwrap();
        for _ in 0..50 {
            log.publish(delta("x"));
        }
        // A block that was never opened in the log is not closed in it.
        log.publish(Part::begin("text-end").str("id", "t0").edge(Edge::Close(0)).terminal().at(AT));
        end(&mut log);
        let lines = lines(dir.path());
        assert!(lines.len() <= 20);
        assert_eq!(lines.last().unwrap()["part"]["type"], "finish");
        assert!(lines.iter().all(|line| line["part"]["type"] != "text-end"));
        assert_eq!(log.truncated(), Some(Reason::PartCountLimit));
    }
}
