//! What an append will write, decided from what is there. Pure: the transaction around it holds the session's lock.

use std::{borrow::Cow, collections::HashMap, ops::Deref, sync::Arc};

use sha2::{Digest, Sha256};

use crate::{Appended, NewPart};

/// The text of a part on its way in.
#[derive(Clone, Debug)]
pub(crate) enum Text<'a> {
    /// The caller's own, or one that had to be cleaned.
    Lent(Cow<'a, str>),
    /// For a writer in another task; to bind it costs no copy.
    Shared(Arc<str>),
}

impl Text<'_> {
    pub(crate) fn shared(&self) -> Arc<str> {
        match self {
            Self::Lent(text) => Arc::from(text.as_ref()),
            Self::Shared(text) => Arc::clone(text),
        }
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Lent(text) => text,
            Self::Shared(text) => text,
        }
    }
}

/// A part on its way in.
#[derive(Clone, Debug)]
pub(crate) struct Entry<'a> {
    pub index: u32,
    pub text: Text<'a>,
}

impl Entry<'_> {
    /// Tells a part that comes again from another one with its identity. Taken when it is needed: of a new part while the database is busy
    /// with the one before.
    pub(crate) fn digest(&self) -> i64 {
        digest(&self.text)
    }
}

/// The parts of one append.
#[derive(Clone, Debug)]
pub(crate) struct Batch<'a> {
    pub entries: Vec<Entry<'a>>,
    pub bytes: u64,
}

impl<'a> Batch<'a> {
    /// Borrows the parts.
    pub(crate) fn new(parts: &[NewPart<'a>]) -> Self {
        let entry = |part: &NewPart<'a>| Entry { index: part.index.0, text: Text::Lent(clean(part.part)) };
        let entries: Vec<_> = parts.iter().map(entry).collect();
        let bytes = entries.iter().map(|entry| size(&entry.text)).sum();
        Self { entries, bytes }
    }

    /// The same batch with texts of its own, for a writer in another task.
    pub(crate) fn into_owned(self) -> Batch<'static> {
        let entry = |entry: Entry<'_>| Entry { index: entry.index, text: Text::Shared(entry.text.shared()) };
        Batch { entries: self.entries.into_iter().map(entry).collect(), bytes: self.bytes }
    }

    /// The lowest and the highest index; `None` when there is no part.
    pub(crate) fn range(&self) -> Option<(u32, u32)> {
        let indexes = || self.entries.iter().map(|entry| entry.index);
        indexes().min().zip(indexes().max())
    }
}

/// What is to be written, in the order given, and what is to be said about the rest.
#[derive(Debug)]
pub(crate) struct Plan<'b, 'a> {
    pub fresh: Vec<&'b Entry<'a>>,
    pub appended: Appended,
}

/// Decides. `present` = index and digest of the turn's parts that are there, in order of index; `session_bytes` = what the session holds.
pub(crate) fn plan<'b, 'a>(
    batch: &'b Batch<'a>,
    present: &[(u32, i64)],
    session_bytes: u64,
    quota_bytes: u64,
) -> Plan<'b, 'a> {
    let mut fresh = Fresh::with_capacity(batch.entries.len().saturating_sub(present.len()));
    let mut appended = Appended::default();
    for entry in &batch.entries {
        let stored = present.binary_search_by_key(&entry.index, |&(index, _)| index).ok();
        let same = match stored.and_then(|at| present.get(at)) {
            Some(&(_, digest)) => Some(digest == entry.digest()),
            None => fresh.find(entry.index).map(|earlier| *earlier.text == *entry.text),
        };
        match same {
            Some(true) => appended.already += 1,
            Some(false) => appended.conflicts += 1,
            None => {
                let bytes = appended.bytes + size(&entry.text);
                if appended.over_quota > 0 || session_bytes.saturating_add(bytes) > quota_bytes {
                    appended.over_quota += 1;
                } else {
                    appended.bytes = bytes;
                    appended.inserted += 1;
                    fresh.push(entry);
                }
            }
        }
    }
    Plan { fresh: fresh.entries, appended }
}

