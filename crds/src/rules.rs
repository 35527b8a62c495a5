//! The CEL rules of the schema: what the API server refuses, and the sentence it says.
//!
//! A sentence names the field, says what is expected and what to do instead. Rules stand on the field they speak of, so that the server
//! prints its path. Each was tried on a real server; its cost estimate bounds what can be said here: lists and texts need bounds
//! (`maxItems`, `maxLength`), `messageExpression` with a computed size and index ranges over a list are too dear.

use kube::core::{Reason, Rule};

fn invalid(rule: impl Into<String>, message: &str) -> Rule {
    Rule::new(rule).message(message).reason(Reason::FieldValueInvalid)
}

fn forbidden(rule: impl Into<String>, message: &str) -> Rule {
    Rule::new(rule).message(message).reason(Reason::FieldValueForbidden)
}

fn required(rule: impl Into<String>, message: &str) -> Rule {
    Rule::new(rule).message(message).reason(Reason::FieldValueRequired)
}

// --- spec

/// `mode` decides how stored turns are folded, so it cannot change under them.
pub(crate) fn mode_immutable() -> Rule {
    forbidden(
        "self == oldSelf",
        "mode cannot be changed, since it decides how the stored turns are read: keep it, or create another AgentSession",
    )
}

/// A canceled session has settled its turns as Canceled; there is nothing to go back to.
pub(crate) fn canceled_is_for_good() -> Rule {
    forbidden(
        "oldSelf != 'Canceled' || self == 'Canceled'",
        "desiredState Canceled is for good: leave it, or create another AgentSession (Suspended is the state that can be left again)",
    )
}

/// A turn that is added to a canceled session would be settled Canceled at once, unread.
pub(crate) fn no_turns_after_cancel() -> Rule {
    forbidden(
        "oldSelf.desiredState != 'Canceled' || self.turns.size() <= oldSelf.turns.size()",
        "turns cannot be added, since this session is canceled for good: create another AgentSession",
    )
    .field_path(".turns")
}

// --- turns

/// Without `minItems`, so that this sentence speaks and not the server's.
pub(crate) fn turns_not_empty() -> Rule {
    required("self.size() > 0", "turns must hold at least one: write turns: [{prompt: \"what the agent is to do\"}]")
}

/// The list got shorter: nearly always a writer that has not seen what another one added.
pub(crate) fn turns_not_fewer() -> Rule {
    forbidden(
        "self.size() >= oldSelf.size()",
        "turns were added since (by the gateway or another writer), or yours lacks some: read the object back and add to its list; accepted turns stay",
    )
}

/// Same length or longer, but another beginning.
pub(crate) fn turns_append_only() -> Rule {
    forbidden(
        "self.size() < oldSelf.size() || oldSelf.all(i, t, self[i] == t)",
        "turns that were accepted cannot be changed, moved or replaced: read the object back, keep its list as it is and add yours at the end",
    )
}

/// All prompts together, in characters.
pub(crate) fn prompts_in_sum() -> Rule {
    invalid(
        "self.map(t, t.prompt.size()).sum() <= 131072",
        "turns hold more than 131072 characters of prompts together: shorten them, put long material into the workspace, or create another AgentSession",
    )
}

/// Ids are what makes adding a turn idempotent. Forbidden, since the server leaves the sentence out with the reason "duplicate".
pub(crate) fn turn_ids_unique() -> Rule {
    forbidden(
        "self.all(t, !has(t.id) || self.exists_one(u, has(u.id) && u.id == t.id))",
        "turns have an id twice: give each turn an id of its own, or leave id out",
    )
}

/// `trim` takes all Unicode white space.
pub(crate) fn prompt_not_blank() -> Rule {
    required("self.trim() != ''", "prompt is blank: write what the agent is to do")
}

/// PostgreSQL and every C string end there.
pub(crate) fn no_nul(field: &str) -> Rule {
    invalid(
        "!self.contains('\\u0000')",
        &format!("{field} has the character U+0000, which cannot be stored or passed on: take it out"),
    )
}

