//! Postgres: a pool that is filled when it is needed, so that a store which is down does not keep anybody from starting, and a transaction a
//! call that locks nothing but rows, so that a pooler in transaction mode may stand between.

mod copy;
mod grants;
mod migrate;
mod tx;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use sqlx::{
    AssertSqlSafe, PgPool, Postgres, Row,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::time::timeout;

#[cfg(test)]
pub(crate) use migrate::MIGRATION_FILES;
pub(crate) use migrate::migrate;

use crate::{
    Appended, Options, Result, Role, StoreError, Writer,
    backend::{Backend, write_limit},
    classify::{failed, is_stale, late, unavailable},
    error::Category,
    lease::Lease,
    ops::{Append, Op},
    plan::Batch,
};
use tx::PostgresTx;

/// A connection that was idle for longer is tried before it is used.
const TRUSTED_IDLE: Duration = Duration::from_secs(5);

/// The Postgres backend.
pub(crate) struct PostgresStore {
    pool: PgPool,
    options: Options,
    distrust: Distrust,
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").finish_non_exhaustive()
    }
}

/// When a connection last proved to be of no use: those made before it are thrown away. After a failover the pool would otherwise keep
/// its connections to the demoted server, which reads well and refuses every write.
#[derive(Clone, Default)]
struct Distrust(Arc<Mutex<Option<Instant>>>);

impl Distrust {
    fn all_before_now(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether a connection of this age may be used.
    fn trusts(&self, age: Duration) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_none_or(|mark| age < mark.elapsed())
    }
}

/// Makes the store. It asks nothing of the server yet.
pub(crate) fn open(connect: PgConnectOptions, options: &Options) -> PostgresStore {
    let distrust = Distrust::default();
    let trusted = distrust.clone();
    let pool = PgPoolOptions::new()
        .max_connections(options.max_connections.max(1))
        .acquire_timeout(options.connect_timeout)
        .idle_timeout(Duration::from_secs(5 * 60))
        .max_lifetime(Duration::from_secs(30 * 60))
        .test_before_acquire(false)
        .before_acquire(move |connection, meta| {
            let trusted = trusted.clone();
            Box::pin(async move {
                if !trusted.trusts(meta.age) {
                    return Ok(false);
                }
                if meta.idle_for > TRUSTED_IDLE {
                    sqlx::Connection::ping(connection).await?;
                }
                Ok(true)
            })
        })
        .connect_lazy_with(connect);
    PostgresStore { pool, options: options.clone(), distrust }
}

impl PostgresStore {
    /// One call: a connection, a transaction, a commit, within its time.
    async fn transact<O: Op>(&self, op: &O) -> Result<O::Out> {
        let limit = if O::WRITES { write_limit(&self.options, op.bytes()) } else { self.options.read_timeout };
        let begin = begin_statement(O::WRITES, limit);
        // A timeout drops the lease, which closes the connection: the server undoes what was open.
        let done = timeout(limit, self.attempt(op, &begin)).await.unwrap_or_else(|_| Err(late(O::NAME)));
        if done.as_ref().is_err_and(is_stale) {
            self.distrust.all_before_now();
        }
        done
    }

    async fn attempt<O: Op>(&self, op: &O, begin: &str) -> Result<O::Out> {
        let fail = |error: sqlx::Error| failed(O::NAME, &error);
        let mut lease = self.begin(begin).await.map_err(fail)?;
        let connection = lease.connection().map_err(fail)?;
        let prepared = !self.options.transaction_pooler;
        let out = op.run(&mut PostgresTx { connection: &mut *connection, operation: O::NAME, prepared }).await;
        match &out {
            Ok(_) => {
                sqlx::raw_sql("commit").execute(&mut *connection).await.map_err(fail)?;
                lease.keep();
            }
            Err(error) if error.category() == Category::Fenced => {
                sqlx::raw_sql("rollback").execute(&mut *connection).await.map_err(fail)?;
                lease.keep();
            }
            // Closed with the lease.
            Err(_) => {}
        }
        out
    }

