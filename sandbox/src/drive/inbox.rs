//! What the recorder delivered: prompts and orders to cancel. The driver only reads it.

use std::{fs, path::Path};

use transcript::{Turn, frame::Prompt};

use crate::{chain, files};

/// A delivery is a prompt, its context and their JSON.
pub const DELIVERY_BYTES: u64 = 2 << 20;

/// The first turn after `after` of which the inbox speaks, be it a prompt or an order to cancel.
pub fn next(inbox: &Path, after: Turn) -> Option<Turn> {
    let mut turns = files::turns(inbox, "turn-", ".json");
    turns.extend(files::turns(inbox, "cancel-", ".json"));
    turns.into_iter().filter(|turn| *turn > after).min()
}

/// Whether the turn is to be cancelled.
pub fn is_cancelled(inbox: &Path, turn: Turn) -> bool {
    fs::symlink_metadata(files::cancel(inbox, turn)).is_ok_and(|file| file.is_file())
}

/// Reads the prompt of a turn.
///
/// # Errors
/// A sentence for people: nobody but the recorder writes there, and it checks what it writes.
pub fn prompt(inbox: &Path, turn: Turn) -> Result<Prompt, String> {
    let bytes = files::read_small(&files::prompt(inbox, turn), DELIVERY_BYTES)
        .map_err(|e| format!("the prompt of turn {turn} cannot be read: {e}"))?;
    parse(&bytes, turn)
}

/// Reads the bytes of a delivery.
///
/// # Errors
/// A sentence for people, when they are no prompt or another turn's.
pub fn parse(bytes: &[u8], turn: Turn) -> Result<Prompt, String> {
    let prompt =
        Prompt::parse(bytes).map_err(|e| format!("the prompt of turn {turn} is not understood: {}", chain(&e)))?;
    if prompt.turn == turn {
        Ok(prompt)
    } else {
        Err(format!("the prompt of turn {turn} says that it is of turn {}", prompt.turn))
    }
}
