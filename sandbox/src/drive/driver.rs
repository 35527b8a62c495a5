//! What the driver does next: the state of agent and turn, moved by lines, signals and the clock.

mod talk;
mod turns;

use std::{
    process::ExitCode,
    sync::mpsc::SyncSender,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use signal_hook::consts::{SIGINT, SIGTERM};
use transcript::{AgentExit, AgentState, AgentStatus, Attempt, Reason, Turn, limits};

use crate::{
    drive::{
        Event, Options, TICK,
        agent::{Agent, reap},
        early::Early,
        oom::OomCounter,
        rpc,
        run::{End, Run, apply},
        status::StatusFile,
    },
    files, say,
};

/// How long updates that come after the answer to a prompt still belong to its turn.
const LATE: Duration = Duration::from_millis(100);
/// How long more of what an ended agent wrote is waited for.
const DRAIN: Duration = Duration::from_secs(1);
/// How long a killed process, or a last status, is waited for.
const LAST: Duration = Duration::from_secs(2);

/// What was asked of the agent and not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Initialize,
    NewSession,
    Prompt,
}

/// How the agent stands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Link {
    /// Being started, until then.
    Starting(Instant),
    /// Ready for turns.
    Ready,
    /// Of no more use, and why.
    Gone(Reason, String),
}

/// The driver's whole state.
#[derive(Debug)]
pub struct Driver {
    options: Options,
    status: AgentStatus,
    file: StatusFile,
    agent: Option<Agent>,
    link: Link,
    /// The agent's session id.
    session: String,
    pending: Option<(u64, Asked)>,
    asked: u64,
    run: Option<Run>,
    /// No turn up to this one is begun any more.
    done: Turn,
    early: Early,
    oom: OomCounter,
    /// Since when the agent's process or its stdout has ended.
    ended_at: Option<Instant>,
    /// Set when the driver was told to stop: when the agent is killed for not listening.
    stop: Option<Instant>,
    /// When the agent last said something.
    heard_at: Option<Instant>,
    /// When the inbox was last looked at.
    looked_at: Option<Instant>,
    /// Lines that were no messages.
    noise: u64,
}

impl Driver {
    /// Starts the agent. What goes wrong with that stands in the status.
    pub fn start(options: Options, attempt: u32, events: &SyncSender<Event>) -> Self {
        let now = Instant::now();
        let path = options.log.join(files::STATUS);
        let previous: Option<AgentStatus> =
            files::read_small(&path, limits::STATUS_BYTES).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let mut driver = Self {
            status: starting(attempt),
            file: StatusFile::new(path),
            agent: None,
            link: Link::Starting(now + options.start_timeout),
            session: String::new(),
            pending: None,
            asked: 0,
            run: None,
            done: Turn(0),
            early: Early::default(),
            oom: OomCounter::start(&options.cgroup),
            ended_at: None,
            stop: None,
            heard_at: None,
            looked_at: None,
            noise: 0,
            options,
        };
        match previous {
            Some(previous) if previous.turn > Turn(0) => driver.refuse(previous),
            _ => driver.spawn(events),
        }
        driver.file.keep(&driver.status, now);
        driver
    }

    /// A driver ran here before. Whatever it had begun is not run again.
    fn refuse(&mut self, previous: AgentStatus) {
        let error = "the driver was started a second time; no turn is run again".to_owned();
        say(&error);
        self.done = previous.turn;
        self.status = AgentStatus { agent_ready: false, ..previous };
        if !self.status.state.is_terminal() {
            apply(&End::Failed(Reason::AgentExited, error.clone()), &mut self.status);
        }
        self.link = Link::Gone(Reason::AgentStartFailed, error);
    }

    fn spawn(&mut self, events: &SyncSender<Event>) {
        // Status first: who sees it knows that the driver runs.
        self.file.keep(&self.status, Instant::now());
        match Agent::spawn(&self.options.command, &self.options.cwd, events) {
            Ok(agent) => {
                self.agent = Some(agent);
                self.ask(Asked::Initialize, rpc::initialize);
            }
            Err(error) => {
                let program = self.options.command.first().map_or("", String::as_str);
                let cwd = &self.options.cwd;
                let error = if cwd.is_dir() {
                    format!("cannot start {program:?}: {error}")
                } else {
                    format!("cannot start {program:?}: there is no directory {}", cwd.display())
                };
                self.fail_start(error);
            }
        }
    }

