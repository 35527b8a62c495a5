//! A model of the client, as far as it can fail.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Events as `(SSE id, data)`. Panics on what no SSE reader would take.
pub(crate) fn events(stream: &str) -> Vec<(Option<String>, String)> {
    let body = stream.strip_suffix("\n\n").expect("the last event is whole");
    body.split("\n\n")
        .map(|event| {
            let (id, data) = match event.split_once('\n') {
                Some((id, data)) => (Some(id.strip_prefix("id: ").expect(event).to_owned()), data),
                None => (None, event),
            };
            assert!(!data.contains(['\n', '\r']), "{data}");
            (id, data.strip_prefix("data: ").expect(event).to_owned())
        })
        .collect()
}

/// The client as far as it can fail: what AI SDK 5, 6 and 7 all demand, at their strictest.
#[derive(Default)]
pub(crate) struct Client {
    blocks: BTreeSet<(bool, String)>,
    /// By id: whether it is dynamic, whether its input streams, and in which step.
    tools: BTreeMap<String, (bool, bool, usize)>,
    deltas: BTreeSet<String>,
    step: usize,
}

impl Client {
    pub(crate) fn read(stream: &str) -> Result<Vec<(Option<String>, Value)>, String> {
        let mut client = Self::default();
        let mut events = events(stream);
        let done = events.pop().ok_or("nothing at all")?;
        if done != (None, "[DONE]".to_owned()) {
            return Err(format!("ends with {done:?}"));
        }
        let events: Vec<(Option<String>, Value)> = events
            .into_iter()
            .map(|(id, data)| serde_json::from_str(&data).map(|chunk| (id, chunk)).map_err(|e| format!("{e}: {data}")))
            .collect::<Result<_, _>>()?;
        for (at, (_, chunk)) in events.iter().enumerate() {
            let kind = chunk["type"].as_str().ok_or("no type")?;
            if (kind == "start") != (at == 0) || (kind == "finish") != (at + 1 == events.len()) {
                return Err(format!("{kind} at {at} of {}", events.len()));
            }
            client.take(kind, chunk).map_err(|why| format!("{why}: {chunk} at {at}"))?;
        }
        if !client.blocks.is_empty() || client.tools.values().any(|(_, streams, _)| *streams) {
            return Err(format!("left open: {:?} {:?}", client.blocks, client.tools));
        }
        Ok(events)
    }

    fn take(&mut self, kind: &str, chunk: &Value) -> Result<(), String> {
        let text = |key: &str| chunk[key].as_str().map(str::to_owned).ok_or(format!("no {key}"));
        let is_text = kind.starts_with("text-");
        match kind {
            "start" | "finish" | "abort" | "message-metadata" | "file" | "source-url" | "source-document" => {}
            "start-step" => self.step += 1,
            "finish-step" if !self.blocks.is_empty() => return Err("open across a step".into()),
            "finish-step" => {}
            "text-start" | "reasoning-start" => {
                if !self.blocks.insert((is_text, text("id")?)) {
                    return Err("begun twice".into());
                }
            }
            "text-delta" | "reasoning-delta" => {
                text("delta")?;
                if !self.blocks.contains(&(is_text, text("id")?)) {
                    return Err("delta without start".into());
                }
            }
            "text-end" | "reasoning-end" => {
                if !self.blocks.remove(&(is_text, text("id")?)) {
                    return Err("end without start".into());
                }
            }
            "tool-input-start" | "tool-input-available" | "tool-input-error" => {
                text("toolName")?;
                let id = text("toolCallId")?;
                let dynamic = chunk["dynamic"].as_bool().unwrap_or(false);
                if let Some((was, streams, step)) = self.tools.get(&id) {
                    if *was != dynamic && *step == self.step {
                        return Err("dynamic changed".into());
                    }
                    if *streams && *step != self.step {
                        return Err("input open across a step".into());
                    }
                }
                if kind == "tool-input-start" {
                    self.deltas.insert(id.clone());
                }
                self.tools.insert(id, (dynamic, kind == "tool-input-start", self.step));
            }
            "tool-input-delta" => {
                text("inputTextDelta")?;
                let id = text("toolCallId")?;
                if !self.deltas.contains(&id) {
                    return Err("input delta without start".into());
                }
                let step = self.step;
                let tool = self.tools.get_mut(&id).ok_or("no call")?;
                (tool.1, tool.2) = (true, step);
            }
            "tool-output-available" | "tool-output-error" => {
                let tool = self.tools.get_mut(&text("toolCallId")?).ok_or("output without input")?;
                if tool.0 != chunk["dynamic"].as_bool().unwrap_or(false) {
                    return Err("dynamic changed".into());
                }
                tool.1 = false;
            }
            data if data.starts_with("data-") => {
                if chunk.get("data").is_none() {
                    return Err("no data".into());
                }
            }
            _ => return Err("unknown type".into()),
        }
        Ok(())
    }
}

pub(crate) fn legal(stream: &str) -> Vec<(Option<String>, Value)> {
    Client::read(stream).unwrap_or_else(|why| panic!("{why}\n{stream}"))
}
