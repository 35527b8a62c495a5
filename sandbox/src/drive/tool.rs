//! Tool calls: from what agents send of one, in any order and with anything missing, to input, growing output and result.

use std::collections::{HashMap, HashSet, hash_map::DefaultHasher};
use std::hash::{Hash, Hasher};

use sha2::{Digest, Sha256};
use transcript::limits::PART_BYTES;

use crate::{
    drive::map::Out,
    json::{Obj, inner, is_string, quote},
    part::{Builder, Fields, Part, omitted},
};

/// Metadata of a call that is passed on: whose call it is, and the like. Outputs stand in metadata too, and are longer.
const META_BYTES: usize = 1 << 10;

/// What is kept of a terminal: what fits into a part.
const TERMINAL_BYTES: usize = PART_BYTES - (16 << 10);

/// How a call stands, as the agent says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Status {
    #[default]
    Pending,
    Running,
    Completed,
    Failed,
}

/// What is known of one call.
#[derive(Debug, Default)]
struct Tool {
    /// The provider's id, as text.
    id: String,
    /// Name under which it was first shown, as text.
    name: String,
    title: Option<String>,
    kind: Option<String>,
    locations: Option<String>,
    status: Status,
    /// The input, as text, while it is held back.
    input: Option<String>,
    /// Digest of the input that was shown.
    shown: Option<u64>,
    /// The agent's metadata of the call, as text, when it is short.
    meta: Option<String>,
    /// The last `rawOutput`, or what the agent's own metadata has in its place, as text.
    output: Option<String>,
    /// The last text in `content`, as text.
    said: Option<String>,
    /// What a terminal said so far: the inner text of a JSON string.
    terminal: String,
    /// What a terminal said beyond what one part can hold: how many bytes, and their digest.
    terminal_left_out: Option<(u64, Sha256)>,
    terminal_content: bool,
    exit: Option<i64>,
    signal: Option<String>,
    /// Length and digest of the growing output that was last shown.
    preview: (usize, u64),
    /// Digests of the diffs and of the unknown content that was passed on.
    seen: HashSet<u64>,
    done: bool,
}

/// The calls of one turn, by the text of their id.
#[derive(Debug, Default)]
pub struct Tools {
    calls: HashMap<String, Tool>,
    /// In the order in which they were seen.
    order: Vec<String>,
}

impl Tools {
    /// Whether the call was seen before.
    pub fn knows(&self, id: &str) -> bool {
        self.calls.contains_key(id)
    }

    /// The title that a call has.
    pub fn title(&self, id: &str) -> Option<&str> {
        self.calls.get(id).and_then(|tool| tool.title.as_deref())
    }

    /// Takes a `tool_call` (`call`) or a `tool_call_update`.
    pub fn update(&mut self, id: &str, fields: &Obj<'_>, update: &str, call: bool, out: &mut Out<'_>) {
        let status = status(fields);
        if self.calls.get(id).is_some_and(|tool| tool.done) {
            // An id that is used again for another call begins anew; anything else that comes late is kept as it is.
            if !call || matches!(status, Some(Status::Completed | Status::Failed)) {
                return out.unknown(update);
            }
            self.calls.remove(id);
            self.order.retain(|known| known != id);
        }
        let tool = self.get(id, fields, out);
        let new_input = tool.absorb(fields, update, out);
        if status.is_none() && fields.get("status").is_some() {
            out.unknown(update);
        }
        tool.status = status.unwrap_or(tool.status);
        // Some agents announce a call with part of its input while it is pending; others announce it empty and send the
        // input in an update that says nothing of the status.
        let settled = tool.status != Status::Pending || (!call && status.is_none() && new_input);
        if settled && tool.input.is_some() {
            tool.show_input(out);
        }
        match tool.status {
            Status::Completed | Status::Failed => tool.finish(out),
            Status::Pending | Status::Running => tool.preview(out),
        }
    }

    /// Takes the call inside a permission request: nobody asks about a call whose input is not known yet.
    pub fn asked(&mut self, id: &str, fields: &Obj<'_>, call: &str, out: &mut Out<'_>) {
        if self.calls.get(id).is_some_and(|tool| tool.done) {
            return out.unknown(call);
        }
        let tool = self.get(id, fields, out);
        tool.absorb(fields, call, out);
        if tool.input.is_some() {
            tool.show_input(out);
        }
    }

    /// Shows the inputs that are still held back. No output is invented.
    pub fn close(&mut self, out: &mut Out<'_>) {
        for id in &self.order {
            if let Some(tool) = self.calls.get_mut(id)
                && !tool.done
            {
                tool.show_input(out);
            }
        }
    }

    fn get(&mut self, id: &str, fields: &Obj<'_>, out: &mut Out<'_>) -> &mut Tool {
        if !self.calls.contains_key(id) {
            self.order.push(id.to_owned());
        }
        self.calls.entry(id.to_owned()).or_insert_with(|| {
            let tool = Tool { id: id.to_owned(), name: name(fields), ..Tool::default() };
            let start =
                tool.part("tool-input-start").raw("toolName", &tool.name).maybe("title", fields.string("title"));
            out.parts.push(start.at(out.at));
            tool
        })
    }
}

