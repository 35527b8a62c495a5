//! Pod Security "restricted", and a little more.

use k8s_openapi::api::core::v1::{Capabilities, PodSecurityContext, SeccompProfile, SecurityContext};

/// Most agent images are root's or a named user's, which `runAsNonRoot` alone refuses; hence the number.
pub(super) fn pod(run_as_user: Option<i64>) -> PodSecurityContext {
    PodSecurityContext {
        fs_group: run_as_user,
        fs_group_change_policy: Some("OnRootMismatch".to_owned()),
        run_as_group: run_as_user,
        run_as_non_root: Some(true),
        run_as_user,
        seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), ..SeccompProfile::default() }),
        ..PodSecurityContext::default()
    }
}

/// Of a container whose root file system is writable only if the user's programs live in it.
pub(super) fn container(writable_root: bool) -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), ..Capabilities::default() }),
        privileged: Some(false),
        read_only_root_filesystem: Some(!writable_root),
        run_as_non_root: Some(true),
        ..SecurityContext::default()
    }
}
