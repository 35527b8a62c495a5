//! The bounded exec over links that fail in every way that exec is known to fail: it never hangs, never leaks, never says more than it knows.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::{sync::Arc, time::Duration};

use agentsession_controller::exec::{
    Bounds, Category, ExecError, ExecSettings, Execs, RecorderCommand, RemoteEnd, Standing,
    frames::{FrameStep, Frames},
};
use transcript::{AgentState, Turn};

use support::{
    lines,
    link::{Fault, Link},
    pod::Pod,
    quick, soon, status, target,
};

mod support;

fn read() -> RecorderCommand {
    RecorderCommand::Read { turn: Turn(1), from: 0, max: 4 << 20, follow: None }
}

fn pod_with_log(parts: u32) -> Arc<Pod> {
    let pod = Pod::new();
    pod.append(1, &lines(1, 0..parts));
    pod.set_status(status(AgentState::Succeeded, 1, parts));
    pod
}

/// Reads one frame through `link` and gives its body.
async fn one_frame(execs: &Execs) -> Result<Vec<u8>, ExecError> {
    let mut transfer = execs.open(&target(), &read(), execs.settings().read()).await?;
    let result = async {
        let mut frames = Frames::new(Turn(1), 0, 4 << 20);
        let frame = loop {
            if let FrameStep::Frame(frame) = frames.next(&mut transfer).await? {
                break frame;
            }
        };
        frames.acknowledge(&mut transfer, frame.header.to).await?;
        Ok(frame.body)
    }
    .await;
    execs.close(&target(), transfer, result).await
}

async fn through(pod: &Arc<Pod>, fault: Fault) -> (Result<Vec<u8>, ExecError>, Arc<Link>) {
    let link = Link::with(pod, [fault]);
    let execs = Execs::new(link.clone(), quick());
    let result = soon("an exec", one_frame(&execs)).await;
    link.gone().await;
    (result, link)
}

#[tokio::test]
async fn a_frame_comes_whole_and_the_remote_exits() {
    let pod = pod_with_log(300);
    let (frame, link) = through(&pod, Fault::None).await;
    assert_eq!(frame.unwrap(), pod.log(1));
    assert_eq!(pod.acknowledged(), [pod.log(1).len() as u64]);
    assert_eq!(link.looked(), 2, "the uid is checked before and after");
}

#[tokio::test]
async fn chunks_of_any_size_make_the_same_frame() {
    let pod = pod_with_log(20);
    let (frame, _) = through(&pod, Fault::ByteByByte).await;
    assert_eq!(frame.unwrap(), pod.log(1));
}

