//! Whether the kernel ended a process of this container for want of memory.
//!
//! On cgroup v1 nothing in the Pod's status tells when a child of pid 1 is killed, so the driver compares the counter of its own
//! cgroup before and after.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The counter of kills in our own cgroup.
#[derive(Debug)]
pub struct OomCounter {
    files: Vec<PathBuf>,
    before: Option<u64>,
}

impl OomCounter {
    /// Takes the count as it is now. `mount` is where cgroups are mounted, `/sys/fs/cgroup`.
    pub fn start(mount: &Path) -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let files = candidates(mount, &own);
        let before = read(&files);
        Self { files, before }
    }

    /// Whether the count has grown since it was last taken; takes it anew.
    pub fn grew(&mut self) -> bool {
        let now = read(&self.files);
        let grew = matches!((self.before, now), (Some(before), Some(now)) if now > before);
        self.before = now;
        grew
    }
}

/// Where the counter may be: version 2, then version 1; the path that the process knows of itself, then the root of the mount,
/// which is our own cgroup when the container has its own view of them.
fn candidates(mount: &Path, own: &str) -> Vec<PathBuf> {
    let path_of = |wanted: &str| {
        own.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let controllers = fields.next()?;
            let path = fields.next()?.trim_start_matches('/');
            controllers.split(',').any(|name| name == wanted).then(|| PathBuf::from(path))
        })
    };
    let (v2, v1) = (path_of("").unwrap_or_default(), path_of("memory").unwrap_or_default());
    let memory = mount.join("memory");
    vec![
        mount.join(v2).join("memory.events"),
        mount.join("memory.events"),
        memory.join(v1).join("memory.oom_control"),
        memory.join("memory.oom_control"),
    ]
}

fn read(files: &[PathBuf]) -> Option<u64> {
    files.iter().find_map(|file| {
        let text = fs::read_to_string(file).ok()?;
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_cgroups_are_read() {
        let mount = tempfile::tempdir().unwrap();
        let root = mount.path();
        let own = "9:memory:/kubepods/pod1\n3:cpu,cpuacct:/x\n0::/\n";
        let v1 = root.join("memory/kubepods/pod1");
        fs::create_dir_all(&v1).unwrap();
        fs::write(v1.join("memory.oom_control"), "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n").unwrap();
        assert_eq!(read(&candidates(root, own)), Some(3));
        fs::write(root.join("memory.events"), "low 0\noom 1\noom_kill 7\noom_group_kill 0\n").unwrap();
        assert_eq!(read(&candidates(root, own)), Some(7));
    }

    #[test]
    fn only_a_growing_counter_is_a_kill() {
        let mount = tempfile::tempdir().unwrap();
        let file = mount.path().join("memory.events");
        let mut counter = OomCounter { files: vec![file.clone()], before: None };
        assert!(!counter.grew());
        fs::write(&file, "oom_kill 1\n").unwrap();
        assert!(!counter.grew(), "a counter that appears tells nothing");
        fs::write(&file, "oom_kill 2\n").unwrap();
        assert!(counter.grew());
        assert!(!counter.grew());
    }
}
