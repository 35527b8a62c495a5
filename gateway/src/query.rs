//! Parameters of a request, read into values; a wrong one is answered with a sentence that says what to write instead.

use axum::{
    extract::{FromRequestParts, Query},
    http::request::Parts,
};
use serde::Deserialize;
use store::PageLimit;
use transcript::{PartIndex, Seq, SessionUid, Turn};

use crate::{error::ApiError, names::shown};

/// What a browser's EventSource sends when it comes back.
const LAST_EVENT_ID: &str = "last-event-id";

/// Every parameter of every route, as text.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Raw {
    uid: Option<String>,
    after: Option<String>,
    coalesce: Option<String>,
    after_seq: Option<String>,
    limit: Option<String>,
}

/// The place in a stream after which a client wants to go on: an identity that was an SSE id before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// The turn.
    pub(crate) turn: Turn,
    /// The last part that the client has.
    pub(crate) index: PartIndex,
}

/// Parameters of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamQuery {
    /// The one session of the name that is meant.
    pub(crate) uid: Option<SessionUid>,
    /// Where to go on.
    pub(crate) after: Option<Cursor>,
    /// Whether adjacent deltas are joined.
    pub(crate) coalesce: bool,
}

/// Parameters of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageQuery {
    /// The one session of the name that is meant.
    pub(crate) uid: Option<SessionUid>,
    /// The last row that the client has; 0 for none.
    pub(crate) after: Seq,
    /// Bound of the page.
    pub(crate) limit: PageLimit,
}

/// Parameters of a description.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionQuery {
    /// The one session of the name that is meant.
    pub(crate) uid: Option<SessionUid>,
}

/// Parameters of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListQuery {
    /// Sessions, at most.
    pub(crate) limit: u32,
}

/// Sessions of a list: by default, and at most.
const LIST_DEFAULT: u32 = 100;
const LIST_MAX: u32 = 500;

async fn raw(parts: &mut Parts) -> Result<Raw, ApiError> {
    Query::<Raw>::from_request_parts(parts, &()).await.map(|Query(raw)| raw).map_err(|_| {
        ApiError::InvalidParameter(
            "the query cannot be read: give each parameter once, as name=value, percent-encoded UTF-8".to_owned(),
        )
    })
}

fn uid(text: Option<String>) -> Option<SessionUid> {
    text.map(SessionUid)
}

fn cursor(field: &str, text: &str) -> Result<Cursor, ApiError> {
    let number = |text: &str| {
        // `u32::from_str` takes a sign; an SSE id of ours never has one.
        text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u32>().ok()).flatten()
    };
    text.split_once('.')
        .and_then(|(turn, index)| Some(Cursor { turn: Turn(number(turn)?), index: PartIndex(number(index)?) }))
        .ok_or_else(|| {
            ApiError::InvalidParameter(format!(
                "{field} is {}, which is no cursor of a stream: give the SSE id of the last part that arrived, <turn>.<partIndex> such as 1.41, \
                 or leave it out to read from the start",
                shown(text)
            ))
        })
}

fn number(field: &str, text: &str, from: u64, to: u64) -> Result<u64, ApiError> {
    match text.parse::<u64>() {
        Ok(number) if number >= from && number <= to && !text.starts_with('+') => Ok(number),
        _ => Err(ApiError::InvalidParameter(format!(
            "{field} is {}: give a whole number from {from} to {to}, or leave it out",
            shown(text)
        ))),
    }
}

/// A number of rows that is at least one and at most `to`.
fn rows(field: &str, text: &str, to: u32) -> Result<u32, ApiError> {
    Ok(u32::try_from(number(field, text, 1, to.into())?).unwrap_or(to))
}

fn flag(field: &str, text: Option<&str>) -> Result<bool, ApiError> {
    match text {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(ApiError::InvalidParameter(format!(
            "{field} is {}: give true or false, or leave it out for false",
            shown(other)
        ))),
    }
}

impl<S: Sync> FromRequestParts<S> for StreamQuery {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let raw = raw(parts).await?;
        // An EventSource that comes back repeats its URL; the header is the newer word.
        let header = parts.headers.get(LAST_EVENT_ID).filter(|value| !value.is_empty());
        let after = match (header, raw.after) {
            (Some(value), _) => Some(cursor("Last-Event-ID", &String::from_utf8_lossy(value.as_bytes()))?),
            (None, Some(text)) => Some(cursor("after", &text)?),
            (None, None) => None,
        };
        Ok(Self { uid: uid(raw.uid), after, coalesce: flag("coalesce", raw.coalesce.as_deref())? })
    }
}

