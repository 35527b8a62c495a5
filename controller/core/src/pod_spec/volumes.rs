//! Volumes of the Pod, and the second fence around those that a session adds.

use crds::{AgentSession, names};
use k8s_openapi::{
    api::core::v1::{EmptyDirVolumeSource, PersistentVolumeClaimVolumeSource, Volume, VolumeMount},
    apimachinery::pkg::api::resource::Quantity,
};
use transcript::{SessionUid, limits};

use crate::names::claim_name;

/// The program has a few hundred KiB.
const BIN_LIMIT: &str = "64Mi";
/// Over this many times its bound, and only then, a log volume would have its Pod evicted.
const LOG_LIMIT_FACTOR: u64 = 16;
/// All prompts of a session with their context, many times over.
const INBOX_LIMIT: &str = "64Mi";
/// Paths that nothing of the user's may be mounted at, over or under.
const SEALED: [&str; 4] = [names::PATH_ROOT, "/proc", "/sys", "/dev"];
/// Paths that nothing may be mounted at or over; below is fine.
const KEPT: [&str; 2] = [names::PATH_WORK, names::PATH_HOME];

/// Ours, then the session's. Workspace and home have no size limit: running into it would evict the Pod, and the log with it.
pub(super) fn all(session: &AgentSession) -> Vec<Volume> {
    let log_limit = format!("{}Mi", (limits::LOG_BYTES * LOG_LIMIT_FACTOR) >> 20);
    let mut volumes = vec![
        empty_dir(names::VOLUME_BIN, Some(BIN_LIMIT)),
        empty_dir(names::VOLUME_LOG, Some(&log_limit)),
        empty_dir(names::VOLUME_INBOX, Some(INBOX_LIMIT)),
        workspace(session),
        empty_dir(names::VOLUME_HOME, None),
    ];
    let template = session.spec.pod_template.as_ref();
    let theirs = template.into_iter().flat_map(|template| &template.volumes);
    volumes.extend(theirs.filter(|volume| !is_reserved(&volume.name)).map(Volume::from));
    volumes
}

/// Where the session mounts its own volumes.
pub(super) fn user_mounts(session: &AgentSession) -> Vec<VolumeMount> {
    let template = session.spec.pod_template.as_ref();
    let mounts = template.into_iter().flat_map(|template| &template.volume_mounts);
    mounts.filter(|mount| !is_reserved(&mount.name) && may_mount_at(&mount.mount_path)).map(VolumeMount::from).collect()
}

fn is_reserved(volume: &str) -> bool {
    volume.starts_with(names::VOLUME_PREFIX)
}

fn workspace(session: &AgentSession) -> Volume {
    let claimed = session.spec.workspace.as_ref().is_some_and(|workspace| workspace.volume_claim_template.is_some());
    if !claimed {
        return empty_dir(names::VOLUME_WORK, None);
    }
    let uid = SessionUid(session.metadata.uid.clone().unwrap_or_default());
    Volume {
        name: names::VOLUME_WORK.to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim_name(&uid),
            read_only: None,
        }),
        ..Volume::default()
    }
}

fn empty_dir(name: &str, limit: Option<&str>) -> Volume {
    Volume {
        empty_dir: Some(EmptyDirVolumeSource {
            medium: None,
            size_limit: limit.map(|limit| Quantity(limit.to_owned())),
            ..EmptyDirVolumeSource::default()
        }),
        name: name.to_owned(),
        ..Volume::default()
    }
}

/// Judges the path that the kubelet would see, not the text.
fn may_mount_at(path: &str) -> bool {
    if !path.starts_with('/') || path.contains(':') {
        return false;
    }
    let words: Vec<&str> = path.split('/').filter(|word| !word.is_empty() && *word != ".").collect();
    if words.is_empty() || words.contains(&"..") {
        return false;
    }
    let at_or_over = |sealed: &str| is_prefix(&words, sealed);
    let under = |sealed: &str| sealed.split('/').skip(1).eq(words.iter().take(depth(sealed)).copied());
    !SEALED.iter().any(|sealed| at_or_over(sealed) || under(sealed)) && !KEPT.iter().any(|kept| at_or_over(kept))
}

fn depth(path: &str) -> usize {
    path.split('/').skip(1).count()
}

/// Whether the words are a path at `of` or above it.
fn is_prefix(words: &[&str], of: &str) -> bool {
    words.len() <= depth(of) && of.split('/').skip(1).zip(words).all(|(a, b)| a == *b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_mounted_at_over_or_under_what_is_ours() {
        for path in [
            "/",
            "//",
            "/.",
            "",
            "etc",
            "/agentsession",
            "/agentsession/",
            "/agentsession/bin",
            "/agentsession//log/turn",
            "/./agentsession/inbox",
            "/etc/../agentsession/log",
            "/proc",
            "/proc/1",
            "/sys/fs",
            "/dev/shm",
            "/workspace",
            "/workspace/",
            "/home",
            "/home/agent",
            "/home/./agent",
            "/a:/b",
        ] {
            assert!(!may_mount_at(path), "{path}");
        }
        for path in [
            "/etc/agent",
            "/workspace/cache",
            "/home/agent/.ssh",
            "/home/other",
            "/agentsessions",
            "/opt/agentsession",
            "/developer",
        ] {
            assert!(may_mount_at(path), "{path}");
        }
    }
}