impl Tool {
    fn part(&self, kind: &'static str) -> Builder {
        Part::begin(kind).raw("toolCallId", &self.id).raw("dynamic", "true")
    }

    /// Takes what an update says; whether that was an input.
    fn absorb(&mut self, fields: &Obj<'_>, update: &str, out: &mut Out<'_>) -> bool {
        keep(&mut self.title, fields.string("title"));
        keep(&mut self.kind, fields.string("kind"));
        keep(&mut self.locations, fields.get("locations"));
        if self.meta.is_none() {
            keep(&mut self.meta, fields.get("_meta").filter(|meta| meta.len() <= META_BYTES));
        }
        let input = fields.get("rawInput").filter(|input| !is_blank(input));
        if let Some(input) = input {
            match self.shown {
                None => self.input = Some(input.to_owned()),
                // Shown already: what differs from it is kept beside it.
                Some(shown) if shown != digest(input) && self.seen.insert(digest(input)) => out.unknown(update),
                Some(_) => {}
            }
        }
        self.content(fields, out);
        if let Some(output) = fields.get("rawOutput") {
            self.exit_of(output);
            self.output = Some(output.to_owned());
        }
        if let Some(meta) = fields.object("_meta") {
            self.metadata(&meta);
        }
        input.is_some()
    }

    fn content(&mut self, fields: &Obj<'_>, out: &mut Out<'_>) {
        let mut text = String::new();
        for raw in fields.items("content") {
            let item = Obj::parse(raw).unwrap_or_default();
            let content = item.object("content").unwrap_or_default();
            match (item.text("type").as_deref(), content.string("text")) {
                (Some("content"), Some(said)) => {
                    if !text.is_empty() {
                        text.push_str("\\n");
                    }
                    text.push_str(inner(said));
                }
                (Some("diff"), _) if self.seen.insert(digest(raw)) => {
                    let data = Fields::default()
                        .raw("path", item.get("path"))
                        .raw("oldText", Some(item.get("oldText").unwrap_or("null")))
                        .raw("newText", item.get("newText"))
                        .raw("toolCallId", Some(&self.id))
                        .finish();
                    out.parts.push(Part::begin("data-diff").raw("data", &data).at(out.at));
                }
                (Some("terminal"), _) => self.terminal_content = true,
                (Some("diff"), _) => {}
                _ if self.seen.insert(digest(raw)) => out.unknown(raw),
                _ => {}
            }
        }
        if !text.is_empty() {
            self.said = Some(format!("\"{text}\""));
        }
    }

    /// What agents put into `_meta`: what a terminal said and how it ended, and one agent's own results.
    fn metadata(&mut self, meta: &Obj<'_>) {
        for key in ["terminal_output_delta", "terminal_output"] {
            let said = meta.object(key);
            let said =
                meta.string(key).or_else(|| said.as_ref().and_then(|o| o.string("data").or_else(|| o.string("delta"))));
            if let Some(said) = said {
                self.terminal_content = true;
                let said = inner(said);
                match &mut self.terminal_left_out {
                    None if self.terminal.len() + said.len() <= TERMINAL_BYTES => self.terminal.push_str(said),
                    left_out => {
                        let (bytes, sha) = left_out.get_or_insert_default();
                        *bytes += said.len() as u64;
                        sha.update(said);
                    }
                }
            }
        }
        if let Some(exit) = meta.get("terminal_exit") {
            self.exit_of(exit);
        }
        if self.output.is_none()
            && self.said.is_none()
            && let Some(response) = meta.object("claudeCode").and_then(|own| own.get("toolResponse"))
        {
            self.exit_of(response);
            self.output = Some(response.to_owned());
        }
    }

    /// Reads exit code and signal from where agents are known to put them.
    fn exit_of(&mut self, text: &str) {
        let Some(fields) = Obj::parse(text) else { return };
        let metadata = fields.object("metadata").unwrap_or_default();
        let code = ["exit_code", "exitCode", "exit"]
            .iter()
            .find_map(|key| fields.number(key).or_else(|| metadata.number(key)));
        self.exit = code.or(self.exit);
        keep(&mut self.signal, fields.get("signal"));
    }

    /// What stands for an input that the agent never sent.
    fn known(&self) -> String {
        let mut known = Fields::default();
        known
            .raw("title", self.title.as_deref())
            .raw("kind", self.kind.as_deref())
            .raw("locations", self.locations.as_deref());
        known.finish()
    }

    fn show_input(&mut self, out: &mut Out<'_>) {
        if self.shown.is_some() {
            return;
        }
        let input = self.input.take().unwrap_or_else(|| self.known());
        self.shown = Some(digest(&input));
        let own = Fields::default()
            .raw("kind", self.kind.as_deref())
            .raw("locations", self.locations.as_deref())
            .raw("meta", self.meta.as_deref())
            .if_any()
            .map(|own| ours(&own));
        let available = |input: &str| self.part("tool-input-available").raw("toolName", &self.name).raw("input", input);
        let mut part =
            available(&input).maybe("title", self.title.as_deref()).maybe("providerMetadata", own.as_deref());
        if input.len() > PART_BYTES / 2 {
            part = part.instead(available("{}").at(out.at));
        }
        out.parts.push(part.at(out.at));
    }

