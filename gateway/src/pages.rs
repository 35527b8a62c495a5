//! `GET …/transcript`: stored parts in insertion order, page by page, with the turn records.

use std::convert::Infallible;

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures::stream;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use store::StoredPart;
use tokio::sync::OwnedSemaphorePermit;
use transcript::{PartIndex, Seq, SessionUid, Turn};

use crate::{
    Gateway,
    error::ApiError,
    ledger::TurnView,
    query::PageQuery,
    routes::{SessionPath, no_store},
};

/// A body frame.
const CHUNK: usize = 64 << 10;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    uid: SessionUid,
    turns: Vec<TurnView>,
    rows: Vec<Row>,
    /// What to ask for next: the seq of the last row, or what was asked for when there is none.
    next_after_seq: Seq,
    has_more: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    seq: Seq,
    turn: Turn,
    part_index: PartIndex,
    /// The part, byte for byte as it is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<Box<RawValue>>,
    /// A stored text that is not JSON, in place of `part`: it must not fail its neighbours.
    #[serde(skip_serializing_if = "Option::is_none")]
    part_text: Option<String>,
    created_at: Timestamp,
}

impl From<StoredPart> for Row {
    fn from(stored: StoredPart) -> Self {
        let StoredPart { seq, turn, index, part, created_at } = stored;
        let (part, part_text) = match serde_json::from_str::<&RawValue>(&part) {
            // The parser leaves out blanks at the ends; a text that has some goes out as it is, too.
            Ok(raw) if raw.get().len() == part.len() => (RawValue::from_string(part).ok(), None),
            Ok(raw) => (Some(raw.to_owned()), None),
            Err(_) => (None, Some(part)),
        };
        Self { seq, turn, part_index: index, part, part_text, created_at }
    }
}

/// One page.
///
/// The turn records are read before the rows: a turn that they call settled has all its rows in this page or in those after it.
pub(crate) async fn transcript(
    State(gateway): State<Gateway>,
    SessionPath { namespace, name }: SessionPath,
    headers: HeaderMap,
    query: PageQuery,
) -> Result<Response, ApiError> {
    let (_, found) = gateway.open_session(&headers, &namespace, &name, query.uid.as_ref()).await?;
    // Waits; the time limit of the request is the bound of it.
    let permit = gateway.inner.pages.clone().acquire_owned().await.map_err(|_| ApiError::Busy("pages"))?;
    let store = &gateway.inner.store;
    let page = match (found.record, found.live) {
        (Some(record), _) => {
            let ledger = store.ledger(&record.uid).await.map_err(ApiError::Store)?;
            let page = store.rows(&record.uid, query.after, query.limit).await.map_err(ApiError::Store)?;
            Page {
                uid: record.uid,
                turns: ledger.turns.into_iter().map(TurnView::whole).collect(),
                next_after_seq: page.parts.last().map_or(query.after, |last| last.seq),
                rows: page.parts.into_iter().map(Row::from).collect(),
                has_more: page.has_more,
            }
        }
        (None, Some(live)) => {
            Page { uid: live.uid, turns: Vec::new(), rows: Vec::new(), next_after_seq: query.after, has_more: false }
        }
        (None, None) => return Err(ApiError::SessionNotFound { namespace, name }),
    };
    Ok(no_store(held(&page, permit)))
}

/// The page as an answer that keeps its permit until the client has taken it all: pages are large, and clients may be slow.
fn held(page: &Page, permit: OwnedSemaphorePermit) -> Response {
    let bytes = match serde_json::to_vec(page) {
        Ok(bytes) => Bytes::from(bytes),
        // Nothing in a page can fail to be written; were it so, the record is what is broken.
        Err(error) => {
            tracing::error!(%error, "a page could not be written");
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
    };
    let length = bytes.len();
    let chunks = stream::unfold((bytes, permit), |(mut rest, permit)| async move {
        if rest.is_empty() {
            return None;
        }
        let chunk = rest.split_to(rest.len().min(CHUNK));
        Some((Ok::<_, Infallible>(chunk), (rest, permit)))
    });
    let mut response = Response::new(Body::from_stream(chunks));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(part: &str) -> String {
        let stored = StoredPart {
            seq: Seq(7),
            turn: Turn(1),
            index: PartIndex(3),
            part: part.to_owned(),
            created_at: "2026-11-30T18:00:00Z".parse().unwrap(),
        };
        serde_json::to_string(&Row::from(stored)).unwrap()
    }

    #[test]
    fn a_part_is_embedded_byte_for_byte() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        for part in [
            r#"{"z":1.0,"a":1e400,"m":12345678901234567890123,"z":"\ud83d"}"#,
            r#"{"type":"text-delta","delta":"a\u0000b\\u0000"}"#,
            "{ \"type\" : \"x\" }",
            &deep,
        ] {
            assert_eq!(
                row(part),
                format!(r#"{{"seq":7,"turn":1,"partIndex":3,"part":{part},"createdAt":"2026-11-30T18:00:00Z"}}"#)
            );
        }
    }

    #[test]
    fn what_is_not_json_is_given_as_text_and_fails_nobody() {
        for part in ["{", "", "nope", "{\"a\":1} x", "\"\u{1}\""] {
            let json: serde_json::Value = serde_json::from_str(&row(part)).unwrap();
            assert_eq!(json["partText"], part);
            assert!(json.get("part").is_none());
        }
    }
}
