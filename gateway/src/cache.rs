//! A bounded map whose entries live for a fixed time. The clock is an argument.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Entries live for one `ttl`, so the order of insertion is the order of expiry, and the oldest is what goes when it is full.
#[derive(Debug)]
pub(crate) struct TtlCache<K, V> {
    ttl: Duration,
    capacity: usize,
    inner: Mutex<Inner<K, V>>,
}

#[derive(Debug)]
struct Inner<K, V> {
    entries: HashMap<K, (Instant, V)>,
    order: VecDeque<(Instant, K)>,
}

impl<K: Clone + Eq + Hash, V: Clone> TtlCache<K, V> {
    pub(crate) fn new(ttl: Duration, capacity: usize) -> Self {
        Self { ttl, capacity, inner: Mutex::new(Inner { entries: HashMap::new(), order: VecDeque::new() }) }
    }

    /// The value, unless it is older than the time to live.
    pub(crate) fn get(&self, key: &K, now: Instant) -> Option<V> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, value) = inner.entries.get(key)?;
        (now.duration_since(*at) < self.ttl).then(|| value.clone())
    }

    /// Remembers a value; what is over goes, and the oldest when there is no room.
    pub(crate) fn insert(&self, key: K, value: V, now: Instant) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner { entries, order } = &mut *inner;
        while let Some((at, _)) = order.front() {
            if order.len() < self.capacity && now.duration_since(*at) < self.ttl {
                break;
            }
            if let Some((at, old)) = order.pop_front()
                && entries.get(&old).is_some_and(|(current, _)| *current == at)
            {
                entries.remove(&old);
            }
        }
        order.push_back((now, key.clone()));
        entries.insert(key, (now, value));
    }

    /// Forgets a value.
    pub(crate) fn remove(&self, key: &K) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).entries.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_end_with_their_time() {
        let cache = TtlCache::new(Duration::from_secs(10), 8);
        let start = Instant::now();
        cache.insert(1, "one", start);
        assert_eq!(cache.get(&1, start + Duration::from_millis(9_999)), Some("one"));
        assert_eq!(cache.get(&1, start + Duration::from_secs(10)), None);
    }

    #[test]
    fn it_never_holds_more_than_its_capacity() {
        let cache = TtlCache::new(Duration::from_secs(10), 3);
        let start = Instant::now();
        for i in 0..100_u64 {
            cache.insert(i, i, start + Duration::from_millis(i));
        }
        let inner = cache.inner.lock().unwrap();
        assert_eq!((inner.entries.len(), inner.order.len()), (3, 3));
        assert!((97..100).all(|i| inner.entries.contains_key(&i)));
    }

    #[test]
    fn a_value_that_was_renewed_outlives_its_first_entry() {
        let cache = TtlCache::new(Duration::from_secs(10), 2);
        let start = Instant::now();
        cache.insert(1, "old", start);
        cache.insert(1, "new", start + Duration::from_secs(5));
        cache.insert(2, "other", start + Duration::from_secs(11));
        assert_eq!(cache.get(&1, start + Duration::from_secs(12)), Some("new"));
        cache.remove(&1);
        assert_eq!(cache.get(&1, start + Duration::from_secs(12)), None);
    }
}
