//! The rest of the cluster and of the controller: garbage collection, namespace deletion, and the controller's sweep.

use agentsession_controller_core::{Settled, decide::pod_nonce, model::Settle};
use transcript::{Outcome, PodUid, Reason, SessionUid, TurnState, Verdict};

use super::{event::Event, journal::Fact, sim::World};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

impl World {
    pub fn collect_soon(&mut self) {
        self.at(80, Event::Collect);
        self.at(1500, Event::Collect);
    }

    /// The garbage collector and the namespace controller look.
    pub fn collect(&mut self) {
        if self.api.namespace_going {
            self.clear_namespace();
        }
        let sessions: Vec<_> = self.api.sessions.values().cloned().collect();
        for rev in sessions.iter().filter(|rev| rev.view.deleting) {
            let finalizers = rev.object.metadata.finalizers.clone().unwrap_or_default();
            let dependents: Vec<PodUid> = self
                .api
                .pods
                .values()
                .filter(|pod| owner(&pod.object).as_ref() == Some(rev.uid()))
                .map(|pod| pod.view.uid.clone())
                .collect();
            if finalizers.iter().any(|finalizer| finalizer == FOREGROUND) {
                for pod in &dependents {
                    self.delete_dependent(pod);
                }
                if dependents.is_empty() {
                    self.drop_finalizer(rev.uid(), FOREGROUND);
                } else {
                    self.at(1000, Event::Collect);
                }
            } else if finalizers.iter().any(|finalizer| finalizer == ORPHAN) {
                for pod in &dependents {
                    self.api.edit_pod(pod, |object| object.metadata.owner_references = None);
                }
                self.drop_finalizer(rev.uid(), ORPHAN);
            }
        }
        let orphans: Vec<PodUid> = self
            .api
            .pods
            .values()
            .filter(|pod| owner(&pod.object).is_some_and(|owner| !self.api.sessions.contains_key(&owner)))
            .map(|pod| pod.view.uid.clone())
            .collect();
        for pod in orphans {
            self.delete_dependent(&pod);
        }
        self.published();
    }

    fn delete_dependent(&mut self, pod: &PodUid) {
        if self.api.pod(pod).is_some_and(|rev| rev.view.deleting.is_none()) {
            self.truth.going_since.entry(pod.0.clone()).or_insert(self.now);
            self.delete_by_cluster(pod, 60);
        }
    }

    fn drop_finalizer(&mut self, session: &SessionUid, name: &str) {
        let _ = self.api.edit_session(session, |object| {
            object.metadata.finalizers.get_or_insert_default().retain(|finalizer| finalizer != name);
        });
        self.at(200, Event::Collect);
    }

    fn clear_namespace(&mut self) {
        let now = self.now;
        let sessions: Vec<SessionUid> = self.api.sessions.keys().cloned().collect();
        for session in sessions {
            if !self.api.sessions[&session].view.deleting {
                self.truth.stopped.insert(session.clone());
                self.truth.going_since.entry(session.0.clone()).or_insert(now);
                let _ = self.api.delete_session(&session, None, now);
            }
        }
        let pods: Vec<PodUid> = self.api.pods.values().map(|rev| rev.view.uid.clone()).collect();
        for pod in pods {
            self.delete_dependent(&pod);
        }
    }

    /// At start and every ten minutes: turns whose session is gone, Pods without an owner.
    pub fn sweep(&mut self, process: usize, epoch: u32) {
        let swept = self.sweep_once(process);
        let next = if swept { 600_000 } else { 15_000 };
        self.at(next, Event::Sweep { process, epoch });
    }

    pub fn sweep_once(&mut self, process: usize) -> bool {
        if self.store.can_read().is_err() || self.api_down() {
            return false;
        }
        for session in self.store.active_sessions() {
            let known = self.procs[process].sessions.contains_key(&session);
            if !known && self.api.session(&session).is_none() && !self.orphaned(process, &session) {
                return false;
            }
        }
        let pods: Vec<_> = self.procs[process].pods.values().cloned().collect();
        for pod in pods {
            if !self.procs[process].sessions.contains_key(&pod.session)
                && pod.view.has_finalizer
                && self.api.session(&pod.session).is_none()
                && !self.orphaned(process, &pod.session)
            {
                return false;
            }
        }
        true
    }

