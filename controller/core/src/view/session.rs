//! AgentSession → [`SessionView`].

use crds::{AgentSession, AgentSessionSpec, Capture, DesiredState, Protocol, ReclaimPolicy, names};
use transcript::SessionUid;

use crate::{
    model::{Desired, SessionView, SpecTurn, Timeouts},
    pod_spec::template_digest,
};

/// What decisions see of a session. A field that validation would not let in today does not make it unreadable.
#[must_use]
pub fn session_view(session: &AgentSession) -> SessionView {
    let metadata = &session.metadata;
    let spec = &session.spec;
    let accepted = session.status.as_ref().and_then(|status| status.accepted_turns).unwrap_or(0);
    SessionView {
        uid: SessionUid(metadata.uid.clone().unwrap_or_default()),
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        deleting: metadata.deletion_timestamp.is_some(),
        has_finalizer: metadata.finalizers.iter().flatten().any(|finalizer| finalizer == names::FINALIZER),
        releasing: metadata.annotations.iter().flatten().any(|(key, _)| key == names::ANNOTATION_RELEASE),
        desired: match spec.desired_state {
            DesiredState::Active => Desired::Active,
            DesiredState::Suspended => Desired::Suspended,
            DesiredState::Canceled => Desired::Canceled,
        },
        turns: spec.turns.iter().map(|turn| SpecTurn { id: turn.id.clone(), prompt: turn.prompt.clone() }).collect(),
        image: spec.agent.image.clone(),
        template_digest: template_digest(spec),
        accepted_turns: u32::try_from(accepted).unwrap_or(0),
        timeouts: Timeouts {
            start: spec.start_timeout(),
            turn: spec.turn_timeout(),
            idle: spec.idle_timeout(),
            hold: spec.hold_timeout(),
            harvest: spec.harvest_timeout(),
            ttl: spec.ttl_after_finished(),
        },
        reclaim_delete: spec.transcript.reclaim_policy == ReclaimPolicy::Delete,
        invalid: invalid(spec),
    }
}

/// What cannot be acted on although it is stored. A duration that is none is not among it: its default is in force.
fn invalid(spec: &AgentSessionSpec) -> Option<String> {
    if spec.agent.image.trim().is_empty() {
        return Some("spec.agent.image is empty: name an image that has the agent in it".to_owned());
    }
    if spec.agent.command.first().is_none_or(|word| word.0.trim().is_empty()) {
        return Some("spec.agent.command has no program: write it as command: [claude-agent-acp]".to_owned());
    }
    if spec.agent.protocol != Protocol::ACP {
        return Some(
            "spec.agent.protocol StreamJSON is not supported yet: create another AgentSession with ACP".to_owned(),
        );
    }
    if spec.transcript.capture != Capture::Checkpoint {
        return Some("spec.transcript.capture Continuous is not supported yet: set it to Checkpoint".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::fixtures::{UID, session};

    #[test]
    fn defaults_are_resolved_and_the_high_water_mark_is_read() {
        let view = session_view(&session(json!({"status": {"acceptedTurns": 2, "phase": "Running"}})));
        assert_eq!(view.uid, SessionUid::from(UID));
        assert_eq!((view.namespace.as_str(), view.name.as_str()), ("team-a", "fix-login"));
        assert_eq!(view.accepted_turns, 2);
        assert_eq!(view.desired, Desired::Active);
        assert_eq!(view.timeouts.start, Duration::from_secs(600));
        assert_eq!(view.timeouts.idle, Duration::from_secs(900));
        assert_eq!(view.timeouts.ttl, None);
        assert_eq!(view.turns, [SpecTurn { id: None, prompt: "Fix the login bug".to_owned() }]);
        assert!(!view.deleting && !view.has_finalizer && !view.releasing && !view.reclaim_delete);
        assert_eq!(view.invalid, None);
    }

    #[test]
    fn marks_on_the_object_are_seen() {
        let view = session_view(&session(json!({
            "metadata": {
                "deletionTimestamp": "2026-11-30T18:00:00Z",
                "finalizers": ["example.com/other", "agentsession.dev/transcript"],
                "annotations": {"agentsession.dev/release": "2026-11-30"},
            },
            "spec": {"desiredState": "Canceled", "transcript": {"reclaimPolicy": "Delete"}},
        })));
        assert!(view.deleting && view.has_finalizer && view.releasing && view.reclaim_delete);
        assert_eq!(view.desired, Desired::Canceled);
    }

    #[test]
    fn a_negative_high_water_mark_counts_as_none() {
        assert_eq!(session_view(&session(json!({"status": {"acceptedTurns": -1}}))).accepted_turns, 0);
    }

    #[test]
    fn what_cannot_be_acted_on_is_said_with_field_and_way_out() {
        for (patch, field) in [
            (json!({"agent": {"protocol": "StreamJSON"}}), "spec.agent.protocol"),
            (json!({"agent": {"command": []}}), "spec.agent.command"),
            (json!({"agent": {"command": [" "]}}), "spec.agent.command"),
            (json!({"agent": {"image": " "}}), "spec.agent.image"),
            (json!({"transcript": {"capture": "Continuous"}}), "spec.transcript.capture"),
        ] {
            let view = session_view(&session(json!({"spec": patch})));
            assert!(view.invalid.as_deref().is_some_and(|text| text.starts_with(field)), "{field}: {:?}", view.invalid);
        }
        let odd = session_view(&session(json!({"spec": {"turnTimeout": "half an hour"}})));
        assert_eq!((odd.invalid, odd.timeouts.turn), (None, Duration::from_secs(1800)));
    }

    #[test]
    fn the_digest_changes_with_what_a_pod_is_made_from_and_with_nothing_else() {
        let digest = |spec| session_view(&session(json!({"spec": spec}))).template_digest;
        let plain = digest(json!({}));
        assert_eq!(plain.len(), 64);
        assert_eq!(plain, digest(json!({"turnTimeout": "1h", "turns": [{"prompt": "a"}, {"prompt": "b"}]})));
        assert_eq!(plain, digest(json!({"podTemplate": {}, "workspace": {}})));
        assert_ne!(plain, digest(json!({"agent": {"image": "other:2"}})));
        assert_ne!(plain, digest(json!({"podTemplate": {"labels": {"a": "b"}}})));
        assert_ne!(plain, digest(json!({"workspace": {"setup": {"command": ["true"]}}})));
    }
}
