//! The agent's side of the Agent Client Protocol: JSON-RPC lines on stdio.
//!
//! A thread reads stdin, everything else happens in one loop: a prompt is performed step by step, and whatever arrives meanwhile (a cancel, the
//! answer to a request of ours) is seen between two steps.

use std::{
    collections::HashMap,
    io::{BufRead as _, Write as _},
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::{
    perform::{self, Ending},
    script::{self, Step},
};

/// The session id that `session/new` answers with.
const SESSION: &str = "scripted";

/// The connection to the client, and what a script has changed about the agent.
pub struct Agent {
    incoming: Receiver<Value>,
    answers: HashMap<u64, Value>,
    last_request: u64,
    canceled: bool,
    closed: bool,
    /// Where the driver's logs are.
    pub log_dir: PathBuf,
    /// Whether SIGTERM and the end of stdin leave the agent running.
    pub ignore_term: bool,
    /// Whether `session/cancel` changes nothing.
    pub ignore_cancel: bool,
    /// Memory taken by the script.
    pub ballast: Vec<Vec<u8>>,
}

/// Serves one client until stdin ends.
///
/// # Errors
/// When the script file cannot be used or stdout is gone.
pub fn run(script: Option<&Path>, log_dir: &Path) -> Result<()> {
    let script = script.map(read_script).transpose()?;
    let (sender, incoming) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            // What is no message is no business of an agent's.
            if let Ok(message) = serde_json::from_str::<Value>(&line)
                && sender.send(message).is_err()
            {
                break;
            }
        }
    });
    let mut agent = Agent {
        incoming,
        answers: HashMap::new(),
        last_request: 0,
        canceled: false,
        closed: false,
        log_dir: log_dir.to_owned(),
        ignore_term: false,
        ignore_cancel: false,
        ballast: Vec::new(),
    };
    while let Ok(message) = agent.incoming.recv() {
        agent.dispatch(&message, script.as_deref())?;
    }
    if agent.ignore_term {
        loop {
            std::thread::sleep(Duration::from_secs(60));
        }
    }
    Ok(())
}

fn read_script(file: &Path) -> Result<Vec<Step>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    script::parse(&text).with_context(|| format!("{} is no script", file.display()))
}

impl Agent {
    /// Answers one message that came while nothing ran.
    fn dispatch(&mut self, message: &Value, script: Option<&[Step]>) -> Result<()> {
        let (Some(method), id) = (message["method"].as_str(), &message["id"]) else {
            return Ok(());
        };
        match method {
            "initialize" => self.send(&json!({"id": id, "result": {
                "protocolVersion": 1,
                "agentCapabilities": {"loadSession": false},
                "agentInfo": {"name": "scripted", "version": env!("CARGO_PKG_VERSION")},
                "authMethods": [],
            }})),
            "session/new" => self.send(&json!({"id": id, "result": {"sessionId": SESSION}})),
            "session/prompt" => {
                let reply = self.prompt(&message["params"], script)?;
                self.send(&with_id(reply, id))
            }
            _ if id.is_null() => Ok(()),
            _ => self.send(&json!({"id": id, "error": {"code": -32601, "message": format!("no method {method}")}})),
        }
    }

    /// Runs one prompt; the reply is `{result}` or `{error}`.
    fn prompt(&mut self, params: &Value, script: Option<&[Step]>) -> Result<Value> {
        self.canceled = false;
        let from_prompt = || script::for_prompt(&last_text(params));
        let steps = match script.map_or_else(from_prompt, |steps| Ok(steps.to_vec())) {
            Ok(steps) => steps,
            Err(error) => {
                return Ok(json!({"error": {"code": -32602, "message": format!("{error:#}")}}));
            }
        };
        let (ending, usage) = perform::all(self, &steps)?;
        Ok(match ending {
            Ending::Error(message) => json!({"error": {"code": -32603, "message": message}}),
            Ending::Stop(reason) => {
                let reason = if self.canceled { "cancelled" } else { &reason };
                json!({"result": usage.map_or_else(
                    || json!({"stopReason": reason}),
                    |usage| json!({"stopReason": reason, "usage": usage}),
                )})
            }
        })
    }

    /// Tells the client something about the session.
    ///
    /// # Errors
    /// When stdout is gone.
    pub fn update(&self, update: &Value) -> Result<()> {
        self.send(&json!({"method": "session/update", "params": {"sessionId": SESSION, "update": update}}))
    }

    /// Asks the client something and waits for the answer; `None` when the turn was cancelled meanwhile.
    ///
    /// # Errors
    /// When stdout is gone.
    pub fn request(&mut self, method: &str, mut params: Value) -> Result<Option<Value>> {
        self.last_request += 1;
        let id = self.last_request;
        params["sessionId"] = json!(SESSION);
        self.send(&json!({"id": id, "method": method, "params": params}))?;
        loop {
            if let Some(answer) = self.answers.remove(&id) {
                return Ok(Some(answer));
            }
            if !self.pause(Duration::from_secs(1)) {
                return Ok(None);
            }
        }
    }

    /// Writes a line to stdout as it stands.
    ///
    /// # Errors
    /// When stdout is gone.
    pub fn raw(&self, line: &str) -> Result<()> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{line}").and_then(|()| out.flush()).context("stdout is gone")
    }

    fn send(&self, message: &Value) -> Result<()> {
        let mut message = message.clone();
        message["jsonrpc"] = json!("2.0");
        self.raw(&message.to_string())
    }

    /// Waits for so long, or until something arrives; `false` when the turn is to end.
    pub fn pause(&mut self, duration: Duration) -> bool {
        let until = Instant::now() + duration;
        loop {
            if !self.goes_on() {
                return false;
            }
            match self.incoming.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(message) => {
                    let answer = message.get("method").is_none();
                    self.note(message);
                    if answer {
                        return self.goes_on();
                    }
                }
                Err(RecvTimeoutError::Timeout) => return self.goes_on(),
                Err(RecvTimeoutError::Disconnected) => {
                    self.closed = true;
                    if self.ignore_term {
                        std::thread::sleep(until.saturating_duration_since(Instant::now()));
                    }
                    return self.goes_on();
                }
            }
        }
    }

    /// Takes what has arrived without waiting; `false` when the turn is to end.
    pub fn poll(&mut self) -> bool {
        loop {
            match self.incoming.try_recv() {
                Ok(message) => self.note(message),
                Err(TryRecvError::Empty) => return self.goes_on(),
                Err(TryRecvError::Disconnected) => {
                    self.closed = true;
                    return self.goes_on();
                }
            }
        }
    }

    fn goes_on(&self) -> bool {
        !self.canceled && (!self.closed || self.ignore_term)
    }

    fn note(&mut self, message: Value) {
        match (message["method"].as_str(), message["id"].as_u64()) {
            (Some("session/cancel"), _) => self.canceled |= !self.ignore_cancel,
            (None, Some(id)) => {
                self.answers.insert(id, message);
            }
            _ => {}
        }
    }
}

/// The text of the last text block of a prompt.
fn last_text(params: &Value) -> String {
    let blocks = params["prompt"].as_array().map_or(&[][..], Vec::as_slice);
    blocks.iter().rev().find_map(|block| block["text"].as_str()).unwrap_or_default().to_owned()
}

fn with_id(mut reply: Value, id: &Value) -> Value {
    reply["id"] = id.clone();
    reply
}
