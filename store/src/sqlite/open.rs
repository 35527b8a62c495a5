//! Opening the file: made when missing, readable by its owner only, migrated by whoever opens it.

use std::{
    fs::{self, OpenOptions, Permissions},
    io,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
    sync::LazyLock,
};

use sqlx::{ConnectOptions, Connection, SqliteConnection, migrate::Migrator, sqlite::SqliteConnectOptions};

use super::{SqliteStore, reader_pool, writer};
use crate::{Options, Result, StoreError, classify::failed, migrations};

/// In order; a file that was released never changes.
pub(crate) const MIGRATION_FILES: &[migrations::File] =
    &[(1, "init", include_str!("../../migrations/sqlite/0001_init.sql"))];

static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| migrations::migrator(MIGRATION_FILES));

const OPENING: &str = "opening the SQLite file";

/// Opens the store.
pub(crate) async fn open(connect: SqliteConnectOptions, options: &Options) -> Result<SqliteStore> {
    let connection = prepare(&connect).await?;
    Ok(SqliteStore {
        readers: reader_pool(connect.clone(), options),
        writer: writer::spawn(connect, connection),
        options: options.clone(),
    })
}

/// Migrates the file and closes it.
pub(crate) async fn migrate(connect: SqliteConnectOptions) -> Result<()> {
    let connection = prepare(&connect).await?;
    connection.close().await.map_err(|error| failed(OPENING, &error))
}

async fn prepare(connect: &SqliteConnectOptions) -> Result<SqliteConnection> {
    make_private(connect.get_filename())?;
    let fail = |error: sqlx::Error| failed(OPENING, &error);
    let mut connection = connect.connect().await.map_err(fail)?;
    // Immediate: of two processes that open a new file, one migrates and the other finds it done.
    let mut tx = connection.begin_with("begin immediate").await.map_err(fail)?;
    migrations::run(&MIGRATIONS, &mut *tx).await?;
    tx.commit().await.map_err(fail)?;
    Ok(connection)
}

/// Makes the file when it is missing, and takes it away from other users: SQLite gives its -wal and -shm the same mode.
fn make_private(path: &Path) -> Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if let Err(error) = fs::set_permissions(path, Permissions::from_mode(0o600)) {
                // Somebody else's file on a shared volume: it works, so it is only said.
                tracing::warn!(%error, "the mode of the SQLite file cannot be set to 0600");
            }
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::StorageFull => {
            Err(StoreError::Full { operation: OPENING, source: Box::new(error) })
        }
        Err(error) => Err(StoreError::Unavailable { operation: OPENING, source: Box::new(error) }),
    }
}
