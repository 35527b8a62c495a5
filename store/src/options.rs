//! Where the store is and how long a call may take.

use std::{fmt, str::FromStr, time::Duration};

use sqlx::{
    ConnectOptions,
    postgres::PgConnectOptions,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};

use crate::{Result, StoreError};

/// How a store is opened. The defaults fit both backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Connections to Postgres, and readers of SQLite beside its one writer.
    pub max_connections: u32,
    /// How long a free connection is waited for, making one included.
    pub connect_timeout: Duration,
    /// How long a write may take. An append may take a second more for each MiB it brings.
    pub append_timeout: Duration,
    /// How long a read may take.
    pub read_timeout: Duration,
    /// Postgres stands behind a pooler in transaction mode (pgbouncer and the like): no statement may be prepared under a name, since
    /// the next transaction may run on another server connection. Costs a round trip a statement.
    pub transaction_pooler: bool,
    /// The roles that `migrate` grants rights to.
    pub roles: Roles,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_connections: 10,
            connect_timeout: Duration::from_secs(5),
            append_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(30),
            transaction_pooler: false,
            roles: Roles::default(),
        }
    }
}

/// The names of the database roles, which must exist before `migrate`. `None` = nothing is granted to that role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// What the controller logs in as.
    pub controller: Option<String>,
    /// What the gateway logs in as.
    pub gateway: Option<String>,
}

/// Which process asks, and so which rights it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Reads and writes every table.
    Controller,
    /// Reads every table, adds parts and nonces, moves a session's counters, drops expired nonces.
    Gateway,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Controller => "controller",
            Self::Gateway => "gateway",
        })
    }
}

/// What a URL names. It never leaves this crate, since it may hold a password.
pub(crate) enum Target {
    Sqlite(Box<SqliteConnectOptions>),
    Postgres(Box<PgConnectOptions>),
}

impl Target {
    /// Understands a URL. The error never quotes it.
    pub(crate) fn parse(url: &str, options: &Options) -> Result<Self> {
        if let Some(path) = url.strip_prefix("sqlite://") {
            let path = path.split_once('?').map_or(path, |(path, _)| path);
            if !path.starts_with('/') || path.ends_with('/') {
                return Err(StoreError::Unusable(
                    "a SQLite store is named by the absolute path of its file: sqlite:///var/lib/agentsession/store.db"
                        .to_owned(),
                ));
            }
            return Ok(Self::Sqlite(Box::new(sqlite(path))));
        }
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            return match PgConnectOptions::from_str(url) {
                Ok(parsed) => Ok(Self::Postgres(Box::new(postgres(parsed, options)))),
                Err(_) => Err(StoreError::Unusable(
                    "the URL of the Postgres store is not understood: postgres://user:password@host:5432/database, with everything \
                     but letters and digits percent-encoded"
                        .to_owned(),
                )),
            };
        }
        Err(StoreError::Unusable("the URL of the store must begin with sqlite:/// or postgres://".to_owned()))
    }
}

fn sqlite(path: &str) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .journal_mode(SqliteJournalMode::Wal)
        // A teardown follows a commit: after it there is no second copy of what was acknowledged.
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(Duration::from_secs(5))
        .foreign_keys(true)
        // After a large harvest the write-ahead log goes back to this size.
        .pragma("journal_size_limit", "67108864")
        .disable_statement_logging()
}

fn postgres(parsed: PgConnectOptions, options: &Options) -> PgConnectOptions {
    let named = parsed.application_name("agentsession").disable_statement_logging();
    if options.transaction_pooler {
        // A pooler also refuses the settings at connect that it does not know.
        named.statement_cache_capacity(0).extra_float_digits(None)
    } else {
        named
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_url_is_refused_without_being_quoted() {
        for url in [
            "mysql://u:secret@h/d",
            "sqlite://secret.db",
            "sqlite:secret",
            "postgres://u:secret@h:port/d",
            "postgres://u:secret@h/d?sslmode=secret",
        ] {
            let Err(StoreError::Unusable(text)) = Target::parse(url, &Options::default()) else {
                panic!("{url} was taken");
            };
            assert!(!text.contains("secret"), "{text}");
        }
    }

    #[test]
    fn both_backends_are_told_by_their_scheme() {
        let options = Options::default();
        assert!(matches!(Target::parse("sqlite:///tmp/x.db", &options), Ok(Target::Sqlite(_))));
        assert!(matches!(Target::parse("postgres://u@h/d", &options), Ok(Target::Postgres(_))));
        assert!(matches!(Target::parse("postgresql://u@h/d", &options), Ok(Target::Postgres(_))));
    }
}
