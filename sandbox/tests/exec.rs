//! `install`, `record`, `read` and `deliver` as a whole: what goes through an exec, and what happens when it breaks.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "the helpers of tests may fail as the tests do"
)]

mod support;

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use support::{Exec, Volumes, ends_within, fill, program};
use transcript::{
    AgentState, Turn,
    frame::{Delivered, Delivery, Prompt},
};

const GONE: Duration = Duration::from_secs(2);

fn status(state: &str, turn: u32) -> String {
    format!(r#"{{"state":"{state}","turn":{turn},"attempt":1,"agentReady":true}}"#)
}

fn prompt(turn: u32, text: &str) -> Vec<u8> {
    Prompt { turn: Turn(turn), prompt: text.to_owned(), context: None }.encode().unwrap()
}

#[test]
fn install_copies_the_program_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        assert!(program().arg("install").arg(dir.path()).status().unwrap().success());
    }
    let copy = dir.path().join("agentsession-sandbox");
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(fs::read(&copy).unwrap(), fs::read(env!("CARGO_BIN_EXE_agentsession-sandbox")).unwrap());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    let missing = program().args(["install", "/nowhere/at/all"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&missing.stderr)
            .contains("/nowhere/at/all/agentsession-sandbox cannot be written: No such file")
    );
}

#[test]
fn the_recorder_stays_through_sigterm_and_goes_when_released() {
    let volumes = Volumes::new();
    let mut recorder =
        program().arg("record").arg("--inbox").arg(volumes.inbox()).stderr(Stdio::null()).spawn().unwrap();
    thread::sleep(Duration::from_millis(200));
    for _ in 0..3 {
        kill_process(Pid::from_child(&recorder), Signal::TERM).unwrap();
        thread::sleep(Duration::from_millis(50));
    }
    assert!(ends_within(&mut recorder, Duration::from_millis(300)).is_none());
    let resident = fs::read_to_string(format!("/proc/{}/status", recorder.id())).unwrap();
    let kib: u64 = resident
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    assert!(kib <= 10 << 10, "{kib} KiB");
    let mut release = Exec::start(&volumes, &["deliver", "--release"]);
    assert!(Delivered::confirm(release.line().as_bytes(), b"{}\n").is_ok());
    let released = Instant::now();
    release.ack(0);
    assert_eq!(release.ends_within(GONE), Some(Some(0)));
    assert!(ends_within(&mut recorder, GONE).unwrap().success());
    // 300 ms on a machine that is not busy with other tests.
    assert!(released.elapsed() < Duration::from_millis(1000), "{:?}", released.elapsed());
}

#[test]
fn a_link_does_not_release_the_recorder() {
    let volumes = Volumes::new();
    std::os::unix::fs::symlink("/etc/hostname", volumes.inbox().join("release")).unwrap();
    let mut recorder =
        program().arg("record").arg("--inbox").arg(volumes.inbox()).stderr(Stdio::null()).spawn().unwrap();
    assert!(ends_within(&mut recorder, Duration::from_millis(500)).is_none());
    recorder.kill().unwrap();
    recorder.wait().unwrap();
}

#[test]
fn a_frame_holds_the_log_and_its_proof() {
    let volumes = Volumes::new();
    let content = fill(&volumes.turn_log(1), 3_000_000);
    volumes.write_status(&status("succeeded", 1));
    for (from, max, to) in
        [(0, 16 << 20, 3_000_000), (1000, 500, 1500), (3_000_000, 10, 3_000_000), (2_999_999, 10, 3_000_000)]
    {
        let mut read =
            Exec::start(&volumes, &["read", "--turn", "1", "--from", &from.to_string(), "--max", &max.to_string()]);
        let frame = read.frame(1, from).unwrap();
        assert_eq!((frame.header.exists, frame.header.size, frame.header.to), (true, 3_000_000, to));
        assert_eq!(frame.header.status.unwrap().state, AgentState::Succeeded);
        assert_eq!(frame.body, content[usize::try_from(from).unwrap()..usize::try_from(to).unwrap()]);
        assert!(read.ends_within(Duration::from_millis(300)).is_none(), "it stays until it is told");
        read.ack(to);
        assert_eq!(read.ends_within(GONE), Some(Some(0)));
    }
}

