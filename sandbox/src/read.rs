//! `read`: frames of a turn's log to stdout, each held until the reader has verified it.
//!
//! Status first, then the size: a terminal status that stands in a header proves that the size beside it is the log's last.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use transcript::{
    AgentState, AgentStatus, Turn,
    frame::{FrameWriteError, FrameWriter, Header, VERSION},
    limits,
};

use crate::{clock, files, json::cut, peer, peer::Peer};

/// How often a follower looks at the log directory.
const LOOK: Duration = Duration::from_millis(50);

/// Why no frame, or no whole frame, could be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Stdin cannot be listened to.
    #[error("stdin cannot be listened to")]
    Listen(#[source] io::Error),
    /// The log cannot be read.
    #[error("the log cannot be read")]
    Log(#[source] io::Error),
    /// Another file stands in the log's place since the last look.
    #[error("the log was replaced by another file")]
    Replaced,
    /// The log became shorter while it was read.
    #[error("the log became shorter while it was read")]
    Shrunk,
    /// Stdout is closed.
    #[error("stdout cannot be written")]
    Stdout(#[source] io::Error),
    /// A frame cannot be encoded.
    #[error("the frame cannot be encoded")]
    Frame(#[source] FrameWriteError),
}

/// Write a part of a turn's log to stdout, as a frame with its own proof, and wait for the acknowledgement on stdin.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Reads `ack <byte>` lines from stdin from its first moment, and exits 0 at the end of stdin, even while stdout \
blocks.\nExits 0 when the frame was acknowledged or stdin ended, 1 when the log could not be read or stdout is closed, 3 when the reader \
took longer than --hold, 4 when the log was replaced or became shorter while it was read."
)]
pub struct Options {
    /// The turn whose log is read.
    #[arg(long, value_name = "N")]
    pub turn: u32,
    /// First byte.
    #[arg(long, value_name = "BYTE", default_value_t = 0)]
    pub from: u64,
    /// Bytes of a frame, at most.
    #[arg(long, value_name = "BYTES", default_value_t = limits::LOG_BYTES)]
    pub max: u64,
    /// Go on: a frame per interval, and at once when the status changes or 1 MiB is pending.
    #[arg(long, value_name = "INTERVAL", value_parser = clock::duration)]
    pub follow: Option<Duration>,
    /// How long the reader may take for one frame.
    #[arg(long, value_name = "TIME", default_value = "150s", value_parser = clock::duration)]
    pub hold: Duration,
    /// Directory with turn-<N>.jsonl and status.json.
    #[arg(long, value_name = "DIR", default_value = files::LOG)]
    pub log: PathBuf,
}

/// Writes one frame, or frames for as long as the reader is there.
///
/// # Errors
/// See [`Error`]: whatever was written until then has no trailer.
pub fn run(options: &Options) -> Result<(), Error> {
    let peer = Peer::reader(options.hold).map_err(Error::Listen)?;
    let mut reader = Reader {
        turn: Turn(options.turn),
        dir: &options.log,
        next: options.from,
        max: options.max.max(1),
        inode: None,
    };
    let mut last = None;
    let mut sent_at = Instant::now();
    loop {
        let look = reader.look()?;
        let due = options.follow.is_none_or(|interval| sent_at.elapsed() >= interval);
        if last.is_none() || due || reader.is_urgent(&look, last.as_ref()) {
            peer.expect_within(options.hold);
            sent_at = Instant::now();
            last = Some(look.essence());
            let to = reader.send(look)?;
            peer.wait_for_ack(to);
            peer.expect_nothing();
            if options.follow.is_none() {
                return Ok(());
            }
        } else {
            thread::sleep(LOOK);
        }
    }
}

/// What a reader wants to know at once.
type Essence = (Option<(AgentState, Turn, bool)>, bool);

/// The log directory at one moment.
#[derive(Debug)]
struct Look {
    status: Option<AgentStatus>,
    status_error: Option<String>,
    file: Option<File>,
    size: u64,
}

impl Look {
    fn essence(&self) -> Essence {
        (self.status.as_ref().map(|status| (status.state, status.turn, status.agent_ready)), self.file.is_some())
    }

    /// Whether the status says that this turn, or a later one, is over.
    fn is_over(&self, turn: Turn) -> bool {
        self.status
            .as_ref()
            .is_some_and(|status| status.turn > turn || (status.turn == turn && status.state.is_terminal()))
    }
}

#[derive(Debug)]
struct Reader<'a> {
    turn: Turn,
    dir: &'a Path,
    next: u64,
    max: u64,
    /// The file that was read from.
    inode: Option<u64>,
}

