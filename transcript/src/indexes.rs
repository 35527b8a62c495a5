//! A set of part indexes, held as runs: what a turn has is nearly always `0..n`.

use crate::PartIndex;

/// Part indexes of one turn as sorted, disjoint, non-adjacent half-open runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexSet {
    runs: Vec<(u32, u32)>,
}

impl IndexSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { runs: Vec::new() }
    }

    /// Adds one index; `false` when it was there already.
    pub fn insert(&mut self, index: PartIndex) -> bool {
        let i = index.0;
        let at = self.runs.partition_point(|&(_, end)| end < i);
        match self.runs.get_mut(at) {
            Some((start, end)) if *start <= i && i < *end => false,
            Some((_, end)) if *end == i => {
                *end = i.saturating_add(1);
                let end = *end;
                if let Some(&(next_start, next_end)) = self.runs.get(at + 1)
                    && next_start == end
                {
                    self.runs[at].1 = next_end;
                    self.runs.remove(at + 1);
                }
                true
            }
            Some((start, _)) if i.checked_add(1) == Some(*start) => {
                *start = i;
                true
            }
            _ => {
                self.runs.insert(at, (i, i.saturating_add(1)));
                true
            }
        }
    }

    /// Adds all indexes of another set.
    pub fn extend_from(&mut self, other: &Self) {
        let mut runs: Vec<(u32, u32)> = self.runs.iter().chain(&other.runs).copied().collect();
        runs.sort_unstable();
        self.runs.clear();
        for (start, end) in runs {
            match self.runs.last_mut() {
                Some((_, last_end)) if start <= *last_end => *last_end = end.max(*last_end),
                _ => self.runs.push((start, end)),
            }
        }
    }

    /// Whether the index is there.
    #[must_use]
    pub fn contains(&self, index: PartIndex) -> bool {
        let at = self.runs.partition_point(|&(_, end)| end <= index.0);
        self.runs.get(at).is_some_and(|&(start, _)| start <= index.0)
    }

    /// How many indexes there are.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.runs.iter().map(|&(start, end)| end - start).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The runs, as `start..end`.
    #[must_use]
    pub fn runs(&self) -> &[(u32, u32)] {
        &self.runs
    }

    /// Whether the set is exactly `0..n`.
    #[must_use]
    pub fn is_exactly(&self, n: u32) -> bool {
        match self.runs.as_slice() {
            [] => n == 0,
            [run] => *run == (0, n),
            _ => false,
        }
    }

    /// Whether every index of this set is in the other.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.runs.iter().all(|&(start, end)| {
            let at = other.runs.partition_point(|&(_, other_end)| other_end <= start);
            other.runs.get(at).is_some_and(|&(other_start, other_end)| other_start <= start && end <= other_end)
        })
    }

    /// Whether every index below `n` is there.
    #[must_use]
    pub fn covers(&self, n: u32) -> bool {
        n == 0 || self.runs.first().is_some_and(|&(start, end)| start == 0 && end >= n)
    }
}

impl FromIterator<PartIndex> for IndexSet {
    fn from_iter<I: IntoIterator<Item = PartIndex>>(indexes: I) -> Self {
        let mut set = Self::new();
        for index in indexes {
            set.insert(index);
        }
        set
    }
}