#[test]
fn what_is_not_there_is_said() {
    let volumes = Volumes::new();
    let header = |turn: u32, from: u64| {
        let mut read = Exec::start(&volumes, &["read", "--turn", &turn.to_string(), "--from", &from.to_string()]);
        let frame = read.frame(turn, from).unwrap();
        assert!(frame.body.is_empty());
        read.close_stdin();
        assert_eq!(read.ends_within(GONE), Some(Some(0)));
        frame.header
    };
    let nothing = header(1, 0);
    assert_eq!(
        (nothing.status, nothing.status_error, nothing.exists, nothing.size, nothing.to),
        (None, None, false, 0, 0)
    );
    fs::write(volumes.log().join("status.json"), "{\"state\":").unwrap();
    fs::write(volumes.turn_log(1), "").unwrap();
    let broken = header(1, 0);
    assert!(broken.status.is_none() && broken.status_error.is_some() && broken.exists);
    // Shorter than what was read of it before.
    fs::write(volumes.turn_log(1), "0123456789").unwrap();
    let short = header(1, 100);
    assert_eq!((short.exists, short.size, short.from, short.to), (true, 10, 100, 100));
    // A link is not a log, wherever it leads.
    std::os::unix::fs::symlink("/etc/passwd", volumes.turn_log(2)).unwrap();
    assert!(!header(2, 0).exists);
}

#[test]
fn a_follower_hears_at_once_what_matters_and_in_its_interval_what_does_not() {
    let volumes = Volumes::new();
    volumes.write_status(&status("running", 1));
    let mut log = fs::File::create(volumes.turn_log(1)).unwrap();
    let mut read = Exec::start(&volumes, &["read", "--turn", "1", "--follow", "2s"]);
    let at = Instant::now();
    let first = read.frame(1, 0).unwrap();
    assert!(first.body.is_empty() && at.elapsed() < Duration::from_millis(1500));
    read.ack(0);
    // A little waits for its interval; nothing at all too.
    let at = Instant::now();
    log.write_all(b"a\n").unwrap();
    assert_eq!(read.frame(1, 0).unwrap().body, b"a\n");
    assert!(at.elapsed() >= Duration::from_millis(1500), "{:?}", at.elapsed());
    read.ack(2);
    assert!(read.frame(1, 2).unwrap().body.is_empty());
    read.ack(2);
    // Much does not wait.
    let at = Instant::now();
    log.write_all(&vec![b'x'; 1 << 20]).unwrap();
    assert_eq!(read.frame(1, 2).unwrap().body.len(), 1 << 20);
    assert!(at.elapsed() < Duration::from_millis(1500), "{:?}", at.elapsed());
    read.ack(2 + (1 << 20));
    // The end of the turn does not either.
    let at = Instant::now();
    log.write_all(b"last\n").unwrap();
    volumes.write_status(&status("succeeded", 1));
    let last = read.frame(1, 0).unwrap();
    assert_eq!(
        (last.body.as_slice(), last.header.status.unwrap().state),
        (b"last\n".as_slice(), AgentState::Succeeded)
    );
    assert!(at.elapsed() < Duration::from_millis(1500), "{:?}", at.elapsed());
    read.close_stdin();
    assert_eq!(read.ends_within(GONE), Some(Some(0)));
}

#[test]
fn the_next_frame_waits_for_the_acknowledgement_of_the_last() {
    let volumes = Volumes::new();
    let content = fill(&volumes.turn_log(1), 10_000);
    volumes.write_status(&status("succeeded", 1));
    let mut read = Exec::start(&volumes, &["read", "--turn", "1", "--follow", "50ms", "--max", "4000"]);
    let mut got = read.frame(1, 0).unwrap().body;
    read.ack(10);
    read.say(b"nonsense\nack 3999\nack x\n");
    thread::sleep(Duration::from_millis(300));
    read.ack(4000);
    for _ in 0..2 {
        let frame = read.frame(1, 0).unwrap();
        got.extend_from_slice(&frame.body);
        read.ack(frame.header.to);
    }
    assert_eq!(got, content);
}

