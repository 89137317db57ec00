//! Calls and answers in the types of async-openai, from JSON as servers send it.

use std::sync::{Arc, Mutex};

use async_openai::types::chat::{
    ChatCompletionRequestMessage, CreateChatCompletionResponse, CreateChatCompletionStreamResponse,
};
use async_openai::types::responses::OutputItem;
use serde_json::{Value, json};
use toolonce::adapter::openai::{
    StreamedCalls, answer_chat, answer_response, calls_from_value, chat_tools, response_tools,
};
use toolonce::store::MemoryStore;
use toolonce::{Guard, Policy, Registry, Repeat, Run, ToolCall, value_tool};

/// Tools that note each of their executions: name and arguments.
struct Shop {
    tools: Registry,
    run: Run,
    effects: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Shop {
    async fn with(names: &[&str]) -> Self {
        let guard = Guard::builder(MemoryStore::new(), "shop").build().await.unwrap();
        let effects = Arc::new(Mutex::new(Vec::new()));
        let mut tools = Registry::new(&guard);
        for name in names {
            let (noted, name) = (Arc::clone(&effects), (*name).to_owned());
            let tool = value_tool(name.clone(), "", json!({"type": "object"}), Policy::write(), move |args, _at| {
                noted.lock().unwrap().push((name.clone(), Value::clone(&args)));
                async move { Ok(args) }
            });
            tools.add(tool).unwrap();
        }
        let run = Run::start(&guard, "r1").await.unwrap();
        Self { tools, run, effects }
    }

    fn effects(&self) -> Vec<(String, Value)> {
        let mut effects = self.effects.lock().unwrap().clone();
        effects.sort_by_key(|(name, args)| (name.clone(), args.to_string()));
        effects
    }

    /// (id, content) of the answers to the calls of turn 1.
    async fn answer<C: ToolCall>(&self, calls: &[C]) -> Vec<(String, String)> {
        let messages = answer_chat(&self.tools, &self.run, 1, calls).await;
        messages.into_iter().map(id_and_content).collect()
    }
}

fn id_and_content(message: ChatCompletionRequestMessage) -> (String, String) {
    let message = serde_json::to_value(message).unwrap();
    assert_eq!(message["role"], "tool");
    (message["tool_call_id"].as_str().unwrap().to_owned(), message["content"].as_str().unwrap().to_owned())
}

fn function(id: &str, name: &str, arguments: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

/// A response as `api.openai.com` sends it.
fn completion(tool_calls: &[Value]) -> CreateChatCompletionResponse {
    let body = json!({
        "id": "chatcmpl-Bx1", "object": "chat.completion", "created": 1_764_000_000, "model": "gpt-5-mini",
        "choices": [{
            "index": 0, "logprobs": null, "finish_reason": "tool_calls",
            "message": {"role": "assistant", "content": null, "refusal": null, "annotations": [],
                        "tool_calls": tool_calls},
        }],
        "usage": {"prompt_tokens": 82, "completion_tokens": 17, "total_tokens": 99},
        "service_tier": "default", "system_fingerprint": null,
    });
    serde_json::from_value(body).unwrap()
}

/// The chunks of a stream as `api.openai.com` sends them, one for each piece of a tool call.
fn chunks(pieces: &[Value], finish_reason: Value) -> Vec<Value> {
    let chunk = |delta: Value, finish_reason: Value| {
        json!({
            "id": "chatcmpl-Bx2", "object": "chat.completion.chunk", "created": 1_764_000_000, "model": "gpt-5-mini",
            "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason}],
        })
    };
    let first = chunk(json!({"role": "assistant", "content": null}), Value::Null);
    let calls = pieces.iter().map(|piece| chunk(json!({"tool_calls": [piece]}), Value::Null));
    let last = chunk(json!({}), finish_reason);
    std::iter::once(first).chain(calls).chain(std::iter::once(last)).collect()
}

fn streamed(pieces: &[Value], finish_reason: Value) -> StreamedCalls {
    let mut calls = StreamedCalls::new();
    for chunk in chunks(pieces, finish_reason) {
        calls.push_value(&chunk);
    }
    calls
}

/// The same, on the typed way.
fn streamed_typed(pieces: &[Value]) -> StreamedCalls {
    let mut calls = StreamedCalls::new();
    for chunk in chunks(pieces, json!("tool_calls")) {
        let chunk: CreateChatCompletionStreamResponse = serde_json::from_value(chunk).unwrap();
        chunk.choices.iter().for_each(|choice| calls.push(choice));
    }
    calls
}

#[tokio::test]
async fn one_answer_for_each_call_in_their_order() {
    let shop = Shop::with(&["charge"]).await;
    let response = completion(&[
        function("call_2", "charge", r#"{"cents":1}"#),
        function("call_1", "refund", r#"{"cents":1}"#),
        function("call_0", "charge", r#"{"cents":"#),
        function("call_3", "charge", r#"{"cents":2}"#),
    ]);
    let calls = response.choices[0].message.tool_calls.clone().unwrap();
    let answers = shop.answer(&calls).await;
    let ids: Vec<&str> = answers.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, ["call_2", "call_1", "call_0", "call_3"]);
    assert_eq!(answers[0].1, r#"{"cents":1}"#);
    assert!(answers[1].1.contains("no tool"), "{}", answers[1].1);
    assert!(answers[2].1.contains("refused"), "{}", answers[2].1);
    assert_eq!(shop.effects().len(), 2);
}

#[tokio::test]
async fn a_custom_tool_call_is_answered_and_not_made() {
    let shop = Shop::with(&["shell"]).await;
    let mut response = completion(&[function("call_1", "shell", "{}")]);
    let calls = response.choices[0].message.tool_calls.as_mut().unwrap();
    // As the types have it; on the wire it is `{"type": "custom", "custom": {…}}`, which they don't parse.
    let custom = json!({"type": "custom", "id": "call_2", "custom_tool": {"name": "shell", "input": "{}"}});
    calls.push(serde_json::from_value(custom).unwrap());
    let wire = json!([{"id": "call_3", "type": "custom", "custom": {"name": "shell", "input": "{}"}}]);
    let answers = shop.answer(calls).await;
    assert!(answers[1].1.contains("free text"), "{}", answers[1].1);
    let answers = shop.answer(&calls_from_value(&wire)).await;
    assert_eq!(answers[0].0, "call_3");
    assert!(answers[0].1.contains("free text"), "{}", answers[0].1);
    assert!(shop.effects().is_empty(), "an empty call of a tool with an open schema says nothing");
}

/// Empty or repeated ids overwrite each other in maps keyed by id: only the last call ran.
#[tokio::test]
async fn callid_02_empty_and_repeated_ids() {
    for id in ["", "call_same"] {
        let shop = Shop::with(&["echo"]).await;
        let response =
            completion(&[function(id, "echo", r#"{"v":"first"}"#), function(id, "echo", r#"{"v":"second"}"#)]);
        let calls = response.choices[0].message.tool_calls.clone().unwrap();
        let answers = shop.answer(&calls).await;
        let expected =
            [(id.to_owned(), r#"{"v":"first"}"#.to_owned()), (id.to_owned(), r#"{"v":"second"}"#.to_owned())];
        assert_eq!(answers, expected);
        assert_eq!(shop.effects().len(), 2);
    }
}

/// Two ids under one index were taken for one call, its arguments glued together.
#[tokio::test]
async fn callid_05_same_index_two_ids() {
    let pieces = [
        json!({"index": 0, "id": "call_a", "type": "function", "function": {"name": "read_file", "arguments": ""}}),
        json!({"index": 0, "function": {"arguments": "{\"path\":\"a\"}"}}),
        json!({"index": 0, "id": "call_b", "type": "function", "function": {"name": "read_file", "arguments": ""}}),
        json!({"index": 0, "function": {"arguments": "{\"path\":\"b\"}"}}),
    ];
    for calls in [streamed(&pieces, json!("tool_calls")), streamed_typed(&pieces)] {
        let shop = Shop::with(&["read_file"]).await;
        let answers = shop.answer(&calls.finish().unwrap()).await;
        assert_eq!(answers[0], ("call_a".to_owned(), r#"{"path":"a"}"#.to_owned()));
        assert_eq!(answers[1], ("call_b".to_owned(), r#"{"path":"b"}"#.to_owned()));
        assert_eq!(shop.effects().len(), 2);
    }
    // Glued together by somebody else: not one JSON value, so refused, and never the first of them.
    let shop = Shop::with(&["read_file"]).await;
    let glued = function("call_a", "read_file", "{\"path\":\"a\"}{\"path\":\"b\"}");
    let answers = shop.answer(&calls_from_value(&json!({"tool_calls": [glued]}))).await;
    assert!(answers[0].1.contains(r#""status":"refused""#), "{}", answers[0].1);
    assert!(shop.effects().is_empty());
}

/// Only the call with index 0 carries an id.
#[tokio::test]
async fn callid_08_id_only_in_the_first_streamed_call() {
    let pieces = [
        json!({"index": 0, "id": "c0", "type": "function", "function": {"name": "temp", "arguments": "{\"city\":"}}),
        json!({"index": 0, "function": {"arguments": "\"x\"}"}}),
        json!({"index": 1, "function": {"name": "temp", "arguments": "{\"city\":\"y\"}"}}),
        json!({"index": 2, "function": {"name": "temp", "arguments": "{\"city\":"}}),
        json!({"index": 2, "function": {"arguments": "\"z\"}"}}),
    ];
    for calls in [streamed(&pieces, json!("tool_calls")), streamed_typed(&pieces)] {
        let shop = Shop::with(&["temp"]).await;
        let answers = shop.answer(&calls.finish().unwrap()).await;
        let expected = [("c0", r#"{"city":"x"}"#), ("", r#"{"city":"y"}"#), ("", r#"{"city":"z"}"#)]
            .map(|(id, content)| (id.to_owned(), content.to_owned()));
        assert_eq!(answers, expected);
        assert_eq!(shop.effects().len(), 3);
    }
}

/// Answers were sent back under the tool's name instead of the call's id.
#[tokio::test]
async fn callid_12_answers_carry_the_call_id() {
    let shop = Shop::with(&["add", "subtract"]).await;
    let response = completion(&[
        function("call_0", "add", r#"{"x":15,"y":25}"#),
        function("call_1", "subtract", r#"{"x":100,"y":50}"#),
        function("call_2", "add", r#"{"x":10,"y":10}"#),
    ]);
    let answers = shop.answer(response.choices[0].message.tool_calls.as_ref().unwrap()).await;
    let expected =
        [("call_0", r#"{"x":15,"y":25}"#), ("call_1", r#"{"x":100,"y":50}"#), ("call_2", r#"{"x":10,"y":10}"#)];
    assert_eq!(answers, expected.map(|(id, content)| (id.to_owned(), content.to_owned())));
    let tools: Vec<String> = shop.effects().into_iter().map(|(name, _)| name).collect();
    assert_eq!(tools, ["add", "add", "subtract"]);
}

#[tokio::test]
async fn streams_without_index_or_type_and_with_objects_as_arguments() {
    let pieces = [
        json!({"id": "a", "function": {"name": "echo", "arguments": "{\"n\":"}}),
        json!({"function": {"arguments": "1}"}}),
        json!({"id": "b", "function": {"name": "echo", "arguments": {"n": 2}}}),
        json!({"function": {"name": "echo", "arguments": {"n": 3}}}),
        json!({"function": {"name": "echo", "arguments": {"n": 4}}}),
    ];
    let shop = Shop::with(&["echo"]).await;
    let answers = shop.answer(&streamed(&pieces, json!("stop")).finish().unwrap()).await;
    let contents: Vec<&str> = answers.iter().map(|(_, content)| content.as_str()).collect();
    assert_eq!(contents, [r#"{"n":1}"#, r#"{"n":2}"#, r#"{"n":3}"#, r#"{"n":4}"#]);
}

#[test]
fn streamed_calls_come_in_the_order_of_their_index_however_the_pieces_interleave() {
    let pieces = [
        json!({"index": 1, "id": "b", "function": {"name": "get_", "arguments": ""}}),
        json!({"index": 0, "id": "a", "function": {"name": "echo", "arguments": "{\"n\""}}),
        json!({"index": 1, "id": "b", "function": {"name": "time", "arguments": "{}"}}),
        json!({"index": 0, "id": "a", "function": {"name": "echo", "arguments": ":1}"}}),
    ];
    let calls = serde_json::to_value(streamed_typed(&pieces).finish().unwrap()).unwrap();
    assert_eq!(calls, json!([function("a", "echo", r#"{"n":1}"#), function("b", "get_time", "{}")]));
}

/// A call that lacks its tail can look complete: no argument text at all means "no arguments".
#[test]
fn an_answer_that_was_cut_off_has_no_calls() {
    let piece = json!({"index": 0, "id": "a", "type": "function", "function": {"name": "reboot", "arguments": ""}});
    for reason in [json!("length"), json!("content_filter"), Value::Null] {
        let calls = streamed(std::slice::from_ref(&piece), reason.clone());
        assert!(calls.finish().is_err(), "{reason}");
    }
    let mut calls = streamed(&[piece], Value::Null);
    calls.done(); // the server said [DONE]
    assert_eq!(calls.finish().unwrap().len(), 1);
}

#[tokio::test]
async fn values_of_servers_that_deviate() {
    let shop = Shop::with(&["echo"]).await;
    let message = json!({"role": "assistant", "content": "", "tool_calls": [
        {"id": 7, "function": {"name": "echo", "arguments": {"n": 1}}},
        {"name": "echo", "arguments": "{\"n\":2}"},
        {"id": "x", "type": "function", "function": {"arguments": "{}"}},
        {"id": "y", "type": "function", "function": {"name": "echo", "arguments": [1]}},
        null,
    ]});
    let answers = shop.answer(&calls_from_value(&json!({"choices": [{"message": message}]}))).await;
    assert_eq!(answers[0], ("7".to_owned(), r#"{"n":1}"#.to_owned()));
    assert_eq!(answers[1], (String::new(), r#"{"n":2}"#.to_owned()));
    for (answer, id) in answers[2..].iter().zip(["x", "y", ""]) {
        assert_eq!(answer.0, id);
        assert!(answer.1.contains("refused"), "{}", answer.1);
    }
    assert_eq!(answers.len(), 5);
    assert_eq!(calls_from_value(&json!({"choices": [{"message": {"content": "hi"}}]})), []);
}

#[tokio::test]
async fn responses_are_answered_by_namespace_and_name() {
    let shop = Shop::with(&["charge", "crm.charge"]).await;
    let output: Vec<OutputItem> = serde_json::from_value(json!([
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "charge", "status": "completed",
         "arguments": "{\"cents\":1}"},
        {"type": "custom_tool_call", "id": "ct_1", "call_id": "call_2", "name": "charge", "input": "{\"cents\":1}"},
        {"type": "function_call", "id": "fc_2", "call_id": "call_3", "name": "charge", "namespace": "crm",
         "status": "completed", "arguments": "{\"cents\":1}", "caller": {"type": "direct"}},
    ]))
    .unwrap();
    let answers = answer_response(&shop.tools, &shop.run, 0, &output).await;
    let answers = serde_json::to_value(answers).unwrap();
    assert_eq!(answers[0], json!({"type": "function_call_output", "call_id": "call_1", "output": "{\"cents\":1}"}));
    assert_eq!(answers[1]["type"], "custom_tool_call_output");
    assert_eq!(answers[2]["caller"], json!({"type": "direct"}));
    assert_eq!(answers.as_array().unwrap().len(), 3);
    let effects: Vec<String> = shop.effects().into_iter().map(|(name, _)| name).collect();
    assert_eq!(effects, ["charge", "crm.charge"]);
    let calls = calls_from_value(&json!({"output": output}));
    assert_eq!(calls.iter().map(|call| call.tool()).collect::<Vec<_>>(), ["charge", "charge", "crm.charge"]);
}

#[tokio::test]
async fn tools_are_offered_strictly_where_their_schema_can_be_strict() {
    let guard = Guard::builder(MemoryStore::new(), "shop").build().await.unwrap();
    let mut tools = Registry::new(&guard);
    let closed = json!({
        "type": "object",
        "properties": {"order": {"type": "string", "x-toolonce": "identity"}, "memo": {"type": "string"}},
        "required": ["order"],
    });
    let open = json!({"type": "object", "additionalProperties": {"type": "string"}});
    for (name, schema) in [("ship", closed), ("tag", open.clone()), ("crm.ship", json!({"type": "object"}))] {
        let policy = Policy::write().repeat(Repeat::Once);
        tools.add(value_tool(name, "About it", schema, policy, async |args, _at| Ok(args))).unwrap();
    }
    let chat = serde_json::to_value(chat_tools(&tools)).unwrap();
    let strict = json!({
        "type": "object", "additionalProperties": false,
        "properties": {"memo": {"type": ["string", "null"]}, "order": {"type": "string"}},
    });
    let mut ship = chat[0]["function"].clone();
    let required = ship["parameters"].as_object_mut().unwrap().remove("required").unwrap();
    assert_eq!(required.as_array().unwrap().len(), 2);
    assert_eq!(ship, json!({"name": "ship", "description": "About it", "strict": true, "parameters": strict}));
    let tag = json!({"name": "tag", "description": "About it", "strict": false, "parameters": open});
    assert_eq!(chat[1], json!({"type": "function", "function": tag}));

    let responses = serde_json::to_value(response_tools(&tools)).unwrap();
    assert_eq!(responses[0]["strict"], true);
    assert_eq!(responses[0]["parameters"], chat[0]["function"]["parameters"]);
    assert_eq!(responses[2]["type"], "namespace");
    assert_eq!(responses[2]["name"], "crm");
    assert_eq!(responses[2]["tools"][0]["name"], "ship");
}
