//! What is written for kubectl is read back by a YAML 1.1 reader as it was: one test for each kind of text that it would take for something else.
#![expect(clippy::unwrap_used, reason = "helpers of tests; a failure is the test's")]

/// Whether a text stands quoted (or as a block) in the output, so that no reader can take it for anything else.
fn quoted(text: &str) -> bool {
    let yaml = agentsession_crds::yaml::to_string(&serde_json::json!({ "key": text })).unwrap();
    let value = yaml.strip_prefix("key: ").unwrap().trim_end();
    value.starts_with(['"', '\''])
}

/// And that it is still the same text.
fn survives(text: &str) -> bool {
    let yaml = agentsession_crds::yaml::to_string(&serde_json::json!([text])).unwrap();
    serde_yaml::from_str::<Vec<String>>(&yaml).unwrap() == [text]
}

macro_rules! trap {
    ($($name:ident: $($text:literal),+;)+) => {
        $(#[test]
        fn $name() {
            for text in [$($text),+] {
                assert!(quoted(text), "{text:?} is written bare");
                assert!(survives(text), "{text:?} is not read back");
            }
        })+
    };
}

trap! {
    on_and_off_are_quoted: "on", "On", "ON", "off", "OFF";
    yes_and_no_are_quoted: "yes", "Yes", "no", "NO";
    y_and_n_are_quoted: "y", "Y", "n", "N";
    true_and_false_are_quoted: "true", "True", "false", "FALSE";
    nothing_is_quoted: "", "~", "null", "Null", "NULL";
    numbers_are_quoted: "1", "-1", "+1", "1.5", "1e3", "0x1F", "0o17", "017", "0b11";
    numbers_with_underscores_are_quoted: "1_000", "1_0.5";
    times_are_quoted: "12:30:45", "1:30";
    dates_are_quoted: "2026-11-30", "2026-11-30T18:00:00Z";
    infinities_are_quoted: ".inf", "-.inf", ".nan", ".NaN";
    indicators_are_quoted: "- a", "? a", ": a", "*a", "&a", "!a", "%a", "@a", "`a", "{a", "[a", "#a", "a: b", "a #b";
    edges_are_quoted: " a", "a ";
}

#[test]
fn a_key_that_looks_like_a_boolean_is_quoted() {
    let yaml = agentsession_crds::yaml::to_string(&serde_json::json!({ "on": 1, "y": 2 })).unwrap();
    assert!(!yaml.contains("\non:") && !yaml.starts_with("on:"), "{yaml}");
    assert!(!yaml.contains("\ny:") && !yaml.starts_with("y:"), "{yaml}");
}

#[test]
fn texts_of_many_lines_survive() {
    for text in
        ["a\nb", "a\nb\n", "a\n\n", "\na", "  a\n b", "a\tb", "a\u{85}b", "a\u{2028}b", "a\r\nb", "\u{feff}a", "😀"]
    {
        assert!(survives(text), "{text:?}");
    }
}
