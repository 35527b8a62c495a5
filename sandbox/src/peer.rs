//! The reader at the other end of an exec: what it says on our stdin, and the bounds after which it counts as gone.
//!
//! A broken connection leaves this process writing into a pipe that nobody reads and nobody closes. So a thread reads stdin from the
//! first moment, and at its end, or when a bound passes, the whole process goes, a blocked write included.

use std::{
    io::{self, Write},
    process::exit,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use transcript::frame::{Delivery, parse_ack};

use crate::{HELD_TOO_LONG, chain, say};

/// How often the bound is looked at.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// Acknowledgements that may wait. One frame is out at a time, so a peer that sends more is not listened to.
const WAITING: usize = 16;
/// The longest line that is looked at.
const LINE: usize = 64;
/// The longest line in front of a delivery: a version, a count and a digest.
const DELIVERY_LINE: usize = 1 << 10;

/// How long an answer may take that is on its way when stdin ends.
const LINGER: Duration = Duration::from_millis(1500);

/// What the end of stdin means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtEnd {
    /// The reader has gone: so does this process.
    Exit,
    /// The sender has said all: the answer is still given.
    Linger,
}

/// What the other end said.
#[derive(Debug)]
enum Said {
    /// A delivery, as it was announced and as it came, or what is wrong with it.
    Delivery(Result<Vec<u8>, String>),
    /// Everything before this byte is safe.
    Ack(u64),
}

/// The other end.
#[derive(Debug)]
pub struct Peer {
    said: Receiver<Said>,
    bound: Bound,
}

impl Peer {
    /// Listens to a reader: acknowledgements, and its going. The bound holds from now on.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn reader(hold: Duration) -> io::Result<Self> {
        Self::listen(hold, Intake::Acks(Vec::new()), AtEnd::Exit)
    }

    /// Listens to a sender that announces and sends a delivery. The bound holds for the whole.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn sender(hold: Duration) -> io::Result<Self> {
        Self::listen(hold, Intake::Line(Vec::new()), AtEnd::Linger)
    }

    /// Listens to somebody who only waits for an answer. The bound holds for the whole.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn caller(hold: Duration) -> io::Result<Self> {
        Self::listen(hold, Intake::Acks(Vec::new()), AtEnd::Linger)
    }

    fn listen(hold: Duration, intake: Intake, at_end: AtEnd) -> io::Result<Self> {
        let bound = Bound::new();
        let (sender, said) = sync_channel(WAITING);
        bound.set(hold);
        let peer = Self { said, bound: bound.clone() };
        thread::Builder::new().name("stdin".into()).spawn(move || listen(&bound, intake, at_end, sender))?;
        Ok(peer)
    }

    /// The peer has to take and acknowledge what comes now within this time, or the process exits.
    pub fn expect_within(&self, hold: Duration) {
        self.bound.set(hold);
    }

    /// Nothing is expected of the peer but that it does not go.
    pub fn expect_nothing(&self) {
        self.bound.clear();
    }

    /// Waits for a delivery.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn delivery(&self) -> Result<Vec<u8>, String> {
        loop {
            match self.said.recv() {
                Ok(Said::Delivery(delivery)) => return delivery,
                Ok(Said::Ack(_)) => {}
                Err(_) => return Err("stdin ended before the delivery was whole".to_owned()),
            }
        }
    }

    /// Waits until the peer has acknowledged everything before byte `to`, or has said all that it will.
    pub fn wait_for_ack(&self, to: u64) {
        while let Ok(said) = self.said.recv() {
            if matches!(said, Said::Ack(acknowledged) if acknowledged >= to) {
                return;
            }
        }
    }
}

/// Writes to the peer, at once.
///
/// # Errors
/// When stdout is closed.
pub fn write(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

/// When the process has to go whatever happens.
#[derive(Clone, Debug)]
struct Bound {
    began: Instant,
    /// In milliseconds since `began`; 0 = never.
    at: Arc<AtomicU64>,
}

impl Bound {
    fn new() -> Self {
        Self { began: Instant::now(), at: Arc::new(AtomicU64::new(0)) }
    }

    fn set(&self, hold: Duration) {
        let at = (self.began.elapsed() + hold).as_millis();
        self.at.store(u64::try_from(at).unwrap_or(u64::MAX).max(1), Ordering::Release);
    }

    fn clear(&self) {
        self.at.store(0, Ordering::Release);
    }

    fn enforce(&self) {
        let at = self.at.load(Ordering::Acquire);
        if at != 0 && self.began.elapsed().as_millis() >= u128::from(at) {
            say("the other side took too long");
            exit(HELD_TOO_LONG.into());
        }
    }
}

fn listen(bound: &Bound, mut intake: Intake, at_end: AtEnd, said: SyncSender<Said>) {
    let stdin = io::stdin();
    let mut buffer = vec![0; 16 << 10];
    loop {
        let readable = poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&LOOK));
        bound.enforce();
        if !matches!(readable, Ok(n) if n > 0) {
            continue;
        }
        match rustix::io::read(&stdin, &mut buffer) {
            Ok(n) if n > 0 => intake.take(&buffer[..n], &said),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Ok(_) | Err(_) if at_end == AtEnd::Exit => exit(0),
            Ok(_) | Err(_) => break,
        }
    }
    drop(said);
    bound.set(LINGER);
    loop {
        thread::sleep(LINGER / 8);
        bound.enforce();
    }
}

