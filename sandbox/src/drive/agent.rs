//! The agent's process: in its own group, its pipes on threads of their own, so that nothing it does can hold up the driver.

use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{SyncSender, TrySendError, sync_channel},
    },
    thread,
};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process_group};
use transcript::AgentExit;

use crate::drive::{
    Event,
    rpc::{LINE_BYTES, Splitter},
};

/// How much of the agent's stderr is kept.
const STDERR_TAIL: usize = 4 << 10;
/// Messages that wait for the agent to read its stdin. It is sent one prompt and the answers to its own requests.
const STDIN_QUEUE: usize = 256;

/// The last words of the agent on stderr.
#[derive(Clone, Debug, Default)]
pub struct Stderr {
    tail: Arc<Mutex<VecDeque<u8>>>,
    ended: Arc<AtomicBool>,
}

impl Stderr {
    /// The last 4 KiB, as text.
    pub fn tail(&self) -> String {
        let bytes: Vec<u8> = self.lock().iter().copied().collect();
        // The first character may have been cut.
        let start =
            if bytes.len() < STDERR_TAIL { 0 } else { bytes.iter().take(3).take_while(|b| *b & 0xC0 == 0x80).count() };
        String::from_utf8_lossy(&bytes[start..]).into_owned()
    }

    fn push(&self, bytes: &[u8]) {
        let mut tail = self.lock();
        tail.extend(&bytes[bytes.len().saturating_sub(STDERR_TAIL)..]);
        let over = tail.len().saturating_sub(STDERR_TAIL);
        tail.drain(..over);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<u8>> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A process that was started.
#[derive(Debug)]
pub struct Agent {
    pid: Pid,
    stdin: SyncSender<Vec<u8>>,
    stderr: Stderr,
    stdout_ended: bool,
    exit: Option<AgentExit>,
}

impl Agent {
    /// Starts the agent in a process group of its own. Its lines arrive as [`Event::Lines`].
    ///
    /// # Errors
    /// When the command cannot be started.
    pub fn spawn(command: &[String], cwd: &Path, events: &SyncSender<Event>) -> io::Result<Self> {
        let (program, arguments) = command.split_first().ok_or_else(|| io::Error::other("no command is given"))?;
        let mut child = Command::new(program)
            .args(arguments)
            .current_dir(cwd)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let pid = i32::try_from(child.id())
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(|| io::Error::other("the process has no id"))?;
        let (sender, messages) = sync_channel::<Vec<u8>>(STDIN_QUEUE);
        if let Some(mut stdin) = child.stdin.take() {
            thread::Builder::new().name("agent-stdin".into()).spawn(move || {
                // An agent that does not read any more is found out by its exit or by a deadline.
                while messages.recv().is_ok_and(|message| stdin.write_all(&message).is_ok()) {}
            })?;
        }
        if let Some(stdout) = child.stdout.take() {
            let events = events.clone();
            thread::Builder::new().name("agent-stdout".into()).spawn(move || read_lines(stdout, &events))?;
        }
        let stderr = Stderr::default();
        if let Some(pipe) = child.stderr.take() {
            let stderr = stderr.clone();
            thread::Builder::new().name("agent-stderr".into()).spawn(move || pass_on(pipe, &stderr))?;
        }
        Ok(Self { pid, stdin: sender, stderr, stdout_ended: false, exit: None })
    }

    /// Sends a message; `false` when the agent does not read its stdin.
    pub fn send(&self, message: Vec<u8>) -> bool {
        match self.stdin.try_send(message) {
            // Its stdin is closed: it has ended, or is about to be found out.
            Ok(()) | Err(TrySendError::Disconnected(_)) => true,
            Err(TrySendError::Full(_)) => false,
        }
    }

    /// Signals the agent and everything that it started in its group.
    pub fn signal(&self, signal: Signal) {
        // A group that is gone already needs no signal.
        let _ = kill_process_group(self.pid, signal);
    }

    /// Takes the fate of a child of ours. When it is the agent's, its whole group is ended: what an agent leaves behind would hold
    /// our pipes open.
    pub fn reaped(&mut self, pid: Pid, status: WaitStatus) {
        if pid == self.pid {
            self.exit = Some(AgentExit { code: status.exit_status(), signal: status.terminating_signal(), oom: false });
            self.signal(Signal::KILL);
        }
    }

    /// Notes that its stdout has ended.
    pub fn stdout_ended(&mut self) {
        self.stdout_ended = true;
    }

    /// How it ended, if it did.
    pub fn exit(&self) -> Option<AgentExit> {
        self.exit
    }

    /// Whether it can say nothing more.
    pub fn is_mute(&self) -> bool {
        self.stdout_ended
    }

    /// Whether everything that it wrote has been read.
    pub fn is_drained(&self) -> bool {
        self.stdout_ended && self.stderr.ended.load(Ordering::Acquire)
    }

    /// Its last words.
    pub fn stderr_tail(&self) -> String {
        self.stderr.tail()
    }
}

/// Collects the children of ours that have ended, orphans that we inherited included.
pub fn reap() -> Vec<(Pid, WaitStatus)> {
    let mut ended = Vec::new();
    while let Ok(Some(child)) = rustix::process::wait(WaitOptions::NOHANG) {
        ended.push(child);
    }
    ended
}

fn read_lines(mut stdout: impl Read, events: &SyncSender<Event>) {
    let mut splitter = Splitter::new(LINE_BYTES);
    let mut buffer = vec![0; 64 << 10];
    loop {
        let mut lines = Vec::new();
        let ended = match stdout.read(&mut buffer) {
            Ok(0) => true,
            Ok(n) => {
                splitter.push(&buffer[..n], &mut lines);
                false
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => false,
            Err(_) => true,
        };
        if ended {
            lines.extend(splitter.finish());
        }
        if !lines.is_empty() && events.send(Event::Lines(lines)).is_err() {
            return;
        }
        if ended {
            // Nobody is there to be told when the driver is gone.
            let _ = events.send(Event::StdoutEnded);
            return;
        }
    }
}

fn pass_on(mut pipe: impl Read, stderr: &Stderr) {
    let mut buffer = [0; 4 << 10];
    loop {
        match pipe.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => {
                stderr.push(&buffer[..n]);
                // The container log is a courtesy: that it is gone must not stop the agent.
                let _ = io::stderr().write_all(&buffer[..n]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    stderr.ended.store(true, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_keeps_the_last_words_whole() {
        let stderr = Stderr::default();
        stderr.push("é".repeat(4000).as_bytes());
        stderr.push(b"boom\n");
        let tail = stderr.tail();
        assert!(tail.ends_with("éboom\n"));
        assert!(!tail.contains('\u{FFFD}'));
        assert!(tail.len() <= STDERR_TAIL);
    }
}
