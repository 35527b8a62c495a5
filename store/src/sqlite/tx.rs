//! A transaction of SQLite.

use std::{fmt::Write as _, sync::LazyLock};

use async_trait::async_trait;
use futures::TryStreamExt;
use jiff::Timestamp;
use sqlx::{
    AssertSqlSafe, Sqlite, SqliteConnection,
    query::Query,
    sqlite::{SqliteArguments, SqliteRow},
};
use transcript::{SessionUid, Turn};

use crate::{
    PartPage, Result, StoreError, TurnRecord,
    classify::failed,
    ops::{Arg, Place, Present, Tx},
    pages::{After, ReadPage, stored_part},
    plan::{Entry, clean, size},
    row::{self, Moment, SessionRow, column, narrow},
    statements::{SQLITE, Statements},
};

/// Rows of one insert statement: past about a hundred the gain is gone (measured).
const ROWS: usize = 100;

/// The statement for each power of two up to [`ROWS`], and for `ROWS` itself at the end: few texts, so that each stays prepared.
static INSERTS: LazyLock<Vec<(usize, String)>> = LazyLock::new(|| {
    let sizes = (0..).map(|power| 1 << power).take_while(|&rows| rows < ROWS).chain([ROWS]);
    sizes.map(|rows| (rows, insert_statement(rows))).collect()
});

fn insert_statement(rows: usize) -> String {
    let mut sql =
        "insert into agent_session_parts (session, turn, created_at, part_index, id, digest, part) values ".to_owned();
    for row in 0..rows {
        let first = 4 + row * 4;
        let comma = if row == 0 { "" } else { ", " };
        // Writing to a String cannot fail.
        let _ = write!(sql, "{comma}($1, $2, $3, ${first}, ${}, ${}, ${})", first + 1, first + 2, first + 3);
    }
    sql
}

/// All in one text: a row a part would cost more than to insert the parts that are missing.
const PRESENT: &str = "select group_concat(part_index || ' ' || digest, ' ') as present from agent_session_parts \
     where session = (select id from agent_sessions where session_uid = $1) and turn = $2 and part_index between $3 and $4";

const SESSION_ID: &str = "select id from agent_sessions where session_uid = $1";

/// Bits of a part's id that are its seq; those above are the session's id.
const SEQ_BITS: u32 = 32;
const LAST_SEQ: i64 = (1 << SEQ_BITS) - 1;

const PAGE_BY_IDENTITY: &str = "select id & 4294967295 as seq, turn, part_index, part, created_at from agent_session_parts \
     where session = (select id from agent_sessions where session_uid = $1) and (turn, part_index) > ($2, $3) \
     order by turn, part_index limit $4";

const PAGE_BY_SEQ: &str = "select id & 4294967295 as seq, turn, part_index, part, created_at from agent_session_parts \
     where id > (select id << 32 from agent_sessions where session_uid = $1) + $2 \
     and id <= (select id << 32 from agent_sessions where session_uid = $1) + 4294967295 and $3 = 0 order by id limit $4";

/// An open transaction. Whoever opened it commits it.
pub(super) struct SqliteTx<'c> {
    pub connection: &'c mut SqliteConnection,
    pub operation: &'static str,
}

impl SqliteTx<'_> {
    async fn rows(&mut self, sql: &'static str, args: &[Arg<'_>]) -> Result<Vec<SqliteRow>> {
        let rows = bind(sql, args).fetch_all(&mut *self.connection).await;
        rows.map_err(|error| failed(self.operation, &error))
    }
}

/// Reads "index digest index digest …".
fn pairs(text: &str) -> Option<Vec<(u32, i64)>> {
    let mut numbers = text.split_ascii_whitespace();
    let mut pairs = Vec::new();
    while let Some(index) = numbers.next() {
        pairs.push((index.parse().ok()?, numbers.next()?.parse().ok()?));
    }
    Some(pairs)
}

