//! The gate: who asks, may they, and which session do they mean. Nothing of a session leaves without having come through here.
//!
//! A name can have belonged to many sessions, and a namespace's name to many namespaces. The live object has the right of way, then the newest session of
//! the name. What an *earlier* namespace of the name left behind belongs to nobody in the present one: it takes the right to read everywhere.
//!
//! Every decision leaves one audit line: who, what, result; no content and no token.

use std::sync::Arc;

use axum::http::HeaderMap;
use store::{SessionRecord, StoreError};
use transcript::SessionUid;

use crate::{
    Gateway,
    access::{Scope, Subject},
    cluster::{ClusterError, LiveSession},
    error::ApiError,
    names,
    token::Token,
};

/// A reader whose right was found good just now, and for what.
#[derive(Debug)]
pub(crate) struct Reader {
    /// Theirs, to ask again with.
    pub(crate) token: Token,
    /// All the rights that the answer needs.
    pub(crate) scopes: Vec<Scope>,
    subject: Arc<Subject>,
}

/// A session that may be read. It has a live object or a record, or both.
#[derive(Debug)]
pub(crate) struct Found {
    /// The object, while it exists.
    pub(crate) live: Option<LiveSession>,
    /// What the store has of it.
    pub(crate) record: Option<SessionRecord>,
}

/// The word of the audit line for what was opened.
const ALLOWED: &str = "allowed";

/// Why the gate stays shut. Only the audit line tells `Denied` from `Absent`.
#[derive(Debug)]
enum Shut {
    Denied,
    Absent,
    Error(ApiError),
}

impl From<ClusterError> for Shut {
    fn from(error: ClusterError) -> Self {
        Self::Error(ApiError::Cluster(error))
    }
}

impl From<StoreError> for Shut {
    fn from(error: StoreError) -> Self {
        Self::Error(ApiError::Store(error))
    }
}

impl Gateway {
    /// Opens one session to whoever sent these headers.
    pub(crate) async fn open_session(
        &self,
        headers: &HeaderMap,
        namespace: &str,
        name: &str,
        uid: Option<&SessionUid>,
    ) -> Result<(Reader, Found), ApiError> {
        let (token, subject) = self.identify(headers, namespace, name).await?;
        let result = self.find(&token, &subject, namespace, name, uid).await;
        let found = result.as_ref().ok().map(|(_, found)| found);
        let uid = found.and_then(|found| match (&found.record, &found.live) {
            (Some(record), _) => Some(&record.uid),
            (None, live) => live.as_ref().map(|live| &live.uid),
        });
        audit(&subject.name, namespace, name, uid, result.as_ref().map_or_else(Shut::decision, |_| ALLOWED));
        result.map_err(|shut| match shut {
            Shut::Denied | Shut::Absent => {
                ApiError::SessionNotFound { namespace: namespace.to_owned(), name: name.to_owned() }
            }
            Shut::Error(error) => error,
        })
    }

    /// Opens the list of a namespace.
    pub(crate) async fn open_namespace(&self, headers: &HeaderMap, namespace: &str) -> Result<Reader, ApiError> {
        let (token, subject) = self.identify(headers, namespace, "").await?;
        let scope = Scope::Namespace { namespace: namespace.to_owned() };
        let result =
            if names::is_namespace(namespace) { self.require(&subject, &scope).await } else { Err(Shut::Absent) };
        audit(&subject.name, namespace, "", None, result.as_ref().map_or_else(Shut::decision, |()| ALLOWED));
        match result {
            Ok(()) => Ok(Reader { token, scopes: vec![scope], subject }),
            Err(Shut::Denied | Shut::Absent) => Err(ApiError::NamespaceNotFound { namespace: namespace.to_owned() }),
            Err(Shut::Error(error)) => Err(error),
        }
    }