    /// What there is of an output, as text.
    fn so_far(&self) -> Option<String> {
        let terminal = || (!self.terminal.is_empty()).then(|| format!("\"{}\"", self.terminal));
        self.output.clone().or_else(|| self.said.clone()).or_else(terminal)
    }

    /// Shows an output that grows, each time it has grown by half: all of them together are then at most three times the last.
    fn preview(&mut self, out: &mut Out<'_>) {
        let (length, shown) = self.preview;
        let grown = self.output.as_ref().or(self.said.as_ref()).map_or(self.terminal.len(), String::len);
        if grown == 0 || (grown > length && grown < length + length / 2) {
            return;
        }
        let Some(output) = self.so_far() else { return };
        let digest = digest(&output);
        if digest == shown {
            return;
        }
        self.preview = (grown, digest);
        self.show_input(out);
        out.parts.push(self.part("tool-output-available").raw("output", &output).raw("preliminary", "true").at(out.at));
    }

    fn finish(&mut self, out: &mut Out<'_>) {
        self.show_input(out);
        if self.terminal_content && !self.terminal.is_empty() {
            let said = format!("\"{}\"", self.terminal);
            let data = Fields::default().raw("toolCallId", Some(&self.id)).raw("output", Some(&said)).finish();
            out.parts.push(Part::begin("data-terminal").raw("data", &data).at(out.at));
        }
        if let Some((bytes, sha)) = self.terminal_left_out.take() {
            out.parts.push(omitted("data-terminal", bytes, &hex::encode(sha.finalize())).at(out.at));
        }
        let exit = self.exit.map(|code| code.to_string());
        let mut own = Fields::default();
        own.raw("exit", exit.as_deref()).raw("signal", self.signal.as_deref());
        let short = own.if_any().map(|own| ours(&own));
        // Of an output in two forms both are kept, unless one holds the other: a result as it is, an error in words.
        let (output, said) = (self.output.as_deref(), self.said.as_deref());
        let differ = output.zip(said).is_some_and(|(output, said)| !output.contains(inner(said)));
        let (kind, key, value, other_key, other) = if self.status == Status::Failed {
            let words = self.said.clone().or_else(|| self.so_far());
            ("tool-output-error", "errorText", error_text(words), "rawOutput", output)
        } else {
            let value = self.so_far().unwrap_or_else(|| "null".to_owned());
            ("tool-output-available", "output", value, "content", said)
        };
        let other = other.filter(|_| differ);
        let own = own.raw(other_key, other).if_any().map(|own| ours(&own));
        let mut part = self.part(kind).raw(key, &value).maybe("providerMetadata", own.as_deref());
        if value.len() + other.map_or(0, str::len) > PART_BYTES / 2 {
            let instead = format!("\"omitted: {} bytes\"", value.len());
            part =
                part.instead(self.part(kind).raw(key, &instead).maybe("providerMetadata", short.as_deref()).at(out.at));
        }
        out.parts.push(part.at(out.at));
        // What was said is in the log now; only what tells late updates apart stays.
        *self = Self {
            id: std::mem::take(&mut self.id),
            title: self.title.take(),
            shown: self.shown,
            done: true,
            ..Self::default()
        };
    }
}

/// The words of a failed call; a result that is no text is shown as its text.
fn error_text(words: Option<String>) -> String {
    match words {
        Some(text) if is_string(&text) => text,
        Some(other) => quote(&other),
        None => "\"the tool call failed\"".to_owned(),
    }
}

/// Fields of ours, as provider metadata.
fn ours(fields: &str) -> String {
    format!("{{\"agentsession\":{fields}}}")
}

fn keep(slot: &mut Option<String>, value: Option<&str>) {
    if let Some(value) = value {
        *slot = Some(value.to_owned());
    }
}

fn digest(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Whether an input says nothing: `{}`, `[]` or an empty text.
fn is_blank(input: &str) -> bool {
    matches!(input, "\"\"" | "[]") || Obj::parse(input).is_some_and(|fields| fields.is_empty())
}

fn status(fields: &Obj<'_>) -> Option<Status> {
    match fields.text("status")?.as_ref() {
        "pending" => Some(Status::Pending),
        "in_progress" => Some(Status::Running),
        "completed" => Some(Status::Completed),
        "failed" => Some(Status::Failed),
        _ => None,
    }
}

/// The name of the tool, as text: the protocol's field, else one agent's own, else its kind.
fn name(fields: &Obj<'_>) -> String {
    let own = fields.object("_meta").and_then(|meta| meta.object("claudeCode")).and_then(|own| own.string("toolName"));
    let name = fields.string("name").or(own).or_else(|| fields.string("kind")).filter(|name| !inner(name).is_empty());
    name.unwrap_or("\"tool\"").to_owned()
}
