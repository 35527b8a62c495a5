//! `GET …/stream`: the stored transcript as an AI SDK UI message stream.
//!
//! The body is pulled: nothing is read from the store before the client has taken what was read so far, each page is a transaction of its own, and
//! nothing is held but one page and one chunk. So a slow reader costs a page, and slows nobody.
//!
//! Whatever happens, the body ends legally: with all that is stored, or with a note that the store failed. Only a right that was lost, a shutdown or a reader
//! that takes nothing break it off, and then no end is pretended.

use std::{io, pin::Pin, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, header},
    response::Response,
};
use futures::future::BoxFuture;
use store::{PageLimit, PartPage, SharedStore, StoreError, StoredPart, TurnRecord};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};
use transcript::{
    PartIndex, SessionUid, Turn,
    replay::{Replay, ReplayOptions, ReplayTurn},
};

use crate::{
    Gateway,
    error::{ApiError, chain, heals},
    gate::{Found, Reader},
    guard::AccessGuard,
    metrics::{OpenStream, StreamEnd},
    names::shown,
    query::{Cursor, StreamQuery},
    routes::{SessionPath, nothing},
};

/// A body frame: one frame a part is some 50 times slower.
const CHUNK: usize = 64 << 10;
/// What is read at once, and held.
const PAGE: PageLimit = PageLimit { rows: 1000, bytes: 1 << 20 };
/// The longest silence of a stream.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Between two tries of a store that fails.
const RETRY: Duration = Duration::from_secs(1);
/// An index that no turn reaches, and that every column type holds.
const PAST_ANY_INDEX: PartIndex = PartIndex(i32::MAX.unsigned_abs());

const FAILED: &str =
    "the transcript store could not be read any further: what came before this is right, read again from here later";
const FORGOTTEN: &str =
    "the transcript store does not know the turns of this session: they are being recorded anew, or it has lost them";

/// The stream of a session; 204 when no turn of it was ever accepted.
pub(crate) async fn stream(
    State(gateway): State<Gateway>,
    SessionPath { namespace, name }: SessionPath,
    headers: HeaderMap,
    query: StreamQuery,
) -> Result<Response, ApiError> {
    let (reader, found) = gateway.open_session(&headers, &namespace, &name, query.uid.as_ref()).await?;
    let accepted = found.live.as_ref().map_or(0, |live| live.accepted_turns);
    let (session, turns) = match turns(&gateway, &found).await? {
        Some(known) => known,
        None => return Err(ApiError::SessionNotFound { namespace, name }),
    };
    if turns.is_empty() && accepted == 0 {
        return Ok(nothing());
    }
    check_cursor(query.after, &turns)?;
    let permit = gateway.inner.streams.clone().try_acquire_owned().map_err(|_| ApiError::Busy("streams"))?;
    let body = ReplayBody::new(&gateway, reader, permit, session, turns, &query);
    let chunks = futures::stream::unfold(body, ReplayBody::next);
    Ok(event_stream(Body::from_stream(chunks)))
}

/// The session's UID and turns, in one snapshot that is taken before any part is read: a turn that it calls settled is then replayed whole.
/// `None` when the store has dropped the session since it was found.
async fn turns(gateway: &Gateway, found: &Found) -> Result<Option<(SessionUid, Vec<TurnRecord>)>, ApiError> {
    match (&found.record, &found.live) {
        (Some(record), _) => {
            let ledger = gateway.inner.store.ledger(&record.uid).await.map_err(ApiError::Store)?;
            Ok(ledger.session.map(|session| (session.uid, ledger.turns)))
        }
        (None, Some(live)) => Ok(Some((live.uid.clone(), Vec::new()))),
        (None, None) => Ok(None),
    }
}

