//! The operator's key, from which the tokens of recorders are derived. Nothing derived is ever stored.

use std::{fmt, path::Path};

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use transcript::{Attempt, SessionUid};

/// Shortest key that is accepted, in bytes.
const MIN_BYTES: usize = 32;

/// The key. Its `Debug` says nothing.
pub struct OperatorKey(Vec<u8>);

/// A key that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("--operator-key-file {path} cannot be read")]
    Read {
        /// The path.
        path: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// It is too short.
    #[error("--operator-key-file {path} has {bytes} bytes; at least {MIN_BYTES} random ones are needed")]
    Short {
        /// The path.
        path: String,
        /// What it has.
        bytes: usize,
    },
}

impl fmt::Debug for OperatorKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OperatorKey(…)")
    }
}

impl OperatorKey {
    /// Reads the key.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let name = || path.display().to_string();
        let bytes = std::fs::read(path).map_err(|source| KeyError::Read { path: name(), source })?;
        if bytes.len() < MIN_BYTES {
            return Err(KeyError::Short { path: name(), bytes: bytes.len() });
        }
        Ok(Self(bytes))
    }

    /// Token of the recorder of an attempt: hex HMAC-SHA256 over `<session uid>/<attempt>`.
    #[must_use]
    pub fn recorder_token(&self, session: &SessionUid, attempt: Attempt) -> String {
        // A key of any length is one for HMAC, so this cannot fail; an empty token would open nothing.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else { return String::new() };
        mac.update(format!("{session}/{attempt}").as_bytes());
        hex::encode(mac.finalize().into_bytes())
    }

    /// What the recorder knows of its token.
    #[must_use]
    pub fn recorder_token_sha256(&self, session: &SessionUid, attempt: Attempt) -> String {
        hex::encode(Sha256::digest(self.recorder_token(session, attempt)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_of_one_session_and_one_attempt() {
        let key = OperatorKey(vec![7; 32]);
        let token = |uid: &str, attempt| key.recorder_token(&uid.into(), Attempt(attempt));
        assert_eq!(token("a", 1), token("a", 1));
        assert_ne!(token("a", 1), token("a", 2));
        assert_ne!(token("a", 1), token("b", 1));
        assert_eq!(token("a", 1).len(), 64);
    }

    #[test]
    fn a_short_key_is_refused_and_no_key_is_ever_printed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, "short").unwrap();
        assert!(OperatorKey::read(&path).unwrap_err().to_string().contains("has 5 bytes"));
        std::fs::write(&path, "k".repeat(32)).unwrap();
        assert!(!format!("{:?}", OperatorKey::read(&path).unwrap()).contains('k'));
    }
}
