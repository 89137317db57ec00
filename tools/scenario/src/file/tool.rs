//! `tools`: what each tool of a case does and which policies it is registered with.

use serde::Deserialize;
use serde_json::{Value, json};

use super::forms::{Window, one_or_many};

/// One tool of the case. A policy that is absent is left at the library's default.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// What the tool does to the world; default `write`.
    #[serde(default)]
    pub effect: Effect,
    /// JSON Schema of the arguments, `x-toolonce` hints included; default `{"type": "object"}`.
    #[serde(default = "any_object")]
    pub schema: Value,
    /// What an equal call of a later turn means once the outcome was delivered.
    pub repeat: Option<Repeat>,
    /// Whether the key holds for one run or for ever.
    pub scope: Option<Scope>,
    /// What is done about an execution whose end isn't known.
    pub in_doubt: Option<InDoubt>,
    /// What a call with the same key and another fingerprint gets.
    pub mismatch: Option<Mismatch>,
    /// Whether the body calls `check()` right before its effect.
    #[serde(default)]
    pub check: bool,
    /// Tools whose completion makes an equal call new.
    #[serde(default)]
    pub reopened_by: Vec<String>,
    /// Whether the model is offered `again`.
    #[serde(default)]
    pub again: bool,
    /// Whether a human is asked before the first execution.
    pub approval: Option<Approval>,
    /// Executions that one call may start at most; default 1.
    #[serde(default = "one")]
    pub attempts: u32,
    /// Milliseconds that the record is kept.
    pub retention_ms: Option<u64>,
    /// How long the provider remembers a downstream key (`keyed` only).
    pub key_window_ms: Option<Window>,
    /// Milliseconds after an attempt's deadline from which on a look-up's *no* counts.
    pub settle_ms: Option<u64>,
    /// Largest result that is kept whole, in bytes.
    pub max_result_bytes: Option<u64>,
    /// What happens to a call that looks like an open one.
    pub look_alike: Option<LookAlike>,
    /// Names of the context values that are part of the identity.
    #[serde(default)]
    pub context: Vec<String>,
}

fn any_object() -> Value {
    json!({"type": "object"})
}

fn one() -> u32 {
    1
}

/// What a tool does to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Nothing.
    ReadOnly,
    /// The same however often it runs.
    Idempotent,
    /// A write whose provider merges equal downstream keys.
    Keyed,
    /// A write.
    #[default]
    Write,
}

/// What an equal call of a later turn means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Repeat {
    /// The same wish: the outcome is replayed.
    Once,
    /// A new wish: it runs.
    Each,
    /// A human is asked.
    Ask,
}

/// How far a key reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Within one run.
    Run,
    /// Over all runs.
    Global,
}

/// What is done about an execution whose end isn't known.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum InDoubt {
    /// It is held for a human.
    Hold,
    /// It is sent again under the same downstream key (`keyed` only).
    Resend,
    /// The tool looks it up: one answer a look-up, the last repeats.
    #[serde(deserialize_with = "one_or_many")]
    Reconcile(Vec<LookUp>),
}

/// What a look-up answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LookUp {
    /// It isn't known.
    CannotTell,
    /// It happened; the outcome is `{"n": k, "tool": NAME}`, k = the tool's effects so far.
    Happened,
    /// It didn't happen.
    DidNotHappen,
}

/// What a call with the same key and another fingerprint gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mismatch {
    /// A conflict that names the differing fields.
    Conflict,
    /// The stored outcome, marked.
    Replay,
}

/// When a human is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Approval {
    /// Before the first execution.
    First,
}

/// What happens to a call that looks like an open one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LookAlike {
    /// A human is asked.
    Ask,
    /// It runs.
    Run,
    /// Nobody looks.
    Off,
}
