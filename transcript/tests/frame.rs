//! Frames, acknowledgements and deliveries: whole, cut anywhere, and wrong in every way.
#![expect(clippy::unwrap_used, reason = "a test helper: a failure here is a failed test")]

use agentsession_transcript::{
    AgentState, AgentStatus, Attempt, Turn,
    frame::{
        Delivered, Delivery, DeliveryError, FrameError, FrameEvent, FrameReader, FrameWriteError, FrameWriter, Header,
        Prompt, VERSION, encode_ack, parse_ack, sha256_hex,
    },
    limits,
};
use proptest::prelude::*;

fn status() -> AgentStatus {
    AgentStatus {
        state: AgentState::Running,
        turn: Turn(1),
        attempt: Attempt(1),
        parts: 3,
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

fn header(from: u64, len: usize) -> Header {
    let to = from + len as u64;
    Header { v: VERSION, turn: Turn(1), status: Some(status()), status_error: None, exists: true, size: to, from, to }
}

fn frame(from: u64, body: &[u8]) -> Vec<u8> {
    let (mut writer, mut out) = FrameWriter::begin(&header(from, body.len())).unwrap();
    writer.body(body);
    out.extend_from_slice(body);
    out.extend(writer.end().unwrap());
    out
}

/// What a careful caller has in the end: bodies that were verified, and where it stopped.
#[derive(Debug, PartialEq, Eq)]
struct Got {
    headers: usize,
    trusted: Vec<u8>,
    verified_to: u64,
    between: bool,
}

fn read(chunks: &[&[u8]], max: u64) -> Result<Got, FrameError> {
    let mut reader = FrameReader::new(Turn(1), 0, max);
    let (mut headers, mut pending, mut trusted) = (0, Vec::new(), Vec::new());
    for chunk in chunks {
        let mut rest = *chunk;
        while let Some(event) = reader.next(&mut rest)? {
            match event {
                FrameEvent::Header(_) => headers += 1,
                FrameEvent::Body(bytes) => pending.extend_from_slice(bytes),
                FrameEvent::Verified { .. } => trusted.append(&mut pending),
            }
        }
        assert!(rest.is_empty());
    }
    Ok(Got { headers, trusted, verified_to: reader.verified_to(), between: reader.is_between_frames() })
}

fn fails(bytes: &[u8]) -> FrameError {
    read(&[bytes], 1 << 20).unwrap_err()
}

#[test]
fn an_empty_body_is_a_frame() {
    let got = read(&[&frame(0, b"")], 0).unwrap();
    assert_eq!(got, Got { headers: 1, trusted: vec![], verified_to: 0, between: true });
}

#[test]
fn frames_follow_one_another_where_the_last_one_ended() {
    let stream = [frame(0, b"one\n"), frame(4, b""), frame(4, b"two\nthr"), frame(11, b"ee\n")].concat();
    let got = read(&[&stream], 64).unwrap();
    assert_eq!(got.headers, 4);
    assert_eq!(got.trusted, b"one\ntwo\nthree\n");
    assert_eq!(got.verified_to, 14);
}

#[test]
fn a_stream_cut_anywhere_gives_nothing_that_was_not_verified() {
    let first = frame(0, b"one\n");
    let stream = [first.clone(), frame(4, b"two\n")].concat();
    for cut in 0..stream.len() {
        let got = read(&[&stream[..cut]], 64).unwrap();
        let whole = if cut >= first.len() { b"one\n".as_slice() } else { b"" };
        assert_eq!(got.trusted, whole, "cut at {cut}");
        assert_eq!(got.verified_to, whole.len() as u64);
        assert_eq!(got.between, cut == 0 || cut == first.len(), "cut at {cut}");
    }
}

#[test]
fn a_dropped_doubled_or_changed_byte_never_passes() {
    let good = frame(0, b"some bytes of a log\n");
    let begin = good.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for at in begin..begin + 20 {
        let mut dropped = good.clone();
        dropped.remove(at);
        let mut doubled = good.clone();
        doubled.insert(at, good[at]);
        let mut changed = good.clone();
        changed[at] ^= 1;
        for wrong in [dropped, doubled, changed] {
            match read(&[&wrong], 64) {
                Err(_) => {}
                Ok(got) => assert_eq!(got.trusted, b"", "byte {at}"),
            }
        }
    }
}

#[test]
fn wrong_frames_are_refused_by_name() {
    let text = String::from_utf8(frame(0, b"abc")).unwrap();
    let sha = sha256_hex(b"abc");
    let with = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        fails(text.replacen(from, to, 1).as_bytes())
    };
    assert!(matches!(with("\"v\":1", "\"v\":2"), FrameError::Version { v: 2 }));
    assert!(matches!(with("\"v\":1", "\"v\":0"), FrameError::Version { v: 0 }));
    assert!(matches!(with("\"turn\":1", "\"turn\":2"), FrameError::WrongTurn { got: Turn(2), .. }));
    assert!(matches!(with("\"from\":0", "\"from\":1"), FrameError::NotContiguous { expected: 0, got: 1 }));
    assert!(matches!(with("\"size\":3", "\"size\":2"), FrameError::Range { .. }));
    assert!(matches!(with("\"exists\":true", "\"exists\":false"), FrameError::Range { .. }));
    assert!(matches!(with("\"to\":3", "\"to\":2"), FrameError::Unterminated));
    assert!(matches!(with("\"to\":3", "\"to\":4").to_string().as_str(), "range 0..4 of a file of 3 bytes"));
    assert!(matches!(with("\"count\":3", "\"count\":4"), FrameError::WrongCount { said: 4, got: 3 }));
    assert!(matches!(with(&sha, &sha256_hex(b"abd")), FrameError::WrongDigest));
    assert!(matches!(with("{\"v\"", "\u{1b}[0m{\"v\""), FrameError::Malformed { line: "header", .. }));
    assert!(matches!(fails(b"bash: agentsession-sandbox: not found\n"), FrameError::Malformed { .. }));
    assert!(matches!(read(&[text.as_bytes()], 2).unwrap_err(), FrameError::BodyTooLong { count: 3, max: 2 }));
}

#[test]
fn a_range_that_ends_before_it_begins_is_refused() {
    let backwards = Header { from: 5, to: 4, size: 9, ..header(0, 0) };
    assert!(matches!(FrameWriter::begin(&backwards), Err(FrameWriteError::Range { from: 5, to: 4 })));
    let line = [serde_json::to_vec(&backwards).unwrap(), b"\n".to_vec()].concat();
    let mut reader = FrameReader::new(Turn(1), 5, 64);
    assert!(matches!(reader.next(&mut line.as_slice()), Err(FrameError::Range { .. })));
    assert!(matches!(reader.next(&mut line.as_slice()), Err(FrameError::Failed)), "a failed reader stays failed");
}

#[test]
fn lines_without_end_are_refused_before_they_are_held() {
    let endless = vec![b'{'; limits::HEADER_BYTES + 1];
    assert!(matches!(fails(&endless), FrameError::LineTooLong { line: "header", .. }));
    let mut trailer = frame(0, b"abc");
    let at = trailer.len() - 1;
    trailer.splice(at..at, vec![b' '; limits::TRAILER_BYTES]);
    assert!(matches!(fails(&trailer), FrameError::LineTooLong { line: "trailer", .. }));
}

#[test]
fn a_status_that_fills_its_bound_still_fits_a_header() {
    let full = |bytes: u64| {
        let stderr_tail = "x".repeat(usize::try_from(bytes).unwrap());
        Header { status: Some(AgentStatus { stderr_tail, ..status() }), ..header(0, 0) }
    };
    assert!(FrameWriter::begin(&full(limits::STATUS_BYTES)).is_ok());
    assert!(matches!(
        FrameWriter::begin(&full(limits::HEADER_BYTES as u64)),
        Err(FrameWriteError::HeaderTooLong { .. })
    ));
}

#[test]
fn a_file_that_shrank_gets_no_trailer() {
    let (mut writer, _) = FrameWriter::begin(&header(0, 10)).unwrap();
    writer.body(b"four");
    assert_eq!(writer.remaining(), 6);
    assert!(matches!(writer.end(), Err(FrameWriteError::Count { count: 4, promised: 10 })));
}

#[test]
fn acknowledgements_are_read_strictly() {
    assert_eq!(parse_ack(encode_ack(16_777_216).as_bytes()), Some(16_777_216));
    assert_eq!(parse_ack(b"ack 0"), Some(0));
    assert_eq!(parse_ack(b"ack 18446744073709551615\n"), Some(u64::MAX));
    for wrong in ["", "ack", "ack ", "ack -1", "ack +1", "ack 1 ", "ack 1\r\n", "nack 1", "ack 18446744073709551616"] {
        assert_eq!(parse_ack(wrong.as_bytes()), None, "{wrong:?}");
    }
}

#[test]
fn a_delivery_is_only_confirmed_by_its_own_digest() {
    let prompt = Prompt { turn: Turn(2), prompt: "a\u{0}b \u{1f980}\n".into(), context: None };
    let bytes = prompt.encode().unwrap();
    assert_eq!(bytes, prompt.encode().unwrap(), "delivering again changes nothing");
    let stdin = Delivery::frame(&bytes).unwrap();

    let end = stdin.iter().position(|byte| *byte == b'\n').unwrap();
    let (line, body) = (&stdin[..end], &stdin[end + 1..]);
    let delivery = Delivery::parse(line).unwrap();
    delivery.verify(body).unwrap();
    assert_eq!(Prompt::parse(body).unwrap(), prompt);
    assert!(matches!(delivery.verify(&body[1..]), Err(DeliveryError::WrongCount { .. })));
    let mut other = body.to_vec();
    other[3] ^= 1;
    assert!(matches!(delivery.verify(&other), Err(DeliveryError::WrongDigest)));

    let answer = Delivered::stands(body).encode().unwrap();
    Delivered::confirm(&answer, &bytes).unwrap();
    assert!(matches!(Delivered::confirm(&answer, &other), Err(DeliveryError::WrongDigest)));
    let refused = Delivered::refused("turn 2 has another prompt").encode().unwrap();
    assert!(matches!(Delivered::confirm(&refused, &bytes), Err(DeliveryError::Refused(_))));
    assert!(matches!(Delivered::confirm(b"", &bytes), Err(DeliveryError::Malformed(_))));
}

#[test]
fn a_delivery_over_its_bound_or_of_another_version_is_not_taken() {
    let line = |v: u32, count: u64| format!("{{\"v\":{v},\"count\":{count},\"sha256\":\"\"}}");
    let max = limits::EXEC_ANSWER_BYTES;
    assert!(Delivery::parse(line(VERSION, max).as_bytes()).is_ok());
    assert!(matches!(Delivery::parse(line(VERSION, max + 1).as_bytes()), Err(DeliveryError::TooLong { .. })));
    assert!(matches!(Delivery::parse(line(VERSION + 1, 0).as_bytes()), Err(DeliveryError::Version { .. })));
}

fn cut(bytes: &[u8], cuts: &[prop::sample::Index]) -> Vec<Vec<u8>> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    at.extend([0, bytes.len()]);
    at.sort_unstable();
    at.windows(2).map(|pair| bytes[pair[0]..pair[1]].to_vec()).collect()
}

proptest! {
    #[test]
    fn any_chunking_reads_the_same(
        bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..5),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let mut from = 0;
        let mut stream = Vec::new();
        for body in &bodies {
            stream.extend(frame(from, body));
            from += body.len() as u64;
        }
        let pieces = cut(&stream, &cuts);
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let got = read(&pieces, 200).unwrap();
        prop_assert_eq!(&got.trusted, &bodies.concat());
        prop_assert_eq!(got, read(&[&stream], 200).unwrap());
    }

    #[test]
    fn a_reader_is_total_and_trusts_no_garbage(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(got) = read(&[&bytes], 100) {
            prop_assert!(got.trusted.is_empty());
        }
    }

    #[test]
    fn damage_anywhere_in_a_frame_never_changes_what_is_trusted(
        body in prop::collection::vec(any::<u8>(), 1..60),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut stream = frame(0, &body);
        let at = at.index(stream.len());
        stream[at] = byte;
        if let Ok(got) = read(&[&stream], 100) {
            prop_assert!(got.trusted.is_empty() || got.trusted == body);
        }
    }
}
