//! `steps`: what happens in a case, in order.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::expect::{Expect, OpenExpect, StepExpect, ValueExpect};
use super::fate::Fate;
use super::forms::{Seen, Times, object_map, object_or_none, objects, one_or_many};
use super::tool::Tool;

/// One step.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Step {
    /// One delivery of one call.
    Call(Box<Call>),
    /// All calls of one assistant message, in parallel.
    Answer(Answer),
    /// Waits for a parallel call.
    Wait(Wait),
    /// Kills the guard's process and opens the same store again.
    Restart(Restart),
    /// Moves both clocks.
    Advance(Advance),
    /// Moves the wall clock only.
    Clock(WallClock),
    /// A human's answer about a call in doubt.
    Resolve(Resolve),
    /// A human lets a call run.
    Approve(OfCall),
    /// A human refuses a call.
    Deny(OfCall),
    /// The host says that a call's answer was shown to the model.
    AnswerShown(OfCall),
    /// The host says that a call's answer was not shown to the model.
    NotShown(OfCall),
    /// Opens a second process instance on the same store.
    OpenSecond(Bare),
    /// Blocks a guard's store traffic; its running bodies go on.
    Pause(Pause),
    /// Ends a pause.
    Continue(Continue),
    /// Makes the store fail.
    StoreFault(StoreFault),
    /// Ends the store's faults.
    StoreClear(Bare),
    /// A memoised step of a run.
    Step(RunStep),
    /// Copies a run's log up to a turn.
    Fork(Fork),
    /// Registers a new tool table.
    Deploy(Deploy),
    /// Removes expired records.
    Gc(Bare),
    /// Copies the store aside.
    Backup(Bare),
    /// Deletes the store and opens it again; the last step.
    DeleteStore(Reopen),
    /// Puts the copy back and opens it; the last step.
    RestoreBackup(Reopen),
}

impl Step {
    /// The calls that this step delivers.
    pub fn calls(&self) -> &[Call] {
        match self {
            Self::Call(call) => std::slice::from_ref(&**call),
            Self::Answer(answer) => &answer.calls,
            _ => &[],
        }
    }
}

/// One delivery of one call.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// The name by which other steps speak of this delivery.
    #[serde(rename = "as")]
    pub name: Option<String>,
    /// Run; default `r1`.
    pub run: Option<String>,
    /// Namespace; default `n`.
    pub namespace: Option<String>,
    /// Turn; absent = the host gives none.
    pub turn: Option<u32>,
    /// Tool call id; may be absent or empty.
    pub id: Option<String>,
    /// Name of the tool.
    pub tool: String,
    /// The arguments' own JSON text, as it stands in the file.
    pub args: Option<String>,
    /// The arguments as text that need not be JSON.
    pub args_text: Option<String>,
    /// Context values handed along with the call.
    #[serde(default)]
    pub context: BTreeMap<String, Value>,
    /// Fates of the executions that this call starts, in order, the last for all that follow; empty = `ok`.
    #[serde(default, deserialize_with = "one_or_many")]
    pub fate: Vec<Fate>,
    /// Milliseconds that the caller waits; default the case's `config`.
    pub patience_ms: Option<u64>,
    /// Whether the step goes on without the reply.
    #[serde(default)]
    pub parallel: bool,
    /// Milliseconds after which the caller's future is dropped.
    pub drop_ms: Option<u64>,
    /// Whether the reply never reaches the model.
    #[serde(default)]
    pub undelivered: bool,
    /// Which process instance gets the call, 1 or 2; default 1.
    pub guard: Option<u8>,
    /// What the reply must be.
    #[serde(default, deserialize_with = "object_or_none")]
    pub expect: Option<Expect>,
}

impl Call {
    /// The argument text that the model sent; `{}` when the file gives none.
    pub fn arguments(&self) -> &str {
        self.args.as_deref().or(self.args_text.as_deref()).unwrap_or("{}")
    }

    /// The fate of the `n`-th execution that this call starts, counted from 0.
    pub fn fate_of(&self, n: usize) -> Fate {
        self.fate.get(n).or(self.fate.last()).copied().unwrap_or_default()
    }

    /// Whether an execution of this call kills the process: it gets no reply then.
    pub fn crashes(&self) -> bool {
        self.fate.iter().any(|fate| fate.crashes())
    }
}

