//! An agent that follows a script. The test program itself is the agent: it is started again with the name of one test, which
//! does nothing unless the script is there. What the test harness prints before it is the banner that some agents have.

use std::{
    env,
    io::{self, Write},
    process, thread,
    time::Duration,
};

use serde_json::{Value, json};

/// The test that is the agent.
pub const NAME: &str = "scripted_agent";
/// What it does before it answers `initialize`.
pub const START: &str = "SCRIPT_START";
/// What it does at each prompt.
pub const TURN: &str = "SCRIPT_TURN";

/// Runs the script, if there is one.
pub fn run() {
    let (Ok(start), Ok(turn)) = (env::var(START), env::var(TURN)) else { return };
    let mut agent = Agent { lines: io::stdin().lines(), id: Value::Null };
    agent.script(&start);
    while let Some(message) = agent.next() {
        agent.id = message["id"].clone();
        match message["method"].as_str() {
            Some("initialize") => agent.result(&json!({"protocolVersion": 1, "agentCapabilities": {}})),
            Some("session/new") => {
                agent.result(&json!({"sessionId": "s"}));
                agent.script(&env::var("SCRIPT_EARLY").unwrap_or_default());
            }
            Some("session/prompt") => {
                agent.send(&update("agent_message_chunk", &json!({"content": {"type": "text", "text": "before "}})));
                if env::var("SCRIPT_ECHO").is_ok() {
                    agent.text(&message["params"]["prompt"].to_string());
                }
                agent.script(&turn);
                agent.text("after");
                agent.result(&json!({"stopReason": "end_turn"}));
            }
            _ => {}
        }
    }
    process::exit(0);
}

fn update(kind: &str, more: &Value) -> Value {
    let mut update = json!({"sessionUpdate": kind});
    update.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}})
}

struct Agent {
    lines: io::Lines<io::StdinLock<'static>>,
    id: Value,
}

impl Agent {
    fn next(&mut self) -> Option<Value> {
        Some(serde_json::from_str(&self.lines.next()?.unwrap()).unwrap())
    }

    fn write(&self, bytes: &[u8]) {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes).unwrap();
        stdout.flush().unwrap();
    }

    fn send(&self, message: &Value) {
        self.write(format!("{message}\n").as_bytes());
    }

    fn text(&self, text: &str) {
        self.send(&update("agent_message_chunk", &json!({"content": {"type": "text", "text": text}})));
    }

    fn result(&self, result: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": self.id, "result": result}));
    }

    /// One step a line.
    fn script(&mut self, script: &str) {
        for step in script.lines().map(str::trim).filter(|step| !step.is_empty()) {
            let (word, rest) = step.split_once(' ').unwrap_or((step, ""));
            self.step(word, rest);
        }
    }

    fn step(&mut self, word: &str, rest: &str) {
        let number = || rest.parse::<u64>().unwrap();
        match word {
            "say" => self.text(rest),
            "update" => self.send(&json!({"method": "session/update", "params": {"sessionId": "s", "update": serde_json::from_str::<Value>(rest).unwrap()}})),
            "raw" => self.write(format!("{rest}\n").as_bytes()),
            "bytes" => self.write(&rest.split(' ').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect::<Vec<_>>()),
            "big" => self.text(&"y".repeat(usize::try_from(number()).unwrap())),
            "flood" => (0..number()).for_each(|n| self.text(&format!("{n} "))),
            "sleep" => thread::sleep(Duration::from_millis(number())),
            "stderr" => io::stderr().write_all(format!("{rest}\n").as_bytes()).unwrap(),
            "exit" => process::exit(rest.parse().unwrap()),
            "die" => signal(&["-KILL", "self"]),
            "file" => {
                let (name, content) = rest.split_once(' ').unwrap();
                std::fs::write(format!("{}/{name}", env::var("VOLUMES").unwrap()), content.replace("\\n", "\n")).unwrap();
            }
            "orphan" => drop(process::Command::new("/bin/sleep").arg(rest).spawn().unwrap()),
            "escape" => drop(process::Command::new("/usr/bin/setsid").args(["/bin/sleep", rest]).spawn().unwrap()),
            "deaf" => process::Command::new("/bin/sh").args(["-c", "trap '' TERM; while :; do sleep 1; done"]).status().map(|_| ()).unwrap(),
            "hang" => loop {
                thread::park();
            },
            "cancelled" => {
                while self.next().is_some_and(|message| message["method"] != "session/cancel") {}
                self.result(&json!({"stopReason": "cancelled"}));
                self.id = json!("nobody asked");
            }
            "ask" => {
                self.send(&serde_json::from_str(rest).unwrap());
                let answer = self.next().unwrap();
                self.text(&answer.to_string());
            }
            "stop-and-say" => {
                let answer = json!({"jsonrpc": "2.0", "id": self.id, "result": {"stopReason": "end_turn"}});
                let late = update("agent_message_chunk", &json!({"content": {"type": "text", "text": rest}}));
                self.write(format!("{answer}\n{late}\n").as_bytes());
                self.id = json!("nobody asked");
                thread::sleep(Duration::from_millis(500));
            }
            "stop" => {
                self.result(&json!({"stopReason": rest}));
                self.id = json!("nobody asked");
            }
            "fail" => {
                self.send(&json!({"id": self.id, "error": {"code": -32000, "message": rest, "data": {"more": 1}}}));
                self.id = json!("nobody asked");
            }
            _ => panic!("no such step: {word}"),
        }
    }
}

/// Sends itself a signal.
fn signal(arguments: &[&str]) {
    let own = process::id().to_string();
    let arguments: Vec<&str> =
        arguments.iter().map(|argument| if *argument == "self" { own.as_str() } else { argument }).collect();
    process::Command::new("/bin/kill").args(arguments).status().unwrap();
    thread::sleep(Duration::from_secs(60));
}