fn bind<'q>(sql: &'static str, args: &[Arg<'_>]) -> Query<'q, Sqlite, SqliteArguments> {
    args.iter().fold(sqlx::query(sql), |query, arg| match *arg {
        Arg::Int(value) => query.bind(value),
        Arg::OptInt(value) => query.bind(value),
        Arg::Text(text) => query.bind(clean(text).into_owned()),
        Arg::OptText(text) => query.bind(text.map(|text| clean(text).into_owned())),
    })
}

#[async_trait]
impl Tx for SqliteTx<'_> {
    fn statements(&self) -> &'static Statements {
        &SQLITE
    }

    async fn now(&mut self) -> Result<Timestamp> {
        let row = sqlx::query(SQLITE.now).fetch_one(&mut *self.connection).await;
        let row = row.map_err(|error| failed(self.operation, &error))?;
        Ok(column::<Moment, _>(&row, "now")?.0)
    }

    async fn execute(&mut self, sql: &'static str, args: &[Arg<'_>]) -> Result<u64> {
        let done = bind(sql, args).execute(&mut *self.connection).await;
        Ok(done.map_err(|error| failed(self.operation, &error))?.rows_affected())
    }

    async fn sessions(&mut self, sql: &'static str, args: &[Arg<'_>]) -> Result<Vec<SessionRow>> {
        self.rows(sql, args).await?.iter().map(row::session).collect()
    }

    async fn turns(&mut self, sql: &'static str, args: &[Arg<'_>]) -> Result<Vec<TurnRecord>> {
        self.rows(sql, args).await?.iter().map(row::turn).collect()
    }

    async fn runs(&mut self, sql: &'static str, args: &[Arg<'_>]) -> Result<Vec<(u32, u32)>> {
        let run =
            |row: &SqliteRow| Ok((narrow(column(row, "first")?, "first")?, narrow(column(row, "last")?, "last")?));
        self.rows(sql, args).await?.iter().map(run).collect()
    }

    async fn present(&mut self, session: &SessionUid, turn: Turn, first: u32, last: u32) -> Result<Present> {
        let now_micros = self.now().await?.as_microsecond();
        let args = [
            Arg::Text(session.as_str()),
            Arg::Int(i64::from(turn.0)),
            Arg::Int(i64::from(first)),
            Arg::Int(i64::from(last)),
        ];
        let row = bind(PRESENT, &args).fetch_one(&mut *self.connection).await;
        let row = row.map_err(|error| failed(self.operation, &error))?;
        let text = column::<Option<String>, _>(&row, "present")?.unwrap_or_default();
        let parts =
            pairs(&text).ok_or_else(|| StoreError::Corrupt("the indexes of a turn are no numbers".to_owned()))?;
        Ok(Present { parts, now_micros })
    }

    async fn page(&mut self, page: &ReadPage) -> Result<PartPage> {
        let sql = match page.after {
            After::Identity(_) => PAGE_BY_IDENTITY,
            After::Seq(_) => PAGE_BY_SEQ,
        };
        let (first, second) = page.after.cursor();
        let first = first.min(LAST_SEQ);
        let args = [Arg::Text(page.session.as_str()), Arg::Int(first), Arg::Int(second), Arg::Int(page.rows_wanted())];
        let mut rows = bind(sql, &args).fetch(&mut *self.connection);
        let mut found = PartPage::default();
        let mut bytes = 0;
        // Rows are read as they come, so what does not fit the page is hardly read at all.
        while let Some(row) = rows.try_next().await.map_err(|error| failed(self.operation, &error))? {
            let part = stored_part(&row)?;
            bytes += size(&part.part);
            let full = i64::try_from(found.parts.len()).unwrap_or(i64::MAX) + 1 >= page.rows_wanted()
                || bytes > page.limit.bytes;
            if full && !found.parts.is_empty() {
                found.has_more = true;
                break;
            }
            found.parts.push(part);
        }
        Ok(found)
    }

    async fn insert(&mut self, at: Place<'_>, fresh: &[&Entry<'_>]) -> Result<()> {
        let row = bind(SESSION_ID, &[Arg::Text(at.session.as_str())]).fetch_one(&mut *self.connection).await;
        let session: i64 = column(&row.map_err(|error| failed(self.operation, &error))?, "id")?;
        let mut id = (session << SEQ_BITS) + at.first_seq;
        let mut rest = fresh;
        for (rows, sql) in INSERTS.iter().rev() {
            while rest.len() >= *rows {
                let (chunk, after) = rest.split_at(*rows);
                let start = sqlx::query(AssertSqlSafe(sql.as_str()))
                    .bind(session)
                    .bind(i64::from(at.turn.0))
                    .bind(at.now_micros);
                let query = chunk.iter().zip(id..).fold(start, |query, (entry, id)| {
                    query.bind(i64::from(entry.index)).bind(id).bind(entry.digest()).bind(entry.text.shared())
                });
                query.execute(&mut *self.connection).await.map_err(|error| failed(self.operation, &error))?;
                id += i64::try_from(*rows).unwrap_or(i64::MAX);
                rest = after;
            }
        }
        Ok(())
    }
}