    /// How long nothing needs to be done when no event arrives.
    pub fn wait(&self, now: Instant) -> Duration {
        let late = self
            .run
            .as_ref()
            .and_then(|run| run.answered.as_ref())
            .map(|(_, until)| until.saturating_duration_since(now));
        late.unwrap_or(Duration::MAX)
    }

    /// Takes what a thread tells.
    pub fn handle(&mut self, event: Event) {
        match event {
            Event::Lines(lines) => {
                self.heard_at = Some(Instant::now());
                lines.into_iter().for_each(|line| self.line(&line));
            }
            Event::StdoutEnded => {
                if let Some(agent) = &mut self.agent {
                    agent.stdout_ended();
                }
            }
            Event::Signal(SIGTERM | SIGINT) => self.begin_stop(),
            Event::Signal(_) => self.reap(),
        }
    }

    /// Looks at deadlines and the inbox, and keeps the status; the exit code when it is time to go.
    pub fn tick(&mut self, now: Instant) -> Option<ExitCode> {
        self.reap();
        self.look_at_agent(now);
        self.look_at_deadlines(now);
        if self.stop.is_none() && self.looked_at.is_none_or(|looked| now >= looked + TICK) {
            self.looked_at = Some(now);
            self.look_at_inbox(now);
        }
        let done = self.is_stopped(now);
        if let Some(run) = &self.run {
            run.report(&mut self.status);
        }
        self.status.agent_ready = self.link == Link::Ready
            && self.stop.is_none()
            && self.agent.as_ref().is_some_and(|agent| agent.exit().is_none());
        self.file.keep(&self.status, now);
        if !done {
            return None;
        }
        let overdue = self.stop.is_some_and(|kill_at| now >= kill_at + LAST + LAST);
        match self.file.stands(&self.status) {
            true => Some(ExitCode::SUCCESS),
            false => overdue.then_some(ExitCode::FAILURE),
        }
    }

    // --- the agent's process

    fn reap(&mut self) {
        for (pid, status) in reap() {
            if let Some(agent) = &mut self.agent {
                agent.reaped(pid, status);
            }
        }
    }

    /// Notices the end of the agent, once everything that it wrote has been read or waited for.
    fn look_at_agent(&mut self, now: Instant) {
        let Some(agent) = &self.agent else { return };
        match agent.exit() {
            // Its end stands in the status already.
            Some(_) if self.status.exit.is_some() => {}
            Some(exit) => {
                let since = *self.ended_at.get_or_insert(now);
                // What it left behind may hold its pipes open, and even go on writing.
                let silent = now >= since.max(self.heard_at.unwrap_or(since)) + DRAIN;
                if agent.is_drained() || silent || now >= since + DRAIN * 10 {
                    self.agent_ended(exit);
                }
            }
            // Without its stdout it can never answer.
            None if agent.is_mute() => {
                let since = *self.ended_at.get_or_insert(now);
                if now >= since + LAST {
                    agent.signal(Signal::KILL);
                }
            }
            None => {}
        }
    }

    fn agent_ended(&mut self, exit: AgentExit) {
        let killed = exit.signal == Some(Signal::KILL.as_raw()) || exit.code == Some(128 + Signal::KILL.as_raw());
        let exit = AgentExit { oom: killed && self.oom.grew(), ..exit };
        let error = describe(exit);
        let reason = if exit.oom { Reason::OOMKilled } else { Reason::AgentExited };
        self.status.exit = Some(exit);
        let started = !matches!(self.link, Link::Starting(_));
        if !matches!(self.link, Link::Gone(..)) {
            self.link = Link::Gone(reason, error.clone());
        }
        self.pending = None;
        match self.run.as_mut().map(|run| (run.answered.take(), run.kill_at)) {
            Some((Some((end, _)), _)) => self.conclude(end),
            Some((None, Some(_))) => self.conclude(End::Canceled),
            Some((None, None)) => self.conclude(End::Failed(reason, error)),
            None if self.status.turn == Turn(0) && self.stop.is_none() => {
                let when = if started { "before a turn was given to it" } else { "before it was ready" };
                let error = self.status.error.take().unwrap_or_else(|| format!("{error} {when}"));
                self.fail_start(error);
            }
            None => {}
        }
    }