    /// Which of these records the reader of a namespace's list may see: those of the namespace that has the name now, and all of them
    /// for who may read everywhere.
    pub(crate) async fn of_this_namespace(
        &self,
        reader: &Reader,
        namespace: &str,
        records: Vec<SessionRecord>,
    ) -> Result<Vec<SessionRecord>, ApiError> {
        if records.is_empty() {
            return Ok(records);
        }
        let cluster = &self.inner.cluster;
        let current = cluster.namespace_uid(namespace).await.map_err(ApiError::Cluster)?;
        let is_current = |record: &SessionRecord| Some(&record.namespace_uid) == current.as_ref();
        if records.iter().all(is_current)
            || self.inner.access.may(&reader.subject, &Scope::Everywhere).await.map_err(ApiError::Cluster)?
        {
            return Ok(records);
        }
        Ok(records.into_iter().filter(is_current).collect())
    }

    async fn identify(
        &self,
        headers: &HeaderMap,
        namespace: &str,
        name: &str,
    ) -> Result<(Token, Arc<Subject>), ApiError> {
        let token = Token::of(headers);
        let error = match token {
            Ok(token) => match self.inner.access.authenticate(&token).await {
                Ok(subject) => return Ok((token, subject)),
                Err(error) => error,
            },
            Err(error) => error,
        };
        audit("", namespace, name, None, decision(&error));
        Err(error)
    }

    async fn require(&self, subject: &Subject, scope: &Scope) -> Result<(), Shut> {
        if self.inner.access.may(subject, scope).await? { Ok(()) } else { Err(Shut::Denied) }
    }

    async fn find(
        &self,
        token: &Token,
        subject: &Arc<Subject>,
        namespace: &str,
        name: &str,
        uid: Option<&SessionUid>,
    ) -> Result<(Reader, Found), Shut> {
        if !names::is_namespace(namespace)
            || !names::is_session(name)
            || !uid.is_none_or(|uid| names::is_uid(uid.as_str()))
        {
            return Err(Shut::Absent);
        }
        let scope = Scope::Session { namespace: namespace.to_owned(), name: name.to_owned() };
        self.require(subject, &scope).await?;
        let found = self.look_up(namespace, name, uid).await?;
        let mut scopes = vec![scope];
        if let Found { live: None, record: Some(record) } = &found
            && self.inner.cluster.namespace_uid(namespace).await?.as_ref() != Some(&record.namespace_uid)
        {
            self.require(subject, &Scope::Everywhere).await?;
            scopes.push(Scope::Everywhere);
        }
        Ok((Reader { token: token.clone(), scopes, subject: Arc::clone(subject) }, found))
    }

    /// The session that is meant: the one of that UID, else the live one, else the newest.
    async fn look_up(&self, namespace: &str, name: &str, uid: Option<&SessionUid>) -> Result<Found, Shut> {
        let live = self.inner.cluster.session(namespace, name).await?;
        let live = live.filter(|live| uid.is_none_or(|uid| *uid == live.uid));
        let wanted = uid.or(live.as_ref().map(|live| &live.uid));
        let record = self.inner.store.find_session(namespace, name, wanted).await?;
        // A record of another UID than the wanted one is another session, and one without the name is not what the right was checked for.
        let record = record.filter(|record| {
            record.namespace == namespace && record.name == name && wanted.is_none_or(|uid| *uid == record.uid)
        });
        match (&live, &record) {
            (None, None) => Err(Shut::Absent),
            _ => Ok(Found { live, record }),
        }
    }
}

fn decision(error: &ApiError) -> &'static str {
    match error {
        ApiError::TokenMissing | ApiError::TokenRejected => "unauthenticated",
        _ => "undecided",
    }
}

impl Shut {
    fn decision(&self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Absent => "absent",
            Self::Error(error) => decision(error),
        }
    }
}

/// One line for each decision. Names that a client made up are shown escaped.
fn audit(who: &str, namespace: &str, name: &str, uid: Option<&SessionUid>, decision: &'static str) {
    tracing::info!(
        target: "agentsession_gateway::audit",
        who = names::shown(who),
        action = if name.is_empty() { "list" } else { "read" },
        namespace = names::shown(namespace),
        name = names::shown(name),
        session.uid = uid.map(SessionUid::as_str),
        decision,
        "access decided"
    );
}