/// A cursor must be in a turn of this session: one of another session, or from before a restore, would silently skip what the client never saw.
fn check_cursor(after: Option<Cursor>, turns: &[TurnRecord]) -> Result<(), ApiError> {
    match after {
        Some(after) if turns.iter().all(|turn| turn.turn != after.turn) => {
            let cursor = format!("{}.{}", after.turn, after.index);
            Err(ApiError::InvalidParameter(format!(
                "the cursor {} is in a turn that this session does not have: it is one of another session; leave it out to read from the start",
                shown(&cursor)
            )))
        }
        _ => Ok(()),
    }
}

fn event_stream(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache, no-transform"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (HeaderName::from_static("x-accel-buffering"), "no"),
        (HeaderName::from_static("x-vercel-ai-ui-message-stream"), "v1"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// What is to be done next.
enum Stage {
    /// Parts of a page that was read.
    Page(std::vec::IntoIter<StoredPart>),
    /// A page is being read.
    Reading(BoxFuture<'static, Result<PartPage, StoreError>>),
    /// The end is written.
    Over,
}

/// A replay on its way to one client.
struct ReplayBody {
    store: SharedStore,
    session: SessionUid,
    /// Turns that were accepted after the snapshot belong to the next reading.
    last_turn: Option<Turn>,
    /// Taken when the end is written.
    replay: Option<Replay>,
    /// The last identity that was read.
    cursor: Option<(Turn, PartIndex)>,
    has_more: bool,
    stage: Stage,
    out: Vec<u8>,
    /// Since when the present page is waited for.
    waiting: Instant,
    /// How long a page may be waited for, over all tries.
    patience: Duration,
    guard: AccessGuard,
    open: OpenStream,
    _permit: OwnedSemaphorePermit,
}

/// What became of waiting for a page.
enum Waited {
    Page(Result<PartPage, StoreError>),
    Silence,
    AccessLost,
}

impl ReplayBody {
    fn new(
        gateway: &Gateway,
        reader: Reader,
        permit: OwnedSemaphorePermit,
        session: SessionUid,
        turns: Vec<TurnRecord>,
        query: &StreamQuery,
    ) -> Self {
        let inner = &gateway.inner;
        let after = query.after.map(|after| (after.turn, after.index));
        let last_turn = turns.last().map(|turn| turn.turn);
        let options = ReplayOptions { after, coalesce: query.coalesce };
        let mut replay = Replay::new(&session, turns.into_iter().map(replay_turn).collect(), options);
        let mut out = Vec::with_capacity(CHUNK);
        replay.begin(&mut out);
        Self {
            store: inner.store.clone(),
            session,
            last_turn,
            replay: Some(replay),
            // The turn of the cursor is read from its start: what is open at the cursor stands before it.
            cursor: after.and_then(|(turn, _)| Some((Turn(turn.0.checked_sub(1)?), PAST_ANY_INDEX))),
            has_more: true,
            stage: Stage::Page(Vec::new().into_iter()),
            out,
            waiting: Instant::now(),
            patience: inner.args.http_store_patience,
            guard: AccessGuard::watch(
                inner.access.clone(),
                reader.token,
                reader.scopes,
                inner.args.http_recheck_interval,
            ),
            open: inner.metrics.stream(),
            _permit: permit,
        }
    }

    /// The next chunk of the body.
    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        loop {
            match &mut self.stage {
                Stage::Page(parts) => match parts.next() {
                    Some(part) => {
                        self.push(&part);
                        if self.out.len() >= CHUNK {
                            return Some(self.chunk());
                        }
                    }
                    // What is ready goes out before anything is waited for.
                    None if self.has_more && !self.out.is_empty() => return Some(self.chunk()),
                    None if self.has_more => self.read(Duration::ZERO),
                    None => self.finish(),
                },
                Stage::Reading(page) => match wait(page, &self.guard, self.waiting + self.patience).await {
                    Waited::Page(Ok(page)) => self.take(page),
                    Waited::Page(Err(error)) if heals(&error) && self.waiting.elapsed() < self.patience => {
                        self.read(RETRY);
                    }
                    Waited::Page(Err(error)) => self.fail(FAILED, &chain(&error)),
                    Waited::Silence if self.waiting.elapsed() >= self.patience => {
                        self.fail(FAILED, "no answer in time");
                    }
                    Waited::Silence => {
                        self.out.extend_from_slice(b": keep-alive\n\n");
                        return Some(self.chunk());
                    }
                    Waited::AccessLost => return Some(self.break_off().await),
                },
                Stage::Over if self.out.is_empty() => return None,
                Stage::Over => return Some(self.chunk()),
            }
        }
    }

    fn chunk(mut self) -> (io::Result<Bytes>, Self) {
        let chunk = Bytes::from(std::mem::replace(&mut self.out, Vec::with_capacity(CHUNK)));
        self.open.sent(chunk.len());
        (Ok(chunk), self)
    }

    fn push(&mut self, part: &StoredPart) {
        if self.last_turn.is_none_or(|last| part.turn > last) {
            self.has_more = false;
            self.stage = Stage::Page(Vec::new().into_iter());
        } else if let Some(replay) = &mut self.replay {
            replay.push(part.turn, part.index, &part.part, &mut self.out);
        }
    }

    /// Begins to read the next page, or the same again after a pause.
    fn read(&mut self, pause: Duration) {
        if self.last_turn.is_none() {
            return self.fail(FORGOTTEN, "the store does not know the turns");
        }
        if pause.is_zero() {
            self.waiting = Instant::now();
        }
        let (store, session, after) = (self.store.clone(), self.session.clone(), self.cursor);
        self.stage = Stage::Reading(Box::pin(async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            store.parts(&session, after, PAGE).await
        }));
    }

    fn take(&mut self, page: PartPage) {
        if let Some(last) = page.parts.last() {
            self.cursor = Some((last.turn, last.index));
        }
        self.has_more = page.has_more;
        self.stage = Stage::Page(page.parts.into_iter());
    }

    fn finish(&mut self) {
        if let Some(replay) = self.replay.take() {
            replay.finish(&mut self.out);
        }
        self.stage = Stage::Over;
        self.open.ended(StreamEnd::Done);
    }

    fn fail(&mut self, message: &str, error: &str) {
        tracing::warn!(session.uid = self.session.as_str(), error, "a stream ends before its end");
        if let Some(replay) = self.replay.take() {
            replay.fail(message, &mut self.out);
        }
        self.has_more = false;
        self.stage = Stage::Over;
        self.open.ended(StreamEnd::StoreFailed);
    }

    /// Ends the body by an error, so that the connection breaks: a client that lost its right must not take this for the end of the conversation.
    async fn break_off(mut self) -> (io::Result<Bytes>, Self) {
        tracing::info!(session.uid = self.session.as_str(), "a stream is cut: its reader's right is gone");
        self.stage = Stage::Over;
        self.open.ended(StreamEnd::AccessLost);
        // An error in the same poll as data throws away what was not flushed yet.
        tokio::task::yield_now().await;
        (Err(io::Error::new(io::ErrorKind::PermissionDenied, "the right to read was lost")), self)
    }
}

/// Waits for a page, but no longer than a client may hear nothing, and not past the deadline.
async fn wait(
    page: &mut Pin<Box<dyn Future<Output = Result<PartPage, StoreError>> + Send>>,
    guard: &AccessGuard,
    deadline: Instant,
) -> Waited {
    let silence = deadline.min(Instant::now() + HEARTBEAT);
    tokio::select! {
        biased;
        () = guard.lost() => Waited::AccessLost,
        page = page => Waited::Page(page),
        () = tokio::time::sleep_until(silence) => Waited::Silence,
    }
}

fn replay_turn(record: TurnRecord) -> ReplayTurn {
    ReplayTurn {
        turn: record.turn,
        prompt: record.prompt,
        state: record.state,
        outcome: record.outcome,
        reason: record.reason,
        verdict: record.verdict,
        verdict_reason: record.verdict_reason,
        message: record.message,
    }
}
