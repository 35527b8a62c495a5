//! `drive` as a whole: what stands in log and status when agents do what agents do.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "the helpers of tests may fail as the tests do"
)]

mod support;

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use rustix::process::Signal;
use serde_json::json;
use support::{Drive, PATIENCE, agent, ends_within, wait_for};
use transcript::{AgentExit, AgentState, Turn};

/// Not a test: the agent of the others.
#[test]
fn scripted_agent() {
    agent::run();
}

#[test]
fn a_turn_is_written_and_then_said_to_be_over() {
    let drive = Drive::start("", "");
    let idle = drive.idle();
    assert_eq!((idle.turn, idle.attempt.0, idle.agent_ready), (Turn(0), 4, true));
    assert_eq!((idle.agent_session_id.as_deref(), idle.resume.as_deref()), (Some("s"), Some("new")));
    let status = drive.turn(1);
    assert_eq!(
        (status.state, status.agent_ready, status.truncated, status.error),
        (AgentState::Succeeded, true, false, None)
    );
    assert_eq!(
        drive.volumes.kinds(1),
        ["start", "start-step", "text-start", "text-delta", "text-delta", "text-end", "finish-step", "finish"]
    );
    assert_eq!(drive.volumes.parts(1).last().unwrap()["finishReason"], "stop");
    assert_eq!(fs::metadata(drive.volumes.turn_log(1)).unwrap().permissions().mode() & 0o777, 0o644);
    assert_eq!(fs::metadata(drive.volumes.log().join("status.json")).unwrap().permissions().mode() & 0o777, 0o644);
    let said = drive.stop();
    assert!(said.contains("no message on the agent's stdout: running 1 test"), "{said}");
}

#[test]
fn turns_follow_each_other_and_only_the_last_log_stays() {
    let drive = Drive::start("", "");
    drive.turn(1);
    drive.turn(2);
    let status = drive.turn(5);
    assert_eq!(status.state, AgentState::Succeeded);
    assert!(!drive.volumes.turn_log(1).exists() && !drive.volumes.turn_log(2).exists());
    assert_eq!(drive.volumes.text(5), "before after");
    // What was delivered before is never begun again.
    drive.volumes.deliver(3, "again");
    drive.volumes.deliver(5, "again");
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(drive.volumes.status().unwrap(), status);
}

#[test]
fn context_goes_before_the_prompt_and_is_recorded_as_a_rung_only() {
    let drive = Drive::with("", "", |command, _| {
        command.env("SCRIPT_ECHO", "1");
    });
    drive.volumes.deliver_with(1, "now", Some("what was"));
    let status = drive.over(1);
    assert_eq!(status.continuity.as_deref(), Some("transcript-reprime"));
    let text = drive.volumes.text(1);
    let echo: serde_json::Value = serde_json::from_str(&text["before ".len()..text.len() - "after".len()]).unwrap();
    assert_eq!(echo, json!([{"type": "text", "text": "what was"}, {"type": "text", "text": "now"}]));
    let parts = drive.volumes.parts(1);
    assert_eq!(parts[2]["data"], json!({"rung": "transcript-reprime"}));
    assert_eq!(parts[2]["type"], "data-continuity");
    let status = drive.turn(2);
    assert_eq!(status.continuity, None);
}

