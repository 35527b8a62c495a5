//! Pages of stored parts, in either order.

use async_trait::async_trait;
use sqlx::{ColumnIndex, Decode, Row, Type};
use transcript::{PartIndex, Seq, SessionUid, Turn};

use crate::{
    PageLimit, PartPage, Result, StoredPart,
    ops::{Op, Tx},
    row::{Moment, column, narrow},
};

/// In which order, and after what.
#[derive(Clone, Copy, Debug)]
pub(crate) enum After {
    /// Identity order.
    Identity(Option<(Turn, PartIndex)>),
    /// Insertion order.
    Seq(Seq),
}

impl After {
    /// The two values that a page's statement takes as its cursor.
    pub(crate) fn cursor(self) -> (i64, i64) {
        match self {
            Self::Identity(None) => (-1, -1),
            Self::Identity(Some((turn, index))) => (i64::from(turn.0), i64::from(index.0)),
            Self::Seq(seq) => (i64::try_from(seq.0).unwrap_or(i64::MAX), 0),
        }
    }
}

/// [`parts`](crate::TranscriptStore::parts) and [`rows`](crate::TranscriptStore::rows).
pub(crate) struct ReadPage {
    pub session: SessionUid,
    pub after: After,
    pub limit: PageLimit,
}

impl ReadPage {
    /// Rows to ask for: those of the page and one more, which tells whether more follow.
    pub(crate) fn rows_wanted(&self) -> i64 {
        i64::from(self.limit.rows.max(1)) + 1
    }
}

#[async_trait]
impl Op for ReadPage {
    type Out = PartPage;
    const NAME: &'static str = "reading stored parts";
    const WRITES: bool = false;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<PartPage> {
        tx.page(self).await
    }
}

/// Reads a row of `agent_session_parts`.
pub(crate) fn stored_part<R>(row: &R) -> Result<StoredPart>
where
    R: Row,
    for<'r> i64: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> String: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> Moment: Decode<'r, R::Database> + Type<R::Database>,
    &'static str: ColumnIndex<R>,
{
    Ok(StoredPart {
        seq: Seq(narrow(column(row, "seq")?, "seq")?),
        turn: Turn(narrow(column(row, "turn")?, "turn")?),
        index: PartIndex(narrow(column(row, "part_index")?, "part_index")?),
        part: column(row, "part")?,
        created_at: column::<Moment, R>(row, "created_at")?.0,
    })
}
