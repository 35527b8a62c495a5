//! `deliver`: a prompt, an order to cancel or the release into the inbox, with an answer that repeats the digest of what stands there.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{ArgGroup, Args};
use transcript::{
    Turn,
    frame::{Delivered, DeliveryError},
};

use crate::{clock, drive::inbox, files, json::cut, peer, peer::Peer};

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Stdin cannot be listened to.
    #[error("stdin cannot be listened to")]
    Listen(#[source] io::Error),
    /// The answer cannot be encoded.
    #[error("the answer cannot be encoded")]
    Encode(#[source] DeliveryError),
    /// Stdout is closed.
    #[error("stdout cannot be written")]
    Stdout(#[source] io::Error),
}

/// Put a prompt, an order to cancel a turn, or the release of the recorder into the inbox.
#[derive(Args, Clone, Debug)]
#[command(group(ArgGroup::new("what").required(true).args(["turn", "cancel", "release"])))]
#[command(
    after_help = "With --turn, stdin is one JSON line {v, count, sha256} and exactly so many bytes: the prompt's JSON. The answer is one \
JSON line {v, sha256} or {v, sha256, error} on stdout; then the end of stdin or an `ack` line is waited for. The same prompt again changes \
nothing; another one for a turn that stands is refused.\nExits 0 when the answer was written and stdin ended or `ack` came (the answer says \
whether something stands), 1 when it could not be answered, 3 when the other side took longer than --hold."
)]
pub struct Options {
    /// Deliver the prompt of this turn.
    #[arg(long, value_name = "N")]
    pub turn: Option<u32>,
    /// Cancel this turn.
    #[arg(long, value_name = "N")]
    pub cancel: Option<u32>,
    /// Tell the recorder that it may go.
    #[arg(long)]
    pub release: bool,
    /// How long the other side may take, for the whole.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = clock::duration)]
    pub hold: Duration,
    /// Directory in which the driver looks.
    #[arg(long, value_name = "DIR", default_value = files::INBOX)]
    pub inbox: PathBuf,
}

/// Delivers, answers, and waits until the other side has the answer.
///
/// # Errors
/// When the answer could not be given; what is wrong with a delivery is said in the answer.
pub fn run(options: &Options) -> Result<(), Error> {
    let peer = match options.turn {
        Some(_) => Peer::sender(options.hold),
        None => Peer::caller(options.hold),
    }
    .map_err(Error::Listen)?;
    let content = match options.turn {
        Some(turn) => peer.delivery().and_then(|bytes| inbox::parse(&bytes, Turn(turn)).map(|_| bytes)),
        None => Ok(order(options)),
    };
    let answer = match content.and_then(|bytes| stand(&place(options), &bytes)) {
        Ok(answer) => answer,
        Err(error) => Delivered::refused(cut(&error, 1 << 10)),
    };
    peer::write(&answer.encode().map_err(Error::Encode)?).map_err(Error::Stdout)?;
    peer.wait_for_ack(0);
    Ok(())
}

/// The file that is to stand.
fn place(options: &Options) -> PathBuf {
    match (options.turn, options.cancel) {
        (Some(turn), _) => files::prompt(&options.inbox, Turn(turn)),
        (None, Some(turn)) => files::cancel(&options.inbox, Turn(turn)),
        (None, None) => options.inbox.join(files::RELEASE),
    }
}

/// Lets these bytes stand there, unless others do.
fn stand(path: &Path, bytes: &[u8]) -> Result<Delivered, String> {
    let there =
        files::publish(path, bytes).map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
    if !there {
        let standing = files::read_small(path, inbox::DELIVERY_BYTES)
            .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
        if standing != bytes {
            return Err(format!("something else was delivered as {} before, and stands", path.display()));
        }
    }
    Ok(Delivered::stands(bytes))
}

/// The content of an order that has no body.
fn order(options: &Options) -> Vec<u8> {
    match options.cancel {
        Some(turn) => format!("{{\"turn\":{turn}}}\n").into_bytes(),
        None => b"{}\n".to_vec(),
    }
}