#[tokio::test]
async fn a_status_that_overtakes_the_last_bytes_loses_none_of_them() {
    let pod = pod_with_log(20);
    let link = Link::with(&pod, [Fault::StatusFirst]);
    let execs = Execs::new(link.clone(), quick());
    let mut transfer = execs.open(&target(), &read(), execs.settings().read()).await.unwrap();
    let mut frames = Frames::new(Turn(1), 0, 4 << 20);
    let frame = soon("the frame", async {
        loop {
            match frames.next(&mut transfer).await {
                Ok(FrameStep::Frame(frame)) => break frame,
                Ok(FrameStep::Announced { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await;
    assert_eq!(frame.body, pod.log(1));
    let next = frames.next(&mut transfer).await.unwrap_err();
    assert!(matches!(next, ExecError::Cut { end: RemoteEnd::Success }), "{next:?}");
}

#[tokio::test]
async fn a_stream_cut_at_any_byte_is_an_error_whatever_the_status_says() {
    let pod = pod_with_log(3);
    let whole = stream_length(&pod).await;
    for at in 0..whole {
        for fault in [
            Fault::Reset(at),
            Fault::Ended(at, RemoteEnd::Success),
            Fault::Ended(at, RemoteEnd::NoStatus),
            Fault::Ended(at, RemoteEnd::Failure(Some(7))),
        ] {
            let (frame, _) = through(&pod, fault.clone()).await;
            let error = frame.expect_err(&format!("{fault:?} gave a frame"));
            assert_eq!(error.category(), Category::Transport, "{fault:?}: {error:?}");
        }
    }
    assert!(pod.acknowledged().is_empty(), "nothing short was acknowledged");
}

#[tokio::test]
async fn a_byte_that_changed_or_came_twice_never_makes_a_frame_of_other_bytes() {
    let pod = pod_with_log(3);
    let whole = stream_length(&pod).await;
    for at in 0..whole {
        for fault in [Fault::Flipped(at), Fault::Doubled(at)] {
            let (frame, _) = through(&pod, fault.clone()).await;
            match frame {
                // A space in the header or a digit's twin in the status may change nothing that a frame proves.
                Ok(body) => assert_eq!(body, pod.log(1), "{fault:?}"),
                Err(error) => {
                    assert!(matches!(error.category(), Category::Protocol | Category::Timeout), "{fault:?}: {error:?}");
                }
            }
        }
    }
}

/// Bytes of the one frame that [`read`] gets, by counting what a link carries.
async fn stream_length(pod: &Arc<Pod>) -> usize {
    let execs = Execs::new(Link::to(pod), quick());
    let mut transfer = execs.open(&target(), &read(), execs.settings().read()).await.unwrap();
    let mut frames = Frames::new(Turn(1), 0, 4 << 20);
    while let FrameStep::Announced { .. } = frames.next(&mut transfer).await.unwrap() {}
    usize::try_from(transfer.received()).unwrap()
}

#[tokio::test]
async fn a_silent_link_ends_at_the_idle_deadline() {
    let pod = pod_with_log(300);
    for at in [0, 100, 20_000] {
        let (frame, _) = through(&pod, Fault::Stall(at)).await;
        let error = frame.unwrap_err();
        assert!(matches!(error, ExecError::Idle { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_server_that_accepts_and_says_nothing_ends_at_the_connect_deadline() {
    let pod = pod_with_log(3);
    let (frame, _) = through(&pod, Fault::NoAnswer).await;
    assert!(matches!(frame.unwrap_err(), ExecError::ConnectTimeout { .. }));
}

#[tokio::test]
async fn a_refusal_is_told_from_a_broken_way() {
    let pod = pod_with_log(3);
    let (frame, _) = through(&pod, Fault::Refused).await;
    assert_eq!(frame.unwrap_err().category(), Category::Refused);
    let (frame, _) = through(&pod, Fault::NoConnection).await;
    assert_eq!(frame.unwrap_err().category(), Category::Transport);
}

#[tokio::test]
async fn the_whole_deadline_holds_against_a_link_that_drips() {
    let pod = pod_with_log(3000);
    let link = Link::with(&pod, [Fault::Endless]);
    let execs = Execs::new(link.clone(), quick());
    let bounds = Bounds { whole: Some(Duration::from_millis(300)), answer_bytes: u64::MAX, ..execs.settings().read() };
    let mut transfer = execs.open(&target(), &read(), bounds).await.unwrap();
    let error = soon("a dripping exec", async {
        loop {
            if let Err(error) = transfer.read().await {
                break error;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(matches!(error, ExecError::Deadline), "{error:?}");
    drop(transfer);
    link.gone().await;
}

#[tokio::test]
async fn one_byte_over_the_bound_is_a_failure_and_not_a_shorter_answer() {
    let pod = pod_with_log(300);
    let whole = stream_length(&pod).await as u64;
    for (limit, fits) in [(whole, true), (whole - 1, false)] {
        let execs = Execs::new(Link::to(&pod), quick());
        let bounds = Bounds { answer_bytes: limit, ..execs.settings().read() };
        let mut transfer = execs.open(&target(), &read(), bounds).await.unwrap();
        let mut frames = Frames::new(Turn(1), 0, 4 << 20);
        let result = loop {
            match frames.next(&mut transfer).await {
                Ok(FrameStep::Announced { .. }) => {}
                other => break other,
            }
        };
        match result {
            Ok(_) => assert!(fits),
            Err(error) => assert!(!fits && matches!(error, ExecError::Overrun { .. }), "{error:?}"),
        }
    }
}

#[tokio::test]
async fn a_remote_that_never_goes_costs_the_farewell_and_no_more() {
    let pod = pod_with_log(3);
    let (frame, _) = through(&pod, Fault::NeverGoes).await;
    assert_eq!(frame.unwrap(), pod.log(1));
}

#[tokio::test]
async fn a_recorder_that_is_over_is_never_dialled() {
    let pod = pod_with_log(3);
    for (standing, wanted) in [
        (Standing::Ended, "the recorder has ended"),
        (Standing::Gone, "the agent pod is gone"),
        (Standing::Replaced, "another pod has the name of the agent pod"),
        (Standing::NotStarted, "the recorder has not started"),
    ] {
        pod.set_standing(standing);
        let link = Link::to(&pod);
        let error = one_frame(&Execs::new(link.clone(), quick())).await.unwrap_err();
        assert_eq!((error.to_string().as_str(), link.opened()), (wanted, 0));
        assert_eq!(error.is_ended(), standing != Standing::NotStarted);
    }
}

#[tokio::test]
async fn one_look_at_the_pod_tells_an_end_from_a_broken_link() {
    let pod = pod_with_log(3);
    let link = Link::with(&pod, [Fault::Reset(10)]);
    let execs = Execs::new(link.clone(), quick());
    let transfer = execs.open(&target(), &read(), execs.settings().read()).await.unwrap();
    pod.set_standing(Standing::Ended);
    let broken = Err::<(), _>(ExecError::Cut { end: RemoteEnd::NoStatus });
    let error = execs.close(&target(), transfer, broken).await.unwrap_err();
    assert!(matches!(error, ExecError::Ended), "{error:?}");
    assert_eq!(link.looked(), 2);
}

#[tokio::test]
async fn an_answer_of_a_pod_that_was_replaced_meanwhile_is_not_taken() {
    let pod = pod_with_log(3);
    let execs = Execs::new(Link::to(&pod), quick());
    let transfer = execs.open(&target(), &read(), execs.settings().read()).await.unwrap();
    pod.set_standing(Standing::Replaced);
    let error = execs.close(&target(), transfer, Ok(())).await.unwrap_err();
    assert!(matches!(error, ExecError::Replaced), "{error:?}");
}

#[tokio::test]
async fn transfers_wait_for_a_slot_and_say_so_when_none_comes() {
    let pod = pod_with_log(3);
    let link = Link::to(&pod);
    let execs = Execs::new(link.clone(), ExecSettings { concurrent: 1, ..quick() });
    let holder = execs.open(&target(), &read(), execs.settings().read()).await.unwrap();
    let bounds = Bounds { whole: Some(Duration::from_millis(100)), ..execs.settings().read() };
    let error = execs.open(&target(), &read(), bounds).await.unwrap_err();
    assert_eq!((error.category(), link.opened()), (Category::Busy, 1));
    drop(holder);
    one_frame(&execs).await.unwrap();
}

#[tokio::test]
async fn a_thousand_failures_leave_neither_task_nor_connection() {
    let pod = pod_with_log(300);
    let link = Link::to(&pod);
    let execs = Execs::new(link.clone(), ExecSettings { idle: Duration::from_millis(20), ..quick() });
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let faults =
        [Fault::Reset(10_000), Fault::Ended(10_000, RemoteEnd::Success), Fault::Stall(100), Fault::Flipped(9000)];
    for (round, fault) in faults.iter().cycle().take(1000).enumerate() {
        link.always(fault.clone());
        let failed = soon("a failing exec", one_frame(&execs)).await;
        assert!(failed.is_err(), "round {round}: {fault:?}");
    }
    link.gone().await;
    soon("tasks", async {
        while tasks() > before {
            tokio::task::yield_now().await;
        }
    })
    .await;
    link.always(Fault::None);
    assert_eq!(one_frame(&execs).await.unwrap(), pod.log(1), "all slots are free again");
}

#[tokio::test]
async fn dropping_a_transfer_ends_its_remote() {
    let pod = pod_with_log(3);
    let link = Link::to(&pod);
    let execs = Execs::new(link.clone(), quick());
    let transfer = execs.open(&target(), &read(), execs.settings().read()).await.unwrap();
    assert_eq!(link.live(), 1);
    drop(transfer);
    link.gone().await;
}

#[test]
fn argument_vectors_are_fixed_and_hold_nothing_that_a_user_wrote() {
    let rows = [
        (read(), "read --turn 1 --from 0 --max 4194304 --hold 60000ms"),
        (
            RecorderCommand::Read { turn: Turn(2), from: 70, max: 5, follow: Some(Duration::from_secs(15)) },
            "read --turn 2 --from 70 --max 5 --hold 60000ms --follow 15000ms",
        ),
        (RecorderCommand::Deliver { turn: Turn(3) }, "deliver --turn 3"),
        (RecorderCommand::Cancel { turn: Turn(3) }, "deliver --cancel 3"),
        (RecorderCommand::Release, "deliver --release"),
    ];
    for (command, wanted) in rows {
        assert_eq!(command.argv().join(" "), format!("/agentsession/bin/agentsession-sandbox {wanted}"));
    }
}