/// Where in its input the other end is.
#[derive(Debug)]
enum Intake {
    /// The line in front of a delivery.
    Line(Vec<u8>),
    /// The delivery.
    Body(Delivery, Vec<u8>),
    /// Acknowledgements.
    Acks(Vec<u8>),
}

impl Intake {
    fn take(&mut self, mut bytes: &[u8], said: &SyncSender<Said>) {
        while !bytes.is_empty() {
            match self {
                Self::Line(line) => {
                    let Some(whole) = take_line(&mut bytes, line, DELIVERY_LINE) else { continue };
                    match Delivery::parse(&whole) {
                        Ok(delivery) => *self = Self::Body(delivery, Vec::new()),
                        Err(error) => self.delivered(Err(chain(&error)), said),
                    }
                }
                Self::Body(..) => {}
                Self::Acks(line) => {
                    // A peer that floods us loses only its own acknowledgements.
                    if let Some(to) = take_line(&mut bytes, line, LINE).and_then(|line| parse_ack(&line)) {
                        let _ = said.try_send(Said::Ack(to));
                    }
                }
            }
            if let Self::Body(delivery, body) = self {
                let missing = usize::try_from(delivery.count).unwrap_or(usize::MAX) - body.len();
                let (these, rest) = bytes.split_at(missing.min(bytes.len()));
                body.extend_from_slice(these);
                bytes = rest;
                if these.len() == missing {
                    let checked = delivery.verify(body).map_err(|error| chain(&error));
                    let body = std::mem::take(body);
                    self.delivered(checked.map(|()| body), said);
                }
            }
        }
    }

    fn delivered(&mut self, delivery: Result<Vec<u8>, String>, said: &SyncSender<Said>) {
        // The first thing that is said: there is room for it.
        let _ = said.try_send(Said::Delivery(delivery));
        *self = Self::Acks(Vec::new());
    }
}

/// Moves bytes up to a newline into `line`; the line, when the newline is there. What is longer than `max` is cut.
fn take_line(bytes: &mut &[u8], line: &mut Vec<u8>, max: usize) -> Option<Vec<u8>> {
    let end = memchr::memchr(b'\n', bytes);
    let these = &bytes[..end.unwrap_or(bytes.len())];
    line.extend_from_slice(&these[..these.len().min(max.saturating_sub(line.len()))]);
    *bytes = &bytes[end.map_or(bytes.len(), |end| end + 1)..];
    end.map(|_| std::mem::take(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(input: &[u8], step: usize, intake: Intake) -> Vec<Said> {
        let (sender, receiver) = sync_channel(WAITING);
        let mut intake = intake;
        input.chunks(step).for_each(|chunk| intake.take(chunk, &sender));
        drop(sender);
        receiver.iter().collect()
    }

    #[test]
    fn a_delivery_and_its_acknowledgement_arrive_however_they_are_cut() {
        let body = b"{\"turn\":1,\"prompt\":\"a\nb\"}";
        let input = [Delivery::frame(body).unwrap(), b"ack 0\nnonsense\nack 7\n".to_vec()].concat();
        for step in 1..input.len() {
            let said = said(&input, step, Intake::Line(Vec::new()));
            assert!(
                matches!(&said[..], [Said::Delivery(Ok(got)), Said::Ack(0), Said::Ack(7)] if got == body),
                "{step}: {said:?}"
            );
        }
    }

    #[test]
    fn what_is_wrong_with_a_delivery_is_said() {
        let good = Delivery::of(b"abc");
        let line = |delivery: &Delivery| [serde_json::to_vec(delivery).unwrap(), b"\n".to_vec()].concat();
        for input in [
            b"hello\n".to_vec(),
            [line(&good), b"abd".to_vec()].concat(),
            line(&Delivery { v: 99, ..good.clone() }),
            line(&Delivery { count: 1 << 40, ..good.clone() }),
            vec![b'x'; 100_000].into_iter().chain(*b"\n").collect(),
        ] {
            assert!(matches!(&said(&input, 4096, Intake::Line(Vec::new()))[..], [Said::Delivery(Err(_)), ..]));
        }
    }

    #[test]
    fn an_empty_delivery_is_whole_at_once() {
        let input = Delivery::frame(b"").unwrap();
        assert!(matches!(
            &said(&[input, b"ack 0\n".to_vec()].concat(), 7, Intake::Line(Vec::new()))[..],
            [Said::Delivery(Ok(_)), ..]
        ));
    }
}
