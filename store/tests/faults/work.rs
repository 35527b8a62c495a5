//! What the tests of faults do to a store while it fails.

use std::time::Duration;

use agentsession_store::{Appended, NewPart, NewSession, NewTurn, PageLimit, Result, SharedStore, StoredPart, Writer};
use transcript::{Attempt, PartIndex, Seq, SessionUid, Turn};

/// A session whose first turn runs; repeated until the store takes it.
pub async fn writer(store: &SharedStore) -> Writer {
    let uid = SessionUid(uuid::Uuid::new_v4().to_string());
    let session = NewSession {
        uid: uid.clone(),
        namespace: "team".to_owned(),
        namespace_uid: "ns".to_owned(),
        name: "s".to_owned(),
        mode: "Interactive".to_owned(),
    };
    store.ensure_session(&session).await.unwrap();
    let turn = NewTurn { session: uid.clone(), turn: Turn(1), client_id: None, prompt: "go".to_owned() };
    store.accept_turn(&turn).await.unwrap();
    store.start_turn(&uid, Turn(1), Attempt(1), &"pod".into(), "image").await.unwrap();
    Writer { session: uid, turn: Turn(1), attempt: Attempt(1), quota_bytes: 1 << 30 }
}

pub fn text(index: u32) -> String {
    format!("{{\"type\":\"text-delta\",\"delta\":\"{index} {}\"}}", "z".repeat(200))
}

/// Appends `from..to` in one call.
pub async fn append(store: &SharedStore, writer: &Writer, from: u32, to: u32) -> Result<Appended> {
    let texts: Vec<_> = (from..to).map(text).collect();
    let parts: Vec<_> =
        texts.iter().zip(from..).map(|(part, index)| NewPart { index: PartIndex(index), part }).collect();
    store.append(writer, &parts).await
}

/// Every row, by pages.
pub async fn rows(store: &SharedStore, session: &SessionUid) -> Vec<StoredPart> {
    let mut rows: Vec<StoredPart> = Vec::new();
    loop {
        let after = rows.last().map_or(Seq(0), |row| row.seq);
        let page = store.rows(session, after, PageLimit::default()).await.unwrap();
        rows.extend(page.parts);
        if !page.has_more {
            return rows;
        }
    }
}

/// Rows are `0..n`, each once, whole, and seq is dense.
pub async fn assert_sound(store: &SharedStore, session: &SessionUid, at_least: u32) -> u32 {
    let rows = rows(store, session).await;
    assert!(rows.len() >= at_least as usize, "{} rows of {at_least} that were acknowledged", rows.len());
    for (row, number) in rows.iter().zip(0..) {
        assert_eq!((row.seq.0, row.index.0), (u64::from(number) + 1, number));
        assert_eq!(row.part, text(number));
    }
    rows.len() as u32
}

/// Tries until it works, as a harvest does.
pub async fn until_ok<T>(mut call: impl AsyncFnMut() -> Result<T>) -> T {
    let mut last = None;
    for _ in 0..120 {
        match call().await {
            Ok(done) => return done,
            Err(error) => last = Some(error),
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    panic!("never worked again: {last:?}")
}
