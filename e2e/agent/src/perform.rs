//! Carries out a script, step by step.

use std::{
    fs::OpenOptions,
    io::Write as _,
    path::PathBuf,
    process::{Command, Output, Stdio},
    sync::{Arc, atomic::AtomicBool, mpsc::channel},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    acp::Agent,
    script::{AppendLog, Parts, Step, Tool, Usage},
};

/// Text of one piece of a `bytes` step.
const PIECE: usize = 16 << 10;

/// How a turn is to end.
pub enum Ending {
    /// With this stop reason.
    Stop(String),
    /// With a JSON-RPC error.
    Error(String),
}

/// What is counted within a turn.
#[derive(Default)]
struct Turn {
    calls: usize,
    usage: Option<Value>,
}

/// Performs the steps until they are over or the turn is cancelled. Returns how the turn ends, and its usage for the prompt's result.
///
/// # Errors
/// When the client is gone or a step cannot be carried out at all.
pub fn all(agent: &mut Agent, steps: &[Step]) -> Result<(Ending, Option<Value>)> {
    let mut turn = Turn::default();
    for step in steps {
        if !agent.poll() {
            break;
        }
        if let Some(ending) = one(agent, &mut turn, step)? {
            return Ok((ending, turn.usage));
        }
    }
    Ok((Ending::Stop("end_turn".into()), turn.usage))
}

fn one(agent: &mut Agent, turn: &mut Turn, step: &Step) -> Result<Option<Ending>> {
    match step {
        Step::Say(text) => say(agent, text)?,
        Step::Think(text) => {
            agent
                .update(&json!({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": text}}))?;
        }
        Step::Tool(tool) => scripted_tool(agent, turn, tool)?,
        Step::Plan(entries) => plan(agent, entries)?,
        Step::Usage(usage) => report_usage(agent, turn, *usage)?,
        Step::Parts(parts) => pieces(agent, *parts)?,
        Step::Bytes(total) => {
            pieces(agent, Parts { count: total.0.div_ceil(PIECE), size: PIECE, every: Duration::ZERO })?;
        }
        Step::Wait(pause) => {
            let end = std::time::Instant::now() + pause.0;
            while agent.pause(end.saturating_duration_since(std::time::Instant::now()))
                && std::time::Instant::now() < end
            {}
        }
        Step::Crash(signal) => crash(signal)?,
        Step::Exit(code) => std::process::exit(*code),
        // Written, not only reserved: what is not touched costs nothing.
        Step::Allocate(size) => agent.ballast.push(vec![1; size.0]),
        Step::IgnoreTerm => {
            agent.ignore_term = true;
            signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::new(AtomicBool::new(false)))?;
        }
        Step::IgnoreCancel => agent.ignore_cancel = true,
        Step::Stderr(line) => eprintln!("{line}"),
        Step::Raw(line) => agent.raw(line)?,
        Step::AppendLog(append) => append_log(agent, append)?,
        Step::Permission(permission) => ask(agent, turn, &permission.title)?,
        Step::FailPrompt(message) => return Ok(Some(Ending::Error(message.clone()))),
        Step::Stop(reason) => return Ok(Some(Ending::Stop(reason.clone()))),
        Step::Shell(command) => shell(agent, turn, command)?,
        Step::Update(update) => agent.update(update)?,
    }
    Ok(None)
}

fn say(agent: &Agent, text: &str) -> Result<()> {
    agent.update(&json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}))
}

fn pieces(agent: &mut Agent, parts: Parts) -> Result<()> {
    for ordinal in 1..=parts.count {
        say(agent, &parts.text(ordinal))?;
        let goes_on = if parts.every.is_zero() { agent.poll() } else { agent.pause(parts.every) };
        if !goes_on {
            break;
        }
    }
    Ok(())
}

fn plan(agent: &Agent, entries: &[String]) -> Result<()> {
    let entry = |(at, content): (usize, &String)| json!({"content": content, "priority": "medium", "status": if at == 0 { "in_progress" } else { "pending" }});
    agent
        .update(&json!({"sessionUpdate": "plan", "entries": entries.iter().enumerate().map(entry).collect::<Vec<_>>()}))
}

fn report_usage(agent: &Agent, turn: &mut Turn, usage: Usage) -> Result<()> {
    let total = usage.input_tokens + usage.output_tokens;
    turn.usage =
        Some(json!({"totalTokens": total, "inputTokens": usage.input_tokens, "outputTokens": usage.output_tokens}));
    agent.update(&json!({"sessionUpdate": "usage_update", "used": total, "size": 200_000}))
}

