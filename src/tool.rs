//! Tools: what executes a call, what it is given, and how it reports.
//!
//! A tool is a closure or a type that implements [`Tool`]; raw tools take JSON values or text and bring their own
//! schema. Whatever its form, it is given an [`Attempt`], and says of every failure what is known of the effect:
//!
//! ```
//! use toolonce::{Attempt, Policy, ToolError, value_tool};
//! use serde_json::{Value, json};
//!
//! let schema = json!({"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]});
//! let tool = value_tool("send_email", "Sends an e-mail", schema, Policy::write(), async |args: Value, at: Attempt| {
//!     let to = args["to"].as_str().ok_or_else(|| ToolError::permanent("no recipient"))?.to_owned();
//!     at.check().await?; // right before the send: fails when it is too late to begin
//!     Ok(json!({"sent_to": to, "message_id": at.downstream_key().hex32()}))
//! });
//! # let _ = tool;
//! ```

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::Millis;
use crate::guard::AttemptState;
use crate::key::{DownstreamKey, KeyForm};
use crate::policy::Policy;
use crate::protocol::record::FailureClass;
use crate::provider::Provider;
use crate::store::BoxFuture;

/// One execution of a call.
#[derive(Clone)]
pub struct Attempt {
    pub(crate) state: Arc<AttemptState>,
}

impl Attempt {
    /// What to pass on to the downstream system so that it can drop repeats: equal for every attempt of one unit of
    /// work, different for any other, and useless for reading stored answers.
    pub fn downstream_key(&self) -> &DownstreamKey {
        &self.state.downstream
    }

    /// The downstream key as the system downstream wants it: in the form of the policy's
    /// [`provider`](crate::provider), or the one that [`Advanced::key_form`](crate::Advanced::key_form) chose, else as
    /// 32 hex digits.
    pub fn idempotency_key(&self) -> String {
        self.downstream_key().in_form(self.policy().key_form())
    }

    /// The header or field that takes the key: the usual one of the policy's [`provider`](crate::provider), if it is
    /// known.
    pub fn key_field(&self) -> Option<&'static str> {
        self.policy().provider().and_then(Provider::field)
    }

    /// When the key may first have been sent, in milliseconds since the Unix epoch: the same for every attempt under
    /// this key, as systems want it that judge by it how old a key is.
    pub fn first_sent(&self) -> Millis {
        self.state.first_sent
    }

    fn policy(&self) -> &Policy {
        &self.state.work.tool.policy
    }

    /// Which attempt of its unit of work this is, from 1; 0 for a read.
    pub fn number(&self) -> u64 {
        self.state.fence.0
    }

    /// The run id.
    pub fn run(&self) -> &str {
        &self.state.run
    }

    /// The [tag](crate::Call::tag) of the call that started this attempt. For tests.
    #[cfg(feature = "testing")]
    pub fn tag(&self) -> u64 {
        self.state.work.tag
    }

    /// How long until no send may begin any more.
    pub fn time_left(&self) -> Duration {
        self.state.time_left()
    }

    /// To be awaited right before a send.
    ///
    /// # Errors
    /// A retryable [`ToolError`] once the deadline has passed, the claim was overtaken or can't be checked: return it,
    /// nothing was sent. A tool that has sent something before says [`ToolError::unknown`] instead.
    pub async fn check(&self) -> Result<(), ToolError> {
        self.state.check().await
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt").field("run", &self.run()).field("number", &self.number()).finish_non_exhaustive()
    }
}

/// What a look-up is asked about.
#[derive(Debug, Clone)]
pub struct LookUp {
    pub(crate) run: String,
    pub(crate) downstream: DownstreamKey,
    pub(crate) form: KeyForm,
}

impl LookUp {
    /// The key that the attempts in doubt were given.
    pub fn downstream_key(&self) -> &DownstreamKey {
        &self.downstream
    }

    /// That key in the form in which they were given it: as [`Attempt::idempotency_key`].
    pub fn idempotency_key(&self) -> String {
        self.downstream.in_form(self.form)
    }

    /// The run id.
    pub fn run(&self) -> &str {
        &self.run
    }
}

/// What a look-up found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reconciled<T> {
    /// The effect is there; this is what the tool would have returned.
    Happened(T),
    /// It is not there. Counts only if nothing can have been under way when the look-up began; the guard sees to it.
    DidNotHappen,
    /// Neither could be found out. It is asked again a few times.
    CannotTell,
}

