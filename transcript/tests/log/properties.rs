//! What holds for every log, whatever it holds.

use agentsession_transcript::{
    IndexSet, PartIndex,
    line::{Line, LineSplitter, Position, lines},
    merge::missing,
    parse::{Parsed, parse_line},
    scan::{LogScanner, scan},
};
use proptest::prelude::*;

use super::{TURN, delta, line, log};

fn arbitrary_line() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => (0..20_u32, "[a-z\u{e9}\u{1f980}]{0,8}").prop_map(|(index, text)| line(index, &delta(&text)).into_bytes()),
        1 => prop::collection::vec(any::<u8>().prop_filter("no newline", |byte| *byte != b'\n'), 0..40),
        1 => "[\\{\\}\\[\\]\":,a-z0-9\\\\u]{0,40}".prop_map(String::into_bytes),
    ]
}

proptest! {
    #[test]
    fn any_chunking_gives_the_same_lines(
        log in prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..300),
        sizes in prop::collection::vec(1..40_usize, 1..20),
        max in 1..30_usize,
    ) {
        let run = |sizes: &[usize]| {
            let mut splitter = LineSplitter::resume(Position { line: 1, offset: 0 }, max);
            let mut found = Vec::new();
            let (mut rest, mut at) = (log.as_slice(), 0);
            while !rest.is_empty() {
                let size = sizes[at % sizes.len()].min(rest.len());
                splitter.push(&rest[..size], |line| found.push(match line {
                    Line::Whole { at, bytes } => (at, bytes.len() as u64, Some(bytes.to_vec())),
                    Line::TooLong { at, len } => (at, len, None),
                }));
                (rest, at) = (&rest[size..], at + 1);
            }
            (found, splitter.torn_tail(), splitter.read_to())
        };
        let (found, tail, read_to) = run(&sizes);
        prop_assert_eq!((&found, tail, read_to), (&run(&[usize::MAX]).0, run(&[1]).1, log.len() as u64));
        for (at, len, bytes) in &found {
            let begin = usize::try_from(at.offset).unwrap();
            let end = begin + usize::try_from(*len).unwrap();
            prop_assert_eq!(log[end], b'\n');
            prop_assert_eq!(bytes.is_none(), end - begin > max);
            if let Some(bytes) = bytes {
                prop_assert_eq!(bytes.as_slice(), &log[begin..end]);
            }
        }
    }

    #[test]
    fn whole_and_streamed_reading_agree(
        text in prop::collection::vec(arbitrary_line(), 0..20),
        torn in arbitrary_line(),
        size in 1..50_usize,
    ) {
        let log = [log(&text), torn].concat();
        let whole = scan(TURN, &log);
        let mut scanner = LogScanner::new(TURN);
        let mut parts = Vec::new();
        for chunk in log.chunks(size) {
            scanner.push(chunk, |part| {
                if part.turn == TURN {
                    parts.push((part.index, part.raw.into_owned(), part.kind));
                }
            });
        }
        let expected: Vec<_> = whole.parts.iter().map(|p| (p.index, p.raw.clone().into_owned(), p.kind)).collect();
        prop_assert_eq!(parts, expected);
        prop_assert_eq!(scanner.account(), &whole.account);
        prop_assert_eq!(scanner.torn_tail(), whole.torn_tail);
        prop_assert_eq!(scanner.facts(true, log.len() as u64), whole.facts(log.len() as u64));
        prop_assert_eq!(lines(&log).count(), text.len());
    }

    #[test]
    fn parsing_is_total_and_a_kept_part_is_valid_json_found_in_the_line(line in arbitrary_line()) {
        if let Parsed::Part(part) = parse_line(&line) {
            prop_assert!(serde_json::from_str::<&serde_json::value::RawValue>(&part.raw).is_ok());
            prop_assert_eq!(part.raw.as_bytes()[0], b'{');
            prop_assert!(std::str::from_utf8(&line).unwrap().contains(part.raw.as_ref()));
        }
    }

    #[test]
    fn merging_twice_changes_nothing(
        indexes in prop::collection::vec(0..30_u32, 0..40),
        present in prop::collection::btree_set(0..30_u32, 0..20),
    ) {
        let text = log(&indexes.iter().map(|i| line(*i, &delta(&i.to_string())).into_bytes()).collect::<Vec<_>>());
        let found = scan(TURN, &text);
        let mut stored: IndexSet = present.iter().copied().map(PartIndex).collect();
        let first: Vec<PartIndex> = missing(&found.parts, &stored).map(|part| part.index).collect();
        for index in &first {
            prop_assert!(stored.insert(*index), "an identity is offered once and only when it is missing");
        }
        prop_assert!(found.account.seen.is_subset(&stored));
        prop_assert_eq!(missing(&found.parts, &stored).count(), 0);
    }
}
