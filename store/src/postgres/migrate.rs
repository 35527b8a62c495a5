//! `migrate`: schema and grants, in one transaction.

use std::{sync::LazyLock, time::Duration};

use sqlx::{ConnectOptions, Connection, migrate::Migrator, postgres::PgConnectOptions};
use tokio::time::timeout;

use super::grants;
use crate::{
    Options, Result,
    classify::{failed, late},
    migrations,
};

/// In order; a file that was released never changes.
pub(crate) const MIGRATION_FILES: &[migrations::File] =
    &[(1, "init", include_str!("../../migrations/postgres/0001_init.sql"))];

pub(super) static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| migrations::migrator(MIGRATION_FILES));

const MIGRATING: &str = "migrating the schema";

/// A migration may have to rewrite a large table; a hung server still ends.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// Two processes that migrate at the same time wait for each other. Of the transaction, so that it goes with it; the number is ours.
const LOCK: &str = "select pg_advisory_xact_lock(7025519312011934)";

/// Migrates and grants. The login needs the right to create tables in its schema.
pub(crate) async fn migrate(connect: PgConnectOptions, options: &Options) -> Result<()> {
    let connecting = timeout(options.connect_timeout, connect.connect()).await;
    let mut connection = connecting.map_err(|_| late(MIGRATING))?.map_err(|error| failed(MIGRATING, &error))?;
    let work = async {
        let mut tx = connection.begin().await.map_err(|error| failed(MIGRATING, &error))?;
        sqlx::raw_sql(LOCK).execute(&mut *tx).await.map_err(|error| failed(MIGRATING, &error))?;
        migrations::run(&MIGRATIONS, &mut *tx).await?;
        grants::grant(&mut tx, &options.roles).await?;
        tx.commit().await.map_err(|error| failed(MIGRATING, &error))
    };
    timeout(LIMIT, work).await.map_err(|_| late(MIGRATING))??;
    connection.close().await.map_err(|error| failed(MIGRATING, &error))
}