impl Reader<'_> {
    fn look(&self) -> Result<Look, Error> {
        let (status, status_error) = read_status(self.dir);
        let (file, size) = match files::open(&files::turn_log(self.dir, self.turn)) {
            Ok(file) => {
                let facts = file.metadata().map_err(Error::Log)?;
                if self.inode.is_some_and(|known| known != facts.ino()) {
                    return Err(Error::Replaced);
                }
                (Some(file), facts.len())
            }
            // A file that is not there, and one that is not a log, are facts that the header tells.
            Err(_) => (None, 0),
        };
        Ok(Look { status, status_error, file, size })
    }

    fn is_urgent(&self, look: &Look, last: Option<&Essence>) -> bool {
        let pending = look.size.saturating_sub(self.next);
        let changed = last.is_some_and(|last| *last != look.essence());
        changed || pending >= limits::FOLLOW_BYTES.min(self.max) || (pending > 0 && look.is_over(self.turn))
    }

    /// Sends a frame; gives the byte up to which it has to be acknowledged.
    fn send(&mut self, look: Look) -> Result<u64, Error> {
        let from = self.next;
        let to = look.size.min(from.saturating_add(self.max)).max(from);
        let mut header = Header {
            v: VERSION,
            turn: self.turn,
            status: look.status,
            status_error: look.status_error,
            exists: look.file.is_some(),
            size: look.size,
            from,
            to,
        };
        let (mut frame, line) = match FrameWriter::begin(&header) {
            // A status that is just small enough for its file may be too long for a header.
            Err(FrameWriteError::HeaderTooLong { size, .. }) => {
                header.status = None;
                header.status_error = Some(format!("a header with it has {size} bytes"));
                FrameWriter::begin(&header)
            }
            other => other,
        }
        .map_err(Error::Frame)?;
        peer::write(&line).map_err(Error::Stdout)?;
        if let Some(file) = look.file {
            self.inode = file.metadata().ok().map(|facts| facts.ino());
            send_bytes(file, from, &mut frame)?;
        }
        peer::write(&frame.end().map_err(Error::Frame)?).map_err(Error::Stdout)?;
        self.next = to;
        Ok(to)
    }
}

fn send_bytes(mut file: File, from: u64, frame: &mut FrameWriter) -> Result<(), Error> {
    if frame.remaining() == 0 {
        return Ok(());
    }
    file.seek(SeekFrom::Start(from)).map_err(Error::Log)?;
    let mut buffer = vec![0; 64 << 10];
    while frame.remaining() > 0 {
        let room = buffer.len().min(usize::try_from(frame.remaining()).unwrap_or(usize::MAX));
        match file.read(&mut buffer[..room]) {
            Ok(0) => return Err(Error::Shrunk),
            Ok(n) => {
                frame.body(&buffer[..n]);
                peer::write(&buffer[..n]).map_err(Error::Stdout)?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::Log(error)),
        }
    }
    Ok(())
}

/// Reads the status; why there is none although a file is there.
fn read_status(dir: &Path) -> (Option<AgentStatus>, Option<String>) {
    let reason = |error: String| (None, Some(cut(&error, 512).to_owned()));
    match files::read_small(&dir.join(files::STATUS), limits::STATUS_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => (None, None),
        Err(error) => reason(error.to_string()),
        Ok(bytes) => match serde_json::from_slice(&bytes) {
            Ok(status) => (Some(status), None),
            Err(error) => reason(error.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_there_absent_or_unreadable() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(files::STATUS);
        assert_eq!(read_status(dir.path()), (None, None));
        std::fs::write(&path, r#"{"state":"idle","turn":0,"attempt":1}"#).unwrap();
        assert_eq!(read_status(dir.path()).0.map(|status| status.state), Some(AgentState::Idle));
        for bad in ["{", "{}", r#"{"state":"dancing","turn":0,"attempt":1}"#, &" ".repeat(70_000)] {
            std::fs::write(&path, bad).unwrap();
            let (status, error) = read_status(dir.path());
            assert!(status.is_none() && error.is_some(), "{bad:.20}");
        }
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/proc/self/stat", &path).unwrap();
        assert!(read_status(dir.path()).1.is_some());
    }
}
