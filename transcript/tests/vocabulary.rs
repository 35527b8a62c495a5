//! The words that driver, controller, store and gateway share: what stands in files and columns must not change by accident.

use agentsession_transcript::{
    AgentExit, AgentState, AgentStatus, Attempt, IndexSet, Outcome, PartIndex, Reason, SessionUid, Turn, TurnState,
    Verdict, limits, peek,
};
use proptest::prelude::*;

#[test]
fn a_status_as_a_driver_writes_it_is_read_and_written_back() {
    let text = r#"{"state":"succeeded","turn":1,"attempt":1,"parts":121,"logBytes":48213,"truncated":false,"error":null,
        "exit":null,"stderrTail":"","agentReady":true,"agentSessionId":"s","resume":"new","continuity":null,
        "usage":{"inputTokens":1,"outputTokens":2}}"#;
    let status: AgentStatus = serde_json::from_str(text).unwrap();
    assert_eq!((status.state, status.turn, status.attempt), (AgentState::Succeeded, Turn(1), Attempt(1)));
    assert_eq!((status.parts, status.log_bytes, status.agent_ready), (121, 48_213, true));
    assert_eq!(status.usage.map(|usage| (usage.input_tokens, usage.output_tokens)), Some((1, 2)));
    let again: AgentStatus = serde_json::from_slice(&serde_json::to_vec(&status).unwrap()).unwrap();
    assert_eq!(again, status);
}

