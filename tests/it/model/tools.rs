//! The tools of both sides: one for each way of guarding, and how their executions and look-ups can go.

use std::time::Duration;

use serde_json::{Value, json};
use toolonce::canonical::{Arguments, Limits, Shape};
use toolonce::key::{KeyParts, KeyScope, base_key};
use toolonce::{Effect, InDoubt, KeyWindow, Policy, Repeat};

/// How long a provider remembers a key.
const WINDOW: Duration = Duration::from_secs(200);
pub(super) const ATTEMPT_DEADLINE: Duration = Duration::from_secs(60);
pub(super) const SETTLE_DELAY: Duration = Duration::from_secs(30);
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

pub(super) const NAMESPACE: &str = "model";
pub(super) const RUN: &str = "run";

/// The arguments of all tools.
pub(super) fn schema() -> Value {
    json!({"type": "object", "properties": {
        "key": {"type": "integer", "x-toolonce": "identity"}, "content": {"type": "integer"},
    }})
}

/// What the model knows of a tool: only what its policy says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) effect: Effect,
    pub(super) repeat: Repeat,
    pub(super) in_doubt: InDoubt,
    pub(super) attempts: u32,
}

const KEYED: Effect = Effect::Keyed(KeyWindow::For(WINDOW));

const fn kind(name: &'static str, effect: Effect, repeat: Repeat, in_doubt: InDoubt, attempts: u32) -> Kind {
    Kind { name, effect, repeat, in_doubt, attempts }
}

pub(super) const KINDS: [Kind; 8] = [
    kind("once", Effect::Write, Repeat::Once, InDoubt::Hold, 1),
    kind("each", Effect::Write, Repeat::Each, InDoubt::Hold, 2),
    kind("asks", Effect::Write, Repeat::Once, InDoubt::Reconcile, 2),
    kind("each_asks", Effect::Write, Repeat::Each, InDoubt::Reconcile, 1),
    kind("keyed", KEYED, Repeat::Once, InDoubt::Resend, 2),
    kind("keyed_asks", KEYED, Repeat::Each, InDoubt::Reconcile, 2),
    kind("idempotent", Effect::Idempotent, Repeat::Once, InDoubt::Hold, 2),
    kind("read", Effect::ReadOnly, Repeat::Once, InDoubt::Hold, 1),
];

impl Kind {
    pub(super) fn policy(&self) -> Policy {
        let policy = match self.effect {
            Effect::ReadOnly => Policy::read_only(),
            Effect::Idempotent => Policy::idempotent(),
            Effect::Keyed(window) => Policy::keyed(window),
            _ => Policy::write(),
        };
        let policy = if self.effect.is_write() { policy.in_doubt(self.in_doubt).repeat(self.repeat) } else { policy };
        policy.advanced(|a| a.attempts(self.attempts))
    }

    pub(super) fn is_read(&self) -> bool {
        self.effect == Effect::ReadOnly
    }

    pub(super) fn asks(&self) -> bool {
        self.in_doubt == InDoubt::Reconcile
    }
}

/// How an execution ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Succeeds,
    /// It tells that nothing happened, and that it may be tried again.
    Retryable,
    /// It tells that nothing happened, for good.
    Permanent,
    /// It doesn't know.
    Unknown,
    Panics,
    /// Not before it is released.
    Hangs,
}

/// What look-ups find, until told otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Happened,
    DidNotHappen,
    CannotTell,
    Fails,
}

/// A call by what it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ask {
    /// Index of its tool in [`KINDS`].
    pub(super) tool: usize,
    /// Its identity.
    pub(super) key: u8,
    /// Its content: another one under the same identity is a mismatch.
    pub(super) content: u8,
    /// How its first and its later executions end.
    pub(super) ends: [End; 2],
}

impl Ask {
    pub(super) fn kind(&self) -> &'static Kind {
        &KINDS[self.tool]
    }

    /// What people call an occurrence by: of its downstream key, worked out from the parts of the call.
    pub(super) fn reference(&self, occurrence: usize, generation: u32) -> String {
        let text = json!({"key": self.key}).to_string();
        let arguments = Arguments::read(&text, &Limits::default()).unwrap();
        let identity = Shape::compile(&schema()).unwrap().normalise(&arguments).unwrap().identity_digest;
        let scope = KeyScope::Run(RUN);
        let parts = KeyParts { namespace: NAMESPACE, scope, tool: self.kind().name, context: &[], identity, again: 0 };
        base_key(&parts).downstream(u32::try_from(occurrence).unwrap(), generation).reference()
    }

    pub(super) fn record(&self) -> (usize, u8) {
        (self.tool, self.key)
    }
}

/// How a human answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    Happened,
    DidNotHappen,
    DidNotHappenForSure,
}

/// What a call was answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) kind: toolonce::ReplyKind,
    pub(super) is_marked: bool,
    pub(super) outcome: Option<String>,
}