#[test]
fn odd_messages_are_borne_and_kept() {
    let drive = Drive::start(
        "raw Welcome to the agent v1.2",
        r#"
        update {"sessionUpdate":"totally_new_kind","x":1}
        raw {"jsonrpc":"2.0","method":"_vendor/thing","params":{"a":1}}
        ask {"jsonrpc":"2.0","id":"x1","method":"_vendor/ask","params":{}}
        ask {"jsonrpc":"2.0","id":"x2","method":"fs/read_text_file","params":{"sessionId":"s","path":"/etc/hostname"}}
        raw {"jsonrpc":"2.0","method":"session/upd
        raw {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"half \ud83e"}}}}
        raw {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"other","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"of another"}}}}
        bytes 7b 22 ff fe 0a
        raw {"jsonrpc":"2.0","id":999,"result":{}}
        "#,
    );
    let status = drive.turn(1);
    assert_eq!((status.state, status.truncated), (AgentState::Succeeded, false));
    let parts = drive.volumes.parts(1);
    let kept: Vec<_> =
        parts.iter().filter(|part| part["type"] == "data-acp").map(|part| &part["data"]["update"]).collect();
    assert_eq!(kept[0], &json!({"sessionUpdate": "totally_new_kind", "x": 1}));
    assert_eq!(kept[1], &json!({"method": "_vendor/thing", "params": {"a": 1}}));
    assert_eq!(kept[2]["method"], "_vendor/ask");
    assert_eq!(kept[3]["method"], "fs/read_text_file");
    assert_eq!(kept[4]["malformed"], "{\"jsonrpc\":\"2.0\",\"method\":\"session/upd");
    assert_eq!(kept[5]["content"]["text"], "of another");
    assert_eq!((&kept[6]["notUtf8"], kept[6]["sha256"].as_str().unwrap().len()), (&json!(true), 64));
    assert_eq!(kept[7]["malformed"], "{\"\u{FFFD}\u{FFFD}");
    let text = drive.volumes.text(1);
    assert_eq!(text.matches(r#""code":-32601"#).count(), 2, "{text}");
    assert!(drive.volumes.lines(1).iter().any(|line| line.contains(r#""delta":"half \ud83e""#)));
}

#[test]
fn permissions_are_answered_by_kind() {
    let drive = Drive::start(
        "",
        r#"ask {"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"g","title":"Shell","kind":"execute"},"options":[{"optionId":"no","kind":"reject_once"},{"optionId":"ever","kind":"allow_always"},{"optionId":"yes","kind":"allow_once"}]}}"#,
    );
    drive.turn(1);
    assert!(drive.volumes.text(1).contains(r#""optionId":"yes""#));
    let parts = drive.volumes.parts(1);
    let permission = parts.iter().find(|part| part["type"] == "data-permission").unwrap();
    assert_eq!(permission["data"], json!({"toolCallId": "g", "kind": "allow_once", "title": "Shell"}));
}

#[test]
fn what_comes_before_and_after_a_turn_is_not_lost() {
    let drive = Drive::with("", "stop-and-say late", |command, _| {
        command.env(
            "SCRIPT_EARLY",
            r#"update {"sessionUpdate":"available_commands_update","availableCommands":[1]}
               say too early
               update {"sessionUpdate":"available_commands_update","availableCommands":[2]}"#,
        );
    });
    drive.idle();
    drive.turn(1);
    let parts = drive.volumes.parts(1);
    assert_eq!(parts[2]["data"]["update"]["content"]["text"], "too early");
    assert_eq!((&parts[3]["type"], &parts[3]["data"]["availableCommands"]), (&json!("data-commands"), &json!([2])));
    // What the agent sends behind its answer, at once, belongs to the turn still.
    assert_eq!(drive.volumes.text(1), "before late");
    assert_eq!(parts.iter().filter(|part| part["type"] == "finish").count(), 1);
}

#[test]
fn every_way_to_end_has_its_finish() {
    for (stop, finish) in [
        ("max_tokens", "length"),
        ("refusal", "content-filter"),
        ("max_turn_requests", "other"),
        ("brand_new", "other"),
    ] {
        let drive = Drive::start("", &format!("stop {stop}"));
        let status = drive.turn(1);
        assert_eq!(status.state, AgentState::Succeeded, "{stop}");
        let parts = drive.volumes.parts(1);
        assert_eq!(parts.last().unwrap()["finishReason"], finish);
        let kept = parts.iter().any(|part| part["data"]["update"]["stopReason"] == stop);
        assert_eq!(kept, finish == "other");
    }
}

#[test]
fn an_error_of_the_agent_fails_the_turn_and_not_the_agent() {
    let drive = Drive::start("", "fail no credits");
    let status = drive.turn(1);
    assert_eq!((status.state, status.reason.as_deref()), (AgentState::Failed, Some("AgentError")));
    assert_eq!(status.error.as_deref(), Some("no credits (code -32000): {\"more\":1}"));
    assert!(status.agent_ready);
    let kinds = drive.volumes.kinds(1);
    assert_eq!(kinds[kinds.len() - 4..], ["text-end", "error", "finish-step", "finish"]);
    assert_eq!(drive.turn(2).state, AgentState::Failed);
}

#[test]
fn an_agent_that_exits_leaves_its_parts_its_code_and_its_last_words() {
    let drive = Drive::start("", "say one\nsay two\nstderr boom\nexit 3");
    let status = drive.turn(1);
    assert_eq!((status.state, status.reason.as_deref()), (AgentState::Failed, Some("AgentExited")));
    assert_eq!(status.exit, Some(AgentExit { code: Some(3), signal: None, oom: false }));
    assert_eq!(status.error.as_deref(), Some("the agent exited with code 3"));
    assert!(status.stderr_tail.contains("boom\n"), "{:?}", status.stderr_tail);
    assert!(!status.agent_ready);
    assert_eq!(drive.volumes.text(1), "before onetwo");
    let kinds = drive.volumes.kinds(1);
    assert_eq!(kinds[kinds.len() - 4..], ["text-end", "error", "finish-step", "finish"]);
    // The driver stays; what is delivered to it all the same fails at once.
    let next = drive.turn(2);
    assert_eq!((next.state, next.reason.as_deref()), (AgentState::Failed, Some("AgentExited")));
    assert_eq!(drive.volumes.kinds(2), ["start", "start-step", "error", "finish-step", "finish"]);
}

#[test]
fn a_kill_is_told_from_a_kill_for_want_of_memory() {
    let drive = Drive::start("", "die");
    let status = drive.turn(1);
    assert_eq!(status.reason.as_deref(), Some("AgentExited"));
    assert_eq!(status.exit, Some(AgentExit { code: None, signal: Some(9), oom: false }));
    let drive = Drive::with("", "file cgroup/memory.events oom 1\\noom_kill 1\\n\ndie", |_, volumes| {
        fs::write(volumes.cgroup().join("memory.events"), "oom 0\noom_kill 0\n").unwrap();
    });
    let status = drive.turn(1);
    assert_eq!(status.reason.as_deref(), Some("OOMKilled"));
    assert_eq!(status.exit, Some(AgentExit { code: None, signal: Some(9), oom: true }));
}

#[test]
fn what_an_agent_leaves_behind_does_not_hold_up_its_turn() {
    // One in its group, which is ended with it, and one that left the group with our pipes.
    for left in ["orphan 30", "escape 10"] {
        let drive = Drive::start("", &format!("{left}\nexit 0"));
        drive.volumes.deliver(1, "go");
        let began = std::time::Instant::now();
        let status = drive.over(1);
        assert!(began.elapsed() < Duration::from_secs(5), "{left}");
        assert_eq!(status.exit, Some(AgentExit { code: Some(0), signal: None, oom: false }));
    }
}

#[test]
fn the_last_of_many_words_of_an_agent_that_exits_is_kept() {
    let drive = Drive::start("", "flood 20000\nsay the last\nexit 1");
    let status = drive.turn(1);
    assert_eq!(status.reason.as_deref(), Some("AgentExited"));
    assert!(drive.volumes.text(1).ends_with("19999 the last"));
}

#[test]
fn an_agent_that_cannot_start_is_said_before_any_turn() {
    let cases: [(&str, &[&str], &str); 4] = [
        ("exit 7", &[], "exited with code 7 before it was ready"),
        (
            "raw {\"id\":1,\"error\":{\"code\":-32603,\"message\":\"no key\"}}",
            &[],
            "initialize failed: no key (code -32603)",
        ),
        ("raw {\"id\":1,\"result\":{\"protocolVersion\":9}}", &[], "version 9"),
        ("hang", &["--start-timeout", "300ms"], "did not answer initialize"),
    ];
    for (start, flags, words) in cases {
        let drive = Drive::with(&format!("stderr last words\n{start}\nsleep 1000"), "", |command, _| {
            command.args(flags);
        });
        let status = drive.until("failed", |status| status.state == AgentState::Failed);
        assert_eq!(
            (status.turn, status.reason.as_deref(), status.agent_ready),
            (Turn(0), Some("AgentStartFailed"), false)
        );
        assert!(status.error.as_deref().unwrap().contains(words), "{status:?}");
        wait_for("its last words", || {
            drive.volumes.status().filter(|status| status.stderr_tail.contains("last words"))
        });
    }
}

#[test]
fn a_command_that_does_not_exist_is_said_with_the_systems_words() {
    let volumes = support::Volumes::new();
    let mut child = support::program()
        .args(["drive", "--attempt", "1", "--log"])
        .arg(volumes.log())
        .arg("--inbox")
        .arg(volumes.inbox())
        .arg("--cwd")
        .arg(volumes.work())
        .args(["--", "/nope"])
        .spawn()
        .unwrap();
    let status = wait_for("failed", || volumes.status().filter(|status| status.state == AgentState::Failed));
    assert_eq!(status.error.as_deref(), Some("cannot start \"/nope\": No such file or directory (os error 2)"));
    assert_eq!((status.turn, status.exit), (Turn(0), None));
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(ends_within(&mut child, PATIENCE).unwrap().success());
}

#[test]
fn a_cancelled_turn_ends_with_an_abort_and_the_agent_goes_on() {
    let drive = Drive::start("", "cancelled");
    drive.volumes.deliver(1, "go");
    wait_for("its first words", || drive.volumes.status().filter(|status| status.parts >= 4));
    drive.volumes.cancel(1);
    let status = drive.over(1);
    assert_eq!((status.state, status.agent_ready, status.reason), (AgentState::Canceled, true, None));
    assert_eq!(drive.volumes.kinds(1).last().unwrap(), "abort");
}

#[test]
fn an_agent_that_does_not_listen_to_a_cancel_is_killed() {
    let drive = Drive::with("", "hang", |command, _| {
        command.args(["--grace", "300ms"]);
    });
    drive.volumes.deliver(1, "go");
    wait_for("its first words", || drive.volumes.status().filter(|status| status.parts >= 4));
    drive.volumes.cancel(1);
    let status = drive.over(1);
    assert_eq!((status.state, status.agent_ready), (AgentState::Canceled, false));
    assert_eq!(status.exit.unwrap().signal, Some(9));
    let kinds = drive.volumes.kinds(1);
    assert_eq!(kinds[kinds.len() - 2..], ["text-end", "abort"]);
}

#[test]
fn a_turn_that_is_cancelled_before_it_began_is_never_given_to_the_agent() {
    let drive = Drive::with("sleep 300", "", |command, volumes| {
        command.env("SCRIPT_ECHO", "1");
        volumes.cancel(1);
        volumes.deliver(1, "never");
    });
    let status = drive.over(1);
    assert_eq!(status.state, AgentState::Canceled);
    assert_eq!(drive.volumes.kinds(1), ["start", "start-step", "abort"]);
    let ready = drive.until("ready", |status| status.agent_ready);
    assert_eq!((ready.turn, ready.state), (Turn(1), AgentState::Canceled));
    drive.turn(2);
    assert!(!drive.volumes.text(2).contains("never"));
}

#[test]
fn sigterm_in_a_turn_leaves_an_abort_and_a_last_status() {
    let mut drive = Drive::start("", "say x\nhang");
    drive.volumes.deliver(1, "go");
    wait_for("its words", || drive.volumes.status().filter(|status| status.parts >= 5));
    drive.signal(Signal::TERM);
    assert!(ends_within(&mut drive.child, Duration::from_secs(5)).unwrap().success());
    let status = drive.over(1);
    assert_eq!((status.state, status.agent_ready), (AgentState::Canceled, false));
    assert_eq!(status.exit.unwrap().signal, Some(15));
    assert_eq!(drive.volumes.kinds(1).last().unwrap(), "abort");
}

#[test]
fn an_agent_that_ignores_sigterm_is_killed_with_all_its_children() {
    let mut drive = Drive::with("", "deaf", |command, _| {
        command.args(["--grace", "500ms"]);
    });
    drive.volumes.deliver(1, "go");
    wait_for("its words", || drive.volumes.status().filter(|status| status.parts >= 4));
    drive.signal(Signal::TERM);
    assert!(ends_within(&mut drive.child, Duration::from_secs(5)).unwrap().success());
    assert_eq!(drive.over(1).state, AgentState::Canceled);
}

#[test]
fn sigterm_before_a_turn_ends_it_at_once() {
    let mut drive = Drive::start("", "");
    drive.idle();
    drive.signal(Signal::TERM);
    assert!(ends_within(&mut drive.child, Duration::from_secs(3)).unwrap().success());
    let status = drive.volumes.status().unwrap();
    assert_eq!((status.turn, status.state, status.agent_ready), (Turn(0), AgentState::Canceled, false));
}

#[test]
fn parts_and_lines_that_are_too_long_leave_markers() {
    let drive = Drive::start("", "big 900000\nbig 1200000\nsay small\nbig 9000000\nsay small too");
    let status = drive.turn(1);
    assert_eq!(
        (status.state, status.truncated, status.truncated_reason.as_deref()),
        (AgentState::Succeeded, true, Some("PartLimit"))
    );
    let parts = drive.volumes.parts(1);
    let markers: Vec<_> =
        parts.iter().filter(|part| part["type"] == "data-omitted").map(|part| &part["data"]).collect();
    assert_eq!(markers.len(), 2);
    assert_eq!(markers[0]["type"], "text-delta");
    assert!(markers[0]["bytes"].as_u64().unwrap() > 1_200_000);
    assert_eq!(markers[1]["type"], "agent_message_chunk");
    assert!(markers[1]["bytes"].as_u64().unwrap() > 9_000_000);
    assert!(drive.volumes.text(1).ends_with("smallsmall tooafter"));
}

#[test]
fn a_full_log_ends_with_its_finish() {
    let drive = Drive::start("", &"big 1000000\n".repeat(20));
    let status = drive.turn(1);
    assert_eq!((status.state, status.truncated_reason.as_deref()), (AgentState::Succeeded, Some("LogLimit")));
    assert!(status.log_bytes <= transcript::limits::LOG_BYTES);
    let kinds = drive.volumes.kinds(1);
    assert_eq!(kinds.last().unwrap(), "finish");
    assert!(kinds.contains(&"data-omitted".to_owned()));
    let lines = drive.volumes.lines(1);
    assert!(lines.iter().any(|line| line.contains(r#""type":"marker""#) && line.contains(r#""reason":"LogLimit""#)));
}

#[test]
fn fifty_thousand_parts_are_the_bound() {
    let drive = Drive::start("", "flood 50100");
    let status = drive.turn(1);
    assert_eq!(status.truncated_reason.as_deref(), Some("PartCountLimit"));
    assert!(status.parts <= transcript::limits::PARTS_PER_TURN && status.parts > 49_990, "{}", status.parts);
    assert_eq!(drive.volumes.kinds(1).last().unwrap(), "finish");
}

#[test]
fn a_disk_that_is_full_fails_the_turn() {
    let volumes = support::Volumes::new();
    // The bound on file sizes stands for a full disk: a write is cut, and the next one fails.
    let script = format!(
        "trap '' XFSZ; ulimit -f 40; exec {} drive --attempt 1 --grace 1s --log {} --inbox {} --cwd {} -- {} --exact {}",
        env!("CARGO_BIN_EXE_agentsession-sandbox"),
        volumes.log().display(),
        volumes.inbox().display(),
        volumes.work().display(),
        std::env::current_exe().unwrap().display(),
        agent::NAME
    );
    let mut child = std::process::Command::new("/bin/sh")
        .args(["-c", &script])
        .env(agent::START, "")
        .env(agent::TURN, "big 10000\nbig 10000\nbig 10000\nbig 10000\nsay x\nhang")
        .spawn()
        .unwrap();
    volumes.deliver(1, "go");
    let status =
        wait_for("failed", || volumes.status().filter(|status| status.turn == Turn(1) && status.state.is_terminal()));
    assert_eq!((status.state, status.reason.as_deref()), (AgentState::Failed, Some("LogWriteFailed")));
    assert_eq!((status.truncated, status.truncated_reason.as_deref()), (true, Some("LogWriteFailed")));
    let log = fs::read(volumes.turn_log(1)).unwrap();
    let whole = log.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(status.parts as usize, whole, "only whole lines are counted");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(ends_within(&mut child, PATIENCE).unwrap().success());
}

#[test]
fn a_second_driver_runs_nothing_again() {
    let drive = Drive::start("", "say x\nhang");
    drive.volumes.deliver(1, "go");
    wait_for("its words", || drive.volumes.status().filter(|status| status.parts >= 5));
    drive.signal(Signal::KILL);
    let before = fs::read(drive.volumes.turn_log(1)).unwrap();
    let mut second = support::program()
        .args(["drive", "--attempt", "4", "--log"])
        .arg(drive.volumes.log())
        .arg("--inbox")
        .arg(drive.volumes.inbox())
        .arg("--cwd")
        .arg(drive.volumes.work())
        .args(["--", "/bin/false"])
        .spawn()
        .unwrap();
    let status = drive.until("failed", |status| status.state == AgentState::Failed);
    assert_eq!((status.turn, status.agent_ready), (Turn(1), false));
    assert_eq!(fs::read(drive.volumes.turn_log(1)).unwrap(), before);
    rustix::process::kill_process(rustix::process::Pid::from_child(&second), Signal::TERM).unwrap();
    assert!(ends_within(&mut second, PATIENCE).unwrap().success());
}
