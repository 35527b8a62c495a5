//! YAML for kubectl.
//!
//! kubectl reads YAML 1.1, where `on`, `yes` and `1_000` are not texts. The writer here quotes them; the usual one does not, and what it wrote
//! was seen to be read as `true` and `1000`.

use serde::Serialize;

/// A value could not be written as YAML.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The value has no JSON form.
    #[error("value has no JSON form")]
    Json(#[source] serde_json::Error),
    /// The JSON value could not be written.
    #[error("cannot be written as YAML")]
    Write(#[source] serde_saphyr::ser::Error),
}

/// Writes a value as a YAML document that kubectl reads back as it was.
///
/// It goes through JSON, so that an enum looks as it does in the API.
///
/// # Errors
/// [`Error`] when the value has no JSON form or cannot be written.
pub fn to_string<T: Serialize + ?Sized>(value: &T) -> Result<String, Error> {
    let json = serde_json::to_value(value).map_err(Error::Json)?;
    serde_saphyr::to_string(&json).map_err(Error::Write)
}
