//! JSON as text: what an agent wrote is looked at in place and passed on byte for byte.
//!
//! A `String` cannot hold a lone surrogate and a `Value` cannot hold `1e400`, a duplicate key or deep nesting; agents send all of
//! them. So nothing here decodes a value that is only to be passed on.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// The fields of one object, in order, as text. Of duplicate keys the last counts, as in every JavaScript agent and client.
#[derive(Clone, Debug, Default)]
pub struct Obj<'a> {
    fields: Vec<(&'a str, &'a str)>,
}

impl<'a> Obj<'a> {
    /// Reads an object; `None` when the text is anything else.
    pub fn parse(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The text of a field's value. A field that is `null` counts as absent: agents write both.
    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.fields
            .iter()
            .rev()
            .find(|(name, _)| is_key(name, key))
            .map(|&(_, value)| value)
            .filter(|value| *value != "null")
    }

    /// The text of a field that is a string, with its quotes.
    pub fn string(&self, key: &str) -> Option<&'a str> {
        self.get(key).filter(|value| is_string(value))
    }

    /// A field that is a string, decoded; what cannot be decoded becomes U+FFFD. For names that are looked at, not passed on.
    pub fn text(&self, key: &str) -> Option<Cow<'a, str>> {
        self.string(key).map(decode)
    }

    /// A field that is an object.
    pub fn object(&self, key: &str) -> Option<Obj<'a>> {
        self.get(key).and_then(Obj::parse)
    }

    /// The items of a field that is a list; nothing when it is anything else.
    pub fn items(&self, key: &str) -> Vec<&'a str> {
        self.get(key).map(items).unwrap_or_default()
    }

    /// A field that is a whole number.
    pub fn number<T: std::str::FromStr>(&self, key: &str) -> Option<T> {
        self.get(key).and_then(|value| value.parse().ok())
    }

    /// All fields but this one, as an object.
    pub fn without(&self, key: &str) -> String {
        let mut out = String::from("{");
        for (name, value) in self.fields.iter().filter(|(name, _)| !is_key(name, key)) {
            if out.len() > 1 {
                out.push(',');
            }
            out.push_str(name);
            out.push(':');
            out.push_str(value);
        }
        out.push('}');
        out
    }

    /// Whether there is no field at all.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Obj<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Vec<(&'de str, &'de str)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some((key, value)) = map.next_entry::<&'de RawValue, &'de RawValue>()? {
                    fields.push((key.get(), value.get()));
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(Fields).map(|fields| Obj { fields })
    }
}

/// Whether `name`, a key with its quotes, spells `key`.
fn is_key(name: &str, key: &str) -> bool {
    let inner = inner(name);
    if inner.contains('\\') { decode(name) == key } else { inner == key }
}

/// Whether the text is a string.
pub fn is_string(text: &str) -> bool {
    text.starts_with('"')
}

/// A string's text without its quotes, escapes untouched. Two such texts may be joined.
pub fn inner(text: &str) -> &str {
    text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text)
}

/// The items of a list; nothing when the text is anything else.
pub fn items(text: &str) -> Vec<&str> {
    serde_json::from_str::<Vec<&RawValue>>(text)
        .map(|items| items.into_iter().map(RawValue::get).collect())
        .unwrap_or_default()
}

/// Decodes a string; what cannot be decoded becomes U+FFFD.
pub fn decode(text: &str) -> Cow<'_, str> {
    let inner = inner(text);
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    // As bytes, lone surrogates are let through.
    struct Bytes(Vec<u8>);
    impl<'de> Deserialize<'de> for Bytes {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Take;
            impl Visitor<'_> for Take {
                type Value = Vec<u8>;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("a string")
                }

                fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Self::Value, E> {
                    Ok(bytes.to_vec())
                }
            }
            deserializer.deserialize_bytes(Take).map(Bytes)
        }
    }
    match serde_json::from_str::<Bytes>(text) {
        Ok(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes.0).into_owned()),
        Err(_) => Cow::Borrowed(inner),
    }
}

/// Appends `text` to `out` as a JSON string with its quotes.
pub fn push_quoted(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' => {
                out.push_str("\\u00");
                out.extend(char::from_digit(u32::from(c) >> 4, 16));
                out.extend(char::from_digit(u32::from(c) & 15, 16));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// `text` as a JSON string with its quotes.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    push_quoted(&mut out, text);
    out
}

/// `text` cut to at most `max` bytes, on a character boundary.
pub fn cut(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_their_text_and_the_last_of_a_key_counts() {
        let o = Obj::parse(r#"{"a":1.0,"b":"half \ud83e","a":1e400,"c":null,"\u0064":[{"x":{}} ,2]}"#).unwrap();
        assert_eq!(o.get("a"), Some("1e400"));
        assert_eq!(o.string("b"), Some(r#""half \ud83e""#));
        assert_eq!(o.get("c"), None);
        assert_eq!(o.items("d"), [r#"{"x":{}}"#, "2"]);
        assert_eq!(o.string("a"), None);
        assert_eq!(o.without("d"), r#"{"a":1.0,"b":"half \ud83e","a":1e400,"c":null}"#);
    }

    #[test]
    fn deep_nesting_is_no_obstacle() {
        let text = format!("{{\"v\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(Obj::parse(&text).unwrap().get("v").map(str::len), Some(200_000));
    }

    #[test]
    fn decoding_replaces_only_what_cannot_be_decoded() {
        assert_eq!(decode(r#""a\n\u00e9\ud83d\ude00""#), "a\né😀");
        assert!(decode(r#""x\ud83e""#).starts_with("x\u{FFFD}"));
    }

    #[test]
    fn quoting_is_what_a_parser_reads_back() {
        let text: String = (0u32..0x300).filter_map(char::from_u32).chain("\u{2028}😀".chars()).collect();
        assert_eq!(serde_json::from_str::<String>(&quote(&text)).unwrap(), text);
    }

    #[test]
    fn cutting_respects_characters() {
        assert_eq!(cut("aé", 2), "a");
        assert_eq!(cut("aé", 3), "aé");
    }
}