/// Ids travel in URLs and headers.
pub(crate) fn turn_id() -> Rule {
    invalid(
        "self.matches('^[A-Za-z0-9]([A-Za-z0-9._:-]*[A-Za-z0-9])?$')",
        "id must be letters, digits and . _ : - between them, such as turn-2 or a UUID; or leave it out",
    )
}

// --- durations: matched before they are parsed, since CEL's duration() takes more than we do and fails loudly on the rest

fn duration(from: &str, to: &str, message: &str) -> Rule {
    invalid(
        format!(
            "self != '' && self.matches('^([0-9]{{1,4}}h)?([0-9]{{1,5}}m)?([0-9]{{1,6}}s)?$') \
             && duration(self) >= duration('{from}') && duration(self) <= duration('{to}')"
        ),
        message,
    )
}

/// 1 s to 24 h.
pub(crate) fn duration_day(field: &str) -> Rule {
    duration(
        "1s",
        "24h",
        &format!("{field} must be hours, minutes and seconds from 1s to 24h, such as 90s, 15m or 1h30m"),
    )
}

/// 0 s to 24 h.
pub(crate) fn duration_day_or_zero(field: &str) -> Rule {
    duration(
        "0s",
        "24h",
        &format!("{field} must be hours, minutes and seconds from 0s to 24h, such as 0s (do not wait), 90s or 1h30m"),
    )
}

/// 1 s to a year.
pub(crate) fn duration_year(field: &str) -> Rule {
    duration(
        "1s",
        "8760h",
        &format!(
            "{field} must be hours, minutes and seconds from 1s to 8760h (a year), such as 30m or 168h for a week; leave it out to keep the object"
        ),
    )
}

// --- agent

/// White space inside is as wrong as nothing: both would only fail at the kubelet.
pub(crate) fn image(field: &str) -> Rule {
    required(
        "self.matches('^[^ \\t\\r\\n]+$')",
        &format!("{field} must name an image, such as ghcr.io/acme/agent:1, without white space"),
    )
}

/// The command's words; the first is the program.
pub(crate) fn command(field: &str) -> Rule {
    required(
        "self.size() > 0 && self[0].trim() != ''",
        &format!(
            "{field} must have at least one word, the program to run: write {field}: [claude-agent-acp] (the image's own entrypoint is not used)"
        ),
    )
}

/// In the schema already, not yet acted on.
pub(crate) fn protocol_supported() -> Rule {
    invalid("self != 'StreamJSON'", "protocol StreamJSON is not supported yet: write ACP, or leave it out")
}

/// The stored turns were written in it.
pub(crate) fn protocol_immutable() -> Rule {
    forbidden("self == oldSelf", "protocol cannot be changed: keep it, or create another AgentSession")
}

/// In the schema already, not yet acted on.
pub(crate) fn capture_supported() -> Rule {
    invalid("self != 'Continuous'", "capture Continuous is not supported yet: write Checkpoint, or leave it out")
}

/// What Kubernetes takes, but for what would break our own containers.
pub(crate) fn env_name() -> Rule {
    invalid(
        "self.matches('^[A-Za-z_][A-Za-z0-9_.-]*$') && !self.startsWith('AGENTSESSION_')",
        "name must be letters, digits and _ . - with no digit first, and must not begin with AGENTSESSION_, which is ours",
    )
}

/// A variable without either is legal in Kubernetes, means an empty text, and is nearly always a mistake in indentation.
pub(crate) fn env_one_source() -> Rule {
    invalid(
        "has(self.value) != has(self.valueFrom)",
        "a variable needs either value or valueFrom, and not both: write value: \"\" for an empty one",
    )
}

/// One of the closed list of sources.
pub(crate) fn env_value_from() -> Rule {
    invalid(
        "[has(self.secretKeyRef), has(self.configMapKeyRef), has(self.fieldRef)].exists_one(b, b)",
        "valueFrom needs exactly one of secretKeyRef, configMapKeyRef and fieldRef",
    )
}

