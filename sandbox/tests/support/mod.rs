//! What the tests of the whole program share: directories, the program under test, and an agent that follows a script.

#![expect(dead_code, reason = "each test file uses its own part of it")]

pub mod agent;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;
use transcript::{
    AgentState, AgentStatus, Turn,
    frame::{FrameEvent, FrameReader, Header, Prompt},
};

/// How long anything may take before a test gives up.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The program under test.
pub fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_agentsession-sandbox"))
}

/// Asks until there is an answer.
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < until, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for the end of a process, no longer than this.
pub fn ends_within(child: &mut Child, time: Duration) -> Option<ExitStatus> {
    let until = Instant::now() + time;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if Instant::now() >= until {
            return None;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// The volumes of an agent Pod.
pub struct Volumes {
    root: TempDir,
}

impl Volumes {
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for dir in ["log", "inbox", "work", "cgroup"] {
            fs::create_dir(root.path().join(dir)).unwrap();
        }
        Self { root }
    }

    pub fn log(&self) -> PathBuf {
        self.root.path().join("log")
    }

    pub fn inbox(&self) -> PathBuf {
        self.root.path().join("inbox")
    }

    pub fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    pub fn cgroup(&self) -> PathBuf {
        self.root.path().join("cgroup")
    }

    pub fn turn_log(&self, turn: u32) -> PathBuf {
        self.log().join(format!("turn-{turn}.jsonl"))
    }

    pub fn status(&self) -> Option<AgentStatus> {
        serde_json::from_slice(&fs::read(self.log().join("status.json")).ok()?).ok()
    }

    pub fn write_status(&self, text: &str) {
        let beside = self.log().join(".status");
        fs::write(&beside, text).unwrap();
        fs::rename(beside, self.log().join("status.json")).unwrap();
    }

    pub fn put(&self, name: &str, bytes: &[u8]) {
        let beside = self.inbox().join(format!(".{name}"));
        fs::write(&beside, bytes).unwrap();
        fs::rename(beside, self.inbox().join(name)).unwrap();
    }

    pub fn deliver(&self, turn: u32, prompt: &str) {
        self.deliver_with(turn, prompt, None);
    }

    pub fn deliver_with(&self, turn: u32, prompt: &str, context: Option<&str>) {
        let prompt = Prompt { turn: Turn(turn), prompt: prompt.to_owned(), context: context.map(str::to_owned) };
        self.put(&format!("turn-{turn}.json"), &prompt.encode().unwrap());
    }

    pub fn cancel(&self, turn: u32) {
        self.put(&format!("cancel-{turn}.json"), b"{}\n");
    }

    /// The lines of a turn's log as text, each checked to be a whole line in its place.
    pub fn lines(&self, turn: u32) -> Vec<String> {
        let text = String::from_utf8(fs::read(self.turn_log(turn)).unwrap()).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'), "torn");
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut index = 0;
        for line in &lines {
            assert!(
                line.starts_with("{\"at\":\"20") && line.contains(&format!("\"turn\":{turn},\"partIndex\":{index},")),
                "{line:.200}"
            );
            index += usize::from(line.contains("\"type\":\"ui-message\",\"turn\""));
        }
        lines
    }

    /// The parts of a turn, without those that cannot be values (lone surrogates).
    pub fn parts(&self, turn: u32) -> Vec<Value> {
        let lines = self.lines(turn);
        let values = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        values.filter(|line| line["type"] == "ui-message").map(|line| line["part"].clone()).collect()
    }

    /// The types of a turn's parts.
    pub fn kinds(&self, turn: u32) -> Vec<String> {
        self.parts(turn).iter().map(|part| part["type"].as_str().unwrap().to_owned()).collect()
    }

    /// All text of a turn.
    pub fn text(&self, turn: u32) -> String {
        self.parts(turn)
            .iter()
            .filter(|part| part["type"] == "text-delta")
            .filter_map(|part| part["delta"].as_str().map(str::to_owned))
            .collect()
    }
}

/// `drive` with an agent.
pub struct Drive {
    pub volumes: Volumes,
    pub child: Child,
}

impl Drive {
    /// Starts it with an agent that does `start` when it starts and `turn` at each prompt.
    pub fn start(start: &str, turn: &str) -> Self {
        Self::with(start, turn, |_, _| {})
    }

    /// The same, with more to set.
    pub fn with(start: &str, turn: &str, more: impl FnOnce(&mut Command, &Volumes)) -> Self {
        let volumes = Volumes::new();
        let mut command = program();
        command
            .arg("drive")
            .arg("--log")
            .arg(volumes.log())
            .arg("--inbox")
            .arg(volumes.inbox())
            .arg("--cwd")
            .arg(volumes.work());
        command.arg("--cgroup").arg(volumes.cgroup());
        command
            .env("AGENTSESSION_ATTEMPT", "4")
            .env(agent::START, start)
            .env(agent::TURN, turn)
            .env("VOLUMES", volumes.root.path());
        more(&mut command, &volumes);
        command.arg("--").arg(std::env::current_exe().unwrap()).args(["--exact", agent::NAME]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        Self { volumes, child }
    }

    /// Waits for a status.
    pub fn until(&self, what: &str, wanted: impl Fn(&AgentStatus) -> bool) -> AgentStatus {
        wait_for(what, || self.volumes.status().filter(|status| wanted(status)))
    }

    pub fn idle(&self) -> AgentStatus {
        self.until("idle", |status| status.state == AgentState::Idle)
    }

    /// Waits until a turn is over; checks that its status tells of the log as it stands.
    pub fn over(&self, turn: u32) -> AgentStatus {
        let status =
            self.until("the end of the turn", |status| status.turn == Turn(turn) && status.state.is_terminal());
        let lines = self.volumes.lines(turn);
        let parts = lines.iter().filter(|line| line.contains("\"type\":\"ui-message\",\"turn\"")).count();
        assert_eq!(status.parts as usize, parts);
        assert_eq!(status.log_bytes, fs::metadata(self.volumes.turn_log(turn)).unwrap().len());
        // As a harvest reads it: whole, undamaged, every index there, and cut by the bound that the status names.
        let log = fs::read(self.volumes.turn_log(turn)).unwrap();
        let facts = transcript::scan::scan(Turn(turn), &log).facts(status.log_bytes);
        assert_eq!((facts.damaged_lines, facts.torn_tail, facts.read_to), (0, false, status.log_bytes), "{facts:?}");
        assert!(facts.indexes.is_exactly(status.parts), "{facts:?}");
        assert_eq!(facts.marker.map(|reason| reason.as_str()), status.truncated_reason.as_deref());
        status
    }

    /// Delivers a turn and waits until it is over.
    pub fn turn(&self, turn: u32) -> AgentStatus {
        self.volumes.deliver(turn, "go");
        self.over(turn)
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops it, and gives what it said on stderr.
    pub fn stop(mut self) -> String {
        self.signal(rustix::process::Signal::TERM);
        let status = ends_within(&mut self.child, PATIENCE).expect("the driver ends");
        assert!(status.success());
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            self.signal(rustix::process::Signal::TERM);
            if ends_within(&mut self.child, Duration::from_secs(15)).is_none() {
                self.child.kill().unwrap();
                self.child.wait().unwrap();
            }
        }
    }
}

/// One verified frame.
#[derive(Debug)]
pub struct Frame {
    pub header: Header,
    pub body: Vec<u8>,
}

/// A command with both ends of its pipes.
pub struct Exec {
    pub child: Child,
    frames: Option<FrameReader>,
    stdout: Option<BufReader<std::process::ChildStdout>>,
    pending: Vec<u8>,
}

impl Exec {
    pub fn start(volumes: &Volumes, arguments: &[&str]) -> Self {
        let mut command = program();
        command.args(arguments);
        match arguments[0] {
            "read" => command.arg("--log").arg(volumes.log()),
            _ => command.arg("--inbox").arg(volumes.inbox()),
        };
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let stdout = child.stdout.take().map(BufReader::new);
        Self { child, frames: None, stdout, pending: Vec::new() }
    }

    pub fn say(&mut self, bytes: &[u8]) {
        // That the other end has gone is what some tests are about.
        let _ = self.child.stdin.as_mut().unwrap().write_all(bytes);
    }

    pub fn ack(&mut self, to: u64) {
        self.say(transcript::frame::encode_ack(to).as_bytes());
    }

    pub fn close_stdin(&mut self) {
        self.child.stdin = None;
    }

    pub fn close_stdout(&mut self) {
        self.stdout = None;
    }

    /// Reads up to so many bytes.
    pub fn chunk(&mut self, max: usize) -> usize {
        let mut buffer = vec![0; max];
        self.stdout.as_mut().unwrap().read(&mut buffer).unwrap()
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.as_mut().unwrap().read_line(&mut line).unwrap();
        line
    }

    /// The next frame; `None` at the end of the stream.
    pub fn frame(&mut self, turn: u32, from: u64) -> Option<Frame> {
        let reader = self.frames.get_or_insert_with(|| FrameReader::new(Turn(turn), from, 64 << 20));
        let (mut header, mut body) = (None, Vec::new());
        loop {
            if self.pending.is_empty() {
                let mut buffer = vec![0; 64 << 10];
                let n = self.stdout.as_mut().unwrap().read(&mut buffer).unwrap();
                if n == 0 {
                    return None;
                }
                self.pending.extend_from_slice(&buffer[..n]);
            }
            let pending = std::mem::take(&mut self.pending);
            let mut rest = pending.as_slice();
            while let Some(event) = reader.next(&mut rest).unwrap() {
                match event {
                    FrameEvent::Header(h) => header = Some(*h),
                    FrameEvent::Body(bytes) => body.extend_from_slice(bytes),
                    FrameEvent::Verified { .. } => {
                        self.pending = rest.to_vec();
                        return Some(Frame { header: header.unwrap(), body });
                    }
                }
            }
        }
    }

    pub fn ends_within(&mut self, time: Duration) -> Option<Option<i32>> {
        ends_within(&mut self.child, time).map(|status| status.code())
    }
}

impl Drop for Exec {
    fn drop(&mut self) {
        // Ended already, in every test that passes.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A file of this size with lines in it.
pub fn fill(path: &Path, bytes: usize) -> Vec<u8> {
    let line = b"{\"at\":\"2026-11-30T18:00:00.123Z\",\"type\":\"ui-message\"}\n";
    let content: Vec<u8> = line.iter().copied().cycle().take(bytes).collect();
    fs::write(path, &content).unwrap();
    content
}
