//! Binary COPY of parts that are known to be missing: twice as fast as any insert (measured).

use sqlx::PgConnection;

use crate::{ops::Place, plan::Entry, row::POSTGRES_EPOCH_MICROS};

const STATEMENT: &str = "copy agent_session_parts (seq, created_at, turn, part_index, digest, session_uid, part) from stdin (format binary)";
const COLUMNS: i16 = 7;
/// What begins a binary COPY: signature, no flags, no extension.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// What is sent at once.
const CHUNK: usize = 256 << 10;

/// Sends the parts, numbered from `at.first_seq`.
pub(super) async fn parts(
    connection: &mut PgConnection,
    at: Place<'_>,
    fresh: &[&Entry<'_>],
) -> Result<(), sqlx::Error> {
    let since_2000 = at.now_micros.saturating_sub(POSTGRES_EPOCH_MICROS);
    let mut copy = connection.copy_in_raw(STATEMENT).await?;
    let mut chunk = Vec::with_capacity(CHUNK + (4 << 10));
    chunk.extend_from_slice(HEADER);
    for (entry, seq) in fresh.iter().zip(at.first_seq..) {
        chunk.extend_from_slice(&COLUMNS.to_be_bytes());
        for number in [seq, since_2000, i64::from(at.turn.0), i64::from(entry.index), entry.digest()] {
            field(&mut chunk, &number.to_be_bytes());
        }
        field(&mut chunk, at.session.as_str().as_bytes());
        field(&mut chunk, entry.text.as_bytes());
        if chunk.len() >= CHUNK {
            copy.send(chunk.as_slice()).await?;
            chunk.clear();
        }
    }
    // The end of the rows.
    chunk.extend_from_slice(&(-1_i16).to_be_bytes());
    copy.send(chunk.as_slice()).await?;
    copy.finish().await.map(drop)
}

fn field(chunk: &mut Vec<u8>, bytes: &[u8]) {
    // A part is bounded to 1 MiB long before it comes here; the server refuses a length that does not match.
    let length = i32::try_from(bytes.len()).unwrap_or(i32::MAX);
    chunk.extend_from_slice(&length.to_be_bytes());
    chunk.extend_from_slice(bytes);
}
