//! Calls in JSON as servers really send it.

use std::borrow::Cow;

use async_openai::types::chat::{
    ChatCompletionMessageCustomToolCall, ChatCompletionMessageToolCall, ChatCompletionMessageToolCalls,
};
use serde_json::Value;

use crate::call::Call;

/// What is called: one of the program's functions, or a tool whose input is free text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Function,
    Custom,
}

/// The calls in an answer that came over the wire, for servers whose JSON the typed way refuses: arguments as an
/// object, no `type`, no `id`. Takes a whole chat completion, its `message`, the list of its `tool_calls`, or a whole
/// response with its `output` (or that list). Anything else has no calls.
///
/// An entry that can't be read as a call is a call too: it has to be answered, and the answer says what is wrong.
/// Digits of numbers that the parser rounded are lost; servers that give arguments as text lose none.
///
/// ```
/// use serde_json::json;
/// use toolonce::adapter::openai::calls_from_value;
///
/// let calls = calls_from_value(&json!({"choices": [{"message": {"role": "assistant", "tool_calls": [
///     {"id": "0", "function": {"name": "charge_card", "arguments": {"cents": 4200}}},
/// ]}}]}));
/// assert_eq!(calls[0].tool(), "charge_card");
/// ```
pub fn calls_from_value(answer: &Value) -> Vec<Call> {
    let message = answer.pointer("/choices/0/message").unwrap_or(answer);
    let list = [&message["tool_calls"], &answer["output"], answer].into_iter().find_map(Value::as_array);
    list.into_iter().flatten().filter_map(call).collect()
}

/// An entry of a list of calls, or of a response's output items; `None` for an item that is no call.
fn call(entry: &Value) -> Option<Call> {
    match entry["type"].as_str() {
        Some("function_call") => Some(response_call(entry)),
        Some("custom_tool_call") => Some(custom(&name(entry), &id(&entry["call_id"]))),
        None | Some("function" | "custom" | "custom_tool" | "") => Some(chat_call(entry)),
        Some(_) => None,
    }
}

fn chat_call(entry: &Value) -> Call {
    let (kind, body) = body(entry);
    let (name, id) = (name(body), id(&entry["id"]));
    match kind {
        Kind::Custom => custom(&name, &id),
        Kind::Function if name.is_empty() => {
            Call::unreadable(name, "the call names no function. Name one of the tools.").id(id)
        }
        Kind::Function => Call::new(name, text(kind, body)).id(id),
    }
}

fn response_call(entry: &Value) -> Call {
    let tool = qualified(entry["namespace"].as_str(), &name(entry));
    Call::new(tool, text(Kind::Function, entry)).id(id(&entry["call_id"]))
}

/// A call of a tool whose input is free text: no such tool can be registered, so it is answered with a refusal.
pub(super) fn custom(name: &str, id: &str) -> Call {
    let why =
        format!("{name:?} was called as a custom tool with free text. Call it as a function, with JSON arguments.");
    Call::unreadable(name, why).id(id)
}

/// The Responses API knows a function by namespace and name. The tool of the registry is called `namespace.name`.
pub(super) fn qualified(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        None | Some("") => name.to_owned(),
        Some(namespace) => format!("{namespace}.{name}"),
    }
}

fn name(body: &Value) -> String {
    body["name"].as_str().unwrap_or_default().to_owned()
}

/// An id is echoed as it came; numbers are seen in the wild.
fn id(id: &Value) -> String {
    match id {
        Value::String(id) => id.clone(),
        Value::Number(id) => id.to_string(),
        _ => String::new(),
    }
}

/// The part of a chat completion's call that names and fills it.
pub(super) fn body(call: &Value) -> (Kind, &Value) {
    // The field is `custom` on the wire and `custom_tool` in the crate's types.
    let custom = ["custom", "custom_tool"].iter().find_map(|field| call.get(*field));
    match custom {
        Some(body) => (Kind::Custom, body),
        // The flat form of some servers: name and arguments beside the id.
        None => (Kind::Function, call.get("function").unwrap_or(call)),
    }
}

/// The argument text: as it came, or written anew where the server sent a parsed value.
pub(super) fn text(kind: Kind, body: &Value) -> Cow<'_, str> {
    let field = match kind {
        Kind::Function => "arguments",
        Kind::Custom => "input",
    };
    match &body[field] {
        Value::Null => Cow::Borrowed(""),
        Value::String(text) => Cow::Borrowed(text),
        parsed => Cow::Owned(parsed.to_string()),
    }
}

/// A call in the crate's types: default first, then fields, since its structs gain fields in minor versions.
#[allow(clippy::field_reassign_with_default)]
pub(super) fn typed(kind: Kind, id: String, name: String, text: String) -> ChatCompletionMessageToolCalls {
    match kind {
        Kind::Function => {
            let mut call = ChatCompletionMessageToolCall::default();
            call.id = id;
            call.function.name = name;
            call.function.arguments = text;
            call.into()
        }
        Kind::Custom => {
            let mut call = ChatCompletionMessageCustomToolCall::default();
            call.id = id;
            call.custom_tool.name = name;
            call.custom_tool.input = text;
            call.into()
        }
    }
}
