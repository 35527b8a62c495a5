//! What keeps a right alive while it is used: a stream is open for longer than any answer of the API server is believed.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    access::{Access, Scope},
    token::Token,
};

/// So many intervals may pass without any answer before a right counts as lost: an API server that restarts ends no stream.
const UNANSWERED: u32 = 3;

/// Asks again at an interval, for as long as it lives, whether a token may still read what it reads.
#[derive(Debug)]
pub(crate) struct AccessGuard {
    lost: CancellationToken,
    _watch: AbortOnDropHandle<()>,
}

impl AccessGuard {
    /// Starts to watch a right that was found good just now.
    pub(crate) fn watch(access: Arc<Access>, token: Token, scopes: Vec<Scope>, every: Duration) -> Self {
        let lost = CancellationToken::new();
        let tell = lost.clone();
        let watch = tokio::spawn(async move {
            let mut confirmed = Instant::now();
            loop {
                tokio::time::sleep(every).await;
                match access.still(&token, &scopes).await {
                    Ok(true) => confirmed = Instant::now(),
                    Ok(false) => break,
                    Err(_) if confirmed.elapsed() < every * UNANSWERED => {}
                    Err(_) => break,
                }
            }
            tell.cancel();
        });
        Self { lost, _watch: AbortOnDropHandle::new(watch) }
    }

    /// Waits until the right is lost. Can be dropped and called again.
    pub(crate) async fn lost(&self) {
        self.lost.cancelled().await;
    }
}
