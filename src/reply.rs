//! What a caller gets, and what the model is told.

use std::fmt;

use serde::de::DeserializeOwned;

use crate::guard::Delivery;
pub use crate::tell::ReplyKind;

/// The answer to one call. There is one for every call, whatever happened.
///
/// ```no_run
/// # use toolonce::{Registry, Run, Call};
/// # async fn f(registry: &Registry, run: &Run) {
/// let reply = registry.call(run, Call::new("charge_card", r#"{"cents": 4200}"#).id("call_1").turn(0)).await;
/// println!("to the model: {}", reply.message());
/// if let Some(outcome) = reply.outcome() {
///     println!("to the program: {}", outcome.text());
/// }
/// # }
/// ```
pub struct Reply {
    pub(crate) kind: ReplyKind,
    pub(crate) marked: bool,
    pub(crate) tool: String,
    pub(crate) id: String,
    pub(crate) message: String,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) reference: Option<String>,
    pub(crate) fields: Vec<String>,
    pub(crate) downstream: Option<crate::key::DownstreamKey>,
    pub(crate) delivery: Option<Delivery>,
}

impl Reply {
    /// How the answer came about.
    pub fn kind(&self) -> ReplyKind {
        self.kind
    }

    /// Whether the outcome is marked as another call's: the model is told that nothing was done for this one.
    pub fn is_marked(&self) -> bool {
        self.marked
    }

    /// The tool's name.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// The call id, as it came.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What to send to the model as the answer to the call.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What the tool returned, if it is known.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// What people call the unit of work by: for the in-doubt inbox and for logs. `None` if the call was refused.
    pub fn reference(&self) -> Option<&str> {
        self.reference.as_deref()
    }

    /// What the tool was given to pass on downstream, for comparing with a provider's log. `None` if nothing was
    /// claimed for the call or for the one that it repeats.
    pub fn downstream_key(&self) -> Option<&crate::key::DownstreamKey> {
        self.downstream.as_ref()
    }

    /// JSON Pointers to the arguments that differ, in a conflict.
    pub fn differing_fields(&self) -> &[String] {
        &self.fields
    }

    /// Says that the caller saw the outcome, for hosts that know better than the default (a reply that was returned
    /// counts as seen).
    pub fn shown(&self) {
        self.deliver(true);
    }

    /// Says that the caller has not seen the outcome: an equal call of a later turn is then its retry.
    pub fn not_shown(&self) {
        self.deliver(false);
    }

    fn deliver(&self, seen: bool) {
        if let Some(delivery) = &self.delivery {
            delivery.set(seen);
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("kind", &self.kind)
            .field("marked", &self.marked)
            .field("tool", &self.tool)
            .field("id", &self.id)
            .field("message", &self.message)
            .finish_non_exhaustive()
    }
}

/// What a tool returned: JSON text, the same bytes for the first answer and every later one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub(crate) text: String,
    pub(crate) kept: bool,
}

impl Outcome {
    /// The JSON text. If the result was not kept, the whole for the call that executed and the first bytes for later
    /// ones.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the store has the whole result: not if it was over the limit, could not be written as JSON, or is so
    /// old that newer ones took its place.
    pub fn is_kept(&self) -> bool {
        self.kept
    }

    /// The value.
    ///
    /// # Errors
    /// If the text isn't of that type, as it isn't for a result that was not kept.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.text)
    }
}
