//! What an agent is told to do: a list of steps in YAML.
//!
//! Each step is a map with one key, or a bare word for those without arguments. Sizes take `Ki` and `Mi`, durations `ms`, `s` and `m`.

use std::{fmt, time::Duration};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

/// One thing to do. The names are those of the YAML.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// A piece of the answer.
    Say(String),
    /// A piece of reasoning.
    Think(String),
    /// A tool call, not really made: announced, and its output reported.
    Tool(Tool),
    /// A plan; the first entry is in progress.
    Plan(Vec<String>),
    /// Token counts, reported at the end of the turn and as an update.
    Usage(Usage),
    /// That many numbered pieces of text, as fast as they go.
    Parts(Parts),
    /// Numbered pieces of text of 16 KiB until so many bytes of text are out.
    Bytes(Size),
    /// Nothing for a while; a cancel ends it.
    Wait(Pause),
    /// The agent ends itself with a signal: `KILL`, `SEGV`, `ABRT`, `TERM`.
    Crash(String),
    /// The agent exits with a code.
    Exit(i32),
    /// Takes memory and keeps it.
    Allocate(Size),
    /// From now on SIGTERM and the end of stdin are ignored.
    IgnoreTerm,
    /// From now on `session/cancel` is ignored.
    IgnoreCancel,
    /// A line on stderr.
    Stderr(String),
    /// A line on stdout as it stands, whatever it does to the protocol.
    Raw(String),
    /// Bytes put at the end of a log of the driver's, behind its back.
    AppendLog(AppendLog),
    /// Asks for permission and says how it was answered.
    Permission(Permission),
    /// Ends the turn with a JSON-RPC error.
    #[serde(alias = "error")]
    FailPrompt(String),
    /// Ends the turn with this stop reason instead of `end_turn`.
    Stop(String),
    /// Really runs a shell command, as a tool call.
    Shell(String),
    /// A session update as it stands.
    Update(Value),
}

/// A scripted tool call.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// The tool.
    pub name: String,
    /// Its input.
    #[serde(default)]
    pub input: Value,
    /// Its output.
    #[serde(default)]
    pub output: String,
    /// Its exit code; other than 0 the call failed.
    #[serde(default)]
    pub exit: i32,
}

/// Token counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Usage {
    /// Read by the model.
    pub input_tokens: u64,
    /// Written by the model.
    pub output_tokens: u64,
}

/// How many pieces of text, and how long each is at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// How many.
    pub count: usize,
    /// Bytes of each; a shorter one is filled up.
    pub size: usize,
    /// Pause after each.
    pub every: Duration,
}

impl Parts {
    /// The text of piece `ordinal`, from 1: what a test compares with.
    pub fn text(self, ordinal: usize) -> String {
        let mut text = format!("piece {ordinal} of {}\n", self.count);
        while text.len() < self.size {
            text.insert(text.len() - 1, '.');
        }
        text
    }
}

impl<'de> Deserialize<'de> for Parts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Count(usize),
            Map {
                count: usize,
                #[serde(default)]
                size: Size,
                #[serde(default)]
                every: Pause,
            },
        }
        Ok(match Form::deserialize(deserializer)? {
            Form::Count(count) => Self { count, size: 0, every: Duration::ZERO },
            Form::Map { count, size, every } => Self { count, size: size.0, every: every.0 },
        })
    }
}

/// Bytes for a log of the driver's.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppendLog {
    /// File name within the log folder; by default the newest turn's.
    #[serde(default)]
    pub file: Option<String>,
    /// The bytes as text; `@PAD@` in it stands for [`pad`](Self::pad) letters.
    #[serde(default)]
    pub text: String,
    /// The bytes, after those of `text`.
    #[serde(default)]
    pub base64: String,
    /// How many letters `@PAD@` stands for.
    #[serde(default)]
    pub pad: Size,
}

/// A request for permission.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Permission {
    /// What the user would read.
    pub title: String,
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size(pub usize);

/// A duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause(pub Duration);