#[test]
fn a_log_that_is_replaced_is_not_read_on() {
    let volumes = Volumes::new();
    fill(&volumes.turn_log(1), 1000);
    let mut read = Exec::start(&volumes, &["read", "--turn", "1", "--follow", "50ms"]);
    read.frame(1, 0).unwrap();
    fs::rename(volumes.turn_log(1), volumes.log().join("old")).unwrap();
    fill(&volumes.turn_log(1), 2000);
    read.ack(1000);
    assert_eq!(read.ends_within(GONE), Some(Some(4)));
}

#[test]
fn no_reader_process_stays_when_its_connection_breaks() {
    let volumes = Volumes::new();
    fill(&volumes.turn_log(1), 8 << 20);
    volumes.write_status(&status("running", 1));
    let big: &[&str] = &["read", "--turn", "1"];
    let follow: &[&str] = &["read", "--turn", "1", "--follow", "1h"];
    for arguments in [big, follow] {
        // At its first moment, while it writes into a full pipe, after a part was read, after a frame.
        for bytes in [0, 1, 100_000, 8 << 20] {
            let mut read = Exec::start(&volumes, arguments);
            if bytes == 8 << 20 {
                read.frame(1, 0).unwrap();
            } else if bytes > 0 {
                read_bytes(&mut read, bytes);
                thread::sleep(Duration::from_millis(100));
            }
            read.close_stdin();
            assert_eq!(read.ends_within(GONE), Some(Some(0)), "{arguments:?} after {bytes} bytes");
        }
        // The reading end is closed while stdin stays open.
        let mut read = Exec::start(&volumes, arguments);
        read_bytes(&mut read, 10);
        read.close_stdout();
        assert_eq!(read.ends_within(GONE), Some(Some(1)), "{arguments:?}");
    }
}

#[test]
fn a_reader_that_takes_too_long_is_given_up() {
    let volumes = Volumes::new();
    fill(&volumes.turn_log(1), 8 << 20);
    // It stops reading, with everything open; it reads all and says nothing.
    for whole in [false, true] {
        let mut read = Exec::start(&volumes, &["read", "--turn", "1", "--hold", "500ms"]);
        if whole {
            read.frame(1, 0).unwrap();
        } else {
            read_bytes(&mut read, 1000);
        }
        assert_eq!(read.ends_within(GONE), Some(Some(3)), "{whole}");
    }
    // A slow reader within the bound gets all of it.
    let mut read = Exec::start(&volumes, &["read", "--turn", "1", "--hold", "10s", "--max", "400000"]);
    thread::sleep(Duration::from_millis(700));
    let frame = read.frame(1, 0).unwrap();
    assert_eq!(frame.body.len(), 400_000);
    thread::sleep(Duration::from_millis(700));
    read.ack(400_000);
    assert_eq!(read.ends_within(GONE), Some(Some(0)));
}

fn read_bytes(read: &mut Exec, bytes: usize) {
    let mut got = 0;
    while got < bytes {
        got += read.chunk(bytes - got);
    }
}

#[test]
fn a_prompt_stands_once_and_is_answered_each_time() {
    let volumes = Volumes::new();
    let path = volumes.inbox().join("turn-3.json");
    let (first, other) = (prompt(3, "hello\n😀"), prompt(3, "something else"));
    let deliver = |bytes: &[u8]| {
        let mut exec = Exec::start(&volumes, &["deliver", "--turn", "3"]);
        exec.say(&Delivery::frame(bytes).unwrap());
        let answer = exec.line();
        exec.ack(0);
        assert_eq!(exec.ends_within(GONE), Some(Some(0)));
        Delivered::confirm(answer.as_bytes(), bytes).map_err(|error| error.to_string())
    };
    assert_eq!(deliver(&first), Ok(()));
    assert_eq!(fs::read(&path).unwrap(), first);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
    assert_eq!(deliver(&first), Ok(()));
    assert!(deliver(&other).unwrap_err().contains("before, and stands"));
    assert!(deliver(b"{}").unwrap_err().contains("not understood"));
    assert!(deliver(&prompt(4, "x")).unwrap_err().contains("says that it is of turn 4"));
    assert_eq!(fs::read(&path).unwrap(), first);
    assert_eq!(fs::read_dir(volumes.inbox()).unwrap().count(), 1);
}