    /// A connection in a transaction. One that was idle when its server went away says so at its first statement: nothing has
    /// happened then, and a new one is taken.
    async fn begin(&self, begin: &str) -> Result<Lease<Postgres>, sqlx::Error> {
        let mut last = sqlx::Error::PoolTimedOut;
        for _ in 0..2 {
            let mut lease = Lease::new(self.pool.acquire().await?);
            match sqlx::raw_sql(AssertSqlSafe(begin)).execute(lease.connection()?).await {
                Ok(_) => return Ok(lease),
                Err(error) => last = error,
            }
            self.distrust.all_before_now();
        }
        Err(last)
    }
}

/// Begins a transaction that ends by itself on the server too: its statements, its waits for locks and its silences are bounded. Set for
/// the transaction alone, in the same round trip: a pooler refuses settings at connect.
fn begin_statement(writes: bool, limit: Duration) -> String {
    // A little sooner than the caller gives up, so that the server's own words arrive: "lock timeout" says more than silence.
    let limit = (limit.as_millis() * 9 / 10).max(1);
    let bounds = format!(
        "set local statement_timeout = {limit}; set local lock_timeout = {limit}; set local idle_in_transaction_session_timeout = {limit}"
    );
    if writes {
        // Isolation: a statement after the lock must see what earlier holders of it committed. Durability: what is acknowledged is
        // on disk, also when the server's default says otherwise; a stricter default stays.
        format!(
            "begin isolation level read committed; {bounds}; select set_config('synchronous_commit', 'on', true) where \
             current_setting('synchronous_commit') = 'off'"
        )
    } else {
        format!("begin isolation level repeatable read read only; {bounds}")
    }
}

#[async_trait]
impl Backend for PostgresStore {
    const NAME: &'static str = "postgres";

    async fn perform<O: Op + 'static>(&self, op: O) -> Result<O::Out> {
        self.transact(&op).await
    }

    async fn append(&self, writer: &Writer, batch: Batch<'_>) -> Result<Appended> {
        self.transact(&Append { writer: writer.clone(), batch }).await
    }

    async fn ping(&self) -> Result<()> {
        const PINGING: &str = "asking whether the store takes writes";
        let fail = |error: sqlx::Error| failed(PINGING, &error);
        let ask = async {
            let limit = self.options.append_timeout;
            let mut lease = self.begin(&begin_statement(true, limit)).await.map_err(fail)?;
            let connection = lease.connection().map_err(fail)?;
            let read_only = sqlx::raw_sql("select current_setting('transaction_read_only') as read_only")
                .fetch_one(&mut *connection)
                .await
                .map_err(fail)?;
            sqlx::raw_sql("rollback").execute(&mut *connection).await.map_err(fail)?;
            if read_only.try_get::<String, _>("read_only").map_err(fail)? == "on" {
                return Err(unavailable(PINGING, "the server is read-only"));
            }
            lease.keep();
            Ok(())
        };
        let answer = timeout(self.options.append_timeout, ask).await.unwrap_or_else(|_| Err(late(PINGING)));
        if answer.is_err() {
            self.distrust.all_before_now();
        }
        answer
    }

    async fn check(&self, role: Role) -> Result<()> {
        let missing = self.perform(grants::Check(role)).await?;
        if missing.is_empty() {
            return Ok(());
        }
        Err(StoreError::Unusable(format!(
            "the {role}'s role lacks {}: run `agentsession migrate`, it grants each role its rights",
            missing.join(", ")
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_made_before_the_mark_is_not_trusted() {
        let distrust = Distrust::default();
        assert!(distrust.trusts(Duration::from_secs(3600)));
        distrust.all_before_now();
        assert!(!distrust.trusts(Duration::from_secs(3600)));
        assert!(distrust.trusts(Duration::ZERO));
    }
}