/// A number alone or with a unit out of `units`.
fn scaled<'de, D: Deserializer<'de>>(
    deserializer: D,
    what: &'static str,
    units: &'static [(&'static str, u64)],
) -> Result<u64, D::Error> {
    struct Visitor(&'static str, &'static [(&'static str, u64)]);
    impl de::Visitor<'_> for Visitor {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{} such as 3{}", self.0, self.1[0].0)
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<u64, E> {
            Ok(number)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
            let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            let unit = &text[digits.len()..];
            let factor = self.1.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
            match (digits.parse::<u64>(), factor) {
                (Ok(number), Some(factor)) => Ok(number.saturating_mul(factor)),
                _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
            }
        }
    }
    deserializer.deserialize_any(Visitor(what, units))
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = scaled(deserializer, "a size", &[("Mi", 1 << 20), ("Ki", 1 << 10), ("", 1)])?;
        usize::try_from(bytes).map(Self).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Pause {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ms = scaled(deserializer, "a duration", &[("s", 1000), ("ms", 1), ("m", 60_000)])?;
        Ok(Self(Duration::from_millis(ms)))
    }
}

/// Reads a script.
///
/// # Errors
/// When the text is not a list of steps.
pub fn parse(text: &str) -> Result<Vec<Step>> {
    let document = serde_yaml::Deserializer::from_str(text);
    serde_yaml::with::singleton_map_recursive::deserialize(document).context("not a list of steps")
}

/// The steps for a prompt: the script that it is, or the default conversation for a prompt in plain words.
///
/// # Errors
/// When the prompt looks like a script (its first line begins a YAML list) and is none.
pub fn for_prompt(prompt: &str) -> Result<Vec<Step>> {
    if prompt.starts_with("- ") {
        return parse(prompt);
    }
    if prompt.trim().is_empty() {
        bail!("the prompt is empty");
    }
    Ok(vec![
        Step::Think(format!("I was asked: {prompt}")),
        Step::Say("I will leave a note in the workspace and read it back.".into()),
        Step::Shell("echo 'Hello from the agent.' > note.txt && cat note.txt".into()),
        Step::Say("Done: the note is in the workspace, and reads as I wrote it.".into()),
        Step::Usage(Usage { input_tokens: 12, output_tokens: 34 }),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_can_be_written_in_yaml() {
        let steps = parse(
            r#"
- say: hello
- think: hm
- tool: {name: grep, input: {pattern: x}, output: "a: 1", exit: 1}
- plan: [look, fix]
- usage: {inputTokens: 1, outputTokens: 2}
- parts: 200
- parts: {count: 3, size: 1Ki, every: 20ms}
- bytes: 16Mi
- wait: 2s
- crash: KILL
- exit: 3
- allocate: 200Mi
- ignoreTerm
- ignoreCancel
- stderr: boom
- raw: "not json"
- appendLog: {file: turn-1.jsonl, text: "x@PAD@", base64: "AA==", pad: 9000000}
- permission: {title: May I?}
- failPrompt: no model
- error: the same
- stop: refusal
- shell: pwd
- update: {sessionUpdate: brand_new, n: 1}
"#,
        )
        .unwrap();
        assert_eq!(steps.len(), 23);
        assert_eq!(steps[5], Step::Parts(Parts { count: 200, size: 0, every: Duration::ZERO }));
        assert_eq!(steps[6], Step::Parts(Parts { count: 3, size: 1024, every: Duration::from_millis(20) }));
        assert_eq!(steps[7], Step::Bytes(Size(16 << 20)));
        assert_eq!(steps[8], Step::Wait(Pause(Duration::from_secs(2))));
        assert_eq!(steps[12], Step::IgnoreTerm);
        assert_eq!(steps[18], Step::FailPrompt("no model".into()));
        assert_eq!(steps[19], Step::FailPrompt("the same".into()));
        assert_eq!(steps[22], Step::Update(serde_json::json!({"sessionUpdate": "brand_new", "n": 1})));
    }

    #[test]
    fn a_wrong_script_is_an_error_and_plain_words_are_not() {
        assert!(for_prompt("- sai: hello").is_err());
        assert!(for_prompt("- wait: soon").is_err());
        assert!(for_prompt("  ").is_err());
        assert_eq!(for_prompt("Fix the login bug: now").unwrap().len(), 5);
    }

    #[test]
    fn pieces_are_numbered_and_filled_to_size() {
        let parts = Parts { count: 12, size: 40, every: Duration::ZERO };
        assert_eq!(parts.text(7), format!("piece 7 of 12{}\n", ".".repeat(26)));
        assert_eq!(parts.text(7).len(), 40);
        assert_eq!(Parts { size: 0, ..parts }.text(12), "piece 12 of 12\n");
    }
}
