//! The API server: objects, revisions, preconditions, finalizers, the garbage collector's view, and the history that watches are served from.

use std::{collections::BTreeMap, sync::Arc};

use agentsession_controller_core::{model::PodView, model::SessionView, view};
use crds::{AgentSession, AgentSessionStatus, names};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};
use transcript::{PodUid, SessionUid};

/// The zero of the world's clock.
pub const EPOCH_SECONDS: i64 = 1_796_000_000;

pub fn timestamp(now: u64) -> Timestamp {
    Timestamp::from_millisecond(EPOCH_SECONDS * 1000 + i64::try_from(now).unwrap()).unwrap()
}

/// A session at one revision.
#[derive(Debug)]
pub struct SessionRev {
    pub object: AgentSession,
    pub view: SessionView,
    pub rv: u64,
}

impl SessionRev {
    pub fn uid(&self) -> &SessionUid {
        &self.view.uid
    }
}

/// A Pod at one revision.
#[derive(Debug)]
pub struct PodRev {
    pub object: Pod,
    pub session: SessionUid,
    pub view: PodView,
    pub rv: u64,
}

/// One line of the watch history.
#[derive(Debug)]
pub enum Change<T> {
    Put(Arc<T>),
    Gone(Arc<T>, u64),
}

impl<T> Clone for Change<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Put(rev) => Self::Put(Arc::clone(rev)),
            Self::Gone(rev, rv) => Self::Gone(Arc::clone(rev), *rv),
        }
    }
}

/// What an API call answers when it does not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
}

pub fn refused(code: u16, reason: &'static str, message: &str) -> Refused {
    Refused { code, reason, message: message.to_owned() }
}

#[derive(Debug, Default)]
pub struct Api {
    pub rv: u64,
    pub sessions: BTreeMap<SessionUid, Arc<SessionRev>>,
    pub pods: BTreeMap<String, Arc<PodRev>>,
    pub session_log: Vec<Change<SessionRev>>,
    pub pod_log: Vec<Change<PodRev>>,
    pub namespace_going: bool,
    /// Pods that fit, for the ResourceQuota.
    pub quota: Option<usize>,
    pub uids: u64,
    /// Writes that controllers made, for "an idle session causes none".
    pub writes: u64,
}

impl Api {
    fn next(&mut self) -> u64 {
        self.rv += 1;
        self.rv
    }

    pub fn new_uid(&mut self, kind: &str) -> String {
        self.uids += 1;
        format!("{:08x}-0000-4000-8000-{kind:0>12}", self.uids.wrapping_mul(2_654_435_761) & 0xffff_ffff)
    }

    pub fn session_named(&self, name: &str) -> Option<&Arc<SessionRev>> {
        self.sessions.values().find(|rev| rev.view.name == name)
    }

    pub fn session(&self, uid: &SessionUid) -> Option<&Arc<SessionRev>> {
        self.sessions.get(uid)
    }

    pub fn pod(&self, uid: &PodUid) -> Option<&Arc<PodRev>> {
        self.pods.values().find(|rev| rev.view.uid == *uid)
    }

    /// Stores an object and lets it go when nothing holds it any more.
    pub fn put_session(&mut self, mut object: AgentSession) -> Arc<SessionRev> {
        let rv = self.next();
        object.metadata.resource_version = Some(rv.to_string());
        let going = object.metadata.deletion_timestamp.is_some();
        let held = object.metadata.finalizers.as_ref().is_some_and(|list| !list.is_empty());
        let view = view::session_view(&object);
        let rev = Arc::new(SessionRev { view, object, rv });
        if going && !held {
            let rv = self.next();
            self.sessions.remove(rev.uid());
            self.session_log.push(Change::Gone(Arc::clone(&rev), rv));
        } else {
            self.sessions.insert(rev.uid().clone(), Arc::clone(&rev));
            self.session_log.push(Change::Put(Arc::clone(&rev)));
        }
        rev
    }

    /// A change of metadata or spec by anybody.
    pub fn edit_session(
        &mut self,
        uid: &SessionUid,
        edit: impl FnOnce(&mut AgentSession),
    ) -> Result<Arc<SessionRev>, Refused> {
        let Some(rev) = self.sessions.get(uid) else { return Err(refused(404, "NotFound", "agentsession not found")) };
        let mut object = rev.object.clone();
        edit(&mut object);
        if serde_json::to_string(&object.spec).unwrap() != serde_json::to_string(&rev.object.spec).unwrap() {
            object.metadata.generation = Some(object.metadata.generation.unwrap_or(0) + 1);
        }
        Ok(self.put_session(object))
    }

