//! A Pod as exec sees it: a log, a status, an inbox, and a recorder that answers `read` and `deliver` as the real one does.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use agentsession_controller::exec::Standing;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader},
    sync::{Notify, mpsc},
    time::{Instant, sleep_until},
};
use transcript::{
    AgentStatus, Turn,
    frame::{Delivered, Delivery, FrameWriter, Header, VERSION, parse_ack},
    limits,
};

#[derive(Default)]
struct State {
    status: Option<AgentStatus>,
    logs: BTreeMap<u32, Vec<u8>>,
    inbox: BTreeMap<String, Vec<u8>>,
    standing: Option<Standing>,
    commands: Vec<Vec<String>>,
    acknowledged: Vec<u64>,
}

/// A pretended agent Pod.
#[derive(Default)]
pub struct Pod {
    state: Mutex<State>,
    changed: Notify,
    remotes: AtomicUsize,
}

struct Living<'a>(&'a AtomicUsize);

impl Drop for Living<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Pod {
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    pub fn set_status(&self, status: AgentStatus) {
        self.state.lock().unwrap().status = Some(status);
        self.changed.notify_waiters();
    }

    pub fn append(&self, turn: u32, bytes: &[u8]) {
        self.state.lock().unwrap().logs.entry(turn).or_default().extend_from_slice(bytes);
        self.changed.notify_waiters();
    }

    pub fn replace_log(&self, turn: u32, bytes: &[u8]) {
        self.state.lock().unwrap().logs.insert(turn, bytes.to_vec());
    }

    pub fn log(&self, turn: u32) -> Vec<u8> {
        self.state.lock().unwrap().logs.get(&turn).cloned().unwrap_or_default()
    }

    pub fn inbox(&self) -> BTreeMap<String, Vec<u8>> {
        self.state.lock().unwrap().inbox.clone()
    }

    pub fn set_standing(&self, standing: Standing) {
        self.state.lock().unwrap().standing = Some(standing);
    }

    pub fn standing(&self) -> Standing {
        self.state.lock().unwrap().standing.unwrap_or(Standing::Running)
    }

    /// Argument vectors of all execs so far.
    pub fn commands(&self) -> Vec<Vec<String>> {
        self.state.lock().unwrap().commands.clone()
    }

    /// Bytes that were acknowledged, in order.
    pub fn acknowledged(&self) -> Vec<u64> {
        self.state.lock().unwrap().acknowledged.clone()
    }

    /// Remote processes that run now.
    pub fn remotes(&self) -> usize {
        self.remotes.load(Ordering::SeqCst)
    }

    /// One remote process. Returns its exit code.
    pub async fn exec(&self, argv: Vec<String>, stdin: impl AsyncRead + Unpin, stdout: impl AsyncWrite + Unpin) -> i32 {
        self.remotes.fetch_add(1, Ordering::SeqCst);
        let _living = Living(&self.remotes);
        self.state.lock().unwrap().commands.push(argv.clone());
        assert_eq!(argv.first().map(String::as_str), Some("/agentsession/bin/agentsession-sandbox"));
        match argv.get(1).map(String::as_str) {
            Some("read") => self.read(&argv, stdin, stdout).await,
            Some("deliver") => self.deliver(&argv, stdin, stdout).await,
            other => panic!("no such command: {other:?}"),
        }
    }