/// The calls of one assistant message. Run and turn are the message's.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// Run; default `r1`.
    pub run: Option<String>,
    /// Turn; absent = the host gives none.
    pub turn: Option<u32>,
    /// The calls, in the message's order.
    #[serde(deserialize_with = "calls")]
    pub calls: Vec<Call>,
}

fn calls<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Call>, D::Error> {
    objects(deserializer, "call")
}

/// Waits for a parallel call.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wait {
    /// The call.
    #[serde(rename = "for")]
    pub call: String,
    /// What its reply must be, besides what the call itself expects.
    #[serde(default, deserialize_with = "object_or_none")]
    pub expect: Option<Expect>,
}

/// Kills the guard's process and opens the same store again.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Restart {
    /// What the resumed history holds; default all turns answered so far.
    pub seen: Option<Seen>,
    /// Whether the step must fail.
    #[serde(default, deserialize_with = "object_or_none")]
    pub expect: Option<StepExpect>,
}

/// Moves both clocks.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Advance {
    /// Milliseconds.
    pub ms: u64,
}

/// Moves the wall clock only.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WallClock {
    /// Milliseconds, relative; may be negative.
    pub wall_ms: i64,
}

/// A human's answer about a call in doubt.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resolve {
    /// The call.
    pub call: String,
    /// Whether its effect happened.
    pub happened: bool,
    /// The outcome, when it happened.
    pub result: Option<Value>,
    /// Whether the step must fail.
    #[serde(default, deserialize_with = "object_or_none")]
    pub expect: Option<StepExpect>,
}

/// A step about one call.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfCall {
    /// The call.
    pub call: String,
    /// Whether the step must fail.
    #[serde(default, deserialize_with = "object_or_none")]
    pub expect: Option<StepExpect>,
}

/// A step without parameters.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bare {
    /// Whether the step must fail.
    #[serde(default, deserialize_with = "object_or_none")]
    pub expect: Option<StepExpect>,
}

/// Blocks a guard's store traffic.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    /// Which process instance, 1 or 2; default 1.
    pub guard: Option<u8>,
    /// Where it stops; default at once.
    pub at: Option<PauseAt>,
}

/// Where a pause takes hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseAt {
    /// Between a claim and its body.
    BeforeBody,
}

/// Ends a pause.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Continue {
    /// Which process instance, 1 or 2; default 1.
    pub guard: Option<u8>,
}

/// Makes the store fail.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreFault {
    /// Which operations fail.
    pub on: FaultOn,
    /// How they fail.
    pub kind: FaultKind,
    /// How often; default once.
    #[serde(default = "once")]
    pub times: Times,
}

fn once() -> Times {
    Times::Count(1)
}

/// Which operations of the store fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultOn {
    /// Commits that claim a key.
    Claim,
    /// Commits that complete an execution.
    Complete,
    /// Reads.
    Read,
    /// All of them.
    All,
}

/// How an operation of the store fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// It can't be reached.
    Unavailable,
    /// It has no room.
    Full,
    /// The sync fails: what is durable isn't known.
    SyncError,
    /// What is read doesn't check.
    Corrupt,
}

/// A memoised step of a run.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunStep {
    /// Run; default `r1`.
    pub run: Option<String>,
    /// Name of the step.
    pub name: String,
    /// Its input.
    pub input: Option<Value>,
    /// What its future returns if it runs.
    pub value: Option<Value>,
    /// What the run must answer.
    pub expect: Option<ValueExpect>,
}

/// Copies a run's log up to a turn.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fork {
    /// The run that is copied; default `r1`.
    pub run: Option<String>,
    /// The new run.
    pub as_run: String,
    /// The first turn that isn't copied.
    pub before_turn: u32,
    /// Whether the step must fail.
    #[serde(default, deserialize_with = "object_or_none")]
    pub expect: Option<StepExpect>,
}

/// Registers a new tool table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deploy {
    /// The table, in place of the present one.
    #[serde(deserialize_with = "object_map")]
    pub tools: BTreeMap<String, Tool>,
    /// Whether the step must fail.
    #[serde(default, deserialize_with = "object_or_none")]
    pub expect: Option<StepExpect>,
}

/// Opens another store in the place of the present one.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reopen {
    /// What opening must say.
    pub expect: OpenExpect,
}
