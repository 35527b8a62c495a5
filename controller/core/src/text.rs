//! Texts of other people, bounded before they travel.

use std::borrow::Cow;

/// Cuts a text to at most `limit` bytes on a character boundary. What was cut says so, with the size of the whole.
pub(crate) fn cut(text: &str, limit: usize) -> Cow<'_, str> {
    if text.len() <= limit {
        return Cow::Borrowed(text);
    }
    let note = format!(" … (cut, {} bytes in all)", text.len());
    match limit.checked_sub(note.len()) {
        Some(room) => Cow::Owned(format!("{}{note}", &text[..text.floor_char_boundary(room)])),
        // No room for the note: the beginning of the text is worth more than a word about its end.
        None => Cow::Borrowed(&text[..text.floor_char_boundary(limit)]),
    }
}

/// Joins what there is of a reason and a message as the cluster's tools print them.
pub(crate) fn words<'a>(parts: impl IntoIterator<Item = Option<&'a str>>) -> String {
    let mut text = String::new();
    for part in parts.into_iter().flatten().map(str::trim).filter(|part| !part.is_empty()) {
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(part);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_within_its_limit_stays_as_it_is() {
        assert_eq!(cut("", 0), "");
        assert_eq!(cut("äöü", 6), "äöü");
    }

    #[test]
    fn a_longer_one_is_cut_between_characters_and_says_so() {
        let text = "ü".repeat(1000);
        let short = cut(&text, 101);
        assert!(short.len() <= 101, "{} bytes", short.len());
        assert!(short.ends_with(" … (cut, 2000 bytes in all)"), "{short}");
        assert!(short.starts_with("üüü"));
    }

    #[test]
    fn without_room_for_a_note_the_beginning_stays() {
        assert_eq!(cut("äöüäöü", 5), "äö");
    }

    #[test]
    fn words_leave_out_what_is_missing() {
        assert_eq!(words([Some("ErrImagePull"), None, Some("  "), Some("not found\n")]), "ErrImagePull: not found");
        assert_eq!(words([None, None]), "");
    }
}