    /// The agent is of no use and no turn was given to it.
    fn fail_start(&mut self, error: String) {
        say(&error);
        if let Some(agent) = &self.agent {
            self.status.stderr_tail = agent.stderr_tail();
            agent.signal(Signal::KILL);
        }
        self.pending = None;
        self.link = Link::Gone(Reason::AgentStartFailed, error.clone());
        if self.status.turn == Turn(0) {
            apply(&End::Failed(Reason::AgentStartFailed, error), &mut self.status);
        }
    }

    // --- deadlines

    fn look_at_deadlines(&mut self, now: Instant) {
        if let Link::Starting(deadline) = self.link
            && now >= deadline
            && self.stop.is_none()
        {
            let step =
                if self.status.agent_session_id.is_none() && self.asked < 2 { "initialize" } else { "session/new" };
            self.fail_start(format!(
                "the agent did not answer {step} within {} s",
                self.options.start_timeout.as_secs()
            ));
        }
        if let Some(run) = &mut self.run {
            if run.answered.as_ref().is_some_and(|(_, until)| now >= *until)
                && let Some((end, _)) = run.answered.take()
            {
                return self.conclude(end);
            }
            if run.log_failed().is_some() && run.kill_at.is_none() {
                return self.cancel(now);
            }
        }
        let kill_at = self.stop.into_iter().chain(self.run.as_ref().and_then(|run| run.kill_at)).min();
        let Some(kill_at) = kill_at.filter(|kill_at| now >= *kill_at) else { return };
        if let Some(agent) = self.agent.as_ref().filter(|agent| agent.exit().is_none()) {
            agent.signal(Signal::KILL);
        }
        // Not even a kill could end it: the turn ends without it.
        if now >= kill_at + LAST && self.run.is_some() {
            self.link = Link::Gone(Reason::AgentExited, "the agent could not be killed".to_owned());
            self.conclude(End::Canceled);
        }
    }

    /// Tells the agent to end the turn; it is killed when it does not.
    fn cancel(&mut self, now: Instant) {
        if let Some(run) = &mut self.run {
            run.kill_at.get_or_insert(now + self.options.grace);
            let message = rpc::session_cancel(&self.session);
            self.send(message);
        }
    }

    fn begin_stop(&mut self) {
        if self.stop.is_some() {
            return;
        }
        let now = Instant::now();
        self.stop = Some(now + self.options.grace);
        self.cancel(now);
        if let Some(agent) = &self.agent {
            agent.signal(Signal::TERM);
        }
    }

    /// Whether everything is over after the order to stop; the status then says so.
    fn is_stopped(&mut self, now: Instant) -> bool {
        let Some(kill_at) = self.stop else { return false };
        let agent_ended = match &self.agent {
            Some(agent) => agent.exit().is_some() && self.status.exit.is_some(),
            None => true,
        };
        let over = self.run.is_none() && (agent_ended || now >= kill_at + LAST);
        if over && self.status.turn == Turn(0) && !self.status.state.is_terminal() {
            apply(&End::Canceled, &mut self.status);
            self.status.error = Some("stopped before a turn was delivered".to_owned());
        }
        over
    }
}

fn starting(attempt: u32) -> AgentStatus {
    AgentStatus {
        state: AgentState::Starting,
        turn: Turn(0),
        attempt: Attempt(attempt),
        parts: 0,
        log_bytes: 0,
        truncated: false,
        truncated_reason: None,
        error: None,
        reason: None,
        exit: None,
        stderr_tail: String::new(),
        agent_ready: false,
        agent_session_id: None,
        resume: None,
        continuity: None,
        usage: None,
    }
}

/// How the agent ended, in words.
fn describe(exit: AgentExit) -> String {
    match exit {
        AgentExit { oom: true, .. } => "the kernel killed the agent for want of memory".to_owned(),
        AgentExit { code: Some(code), .. } => format!("the agent exited with code {code}"),
        AgentExit { signal: Some(signal), .. } => format!("the agent was ended by signal {signal}"),
        AgentExit { .. } => "the agent ended".to_owned(),
    }
}