impl<T> Reconciled<T> {
    /// The same answer about another type.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Reconciled<U> {
        match self {
            Self::Happened(value) => Reconciled::Happened(change(value)),
            Self::DidNotHappen => Reconciled::DidNotHappen,
            Self::CannotTell => Reconciled::CannotTell,
        }
    }
}

/// Why a tool failed, and what is known of its effect.
///
/// Any error converts into one of class *unknown*, so `?` on an unclassified error never claims that nothing
/// happened.
///
/// ```
/// use toolonce::ToolError;
///
/// fn parse(text: &str) -> Result<u16, ToolError> {
///     Ok(text.parse::<u16>()?) // unknown: whoever knows better says so
/// }
/// assert!(parse("x").is_err_and(|e| e.is_unknown()));
/// ```
pub struct ToolError {
    class: FailureClass,
    source: Box<dyn Error + Send + Sync>,
    retry_after: Option<Duration>,
}

impl ToolError {
    fn of(class: FailureClass, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { class, source: source.into(), retry_after: None }
    }

    /// It is known not to have happened, and may be tried again: the connection was refused, the service was busy.
    pub fn retryable(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::of(FailureClass::Retryable, source)
    }

    /// It is known not to have happened, and trying again is useless: the card was declined.
    pub fn permanent(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::of(FailureClass::Permanent, source)
    }

    /// It may have happened: a time-out after the request was sent, a lost connection, an unreadable answer.
    pub fn unknown(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::of(FailureClass::Unknown, source)
    }

    /// No new attempt before this long has passed: what a `Retry-After` header said.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// Whether the effect may have happened.
    pub fn is_unknown(&self) -> bool {
        self.class == FailureClass::Unknown
    }

    pub(crate) fn class(&self) -> FailureClass {
        self.class
    }

    pub(crate) fn delay(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl fmt::Debug for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ToolError({:?}: {})", self.class, self.source)
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for ToolError {
    fn from(error: E) -> Self {
        Self::unknown(error)
    }
}

/// What the model is told about a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// The name that calls use.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of its arguments, without the guard's `x-toolonce` hints.
    pub parameters: Value,
}

/// The JSON text that an execution returned, or why there is none although it happened.
pub(crate) type Produced = Result<String, String>;
/// An execution that is ready to run: its arguments were read.
pub(crate) type Job = Box<dyn FnOnce(Attempt) -> BoxFuture<'static, Result<Produced, ToolError>> + Send>;
/// A look-up that is ready to run.
pub(crate) type LookUpJob =
    Box<dyn FnOnce(LookUp) -> BoxFuture<'static, Result<Reconciled<Produced>, ToolError>> + Send>;

type Prepare = Box<dyn Fn(&str) -> Result<Job, String> + Send + Sync>;
type PrepareLookUp = Box<dyn Fn(&str) -> Result<LookUpJob, String> + Send + Sync>;

/// A tool of any form behind one face. Arguments are read in a step of their own, before anything is claimed; an
/// error of that step is for the model.
pub(crate) struct Body {
    pub(crate) prepare: Prepare,
    pub(crate) look_up: Option<PrepareLookUp>,
    /// Whether it takes numbers that no Rust integer holds.
    pub(crate) takes_text: bool,
    /// Whether the guard checks the arguments against the schema.
    pub(crate) validates: bool,
}

/// A tool of any form, ready for a [`Registry`](crate::Registry).
#[derive(Clone)]
pub struct AnyTool {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) schema: Value,
    pub(crate) policy: Policy,
    pub(crate) body: Arc<Body>,
}

impl fmt::Debug for AnyTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyTool").field("name", &self.name).field("policy", &self.policy).finish_non_exhaustive()
    }
}

/// JSON Schema of a tool that takes any object.
pub(crate) fn any_object() -> Value {
    serde_json::json!({"type": "object"})
}

fn produce<T: serde::Serialize>(value: &T) -> Produced {
    serde_json::to_string(value).map_err(|error| error.to_string())
}

mod raw;
#[cfg(feature = "schemars")]
mod typed;

pub use self::raw::{RawTool, text_tool, value_tool};
#[cfg(feature = "schemars")]
pub use self::typed::{FnTool, Tool, tool};

fn boxed<T, F>(future: F) -> BoxFuture<'static, T>
where
    F: Future<Output = T> + Send + 'static,
{
    Box::pin(future)
}
