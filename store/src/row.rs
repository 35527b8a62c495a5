//! From rows to records, the same for both backends.

use std::{collections::BTreeMap, str::FromStr};

use jiff::Timestamp;
use sqlx::{
    ColumnIndex, Decode, Postgres, Row, Sqlite, Type,
    error::BoxDynError,
    postgres::{PgTypeInfo, PgValueRef},
    sqlite::{SqliteTypeInfo, SqliteValueRef},
};
use transcript::{Attempt, PodUid, Seq, SessionUid, Turn};

use crate::{Result, SessionRecord, StoreError, TurnRecord};

/// A time of the store's clock: `timestamptz` in Postgres, microseconds since 1970 in SQLite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment(pub Timestamp);

/// Microseconds from 1970 to 2000, where the time of Postgres begins.
pub(crate) const POSTGRES_EPOCH_MICROS: i64 = 946_684_800_000_000;

impl Type<Postgres> for Moment {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("timestamptz")
    }

    fn compatible(ty: &PgTypeInfo) -> bool {
        sqlx::TypeInfo::name(ty).eq_ignore_ascii_case("timestamptz")
    }
}

impl Type<Sqlite> for Moment {
    fn type_info() -> SqliteTypeInfo {
        <i64 as Type<Sqlite>>::type_info()
    }

    fn compatible(ty: &SqliteTypeInfo) -> bool {
        <i64 as Type<Sqlite>>::compatible(ty)
    }
}

impl<'r> Decode<'r, Postgres> for Moment {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        let since_2000 = i64::from_be_bytes(value.as_bytes()?.try_into()?);
        let micros = since_2000.checked_add(POSTGRES_EPOCH_MICROS).ok_or("a time out of range")?;
        Ok(Self(Timestamp::from_microsecond(micros)?))
    }
}

impl<'r> Decode<'r, Sqlite> for Moment {
    fn decode(value: SqliteValueRef<'r>) -> Result<Self, BoxDynError> {
        Ok(Self(Timestamp::from_microsecond(<i64 as Decode<'r, Sqlite>>::decode(value)?)?))
    }
}

/// A session row with the counter that is not part of its record.
#[derive(Clone, Debug)]
pub(crate) struct SessionRow {
    pub record: SessionRecord,
    /// Parts stored, by turn.
    pub turn_parts: BTreeMap<u32, u32>,
}

impl SessionRow {
    pub(crate) fn parts_of(&self, turn: Turn) -> u32 {
        self.turn_parts.get(&turn.0).copied().unwrap_or(0)
    }
}

/// One column, or the error that names it.
pub(crate) fn column<'r, T, R>(row: &'r R, name: &'static str) -> Result<T>
where
    R: Row,
    T: Decode<'r, R::Database> + Type<R::Database>,
    &'static str: ColumnIndex<R>,
{
    row.try_get(name).map_err(|error| StoreError::Corrupt(format!("column {name}: {error}")))
}

/// A stored number as the narrower type that it must fit.
pub(crate) fn narrow<T: TryFrom<i64>>(value: i64, name: &'static str) -> Result<T> {
    T::try_from(value).map_err(|_| StoreError::Corrupt(format!("column {name}: {value} is out of range")))
}

fn word<T: FromStr<Err = transcript::reason::UnknownWord>>(word: &str) -> Result<T> {
    word.parse().map_err(|error: transcript::reason::UnknownWord| StoreError::Corrupt(error.to_string()))
}

fn optional_word<T: FromStr<Err = transcript::reason::UnknownWord>>(text: Option<&str>) -> Result<Option<T>> {
    text.map(word).transpose()
}

fn json<T: serde::de::DeserializeOwned>(text: &str, name: &'static str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| StoreError::Corrupt(format!("column {name}: {error}")))
}

/// Reads a row of `agent_sessions`.
pub(crate) fn session<R>(row: &R) -> Result<SessionRow>
where
    R: Row,
    for<'r> i64: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> String: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> Option<Moment>: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> Moment: Decode<'r, R::Database> + Type<R::Database>,
    &'static str: ColumnIndex<R>,
{
    Ok(SessionRow {
        record: SessionRecord {
            uid: SessionUid(column(row, "session_uid")?),
            namespace: column(row, "namespace")?,
            namespace_uid: column(row, "namespace_uid")?,
            name: column(row, "name")?,
            mode: column(row, "mode")?,
            attempt: Attempt(narrow(column(row, "attempt")?, "attempt")?),
            nonce: column(row, "nonce")?,
            parts: narrow(column(row, "parts")?, "parts")?,
            bytes: narrow(column(row, "bytes")?, "bytes")?,
            last_seq: Seq(narrow(column(row, "last_seq")?, "last_seq")?),
            created_at: column::<Moment, R>(row, "created_at")?.0,
            last_activity_at: column::<Moment, R>(row, "last_activity_at")?.0,
            deleted_at: column::<Option<Moment>, R>(row, "deleted_at")?.map(|moment| moment.0),
        },
        turn_parts: json(&column::<String, R>(row, "turn_parts")?, "turn_parts")?,
    })
}

/// Reads a row of `agent_session_turns`. Its count of parts stands on the session's row and is filled in later.
pub(crate) fn turn<R>(row: &R) -> Result<TurnRecord>
where
    R: Row,
    for<'r> i64: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> Option<i64>: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> String: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> Option<String>: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> Option<Moment>: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> Moment: Decode<'r, R::Database> + Type<R::Database>,
    &'static str: ColumnIndex<R>,
{
    let text = |name| column::<Option<String>, R>(row, name);
    let moment = |name| column::<Option<Moment>, R>(row, name).map(|found| found.map(|moment| moment.0));
    Ok(TurnRecord {
        turn: Turn(narrow(column(row, "turn")?, "turn")?),
        client_id: text("client_id")?,
        prompt: column(row, "prompt")?,
        state: word(&column::<String, R>(row, "state")?)?,
        attempt: column::<Option<i64>, R>(row, "attempt")?
            .map(|attempt| narrow(attempt, "attempt").map(Attempt))
            .transpose()?,
        pod_uid: text("pod_uid")?.map(PodUid),
        image: text("image")?,
        outcome: optional_word(text("outcome")?.as_deref())?,
        reason: optional_word(text("reason")?.as_deref())?,
        verdict: optional_word(text("verdict")?.as_deref())?,
        verdict_reason: optional_word(text("verdict_reason")?.as_deref())?,
        message: text("message")?,
        parts: 0,
        usage: text("usage")?.map(|usage| json(&usage, "usage")).transpose()?,
        accepted_at: column::<Moment, R>(row, "accepted_at")?.0,
        started_at: moment("started_at")?,
        settled_at: moment("settled_at")?,
    })
}
