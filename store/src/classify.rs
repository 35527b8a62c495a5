//! What an error of a database means for the caller. Messages keep what the server said in one line, never its details (a row's content).

use sqlx::{error::DatabaseError, sqlite::SqliteError};

use crate::StoreError;

/// What the database said, without the details that may quote a row.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Said {
    text: String,
    /// Whether it says that the connection, and so those made when it was, leads nowhere good.
    stale: bool,
}

/// Whether an error condemns the connections that were made before it: the server is gone, is going, is read-only, or says nothing. A
/// statement or a wait that took too long, a deadlock, a crowd do not.
pub(crate) fn is_stale(error: &StoreError) -> bool {
    match error {
        StoreError::Unavailable { source, .. } => source.downcast_ref::<Said>().is_none_or(|said| said.stale),
        _ => false,
    }
}

/// The way out of a broken SQLite file.
const BROKEN_FILE: &str = "the SQLite file is damaged or not a database; it is left as it is. Stop the operator, move the file away together \
                           with its -wal and -shm (keep all three), then put a backup in its place, or what `sqlite3 FILE .recover` saves \
                           of it, or let a new one be made";

/// Turns an error of a call into ours.
pub(crate) fn failed(operation: &'static str, error: &sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::Database(database) => refused(operation, database.as_ref()),
        sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::Decode(_)
        | sqlx::Error::ColumnNotFound(_)
        | sqlx::Error::ColumnIndexOutOfBounds { .. } => StoreError::Corrupt(error.to_string()),
        sqlx::Error::RowNotFound | sqlx::Error::Encode(_) | sqlx::Error::TypeNotFound { .. } => {
            StoreError::Refused { operation, source: said(error.to_string()) }
        }
        // A configuration error may quote the URL.
        sqlx::Error::Configuration(_) => {
            StoreError::Unusable("the connection's settings are not understood".to_owned())
        }
        _ => StoreError::Unavailable { operation, source: said(error.to_string()) },
    }
}

fn said(text: String) -> Box<Said> {
    Box::new(Said { text, stale: true })
}

/// The call did not end in time.
pub(crate) fn late(operation: &'static str) -> StoreError {
    unavailable(operation, "the store did not answer in time")
}

/// The store cannot be reached for a reason of our own.
pub(crate) fn unavailable(operation: &'static str, why: &str) -> StoreError {
    StoreError::Unavailable { operation, source: said(why.to_owned()) }
}

/// The same error with the part that it is about.
pub(crate) fn about(part: &str, error: StoreError) -> StoreError {
    match error {
        StoreError::Refused { operation, source } => {
            StoreError::Refused { operation, source: said(format!("{part}: {source}")) }
        }
        other => other,
    }
}

/// The same error for another caller of the same commit.
pub(crate) fn shared(error: &StoreError) -> StoreError {
    let said = |source: &dyn std::error::Error| said(source.to_string());
    match error {
        StoreError::Unavailable { operation, source } => {
            StoreError::Unavailable { operation, source: said(source.as_ref()) }
        }
        StoreError::Full { operation, source } => StoreError::Full { operation, source: said(source.as_ref()) },
        StoreError::Refused { operation, source } => StoreError::Refused { operation, source: said(source.as_ref()) },
        StoreError::Unusable(text) => StoreError::Unusable(text.clone()),
        other => StoreError::Corrupt(other.to_string()),
    }
}

fn refused(operation: &'static str, error: &dyn DatabaseError) -> StoreError {
    let code = error.code().unwrap_or_default();
    let stale = code == "25006" || code.starts_with("57P") || code.starts_with("08");
    let said = Said { text: format!("{} ({code})", error.message()), stale };
    if error.try_downcast_ref::<SqliteError>().is_some() {
        return sqlite(operation, code.parse().unwrap_or(0), said);
    }
    postgres(operation, &code, &said)
}

fn sqlite(operation: &'static str, code: u32, said: Said) -> StoreError {
    const IOERR_SHMSIZE: u32 = 10 | (19 << 8);
    match (code & 0xff, code) {
        (13, _) | (_, IOERR_SHMSIZE) => StoreError::Full { operation, source: Box::new(said) },
        (11 | 26, _) => StoreError::Unusable(BROKEN_FILE.to_owned()),
        // A constraint, a type, a misuse: it will not heal by itself. "SQL logic error" is what a missing table is.
        (1, _) => StoreError::Unusable(format!("the schema is not what this build needs: {said}")),
        (18..=21 | 25, _) => StoreError::Refused { operation, source: Box::new(said) },
        _ => StoreError::Unavailable { operation, source: Box::new(said) },
    }
}

fn postgres(operation: &'static str, code: &str, said: &Said) -> StoreError {
    let source = Box::new(said.clone());
    match code {
        "53100" => StoreError::Full { operation, source },
        "42501" => StoreError::Unusable(format!("{said}: run `agentsession migrate`, it grants each role its rights")),
        "42P01" | "42703" | "3F000" | "42883" => {
            StoreError::Unusable(format!("the schema is not what this build needs: {said}: run `agentsession migrate`"))
        }
        "26000" | "42P05" => StoreError::Unusable(format!(
            "{said}: the database is behind a pooler in transaction mode: switch the store's transaction-pooler option on"
        )),
        "28000" | "28P01" | "3D000" => StoreError::Unusable(format!("the database refuses the connection: {said}")),
        // Data, constraints, syntax: a fault of ours or of the row. A serialisation failure or a deadlock (40) heals, as do the rest.
        _ if ["21", "22", "23", "42", "44"].contains(&code.get(..2).unwrap_or_default()) => {
            StoreError::Refused { operation, source }
        }
        "XX001" | "XX002" => StoreError::Unusable(format!("the database says that it is damaged: {said}")),
        _ => StoreError::Unavailable { operation, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Category;

    fn said() -> Said {
        Said { text: "said".to_owned(), stale: false }
    }

    #[test]
    fn a_sqlstate_means_what_the_caller_can_do() {
        for (code, category) in [
            ("53100", Category::Full),
            ("25006", Category::Unavailable),
            ("57P01", Category::Unavailable),
            ("57014", Category::Unavailable),
            ("55P03", Category::Unavailable),
            ("40P01", Category::Unavailable),
            ("53300", Category::Unavailable),
            ("08006", Category::Unavailable),
            ("42501", Category::Unusable),
            ("42P01", Category::Unusable),
            ("26000", Category::Unusable),
            ("28P01", Category::Unusable),
            ("XX001", Category::Unusable),
            ("23505", Category::Refused),
            ("22021", Category::Refused),
            ("42601", Category::Refused),
        ] {
            assert_eq!(postgres("testing", code, &said()).category(), category, "{code}");
        }
    }

    #[test]
    fn a_sqlite_code_means_what_the_caller_can_do() {
        for (code, category) in [
            (5, Category::Unavailable),
            (517, Category::Unavailable),
            (10, Category::Unavailable),
            (14, Category::Unavailable),
            (13, Category::Full),
            (4874, Category::Full),
            (11, Category::Unusable),
            (779, Category::Unusable),
            (26, Category::Unusable),
            (1, Category::Unusable),
            (1555, Category::Refused),
            (1811, Category::Refused),
        ] {
            assert_eq!(sqlite("testing", code, said()).category(), category, "{code}");
        }
    }
}
