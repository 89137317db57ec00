//! Guarded tools in the types of `async-openai`: what the model is offered, what it calls, and the answers.
//!
//! Only types are used, no client: the program sends the requests. One turn of a chat completion:
//!
//! ```
//! use async_openai::types::chat::ChatCompletionResponseMessage;
//! use serde_json::{Value, json};
//! use toolonce::adapter::openai::{answer_chat, chat_tools};
//! use toolonce::store::MemoryStore;
//! use toolonce::{Guard, Policy, Registry, Run, value_tool};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let guard = Guard::builder(MemoryStore::new(), "shop").build().await?;
//! let mut tools = Registry::new(&guard);
//! let schema = json!({"type": "object", "properties": {"cents": {"type": "integer"}}, "required": ["cents"]});
//! tools.add(value_tool("charge_card", "Charges the card", schema, Policy::write(), async |args: Value, _at| {
//!     Ok(json!({"charged": args["cents"]}))
//! }))?;
//! let offered = chat_tools(&tools); // for `CreateChatCompletionRequestArgs::tools`
//!
//! // … send the request; this is what comes back …
//! let message: ChatCompletionResponseMessage = serde_json::from_value(json!({
//!     "role": "assistant", "content": null,
//!     "tool_calls": [{"id": "call_1", "type": "function",
//!                     "function": {"name": "charge_card", "arguments": "{\"cents\": 4200}"}}],
//! }))?;
//!
//! let run = Run::start(&guard, "order-17").await?;
//! let calls = message.tool_calls.unwrap_or_default();
//! let answers = answer_chat(&tools, &run, 0, &calls).await; // appended to the messages after the assistant's
//! assert_eq!(
//!     serde_json::to_value(&answers)?,
//!     json!([{"role": "tool", "tool_call_id": "call_1", "content": "{\"charged\":4200}"}])
//! );
//! # assert_eq!(offered.len(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! - The API rejects the next request unless every call of an assistant message has exactly one answer, so there is
//!   one for each, in order, with its id: for unknown tools, unreadable arguments and custom tools as well.
//! - Streamed answers go through [`StreamedCalls`], which gives the calls out only when the answer is complete.
//! - Servers that are only nearly compatible go through [`calls_from_value`] and [`StreamedCalls::push_value`].
//! - The client of `async-openai` retries a failed request by itself, so one turn may be sampled twice; give both the
//!   same `turn`, or make the request a [`step`](crate::Run::step).

mod stream;
mod strict;
mod wire;

use std::collections::BTreeMap;

use async_openai::types::chat::{
    ChatCompletionMessageToolCall, ChatCompletionMessageToolCalls, ChatCompletionRequestMessage,
    ChatCompletionRequestToolMessage, ChatCompletionTool, ChatCompletionTools,
};
use async_openai::types::responses::{
    CustomToolCall, FunctionTool, FunctionToolCall, FunctionToolParam, InputItem, NamespaceToolParam,
    NamespaceToolParamTool, OutputItem, Tool, ToolCallCaller,
};
use serde_json::{Value, json};

pub use self::stream::{CutOff, StreamedCalls};
pub use self::wire::calls_from_value;
use crate::call::{Call, ToolCall, Turn};
use crate::registry::Registry;
use crate::reply::Reply;
use crate::run::Run;
use crate::tool::ToolSpec;

/// The tools as a chat completion request takes them. A tool whose schema has a strict form is offered in it, with
/// `strict` on; the others (maps, open objects, recursive types) as they are, with `strict` off.
pub fn chat_tools(registry: &Registry) -> Vec<ChatCompletionTools> {
    registry.specs().map(|spec| ChatCompletionTools::Function(chat_tool(spec))).collect()
}

/// The tools as a request of the Responses API takes them, strict as in [`chat_tools`]. Tools named `namespace.name`
/// are offered as the functions of that namespace.
pub fn response_tools(registry: &Registry) -> Vec<Tool> {
    let mut spaces: BTreeMap<&str, Vec<NamespaceToolParamTool>> = BTreeMap::new();
    let mut tools = Vec::new();
    for spec in registry.specs() {
        match spec.name.split_once('.') {
            Some((space, name)) => {
                let function = NamespaceToolParamTool::Function(function_in_namespace(name, spec));
                spaces.entry(space).or_default().push(function);
            }
            None => tools.push(Tool::Function(function(spec))),
        }
    }
    tools.extend(spaces.into_iter().map(|(space, tools)| Tool::Namespace(namespace(space, tools))));
    tools
}

/// The answers to the calls of one assistant message: one for each, in order, whatever happens. `turn` is the index
/// of that message among the assistant messages of the run.
pub async fn answer_chat<C: ToolCall>(
    registry: &Registry,
    run: &Run,
    turn: Turn,
    calls: &[C],
) -> Vec<ChatCompletionRequestMessage> {
    registry.answer(run, turn, calls).await.iter().map(chat_message).collect()
}

