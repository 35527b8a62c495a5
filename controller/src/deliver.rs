//! The way into an agent Pod: a prompt, a cancel, a release. Effects of a decision; every one may be repeated.
//!
//! What is sent has its length and digest in front, and the recorder's answer repeats the digest of what now *stands in the inbox*. So
//! nothing depends on closing stdin, on the exit status, or on this being the first try: the same prompt always gives the same
//! bytes, and delivering them again finds them there.

use transcript::{
    Turn,
    frame::{Delivered, Delivery, DeliveryError, Prompt},
};

use crate::exec::{ExecError, Execs, PodTarget, RecorderCommand, Transfer};

/// A delivery that did not come through. `Display` leaves the cause to the error chain.
#[derive(Debug, thiserror::Error)]
pub enum DeliverError {
    /// The prompt could not be written as JSON.
    #[error("the prompt could not be encoded")]
    Encode(#[source] DeliveryError),
    /// The exec failed.
    #[error("the recorder could not be told to {what}")]
    Exec {
        /// What it should do.
        what: &'static str,
        /// The cause.
        #[source]
        source: ExecError,
    },
}

impl DeliverError {
    /// Whether the recorder is over for good: there is nobody to tell any more.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        matches!(self, Self::Exec { source, .. } if source.is_ended())
    }

    /// Bounded label for metrics.
    #[must_use]
    pub fn category(&self) -> &'static str {
        match self {
            Self::Encode(_) => "encode",
            Self::Exec { source, .. } => source.category().as_str(),
        }
    }
}

/// Puts a prompt into the driver's inbox. On `Ok` it stands there, whole.
///
/// # Errors
/// [`DeliverError`]. The prompt may stand in the inbox nevertheless: deliver it again.
pub async fn deliver_prompt(execs: &Execs, pod: &PodTarget, prompt: &Prompt) -> Result<(), DeliverError> {
    let bytes = prompt.encode().map_err(DeliverError::Encode)?;
    let input = Delivery::frame(&bytes).map_err(DeliverError::Encode)?;
    let command = RecorderCommand::Deliver { turn: prompt.turn };
    tell(execs, pod, &command, "take a prompt", &input, |line| Delivered::confirm(line, &bytes)).await
}

/// Asks the driver to stop a turn.
///
/// # Errors
/// [`DeliverError`].
pub async fn cancel(execs: &Execs, pod: &PodTarget, turn: Turn) -> Result<(), DeliverError> {
    tell(execs, pod, &RecorderCommand::Cancel { turn }, "cancel a turn", &[], accepted).await
}

/// Tells the recorder that it may go. After this its log can no longer be read.
///
/// # Errors
/// [`DeliverError`]; [`DeliverError::is_ended`] when it has gone already.
pub async fn release_recorder(execs: &Execs, pod: &PodTarget) -> Result<(), DeliverError> {
    tell(execs, pod, &RecorderCommand::Release, "go", &[], accepted).await
}

/// An answer to a command that carries no bytes: whatever stands in the inbox now, it was not refused.
fn accepted(line: &[u8]) -> Result<(), DeliveryError> {
    let answer: Delivered = serde_json::from_slice(line).map_err(DeliveryError::Malformed)?;
    answer.error.map_or(Ok(()), |error| Err(DeliveryError::Refused(error)))
}

async fn tell(
    execs: &Execs,
    pod: &PodTarget,
    command: &RecorderCommand,
    what: &'static str,
    input: &[u8],
    confirm: impl Fn(&[u8]) -> Result<(), DeliveryError> + Send,
) -> Result<(), DeliverError> {
    let failed = |source| DeliverError::Exec { what, source };
    let bounds = execs.settings().small();
    let mut transfer = execs.open(pod, command, bounds).await.map_err(failed)?;
    let result = ask(&mut transfer, input).await.and_then(|line| match confirm(&line) {
        Ok(()) => Ok(()),
        Err(DeliveryError::Refused(why)) => Err(ExecError::Declined(why)),
        Err(error) => Err(ExecError::Protocol(error.into())),
    });
    execs.close(pod, transfer, result).await.map_err(failed)
}

/// Sends all of `input` and reads one line.
async fn ask(transfer: &mut Transfer, input: &[u8]) -> Result<Vec<u8>, ExecError> {
    transfer.write(input).await?;
    let mut answer = Vec::new();
    loop {
        let bytes = transfer.read().await?;
        if let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            answer.extend_from_slice(&bytes[..end]);
            return Ok(answer);
        }
        answer.extend_from_slice(bytes);
    }
}