/// What is to be written so far. Indexes nearly always ascend, so that a look-up is needed only from the first that does not.
struct Fresh<'b, 'a> {
    entries: Vec<&'b Entry<'a>>,
    highest: Option<u32>,
    by_index: Option<HashMap<u32, &'b Entry<'a>>>,
}

impl<'b, 'a> Fresh<'b, 'a> {
    fn with_capacity(capacity: usize) -> Self {
        Self { entries: Vec::with_capacity(capacity), highest: None, by_index: None }
    }

    fn find(&mut self, index: u32) -> Option<&'b Entry<'a>> {
        if self.highest.is_none_or(|highest| index > highest) {
            return None;
        }
        let entries = &self.entries;
        let all = || entries.iter().map(|entry| (entry.index, *entry)).collect::<HashMap<_, _>>();
        self.by_index.get_or_insert_with(all).get(&index).copied()
    }

    fn push(&mut self, entry: &'b Entry<'a>) {
        self.highest = self.highest.max(Some(entry.index));
        if let Some(by_index) = &mut self.by_index {
            by_index.insert(entry.index, entry);
        }
        self.entries.push(entry);
    }
}

/// Bytes of a text.
pub(crate) fn size(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

/// Text that both databases take: Postgres refuses a raw U+0000, so it becomes U+FFFD in either. An escaped one is no such character.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{fffd}")) } else { Cow::Borrowed(text) }
}

fn digest(text: &str) -> i64 {
    let hash = Sha256::digest(text.as_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&hash[..8]);
    i64::from_be_bytes(first)
}

#[cfg(test)]
mod tests {
    use transcript::PartIndex;

    use super::*;

    fn batch(parts: &[(u32, &'static str)]) -> Batch<'static> {
        let parts: Vec<_> = parts.iter().map(|&(index, part)| NewPart { index: PartIndex(index), part }).collect();
        Batch::new(&parts)
    }

    #[test]
    fn only_the_missing_is_written_and_the_rest_is_counted() {
        let batch = batch(&[(0, "A"), (1, "B"), (2, "C"), (2, "C"), (2, "D"), (9, "E"), (4, "F"), (4, "F"), (9, "G")]);
        let present = [(0, digest("A")), (1, digest("other"))];
        let plan = plan(&batch, &present, 0, 100);
        assert_eq!(plan.fresh.iter().map(|entry| entry.index).collect::<Vec<_>>(), [2, 9, 4]);
        assert_eq!(plan.appended, Appended { inserted: 3, bytes: 3, already: 3, conflicts: 3, ..Appended::default() });
    }

    #[test]
    fn from_the_first_that_does_not_fit_all_are_refused() {
        let batch = batch(&[(0, "aaaa"), (1, "bbbbbbb"), (2, "c")]);
        let plan = plan(&batch, &[], 10, 20);
        assert_eq!(plan.appended, Appended { inserted: 1, bytes: 4, over_quota: 2, ..Appended::default() });
    }

    #[test]
    fn a_part_that_fits_exactly_is_taken() {
        let batch = batch(&[(0, "aaaa"), (1, "b")]);
        assert_eq!(plan(&batch, &[], 15, 20).appended.over_quota, 0);
        assert_eq!(plan(&batch, &[], 16, 20).appended.over_quota, 1);
    }

    #[test]
    fn a_raw_nul_is_replaced_and_an_escaped_one_is_kept() {
        assert_eq!(clean("a\0b"), "a\u{fffd}b");
        assert_eq!(clean(r#""a\u0000b""#), r#""a\u0000b""#);
    }

    #[test]
    fn the_digest_never_changes_since_it_is_stored() {
        assert_eq!(digest(""), i64::from_be_bytes([0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14]));
    }
}
