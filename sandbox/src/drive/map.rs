//! From what the agent says to parts. Pure: text in, parts out, the time as an argument.
//!
//! Nothing is dropped: what is not understood becomes `data-acp` with the agent's own text. The sequence that comes out is always
//! legal for a client that stops at the first mistake: a delta stands inside its block, an output behind an input.

use transcript::{Turn, status::Usage};

use crate::{
    drive::tool::Tools,
    json::{Obj, inner},
    part::{Edge, Fields, Part},
};

/// The field that says what an update is.
const KIND: &str = "sessionUpdate";

/// The parts of one step, with the time that they all bear.
#[derive(Debug)]
pub struct Out<'a> {
    /// When.
    pub at: &'a str,
    /// What came out so far.
    pub parts: Vec<Part>,
}

impl<'a> Out<'a> {
    /// An empty step at this time.
    pub fn new(at: &'a str) -> Self {
        Self { at, parts: Vec::new() }
    }

    /// Keeps what was not understood.
    pub fn unknown(&mut self, update: &str) {
        self.unknown_of(update, None);
    }

    /// Keeps what was not understood, and of whose session it spoke when it is not ours.
    pub fn unknown_of(&mut self, update: &str, session: Option<&str>) {
        let data = Fields::default().raw("update", Some(update)).raw("sessionId", session).finish();
        self.parts.push(Part::begin("data-acp").raw("data", &data).at(self.at));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Reasoning,
}

impl Kind {
    /// The types of start, delta and end, and the letter that its ids begin with.
    fn words(self) -> (&'static str, &'static str, &'static str, char) {
        match self {
            Self::Text => ("text-start", "text-delta", "text-end", 't'),
            Self::Reasoning => ("reasoning-start", "reasoning-delta", "reasoning-end", 'r'),
        }
    }
}

#[derive(Debug)]
struct Block {
    kind: Kind,
    ordinal: u32,
    id: String,
    /// The agent's id of the message, as text, when it sends one.
    message: Option<String>,
}

/// State of one turn's mapping.
#[derive(Debug)]
pub struct Mapper {
    turn: Turn,
    blocks: u32,
    open: Option<Block>,
    tools: Tools,
    last_usage: Option<String>,
    usage: Option<Usage>,
}

impl Mapper {
    /// The mapping of this turn.
    pub fn new(turn: Turn) -> Self {
        Self { turn, blocks: 0, open: None, tools: Tools::default(), last_usage: None, usage: None }
    }

    /// The id of data that is replaced by the next of its kind: a client replaces by id, also across turns.
    fn id(&self, what: &str) -> String {
        format!("\"{what}-{}\"", self.turn)
    }

    /// Maps one `update` of a `session/update`.
    pub fn update(&mut self, update: &str, out: &mut Out<'_>) {
        let Some(fields) = Obj::parse(update) else {
            return out.unknown(update);
        };
        match fields.text(KIND).as_deref() {
            Some("agent_message_chunk") => self.chunk(Kind::Text, &fields, update, out),
            Some("agent_thought_chunk") => self.chunk(Kind::Reasoning, &fields, update, out),
            Some("tool_call") => self.tool(&fields, update, true, out),
            Some("tool_call_update") => self.tool(&fields, update, false, out),
            Some("plan") => self.plan(&fields, update, out),
            Some("usage_update") => self.usage_update(&fields, out),
            Some("current_mode_update") => transient("data-mode", &fields, out),
            Some("available_commands_update") => transient("data-commands", &fields, out),
            _ => out.unknown(update),
        }
    }

    /// Maps a permission request with the answer that was given to it: `kind` is the kind of the option that was chosen.
    pub fn permission(&mut self, params: &Obj<'_>, kind: &str, out: &mut Out<'_>) {
        let call = params.get("toolCall").unwrap_or("{}");
        let fields = Obj::parse(call).unwrap_or_default();
        let Some(id) = fields.string("toolCallId") else {
            return out.unknown(call);
        };
        self.interrupt(true, out);
        self.tools.asked(id, &fields, call, out);
        let title = fields.string("title").or_else(|| self.tools.title(id));
        let data = Fields::default().raw("toolCallId", Some(id)).str("kind", kind).raw("title", title).finish();
        out.parts.push(Part::begin("data-permission").raw("data", &data).at(out.at));
    }

    /// Takes the usage that came with the answer to the prompt.
    pub fn answered(&mut self, result: &Obj<'_>) {
        let meta = result.object("_meta");
        let usage = result.object("usage").or_else(|| meta.as_ref().and_then(|meta| meta.object("usage")));
        if let Some(usage) = usage.as_ref().and_then(tokens) {
            self.usage = Some(usage);
        }
    }

    /// Closes what is open; nothing more comes of this turn.
    pub fn close(&mut self, out: &mut Out<'_>) {
        self.end_block(out);
        self.tools.close(out);
    }

    /// Usage as it was last reported.
    pub fn usage(&self) -> Option<Usage> {
        self.usage
    }

    fn chunk(&mut self, kind: Kind, fields: &Obj<'_>, update: &str, out: &mut Out<'_>) {
        let Some(content) = fields.object("content") else {
            return out.unknown(update);
        };
        match content.text("type").as_deref() {
            Some("text") => match content.string("text") {
                Some(text) => self.delta(kind, text, fields.string("messageId"), out),
                None => out.unknown(update),
            },
            Some(_) => {
                self.interrupt(true, out);
                match file(&content) {
                    Some(file) => out.parts.push(file.at(out.at)),
                    None => out.unknown(update),
                }
            }
            None => out.unknown(update),
        }
    }

