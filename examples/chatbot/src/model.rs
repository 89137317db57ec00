//! The scripted model's server: chat completions over HTTP, whole or streamed, as the API does it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::brain::{self, Said};
use crate::ledger;
use crate::world::World;

const NAME: &str = "scripted";

pub(crate) async fn list() -> Json<Value> {
    Json(json!({"object": "list", "data": [{"id": NAME, "object": "model", "created": 0, "owned_by": "chatbot"}]}))
}

pub(crate) async fn complete(State(world): State<Arc<World>>, Json(request): Json<Value>) -> Response {
    let Some(messages) = request["messages"].as_array() else { return refuse("'messages' is a required property") };
    if let Some(why) = unanswered(messages) {
        return refuse(&why);
    }
    world.requested(messages);
    let said = brain::next(messages);
    for (tool, arguments) in &said.calls {
        // The script writes valid JSON, if oddly.
        world.called(tool, serde_json::from_str(arguments).unwrap_or_default());
    }
    let id = format!("chatcmpl-{}", messages.len());
    match request["stream"].as_bool() {
        Some(true) => streamed(&id, messages.len(), &said),
        _ => Json(whole(&id, messages.len(), &said)).into_response(),
    }
}

fn refuse(why: &str) -> Response {
    let error = json!({"error": {"message": why, "type": "invalid_request_error", "param": "messages", "code": null}});
    (StatusCode::BAD_REQUEST, Json(error)).into_response()
}

/// The API's own check: every call of an assistant message is answered, by its id, before anything else is said.
fn unanswered(messages: &[Value]) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        if message["role"] == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            let Some(at) = open.iter().position(|call| *call == id) else {
                return Some(format!("there is no open tool call with the id {id:?}"));
            };
            open.remove(at);
        } else if let Some(id) = open.first() {
            return Some(format!("the tool call {id:?} has no answer"));
        }
        open.extend(message["tool_calls"].as_array().into_iter().flatten().filter_map(|call| call["id"].as_str()));
    }
    open.first().map(|id| format!("the tool call {id:?} has no answer"))
}

fn finish_reason(said: &Said) -> &'static str {
    if said.calls.is_empty() { "stop" } else { "tool_calls" }
}

fn call_id(turn: usize, n: usize) -> String {
    format!("call_{turn}_{n}")
}

fn whole(id: &str, turn: usize, said: &Said) -> Value {
    let calls: Vec<Value> = said.calls.iter().enumerate().map(|(n, (name, arguments))| {
        json!({"id": call_id(turn, n), "type": "function", "function": {"name": name, "arguments": arguments}})
    }).collect();
    let mut message = json!({"role": "assistant", "content": said.text, "refusal": null});
    if !calls.is_empty() {
        message["tool_calls"] = Value::Array(calls);
    }
    json!({
        "id": id, "object": "chat.completion", "created": ledger::now() / 1000, "model": NAME,
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason(said)}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    })
}

/// Server-sent events, word by word and with the arguments in pieces.
fn streamed(id: &str, turn: usize, said: &Said) -> Response {
    let mut deltas = vec![json!({"role": "assistant", "content": ""})];
    deltas.extend(said.text.split_inclusive(' ').map(|word| json!({"content": word})));
    for (n, (name, arguments)) in said.calls.iter().enumerate() {
        let function = json!({"name": name, "arguments": ""});
        let first = json!({"index": n, "id": call_id(turn, n), "type": "function", "function": function});
        deltas.push(json!({"tool_calls": [first]}));
        let mut rest = arguments.as_str();
        while !rest.is_empty() {
            let cut = (1..=rest.len().min(16)).rev().find(|&at| rest.is_char_boundary(at)).unwrap_or(rest.len());
            deltas.push(json!({"tool_calls": [{"index": n, "function": {"arguments": &rest[..cut]}}]}));
            rest = &rest[cut..];
        }
    }
    let created = ledger::now() / 1000;
    let chunk = |delta: Value, finish_reason: Value| {
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason});
        let chunk = json!({
            "id": id, "object": "chat.completion.chunk", "created": created, "model": NAME, "choices": [choice],
        });
        format!("data: {chunk}\n\n")
    };
    let mut events: Vec<String> = deltas.into_iter().map(|delta| chunk(delta, Value::Null)).collect();
    events.push(chunk(json!({}), finish_reason(said).into()));
    events.push("data: [DONE]\n\n".to_owned());
    // The pace of somebody who thinks before speaking.
    let events = futures_util::stream::iter(events).enumerate().then(|(n, event)| async move {
        tokio::time::sleep(Duration::from_millis(if n == 0 { 180 } else { 18 })).await;
        Ok::<_, Infallible>(event)
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response()
}

#[cfg(test)]
mod tests {
    use async_openai::types::chat::{CreateChatCompletionResponse, FinishReason};

    use super::*;

    /// The client's own types read what isn't streamed.
    #[test]
    fn a_whole_answer_is_a_chat_completion() {
        let said = Said { text: String::new(), calls: vec![("reboot_terminal", "{}".to_owned())] };
        let answer: CreateChatCompletionResponse = serde_json::from_value(whole("chatcmpl-1", 3, &said)).unwrap();
        let choice = &answer.choices[0];
        assert_eq!(choice.finish_reason, Some(FinishReason::ToolCalls));
        assert_eq!(choice.message.tool_calls.as_ref().map(Vec::len), Some(1));
    }

    #[test]
    fn a_call_without_its_answer_is_refused() {
        let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": ""}});
        let asked = json!({"role": "assistant", "tool_calls": [call("a"), call("a")]});
        let answer = json!({"role": "tool", "tool_call_id": "a", "content": ""});
        let user = json!({"role": "user", "content": "hi"});
        assert_eq!(unanswered(&[asked.clone(), answer.clone(), answer.clone(), user.clone()]), None);
        for wrong in [vec![asked.clone(), answer.clone(), user], vec![asked, answer.clone()], vec![answer]] {
            assert!(unanswered(&wrong).is_some());
        }
    }
}