#[test]
fn a_large_prompt_arrives_whole() {
    let volumes = Volumes::new();
    let bytes = prompt(1, &"\u{10348}\u{0}\"".repeat(150_000));
    let mut exec = Exec::start(&volumes, &["deliver", "--turn", "1"]);
    for chunk in Delivery::frame(&bytes).unwrap().chunks(10_007) {
        exec.say(chunk);
    }
    assert!(Delivered::confirm(exec.line().as_bytes(), &bytes).is_ok());
    exec.close_stdin();
    assert_eq!(exec.ends_within(GONE), Some(Some(0)));
}

#[test]
fn a_delivery_that_is_cut_or_wrong_leaves_nothing() {
    let volumes = Volumes::new();
    let frame = Delivery::frame(&prompt(1, "hello")).unwrap();
    for cut in [0, 1, 20, frame.len() - 1] {
        let mut exec = Exec::start(&volumes, &["deliver", "--turn", "1"]);
        exec.say(&frame[..cut]);
        exec.close_stdin();
        assert!(exec.ends_within(GONE).is_some(), "{cut}");
    }
    let mut wrong = frame.clone();
    let last = wrong.len() - 3;
    wrong[last] ^= 1;
    let mut exec = Exec::start(&volumes, &["deliver", "--turn", "1"]);
    exec.say(&wrong);
    assert!(exec.line().contains("digest is not that of the bytes"));
    exec.close_stdin();
    assert_eq!(exec.ends_within(GONE), Some(Some(0)));
    // Half of it, and then nothing.
    let mut exec = Exec::start(&volumes, &["deliver", "--turn", "1", "--hold", "500ms"]);
    exec.say(&frame[..20]);
    assert_eq!(exec.ends_within(GONE), Some(Some(3)));
    assert_eq!(fs::read_dir(volumes.inbox()).unwrap().count(), 0);
}

#[test]
fn an_order_needs_no_body_and_no_patience() {
    let volumes = Volumes::new();
    for _ in 0..2 {
        let mut exec = Exec::start(&volumes, &["deliver", "--cancel", "2"]);
        exec.close_stdin();
        assert!(Delivered::confirm(exec.line().as_bytes(), b"{\"turn\":2}\n").is_ok());
        assert_eq!(exec.ends_within(GONE), Some(Some(0)));
    }
    assert!(volumes.inbox().join("cancel-2.json").is_file());
    let mut held = Exec::start(&volumes, &["deliver", "--cancel", "3", "--hold", "300ms"]);
    assert_eq!(held.ends_within(GONE), Some(Some(3)));
}

#[test]
fn a_wrong_call_says_what_to_write_instead() {
    for (arguments, words) in [
        (&["read"][..], "--turn <N>"),
        (&["read", "--turn", "one"], "invalid value 'one' for '--turn <N>'"),
        (&["read", "--turn", "1", "--follow", "15"], "write 15s, 500ms, 2m or 1h"),
        (&["deliver"], "--turn <N>|--cancel <N>|--release"),
        (&["deliver", "--turn", "1", "--release"], "cannot be used with"),
        (&["drive"], "-- <COMMAND>..."),
        (&["nonsense"], "unrecognized subcommand"),
    ] {
        let output = program().args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    let attempt = program().args(["drive", "--", "true"]).env_remove("AGENTSESSION_ATTEMPT").output().unwrap();
    assert_eq!(attempt.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&attempt.stderr).contains("set it to the number of this attempt, or give --attempt")
    );
    for command in ["install", "drive", "record", "read", "deliver"] {
        let help = program().args([command, "--help"]).output().unwrap();
        assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).contains("Exits 0"), "{command}");
    }
}
