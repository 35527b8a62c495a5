//! Who asks, and may they: TokenReview, then SubjectAccessReview, so that plain RBAC decides.
//!
//! Answers are remembered for at most ten seconds, under a digest of the token, in bounded maps. Tokens that were refused have a map of their own: a
//! flood of them pushes out no good one. The first use of a token and the renewal of one that was good go by different bounds, for the same reason.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crds::names::{GROUP, PLURAL, SUBRESOURCE_TRANSCRIPT};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use tokio::time::Instant;

use crate::{
    cache::TtlCache,
    cluster::{Cluster, ClusterError, Lane},
    error::ApiError,
    metrics::{Call, Metrics},
    token::{Token, TokenKey},
};

/// How long an answer is believed.
const TTL: Duration = Duration::from_secs(10);
/// How long a refusal is believed: short, since a right is often granted because of it.
const REFUSED_TTL: Duration = Duration::from_secs(2);
/// How long a token that was good counts as known.
const KNOWN_TTL: Duration = Duration::from_secs(3600);
/// Entries of each map.
const ENTRIES: usize = 4096;

/// Who a token belongs to, as the API server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    key: TokenKey,
    /// Name of the user or ServiceAccount.
    pub(crate) name: String,
    uid: Option<String>,
    groups: Option<Vec<String>>,
    extra: Option<BTreeMap<String, Vec<String>>>,
}

/// What a subject wants to read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Scope {
    /// The transcript of the session that has this name.
    Session {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// All transcripts of the namespace that has this name now.
    Namespace {
        /// Its name.
        namespace: String,
    },
    /// All transcripts, also of namespaces that are gone.
    Everywhere,
}

/// The two reviews and what is remembered of them.
#[derive(Debug)]
pub(crate) struct Access {
    cluster: Arc<Cluster>,
    audience: String,
    metrics: Metrics,
    subjects: TtlCache<TokenKey, Arc<Subject>>,
    known: TtlCache<TokenKey, ()>,
    rejected: TtlCache<TokenKey, ()>,
    allowed: TtlCache<(TokenKey, Scope), ()>,
    denied: TtlCache<(TokenKey, Scope), ()>,
}

impl Access {
    pub(crate) fn new(cluster: Arc<Cluster>, audience: String, metrics: Metrics) -> Self {
        Self {
            cluster,
            audience,
            metrics,
            subjects: TtlCache::new(TTL, ENTRIES),
            known: TtlCache::new(KNOWN_TTL, ENTRIES),
            rejected: TtlCache::new(TTL, ENTRIES),
            allowed: TtlCache::new(TTL, ENTRIES),
            denied: TtlCache::new(REFUSED_TTL, ENTRIES),
        }
    }

    /// Whose token this is.
    ///
    /// # Errors
    /// [`ApiError::TokenRejected`], or [`ApiError::Cluster`] when nobody could say.
    pub(crate) async fn authenticate(&self, token: &Token) -> Result<Arc<Subject>, ApiError> {
        let (key, now) = (token.key(), Instant::now());
        if let Some(subject) = self.subjects.get(&key, now) {
            return Ok(subject);
        }
        if self.rejected.get(&key, now).is_some() {
            return Err(ApiError::TokenRejected);
        }
        self.identify(token).await
    }

    /// Whether the subject may read all of that scope.
    ///
    /// # Errors
    /// When the API server could not say.
    pub(crate) async fn may(&self, subject: &Subject, scope: &Scope) -> Result<bool, ClusterError> {
        let (key, now) = ((subject.key, scope.clone()), Instant::now());
        if self.allowed.get(&key, now).is_some() {
            return Ok(true);
        }
        if self.denied.get(&key, now).is_some() {
            return Ok(false);
        }
        self.decide(subject, scope).await
    }

