//! Waiting for what a cluster does in its own time.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

/// How long between two looks.
const INTERVAL: Duration = Duration::from_millis(100);

/// Looks until there is something, or the time is over. An error of `look` ends the wait only when the time is over, since a request may
/// fail while the world is being disturbed.
///
/// # Errors
/// When the time is over: what was awaited, for how long, and what the last look said.
pub async fn await_condition<T>(
    what: &str,
    timeout: Duration,
    mut look: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let began = Instant::now();
    loop {
        let seen = look().await;
        if let Ok(Some(value)) = seen {
            return Ok(value);
        }
        if began.elapsed() >= timeout {
            let said = seen.err().map_or_else(|| "not seen".to_owned(), |error| format!("{error:#}"));
            return Err(anyhow!("waited {} s for {what}: {said}", timeout.as_secs()));
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Looks until it is true, or the time is over.
///
/// # Errors
/// As [`await_condition`].
pub async fn eventually(what: &str, timeout: Duration, mut look: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    await_condition(what, timeout, async || Ok(look().await?.then_some(()))).await
}

/// Seconds.
#[must_use]
pub const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