/// The answers to the calls among a response's output items: one for each, in order, to be sent as input after the
/// output items (all of them: reasoning items travel with their calls).
pub async fn answer_response(registry: &Registry, run: &Run, turn: Turn, output: &[OutputItem]) -> Vec<InputItem> {
    let calls: Vec<ResponseCall<'_>> = output.iter().filter_map(ResponseCall::of).collect();
    let replies = registry.answer(run, turn, &calls).await;
    calls.iter().zip(&replies).map(|(call, reply)| call.answer(reply)).collect()
}

/// A reply as the tool message that answers its call.
#[allow(clippy::field_reassign_with_default)] // the struct gains fields in minor versions
pub fn chat_message(reply: &Reply) -> ChatCompletionRequestMessage {
    let mut message = ChatCompletionRequestToolMessage::default();
    message.content = reply.message().into();
    reply.id().clone_into(&mut message.tool_call_id);
    message.into()
}

impl ToolCall for ChatCompletionMessageToolCall {
    fn to_call(&self) -> Call {
        Call::new(&self.function.name, &self.function.arguments).id(&self.id)
    }
}

/// A custom tool call is answered with a refusal: custom tools take free text, guarded ones JSON.
impl ToolCall for ChatCompletionMessageToolCalls {
    fn to_call(&self) -> Call {
        match self {
            Self::Function(call) => call.to_call(),
            Self::Custom(call) => wire::custom(&call.custom_tool.name, &call.id),
        }
    }
}

/// The tool is `namespace.name` where the call has a namespace.
impl ToolCall for FunctionToolCall {
    fn to_call(&self) -> Call {
        Call::new(wire::qualified(self.namespace.as_deref(), &self.name), &self.arguments).id(&self.call_id)
    }
}

/// An output item that has to be answered.
enum ResponseCall<'a> {
    Function(&'a FunctionToolCall),
    Custom(&'a CustomToolCall),
}

impl<'a> ResponseCall<'a> {
    fn of(item: &'a OutputItem) -> Option<Self> {
        match item {
            OutputItem::FunctionCall(call) => Some(Self::Function(call)),
            OutputItem::CustomToolCall(call) => Some(Self::Custom(call)),
            _ => None,
        }
    }

    fn answer(&self, reply: &Reply) -> InputItem {
        let (kind, caller) = match self {
            Self::Function(call) => ("function_call_output", &call.caller),
            Self::Custom(call) => ("custom_tool_call_output", &call.caller),
        };
        output_item(kind, reply, caller.as_ref())
    }
}

impl ToolCall for ResponseCall<'_> {
    fn to_call(&self) -> Call {
        match self {
            Self::Function(call) => call.to_call(),
            Self::Custom(call) => wire::custom(&call.name, &call.call_id),
        }
    }
}

/// The crate has no builder for answers, and its structs gain fields in minor versions: so they are read from JSON.
fn output_item(kind: &str, reply: &Reply, caller: Option<&ToolCallCaller>) -> InputItem {
    let mut item = json!({"type": kind, "call_id": reply.id(), "output": reply.message()});
    if let Some(caller) = caller.and_then(|caller| serde_json::to_value(caller).ok()) {
        item["caller"] = caller;
    }
    serde_json::from_value(item).expect("an output item has a type, a call id and an output")
}

/// What is offered of a schema: the strict form and `true`, or the schema as it is and `false`.
fn parameters(spec: &ToolSpec) -> (Value, bool) {
    match strict::strict(&spec.parameters) {
        Some(schema) => (schema, true),
        None => (spec.parameters.clone(), false),
    }
}

fn description(spec: &ToolSpec) -> Option<String> {
    (!spec.description.is_empty()).then(|| spec.description.clone())
}

fn chat_tool(spec: &ToolSpec) -> ChatCompletionTool {
    let (parameters, strict) = parameters(spec);
    let mut tool = ChatCompletionTool::default();
    tool.function.name.clone_from(&spec.name);
    tool.function.description = description(spec);
    tool.function.parameters = Some(parameters);
    tool.function.strict = Some(strict);
    tool
}

#[allow(clippy::field_reassign_with_default)] // the struct gains fields in minor versions
fn function(spec: &ToolSpec) -> FunctionTool {
    let (parameters, strict) = parameters(spec);
    let mut tool = FunctionTool::default();
    tool.name.clone_from(&spec.name);
    tool.description = description(spec);
    tool.parameters = Some(parameters);
    tool.strict = Some(strict);
    tool
}

#[allow(clippy::field_reassign_with_default)] // the struct gains fields in minor versions
fn function_in_namespace(name: &str, spec: &ToolSpec) -> FunctionToolParam {
    let (parameters, strict) = parameters(spec);
    let mut tool = FunctionToolParam::default();
    name.clone_into(&mut tool.name);
    tool.description = description(spec);
    tool.parameters = Some(parameters);
    tool.strict = Some(strict);
    tool
}

#[allow(clippy::field_reassign_with_default)] // the struct gains fields in minor versions
fn namespace(name: &str, tools: Vec<NamespaceToolParamTool>) -> NamespaceToolParam {
    let mut space = NamespaceToolParam::default();
    name.clone_into(&mut space.name);
    space.description = format!("The tools of {name}.");
    space.tools = tools;
    space
}
