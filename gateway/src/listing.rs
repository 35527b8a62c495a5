//! `GET …/agentsessions` and `GET …/agentsessions/{name}`: what there is and what became of it, without any content.

use std::{cmp::Reverse, collections::HashMap};

use axum::{
    Json,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use futures::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use store::{SessionRecord, TurnRecord};
use transcript::SessionUid;

use crate::{
    Gateway,
    cluster::LiveSession,
    error::ApiError,
    ledger::{SessionView, TurnView},
    query::{ListQuery, SessionQuery},
    routes::{NamespacePath, SessionPath, no_store},
};

/// Ledgers read at once for one list.
const ABREAST: usize = 4;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List {
    sessions: Vec<SessionView>,
    /// Whether there are more than the limit.
    has_more: bool,
}

#[derive(Serialize)]
struct Description {
    session: SessionView,
    turns: Vec<TurnView>,
}

/// The sessions of a namespace, newest first: those that exist, and those that are gone and left something.
pub(crate) async fn list(
    State(gateway): State<Gateway>,
    NamespacePath(namespace): NamespacePath,
    headers: HeaderMap,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let reader = gateway.open_namespace(&headers, &namespace).await?;
    let live = gateway.inner.cluster.sessions(&namespace).await.map_err(ApiError::Cluster)?;
    let mut has_more = live.cut;
    let mut live: HashMap<SessionUid, LiveSession> =
        live.sessions.into_iter().map(|session| (session.uid.clone(), session)).collect();
    // One more than is shown, to know whether there are more.
    let records =
        gateway.inner.store.list_sessions(&namespace, query.limit.saturating_add(1)).await.map_err(ApiError::Store)?;
    let records = gateway.of_this_namespace(&reader, &namespace, records).await?;
    // Counted after the filter: what is another namespace's is not even a number here.
    has_more |= records.len() > query.limit as usize;
    let pairs: Vec<(SessionRecord, Option<LiveSession>)> = records
        .into_iter()
        .map(|record| {
            let live = live.remove(&record.uid);
            (record, live)
        })
        .collect();
    let mut sessions: Vec<SessionView> = stream::iter(pairs)
        .map(|(record, live)| summary(&gateway, record, live))
        .buffered(ABREAST)
        .try_collect()
        .await?;
    sessions.extend(live.into_values().map(|live| SessionView::unseen(&namespace, live)));
    sessions.sort_by_key(|session| Reverse(session.created_at()));
    has_more |= sessions.len() > query.limit as usize;
    sessions.truncate(query.limit as usize);
    Ok(no_store(Json(List { sessions, has_more }).into_response()))
}

/// One session with its turns.
pub(crate) async fn describe(
    State(gateway): State<Gateway>,
    SessionPath { namespace, name }: SessionPath,
    headers: HeaderMap,
    query: SessionQuery,
) -> Result<Response, ApiError> {
    let (_, found) = gateway.open_session(&headers, &namespace, &name, query.uid.as_ref()).await?;
    let description = match (found.record, found.live) {
        (Some(record), live) => {
            let (record, turns) = current(&gateway, record).await?;
            let session = SessionView::stored(record, &turns, live.as_ref());
            Description { session, turns: turns.into_iter().map(TurnView::brief).collect() }
        }
        (None, Some(live)) => Description { session: SessionView::unseen(&namespace, live), turns: Vec::new() },
        (None, None) => return Err(ApiError::SessionNotFound { namespace, name }),
    };
    Ok(no_store(Json(description).into_response()))
}

async fn summary(gateway: &Gateway, record: SessionRecord, live: Option<LiveSession>) -> Result<SessionView, ApiError> {
    let (record, turns) = current(gateway, record).await?;
    Ok(SessionView::stored(record, &turns, live.as_ref()))
}

/// The record and its turns in one snapshot. A session that was deleted in between stays as it was found, without turns.
async fn current(gateway: &Gateway, found: SessionRecord) -> Result<(SessionRecord, Vec<TurnRecord>), ApiError> {
    let ledger = gateway.inner.store.ledger(&found.uid).await.map_err(ApiError::Store)?;
    Ok((ledger.session.unwrap_or(found), ledger.turns))
}
