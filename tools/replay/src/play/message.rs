//! What is handed to the guard in one go.

use toolonce::{Call, Outcome};

use crate::corpus::Recorded;
use crate::faults::Fault;

/// A message of the model, as it is handed to the guard.
#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) turn: u32,
    pub(super) asks: Vec<Ask>,
}

/// One call of a message.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    /// Which recorded call of the turn it makes, or makes again.
    pub(super) of: usize,
    pub(super) id: String,
    pub(super) text: String,
}

/// A recorded turn while it is driven.
pub(super) struct Turn<'c> {
    pub(super) calls: &'c [Recorded],
    pub(super) faults: Vec<Option<Fault>>,
    pub(super) crashed: bool,
}

impl Turn<'_> {
    /// The call that an ask makes.
    pub(super) fn call(&self, ask: &Ask) -> Call {
        Call::new(&self.calls[ask.of].tool, &ask.text).id(&ask.id)
    }

    /// Whether a fault may have struck that leaves open what happened.
    pub(super) fn is_doubtful(&self) -> bool {
        self.crashed || self.faults.iter().flatten().any(|fault| fault.is_doubt())
    }
}

/// A message with effects whose outcomes the caller has.
#[derive(Debug)]
pub(super) struct Past {
    pub(super) turn: u32,
    pub(super) calls: Vec<Call>,
    pub(super) answers: Vec<Known>,
}

/// An outcome that the caller has.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) outcome: Outcome,
    /// Whether it was marked as another call's.
    pub(super) marked: bool,
}
