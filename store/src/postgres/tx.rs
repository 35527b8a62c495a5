//! A transaction of Postgres.

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::{
    PgConnection, Postgres,
    postgres::{PgArguments, PgRow},
    query::Query,
};
use transcript::{SessionUid, Turn};

use super::copy;
use crate::{
    PartPage, Result, TurnRecord,
    classify::failed,
    ops::{Arg, Place, Present, Tx},
    pages::{After, ReadPage, stored_part},
    plan::{Entry, clean},
    row::{self, Moment, SessionRow, column, narrow},
    statements::{POSTGRES, Statements},
};

/// Both columns as one array each: a row a part would cost more than the parts that are missing.
const PRESENT: &str = "select array_agg(part_index) as indexes, array_agg(digest) as digests, clock_timestamp() as now \
     from agent_session_parts where session_uid = $1 and turn = $2 and part_index between $3 and $4";

/// A page: sizes are summed before any text is read (a long text stands elsewhere and knows its length), so only what fits is sent.
macro_rules! page {
    (where: $condition:literal, by: $order:literal) => {
        concat!(
            "select seq, turn, part_index, part, created_at, available from (select seq, turn, part_index, part, created_at, \
             row_number() over (order by ",
            $order,
            ") as ordinal, sum(octet_length(part)) over (order by ",
            $order,
            ") as bytes, count(*) over () as available from (select seq, turn, part_index, part, created_at from agent_session_parts \
             where session_uid = $1 and ",
            $condition,
            " order by ",
            $order,
            " limit $4) as candidates) as measured where ordinal = 1 or (ordinal < $4 and bytes <= $5) order by ",
            $order
        )
    };
}

const PAGE_BY_IDENTITY: &str = page!(where: "(turn, part_index) > ($2, $3)", by: "turn, part_index");
const PAGE_BY_SEQ: &str = page!(where: "seq > $2 and $3 = 0", by: "seq");

/// An open transaction. Whoever opened it commits it.
pub(super) struct PostgresTx<'c> {
    pub connection: &'c mut PgConnection,
    pub operation: &'static str,
    /// Whether statements may be prepared under a name.
    pub prepared: bool,
}

impl PostgresTx<'_> {
    fn bind<'q>(&self, sql: &'static str, args: &[Arg<'_>]) -> Query<'q, Postgres, PgArguments> {
        args.iter().fold(sqlx::query(sql).persistent(self.prepared), |query, arg| match *arg {
            Arg::Int(value) => query.bind(value),
            Arg::OptInt(value) => query.bind(value),
            Arg::Text(text) => query.bind(clean(text).into_owned()),
            Arg::OptText(text) => query.bind(text.map(|text| clean(text).into_owned())),
        })
    }

    pub(super) async fn rows(&mut self, sql: &'static str, args: &[Arg<'_>]) -> Result<Vec<PgRow>> {
        let rows = self.bind(sql, args).fetch_all(&mut *self.connection).await;
        rows.map_err(|error| failed(self.operation, &error))
    }
}

#[async_trait]
impl Tx for PostgresTx<'_> {
    fn statements(&self) -> &'static Statements {
        &POSTGRES
    }

    async fn now(&mut self) -> Result<Timestamp> {
        let row = self.bind(POSTGRES.now, &[]).fetch_one(&mut *self.connection).await;
        let row = row.map_err(|error| failed(self.operation, &error))?;
        Ok(column::<Moment, _>(&row, "now")?.0)
    }

    async fn execute(&mut self, sql: &'static str, args: &[Arg<'_>]) -> Result<u64> {
        let done = self.bind(sql, args).execute(&mut *self.connection).await;
        Ok(done.map_err(|error| failed(self.operation, &error))?.rows_affected())
    }

    async fn sessions(&mut self, sql: &'static str, args: &[Arg<'_>]) -> Result<Vec<SessionRow>> {
        self.rows(sql, args).await?.iter().map(row::session).collect()
    }

    async fn turns(&mut self, sql: &'static str, args: &[Arg<'_>]) -> Result<Vec<TurnRecord>> {
        self.rows(sql, args).await?.iter().map(row::turn).collect()
    }

    async fn runs(&mut self, sql: &'static str, args: &[Arg<'_>]) -> Result<Vec<(u32, u32)>> {
        let run = |row: &PgRow| Ok((narrow(column(row, "first")?, "first")?, narrow(column(row, "last")?, "last")?));
        self.rows(sql, args).await?.iter().map(run).collect()
    }

    async fn present(&mut self, session: &SessionUid, turn: Turn, first: u32, last: u32) -> Result<Present> {
        let args = [
            Arg::Text(session.as_str()),
            Arg::Int(i64::from(turn.0)),
            Arg::Int(i64::from(first)),
            Arg::Int(i64::from(last)),
        ];
        let row = self.bind(PRESENT, &args).fetch_one(&mut *self.connection).await;
        let row = row.map_err(|error| failed(self.operation, &error))?;
        // Of no rows an aggregate is null.
        let indexes = column::<Option<Vec<i64>>, _>(&row, "indexes")?.unwrap_or_default();
        let digests = column::<Option<Vec<i64>>, _>(&row, "digests")?.unwrap_or_default();
        let parts = indexes.into_iter().zip(digests).map(|(index, digest)| Ok((narrow(index, "part_index")?, digest)));
        Ok(Present {
            parts: parts.collect::<Result<_>>()?,
            now_micros: column::<Moment, _>(&row, "now")?.0.as_microsecond(),
        })
    }

    async fn page(&mut self, page: &ReadPage) -> Result<PartPage> {
        let sql = match page.after {
            After::Identity(_) => PAGE_BY_IDENTITY,
            After::Seq(_) => PAGE_BY_SEQ,
        };
        let (first, second) = page.after.cursor();
        let bytes = i64::try_from(page.limit.bytes).unwrap_or(i64::MAX);
        let args = [
            Arg::Text(page.session.as_str()),
            Arg::Int(first),
            Arg::Int(second),
            Arg::Int(page.rows_wanted()),
            Arg::Int(bytes),
        ];
        let rows = self.rows(sql, &args).await?;
        let available: i64 = rows.first().map(|row| column(row, "available")).transpose()?.unwrap_or(0);
        let has_more = usize::try_from(available).is_ok_and(|available| available > rows.len());
        Ok(PartPage { parts: rows.iter().map(stored_part).collect::<Result<_>>()?, has_more })
    }

    async fn insert(&mut self, at: Place<'_>, fresh: &[&Entry<'_>]) -> Result<()> {
        let sent = copy::parts(self.connection, at, fresh).await;
        sent.map_err(|error| failed(self.operation, &error))
    }
}
