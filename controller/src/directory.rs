//! Where each session is looked after: its name, and the queue by which its reconcile is asked for.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crds::AgentSession;
use kube::{core::DeserializeGuard, runtime::reflector::ObjectRef};
use tokio::sync::mpsc;
use transcript::SessionUid;

use crate::follow::SessionRef;

/// A session object that may not be readable.
pub type Guarded = DeserializeGuard<AgentSession>;
/// How reconciles are asked for.
pub type Pokes = mpsc::UnboundedSender<ObjectRef<Guarded>>;

/// All sessions that the watches have shown, by uid, and the queue of each watch.
#[derive(Debug, Default)]
pub struct Directory {
    sessions: Mutex<HashMap<SessionUid, SessionRef>>,
    queues: Mutex<Vec<(Option<String>, Pokes)>>,
}

impl Directory {
    /// Adds the queue of a watch over one namespace, or over all.
    pub fn add_queue(&self, namespace: Option<String>, pokes: Pokes) {
        lock(&self.queues).push((namespace, pokes));
    }

    /// Notes where a session is.
    pub fn learn(&self, uid: SessionUid, session: SessionRef) {
        lock(&self.sessions).insert(uid, session);
    }

    /// Forgets a session.
    pub fn forget(&self, uid: &SessionUid) {
        lock(&self.sessions).remove(uid);
    }

    /// Where a session is; `None` when no watch shows it.
    pub fn find(&self, uid: &SessionUid) -> Option<SessionRef> {
        lock(&self.sessions).get(uid).cloned()
    }

    /// The sessions of one namespace, or all.
    pub fn known(&self, namespace: Option<&str>) -> Vec<SessionUid> {
        let sessions = lock(&self.sessions);
        let inside = |session: &SessionRef| namespace.is_none_or(|namespace| session.namespace == namespace);
        sessions.iter().filter(|(_, session)| inside(session)).map(|(uid, _)| uid.clone()).collect()
    }

    /// Asks for a reconcile of a session, now. One that no watch shows has nobody to be asked.
    pub fn poke(&self, uid: &SessionUid) {
        if let Some(session) = self.find(uid) {
            self.poke_named(&session);
        }
    }

    /// The same by name.
    pub fn poke_named(&self, session: &SessionRef) {
        for (namespace, pokes) in lock(&self.queues).iter() {
            if namespace.as_ref().is_none_or(|namespace| *namespace == session.namespace) {
                // A closed queue means that the controller is shutting down.
                let _ = pokes.send(ObjectRef::new(&session.name).within(&session.namespace));
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
