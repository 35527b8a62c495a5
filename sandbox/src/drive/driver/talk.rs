//! The driver's half of the protocol: what it asks, and what it does with each message of the agent.

use std::time::Instant;

use rustix::process::Signal;
use transcript::{AgentState, Reason, Turn};

use super::{Asked, Driver, LATE, Link};
use crate::{
    drive::{
        rpc::{self, Line, Message},
        run::End,
    },
    json::{Obj, cut, decode},
    part::Fields,
    say,
};

/// How much is kept of a message that is no JSON.
const MALFORMED_BYTES: usize = 64 << 10;

impl Driver {
    pub(super) fn send(&mut self, message: Vec<u8>) {
        if let Some(agent) = &self.agent
            && !agent.send(message)
        {
            say("the agent does not read its stdin");
            agent.signal(Signal::KILL);
        }
    }

    pub(super) fn ask(&mut self, what: Asked, message: impl FnOnce(u64) -> Vec<u8>) {
        self.asked += 1;
        self.pending = Some((self.asked, what));
        self.send(message(self.asked));
    }

    pub(super) fn line(&mut self, line: &Line) {
        match line {
            Line::Text(text) => self.text(text),
            Line::NotText { text, sha256 } => {
                // What was replaced is said, so that nobody takes it for the agent's own.
                let data = Fields::default().raw("notUtf8", Some("true")).str("sha256", sha256).finish();
                self.unknown(&data);
                self.text(text);
            }
            Line::TooLong { bytes, sha256, beginning } => {
                let kind = beginning.split("\"sessionUpdate\":\"").nth(1).and_then(|rest| rest.split('"').next());
                match &mut self.run {
                    Some(run) => run.omitted(cut(kind.unwrap_or("acp"), 64), *bytes, sha256),
                    None => say(&format!("a line of {bytes} bytes between turns was not looked at")),
                }
            }
        }
    }

    fn text(&mut self, text: &str) {
        match Message::read(text) {
            Message::Notification { method, params } => self.notified(&method, params),
            Message::Request { id, method, params } => self.requested(id, &method, params),
            Message::Response { id, answer } => self.answered(id, answer),
            Message::Broken => {
                let bytes = text.len().to_string();
                let data =
                    Fields::default().str("malformed", cut(text, MALFORMED_BYTES)).raw("bytes", Some(&bytes)).finish();
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
            (Asked::Initialize, Err(error)) => self.refused("initialize", error),
            (Asked::NewSession, Err(error)) => self.refused("session/new", error),
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

    fn refused(&mut self, step: &str, error: &str) {
        self.fail_start(format!("{step} failed: {}", rpc::error_text(error)));
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
