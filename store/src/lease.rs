//! A pooled connection that goes back to the pool only when it is known to be clean.

use sqlx::{Database, pool::PoolConnection};

/// A connection on loan. Unless it is [kept](Lease::keep), it is closed when the loan ends: after an error, a timeout or a cancelled call
/// nobody knows what its transaction, its server or its stream is in, and a new one costs less than finding out.
#[derive(Debug)]
pub(crate) struct Lease<DB: Database>(Option<PoolConnection<DB>>);

impl<DB: Database> Lease<DB> {
    pub(crate) fn new(connection: PoolConnection<DB>) -> Self {
        Self(Some(connection))
    }

    /// Gives the connection back for others.
    pub(crate) fn keep(mut self) {
        drop(self.0.take());
    }

    /// The connection.
    pub(crate) fn connection(&mut self) -> Result<&mut DB::Connection, sqlx::Error> {
        // Only `keep` and `drop` take it out, and both end the loan.
        self.0.as_deref_mut().ok_or(sqlx::Error::PoolClosed)
    }
}

impl<DB: Database> Drop for Lease<DB> {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(connection.detach());
        }
    }
}
