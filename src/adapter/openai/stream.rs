//! Tool calls that arrive in pieces.

use std::borrow::Cow;

use async_openai::types::chat::{
    ChatChoiceStream, ChatCompletionMessageToolCallChunk, ChatCompletionMessageToolCalls, FinishReason,
};
use serde_json::Value;

use super::wire::{self, Kind};

/// Puts the tool calls of a streamed chat completion together.
///
/// Pieces belong together by `index`; where a server leaves it out, by id, and where there is none either, a piece
/// with a name begins a call. Two ids under one index are two calls. Nothing may be dispatched before the answer is
/// complete, so the calls come out only at the [`finish`](Self::finish).
///
/// ```
/// use serde_json::json;
/// use toolonce::adapter::openai::StreamedCalls;
///
/// # fn main() -> Result<(), toolonce::adapter::openai::CutOff> {
/// let mut calls = StreamedCalls::new();
/// for tool_call in [
///     json!({"index": 0, "id": "call_1", "type": "function", "function": {"name": "charge", "arguments": ""}}),
///     json!({"index": 0, "function": {"arguments": "{\"cents\":"}}),
///     json!({"index": 0, "function": {"arguments": "4200}"}}),
/// ] {
///     calls.push_value(&json!({"choices": [{"index": 0, "delta": {"tool_calls": [tool_call]}}]}));
/// }
/// calls.push_value(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}));
/// let calls = calls.finish()?; // one call of `charge`: to send back, and to answer
/// # assert_eq!(calls.len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct StreamedCalls {
    calls: Vec<Assembled>,
    end: Option<End>,
}

/// A streamed answer that ended before it was complete: none of its calls may be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the model's answer was cut off ({reason}); none of its calls may be made")]
pub struct CutOff {
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    Complete,
    CutOff(String),
}

#[derive(Debug, Clone)]
struct Assembled {
    index: Option<u64>,
    kind: Kind,
    id: String,
    name: String,
    text: String,
}

/// One piece of one call, as far as the server said.
struct Piece<'a> {
    index: Option<u64>,
    kind: Kind,
    id: &'a str,
    name: &'a str,
    text: Cow<'a, str>,
}

impl StreamedCalls {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next piece of the answer: a choice of a chunk of `create_stream`.
    pub fn push(&mut self, choice: &ChatChoiceStream) {
        for chunk in choice.delta.tool_calls.iter().flatten() {
            self.piece(&Piece::of_chunk(chunk));
        }
        match choice.finish_reason {
            None => {}
            Some(FinishReason::Length) => self.cut_off("length"),
            Some(FinishReason::ContentFilter) => self.cut_off("content_filter"),
            Some(_) => self.done(),
        }
    }

    /// Takes the next chunk as it came over the wire, for servers that leave out `index` or `type` or give arguments
    /// as an object. Only the first choice of an answer counts.
    pub fn push_value(&mut self, chunk: &Value) {
        let choices = chunk["choices"].as_array().into_iter().flatten();
        for choice in choices.filter(|choice| choice["index"].as_u64().unwrap_or(0) == 0) {
            for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
                self.piece(&Piece::of_value(call));
            }
            match choice["finish_reason"].as_str() {
                None | Some("") => {}
                Some(reason @ ("length" | "content_filter" | "error")) => self.cut_off(reason),
                Some(_) => self.done(),
            }
        }
    }

    /// Says that the answer is complete, for servers that give no `finish_reason` but end their stream with `[DONE]`.
    pub fn done(&mut self) {
        self.end.get_or_insert(End::Complete);
    }

    fn cut_off(&mut self, reason: &str) {
        self.end = Some(End::CutOff(reason.to_owned()));
    }

    /// The calls, in the order of their index: to be echoed in the assistant message, and to be answered.
    ///
    /// # Errors
    /// [`CutOff`] if the stream broke off, or the server says that the answer isn't whole. A call that lacks its tail
    /// could still look complete (a missing argument text means "no arguments").
    pub fn finish(self) -> Result<Vec<ChatCompletionMessageToolCalls>, CutOff> {
        match self.end {
            Some(End::Complete) => {}
            Some(End::CutOff(reason)) => return Err(CutOff { reason }),
            None => return Err(CutOff { reason: "the stream ended without a finish_reason".to_owned() }),
        }
        let mut calls = self.calls;
        calls.sort_by_key(|call| call.index);
        Ok(calls.into_iter().map(|call| wire::typed(call.kind, call.id, call.name, call.text)).collect())
    }

    fn piece(&mut self, piece: &Piece<'_>) {
        let call = match self.place_of(piece) {
            Some(n) => &mut self.calls[n],
            None => {
                self.calls.push(Assembled::new(piece));
                return;
            }
        };
        if call.id.is_empty() {
            piece.id.clone_into(&mut call.id);
        }
        // Some servers repeat the name in every piece, some send it in pieces.
        if call.name != piece.name {
            call.name.push_str(piece.name);
        }
        if call.kind == Kind::Function {
            call.kind = piece.kind;
        }
        call.text.push_str(&piece.text);
    }

    /// The call that a piece goes on with; `None` if it begins one.
    fn place_of(&self, piece: &Piece<'_>) -> Option<usize> {
        let mut candidates = (0..self.calls.len()).rev().filter(|&n| self.calls[n].index == piece.index);
        if !piece.id.is_empty() {
            return candidates.find(|&n| {
                let call = &self.calls[n];
                let late = call.id.is_empty() && (piece.name.is_empty() || call.text.is_empty());
                call.id == piece.id || late
            });
        }
        let last = candidates.next()?;
        let begins = piece.index.is_none() && !piece.name.is_empty() && !self.calls[last].name.is_empty();
        (!begins).then_some(last)
    }
}

impl Assembled {
    fn new(piece: &Piece<'_>) -> Self {
        Self {
            index: piece.index,
            kind: piece.kind,
            id: piece.id.to_owned(),
            name: piece.name.to_owned(),
            text: piece.text.clone().into_owned(),
        }
    }
}

impl<'a> Piece<'a> {
    fn of_chunk(chunk: &'a ChatCompletionMessageToolCallChunk) -> Self {
        let function = chunk.function.as_ref();
        let part = |part: Option<&'a String>| part.map_or("", String::as_str);
        Self {
            index: Some(chunk.index.into()),
            kind: Kind::Function,
            id: part(chunk.id.as_ref()),
            name: part(function.and_then(|function| function.name.as_ref())),
            text: part(function.and_then(|function| function.arguments.as_ref())).into(),
        }
    }

    fn of_value(call: &'a Value) -> Self {
        let (kind, body) = wire::body(call);
        Self {
            index: call["index"].as_u64(),
            kind,
            id: call["id"].as_str().unwrap_or_default(),
            name: body["name"].as_str().unwrap_or_default(),
            text: wire::text(kind, body),
        }
    }
}