/// Quantities would otherwise be refused when the Pod is created, long after `kubectl apply`.
pub(crate) fn quantity() -> Rule {
    invalid(
        "type(self) == int ? self >= 0 : isQuantity(self) && !quantity(self).isLessThan(quantity('0'))",
        "a quantity is a number with an optional unit, not below 0, such as 500m, 2, 512Mi or 4Gi",
    )
}

// --- workspace

/// A claim without a size is refused by the API server only when it is made.
pub(crate) fn claim_has_storage() -> Rule {
    required(
        "has(self.resources) && has(self.resources.requests) && 'storage' in self.resources.requests",
        "resources.requests.storage must say how much, such as 10Gi",
    )
}

/// Kubernetes refuses an empty list.
pub(crate) fn access_modes() -> Rule {
    required("self.size() > 0", "accessModes must have at least one, such as [ReadWriteOnce]; or leave it out")
}

// --- podTemplate

/// One of the closed list of kinds.
pub(crate) fn volume_one_kind() -> Rule {
    invalid(
        "[has(self.configMap), has(self.secret), has(self.emptyDir), has(self.persistentVolumeClaim), has(self.ephemeral), \
         has(self.csi), has(self.image)].exists_one(b, b)",
        "a volume needs exactly one of configMap, secret, emptyDir, persistentVolumeClaim, ephemeral, csi and image; \
         others, such as hostPath and projected, are not allowed in agent Pods",
    )
}

/// A DNS label that is not ours.
pub(crate) fn volume_name() -> Rule {
    invalid(
        "self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$') && !self.startsWith('agentsession-')",
        "name must be lower-case letters, digits and - between them, and must not begin with agentsession-, which is ours",
    )
}

/// Absolute and in normal form, so that the next rule sees what the kubelet would mount.
pub(crate) fn mount_path_shape() -> Rule {
    invalid(
        "self.matches('^(/[^/:]+)+$') && !self.matches('/[.][.]?(/|$)')",
        "mountPath must be an absolute path without : // . and .. in it and without / at its end, such as /etc/agent",
    )
}

/// Below the workspace and the home a mount is fine; at or over them, and anywhere in our root, it is not.
pub(crate) fn mount_path_not_ours() -> Rule {
    forbidden(
        "!(self in ['/home', '/home/agent', '/workspace', '/agentsession', '/proc', '/sys', '/dev']) && !self.startsWith('/agentsession/') \
         && !self.startsWith('/proc/') && !self.startsWith('/sys/') && !self.startsWith('/dev/')",
        "mountPath is taken by the agent Pod itself (/agentsession, /workspace, /home/agent, /proc, /sys, /dev): mount elsewhere, \
         or at a path below /workspace or /home/agent",
    )
}

/// Relative and inside.
pub(crate) fn sub_path(field: &str) -> Rule {
    invalid(
        "!self.startsWith('/') && !self.matches('(^|/)[.][.](/|$)')",
        &format!(
            "{field} must be a relative path inside the volume, such as config/agent.toml: without .. and without / in front"
        ),
    )
}

/// A mount of nothing is refused by the API server only when the Pod is created.
pub(crate) fn mounts_have_volumes() -> Rule {
    invalid(
        "!has(self.volumeMounts) || self.volumeMounts.all(m, has(self.volumes) && self.volumes.exists(v, v.name == m.name))",
        "volumeMounts names a volume that is not in podTemplate.volumes: add the volume, or correct the name",
    )
    .field_path(".volumeMounts")
}

/// As Kubernetes says it, but before the Pod is created.
pub(crate) fn toleration() -> Rule {
    invalid(
        "has(self.key) && self.key != '' || has(self.operator) && self.operator == 'Exists'",
        "a toleration without key tolerates everything and needs operator: Exists; otherwise write its key",
    )
}
