//! Turns: from the inbox to their beginning, and from their end to the status.

use std::{fs, io, time::Instant};

use transcript::{AgentState, AgentStatus, Reason, Turn};

use super::{Asked, Driver, Link, starting};
use crate::{
    drive::{
        inbox,
        log::Bounds,
        rpc,
        run::{End, Run, apply},
    },
    files,
    json::cut,
    part::{Fields, Part},
    say,
};

/// The rung of continuity that a prompt with context uses.
const REPRIME: &str = "transcript-reprime";

impl Driver {
    pub(super) fn look_at_inbox(&mut self, now: Instant) {
        if let Some(run) = &self.run {
            if run.kill_at.is_none() && inbox::is_cancelled(&self.options.inbox, run.turn) {
                self.cancel(now);
            }
            return;
        }
        let Some(turn) = inbox::next(&self.options.inbox, self.done) else { return };
        let cancelled = inbox::is_cancelled(&self.options.inbox, turn);
        if cancelled || !matches!(self.link, Link::Starting(_)) {
            self.begin(turn, cancelled);
        }
    }

    /// Begins a turn: from here on it is never begun again, whatever happens.
    fn begin(&mut self, turn: Turn, cancelled: bool) {
        self.done = turn;
        for old in files::turns(&self.options.log, "turn-", ".jsonl").into_iter().filter(|old| *old < turn) {
            if let Err(error) = fs::remove_file(files::turn_log(&self.options.log, old)) {
                say(&format!("cannot remove the log of turn {old}: {error}"));
            }
        }
        self.status = AgentStatus {
            turn,
            state: AgentState::Running,
            agent_session_id: self.status.agent_session_id.take(),
            resume: self.status.resume.take(),
            exit: self.status.exit,
            ..starting(self.status.attempt.0)
        };
        let run = match Run::begin(&self.options.log, turn, Bounds::default()) {
            Ok(run) => run,
            Err(error) => {
                let reason = if error.kind() == io::ErrorKind::AlreadyExists {
                    Reason::AgentError
                } else {
                    Reason::LogWriteFailed
                };
                let error = format!("the log of turn {turn} cannot be begun: {error}");
                say(&error);
                return apply(&End::Failed(reason, error), &mut self.status);
            }
        };
        self.run = Some(run);
        if cancelled {
            return self.conclude(End::Canceled);
        }
        match (self.link.clone(), inbox::prompt(&self.options.inbox, turn)) {
            (Link::Gone(reason, error), _) => self.conclude(End::Failed(reason, error)),
            (_, Err(error)) => self.conclude(End::Failed(Reason::AgentError, error)),
            (_, Ok(prompt)) => {
                if let Some(run) = &mut self.run {
                    run.map(|mapper, out| self.early.drain_into(mapper, out));
                    if prompt.context.is_some() {
                        self.status.continuity = Some(REPRIME.to_owned());
                        let data = Fields::default().str("rung", REPRIME).finish();
                        run.map(|_, out| out.parts.push(Part::begin("data-continuity").raw("data", &data).at(out.at)));
                    }
                }
                self.oom.grew();
                let session = self.session.clone();
                self.ask(Asked::Prompt, |id| {
                    rpc::session_prompt(id, &session, prompt.context.as_deref(), &prompt.prompt)
                });
            }
        }
    }

    pub(super) fn conclude(&mut self, end: End) {
        let Some(run) = self.run.take() else { return };
        if matches!(self.pending, Some((_, Asked::Prompt))) {
            self.pending = None;
        }
        if let End::Failed(_, error) = &end {
            say(&format!("turn {}: {}", run.turn, cut(error, 512)));
        }
        run.conclude(end, &mut self.status);
        if self.status.state == AgentState::Failed
            && let Some(agent) = &self.agent
        {
            self.status.stderr_tail = agent.stderr_tail();
        }
    }
}
