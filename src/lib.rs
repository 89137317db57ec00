//! Makes an AI agent's tool calls safe to retry.
//!
//! An agent retries after a timeout, a model calls the same tool again, a run crashes and resumes: none of them may
//! charge a card twice, send an e-mail twice, or lose the answer. This library stands between the agent and its tools.
//! It hashes each call's arguments together with the run into a key, claims the key durably, runs the tool, stores
//! the outcome and gives it to every retry.
//!
//! *Reads run each time; a write runs once per run until you say "again"; where we can't know whether it happened, we
//! say so.*
//!
//! # The four things
//!
//! - a [`Guard`] on a [`store`], one per process;
//! - a [`Registry`] of tools, each with a [`Policy`] that says what it does to the world;
//! - a [`Run`] for each piece of work, with an id that a restart of the work would choose again;
//! - [`Call`]s in, [`Reply`]s out: [`Registry::answer`] for the calls of one assistant message.
//!
//! ```
//! use serde_json::{Value, json};
//! use toolonce::store::MemoryStore;
//! use toolonce::{Call, Guard, Policy, Registry, ReplyKind, Run, value_tool};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let guard = Guard::builder(MemoryStore::new(), "shop").build().await?;
//! let mut tools = Registry::new(&guard);
//! let schema = json!({"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]});
//! tools.add(value_tool("send_email", "Sends an e-mail", schema, Policy::write(), async |args: Value, _attempt| {
//!     Ok(json!({"sent_to": args["to"]}))
//! }))?;
//!
//! let run = Run::start(&guard, "ticket-4711").await?;
//! let calls = [Call::new("send_email", r#"{"to": "ann@example.test"}"#).id("call_1")];
//! let first = tools.answer(&run, 0, &calls).await;
//! let retry = tools.answer(&run, 0, &calls).await; // the answer was lost, the host delivers the turn again
//! assert_eq!(first[0].kind(), ReplyKind::Executed);
//! assert_eq!((retry[0].kind(), retry[0].message()), (ReplyKind::Replayed, first[0].message()));
//! # Ok(())
//! # }
//! ```
//!
//! # When it isn't known whether it happened
//!
//! A process that dies after a claim, a connection lost after a request, a panic: the call is *in doubt*. It is never
//! run again on a guess. The tool's look-up is asked ([`InDoubt::Reconcile`]), or it is sent again under the same
//! downstream key while the provider remembers that ([`Policy::keyed`]), or it waits in [`Guard::inbox`] for a person
//! and [`Guard::resolve`]. Tools say of each failure what they know: [`ToolError`].
//!
//! # What the model may vary
//!
//! Key order, white space, escapes, `1` or `1.0`, an omitted default: all the same call. See [`canonical`] for the exact
//! rules and the `x-toolonce` hints, and [`key`] for what goes into a key.
//!
//! # Features
//!
//! | feature | default | |
//! |---|---|---|
//! | `sled` | yes | the embedded store: one directory, one process |
//! | `schemars` | yes | typed tools: argument schemas from Rust types |
//! | `openai` | yes | tool lists, answers and streamed calls in the types of `async-openai` |
//! | `seal` | no | what is stored is encrypted: `GuardBuilder::seal` |
//! | `testing` | no | a clock moved by hand, simulated crashes, faulty stores |
//!
//! The default build needs no C compiler.
#![forbid(unsafe_code)]

pub mod adapter;
mod call;
pub mod canonical;
mod clock;
mod codec;
mod error;
mod guard;
pub mod key;
mod policy;
pub mod protocol;
pub mod provider;
mod registry;
mod reply;
mod run;
#[cfg(feature = "seal")]
mod seal;
pub mod store;
mod tell;
#[cfg(feature = "testing")]
pub mod testing;
mod tool;

pub use self::call::{Call, ToolCall, Turn};
pub use self::clock::{Clock, Millis, SystemClock};
pub use self::error::{Error, ErrorKind};
#[cfg(feature = "testing")]
#[doc(hidden)]
pub use self::guard::row_again;
pub use self::guard::{
    ApprovalRequest, CallDetail, CallStatus, CallSummary, CallsFrom, CallsPage, Execution, GcClock, GcOptions,
    GcReport, Guard, GuardBuilder, InDoubtCall, NextCall, OpenAttempt, Question, RecordedOutcome, Resolution, Shutdown,
    StoreDown,
};
pub use self::key::Secret;
pub use self::policy::{
    Advanced, Approval, Effect, InDoubt, KeyWindow, LookAlike, Mismatch, Policy, Reopener, Repeat, Scope,
};
pub use self::registry::{LintFinding, LintWarning, RegisterError, Registry};
pub use self::reply::{Outcome, Reply, ReplyKind};
pub use self::run::{Run, Seen};
#[cfg(feature = "seal")]
pub use self::seal::SealKeys;
pub use self::tool::{AnyTool, Attempt, LookUp, RawTool, Reconciled, ToolError, ToolSpec, text_tool, value_tool};
#[cfg(feature = "schemars")]
pub use self::tool::{FnTool, Tool, tool};