    /// Asks both questions anew, whatever is remembered: is the token still good, and may its owner still read all of these?
    ///
    /// # Errors
    /// When the API server could not say.
    pub(crate) async fn still(&self, token: &Token, scopes: &[Scope]) -> Result<bool, ClusterError> {
        let subject = match self.identify(token).await {
            Ok(subject) => subject,
            Err(ApiError::Cluster(error)) => return Err(error),
            Err(_) => return Ok(false),
        };
        for scope in scopes {
            if !self.decide(&subject, scope).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Asks for our audience first, then for the API server's own: a review for one audience rejects the token of another.
    async fn identify(&self, token: &Token) -> Result<Arc<Subject>, ApiError> {
        let key = token.key();
        let lane = match self.known.get(&key, Instant::now()) {
            Some(()) => Lane::Known,
            None => Lane::Stranger,
        };
        for audiences in [Some(vec![self.audience.clone()]), None] {
            let user = self.review_token(token, lane, audiences).await.map_err(ApiError::Cluster)?;
            if let Some(user) = user {
                let subject = Arc::new(Subject {
                    key,
                    name: user.username.unwrap_or_default(),
                    uid: user.uid,
                    groups: user.groups,
                    extra: user.extra,
                });
                let now = Instant::now();
                self.subjects.insert(key, Arc::clone(&subject), now);
                self.known.insert(key, (), now);
                self.rejected.remove(&key);
                return Ok(subject);
            }
        }
        self.subjects.remove(&key);
        self.known.remove(&key);
        self.rejected.insert(key, (), Instant::now());
        Err(ApiError::TokenRejected)
    }

    /// The user of a token, if it is good for the audience; without one, for the API server's own.
    async fn review_token(
        &self,
        token: &Token,
        lane: Lane,
        audiences: Option<Vec<String>>,
    ) -> Result<Option<UserInfo>, ClusterError> {
        let review = TokenReview {
            spec: TokenReviewSpec { token: token.secret().to_owned(), audiences: audiences.clone() },
            ..TokenReview::default()
        };
        let status = self.cluster.review(Call::TokenReview, lane, &review).await?.status.unwrap_or_default();
        // An answer without audiences comes from a server that does not know them: the token is then one for the API server itself.
        let fits = match (audiences, status.audiences) {
            (Some(asked), Some(given)) if !given.is_empty() => given.iter().any(|audience| asked.contains(audience)),
            _ => true,
        };
        let good = status.authenticated == Some(true) && fits;
        let user = status.user.filter(|user| good && user.username.as_ref().is_some_and(|name| !name.is_empty()));
        self.metrics.access(Call::TokenReview, user.is_some());
        Ok(user)
    }

    async fn decide(&self, subject: &Subject, scope: &Scope) -> Result<bool, ClusterError> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(subject.name.clone()),
                uid: subject.uid.clone(),
                groups: subject.groups.clone(),
                extra: subject.extra.clone(),
                resource_attributes: Some(attributes(scope)),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let status = self.cluster.review(Call::SubjectAccessReview, Lane::Known, &review).await?.status;
        let allowed = status.is_some_and(|status| status.allowed && status.denied != Some(true));
        let (key, now) = ((subject.key, scope.clone()), Instant::now());
        if allowed {
            self.denied.remove(&key);
            self.allowed.insert(key, (), now);
        } else {
            self.allowed.remove(&key);
            self.denied.insert(key, (), now);
        }
        self.metrics.access(Call::SubjectAccessReview, allowed);
        Ok(allowed)
    }
}

/// An attribute that is left out means all of them, so each scope contains the one before it.
fn attributes(scope: &Scope) -> ResourceAttributes {
    let (namespace, name) = match scope {
        Scope::Session { namespace, name } => (Some(namespace.clone()), Some(name.clone())),
        Scope::Namespace { namespace } => (Some(namespace.clone()), None),
        Scope::Everywhere => (None, None),
    };
    ResourceAttributes {
        group: Some(GROUP.to_owned()),
        resource: Some(PLURAL.to_owned()),
        subresource: Some(SUBRESOURCE_TRANSCRIPT.to_owned()),
        verb: Some("get".to_owned()),
        namespace,
        name,
        ..ResourceAttributes::default()
    }
}
