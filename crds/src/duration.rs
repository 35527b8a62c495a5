//! Durations as people write them: `90s`, `15m`, `1h30m`.
//!
//! The API server matches the text before it parses it by a rule of the schema; this is the same grammar for the text that is stored. A
//! stored text that is no duration, which takes an older schema or a hand in the database, is a value here and not a failure to read the object.

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Characters that the longest duration takes.
const MAX_CHARS: usize = 20;

/// Hours, minutes and seconds, in this order, each optional: `1h30m`, `90s`, `0s`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HumanDuration(String);

/// A text that is not a [`HumanDuration`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a duration of hours, minutes and seconds such as 1h30m")]
pub struct InvalidDuration {
    /// The text, cut to 32 characters.
    pub text: String,
}

impl HumanDuration {
    /// The text as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What it means.
    ///
    /// # Errors
    /// [`InvalidDuration`] when the stored text is none. The API server lets no such text in.
    pub fn get(&self) -> Result<Duration, InvalidDuration> {
        parse(&self.0).ok_or_else(|| InvalidDuration { text: self.0.chars().take(32).collect() })
    }
}

/// `None` for a text outside of the grammar.
fn parse(text: &str) -> Option<Duration> {
    if text.is_empty() || text.len() > MAX_CHARS {
        return None;
    }
    let mut rest = text;
    let mut seconds = 0_u64;
    for (unit, factor, digits) in [('h', 3600, 4), ('m', 60, 5), ('s', 1, 6)] {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if end == 0 || end > digits {
            continue;
        }
        if let Some(after) = rest[end..].strip_prefix(unit) {
            let number: u64 = rest[..end].parse().ok()?;
            seconds = seconds.checked_add(number.checked_mul(factor)?)?;
            rest = after;
        }
    }
    rest.is_empty().then(|| Duration::from_secs(seconds))
}

impl FromStr for HumanDuration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, InvalidDuration> {
        let duration = Self(text.to_owned());
        duration.get().map(|_| duration)
    }
}

/// The shortest text for a duration; parts of a second are cut off.
impl From<Duration> for HumanDuration {
    fn from(duration: Duration) -> Self {
        let seconds = duration.as_secs();
        let (h, m, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let mut text = String::new();
        for (number, unit) in [(h, 'h'), (m, 'm'), (s, 's')] {
            if number > 0 {
                text.push_str(&number.to_string());
                text.push(unit);
            }
        }
        if text.is_empty() {
            text.push_str("0s");
        }
        Self(text)
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A bounded string: without the bound the server's cost estimate for the rules on it doubles.
impl JsonSchema for HumanDuration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "HumanDuration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "maxLength": MAX_CHARS })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> Option<u64> {
        parse(text).map(|d| d.as_secs())
    }

    #[test]
    fn hours_minutes_and_seconds_add_up_in_that_order() {
        assert_eq!(seconds("1h30m"), Some(5400));
        assert_eq!(seconds("90s"), Some(90));
        assert_eq!(seconds("0s"), Some(0));
        assert_eq!(seconds("8760h"), Some(31_536_000));
        assert_eq!(seconds("1h0m1s"), Some(3601));
        assert_eq!(seconds("99999m"), Some(5_999_940));
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "", " ", "5", "h", "1d", "1.5h", "500ms", "-1s", "1s1m", "1m1m", "1h 30m", "100000m", "99999h", "１s", "1S",
        ] {
            assert_eq!(seconds(text), None, "{text:?}");
            assert!(text.parse::<HumanDuration>().is_err(), "{text:?}");
        }
        assert_eq!(seconds(&"9".repeat(40)), None);
    }

    #[test]
    fn a_duration_is_written_as_it_would_be_read() {
        for text in ["0s", "1s", "1m", "1h30m", "23h59m59s", "8760h"] {
            let duration: HumanDuration = text.parse().unwrap();
            assert_eq!(HumanDuration::from(duration.get().unwrap()).as_str(), text);
        }
        assert_eq!(HumanDuration::from(Duration::from_secs(90)).as_str(), "1m30s");
    }

    #[test]
    fn a_stored_text_that_is_none_is_an_error_value_and_readable() {
        let stored: HumanDuration = serde_json::from_str("\"soon\"").unwrap();
        let error = stored.get().unwrap_err();
        assert_eq!(error.to_string(), "\"soon\" is not a duration of hours, minutes and seconds such as 1h30m");
    }
}
