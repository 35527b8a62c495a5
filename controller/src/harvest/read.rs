//! The reading half of a harvest: verified frames, in order, as fast as they come.

use std::time::Duration;

use tokio::{sync::mpsc, time::Instant};
use transcript::{Turn, limits};

use crate::exec::{
    Bounds, ExecError, Execs, MemoryHold, PodTarget, RecorderCommand, Transfer,
    frames::{Frame, FrameStep, Frames},
};

/// Reads in a row that may bring nothing before the whole is given up.
const FRUITLESS_READS: u32 = 2;

/// A remote that follows sends the next frame on the same exec, at once when a MiB is pending or the turn is over, else after this.
/// We go when the file is read.
const NEXT_FRAME: Duration = Duration::from_millis(100);

/// Bytes of a log that are read, at most. The driver stops at [`limits::LOG_BYTES`]; half a MiB more shows that somebody else wrote, and still fits
/// the buffer together with the frames' own lines. A longer log is read so far and no further, and the facts say that it is longer.
const READ_BYTES: u64 = limits::LOG_BYTES + (512 << 10);

/// What to read, and where it goes.
pub(super) struct LogReader<'a> {
    pub execs: &'a Execs,
    pub pod: &'a PodTarget,
    pub turn: Turn,
    /// Bytes of one frame, at most: what a cut costs.
    pub frame_bytes: u64,
    /// The whole reading is over by then.
    pub deadline: Instant,
    /// Where frames go. Never full: the bound is on what is read, not on what waits, so that the store is not behind the socket.
    /// Closed with the last frame, so that the rest is stored while the remote takes its leave.
    pub frames: Option<mpsc::UnboundedSender<Frame>>,
    /// The memory that the log may take.
    pub memory: MemoryHold,
}

/// What the reading took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadFigures {
    pub execs: u32,
    pub bytes: u64,
}

/// Why a read stopped without an error.
enum Reading {
    /// The file was read to the size that the last header names, or to our bound; or nobody wants more.
    Finished,
    /// There is more, and another exec gets it.
    More,
}

impl LogReader<'_> {
    /// Reads from byte `from` to the end of the file as it is then. Gives the memory back to who still holds frames.
    ///
    /// # Errors
    /// The last failure, when reads in a row brought nothing, the recorder is over, or the deadline passed. The frames
    /// that were sent before are proven all the same.
    pub(super) async fn run(mut self, from: u64) -> (ReadFigures, MemoryHold, Result<(), ExecError>) {
        let mut figures = ReadFigures::default();
        let mut at = from;
        let mut fruitless = 0;
        loop {
            figures.execs += 1;
            let before = at;
            let result = self.one_exec(from, &mut at).await;
            figures.bytes = at.saturating_sub(from);
            fruitless = if at > before { 0 } else { fruitless + 1 };
            let error = match result {
                Ok(Reading::Finished) => return (figures, self.memory, Ok(())),
                Ok(Reading::More) if fruitless == 0 => continue,
                Ok(Reading::More) => ExecError::Protocol("frames without bytes before the end of the file".into()),
                Err(error) => error,
            };
            if error.is_ended() || fruitless >= FRUITLESS_READS || Instant::now() >= self.deadline {
                return (figures, self.memory, Err(error));
            }
            tracing::debug!(
                pod.uid = %self.pod.uid, turn = %self.turn, at_bytes = at, error = error.chain(),
                "log read broken, reading on from the last proven byte"
            );
        }
    }

    async fn one_exec(&mut self, from: u64, at: &mut u64) -> Result<Reading, ExecError> {
        let left = READ_BYTES.saturating_sub(at.saturating_sub(from));
        let max = self.frame_bytes.min(left);
        let command = RecorderCommand::Read { turn: self.turn, from: *at, max, follow: Some(NEXT_FRAME) };
        let bounds = Bounds {
            whole: Some(self.deadline.saturating_duration_since(Instant::now())),
            ..self.execs.settings().read()
        };
        let mut transfer = self.execs.open(self.pod, &command, bounds).await?;
        let result = self.read_frames(&mut transfer, max, from, at).await;
        if matches!(result, Ok(Reading::Finished)) {
            self.frames = None;
        }
        self.execs.close(self.pod, transfer, result).await
    }

    async fn read_frames(
        &mut self,
        transfer: &mut Transfer,
        max: u64,
        from: u64,
        at: &mut u64,
    ) -> Result<Reading, ExecError> {
        let mut frames = Frames::new(self.turn, *at, max);
        let mut any = false;
        loop {
            let frame = match frames.next(transfer).await {
                Ok(FrameStep::Frame(frame)) => frame,
                Ok(FrameStep::Announced { ahead, .. }) => {
                    let read = at.saturating_sub(from);
                    self.memory.shrink_to(read.saturating_add(ahead).min(READ_BYTES));
                    continue;
                }
                // The remote went between two frames: nothing of a next one was lost.
                Err(ExecError::Cut { .. }) if any && frames.is_between_frames() => return Ok(Reading::More),
                Err(error) => return Err(error),
            };
            any = true;
            *at = frame.header.to;
            let size = if frame.header.exists { frame.header.size } else { 0 };
            let wanted = self.frames.as_ref().is_some_and(|frames| frames.send(*frame).is_ok());
            frames.acknowledge(transfer, *at).await?;
            let left = READ_BYTES.saturating_sub(at.saturating_sub(from));
            if !wanted || *at >= size || left == 0 {
                return Ok(Reading::Finished);
            }
            if left < max {
                // The next frame could be longer than what may still be read.
                return Ok(Reading::More);
            }
        }
    }
}
