//! What is open in the client at this point of a turn: text and reasoning blocks, tool calls.

use std::collections::BTreeMap;

use super::{
    chunk::BlockKind,
    write::{MadeUp, Mark, Sse},
};

/// Blocks that may be open at once; the oldest is ended before one more is opened.
const BLOCKS: usize = 64;
/// Tool calls of a turn that are kept track of.
const TOOLS: usize = 4096;

/// What the client is told of a tool call that the agent never gave its input.
const NO_INPUT: &str = "the input of this call was never completed";

#[derive(Debug)]
struct Block {
    kind: BlockKind,
    id: String,
    /// Whether the client knows of it. One that was opened before the client's cursor is known only to us.
    is_sent: bool,
}

/// A tool call of this turn.
#[derive(Debug)]
pub(super) struct Tool {
    pub(super) name: String,
    pub(super) dynamic: bool,
    /// Whether the agent began its input, so that deltas of it may come.
    pub(super) takes_deltas: bool,
    /// Whether the client has a buffer for them.
    pub(super) is_buffered: bool,
    /// Whether its input is still open.
    pub(super) is_streaming: bool,
    /// Whether the client knows of it.
    pub(super) is_sent: bool,
}

/// The open things of one turn.
#[derive(Debug, Default)]
pub(super) struct Open {
    blocks: Vec<Block>,
    tools: BTreeMap<String, Tool>,
}

impl Open {
    pub(super) fn has_block(&self, kind: BlockKind, id: &str) -> bool {
        self.blocks.iter().any(|block| block.kind == kind && block.id == id)
    }

    /// Takes note of a block that the client is told to open (or, before its cursor, was).
    pub(super) fn open_block(&mut self, kind: BlockKind, id: &str, is_sent: bool, out: &mut Vec<u8>) {
        if self.blocks.len() >= BLOCKS {
            let oldest = self.blocks.remove(0);
            end_block(&oldest, out);
        }
        self.blocks.push(Block { kind, id: id.to_owned(), is_sent });
    }

    /// Opens a block by ourselves, unless the client has it open.
    pub(super) fn ensure_block(&mut self, kind: BlockKind, id: &str, is_past: bool, out: &mut Vec<u8>) {
        match self.blocks.iter_mut().find(|block| block.kind == kind && block.id == id) {
            Some(block) if block.is_sent || is_past => return,
            Some(block) => block.is_sent = true,
            None => self.open_block(kind, id, !is_past, out),
        }
        if !is_past {
            Sse(out).made_up(&match kind {
                BlockKind::Text => MadeUp::TextStart { id, provider_metadata: Mark::NEW },
                BlockKind::Reasoning => MadeUp::ReasoningStart { id, provider_metadata: Mark::NEW },
            });
        }
    }

    /// Forgets a block that is ended by a stored part.
    pub(super) fn forget_block(&mut self, kind: BlockKind, id: &str) {
        self.blocks.retain(|block| block.kind != kind || block.id != id);
    }

    /// Ends one block by ourselves, if it is open.
    pub(super) fn end_block(&mut self, kind: BlockKind, id: &str, out: &mut Vec<u8>) {
        if let Some(at) = self.blocks.iter().position(|block| block.kind == kind && block.id == id) {
            end_block(&self.blocks.remove(at), out);
        }
    }

    /// Ends all blocks by ourselves, in the order they were opened.
    pub(super) fn end_blocks(&mut self, out: &mut Vec<u8>) {
        for block in self.blocks.drain(..) {
            end_block(&block, out);
        }
    }

    pub(super) fn tool(&mut self, id: &str) -> Option<&mut Tool> {
        self.tools.get_mut(id)
    }

    pub(super) fn has_room(&self) -> bool {
        self.tools.len() < TOOLS
    }

    pub(super) fn add_tool(&mut self, id: &str, tool: Tool) {
        self.tools.insert(id.to_owned(), tool);
    }

    pub(super) fn has_open_input(&self) -> bool {
        self.tools.values().any(|tool| tool.is_streaming && tool.is_sent)
    }

    /// Ends the inputs of tool calls that are still open, since a client would show them as growing for ever.
    pub(super) fn end_inputs(&mut self, out: &mut Vec<u8>) {
        for (id, tool) in self.tools.iter_mut().filter(|(_, tool)| tool.is_streaming) {
            tool.is_streaming = false;
            if tool.is_sent {
                Sse(out).made_up(&MadeUp::ToolInputError {
                    tool_call_id: id,
                    tool_name: &tool.name,
                    dynamic: tool.dynamic,
                    input: (),
                    error_text: NO_INPUT,
                });
            }
        }
    }
}

fn end_block(block: &Block, out: &mut Vec<u8>) {
    if block.is_sent {
        Sse(out).made_up(&match block.kind {
            BlockKind::Text => MadeUp::TextEnd { id: &block.id },
            BlockKind::Reasoning => MadeUp::ReasoningEnd { id: &block.id },
        });
    }
}
