//! What an agent says between turns. It has no turn, so it is kept for the next one, within bounds.

use crate::{
    drive::map::{Mapper, Out},
    json::Obj,
    say,
};

/// Updates that are kept.
const UPDATES: usize = 64;
/// Bytes that are kept.
const BYTES: usize = 1 << 20;

/// Updates that came while no turn ran.
#[derive(Debug, Default)]
pub struct Early {
    kept: Vec<(String, String)>,
    left_out: u64,
}

impl Early {
    /// Keeps an update. Of those that describe a state, the last one is enough.
    pub fn keep(&mut self, update: &str) {
        let kind = Obj::parse(update)
            .and_then(|fields| fields.text("sessionUpdate").map(|kind| kind.into_owned()))
            .unwrap_or_default();
        if is_state(&kind) {
            self.kept.retain(|(known, _)| *known != kind);
        }
        let bytes: usize = self.kept.iter().map(|(_, update)| update.len()).sum();
        if self.kept.len() < UPDATES && bytes + update.len() <= BYTES {
            self.kept.push((kind, update.to_owned()));
        } else {
            self.left_out += 1;
        }
    }

    /// Gives what was kept to the turn that begins: states as such, anything else as what it is, an update of no turn.
    pub fn drain_into(&mut self, mapper: &mut Mapper, out: &mut Out<'_>) {
        for (kind, update) in self.kept.drain(..) {
            if is_state(&kind) {
                mapper.update(&update, out);
            } else {
                out.unknown(&update);
            }
        }
        if self.left_out > 0 {
            say(&format!("{} updates of the agent between turns were too many to keep", self.left_out));
            self.left_out = 0;
        }
    }
}

fn is_state(kind: &str) -> bool {
    matches!(kind, "available_commands_update" | "current_mode_update" | "usage_update")
}
