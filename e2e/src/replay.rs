//! The transcript as a client gets it from the gateway.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use http::{HeaderMap, Request, Uri, header};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::{operator::Operator, session::Session, test::Test};

/// How long a whole answer may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// An answer with its whole body.
#[derive(Debug)]
pub struct Answer {
    /// Status.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

impl Answer {
    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// When it is none.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("{}: {}", self.status, self.text()))
    }
}

/// Gets an `http://` URL, with a bearer token or without.
///
/// # Errors
/// When there is no whole answer in time.
pub async fn get(url: &str, token: Option<&str>) -> Result<Answer> {
    tokio::time::timeout(TIMEOUT, fetch(url, token)).await.with_context(|| format!("{url}: no whole answer"))?
}

async fn fetch(url: &str, token: Option<&str>) -> Result<Answer> {
    let uri: Uri = url.parse()?;
    let authority = uri.authority().context("a URL without host")?.as_str();
    let stream = TcpStream::connect(authority).await.with_context(|| format!("cannot connect to {authority}"))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // Its error is the request's error as well.
    tokio::spawn(connection);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::get(path).header(header::HOST, authority);
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let response = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
    let (head, body) = response.into_parts();
    let body = body.collect().await.with_context(|| format!("{url}: the body broke off"))?.to_bytes();
    Ok(Answer { status: head.status.as_u16(), headers: head.headers, body })
}

/// A token of a ServiceAccount that may read transcripts in the test's namespace, and nothing else.
///
/// # Errors
/// When the cluster refuses.
pub async fn reader_token(test: &Test) -> Result<String> {
    test.apply_yaml(
        r#"
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules: [{apiGroups: [agentsession.dev], resources: [agentsessions/transcript], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader}]
"#,
    )
    .await?;
    let token = test.kubectl(&["create", "token", "reader", "--audience", crds::names::TOKEN_AUDIENCE]).await?;
    Ok(token.trim().to_owned())
}

/// The URL of something of a session's at the gateway.
#[must_use]
pub fn url(operator: &Operator, session: &Session, what: &str) -> String {
    format!("{}/v1/namespaces/{}/agentsessions/{}/{what}", operator.http, session.namespace, session.name)
}

/// One server-sent event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its id.
    pub id: Option<String>,
    /// Its data, verbatim.
    pub data: String,
}

/// A stream that was read to its end.
#[derive(Debug)]
pub struct Stream {
    /// The bytes.
    pub bytes: Bytes,
    /// The events, without the `[DONE]` at the end.
    pub events: Vec<Event>,
}

impl Stream {
    /// Replays a session as a user with a ServiceAccount's token does.
    ///
    /// # Errors
    /// When the answer is not a whole stream that ends in `[DONE]`.
    pub async fn replay(test: &Test, operator: &Operator, session: &Session) -> Result<Self> {
        let token = reader_token(test).await?;
        let answer = get(&url(operator, session, "stream"), Some(&token)).await?;
        ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
        let kind = answer.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        ensure!(kind.starts_with("text/event-stream"), "content-type is {kind}");
        Self::parse(answer.body)
    }

    /// Reads server-sent events.
    ///
    /// # Errors
    /// When they do not end in `[DONE]`.
    pub fn parse(bytes: Bytes) -> Result<Self> {
        let text = std::str::from_utf8(&bytes).context("the stream is not UTF-8")?;
        let mut events: Vec<Event> = text.split("\n\n").filter_map(event).collect();
        match events.pop() {
            Some(last) if last.data == "[DONE]" => Ok(Self { events, bytes }),
            last => bail!("the stream ends with {last:?}"),
        }
    }

    /// The parts, verbatim.
    #[must_use]
    pub fn raw(&self) -> Vec<&str> {
        self.events.iter().map(|event| event.data.as_str()).collect()
    }

    /// The parts as values; `null` for what is no JSON.
    #[must_use]
    pub fn values(&self) -> Vec<Value> {
        self.events.iter().map(|event| serde_json::from_str(&event.data).unwrap_or(Value::Null)).collect()
    }

    /// The parts of a type.
    #[must_use]
    pub fn of_type(&self, kind: &str) -> Vec<Value> {
        self.values().into_iter().filter(|part| part["type"] == kind).collect()
    }

    /// The text deltas.
    #[must_use]
    pub fn deltas(&self) -> Vec<String> {
        crate::stored::deltas(&self.values())
    }
}

fn event(block: &str) -> Option<Event> {
    let field =
        |name: &str| block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ").map(str::to_owned));
    Some(Event { id: field("id"), data: field("data")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_no_events_and_an_end_is_asked_for() {
        let text = ": hello\n\nid: 1.0\ndata: {\"type\":\"start\"}\n\ndata: [DONE]\n\n";
        let stream = Stream::parse(text.into()).unwrap();
        assert_eq!(stream.events, [Event { id: Some("1.0".into()), data: r#"{"type":"start"}"#.into() }]);
        assert!(Stream::parse("data: {}\n\n".into()).is_err());
    }
}
