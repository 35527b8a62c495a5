//! The files that driver and recorder share: their names, and how they are opened and replaced.
//!
//! The agent can write the log volume, so nothing here follows a link or opens anything but a regular file.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags};
use transcript::Turn;

/// Where the injected program stands.
pub const BIN: &str = "/agentsession/bin";
/// Where the driver writes its log.
pub const LOG: &str = "/agentsession/log";
/// Where the recorder writes what the driver is to do.
pub const INBOX: &str = "/agentsession/inbox";
/// The agent's working directory.
pub const WORKSPACE: &str = "/workspace";
/// The driver's status, within the log directory.
pub const STATUS: &str = "status.json";
/// What tells the recorder that it may go, within the inbox.
pub const RELEASE: &str = "release";

/// The log of a turn.
pub fn turn_log(dir: &Path, turn: Turn) -> PathBuf {
    dir.join(format!("turn-{turn}.jsonl"))
}

/// The prompt of a turn.
pub fn prompt(inbox: &Path, turn: Turn) -> PathBuf {
    inbox.join(format!("turn-{turn}.json"))
}

/// The order to cancel a turn.
pub fn cancel(inbox: &Path, turn: Turn) -> PathBuf {
    inbox.join(format!("cancel-{turn}.json"))
}

/// The turns that have a file `<prefix><N><suffix>` in a directory; none when it cannot be listed.
pub fn turns(dir: &Path, prefix: &str, suffix: &str) -> Vec<Turn> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let number = |name: &str| {
        let digits = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
        let turn: u32 = digits.parse().ok()?;
        // `turn-01.json` and `turn-+1.json` are not names of ours.
        (turn > 0 && turn.to_string() == digits).then_some(Turn(turn))
    };
    entries.flatten().filter_map(|entry| number(entry.file_name().to_str()?)).collect()
}

/// Opens a regular file for reading, without following a link and without waiting for a pipe's other end.
///
/// # Errors
/// As `open(2)`; a link or anything that is not a regular file is refused.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
    }
}

/// Creates a file that is not there yet, to append to.
///
/// # Errors
/// As `open(2)`; a file, or a link, that stands there already is refused.
pub fn create(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::from_raw_mode(0o644))?)
}

/// Reads a small regular file.
///
/// # Errors
/// As [`open`]; a file of more than `max` bytes is refused.
pub fn read_small(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("more than {max} bytes")));
    }
    Ok(bytes)
}

/// Writes a whole file beside its place and moves it there, so that a reader sees the old one or the new one.
///
/// # Errors
/// As `open(2)`, `write(2)` and `rename(2)`; nothing is left behind.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let beside = write_beside(path, bytes, mode)?;
    fs::rename(&beside, path).inspect_err(|_| discard(&beside))
}

/// Writes a whole file beside its place and links it there unless something stands there already: `false` then.
///
/// # Errors
/// As `open(2)`, `write(2)` and `link(2)`; nothing is left behind.
pub fn publish(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let beside = write_beside(path, bytes, 0o644)?;
    let linked = fs::hard_link(&beside, path);
    discard(&beside);
    match linked {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(e),
    }
}

fn write_beside(path: &Path, bytes: &[u8], mode: u32) -> io::Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{}", std::process::id()));
    discard(&beside);
    let written = create(&beside).and_then(|fd| {
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode))?;
        File::from(fd).write_all(bytes)
    });
    written.inspect_err(|_| discard(&beside))?;
    Ok(beside)
}

/// Removes what is of no more use. That it cannot be removed changes nothing.
fn discard(path: &Path) {
    let _ = fs::remove_file(path);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn only_regular_files_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("f"), dir.path().join("l"));
        fs::write(&file, "x").unwrap();
        symlink(&file, &link).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            dir.path().join("p"),
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        assert!(open(&file).is_ok());
        assert!(open(&link).is_err());
        assert!(open(&dir.path().join("p")).is_err());
        assert!(open(dir.path()).is_err());
        assert!(create(&link).is_err());
    }

    #[test]
    fn a_replaced_file_has_its_mode_and_leaves_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("status.json");
        replace(&path, b"1", 0o644).unwrap();
        replace(&path, b"2", 0o755).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"2");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_stands_is_never_replaced_by_publishing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("turn-1.json");
        assert!(publish(&path, b"1").unwrap());
        assert!(!publish(&path, b"2").unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"1");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn only_our_own_names_are_turns() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "turn-1.json",
            "turn-12.json",
            "turn-01.json",
            "turn-0.json",
            "turn-+3.json",
            "turn-x.json",
            ".turn-4.json.9",
            "turn-5.jsonl",
        ] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let mut found = turns(dir.path(), "turn-", ".json");
        found.sort();
        assert_eq!(found, [Turn(1), Turn(12)]);
    }
}
