//! Looking into the JSON text of a part without taking it apart: its members as slices, its `type`, its depth.
//!
//! Works on text that is known to be one valid JSON object (a [`RawValue`](serde_json::value::RawValue) is). Nothing is built, nothing is
//! decoded but what is asked for, so a number of 400 digits or half a surrogate pair elsewhere in the part is no concern of it. Where a key
//! stands twice the last one counts, as for `JSON.parse`. On text that is not valid JSON the answers are useless but bounded; it never panics.

use std::borrow::Cow;

use memchr::memmem;

/// The members of an object: key and value as raw JSON text, in the order they stand, repeated keys included.
#[derive(Clone, Debug)]
pub struct Members<'a> {
    text: &'a str,
    at: usize,
}

/// The members of the object that `raw` is.
#[must_use]
pub fn members(raw: &str) -> Members<'_> {
    let at = skip_space(raw.as_bytes(), 0);
    Members { text: raw, at: if raw.as_bytes().get(at) == Some(&b'{') { at + 1 } else { raw.len() } }
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.text.as_bytes();
        let mut at = skip_space(bytes, self.at);
        if bytes.get(at) == Some(&b',') {
            at = skip_space(bytes, at + 1);
        }
        if bytes.get(at) != Some(&b'"') {
            self.at = bytes.len();
            return None;
        }
        let key_end = skip_string(bytes, at);
        let colon = skip_space(bytes, key_end);
        let value = skip_space(bytes, colon + 1);
        let value_end = skip_value(bytes, value);
        self.at = value_end.max(key_end);
        Some((self.text.get(at..key_end)?, self.text.get(value..value_end)?))
    }
}

/// The `type` of a part, decoded; `None` when it has none, or one that is not a string or not Unicode.
#[must_use]
pub fn part_type(raw: &str) -> Option<Cow<'_, str>> {
    // What nearly every part looks like. The key must not come again, neither plainly nor in a spelling with escapes.
    if let Some(rest) = raw.strip_prefix("{\"type\":\"")
        && let Some(end) = memchr::memchr2(b'"', b'\\', rest.as_bytes())
        && rest.as_bytes()[end] == b'"'
        && !may_repeat_type(&rest.as_bytes()[end..])
    {
        return Some(Cow::Borrowed(&rest[..end]));
    }
    let (_, value) = members(raw).filter(|(key, _)| string_is(key, "type")).last()?;
    decode_unicode(value)
}

/// Whether `"type"` may stand in this text as a key. Seldom true where it does not, never false where it does.
fn may_repeat_type(bytes: &[u8]) -> bool {
    memmem::find(bytes, b"\"type\"").is_some() || memmem::find(bytes, b"\\u00").is_some()
}

/// Whether a raw JSON string says `plain`, whatever way it is spelled.
#[must_use]
pub fn string_is(raw: &str, plain: &str) -> bool {
    match raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(inner) if !inner.contains('\\') => inner == plain,
        Some(_) => decode_unicode(raw).is_some_and(|text| text == plain),
        None => false,
    }
}

/// A raw JSON string as text; `None` when it is no string, or holds half of a surrogate pair.
#[must_use]
pub fn decode_unicode(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') { serde_json::from_str(raw).ok().map(Cow::Owned) } else { Some(Cow::Borrowed(inner)) }
}

/// How deeply arrays and objects are nested in a JSON text; a plain value is 0.
#[must_use]
pub fn depth(raw: &str) -> usize {
    let bytes = raw.as_bytes();
    let (mut at, mut depth, mut deepest) = (0, 0_usize, 0);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => {
                at = skip_string(bytes, at);
                continue;
            }
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    deepest
}

/// The strings of a JSON text, keys and values alike, as raw text with their quotes; `true` beside those that are keys.
pub fn strings(raw: &str) -> impl Iterator<Item = (&str, bool)> {
    let bytes = raw.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        let begin = at + memchr::memchr(b'"', bytes.get(at..)?)?;
        at = skip_string(bytes, begin);
        let is_key = bytes.get(skip_space(bytes, at)) == Some(&b':');
        Some((raw.get(begin..at)?, is_key))
    })
}

fn skip_space(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\r' | b'\n') = bytes.get(at) {
        at += 1;
    }
    at
}

/// The offset after the string that begins at `at`.
pub(crate) fn skip_string(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while let Some(step) = bytes.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += step;
        if bytes[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    bytes.len()
}

/// The offset after the value that begins at `at`. Keeps a count, not a stack, so nesting costs nothing.
pub(crate) fn skip_value(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at) {
        Some(b'"') => skip_string(bytes, at),
        Some(b'{' | b'[') => skip_nested(bytes, at),
        Some(_) => {
            let end = bytes[at..].iter().position(|b| matches!(b, b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n'));
            end.map_or(bytes.len(), |end| at + end)
        }
        None => bytes.len(),
    }
}

fn skip_nested(bytes: &[u8], mut at: usize) -> usize {
    let mut open = 0_usize;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => {
                at = skip_string(bytes, at);
                continue;
            }
            b'{' | b'[' => open += 1,
            b'}' | b']' => {
                open = open.saturating_sub(1);
                if open == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}
