//! `expect`: what a step must answer.

use serde::Deserialize;
use serde_json::Value;

use super::forms::{No, Yes, one_or_many};

/// What the reply to a call must be; what is absent isn't judged.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// Its kind: one of these; empty = any.
    #[serde(default, deserialize_with = "one_or_many")]
    pub reply: Vec<ReplyKind>,
    /// Whether the model is told that this isn't a first answer.
    pub marked: Option<bool>,
    /// The call whose outcome this one must have, as the model is told it.
    pub same_as: Option<String>,
    /// The outcome.
    pub result: Option<Value>,
    /// Texts that the message for the model must hold.
    #[serde(default, deserialize_with = "one_or_many")]
    pub says: Vec<String>,
    /// Texts that the message for the model must not hold.
    #[serde(default, deserialize_with = "one_or_many")]
    pub not_says: Vec<String>,
    /// The call whose downstream key this one must have.
    pub downstream_same_as: Option<String>,
    /// The call whose downstream key this one must not have.
    pub downstream_differs_from: Option<String>,
    /// JSON Pointers that a conflict must name.
    #[serde(default, deserialize_with = "one_or_many")]
    pub fields: Vec<String>,
    /// `false`: the outcome wasn't kept whole.
    pub kept: Option<No>,
    /// The call must fail without a reply.
    pub error: Option<Yes>,
}

impl Expect {
    /// The other calls that this expectation speaks of.
    pub fn others(&self) -> impl Iterator<Item = &str> {
        [&self.same_as, &self.downstream_same_as, &self.downstream_differs_from]
            .into_iter()
            .flatten()
            .map(String::as_str)
    }
}

/// How a reply came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyKind {
    /// This call ran the tool.
    Executed,
    /// A stored outcome.
    Replayed,
    /// The outcome of an execution that was running.
    Joined,
    /// Still running.
    Running,
    /// The tool failed without effect.
    Failed,
    /// It isn't known whether it happened.
    InDoubt,
    /// The same key with other arguments.
    Conflict,
    /// A human is asked first.
    AwaitingApproval,
    /// A human said no.
    Denied,
    /// Nothing was claimed.
    Refused,
    /// The model repeats itself.
    Stopped,
    /// It ran, and the store couldn't record it.
    Unrecorded,
    /// The call isn't one that its turn recorded.
    Diverged,
}

/// A step that must fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepExpect {
    /// Always `true`.
    pub error: Yes,
}

/// What a memoised step must answer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ValueExpect {
    /// This value.
    Value(Value),
    /// Its input differs from the recorded one.
    Diverged(Yes),
    /// The step must fail.
    Error(Yes),
}

/// What opening a store must say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenExpect {
    /// Always `refused`.
    pub open: Refused,
}

/// The one answer that a file can ask for where it names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refused {
    /// Refused.
    Refused,
}