impl<S: Sync> FromRequestParts<S> for PageQuery {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let raw = raw(parts).await?;
        let mut limit = PageLimit::default();
        if let Some(text) = raw.limit {
            limit.rows = rows("limit", &text, limit.rows)?;
        }
        // The store's cursor is a signed number in both backends.
        let after = match raw.after_seq {
            Some(text) => Seq(number("afterSeq", &text, 0, i64::MAX.unsigned_abs())?),
            None => Seq(0),
        };
        Ok(Self { uid: uid(raw.uid), after, limit })
    }
}

impl<S: Sync> FromRequestParts<S> for SessionQuery {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Ok(Self { uid: uid(raw(parts).await?.uid) })
    }
}

impl<S: Sync> FromRequestParts<S> for ListQuery {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let limit = match raw(parts).await?.limit {
            Some(text) => rows("limit", &text, LIST_MAX)?,
            None => LIST_DEFAULT,
        };
        Ok(Self { limit })
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    async fn stream(uri: &str, last_event_id: Option<&str>) -> Result<StreamQuery, String> {
        let mut request = Request::builder().uri(uri);
        if let Some(id) = last_event_id {
            request = request.header(LAST_EVENT_ID, id);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        StreamQuery::from_request_parts(&mut parts, &()).await.map_err(|error| match error {
            ApiError::InvalidParameter(sentence) => sentence,
            other => panic!("{other:?}"),
        })
    }

    async fn page(uri: &str) -> Result<PageQuery, String> {
        let (mut parts, ()) = Request::builder().uri(uri).body(()).unwrap().into_parts();
        PageQuery::from_request_parts(&mut parts, &()).await.map_err(|error| match error {
            ApiError::InvalidParameter(sentence) => sentence,
            other => panic!("{other:?}"),
        })
    }

    fn at(turn: u32, index: u32) -> Option<Cursor> {
        Some(Cursor { turn: Turn(turn), index: PartIndex(index) })
    }

    #[tokio::test]
    async fn the_header_of_a_returning_client_goes_before_its_url() {
        assert_eq!(stream("/?after=1.2", None).await.unwrap().after, at(1, 2));
        assert_eq!(stream("/?after=1.2", Some("3.4")).await.unwrap().after, at(3, 4));
        assert_eq!(stream("/?after=1.2", Some("")).await.unwrap().after, at(1, 2));
        assert_eq!(
            stream("/?coalesce=true&uid=u", None).await.unwrap(),
            StreamQuery { uid: Some("u".into()), after: None, coalesce: true }
        );
    }

    #[tokio::test]
    async fn a_wrong_parameter_is_named_with_its_value_and_the_way_out() {
        for wrong in ["1", "1.", ".1", "+1.1", "1.2.3", "a.b", "1.4294967296", "-1.0"] {
            let sentence = stream(&format!("/?after={}", wrong.replace('+', "%2B")), None).await.unwrap_err();
            assert!(sentence.starts_with(&format!("after is {wrong:?}")) && sentence.contains("1.41"), "{sentence}");
            assert!(stream("/", Some(wrong)).await.unwrap_err().starts_with("Last-Event-ID is "));
        }
        assert!(stream("/?coalesce=yes", None).await.unwrap_err().contains("true or false"));
        assert!(stream("/?after=1.1&after=2.2", None).await.unwrap_err().contains("once"));
        assert!(page("/?limit=0").await.unwrap_err().starts_with("limit is \"0\""));
        assert!(page("/?limit=1001").await.unwrap_err().contains("from 1 to 1000"));
        assert!(page("/?afterSeq=-1").await.unwrap_err().starts_with("afterSeq is"));
        assert!(page("/?afterSeq=9223372036854775808").await.is_err());
    }

    #[tokio::test]
    async fn a_page_has_the_default_bound_unless_asked_for_less() {
        let all = page("/").await.unwrap();
        assert_eq!((all.after, all.limit), (Seq(0), PageLimit { rows: 1000, bytes: 4 << 20 }));
        assert_eq!(page("/?afterSeq=7&limit=1").await.unwrap().limit.rows, 1);
    }
}
