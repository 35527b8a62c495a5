//! `Complete` is never said without proof, and never withheld with it.

use agentsession_transcript::{
    AgentState, AgentStatus, Attempt, IndexSet, PartIndex, Reason, Turn, Verdict,
    merge::{Evidence, LogFacts, judge},
};
use proptest::prelude::*;

use super::{ATTEMPT, TURN, exited, indexes, status, with};

fn arbitrary_status() -> impl Strategy<Value = AgentStatus> {
    let state = prop::sample::select(vec![
        AgentState::Starting,
        AgentState::Idle,
        AgentState::Running,
        AgentState::Succeeded,
        AgentState::Failed,
        AgentState::Canceled,
    ]);
    let word = prop::option::of(prop::sample::select(vec!["LogLimit", "PartLimit", "LogWriteFailed", "x"]));
    (state, 2..4_u32, 1..3_u32, 0..6_u32, prop::bool::weighted(0.1), prop::option::weighted(0.2, word)).prop_map(
        |(state, turn, attempt, parts, truncated, word)| AgentStatus {
            turn: Turn(turn),
            attempt: Attempt(attempt),
            truncated,
            truncated_reason: word.flatten().map(str::to_owned),
            ..status(state, parts)
        },
    )
}

fn arbitrary_indexes() -> impl Strategy<Value = IndexSet> {
    prop_oneof![
        (0..7_u32).prop_map(indexes),
        prop::collection::vec(0..7_u32, 0..7).prop_map(|all| all.into_iter().map(PartIndex).collect()),
    ]
}

fn arbitrary_evidence() -> impl Strategy<Value = Evidence> {
    let facts = (
        prop::bool::weighted(0.9),
        0..3_u64,
        prop::bool::weighted(0.1),
        prop::option::weighted(
            0.1,
            prop::sample::select(vec![Reason::LogLimit, Reason::PartLimit, Reason::PartCountLimit]),
        ),
        prop::bool::weighted(0.1),
        arbitrary_indexes(),
    )
        .prop_map(|(exists, unread, torn_tail, marker, damaged, indexes)| LogFacts {
            exists,
            size: 2,
            read_to: 2_u64.saturating_sub(unread / 2),
            damaged_lines: u32::from(damaged),
            torn_tail,
            marker,
            indexes,
            ..LogFacts::default()
        });
    (prop::option::weighted(0.9, arbitrary_status()), facts, arbitrary_indexes(), prop::bool::weighted(0.1)).prop_map(
        |(status, facts, stored, over)| Evidence {
            status,
            facts,
            stored,
            over_quota: u32::from(over),
            ..Evidence::default()
        },
    )
}

/// The proof, written down once more and in other words than the judge's.
fn proves(evidence: &Evidence, ended: bool) -> bool {
    let Some(status) = &evidence.status else { return false };
    let facts = &evidence.facts;
    let is_ours = status.turn == TURN && status.attempt == ATTEMPT;
    let is_clean = facts.exists
        && facts.read_to == facts.size
        && !facts.torn_tail
        && facts.damaged_lines == 0
        && facts.marker.is_none()
        && !status.truncated
        && evidence.over_quota == 0;
    let all_stored = (0..7).all(|i| !facts.indexes.contains(PartIndex(i)) || evidence.stored.contains(PartIndex(i)));
    let below = (0..status.parts).all(|i| evidence.stored.contains(PartIndex(i)));
    let n = evidence.stored.len();
    let no_hole = (0..n).all(|i| evidence.stored.contains(PartIndex(i)));
    let end = if status.state.is_terminal() { below } else { ended && below && no_hole };
    is_ours && is_clean && all_stored && end
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn complete_is_never_said_without_proof_and_never_withheld_with_it(
        evidence in arbitrary_evidence(),
        ended in any::<bool>(),
    ) {
        let end = ended.then(|| exited(1));
        let judged = judge(TURN, ATTEMPT, &evidence, end.as_ref());
        let has_word = evidence.status.as_ref().is_some_and(|s| {
            s.truncated_reason.as_deref().is_some_and(|word| word.parse::<Reason>().is_ok())
        });
        prop_assert_eq!(judged.verdict == Verdict::Complete, proves(&evidence, ended) && !has_word);
        prop_assert_eq!(judged.verdict_reason.is_none(), judged.verdict == Verdict::Complete);
        prop_assert!(!(judged.pending && judged.verdict == Verdict::Complete));
        prop_assert_eq!(&judged, &judge(TURN, ATTEMPT, &evidence, end.as_ref()));
    }

    #[test]
    fn more_evidence_of_the_same_kind_never_makes_it_worse(evidence in arbitrary_evidence()) {
        let judged = judge(TURN, ATTEMPT, &evidence, Some(&exited(1)));
        let more = with(evidence, |e| {
            e.facts.read_to = e.facts.size;
            e.stored = (0..7).map(PartIndex).collect();
        });
        let again = judge(TURN, ATTEMPT, &more, Some(&exited(1)));
        prop_assert!(judged.verdict != Verdict::Complete || again.verdict == Verdict::Complete);
    }
}
