//! SQLite: one file, one writer, a pool of readers.

mod open;
mod tx;
mod writer;

use std::fmt;

use async_trait::async_trait;
use sqlx::{Sqlite, SqlitePool, sqlite::SqlitePoolOptions};
use tokio::time::timeout;

#[cfg(test)]
pub(crate) use open::MIGRATION_FILES;
pub(crate) use open::{migrate, open};

use crate::{
    Appended, Options, Result, Role, Writer,
    backend::{Backend, write_limit},
    classify::{failed, late},
    lease::Lease,
    ops::{Append, Op},
    plan::Batch,
};
use tx::SqliteTx;

/// The SQLite backend.
pub(crate) struct SqliteStore {
    readers: SqlitePool,
    writer: writer::Handle,
    options: Options,
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}

impl SqliteStore {
    async fn write<O: Op + 'static>(&self, op: O) -> Result<O::Out> {
        let limit = write_limit(&self.options, op.bytes());
        timeout(limit, self.writer.perform(op)).await.map_err(|_| late(O::NAME))?
    }

    async fn read<O: Op>(&self, op: &O) -> Result<O::Out> {
        let work = async {
            let fail = |error: sqlx::Error| failed(O::NAME, &error);
            let mut lease = Lease::<Sqlite>::new(self.readers.acquire().await.map_err(fail)?);
            let connection = lease.connection().map_err(fail)?;
            sqlx::raw_sql("begin").execute(&mut *connection).await.map_err(fail)?;
            let out = op.run(&mut SqliteTx { connection: &mut *connection, operation: O::NAME }).await;
            sqlx::raw_sql("commit").execute(&mut *connection).await.map_err(fail)?;
            lease.keep();
            out
        };
        timeout(self.options.read_timeout, work).await.map_err(|_| late(O::NAME))?
    }
}

#[async_trait]
impl Backend for SqliteStore {
    const NAME: &'static str = "sqlite";

    async fn perform<O: Op + 'static>(&self, op: O) -> Result<O::Out> {
        if O::WRITES { self.write(op).await } else { self.read(&op).await }
    }

    async fn append(&self, writer: &Writer, batch: Batch<'_>) -> Result<Appended> {
        self.write(Append { writer: writer.clone(), batch: batch.into_owned() }).await
    }

    async fn ping(&self) -> Result<()> {
        self.write(writer::Touch).await
    }

    async fn check(&self, _role: Role) -> Result<()> {
        // The file was migrated when it was opened, and a file knows no roles.
        Ok(())
    }
}

fn reader_pool(options: sqlx::sqlite::SqliteConnectOptions, settings: &Options) -> SqlitePool {
    SqlitePoolOptions::new()
        .max_connections(settings.max_connections.max(1))
        .acquire_timeout(settings.connect_timeout)
        .test_before_acquire(false)
        .connect_lazy_with(options.read_only(true))
}
