//! Medians and times.

use std::time::{Duration, Instant};

/// Measurements of one thing, in one unit.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Adds one.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// Adds a duration, in milliseconds.
    pub fn push_ms(&mut self, took: Duration) {
        self.push(took.as_secs_f64() * 1e3);
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The middle one.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// The smallest.
    pub fn min(&self) -> f64 {
        self.quantile(0.0)
    }

    /// The largest.
    pub fn max(&self) -> f64 {
        self.quantile(1.0)
    }

    /// The one that this share of them is not above; not a number when there is none.
    pub fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = (sorted.len().saturating_sub(1) as f64 * share).round() as usize;
        sorted.get(at).copied().unwrap_or(f64::NAN)
    }
}

/// How long something took, and what came of it.
pub async fn timed<T>(work: impl Future<Output = T>) -> (Duration, T) {
    let began = Instant::now();
    let result = work.await;
    (began.elapsed(), result)
}