    fn delta(&mut self, kind: Kind, text: &str, message: Option<&str>, out: &mut Out<'_>) {
        if inner(text).is_empty() {
            return;
        }
        let goes_on = self.open.as_ref().is_some_and(|block| {
            block.kind == kind && (message.is_none() || block.message.is_none() || block.message.as_deref() == message)
        });
        if !goes_on {
            self.end_block(out);
        }
        let blocks = &mut self.blocks;
        let block = self.open.get_or_insert_with(|| {
            let (start, _, _, letter) = kind.words();
            let block = Block {
                kind,
                ordinal: *blocks,
                id: format!("\"{letter}{blocks}\""),
                message: message.map(str::to_owned),
            };
            *blocks += 1;
            let said = message.map(|id| format!("{{\"agentsession\":{{\"messageId\":{id}}}}}"));
            out.parts.push(
                Part::begin(start)
                    .raw("id", &block.id)
                    .maybe("providerMetadata", said.as_deref())
                    .edge(Edge::Open(block.ordinal))
                    .at(out.at),
            );
            block
        });
        if block.message.is_none() {
            block.message = message.map(str::to_owned);
        }
        out.parts.push(Part::begin(kind.words().1).raw("id", &block.id).raw("delta", text).at(out.at));
    }

    fn end_block(&mut self, out: &mut Out<'_>) {
        if let Some(block) = self.open.take() {
            let end_at = format!("\"{}\"", out.at);
            let end = Part::begin(block.kind.words().2)
                .raw("id", &block.id)
                .raw("endAt", &end_at)
                .edge(Edge::Close(block.ordinal))
                .terminal();
            out.parts.push(end.at(out.at));
        }
    }

    /// Something else that people see came between. A block whose message has an id goes on after an update of a call that was
    /// seen before (`visible` false); without an id, and before anything new, it ends, so that the order stays readable.
    fn interrupt(&mut self, visible: bool, out: &mut Out<'_>) {
        if visible || self.open.as_ref().is_some_and(|block| block.message.is_none()) {
            self.end_block(out);
        }
    }

    fn tool(&mut self, fields: &Obj<'_>, update: &str, call: bool, out: &mut Out<'_>) {
        let Some(id) = fields.string("toolCallId") else {
            return out.unknown(update);
        };
        let first = !self.tools.knows(id);
        self.interrupt(first, out);
        self.tools.update(id, fields, update, call, out);
    }

    fn plan(&mut self, fields: &Obj<'_>, update: &str, out: &mut Out<'_>) {
        if fields.get("entries").is_none() {
            return out.unknown(update);
        }
        self.interrupt(false, out);
        let data = fields.without(KIND);
        out.parts.push(Part::begin("data-plan").raw("id", &self.id("plan")).raw("data", &data).at(out.at));
    }

    /// Agents repeat these; an equal one says nothing new.
    fn usage_update(&mut self, fields: &Obj<'_>, out: &mut Out<'_>) {
        if let Some(usage) = tokens(fields) {
            self.usage = Some(usage);
        }
        let data = fields.without(KIND);
        if self.last_usage.as_deref() != Some(data.as_str()) {
            out.parts.push(Part::begin("data-usage").raw("id", &self.id("usage")).raw("data", &data).at(out.at));
            self.last_usage = Some(data);
        }
    }
}

fn transient(kind: &'static str, fields: &Obj<'_>, out: &mut Out<'_>) {
    out.parts.push(Part::begin(kind).raw("data", &fields.without(KIND)).raw("transient", "true").at(out.at));
}

/// Content that a client can show as a file: it needs bytes and their media type.
fn file(content: &Obj<'_>) -> Option<crate::part::Builder> {
    let resource = content.object("resource");
    let (data, media) = match content.text("type").as_deref() {
        Some("image" | "audio") => (content.string("data")?, content.string("mimeType")?),
        Some("resource") => {
            let resource = resource.as_ref()?;
            (resource.string("blob")?, resource.string("mimeType")?)
        }
        _ => return None,
    };
    let url = format!("\"data:{};base64,{}\"", inner(media), inner(data));
    Some(Part::begin("file").raw("url", &url).raw("mediaType", media))
}

/// Token counts, under the names that agents use; `None` when there is not one of them.
fn tokens(fields: &Obj<'_>) -> Option<Usage> {
    let read = |camel: &str, snake: &str| fields.number::<u64>(camel).or_else(|| fields.number(snake));
    let (input, output) = (read("inputTokens", "input_tokens"), read("outputTokens", "output_tokens"));
    let total = read("totalTokens", "total_tokens");
    if input.is_none() && output.is_none() && total.is_none() {
        return None;
    }
    let (input_tokens, output_tokens) = (input.unwrap_or_default(), output.unwrap_or_default());
    Some(Usage {
        requests: fields.number("requests").unwrap_or_default(),
        input_tokens,
        output_tokens,
        total_tokens: total.unwrap_or_else(|| input_tokens.saturating_add(output_tokens)),
    })
}
