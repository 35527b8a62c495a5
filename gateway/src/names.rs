//! Names as they come in a path: what can be the name of something in Kubernetes, and how any text is shown in an answer.

/// Characters of a foreign text that an answer repeats.
const SHOWN_CHARS: usize = 80;

/// Whether a text can name a namespace: an RFC 1123 label.
pub(crate) fn is_namespace(text: &str) -> bool {
    is_label(text) && text.len() <= 63
}

/// Whether a text can name an AgentSession: an RFC 1123 subdomain.
pub(crate) fn is_session(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}

/// Whether a text can be a UID: printable ASCII, and no longer than any that is seen.
pub(crate) fn is_uid(text: &str) -> bool {
    (1..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn is_label(text: &str) -> bool {
    let edge = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|&b| edge(b))
        && bytes.last().is_some_and(|&b| edge(b))
        && bytes.iter().all(|&b| edge(b) || b == b'-')
}

/// A text of a client as an answer repeats it: quoted, escaped and cut.
pub(crate) fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        None => format!("{text:?}"),
        Some((at, _)) => format!("{:?}…", &text[..at]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_kubernetes() {
        for good in ["a", "fix-login", "a.b-c.d0", "0"] {
            assert!(is_session(good), "{good}");
        }
        for wrong in ["", ".", "..", "a..b", "-a", "a-", "A", "a/b", "a%2fb", "a b", "a\0", "ä", &"a".repeat(254)] {
            assert!(!is_session(wrong), "{wrong:?}");
        }
        assert!(is_namespace("team-a"));
        for wrong in ["", "a.b", "..", &"a".repeat(64)] {
            assert!(!is_namespace(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn uids_are_plain() {
        assert!(is_uid("0d8f1c1e-6b2e-4a57-9d6c-3f7a9f0f2b11"));
        for wrong in ["", "a b", "a\0", "../x", &"a".repeat(129)] {
            assert!(!is_uid(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn a_long_text_is_shown_cut_on_a_character() {
        assert_eq!(shown("a\"b"), r#""a\"b""#);
        let text = shown(&"ä".repeat(100));
        assert_eq!(text, format!("\"{}\"…", "ä".repeat(80)));
    }
}
