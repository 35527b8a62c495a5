//! Projections of real decisions.

use super::*;

fn observed(ledger: Result<LedgerView, Trouble>, pods: Vec<PodView>) -> Observed {
    Observed {
        session: view(1),
        ledger,
        pods,
        drivers: Default::default(),
        harvest: crate::model::HarvestView::None,
        refusal: None,
        elapsed: Default::default(),
        abandoned: None,
        done: Default::default(),
        fresh_seed: "seed".to_owned(),
    }
}

#[test]
fn a_decision_that_accepts_turns_leaves_the_status_to_the_next_pass() {
    let object = session(json!({}));
    let observed = observed(Ok(LedgerView::default()), Vec::new());
    let decision = crate::decide(&observed);
    assert!(matches!(decision.step, Step::AcceptTurns(_)), "{:?}", decision.step);
    let next = project(&object, &observed, &decision, at(0));
    assert!(!differs(None, &next));
}

#[test]
fn the_ordinary_start_of_a_pod_is_no_waiting() {
    let object = session(json!({"status": {"acceptedTurns": 1}}));
    let mut observed = observed(Ok(ledger(1, vec![accepted(1)])), vec![pod()]);
    observed.session.has_finalizer = true;
    observed.pods[0].template_digest = observed.session.template_digest.clone();
    let decision = crate::decide(&observed);
    let next = project(&object, &observed, &decision, at(0));
    assert_eq!((next.phase, next.reason, next.pod_name), (Some(Phase::Provisioning), None, None), "{decision:?}");
}

#[test]
fn the_status_speaks_of_the_pod_that_has_the_turn_and_of_no_stranger() {
    let other = PodView { uid: PodUid::from("p9"), name: "stranger".to_owned(), nonce: "x".to_owned(), ..up() };
    let ledger = ledger(1, vec![running(1, 0)]);
    let pods = [other.clone(), up()];
    assert_eq!(current_pod(Some(&ledger), &pods, None).map(|pod| pod.name.as_str()), Some(up().name.as_str()));
    assert_eq!(current_pod(Some(&ledger), &[other], None).map(|pod| pod.name.as_str()), None);
    let named = AgentSessionStatus { pod_name: Some(up().name), ..AgentSessionStatus::default() };
    assert_eq!(current_pod(None, &pods, Some(&named)).map(|pod| pod.uid.clone()), Some(PodUid::from("p1")));
    assert!(current_pod(None, &pods, None).is_none());
}

#[test]
fn the_uid_of_fixtures_is_that_of_the_session() {
    assert_eq!(view(1).uid.as_str(), UID);
}