fn announce(agent: &Agent, turn: &mut Turn, name: &str, input: &Value) -> Result<String> {
    turn.calls += 1;
    let id = format!("call-{}", turn.calls);
    agent.update(&json!({"sessionUpdate": "tool_call", "toolCallId": id, "title": name, "kind": "execute", "status": "in_progress", "rawInput": input}))?;
    Ok(id)
}

fn report(agent: &Agent, id: &str, output: &str, exit: i32) -> Result<()> {
    agent.update(&json!({
        "sessionUpdate": "tool_call_update",
        "toolCallId": id,
        "status": if exit == 0 { "completed" } else { "failed" },
        "content": [{"type": "content", "content": {"type": "text", "text": output}}],
        "rawOutput": {"output": output, "exit_code": exit},
    }))
}

fn scripted_tool(agent: &Agent, turn: &mut Turn, tool: &Tool) -> Result<()> {
    let id = announce(agent, turn, &tool.name, &tool.input)?;
    report(agent, &id, &tool.output, tool.exit)
}

fn shell(agent: &mut Agent, turn: &mut Turn, command: &str) -> Result<()> {
    let id = announce(agent, turn, "shell", &json!({"command": command}))?;
    let (sender, receiver) = channel();
    let line = format!("exec 2>&1; {command}");
    std::thread::spawn(move || {
        // Nobody waits any more when the turn was cancelled.
        sender.send(Command::new("sh").arg("-c").arg(line).stdin(Stdio::null()).output()).ok();
    });
    loop {
        match receiver.recv_timeout(Duration::from_millis(5)) {
            Ok(Ok(Output { status, stdout, .. })) => {
                return report(agent, &id, &String::from_utf8_lossy(&stdout), status.code().unwrap_or(-1));
            }
            Ok(Err(error)) => return report(agent, &id, &format!("cannot run sh: {error}"), 127),
            Err(_) if agent.poll() => {}
            Err(_) => return Ok(()),
        }
    }
}

fn ask(agent: &mut Agent, turn: &mut Turn, title: &str) -> Result<()> {
    let id = announce(agent, turn, title, &json!({}))?;
    let option = |id: &str, kind: &str| json!({"optionId": id, "name": id, "kind": kind});
    // The permissive option stands last: a client that goes by place instead of kind rejects.
    let options = [option("no", "reject_once"), option("yes", "allow_once")];
    let answer = agent.request(
        "session/request_permission",
        json!({"toolCall": {"toolCallId": id, "title": title}, "options": options}),
    )?;
    let outcome = answer.map_or_else(
        || "cancelled".into(),
        |answer| answer["result"]["outcome"]["optionId"].as_str().unwrap_or("cancelled").to_owned(),
    );
    report(agent, &id, &format!("permission: {outcome}"), i32::from(outcome != "yes"))
}

fn crash(signal: &str) -> Result<()> {
    let signal = match signal.trim_start_matches("SIG") {
        "KILL" => Signal::KILL,
        "SEGV" => Signal::SEGV,
        "ABRT" => Signal::ABORT,
        "TERM" => Signal::TERM,
        other => bail!("no such signal: {other}"),
    };
    rustix::process::kill_process(rustix::process::getpid(), signal).context("cannot signal itself")?;
    // Delivery to another thread than this one may take a moment.
    std::thread::sleep(Duration::from_secs(5));
    bail!("the signal did nothing")
}

fn append_log(agent: &Agent, append: &AppendLog) -> Result<()> {
    let file = match &append.file {
        Some(name) => agent.log_dir.join(name),
        None => newest_log(agent).context("the driver has no log")?,
    };
    let mut bytes = append.text.replace("@PAD@", &"x".repeat(append.pad.0)).into_bytes();
    bytes.extend(BASE64_STANDARD.decode(&append.base64).context("not base64")?);
    let mut log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&file)
        .with_context(|| format!("cannot open {}", file.display()))?;
    log.write_all(&bytes).with_context(|| format!("cannot write {}", file.display()))
}

/// The log of the turn that runs: the one with the highest number.
fn newest_log(agent: &Agent) -> Option<PathBuf> {
    let number = |name: &str| name.strip_prefix("turn-")?.strip_suffix(".jsonl")?.parse::<u32>().ok();
    let entries = std::fs::read_dir(&agent.log_dir).ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let newest = names.filter_map(|name| Some((number(&name)?, name))).max()?;
    Some(agent.log_dir.join(newest.1))
}
