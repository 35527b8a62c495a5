//! From a URL to a store.

use std::sync::Arc;

use crate::{Options, Result, SharedStore, backend::Store, options::Target, postgres, sqlite};

/// Opens the store that `url` names: `sqlite:///path/of/file` or `postgres://…`.
///
/// SQLite: the file is made when it is missing (mode 0600) and migrated. Postgres: nothing is asked of the server yet, so a database that
/// is down is no error here; the store works as soon as it is up. [`TranscriptStore::check`](crate::TranscriptStore::check) says what
/// `migrate` has not done.
///
/// # Errors
/// [`StoreError::Unusable`](crate::StoreError::Unusable) for a URL that is not understood (the URL is never quoted) or a file that is no
/// sound database, and what opening the file says.
pub async fn connect(url: &str, options: &Options) -> Result<SharedStore> {
    Ok(match Target::parse(url, options)? {
        Target::Sqlite(file) => Arc::new(Store(sqlite::open(*file, options).await?)),
        Target::Postgres(server) => Arc::new(Store(postgres::open(*server, options))),
    })
}

/// Brings the schema up to date and, on Postgres, gives each role of [`Options::roles`] its rights on every table. May be repeated, and run
/// by several processes at once.
///
/// On Postgres go to the server itself, not to a pooler, as a role that may create tables.
///
/// # Errors
/// What the database says; nothing has changed then.
pub async fn migrate(url: &str, options: &Options) -> Result<()> {
    match Target::parse(url, options)? {
        Target::Sqlite(file) => sqlite::migrate(*file).await,
        Target::Postgres(server) => postgres::migrate(*server, options).await,
    }
}
