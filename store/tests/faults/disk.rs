//! A file system that is soon full.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Eight MiB of memory, mounted on a folder until it goes out of scope.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` for anybody but root, who alone may mount: CI is root.
    pub fn mount(folder: &Path) -> Option<Self> {
        let mut mount = Command::new("mount");
        let mount = mount.args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(folder).stderr(Stdio::null());
        if mount.status().unwrap().success() {
            return Some(Self(folder.to_owned()));
        }
        assert_ne!(fs::metadata("/proc/self").unwrap().uid(), 0, "root could not mount a small disk");
        None
    }

    /// Makes it sixty-four MiB.
    pub fn enlarge(&self) {
        let done = Command::new("mount").args(["-o", "remount,size=64m"]).arg(&self.0).status().unwrap();
        assert!(done.success());
    }

    /// A folder on it that the database server may write.
    pub fn folder_for_postgres(&self) -> String {
        let folder = self.0.join("tablespace");
        fs::create_dir(&folder).unwrap();
        let (uid, gid) = postgres_user();
        chown(&folder, Some(uid), Some(gid)).unwrap();
        fs::set_permissions(&self.0, fs::Permissions::from_mode(0o755)).unwrap();
        folder.display().to_string()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// User and group ids of `postgres`.
pub fn postgres_user() -> (u32, u32) {
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let fields = users.lines().find(|line| line.starts_with("postgres:")).unwrap().split(':');
    let ids: Vec<u32> = fields.skip(2).take(2).map(|id| id.parse().unwrap()).collect();
    (ids[0], ids[1])
}