#[test]
fn a_status_of_an_older_or_newer_driver_is_read() {
    let least: AgentStatus = serde_json::from_str(r#"{"state":"idle","turn":0,"attempt":1}"#).unwrap();
    assert_eq!((least.parts, least.exit, least.agent_ready), (0, None, false));
    let newer = r#"{"state":"failed","turn":1,"attempt":1,"exit":{"signal":9,"oom":true,"core":false},"mood":"blue"}"#;
    let newer: AgentStatus = serde_json::from_str(newer).unwrap();
    assert_eq!(newer.exit, Some(AgentExit { code: None, signal: Some(9), oom: true }));
    assert!(serde_json::from_str::<AgentStatus>(r#"{"state":"asleep","turn":1,"attempt":1}"#).is_err());
}

#[test]
fn only_the_three_end_states_are_terminal() {
    use AgentState::{Canceled, Failed, Idle, Running, Starting, Succeeded};
    for state in [Starting, Idle, Running] {
        assert!(!state.is_terminal(), "{state:?}");
    }
    for state in [Succeeded, Failed, Canceled] {
        assert!(state.is_terminal(), "{state:?}");
    }
}

#[test]
fn every_word_is_read_back_as_itself_and_is_the_same_in_json() {
    macro_rules! check {
        ($($kind:ident),+) => { $(for value in $kind::ALL {
            assert_eq!(value.as_str().parse::<$kind>().unwrap(), *value);
            assert_eq!(serde_json::to_string(value).unwrap(), format!("\"{value}\""));
        })+ };
    }
    check!(TurnState, Outcome, Verdict, Reason);
    let unknown = "Unheard".parse::<Reason>().unwrap_err();
    assert_eq!(unknown.to_string(), "\"Unheard\" is not a Reason");
}

#[test]
fn reasons_are_distinct_camel_case_words() {
    let words: std::collections::BTreeSet<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    assert_eq!(words.len(), Reason::ALL.len());
    for word in words {
        assert!(word.chars().all(|c| c.is_ascii_alphanumeric()) && word.starts_with(|c: char| c.is_ascii_uppercase()));
    }
}

#[test]
fn every_turn_state_but_settled_is_active() {
    let active: Vec<&TurnState> = TurnState::ALL.iter().filter(|state| state.is_active()).collect();
    assert_eq!(active, [&TurnState::Accepted, &TurnState::Running, &TurnState::Harvesting]);
}

#[test]
fn ids_are_plain_values_in_json_and_in_print() {
    assert_eq!(serde_json::to_string(&(Turn(1), PartIndex(0))).unwrap(), "[1,0]");
    assert_eq!(serde_json::to_string(&SessionUid::from("u-1")).unwrap(), "\"u-1\"");
    assert_eq!(format!("{}.{}", Turn(3), PartIndex(17)), "3.17");
}

#[test]
fn the_bounds_fit_into_one_another() {
    const {
        assert!(limits::PART_BYTES < limits::LINE_BYTES);
        assert!((limits::LINE_BYTES as u64) < limits::LOG_BYTES);
        assert!(limits::LOG_BYTES + (limits::HEADER_BYTES + limits::TRAILER_BYTES) as u64 <= limits::READ_BUFFER_BYTES);
        assert!(limits::STATUS_BYTES < limits::HEADER_BYTES as u64);
        assert!(limits::LOG_RESERVE_BYTES < limits::LOG_BYTES);
        assert!(limits::LOG_BYTES < limits::SESSION_BYTES);
    }
}

#[test]
fn members_are_slices_of_the_text_with_repeated_keys_and_odd_spaces() {
    let text = "{ \"a\" : [1,{\"b\":\"}\"}] ,\"c\":\"\\\"\",\"a\":-1e9\t, \"\\u0064\":{} }";
    let members: Vec<_> = peek::members(text).collect();
    assert_eq!(
        members,
        [("\"a\"", "[1,{\"b\":\"}\"}]"), ("\"c\"", "\"\\\"\""), ("\"a\"", "-1e9"), ("\"\\u0064\"", "{}")]
    );
    assert!(peek::string_is(members[3].0, "d"));
    assert_eq!(peek::members("{}").count(), 0);
    assert_eq!(peek::depth(text), 3);
    assert_eq!(peek::strings(text).filter(|(_, is_key)| *is_key).count(), 5);
}

fn arbitrary_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        any::<String>().prop_map(serde_json::Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(serde_json::Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..5)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

fn depth_of(value: &serde_json::Value) -> usize {
    match value {
        serde_json::Value::Array(all) => 1 + all.iter().map(depth_of).max().unwrap_or(0),
        serde_json::Value::Object(all) => 1 + all.values().map(depth_of).max().unwrap_or(0),
        _ => 0,
    }
}

proptest! {
    #[test]
    fn an_index_set_is_a_set(
        inserts in prop::collection::vec(0..40_u32, 0..80),
        others in prop::collection::vec(0..40_u32, 0..80),
    ) {
        let mut set = IndexSet::new();
        let mut model = std::collections::BTreeSet::new();
        for index in &inserts {
            prop_assert_eq!(set.insert(PartIndex(*index)), model.insert(*index));
        }
        let other: IndexSet = others.iter().copied().map(PartIndex).collect();
        let other_model: std::collections::BTreeSet<u32> = others.iter().copied().collect();
        prop_assert_eq!(set.len() as usize, model.len());
        prop_assert_eq!(set.is_empty(), model.is_empty());
        prop_assert_eq!(set.is_subset(&other), model.is_subset(&other_model));
        for n in 0..41 {
            prop_assert_eq!(set.contains(PartIndex(n)), model.contains(&n));
            prop_assert_eq!(set.covers(n), (0..n).all(|i| model.contains(&i)));
            prop_assert_eq!(set.is_exactly(n), model.iter().copied().eq(0..n));
        }
        for runs in set.runs().windows(2) {
            prop_assert!(runs[0].1 < runs[1].0, "runs are sorted, disjoint and not adjacent");
        }
        prop_assert_eq!(set, model.into_iter().rev().map(PartIndex).collect::<IndexSet>());
    }

    #[test]
    fn members_are_what_a_json_reader_finds(value in arbitrary_json()) {
        let text = value.to_string();
        prop_assert_eq!(peek::depth(&text), depth_of(&value));
        let found: serde_json::Map<String, serde_json::Value> = peek::members(&text)
            .map(|(key, value)| (serde_json::from_str(key).unwrap(), serde_json::from_str(value).unwrap()))
            .collect();
        prop_assert_eq!(found, value.as_object().cloned().unwrap_or_default());
        let expected = value.get("type").and_then(|kind| kind.as_str());
        prop_assert_eq!(peek::part_type(&text), expected.map(std::borrow::Cow::Borrowed));
    }

    #[test]
    fn looking_into_any_text_is_total(text in any::<String>()) {
        prop_assert!(peek::members(&text).count() <= text.len());
        prop_assert!(peek::strings(&text).count() <= text.len());
        prop_assert!(peek::depth(&text) <= text.len());
        prop_assert!(peek::part_type(&text).is_none_or(|kind| kind.len() <= text.len()));
    }

    #[test]
    fn looking_into_text_that_is_nearly_json_is_total(text in "[\\{\\}\\[\\]\":,\\\\ a0u]{0,30}") {
        prop_assert!(peek::members(&text).count() <= text.len());
        prop_assert!(peek::strings(&text).count() <= text.len());
        prop_assert!(peek::depth(&text) <= text.len());
    }
}
