//! The agent as a driver meets it: a process that speaks lines on stdio.
#![expect(clippy::unwrap_used, reason = "a fixture that cannot be had fails its test")]

use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};

struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Client {
    fn start(log_dir: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_agentsession-e2e-agent"))
            .arg("acp")
            .arg("--log-dir")
            .arg(log_dir)
            .current_dir(log_dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut client =
            Self { stdin: child.stdin.take(), stdout: BufReader::new(child.stdout.take().unwrap()), child };
        client.send(&json!({"id": 1, "method": "initialize", "params": {"protocolVersion": 1}}));
        assert_eq!(client.line()["result"]["protocolVersion"], 1);
        client.send(&json!({"id": 2, "method": "session/new", "params": {"cwd": "/", "mcpServers": []}}));
        assert_eq!(client.line()["result"]["sessionId"], "scripted");
        client
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn text(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    fn line(&mut self) -> Value {
        serde_json::from_str(&self.text()).unwrap()
    }

    fn prompt(&mut self, text: &str) {
        let params = json!({"sessionId": "scripted", "prompt": [{"type": "text", "text": text}]});
        self.send(&json!({"id": 3, "method": "session/prompt", "params": params}));
    }

    /// Everything up to the prompt's result: the updates, and the result.
    fn turn(&mut self, text: &str) -> (Vec<Value>, Value) {
        self.prompt(text);
        let mut updates = Vec::new();
        loop {
            let message = self.line();
            if message["id"] == 3 {
                return (updates, message);
            }
            updates.push(message["params"]["update"].clone());
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn a_plain_prompt_gets_text_one_tool_call_and_its_output() {
    let dir = tempfile::tempdir().unwrap();
    let (updates, reply) = Client::start(dir.path()).turn("Say hello: please");
    let kinds: Vec<_> = updates.iter().map(|update| update["sessionUpdate"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "agent_thought_chunk",
            "agent_message_chunk",
            "tool_call",
            "tool_call_update",
            "agent_message_chunk",
            "usage_update"
        ]
    );
    assert_eq!(updates[3]["rawOutput"], json!({"output": "Hello from the agent.\n", "exit_code": 0}));
    assert_eq!(reply["result"]["stopReason"], "end_turn");
    assert_eq!(reply["result"]["usage"]["totalTokens"], 46);
    assert_eq!(std::fs::read_to_string(dir.path().join("note.txt")).unwrap(), "Hello from the agent.\n");
}

#[test]
fn pieces_come_in_order_and_two_turns_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let mut client = Client::start(dir.path());
    for _ in 0..2 {
        let (updates, reply) = client.turn("- parts: 200\n- stop: refusal\n");
        let texts: Vec<_> =
            updates.iter().map(|update| update["content"]["text"].as_str().unwrap().to_owned()).collect();
        let expected: Vec<_> = (1..=200).map(|n| format!("piece {n} of 200\n")).collect();
        assert_eq!(texts, expected);
        assert_eq!(reply["result"], json!({"stopReason": "refusal"}));
    }
}

#[test]
fn a_cancel_ends_a_wait_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut client = Client::start(dir.path());
    client.prompt("- say: one\n- wait: 10m\n- say: never\n");
    assert_eq!(client.line()["params"]["update"]["content"]["text"], "one");
    client.send(&json!({"method": "session/cancel", "params": {"sessionId": "scripted"}}));
    let reply = client.line();
    assert_eq!((&reply["id"], &reply["result"]), (&json!(3), &json!({"stopReason": "cancelled"})));
}

#[test]
fn it_ends_as_it_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut client = Client::start(dir.path());
    client.prompt("- say: last words\n- exit: 3\n");
    assert_eq!(client.line()["params"]["update"]["content"]["text"], "last words");
    assert_eq!(client.child.wait().unwrap().code(), Some(3));

    let mut client = Client::start(dir.path());
    client.prompt("- crash: KILL\n");
    assert_eq!(client.child.wait().unwrap().signal(), Some(9));

    let mut client = Client::start(dir.path());
    client.prompt("- wait: 10m\n");
    client.stdin = None;
    assert_eq!(client.child.wait().unwrap().code(), Some(0), "the end of stdin ends the turn and the agent");

    let (updates, reply) = Client::start(dir.path()).turn("- failPrompt: no model\n- say: never\n");
    assert_eq!((updates.len(), &reply["error"]["message"]), (0, &json!("no model")));
    let (_, reply) = Client::start(dir.path()).turn("- no such step: x\n");
    assert!(reply["error"]["message"].as_str().unwrap().contains("not a list of steps"));
}

#[test]
fn raw_lines_and_log_bytes_go_out_as_they_stand() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("turn-9.jsonl"), "old\n").unwrap();
    std::fs::write(dir.path().join("turn-10.jsonl"), "mine\n").unwrap();
    let mut client = Client::start(dir.path());
    client.prompt("- raw: 'not {json'\n- appendLog: {text: 'a@PAD@b', pad: 3, base64: '/wA='}\n- appendLog: {file: turn-9.jsonl, text: x}\n");
    assert_eq!(client.text(), "not {json\n");
    assert_eq!(client.line()["result"]["stopReason"], "end_turn");
    assert_eq!(std::fs::read(dir.path().join("turn-10.jsonl")).unwrap(), b"mine\naxxxb\xff\0");
    assert_eq!(std::fs::read(dir.path().join("turn-9.jsonl")).unwrap(), b"old\nx");
}

#[test]
fn permission_is_asked_and_the_answer_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut client = Client::start(dir.path());
    client.prompt("- permission: {title: May I?}\n");
    assert_eq!(client.line()["params"]["update"]["sessionUpdate"], "tool_call");
    let request = client.line();
    assert_eq!(request["method"], "session/request_permission");
    assert_eq!(request["params"]["options"][1]["kind"], "allow_once");
    client.send(&json!({"id": request["id"], "result": {"outcome": {"outcome": "selected", "optionId": "yes"}}}));
    assert_eq!(client.line()["params"]["update"]["rawOutput"], json!({"output": "permission: yes", "exit_code": 0}));
    assert_eq!(client.line()["result"]["stopReason"], "end_turn");
}
