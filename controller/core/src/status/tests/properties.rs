//! What holds for any sequence of passes.

use proptest::prelude::*;

use super::*;

fn turn() -> impl Strategy<Value = TurnView> {
    let outcome = prop::sample::select(Outcome::ALL);
    let verdict = prop::sample::select(Verdict::ALL);
    let reason = prop::option::of(prop::sample::select(Reason::ALL));
    (0..4_u8, outcome, verdict, reason.clone(), reason, prop::option::of("\\PC{0,40}"), any::<u32>()).prop_map(
        |(state, outcome, verdict, reason, verdict_reason, message, parts)| match state {
            0 => accepted(1),
            1 => running(1, parts),
            2 => harvesting(1, parts),
            _ => TurnView { reason, verdict_reason, message, parts, ..settled(1, outcome, verdict) },
        },
    )
}

fn moment() -> impl Strategy<Value = (Option<LedgerView>, Option<PodView>, Facts)> {
    let turns = prop::collection::vec(turn(), 0..24).prop_map(|turns| {
        let number = |(i, turn): (usize, TurnView)| TurnView { turn: Turn(u32::try_from(i).unwrap() + 1), ..turn };
        ledger(1, turns.into_iter().enumerate().map(number).collect())
    });
    let pods = prop::option::of(prop_oneof![
        Just(pod()),
        Just(up()),
        Just(PodView { phase: PodPhase::Failed, recorder: ContainerState::Ended(ContainerEnd::default()), ..up() }),
    ]);
    let why = prop::option::of((prop::sample::select(Reason::ALL), "\\PC{0,40}"));
    let abandoned = prop::option::weighted(0.1, Just(Reason::StoreUnavailable));
    let facts = (why, any::<bool>(), any::<bool>(), any::<bool>(), abandoned).prop_map(
        |(waiting, tearing_down, slow_harvest, brief, abandoned)| Facts {
            waiting,
            tearing_down,
            slow_harvest,
            brief,
            abandoned,
        },
    );
    (prop::option::weighted(0.8, turns), pods, facts)
}

proptest! {
    #[test]
    fn whatever_comes_a_status_is_bounded_whole_and_stands_when_made_again(
        moments in prop::collection::vec(moment(), 1..6),
        desired in prop::sample::select(vec![Desired::Active, Desired::Suspended, Desired::Canceled]),
    ) {
        let mut object = Object::new(2);
        object.session.desired = desired;
        let mut high_water = 0;
        for (ledger, pod, facts) in &moments {
            object.pass(ledger.as_ref(), pod.as_ref(), facts);
            let status = object.status.clone().unwrap();
            if status.phase.is_some() {
                prop_assert_eq!(object.conditions().len(), 4);
            }
            prop_assert!(serde_json::to_vec(&status).unwrap().len() <= STATUS_BYTES);
            prop_assert!(status.accepted_turns.unwrap_or(0) >= high_water);
            high_water = status.accepted_turns.unwrap_or(0);
            prop_assert!(status.turns.len() <= crds::STATUS_TURNS);
            if facts.tearing_down && !facts.brief {
                prop_assert_eq!(&status.pod_ip, &None);
            }

            let writes = object.writes.len();
            object.pass(ledger.as_ref(), pod.as_ref(), facts);
            prop_assert_eq!(object.writes.len(), writes, "the same pass again wrote: {:?}", facts);
        }
    }
}
