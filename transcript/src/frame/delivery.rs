//! The way in: a prompt for the driver's inbox, with its length and digest in front, and the answer that repeats the digest.

use serde::{Deserialize, Serialize};

use super::{VERSION, is_understood, sha256_hex};
use crate::{Turn, limits};

/// What precedes the bytes of a delivery, as one JSON line on the stdin of `deliver`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    /// Protocol version.
    pub v: u32,
    /// Bytes that follow.
    pub count: u64,
    /// Lower-case hex SHA-256 of them.
    pub sha256: String,
}

/// The answer of `deliver`, one JSON line: what now stands in the inbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delivered {
    /// Protocol version.
    pub v: u32,
    /// Lower-case hex SHA-256 of the bytes that stand in the inbox.
    pub sha256: String,
    /// Why nothing was written, when that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// `inbox/turn-<N>.json`: one prompt for the driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Prompt {
    /// The turn.
    pub turn: Turn,
    /// What the user asked.
    pub prompt: String,
    /// Context from earlier turns for a fresh agent; never shown in replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

/// Why a delivery or its answer is not good.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// A line is not the JSON that it should be.
    #[error("line could not be understood")]
    Malformed(#[source] serde_json::Error),
    /// A value could not be written as JSON.
    #[error("value could not be encoded")]
    Encode(#[source] serde_json::Error),
    /// The other side speaks a version that this build does not understand.
    #[error("message of version {v}, understood up to {VERSION}")]
    Version {
        /// Its version.
        v: u32,
    },
    /// More bytes are announced than may come.
    #[error("{count} bytes are over the bound of {max}")]
    TooLong {
        /// Bytes announced.
        count: u64,
        /// The bound, [`limits::EXEC_ANSWER_BYTES`].
        max: u64,
    },
    /// Other bytes came than were announced.
    #[error("{got} bytes came where {said} were announced")]
    WrongCount {
        /// Bytes announced.
        said: u64,
        /// Bytes that came.
        got: u64,
    },
    /// The digest is not that of the bytes.
    #[error("digest is not that of the bytes")]
    WrongDigest,
    /// The recorder says that it wrote nothing.
    #[error("delivery was refused: {0}")]
    Refused(String),
}

impl Delivery {
    /// Describes the bytes that will follow.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self { v: VERSION, count: bytes.len() as u64, sha256: sha256_hex(bytes) }
    }

    /// All that goes to the stdin of `deliver`: the line and the bytes.
    ///
    /// # Errors
    /// [`DeliveryError::Encode`].
    pub fn frame(bytes: &[u8]) -> Result<Vec<u8>, DeliveryError> {
        let mut out = encode_line(&Self::of(bytes))?;
        out.extend_from_slice(bytes);
        Ok(out)
    }

    /// Reads the line, and refuses what is too long to be taken.
    ///
    /// # Errors
    /// [`DeliveryError::Malformed`], [`DeliveryError::Version`], [`DeliveryError::TooLong`].
    pub fn parse(line: &[u8]) -> Result<Self, DeliveryError> {
        let delivery: Self = serde_json::from_slice(line).map_err(DeliveryError::Malformed)?;
        check_version(delivery.v)?;
        let max = limits::EXEC_ANSWER_BYTES;
        if delivery.count > max {
            return Err(DeliveryError::TooLong { count: delivery.count, max });
        }
        Ok(delivery)
    }

    /// Whether these are the bytes that were announced.
    ///
    /// # Errors
    /// [`DeliveryError::WrongCount`], [`DeliveryError::WrongDigest`].
    pub fn verify(&self, bytes: &[u8]) -> Result<(), DeliveryError> {
        if bytes.len() as u64 != self.count {
            return Err(DeliveryError::WrongCount { said: self.count, got: bytes.len() as u64 });
        }
        if sha256_hex(bytes) != self.sha256 {
            return Err(DeliveryError::WrongDigest);
        }
        Ok(())
    }
}

impl Delivered {
    /// The answer when `bytes` stand in the inbox.
    #[must_use]
    pub fn stands(bytes: &[u8]) -> Self {
        Self { v: VERSION, sha256: sha256_hex(bytes), error: None }
    }

    /// The answer when nothing was written.
    #[must_use]
    pub fn refused(error: impl Into<String>) -> Self {
        Self { v: VERSION, sha256: String::new(), error: Some(error.into()) }
    }

    /// The line, newline included.
    ///
    /// # Errors
    /// [`DeliveryError::Encode`].
    pub fn encode(&self) -> Result<Vec<u8>, DeliveryError> {
        encode_line(self)
    }

    /// Reads the answer and holds it against the bytes that were sent: only then are they in the inbox.
    ///
    /// # Errors
    /// [`DeliveryError::Malformed`], [`DeliveryError::Version`], [`DeliveryError::Refused`], [`DeliveryError::WrongDigest`].
    pub fn confirm(line: &[u8], sent: &[u8]) -> Result<(), DeliveryError> {
        let answer: Self = serde_json::from_slice(line).map_err(DeliveryError::Malformed)?;
        check_version(answer.v)?;
        match answer.error {
            Some(error) => Err(DeliveryError::Refused(error)),
            None if answer.sha256 == sha256_hex(sent) => Ok(()),
            None => Err(DeliveryError::WrongDigest),
        }
    }
}

impl Prompt {
    /// The bytes of the inbox file. The same prompt always gives the same bytes, so that delivering again changes nothing.
    ///
    /// # Errors
    /// [`DeliveryError::Encode`].
    pub fn encode(&self) -> Result<Vec<u8>, DeliveryError> {
        encode_line(self)
    }

    /// Reads an inbox file.
    ///
    /// # Errors
    /// [`DeliveryError::Malformed`].
    pub fn parse(bytes: &[u8]) -> Result<Self, DeliveryError> {
        serde_json::from_slice(bytes).map_err(DeliveryError::Malformed)
    }
}

fn check_version(v: u32) -> Result<(), DeliveryError> {
    if is_understood(v) { Ok(()) } else { Err(DeliveryError::Version { v }) }
}

fn encode_line<T: Serialize>(value: &T) -> Result<Vec<u8>, DeliveryError> {
    let mut line = serde_json::to_vec(value).map_err(DeliveryError::Encode)?;
    line.push(b'\n');
    Ok(line)
}
