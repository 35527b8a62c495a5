//! Sessions as they really come, one of each kind, for a store of either sort.

use store::{NewPart, NewSession, NewTurn, Settlement, SharedStore, Writer};
use transcript::{Attempt, Outcome, PartIndex, Reason, Turn, Verdict};

use super::memory::{self, Memory};

/// How a turn stands.
#[derive(Clone, Copy, Debug)]
pub enum Stands {
    Runs,
    Settled(Outcome, Option<Reason>, Verdict, Option<Reason>),
}

pub struct CannedTurn {
    pub prompt: String,
    pub stands: Stands,
    /// Index and text.
    pub parts: Vec<(u32, String)>,
}

pub struct Canned {
    pub name: &'static str,
    pub turns: Vec<CannedTurn>,
}

const COMPLETE: Stands = Stands::Settled(Outcome::Succeeded, None, Verdict::Complete, None);

fn turn<S: Into<String>>(prompt: &str, stands: Stands, parts: impl IntoIterator<Item = S>) -> CannedTurn {
    CannedTurn { prompt: prompt.to_owned(), stands, parts: (0..).zip(parts.into_iter().map(Into::into)).collect() }
}

/// A turn with thinking, a tool call and text.
fn work(prompt: &str, text: &str) -> CannedTurn {
    turn(
        prompt,
        COMPLETE,
        [
            r#"{"type":"start","at":"2026-11-30T18:00:00.123Z"}"#,
            r#"{"type":"start-step"}"#,
            r#"{"type":"reasoning-start","id":"r1"}"#,
            r#"{"type":"reasoning-delta","id":"r1","delta":"Let me look."}"#,
            r#"{"type":"reasoning-end","id":"r1"}"#,
            r#"{"type":"tool-input-start","toolCallId":"c1","toolName":"shell","dynamic":true}"#,
            r#"{"type":"tool-input-available","toolCallId":"c1","toolName":"shell","input":{"command":"ls"},"dynamic":true}"#,
            r#"{"type":"tool-output-available","toolCallId":"c1","output":"a\nb","preliminary":true,"dynamic":true}"#,
            r#"{"type":"tool-output-available","toolCallId":"c1","output":"a\nb\nc","dynamic":true}"#,
            r#"{"type":"data-plan","id":"plan","data":{"entries":[{"content":"look","status":"completed"}]}}"#,
            r#"{"type":"text-start","id":"t1"}"#,
            &format!(r#"{{"type":"text-delta","id":"t1","delta":"{text}"}}"#),
            r#"{"type":"text-end","id":"t1"}"#,
            r#"{"type":"finish-step"}"#,
            r#"{"type":"finish","finishReason":"stop"}"#,
        ],
    )
}

/// Cut in the middle of its text, with a hole.
fn cut(stands: Stands) -> CannedTurn {
    let mut turn = work("Fix it.", "This is where it was cu");
    turn.stands = stands;
    turn.parts.truncate(12);
    turn.parts.retain(|(index, _)| *index != 10);
    turn
}

fn hostile() -> CannedTurn {
    let lost = Stands::Settled(Outcome::Succeeded, None, Verdict::Truncated, Some(Reason::LogDamaged));
    turn(
        "Break it.",
        lost,
        [
            r#"{"type":"text-delta","id":"t1","delta":"never opened \ud83e\u0000 \\u0000"}"#.to_owned(),
            r#"{"type":"tool-output-available","toolCallId":"c9","output":"nobody called"}"#.to_owned(),
            r#"{"type":"no-such-type","z":1.0,"a":1e400,"z":12345678901234567890123}"#.to_owned(),
            r#"{"type":"text-start"}"#.to_owned(),
            "[1,2,3]".to_owned(),
            format!("{}{}", "[".repeat(5000), "]".repeat(5000)),
            r#"{"type":"data-user-prompt","data":{"turn":1,"text":"forged"}}"#.to_owned(),
            r#"{"type":"tool-input-start","toolCallId":"c1","toolName":"shell"}"#.to_owned(),
            "{\"type\":\"text-start\",\r\n\"id\":\"t2\"}".to_owned(),
            r#"{"type":"error","errorText":"the model is overloaded"}"#.to_owned(),
            r#"{"type":"text-delta","id":"t2","delta":"after the error <script>alert(1)</script>"}"#.to_owned(),
            r#"{"type":"finish","finishReason":"interrupted"}"#.to_owned(),
            r#"{"type":"data-x","data":{"__proto__":{"admin":true}}}"#.to_owned(),
        ],
    )
}

fn large(deltas: u32) -> CannedTurn {
    let deltas = (0..deltas).map(|i| format!(r#"{{"type":"text-delta","id":"t1","delta":"word {i} "}}"#));
    let parts = [r#"{"type":"text-start","id":"t1"}"#.to_owned()]
        .into_iter()
        .chain(deltas)
        .chain([r#"{"type":"text-end","id":"t1"}"#.to_owned()]);
    turn("Say much.", COMPLETE, parts)
}

/// One session of each kind.
pub fn all() -> Vec<Canned> {
    let lost = Stands::Settled(Outcome::Lost, Some(Reason::NodeLost), Verdict::Incomplete, Some(Reason::NodeLost));
    let failed = Stands::Settled(Outcome::Failed, Some(Reason::AgentError), Verdict::Complete, None);
    let never = Stands::Settled(
        Outcome::Canceled,
        Some(Reason::EarlierTurnFailed),
        Verdict::Incomplete,
        Some(Reason::NeverStarted),
    );
    let one = |name, turn| Canned { name, turns: vec![turn] };
    vec![
        one("finished", work("Fix the login bug.", "All done.")),
        one(
            "failed",
            turn("Fix it.", failed, [r#"{"type":"start"}"#, r#"{"type":"error","errorText":"no credit left"}"#]),
        ),
        one("incomplete", cut(lost)),
        one("running", cut(Stands::Runs)),
        Canned {
            name: "multi",
            turns: vec![work("First.", "one"), cut(lost), work("Third.", "three"), turn("Fourth.", never, [""; 0])],
        },
        Canned { name: "empty", turns: vec![] },
        one("hostile", hostile()),
        one("large", large(20_000)),
    ]
}

pub fn uid(name: &str) -> String {
    format!("uid-of-{name}")
}

/// Puts a session into a scripted store.
pub fn script(canned: &Canned, store: &Memory) {
    let turns = (1..).zip(&canned.turns).map(|(n, turn)| match turn.stands {
        Stands::Runs => memory::running(n, &turn.prompt),
        Stands::Settled(outcome, reason, verdict, missing) => {
            memory::settled(n, &turn.prompt, outcome, reason, verdict, missing)
        }
    });
    let parts: Vec<(u32, u32, &str)> = (1..)
        .zip(&canned.turns)
        .flat_map(|(n, turn)| turn.parts.iter().map(move |(index, part)| (n, *index, part.as_str())))
        .collect();
    store.put(memory::record(canned.name, &uid(canned.name)), turns.collect(), &parts);
}

/// Puts a session into a real store, as the controller does.
pub async fn write(canned: &Canned, store: &SharedStore) {
    let session: transcript::SessionUid = uid(canned.name).into();
    let attempt = Attempt(1);
    let new = NewSession {
        uid: session.clone(),
        namespace: "team-a".to_owned(),
        namespace_uid: "ns-1".to_owned(),
        name: canned.name.to_owned(),
        mode: "Autonomous".to_owned(),
    };
    store.ensure_session(&new).await.unwrap();
    store.open_attempt(&session, attempt, "n0nce").await.unwrap();
    let pod = transcript::PodUid::from("pod-1");
    for (n, turn) in (1..).zip(&canned.turns) {
        let number = Turn(n);
        let accepted = NewTurn { session: session.clone(), turn: number, client_id: None, prompt: turn.prompt.clone() };
        store.accept_turn(&accepted).await.unwrap();
        let ran = !turn.parts.is_empty();
        if ran {
            store.start_turn(&session, number, attempt, &pod, "image").await.unwrap();
        }
        let parts: Vec<NewPart<'_>> =
            turn.parts.iter().map(|(index, part)| NewPart { index: PartIndex(*index), part }).collect();
        let writer = Writer { session: session.clone(), turn: number, attempt, quota_bytes: 64 << 20 };
        for batch in parts.chunks(1000) {
            let appended = store.append(&writer, batch).await.unwrap();
            assert_eq!(appended.inserted as usize, batch.len());
        }
        if let Stands::Settled(outcome, reason, verdict, verdict_reason) = turn.stands {
            let settlement = Settlement {
                session: session.clone(),
                turn: number,
                attempt: ran.then_some(attempt),
                pod_uid: ran.then(|| pod.clone()),
                outcome,
                reason,
                verdict,
                verdict_reason,
                message: None,
                usage: None,
            };
            let standing = store.settle(&settlement).await.unwrap();
            assert_eq!(standing.record.verdict, Some(verdict), "{}", canned.name);
        }
    }
}
