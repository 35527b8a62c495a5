//! Prints what a client would receive for logs: `replay [--after TURN.INDEX] [--coalesce] turn-1.jsonl turn-2.jsonl …`, one log a turn.

use std::{env, error::Error, fs, io::Write};

use agentsession_transcript::{
    Outcome, PartIndex, Reason, Turn, TurnState, Verdict,
    replay::{Replay, ReplayOptions, ReplayTurn},
    scan::scan,
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut options = ReplayOptions::default();
    let mut logs = Vec::new();
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--coalesce" => options.coalesce = true,
            "--after" => {
                let after = arguments.next().ok_or("--after wants an identity")?;
                let (turn, index) = after.split_once('.').ok_or("an identity is TURN.INDEX")?;
                options.after = Some((Turn(turn.parse()?), PartIndex(index.parse()?)));
            }
            path => logs.push(fs::read(path)?),
        }
    }
    let scanned: Vec<_> = (1..).map(Turn).zip(&logs).map(|(turn, log)| (turn, scan(turn, log))).collect();
    let turns = scanned.iter().map(|(turn, log)| {
        let is_whole = log.account.terminal.is_some() && log.account.damage.lines == 0;
        ReplayTurn {
            turn: *turn,
            prompt: format!("turn {turn}"),
            state: TurnState::Settled,
            outcome: Some(if is_whole { Outcome::Succeeded } else { Outcome::Lost }),
            reason: (!is_whole).then_some(Reason::PodTerminated),
            verdict: Some(if is_whole { Verdict::Complete } else { Verdict::Incomplete }),
            verdict_reason: (!is_whole).then_some(Reason::PodTerminated),
            message: None,
        }
    });
    let mut replay = Replay::new(&"2f1c".into(), turns.collect(), options);
    let mut out = Vec::new();
    replay.begin(&mut out);
    for (turn, mut log) in scanned {
        log.parts.sort_by_key(|part| part.index);
        for part in &log.parts {
            replay.push(turn, part.index, &part.raw, &mut out);
        }
    }
    replay.finish(&mut out);
    std::io::stdout().write_all(&out)?;
    Ok(())
}
