//! Who may do what: granted by `migrate` on every table, every time, and asked for by each role when it starts, so that a missing right is
//! an operator's sentence at start and never a user's failed replay.

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, PgConnection};

use super::migrate::MIGRATIONS;
use crate::{
    Result, Role, Roles, StoreError,
    classify::failed,
    migrations,
    ops::{Arg, Op, Tx},
};

const GRANTING: &str = "granting rights";

/// The table that holds the schema's version. Its name is a fact of the database, kept by the migrator.
const VERSIONS: &str = "_sqlx_migrations";

/// One right on one table; with columns, on those alone.
pub(super) struct Right {
    table: &'static str,
    privilege: &'static str,
    columns: &'static [&'static str],
}

const fn on(table: &'static str, privilege: &'static str) -> Right {
    Right { table, privilege, columns: &[] }
}

const TABLES: [&str; 4] = ["agent_sessions", "agent_session_turns", "agent_session_parts", "attach_nonces"];

/// What moves when parts are stored. The right to change one of them is also what the lock on the row asks for.
const COUNTERS: &[&str] = &["parts", "bytes", "last_seq", "turn_parts", "last_activity_at"];

/// The gateway stores parts of a live stream and uses tickets up; it cannot make, settle or delete anything.
const GATEWAY: &[Right] = &[
    on("agent_sessions", "select"),
    on("agent_session_turns", "select"),
    on("agent_session_parts", "select"),
    on("attach_nonces", "select"),
    on("agent_session_parts", "insert"),
    on("attach_nonces", "insert"),
    Right { table: "agent_sessions", privilege: "update", columns: COUNTERS },
    on("attach_nonces", "delete"),
    on(VERSIONS, "select"),
];

fn rights(role: Role) -> Vec<Right> {
    match role {
        Role::Gateway => GATEWAY.iter().map(|right| Right { ..*right }).collect(),
        Role::Controller => {
            let all = TABLES.iter().flat_map(|table| {
                ["select", "insert", "update", "delete"].into_iter().map(|privilege| on(table, privilege))
            });
            all.chain([on(VERSIONS, "select")]).collect()
        }
    }
}

/// Gives each role its rights, and takes what an earlier version gave beyond them.
pub(super) async fn grant(connection: &mut PgConnection, roles: &Roles) -> Result<()> {
    let fail = |error: sqlx::Error| failed(GRANTING, &error);
    let owner: String = sqlx::query_scalar("select current_user::text")
        .persistent(false)
        .fetch_one(&mut *connection)
        .await
        .map_err(fail)?;
    let schema: String = sqlx::query_scalar("select current_schema()::text")
        .persistent(false)
        .fetch_one(&mut *connection)
        .await
        .map_err(fail)?;
    let named = [(Role::Controller, &roles.controller), (Role::Gateway, &roles.gateway)];
    let named: Vec<_> = named.into_iter().filter_map(|(role, name)| name.as_deref().map(|name| (role, name))).collect();
    let mut script = String::new();
    for &(role, name) in &named {
        must_exist(connection, role, name).await?;
        // Who owns the tables has every right by that, and needs them to migrate again. All is taken before anything is given, so
        // that one role may serve for both.
        if name != owner {
            script.push_str(&format!("revoke all on {}, {VERSIONS} from {};", TABLES.join(", "), quoted(name)));
        }
    }
    for &(role, name) in named.iter().filter(|(_, name)| *name != owner) {
        let name = quoted(name);
        script.push_str(&format!("grant usage on schema {} to {name};", quoted(&schema)));
        for Right { table, privilege, columns } in rights(role) {
            let columns = if columns.is_empty() { String::new() } else { format!(" ({})", columns.join(", ")) };
            script.push_str(&format!("grant {privilege}{columns} on {table} to {name};"));
        }
    }
    sqlx::raw_sql(AssertSqlSafe(script)).execute(connection).await.map_err(fail).map(drop)
}

async fn must_exist(connection: &mut PgConnection, role: Role, name: &str) -> Result<()> {
    let found = sqlx::query("select 1 from pg_roles where rolname = $1").persistent(false).bind(name);
    match found.fetch_optional(connection).await.map_err(|error| failed(GRANTING, &error))? {
        Some(_) => Ok(()),
        None => Err(StoreError::Unusable(format!(
            "the database has no role {name:?} for the {role}: create it (it needs no rights of its own), then run `agentsession migrate` again"
        ))),
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Asks what this connection's role lacks. Also whether schema and encoding are what this build needs.
pub(super) struct Check(pub Role);

#[async_trait]
impl Op for Check {
    type Out = Vec<String>;
    const NAME: &'static str = "checking the schema and its grants";
    const WRITES: bool = false;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<String>> {
        const ENCODING: &str = "select 1 where current_setting('server_encoding') = 'UTF8'";
        const EXISTS: &str = "select 1 where to_regclass($1) is not null";
        const TABLE: &str = "select 1 where has_table_privilege($1, $2)";
        const COLUMN: &str = "select 1 where has_column_privilege($1, $2, $3)";
        const VERSION: &str = "select 1 from _sqlx_migrations where success and version >= $1 limit 1";

        if tx.execute(ENCODING, &[]).await? == 0 {
            return Err(StoreError::Unusable(
                "the database must have the encoding UTF8: create it anew with it".to_owned(),
            ));
        }
        for table in TABLES.iter().chain([&VERSIONS]) {
            if tx.execute(EXISTS, &[Arg::Text(table)]).await? == 0 {
                return Err(StoreError::Unusable(format!(
                    "the database has no table {table}: run `agentsession migrate`"
                )));
            }
        }
        let mut missing = Vec::new();
        for Right { table, privilege, columns } in rights(self.0) {
            if columns.is_empty() && tx.execute(TABLE, &[Arg::Text(table), Arg::Text(privilege)]).await? == 0 {
                missing.push(format!("{privilege} on {table}"));
            }
            for column in columns {
                let args = [Arg::Text(table), Arg::Text(column), Arg::Text(privilege)];
                if tx.execute(COLUMN, &args).await? == 0 {
                    missing.push(format!("{privilege} ({column}) on {table}"));
                }
            }
        }
        let needed = migrations::newest(&MIGRATIONS);
        if missing.is_empty() && tx.execute(VERSION, &[Arg::Int(needed)]).await? == 0 {
            return Err(StoreError::Unusable(format!(
                "the schema is older than version {needed}, which this build needs: run `agentsession migrate`"
            )));
        }
        Ok(missing)
    }
}
