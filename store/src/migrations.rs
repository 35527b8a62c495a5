//! Applying migrations: the only DDL there is. The caller brings a transaction, so that a failed migration leaves nothing behind and a
//! second process that migrates at the same time waits and finds it done.

use sqlx::{
    SqlSafeStr,
    migrate::{Migrate, MigrateError, Migration, MigrationType, Migrator},
};

use crate::{Result, StoreError, classify::failed};

const MIGRATING: &str = "migrating the schema";

/// One file of a migrations folder: version, description, content.
pub(crate) type File = (i64, &'static str, &'static str);

/// The migrations of a backend. They are listed by hand: sqlx's macro would bring both drivers into the build a second time.
pub(crate) fn migrator(files: &[File]) -> Migrator {
    let migrations = files.iter().map(|&(version, description, sql)| {
        Migration::new(version, description.into(), MigrationType::Simple, sql.into_sql_str(), false)
    });
    Migrator {
        // A newer build has migrated already: what it added does not disturb this one.
        ignore_missing: true,
        // The caller's transaction holds a lock of its own; one of the session would leak through a pooler.
        locking: false,
        ..Migrator::with_migrations(migrations.collect())
    }
}

/// Applies what is missing.
pub(crate) async fn run<C: Migrate>(migrator: &Migrator, connection: &mut C) -> Result<()> {
    migrator.run_direct(None, connection, false).await.map_err(explain)
}

/// The newest version that this build brings.
pub(crate) fn newest(migrator: &Migrator) -> i64 {
    migrator.iter().map(|migration| migration.version).max().unwrap_or(0)
}

fn explain(error: MigrateError) -> StoreError {
    match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => failed(MIGRATING, &error),
        MigrateError::VersionMismatch(version) => StoreError::Unusable(format!(
            "migration {version} was applied with another content: this database was made by a build that was never released; restore a \
             backup or start with an empty one"
        )),
        other => StoreError::Unusable(format!("the schema cannot be migrated: {other}")),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    fn files_of(folder: &str) -> Vec<String> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(folder);
        let mut names: Vec<_> =
            path.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn named(files: &[super::File]) -> Vec<String> {
        files.iter().map(|(version, description, _)| format!("{version:04}_{description}.sql")).collect()
    }

    #[test]
    fn every_file_of_the_folders_is_listed() {
        assert_eq!(files_of("postgres"), named(crate::postgres::MIGRATION_FILES));
        assert_eq!(files_of("sqlite"), named(crate::sqlite::MIGRATION_FILES));
    }
}