    async fn read(&self, argv: &[String], stdin: impl AsyncRead + Unpin, mut stdout: impl AsyncWrite + Unpin) -> i32 {
        let number = |name: &str| flag(argv, name).and_then(|text| text.parse::<u64>().ok());
        let turn = u32::try_from(number("--turn").unwrap()).unwrap();
        let max = number("--max").unwrap_or(limits::LOG_BYTES);
        let interval = flag(argv, "--follow").map(|text| {
            let millis = text.strip_suffix("ms").expect("an interval in ms");
            Duration::from_millis(millis.parse().unwrap())
        });
        let (acks, mut acknowledged) = mpsc::unbounded_channel();
        let listen = async {
            let mut lines = BufReader::new(stdin).split(b'\n');
            while let Ok(Some(line)) = lines.next_segment().await {
                if let Some(to) = parse_ack(&line) {
                    self.state.lock().unwrap().acknowledged.push(to);
                    let _ = acks.send(to);
                }
            }
        };
        let write = async {
            let mut at = number("--from").unwrap_or(0);
            loop {
                let sent_at = Instant::now();
                let (header, body) = self.frame(turn, at, max);
                let (mut frame, line) = FrameWriter::begin(&header).unwrap();
                frame.body(&body);
                for piece in [line, body, frame.end().unwrap()] {
                    if stdout.write_all(&piece).await.is_err() {
                        return 1;
                    }
                }
                let _ = stdout.flush().await;
                at = header.to;
                while acknowledged.recv().await != Some(at) {}
                let Some(interval) = interval else { return 0 };
                self.until_due(turn, at, max, &header.status, sent_at + interval).await;
            }
        };
        tokio::select! { () = listen => 0, code = write => code }
    }

    fn frame(&self, turn: u32, from: u64, max: u64) -> (Header, Vec<u8>) {
        let state = self.state.lock().unwrap();
        let log = state.logs.get(&turn);
        let size = log.map_or(0, Vec::len) as u64;
        let to = size.min(from.saturating_add(max)).max(from);
        let range = usize::try_from(from).unwrap()..usize::try_from(to).unwrap();
        let body = log.and_then(|log| log.get(range)).map(<[u8]>::to_vec).unwrap_or_default();
        let status = state.status.clone();
        let header =
            Header { v: VERSION, turn: Turn(turn), status, status_error: None, exists: log.is_some(), size, from, to };
        (header, body)
    }

    async fn until_due(&self, turn: u32, at: u64, max: u64, last: &Option<AgentStatus>, due: Instant) {
        loop {
            let changed = self.changed.notified();
            let (urgent, pending) = {
                let state = self.state.lock().unwrap();
                let pending = (state.logs.get(&turn).map_or(0, Vec::len) as u64).saturating_sub(at);
                let over =
                    state.status.as_ref().is_some_and(|status| status.turn.0 == turn && status.state.is_terminal());
                (state.status != *last || (over && pending > 0), pending)
            };
            if urgent || pending >= max.min(limits::FOLLOW_BYTES) {
                return;
            }
            tokio::select! { () = changed => {}, () = sleep_until(due) => return }
        }
    }

    async fn deliver(
        &self,
        argv: &[String],
        mut stdin: impl AsyncRead + Unpin,
        mut stdout: impl AsyncWrite + Unpin,
    ) -> i32 {
        let (name, body) = if let Some(turn) = flag(argv, "--turn") {
            let mut line = Vec::new();
            loop {
                match stdin.read_u8().await {
                    Ok(b'\n') => break,
                    Ok(byte) => line.push(byte),
                    Err(_) => return 1,
                }
            }
            let delivery = Delivery::parse(&line).unwrap();
            let mut body = vec![0; usize::try_from(delivery.count).unwrap()];
            if stdin.read_exact(&mut body).await.is_err() || delivery.verify(&body).is_err() {
                return 1;
            }
            (format!("turn-{turn}.json"), body)
        } else if let Some(turn) = flag(argv, "--cancel") {
            (format!("cancel-{turn}.json"), b"{}\n".to_vec())
        } else {
            assert!(argv.iter().any(|word| word == "--release"));
            ("release".to_owned(), b"{}\n".to_vec())
        };
        let answer = {
            let mut state = self.state.lock().unwrap();
            let stands = state.inbox.entry(name).or_insert_with(|| body.clone());
            if *stands == body {
                Delivered::stands(&body)
            } else {
                Delivered::refused("another prompt stands for this turn")
            }
        };
        if stdout.write_all(&answer.encode().unwrap()).await.is_err() {
            return 1;
        }
        let _ = stdout.flush().await;
        // The other side has the answer when it closes stdin.
        let mut rest = Vec::new();
        let _ = stdin.read_to_end(&mut rest).await;
        0
    }
}

fn flag<'a>(argv: &'a [String], name: &str) -> Option<&'a str> {
    argv.iter().position(|word| word == name).and_then(|at| argv.get(at + 1)).map(String::as_str)
}
