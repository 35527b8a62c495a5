//! What the driver does next: the state of agent and turn, moved by lines, signals and the clock.

use std::{
    fs,
    process::ExitCode,
    sync::mpsc::SyncSender,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use signal_hook::consts::{SIGINT, SIGTERM};
use transcript::{AgentExit, AgentState, AgentStatus, Attempt, Reason, Turn, limits};

use crate::{
    drive::{
        Event, Options,
        agent::{Agent, reap},
        early::Early,
        inbox,
        log::Bounds,
        oom::OomCounter,
        rpc::{self, Line, Message},
        run::{End, Run, apply},
        status::StatusFile,
    },
    files,
    json::{Obj, cut, decode},
    part::{Fields, Part},
    say,
};

/// How long updates that come after the answer to a prompt still belong to its turn.
const LATE: Duration = Duration::from_millis(100);
/// How long what an ended agent wrote is waited for.
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
            Event::Lines(lines) => lines.into_iter().for_each(|line| self.line(&line)),
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
        if self.stop.is_none() {
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
            Some(exit) => {
                let since = *self.ended_at.get_or_insert(now);
                if !matches!(self.link, Link::Gone(..)) || self.run.is_some() || self.status.exit.is_none() {
                    if agent.is_drained() || now >= since + DRAIN {
                        self.agent_ended(exit);
                    }
                }
            }
            // Without its stdout it can never answer.
            None if agent.is_drained() => {
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

    // --- turns

    fn look_at_inbox(&mut self, now: Instant) {
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
                let reason = if error.kind() == std::io::ErrorKind::AlreadyExists {
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
                    run.map(|_, out| out.parts.push(Part::new("start-step").at(out.at)));
                    run.map(|mapper, out| self.early.drain_into(mapper, out));
                    if prompt.context.is_some() {
                        self.status.continuity = Some(REPRIME.to_owned());
                        let data = Fields::default().str("rung", REPRIME).finish();
                        run.map(|_, out| out.parts.push(Part::new("data-continuity").raw("data", &data).at(out.at)));
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

    fn conclude(&mut self, end: End) {
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

    // --- the protocol

    fn send(&mut self, message: Vec<u8>) {
        if let Some(agent) = &self.agent
            && !agent.send(message)
        {
            say("the agent does not read its stdin");
            agent.signal(Signal::KILL);
        }
    }

    fn ask(&mut self, what: Asked, message: impl FnOnce(u64) -> Vec<u8>) {
        self.asked += 1;
        self.pending = Some((self.asked, what));
        self.send(message(self.asked));
    }

    fn line(&mut self, line: &Line) {
        let text = match line {
            Line::Text(text) => text,
            Line::TooLong { bytes, sha256, beginning } => {
                let kind = beginning
                    .split("\"sessionUpdate\":\"")
                    .nth(1)
                    .and_then(|rest| rest.split('"').next())
                    .unwrap_or("acp");
                match &mut self.run {
                    Some(run) => run.omitted(cut(kind, 64), *bytes, sha256),
                    None => say(&format!("a line of {bytes} bytes between turns was not looked at")),
                }
                return;
            }
        };
        match Message::read(text) {
            Message::Notification { method, params } => self.notified(&method, params),
            Message::Request { id, method, params } => self.requested(id, &method, params),
            Message::Response { id, answer } => self.answered(id, answer),
            Message::Broken => {
                let data = Fields::default()
                    .str("malformed", cut(text, 1024))
                    .raw("bytes", Some(&text.len().to_string()))
                    .finish();
                self.unknown(&data);
            }
            Message::Noise => {
                self.noise += 1;
                if self.noise <= 20 {
                    say(&format!("no message on the agent's stdout: {}", cut(text, 200).escape_debug()));
                }
            }
        }
    }

    /// Keeps what was not understood: in the turn that runs, or for the next one.
    fn unknown(&mut self, update: &str) {
        match &mut self.run {
            Some(run) => run.map(|_, out| out.unknown(update)),
            None => self.early.keep(update),
        }
    }

    fn notified(&mut self, method: &str, params: &str) {
        let fields = Obj::parse(params).unwrap_or_default();
        let update = fields.get("update").filter(|_| method == "session/update");
        let other = fields.string("sessionId").filter(|id| !self.session.is_empty() && decode(id) != self.session);
        match (update, &mut self.run) {
            (None, _) => self.unknown(&Fields::default().str("method", method).raw("params", Some(params)).finish()),
            (Some(update), Some(run)) => run.map(|mapper, out| match other {
                None => mapper.update(update, out),
                Some(session) => out.unknown_of(update, Some(session)),
            }),
            (Some(update), None) => self.early.keep(update),
        }
    }

    fn requested(&mut self, id: &str, method: &str, params: &str) {
        if method != "session/request_permission" {
            self.send(rpc::no_such_method(id));
            return self.unknown(&Fields::default().str("method", method).raw("params", Some(params)).finish());
        }
        let fields = Obj::parse(params).unwrap_or_default();
        let refused = self.stop.is_some() || self.run.as_ref().is_none_or(|run| run.kill_at.is_some());
        let (answer, kind) = rpc::choose(&fields, refused);
        if let Some(run) = &mut self.run {
            run.map(|mapper, out| mapper.permission(&fields, &kind, out));
        }
        self.send(rpc::answer(id, &answer));
    }

    fn answered(&mut self, id: Option<u64>, answer: Result<&str, &str>) {
        let Some((_, asked)) = self.pending.take_if(|(expected, _)| Some(*expected) == id) else {
            return self.noise += 1;
        };
        let fields = answer.ok().and_then(Obj::parse).unwrap_or_default();
        match (asked, answer) {
            (Asked::Prompt, answer) => self.prompt_answered(answer, &fields),
            (Asked::Initialize, Err(error)) => {
                self.fail_start(format!("initialize failed: {}", rpc::error_text(error)))
            }
            (Asked::NewSession, Err(error)) => {
                self.fail_start(format!("session/new failed: {}", rpc::error_text(error)))
            }
            (Asked::Initialize, Ok(_)) => match rpc::check_version(&fields) {
                Ok(()) => {
                    let cwd = self.options.cwd.clone();
                    self.ask(Asked::NewSession, |id| rpc::session_new(id, &cwd));
                }
                Err(error) => self.fail_start(error),
            },
            (Asked::NewSession, Ok(_)) => match fields.text("sessionId") {
                Some(session) => self.ready(&session),
                None => self.fail_start("session/new was answered without a sessionId".to_owned()),
            },
        }
    }

    fn ready(&mut self, session: &str) {
        self.session = session.to_owned();
        self.link = Link::Ready;
        self.status.agent_session_id = Some(cut(session, 512).to_owned());
        self.status.resume = Some("new".to_owned());
        if self.status.turn == Turn(0) {
            self.status.state = AgentState::Idle;
        }
    }

    fn prompt_answered(&mut self, answer: Result<&str, &str>, fields: &Obj<'_>) {
        let Some(run) = &mut self.run else { return };
        let told = run.kill_at.is_some();
        let reason = fields.text("stopReason");
        let end = match (answer, reason.as_deref()) {
            (Err(_), _) if told => End::Canceled,
            (Err(error), _) => End::Failed(Reason::AgentError, rpc::error_text(error)),
            (_, Some("end_turn")) => End::Finished("stop"),
            (_, Some("max_tokens")) => End::Finished("length"),
            (_, Some("refusal")) => End::Finished("content-filter"),
            (_, Some("cancelled")) if told => End::Canceled,
            (_, Some("cancelled")) => End::Failed(
                Reason::AgentError,
                "the agent says that the turn was cancelled, which nobody asked for".to_owned(),
            ),
            (Ok(result), _) => {
                run.map(|_, out| out.unknown(result));
                End::Finished("other")
            }
        };
        run.map(|mapper, _| mapper.answered(fields));
        run.answered = Some((end, Instant::now() + LATE));
    }
}

/// The rung of continuity that a prompt with context uses.
const REPRIME: &str = "transcript-reprime";

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
