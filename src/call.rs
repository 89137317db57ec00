//! What the model asked: one call of one tool.

use std::collections::BTreeMap;
use std::time::Duration;

pub use crate::protocol::record::Turn;

/// One call as it came from the model.
///
/// ```
/// use toolonce::Call;
///
/// let call = Call::new("charge_card", r#"{"customer": "cus_1", "cents": 4200}"#).id("call_1").turn(3);
/// assert_eq!(call.tool(), "charge_card");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub(crate) tool: String,
    pub(crate) arguments: String,
    pub(crate) id: String,
    pub(crate) turn: Option<Turn>,
    pub(crate) patience: Option<Duration>,
    pub(crate) context: BTreeMap<String, String>,
    #[cfg(feature = "testing")]
    pub(crate) tag: u64,
    /// Why it can't be made, for what was no call at all: it is answered all the same.
    pub(crate) unreadable: Option<String>,
}

impl Call {
    /// A call of `tool` with the argument text as the model wrote it. It is read when the call is made; a text that
    /// isn't one JSON object is answered with a refusal that the model can act on.
    pub fn new(tool: impl Into<String>, arguments: impl Into<String>) -> Self {
        Self {
            tool: tool.into(),
            arguments: arguments.into(),
            id: String::new(),
            turn: None,
            patience: None,
            context: BTreeMap::new(),
            #[cfg(feature = "testing")]
            tag: 0,
            unreadable: None,
        }
    }

    /// What should have been a call: it is answered with a refusal that says `why`, in a sentence for the model.
    #[must_use]
    pub fn unreadable(tool: impl Into<String>, why: impl Into<String>) -> Self {
        Self { unreadable: Some(why.into()), ..Self::new(tool, "") }
    }

    /// A call whose arguments were parsed already. Digits that the parser rounded are lost before the guard sees
    /// them; prefer the text.
    pub fn with_value(tool: impl Into<String>, arguments: &serde_json::Value) -> Self {
        Self::new(tool, arguments.to_string())
    }

    /// The tool call id, echoed in the answer. Default empty. It is no part of what tells two calls apart; among equal
    /// calls of one message it says which of them is delivered again.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }

    /// The index of the assistant message that made the call, from 0. Default none: then a repeat can't be told from
    /// a redelivery, and both get the stored outcome, marked.
    #[must_use]
    pub fn turn(mut self, turn: Turn) -> Self {
        self.turn = Some(turn);
        self
    }

    /// How long the caller waits; the tool goes on. Default: the guard's, 60 seconds.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// A value from outside the arguments that the tool's policy declares as part of the call's identity. Goes before
    /// that of the run ([`Run::with_context`](crate::Run::with_context)).
    #[must_use]
    pub fn context(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.context.insert(name.into(), value.into());
        self
    }

    /// A number that the executions which this call starts can tell it by; the guard doesn't look at it. Default 0.
    /// For tests.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn tag(mut self, tag: u64) -> Self {
        self.tag = tag;
        self
    }

    /// The tool's name.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// The argument text, as it came.
    pub fn arguments(&self) -> &str {
        &self.arguments
    }
}

/// Anything that is a tool call: [`Call`] and the types of the adapters.
pub trait ToolCall {
    /// The call, without a turn.
    fn to_call(&self) -> Call;
}

impl ToolCall for Call {
    fn to_call(&self) -> Call {
        self.clone()
    }
}