    /// An object is gone: what is left of it is looked after at once.
    pub fn gone(&mut self, process: usize, session: &SessionUid, tries: u32) {
        self.say(|| format!("p{process} sees that {session} is gone"));
        let pods: Vec<PodUid> = self.procs[process]
            .pods
            .values()
            .filter(|pod| pod.session == *session)
            .map(|pod| pod.view.uid.clone())
            .collect();
        for pod in pods {
            self.procs[process].followers.remove(&pod);
        }
        if !self.orphaned(process, session) && tries < 5 {
            let epoch = self.procs[process].epoch;
            self.at(1000 << tries, Event::Gone { process, epoch, session: session.clone(), tries: tries + 1 });
            return;
        }
        self.procs[process].memory.remove(session);
    }

    /// Settles what a session that is gone left active, and lets its Pods go.
    fn orphaned(&mut self, process: usize, session: &SessionUid) -> bool {
        let now = self.now;
        if self.api_down() || self.store.can_read().is_err() {
            return false;
        }
        let abandoned = self.procs[process].memory.get(session).and_then(|memory| memory.abandoned);
        let ledger = self.store.ledger(session, now);
        if ledger.known && self.store.can_write().is_err() {
            return false;
        }
        let before = self.store.rows.get(session).map(|row| row.turns.clone()).unwrap_or_default();
        for turn in ledger.turns.iter().filter(|turn| turn.state != TurnState::Settled) {
            let missing = if turn.attempt.is_none() { Reason::NeverStarted } else { Reason::PodGone };
            let settle = Settle {
                turn: turn.turn,
                attempt: turn.attempt,
                pod_uid: turn.pod_uid.clone(),
                outcome: Outcome::Lost,
                reason: Some(Reason::SessionDeleted),
                verdict: Verdict::Incomplete,
                verdict_reason: Some(abandoned.unwrap_or(missing)),
                message: None,
                usage: None,
            };
            let _ = self.store.settle(session, &settle, now);
        }
        if let Some(row) = self.store.rows.get_mut(session) {
            row.deleted = true;
        }
        self.note_turns(session, &before);
        let ledger = self.store.ledger(session, now);
        let pods: Vec<_> = self.procs[process].pods.values().filter(|pod| pod.session == *session).cloned().collect();
        for pod in pods {
            self.release_orphan(process, session, &ledger, &pod);
        }
        true
    }

    fn release_orphan(
        &mut self,
        process: usize,
        session: &SessionUid,
        ledger: &agentsession_controller_core::model::LedgerView,
        pod: &super::api::PodRev,
    ) {
        let uid = pod.view.uid.clone();
        if Settled::for_pod(ledger, &uid).is_none() || !pod.view.has_finalizer {
            return;
        }
        let Some(standing) = self.api.pod(&uid).cloned() else { return };
        let now = self.now;
        let labels = standing.object.metadata.labels.as_ref();
        let managed = labels.and_then(|labels| labels.get(crds::names::LABEL_MANAGED_BY));
        let nonce = pod_nonce(&ledger.seed, pod.view.attempt);
        let owned = pod.view.owned && managed.is_some_and(|by| by == crds::names::MANAGED_BY);
        // Orphaning strips the owner; the nonce stays.
        let ours = owned || (!ledger.seed.is_empty() && pod.view.nonce == nonce);
        let fact = |deleted| Fact::PodTakenDown {
            session: session.clone(),
            pod: uid.clone(),
            deleted,
            abandoned: false,
            deleting: standing.view.deleting.is_some(),
        };
        if ours && pod.view.deleting.is_none() {
            self.api.writes += 1;
            self.fact(fact(true));
            self.api.delete_pod(&uid, 1, now);
            self.kubelet_sees_deletion(&uid);
        }
        if self.api.pod(&uid).is_some_and(|rev| rev.view.has_finalizer) {
            self.api.writes += 1;
            self.fact(fact(false));
            self.api.edit_pod(&uid, |object| {
                object
                    .metadata
                    .finalizers
                    .get_or_insert_default()
                    .retain(|finalizer| finalizer != crds::names::FINALIZER);
            });
        }
        self.say(|| format!("p{process} lets go of {}", pod.view.name));
        self.published();
    }
}

fn owner(pod: &k8s_openapi::api::core::v1::Pod) -> Option<SessionUid> {
    let owner = pod.metadata.owner_references.as_ref()?.iter().find(|owner| owner.controller == Some(true))?;
    Some(SessionUid(owner.uid.clone()))
}
