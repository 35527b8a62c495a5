//! A bound on the bytes of logs that are in memory at once, shared by all who read them.

use std::sync::Arc;

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use super::ExecError;

/// One permit stands for so many bytes.
const UNIT: u64 = 1 << 10;

/// Bytes of logs that may be in memory. First come, first served: a large request is not overtaken by small ones.
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    units: Arc<Semaphore>,
    total: u32,
}

/// A share of a [`MemoryBudget`]; dropping it gives it back.
#[derive(Debug)]
pub struct MemoryHold(OwnedSemaphorePermit);

impl MemoryBudget {
    /// A budget of `bytes`.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let total = units(bytes).max(1);
        Self { units: Arc::new(Semaphore::new(total as usize)), total }
    }

    /// Waits for a share of `bytes`. Whoever asks for more than there is gets all of it.
    ///
    /// # Errors
    /// [`ExecError::Busy`] at the deadline.
    pub async fn take(&self, bytes: u64, deadline: Option<Instant>) -> Result<MemoryHold, ExecError> {
        let wanted = units(bytes).min(self.total);
        let taking = Arc::clone(&self.units).acquire_many_owned(wanted);
        let taken = match deadline {
            Some(deadline) => timeout_at(deadline, taking).await.map_err(|_| ExecError::Busy)?,
            None => taking.await,
        };
        // The semaphore is never closed.
        taken.map(MemoryHold).map_err(|_| ExecError::Busy)
    }
}

impl MemoryHold {
    /// Gives back what is over `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        let surplus = self.0.num_permits().saturating_sub(units(bytes) as usize);
        drop(self.0.split(surplus));
    }
}

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}
