//! Bytes of a log → lines, parts and damage. Named after the failures of other systems that they must not repeat.
#![expect(clippy::panic, reason = "a test helper: a failure here is a failed test")]

use std::borrow::Cow;

use agentsession_transcript::{
    IndexSet, PartIndex, Reason, Turn, limits,
    line::Position,
    merge::{BatchLimit, batches, missing},
    parse::{DefectKind, Parsed, PartKind, parse_line},
    scan::{DEFECTS_KEPT, LogScanner, scan},
};

mod properties;

const TURN: Turn = Turn(1);

fn line(index: u32, part: &str) -> String {
    format!(r#"{{"at":"2026-11-30T18:00:00.123Z","type":"ui-message","turn":1,"partIndex":{index},"part":{part}}}"#)
}

fn delta(text: &str) -> String {
    format!(r#"{{"type":"text-delta","id":"a","delta":"{text}"}}"#)
}

fn log(lines: &[Vec<u8>]) -> Vec<u8> {
    lines.iter().flat_map(|line| [line.as_slice(), b"\n"].concat()).collect()
}

/// What a scan of the log in one piece gives: parts as text, and defects.
fn read(log: &[u8]) -> (Vec<(u32, String)>, Vec<DefectKind>) {
    let found = scan(TURN, log);
    let parts = found.parts.iter().map(|part| (part.index.0, part.raw.clone().into_owned())).collect();
    (parts, found.account.damage.first.iter().map(|defect| defect.kind).collect())
}

fn kept(part: &str) {
    let (parts, defects) = read(&log(&[line(0, part).into_bytes()]));
    assert_eq!(parts, [(0, part.to_owned())]);
    assert_eq!(defects, []);
}

fn defect(line: &[u8]) -> DefectKind {
    match parse_line(line) {
        Parsed::Defect(kind) | Parsed::Repaired(_, kind) => kind,
        other => panic!("{other:?}"),
    }
}

#[test]
fn f1_an_escaped_nul_is_kept_verbatim_and_a_raw_one_is_damage() {
    let escaped = delta(r"a\u0000b");
    let literal = delta(r"a\\u0000b");
    let raw = [line(2, r#"{"type":"text-delta","id":"a","delta":"a"#).into_bytes()]
        .concat()
        .into_iter()
        .map(|byte| if byte == b'}' { 0 } else { byte })
        .collect::<Vec<u8>>();
    let raw_nul = [&raw[..], b"b\"}}"].concat();
    let log = log(&[
        line(0, &escaped).into_bytes(),
        line(1, &literal).into_bytes(),
        raw_nul,
        line(3, &delta("after")).into_bytes(),
    ]);
    let (parts, defects) = read(&log);
    assert_eq!(parts, [(0, escaped), (1, literal), (3, delta("after"))]);
    assert_eq!(defects, [DefectKind::Nul]);
}

#[test]
fn f3_a_nul_in_any_field_of_a_part_is_kept_alike() {
    for part in [
        r#"{"type":"tool-output-available","toolCallId":"t","output":"a\u0000b"}"#,
        r#"{"type":"tool-input-available","toolCallId":"t","toolName":"w","input":{"path":"a\u0000b"}}"#,
        r#"{"type":"error","errorText":"a\u0000b"}"#,
        r#"{"type":"data-system","data":{"text":"a\u0000b"}}"#,
        r#"{"type":"data-x","data":{"a\u0000b":1}}"#,
    ] {
        kept(part);
    }
}

#[test]
fn f4_lone_surrogates_are_kept_verbatim_in_order() {
    for text in [r"\ud99c", r"the end\ud83d", r"\udc00\ud800", r"\ud83d\ude00", r"\uD83D\uDE00", r"\ud83dx"] {
        kept(&delta(text));
    }
    kept(r#"{"type":"data-x","data":{"\ud800":"\udfff"}}"#);
}

#[test]
fn f5_multi_byte_characters_survive_every_chunk_border() {
    let text = "\u{4f60}\u{1f980}\u{597d}\u{1f600}".repeat(20);
    let log = log(&[line(0, &delta(&text)).into_bytes(), line(1, &delta("\u{e9}")).into_bytes()]);
    for size in 1..=13 {
        let mut scanner = LogScanner::new(TURN);
        let mut parts = Vec::new();
        for chunk in log.chunks(size) {
            scanner.push(chunk, |part| parts.push(part.raw.into_owned()));
        }
        assert_eq!(parts, [delta(&text), delta("\u{e9}")], "chunks of {size}");
        assert_eq!(scanner.account().damage.lines, 0);
    }
}

#[test]
fn f8_a_long_line_is_kept_or_skipped_and_the_next_one_is_always_kept() {
    let frame = line(0, &delta("")).len();
    for length in [1_048_575, 1_048_576, limits::LINE_BYTES, limits::LINE_BYTES + 1, 1_304_261, 9_000_000] {
        let part = delta(&"x".repeat(length - frame));
        let long = line(0, &part);
        assert_eq!(long.len(), length);
        let log = log(&[long.into_bytes(), line(1, &delta("next")).into_bytes()]);
        let (parts, defects) = read(&log);
        let expected = if length > limits::LINE_BYTES {
            Some(DefectKind::LineTooLong)
        } else {
            (part.len() > limits::PART_BYTES).then_some(DefectKind::PartTooLong)
        };
        assert_eq!(defects, expected.into_iter().collect::<Vec<_>>(), "line of {length}");
        assert_eq!(parts.last(), Some(&(1, delta("next"))), "line of {length}");
        assert_eq!(parts.len(), if expected.is_some() { 1 } else { 2 }, "line of {length}");
    }
}

#[test]
fn f8_a_part_of_exactly_its_bound_is_kept() {
    let frame = delta("").len();
    let fits = delta(&"x".repeat(limits::PART_BYTES - frame));
    assert_eq!(fits.len(), limits::PART_BYTES);
    let over = delta(&"x".repeat(limits::PART_BYTES - frame + 1));
    let (parts, defects) = read(&log(&[line(0, &fits).into_bytes(), line(1, &over).into_bytes()]));
    assert_eq!(parts.len(), 1);
    assert_eq!(defects, [DefectKind::PartTooLong]);
}

#[test]
fn f12_keys_numbers_and_repeated_keys_survive_as_they_are_written() {
    kept(r#"{"z":1,"a":2,"m":3,"type":"data-x","data":null}"#);
    kept(r#"{"type":"data-x","data":[1.0,1e400,-0,12345678901234567890123,0.1e-7,1E5]}"#);
    kept(r#"{"type":"data-x","data":{"a":1,"a":2},"data":3}"#);
    kept("{ \"type\" :\t\"data-x\",\"data\":\"\u{2028}\\/\\u00e9\" }");
    kept("{}");
}

#[test]
fn a_repeated_type_means_the_last_one_however_it_is_spelled() {
    let kind = |part: &str| match parse_line(line(0, part).as_bytes()) {
        Parsed::Part(part) => part.kind,
        other => panic!("{other:?}"),
    };
    assert_eq!(kind(r#"{"type":"finish"}"#), PartKind::Finish);
    assert_eq!(kind(r#"{"at":1,"type" : "abort"}"#), PartKind::Abort);
    assert_eq!(kind(r#"{"type":"finish","type":"start"}"#), PartKind::Other);
    assert_eq!(kind(r#"{"type":"start","t\u0079pe":"finish"}"#), PartKind::Finish);
    assert_eq!(kind(r#"{"type":"\u0065rror"}"#), PartKind::Error);
    assert_eq!(kind(r#"{"data":{"type":"finish"},"type":"data-omitted"}"#), PartKind::Omitted);
    assert_eq!(kind(r#"{"type":"finish","type":7}"#), PartKind::Other);
    assert_eq!(kind(r#"{"type":"\ud800"}"#), PartKind::Other);
}

#[test]
fn what_is_no_part_is_damage_by_name() {
    for (text, kind) in [
        ("", DefectKind::NotJson),
        ("plain noise", DefectKind::NotJson),
        ("{\"part\":", DefectKind::NotJson),
        (r#"{"type":"ui-message","turn":1,"partIndex":0,"part":{}} x"#, DefectKind::NotJson),
        ("[]", DefectKind::NotEnvelope),
        ("null", DefectKind::NotEnvelope),
        ("7", DefectKind::NotEnvelope),
        (r#"{"type":"ui-message","turn":1,"partIndex":0}"#, DefectKind::NoPart),
        (r#"{"type":"ui-message","turn":1,"partIndex":0,"part":null}"#, DefectKind::NoPart),
        (r#"{"type":"ui-message","turn":1,"partIndex":0,"part":[1]}"#, DefectKind::PartNotObject),
        (r#"{"type":"ui-message","turn":1,"partIndex":0,"part":"x"}"#, DefectKind::PartNotObject),
        (r#"{"type":"ui-message","turn":0,"partIndex":0,"part":{}}"#, DefectKind::NotEnvelope),
        (r#"{"type":"ui-message","partIndex":0,"part":{}}"#, DefectKind::NotEnvelope),
        (r#"{"type":"ui-message","turn":1,"partIndex":-1,"part":{}}"#, DefectKind::NotEnvelope),
        (r#"{"type":"ui-message","turn":1,"partIndex":1.5,"part":{}}"#, DefectKind::NotEnvelope),
        (r#"{"type":"ui-message","turn":1,"partIndex":4294967296,"part":{}}"#, DefectKind::NotEnvelope),
        (r#"{"type":"ui-message","turn":1,"turn":2,"partIndex":0,"part":{}}"#, DefectKind::NotEnvelope),
        (r#"{"type":"ui-message","turn":1,"partIndex":50064,"part":{}}"#, DefectKind::IndexTooHigh),
        (r#"{"type":"other","turn":1,"partIndex":0,"part":{}}"#, DefectKind::UnknownType),
        (r#"{"type":"marker","turn":1}"#, DefectKind::NotEnvelope),
        (r#"{"type":"marker","turn":1,"reason":"Nonsense"}"#, DefectKind::NotEnvelope),
    ] {
        assert_eq!(defect(text.as_bytes()), kind, "{text}");
    }
}

#[test]
fn damage_is_counted_whole_and_named_in_part_with_its_place() {
    let noise = vec![b"noise".to_vec(); 100];
    let log = log(&[vec![line(0, &delta("a")).into_bytes()], noise, vec![line(1, &delta("b")).into_bytes()]].concat());
    let found = scan(TURN, &log);
    assert_eq!(found.account.damage.lines, 100);
    assert_eq!(found.account.damage.first.len(), DEFECTS_KEPT);
    let first = line(0, &delta("a")).len() as u64 + 1;
    assert_eq!(found.account.damage.first[1].at, Position { line: 3, offset: first + 6 });
    assert_eq!(found.parts.len(), 2);
    let facts = found.facts(log.len() as u64);
    assert_eq!(facts.damaged_lines, 100);
    assert_eq!(facts.defects[0], format!("line 2 at byte {first}: not JSON"));
}

#[test]
fn bytes_that_are_not_utf8_are_replaced_and_counted() {
    let mut bad = line(0, &delta("a?b")).into_bytes();
    let at = bad.iter().rposition(|byte| *byte == b'?').unwrap();
    bad[at] = 0xff;
    let found = log(&[bad, line(1, &delta("ok")).into_bytes(), b"\xff\xfe".to_vec()]);
    let (parts, defects) = read(&found);
    assert_eq!(parts, [(0, delta("a\u{fffd}b")), (1, delta("ok"))]);
    assert_eq!(defects, [DefectKind::NotUtf8, DefectKind::NotUtf8]);
}

#[test]
fn a_last_line_without_newline_is_no_line_yet() {
    let whole = log(&[line(0, &delta("a")).into_bytes()]);
    let torn = [whole.clone(), line(1, &delta("b")).into_bytes()].concat();
    let found = scan(TURN, &torn);
    assert_eq!(found.parts.len(), 1);
    let tail = found.torn_tail.unwrap();
    assert_eq!((tail.at.offset, tail.at.line), (whole.len() as u64, 2));
    assert_eq!(tail.len, (torn.len() - whole.len()) as u64);
    assert!(found.facts(torn.len() as u64).torn_tail);
    assert_eq!(found.account.damage.lines, 0, "torn is not damaged: the writer may be in the middle of it");
    assert_eq!(scan(TURN, &whole).torn_tail, None);
    assert_eq!(scan(TURN, b"").torn_tail, None);
}

#[test]
fn reading_may_be_resumed_where_the_last_whole_line_ended() {
    let all = log(&[line(0, &delta("a")).into_bytes(), line(1, &delta("b")).into_bytes()]);
    let cut = all.len() - 10;
    let mut first = LogScanner::new(TURN);
    let mut parts = Vec::new();
    first.push(&all[..cut], |part| parts.push(part.index));
    assert_eq!(first.read_to(), cut as u64);
    let at = first.position();
    let mut second = LogScanner::resume(TURN, at);
    second.push(&all[usize::try_from(at.offset).unwrap()..], |part| parts.push(part.index));
    assert_eq!(parts, [PartIndex(0), PartIndex(1)]);
    assert_eq!((second.read_to(), second.torn_tail()), (all.len() as u64, None));
}

#[test]
fn a_repeated_identity_is_counted_and_the_first_stays() {
    let log = log(&[
        line(0, &delta("first")).into_bytes(),
        line(2, &delta("c")).into_bytes(),
        line(0, &delta("second")).into_bytes(),
        line(1, &delta("b")).into_bytes(),
    ]);
    let found = scan(TURN, &log);
    let parts: Vec<_> = found.parts.iter().map(|part| (part.index.0, part.raw.as_ref())).collect();
    assert_eq!(parts, [(0, delta("first").as_str()), (2, delta("c").as_str()), (1, delta("b").as_str())]);
    assert_eq!((found.account.repeated, found.account.damage.lines), (1, 1), "one of the two was not the driver's");
    assert!(found.account.seen.is_exactly(3));
}

#[test]
fn lines_of_another_turn_go_to_that_turn() {
    let other = line(0, &delta("x")).replace("\"turn\":1", "\"turn\":2");
    let found = log(&[other.into_bytes(), line(0, &delta("mine")).into_bytes()]);
    let found = scan(TURN, &found);
    assert_eq!(found.parts.len(), 1);
    assert_eq!(found.parts[0].raw, Cow::Borrowed(delta("mine").as_str()));
    assert_eq!((found.of_other_turns[0].turn, found.account.of_other_turns), (Turn(2), 1));
    assert!(found.account.seen.is_exactly(1));
}

#[test]
fn bounds_are_said_by_markers_and_by_what_replaces_a_part() {
    let omitted = r#"{"type":"data-omitted","data":{"type":"tool-output-available","bytes":9000000,"sha256":"00"}}"#;
    let marker = |turn: u32, reason: &str| {
        format!(r#"{{"at":"2026-11-30T18:00:00.123Z","type":"marker","turn":{turn},"reason":"{reason}","bytes":7}}"#)
            .into_bytes()
    };
    let worst = |lines: &[Vec<u8>]| scan(TURN, &log(lines)).account.bounds.worst();
    assert_eq!(worst(&[line(0, omitted).into_bytes()]), Some(Reason::PartLimit));
    assert_eq!(worst(&[marker(1, "PartCountLimit")]), Some(Reason::PartCountLimit));
    assert_eq!(worst(&[line(0, omitted).into_bytes(), marker(1, "LogLimit")]), Some(Reason::LogLimit));
    assert_eq!(worst(&[marker(2, "LogLimit")]), None, "another turn's bound is not ours");
    let odd = log(&[marker(1, "Evicted")]);
    assert_eq!(scan(TURN, &odd).account.damage.lines, 1, "a reason that is no bound");
    let far = log(&[line(60_000, "{}").into_bytes()]);
    assert_eq!(scan(TURN, &far).account.bounds.worst(), Some(Reason::PartCountLimit));
}

#[test]
fn the_terminal_part_is_seen_wherever_it_stands() {
    let end = |part: &str| scan(TURN, &log(&[line(0, "{}").into_bytes(), line(1, part).into_bytes()])).account.terminal;
    assert_eq!(end(r#"{"type":"finish","finishReason":"stop"}"#), Some(PartKind::Finish));
    assert_eq!(end(r#"{"reason":"x","type":"abort"}"#), Some(PartKind::Abort));
    assert_eq!(end(r#"{"type":"finish-step"}"#), None);
}

#[test]
fn nesting_of_any_depth_is_kept() {
    let deep = format!(r#"{{"type":"data-x","data":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    kept(&deep);
}

#[test]
fn batches_keep_to_rows_and_bytes_and_lose_nothing() {
    let text: Vec<Vec<u8>> =
        (0..10).map(|i| line(i, &delta(&"x".repeat(if i == 4 { 500 } else { 10 }))).into_bytes()).collect();
    let text = log(&text);
    let found = scan(TURN, &text);
    let present = [0, 1, 7].into_iter().map(PartIndex).collect();
    let sizes: Vec<Vec<u32>> = batches(missing(&found.parts, &present), BatchLimit { rows: 3, bytes: 200 })
        .map(|batch| batch.iter().map(|part| part.index.0).collect())
        .collect();
    assert_eq!(sizes, [vec![2, 3], vec![4], vec![5, 6, 8], vec![9]]);
}

#[test]
fn a_log_of_16_mib_and_50_000_parts_is_read_whole() {
    let text = "x".repeat(200);
    let log: Vec<u8> = (0..limits::PARTS_PER_TURN).flat_map(|i| (line(i, &delta(&text)) + "\n").into_bytes()).collect();
    assert!(log.len() as u64 > limits::LOG_BYTES - (1 << 20), "{}", log.len());
    let found = scan(TURN, &log);
    assert!(found.account.seen.is_exactly(limits::PARTS_PER_TURN));
    assert_eq!(found.account.damage.lines, 0);
    let batches: Vec<usize> =
        batches(missing(&found.parts, &IndexSet::new()), BatchLimit::default()).map(|batch| batch.len()).collect();
    assert_eq!(batches.iter().sum::<usize>(), found.parts.len());
    assert!(batches.iter().all(|rows| *rows <= BatchLimit::default().rows));
}
