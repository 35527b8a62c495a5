//! Agent Pods as a watch sees them, by session.
//!
//! Only what decisions need is kept of a Pod (a few hundred bytes instead of 57 KB). A Pod that vanishes in a gap of the watch is noticed by the next complete list.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use controller_core::model::PodView;
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt, runtime::watcher};
use tokio::time::Instant;
use transcript::{PodUid, SessionUid};

use crate::memory::{Seen, parse_version};

/// A Pod in the index.
#[derive(Clone, Debug)]
pub struct Indexed {
    /// Namespace.
    pub namespace: String,
    /// Its node.
    pub node: Option<String>,
    /// The view. Whether its node answers is not in it.
    pub view: PodView,
}

type Pods = BTreeMap<PodUid, Indexed>;

/// The index of one watch.
#[derive(Debug, Default)]
pub struct PodIndex {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    sessions: HashMap<SessionUid, Pods>,
    /// A complete list under way.
    listing: Option<(Instant, HashMap<SessionUid, Pods>)>,
    seen: Seen,
    synced: bool,
}

impl PodIndex {
    /// Takes one event of the watch in; returns the sessions whose Pods changed.
    pub fn apply(&self, event: watcher::Event<Pod>) -> Vec<SessionUid> {
        let mut inner = self.lock();
        match event {
            watcher::Event::Init => {
                inner.listing = Some((Instant::now(), HashMap::new()));
                Vec::new()
            }
            watcher::Event::InitApply(pod) => {
                inner.see(&pod);
                if let (Some((uid, indexed)), Some((_, listing))) = (index(&pod), inner.listing.as_mut()) {
                    listing.entry(uid).or_default().insert(indexed.view.uid.clone(), indexed);
                }
                Vec::new()
            }
            watcher::Event::InitDone => inner.listed(),
            watcher::Event::Apply(pod) => {
                inner.see(&pod);
                let Some((uid, indexed)) = index(&pod) else { return Vec::new() };
                inner.sessions.entry(uid.clone()).or_default().insert(indexed.view.uid.clone(), indexed);
                vec![uid]
            }
            watcher::Event::Delete(pod) => {
                inner.see(&pod);
                let Some((uid, indexed)) = index(&pod) else { return Vec::new() };
                inner.remove(&uid, &indexed.view.uid);
                vec![uid]
            }
        }
    }

    /// The Pods of a session.
    pub fn of(&self, session: &SessionUid) -> Vec<Indexed> {
        self.lock().sessions.get(session).map(|pods| pods.values().cloned().collect()).unwrap_or_default()
    }

    /// All Pods, with their session.
    pub fn all(&self) -> Vec<(SessionUid, Indexed)> {
        let inner = self.lock();
        let pods = inner.sessions.iter();
        pods.flat_map(|(uid, pods)| pods.values().map(|pod| (uid.clone(), pod.clone()))).collect()
    }

    /// How far the watch has come.
    pub fn seen(&self) -> Seen {
        self.lock().seen
    }

    /// Whether a complete list was seen.
    pub fn is_synced(&self) -> bool {
        self.lock().synced
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn see(&mut self, pod: &Pod) {
        if let Some(version) = parse_version(pod.metadata.resource_version.as_deref()) {
            self.seen.version = self.seen.version.max(version);
        }
    }

    /// The list is complete: what is not in it is gone. Everything may have changed.
    fn listed(&mut self) -> Vec<SessionUid> {
        let Some((asked, listing)) = self.listing.take() else { return Vec::new() };
        let before = std::mem::replace(&mut self.sessions, listing);
        self.seen.listed = Some(asked);
        self.synced = true;
        let mut changed: Vec<SessionUid> = before.into_keys().chain(self.sessions.keys().cloned()).collect();
        changed.sort_unstable();
        changed.dedup();
        changed
    }

    fn remove(&mut self, session: &SessionUid, pod: &PodUid) {
        if let Some(pods) = self.sessions.get_mut(session) {
            pods.remove(pod);
            if pods.is_empty() {
                self.sessions.remove(session);
            }
        }
    }
}

fn index(pod: &Pod) -> Option<(SessionUid, Indexed)> {
    let session = pod.labels().get(crds::names::LABEL_SESSION_UID)?;
    let indexed = Indexed {
        namespace: pod.namespace()?,
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        view: controller_core::view::pod_view(pod, &SessionUid(session.clone()), None),
    };
    Some((SessionUid(session.clone()), indexed))
}
