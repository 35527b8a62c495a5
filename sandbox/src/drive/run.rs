//! One turn while it runs: its log, its mapping, and how it ends.

use std::{io, path::Path, time::Instant};

use transcript::{AgentState, AgentStatus, Reason, Turn};

use crate::{
    clock,
    drive::{
        log::{Bounds, TurnLog},
        map::{Mapper, Out},
    },
    json::cut,
    part::Part,
};

/// The longest error text that is recorded. Well within the room that a log keeps for its end.
const ERROR_BYTES: usize = 4 << 10;

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, with this `finishReason`.
    Finished(&'static str),
    /// By a failure.
    Failed(Reason, String),
    /// It was cancelled, or the driver was told to stop.
    Canceled,
}

/// A turn that runs.
#[derive(Debug)]
pub struct Run {
    /// Which one.
    pub turn: Turn,
    /// Set when it was told to end: when the agent is killed for not listening.
    pub kill_at: Option<Instant>,
    /// Set when the agent answered: how, and until when what comes late is still taken.
    pub answered: Option<(End, Instant)>,
    log: TurnLog,
    mapper: Mapper,
}

impl Run {
    /// Opens the log and says that the turn begins.
    ///
    /// # Errors
    /// When the log cannot be created, or stands there already.
    pub fn begin(dir: &Path, turn: Turn, bounds: Bounds) -> io::Result<Self> {
        let log = TurnLog::create(dir, turn, bounds)?;
        let mut run = Self { turn, kill_at: None, answered: None, log, mapper: Mapper::new(turn) };
        let at = clock::now();
        run.log.publish(Part::begin("start").at(&at));
        run.log.publish(Part::begin("start-step").at(&at));
        Ok(run)
    }

    /// Publishes what the mapper makes of something.
    pub fn map(&mut self, step: impl FnOnce(&mut Mapper, &mut Out<'_>)) {
        let at = clock::now();
        let mut out = Out::new(&at);
        step(&mut self.mapper, &mut out);
        for part in out.parts {
            self.log.publish(part);
        }
    }

    /// Says that a line of the agent was too long to be looked at.
    pub fn omitted(&mut self, kind: &str, bytes: u64, sha256: &str) {
        self.log.publish_omitted(kind, bytes, sha256, &clock::now());
    }

    /// Why the log cannot be written, if that is so.
    pub fn log_failed(&self) -> Option<&str> {
        self.log.failed()
    }

    /// Writes what is known so far into the status.
    pub fn report(&self, status: &mut AgentStatus) {
        status.parts = self.log.parts();
        status.log_bytes = self.log.bytes();
        status.truncated = self.log.truncated().is_some();
        status.truncated_reason = self.log.truncated().map(|reason| reason.as_str().to_owned());
        status.usage = self.mapper.usage();
    }

    /// Ends the turn: closes what is open, writes the last parts, flushes the log, and only then says so in the status.
    pub fn conclude(mut self, end: End, status: &mut AgentStatus) {
        self.map(Mapper::close);
        let at = clock::now();
        self.log.publish_dropped(&at);
        for part in last_parts(&end, &at) {
            self.log.publish(part);
        }
        self.log.sync();
        self.report(status);
        let end = match (self.log.failed(), end) {
            (Some(error), End::Finished(_) | End::Canceled) => {
                End::Failed(Reason::LogWriteFailed, format!("the log cannot be written: {error}"))
            }
            (_, end) => end,
        };
        apply(&end, status);
    }
}

/// Writes into a status how its turn ended.
pub fn apply(end: &End, status: &mut AgentStatus) {
    (status.state, status.reason, status.error) = match end {
        End::Finished(_) => (AgentState::Succeeded, None, None),
        End::Canceled => (AgentState::Canceled, None, None),
        End::Failed(reason, error) => {
            (AgentState::Failed, Some(reason.as_str().to_owned()), Some(cut(error, ERROR_BYTES).to_owned()))
        }
    };
}

fn last_parts(end: &End, at: &str) -> Vec<Part> {
    let finish = |reason: &str| {
        [
            Part::begin("finish-step").terminal().at(at),
            Part::begin("finish").str("finishReason", reason).terminal().at(at),
        ]
    };
    match end {
        End::Finished(reason) => finish(reason).into(),
        End::Failed(_, error) => {
            let error = Part::begin("error").str("errorText", cut(error, ERROR_BYTES)).terminal().at(at);
            [error].into_iter().chain(finish("error")).collect()
        }
        End::Canceled => vec![Part::begin("abort").terminal().at(at)],
    }
}