    pub fn delete_session(&mut self, uid: &SessionUid, finalizer: Option<&str>, now: u64) -> Result<(), Refused> {
        self.edit_session(uid, |object| {
            if object.metadata.deletion_timestamp.is_none() {
                object.metadata.deletion_timestamp = Some(Time(timestamp(now)));
                object.metadata.deletion_grace_period_seconds = Some(0);
                object.metadata.generation = Some(object.metadata.generation.unwrap_or(0) + 1);
                if let Some(finalizer) = finalizer {
                    object.metadata.finalizers.get_or_insert_default().push(finalizer.to_owned());
                }
            }
        })
        .map(drop)
    }

    /// Status by server-side apply with the observed resourceVersion; `None` writes whatever stands.
    pub fn apply_status(
        &mut self,
        uid: &SessionUid,
        rv: Option<u64>,
        status: &AgentSessionStatus,
    ) -> Result<Arc<SessionRev>, Refused> {
        let Some(standing) = self.sessions.get(uid) else { return Err(refused(404, "NotFound", "not found")) };
        if rv.is_some_and(|rv| rv != standing.rv) {
            return Err(refused(409, "Conflict", "the object has been modified"));
        }
        let mut object = standing.object.clone();
        object.status = Some(status.clone());
        Ok(self.put_session(object))
    }

    /// Creates a Pod unless quota, namespace or name speak against it.
    pub fn create_pod(&mut self, mut object: Pod) -> Result<Arc<PodRev>, Refused> {
        let name = object.metadata.name.clone().unwrap();
        if self.namespace_going {
            return Err(refused(
                403,
                "Forbidden",
                "pods is forbidden: unable to create new content in namespace team-a because it is being terminated",
            ));
        }
        if self.pods.contains_key(&name) {
            return Err(refused(409, "AlreadyExists", "pods already exists"));
        }
        if self.quota.is_some_and(|room| self.pods.len() >= room) {
            return Err(refused(403, "Forbidden", "pods is forbidden: exceeded quota: compute, requested: pods=1"));
        }
        object.metadata.uid = Some(self.new_uid("pod"));
        Ok(self.put_pod(object))
    }

    pub fn put_pod(&mut self, mut object: Pod) -> Arc<PodRev> {
        let rv = self.next();
        object.metadata.resource_version = Some(rv.to_string());
        let name = object.metadata.name.clone().unwrap();
        let label = object.metadata.labels.as_ref().and_then(|labels| labels.get(names::LABEL_SESSION_UID));
        let session = SessionUid(label.cloned().unwrap_or_default());
        let view = view::pod_view(&object, &session, None);
        let held = object.metadata.finalizers.as_ref().is_some_and(|list| !list.is_empty());
        let going = object.metadata.deletion_timestamp.is_some();
        let over = object.metadata.deletion_grace_period_seconds == Some(0);
        let rev = Arc::new(PodRev { object, session, view, rv });
        if going && over && !held {
            let rv = self.next();
            self.pods.remove(&name);
            self.pod_log.push(Change::Gone(Arc::clone(&rev), rv));
        } else {
            self.pods.insert(name, Arc::clone(&rev));
            self.pod_log.push(Change::Put(Arc::clone(&rev)));
        }
        rev
    }

    pub fn edit_pod(&mut self, uid: &PodUid, edit: impl FnOnce(&mut Pod)) -> Option<Arc<PodRev>> {
        let mut object = self.pod(uid)?.object.clone();
        edit(&mut object);
        Some(self.put_pod(object))
    }

    /// DELETE of a Pod. A second one does not shorten the grace that the first gave, except to zero.
    pub fn delete_pod(&mut self, uid: &PodUid, grace: i64, now: u64) -> Option<Arc<PodRev>> {
        let rev = Arc::clone(self.pod(uid)?);
        if rev.object.metadata.deletion_timestamp.is_some() && grace > 0 {
            return Some(rev);
        }
        let bound = rev.object.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        let ended = matches!(rev.object.status.as_ref().and_then(|s| s.phase.as_deref()), Some("Failed" | "Succeeded"));
        let grace = if bound && !ended { grace } else { 0 };
        self.edit_pod(uid, |pod| {
            pod.metadata.deletion_timestamp.get_or_insert(Time(timestamp(now)));
            pod.metadata.deletion_grace_period_seconds = Some(grace);
        })
    }
}
