//! The token of a request. It is a secret: it has no `Display`, its `Debug` says nothing, and what is kept of it is a digest.

use axum::http::{HeaderMap, header};
use sha2::{Digest, Sha256};

use crate::error::ApiError;

/// Where the token comes when a proxy on the way takes `Authorization` for itself, as the API server's service proxy does.
pub(crate) const TOKEN_HEADER: &str = "x-agentsession-token";

/// No token that an API server issues is longer.
const TOKEN_BYTES: usize = 16 << 10;

/// SHA-256 of a token: the key of what is remembered about it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TokenKey([u8; 32]);

/// Says nothing: even a digest lets a log be matched with a token.
impl std::fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenKey(…)")
    }
}

/// A bearer token as a client sent it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// The token of a request: `Authorization: Bearer`, else `X-Agentsession-Token`.
    ///
    /// # Errors
    /// [`ApiError::TokenMissing`], or [`ApiError::TokenRejected`] for what cannot be one and is not worth a question.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, ApiError> {
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(bearer);
        let text = match bearer {
            Some(text) => text,
            None => match headers.get(TOKEN_HEADER) {
                Some(value) => value.to_str().map_err(|_| ApiError::TokenRejected)?.trim(),
                None => return Err(ApiError::TokenMissing),
            },
        };
        match text {
            "" => Err(ApiError::TokenMissing),
            text if text.len() > TOKEN_BYTES || !text.bytes().all(|b| b.is_ascii_graphic()) => {
                Err(ApiError::TokenRejected)
            }
            text => Ok(Self(text.to_owned())),
        }
    }

    /// The text, for the one question that needs it.
    pub(crate) fn secret(&self) -> &str {
        &self.0
    }

    /// The key under which answers about it are remembered.
    pub(crate) fn key(&self) -> TokenKey {
        TokenKey(Sha256::digest(self.0.as_bytes()).into())
    }
}

/// The credentials of the `Bearer` scheme, whose name has no case.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, rest) = value.trim().split_once(' ').unwrap_or((value.trim(), ""));
    scheme.eq_ignore_ascii_case("bearer").then(|| rest.trim())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_bytes(value.as_bytes()).unwrap()))
            .collect()
    }

    fn token(pairs: &[(&'static str, &str)]) -> Result<String, &'static str> {
        match Token::of(&headers(pairs)) {
            Ok(token) => Ok(token.secret().to_owned()),
            Err(ApiError::TokenMissing) => Err("missing"),
            Err(_) => Err("rejected"),
        }
    }

    #[test]
    fn the_bearer_goes_before_the_other_header() {
        assert_eq!(token(&[("authorization", "Bearer one"), (TOKEN_HEADER, "two")]).as_deref(), Ok("one"));
        assert_eq!(token(&[("authorization", "bEARER  one ")]).as_deref(), Ok("one"));
        assert_eq!(token(&[("authorization", "Basic dTpw"), (TOKEN_HEADER, "two")]).as_deref(), Ok("two"));
        assert_eq!(token(&[(TOKEN_HEADER, " two ")]).as_deref(), Ok("two"));
    }

    #[test]
    fn what_cannot_be_a_token_is_not_asked_about() {
        assert_eq!(token(&[]), Err("missing"));
        assert_eq!(token(&[("authorization", "Basic dTpw")]), Err("missing"));
        assert_eq!(token(&[("authorization", "Bearer ")]), Err("missing"));
        assert_eq!(token(&[("authorization", "Bearer a b")]), Err("rejected"));
        assert_eq!(token(&[(TOKEN_HEADER, "tökén")]), Err("rejected"));
        assert_eq!(token(&[("authorization", &format!("Bearer {}", "a".repeat(TOKEN_BYTES + 1)))]), Err("rejected"));
    }

    #[test]
    fn debug_keeps_the_secret() {
        let token = Token::of(&headers(&[("authorization", "Bearer swordfish")])).unwrap();
        assert_eq!(format!("{token:?} {:?}", token.key()), "Token(…) TokenKey(…)");
    }
}
