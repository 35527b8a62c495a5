//! A part as text: built once, field by field, with the agent's own text where the agent said it.

use crate::json;

/// The type of the marker that stands where something did not fit.
pub const OMITTED: &str = "data-omitted";

/// What a part does to the block of text or reasoning that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// Opens the block with this ordinal.
    Open(u32),
    /// Closes the block with this ordinal.
    Close(u32),
}

/// One chunk of the UI message stream, ready to be written.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its `type`.
    pub kind: &'static str,
    /// When, as it stands inside the part too.
    pub at: String,
    /// The whole JSON object.
    pub text: String,
    /// Whether it opens or closes a block.
    pub edge: Option<Edge>,
    /// Whether it may use the room that is kept for the end of a turn.
    pub terminal: bool,
    /// What stands for it, behind the marker, when it is too long: a tool call needs its input for its output to be readable.
    pub instead: Option<Box<Part>>,
}

impl Part {
    /// Begins a part of this type.
    pub fn begin(kind: &'static str) -> Builder {
        Builder { kind, text: format!("{{\"type\":\"{kind}\""), edge: None, terminal: false, instead: None }
    }
}

/// A part under construction.
#[derive(Debug)]
pub struct Builder {
    kind: &'static str,
    text: String,
    edge: Option<Edge>,
    terminal: bool,
    instead: Option<Box<Part>>,
}

impl Builder {
    /// Adds a field whose value is JSON text already.
    #[must_use]
    pub fn raw(mut self, key: &str, value: &str) -> Self {
        self.text.push_str(",\"");
        self.text.push_str(key);
        self.text.push_str("\":");
        self.text.push_str(value);
        self
    }

    /// Adds a field when there is a value for it.
    #[must_use]
    pub fn maybe(self, key: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.raw(key, value),
            None => self,
        }
    }

    /// Adds a field whose value is this text.
    #[must_use]
    pub fn str(self, key: &str, value: &str) -> Self {
        let value = json::quote(value);
        self.raw(key, &value)
    }

    /// Says which block is opened or closed.
    #[must_use]
    pub fn edge(mut self, edge: Edge) -> Self {
        self.edge = Some(edge);
        self
    }

    /// Lets the part use the room that is kept for the end of a turn.
    #[must_use]
    pub fn terminal(mut self) -> Self {
        self.terminal = true;
        self
    }

    /// Says what stands for the part when it is too long.
    #[must_use]
    pub fn instead(mut self, part: Part) -> Self {
        self.instead = Some(Box::new(part));
        self
    }

    /// Ends the part with its time.
    pub fn at(mut self, at: &str) -> Part {
        self.text.push_str(",\"at\":\"");
        self.text.push_str(at);
        self.text.push_str("\"}");
        Part {
            kind: self.kind,
            at: at.to_owned(),
            text: self.text,
            edge: self.edge,
            terminal: self.terminal,
            instead: self.instead,
        }
    }
}

/// A JSON object as text, for what stands inside `data` and `providerMetadata`.
#[derive(Debug, Default)]
pub struct Fields {
    text: String,
}

impl Fields {
    /// Adds a field whose value is JSON text already, when there is one.
    pub fn raw(&mut self, key: &str, value: Option<&str>) -> &mut Self {
        if let Some(value) = value {
            self.text.push(if self.text.is_empty() { '{' } else { ',' });
            self.text.push('"');
            self.text.push_str(key);
            self.text.push_str("\":");
            self.text.push_str(value);
        }
        self
    }

    /// Adds a field whose value is this text.
    pub fn str(&mut self, key: &str, value: &str) -> &mut Self {
        let value = json::quote(value);
        self.raw(key, Some(&value))
    }

    /// The object; `{}` when nothing was added.
    pub fn finish(&self) -> String {
        if self.text.is_empty() { "{}".to_owned() } else { format!("{}}}", self.text) }
    }

    /// The object, when anything was added.
    pub fn if_any(&self) -> Option<String> {
        (!self.text.is_empty()).then(|| self.finish())
    }
}

/// The marker that stands where something did not fit.
pub fn omitted(kind: &str, bytes: u64, sha256: &str) -> Builder {
    let mut data = Fields::default();
    data.str("type", kind).raw("bytes", Some(&bytes.to_string())).str("sha256", sha256);
    Part::begin(OMITTED).raw("data", &data.finish())
}
