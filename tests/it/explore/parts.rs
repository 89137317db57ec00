//! What the small models share: calls of one run, judged at the beginning of time, when nobody is gone.

use toolonce::Effect;
use toolonce::key::{Digest, Fingerprint};
use toolonce::protocol::apply::{Answer, End, NewClaim, Over};
use toolonce::protocol::decide::{Asked, Facts, Here};
use toolonce::protocol::history::History;
use toolonce::protocol::notes::NotedPlace;
use toolonce::protocol::record::{Base, Body, Failure, FailureClass, Liveness, OwnerId, ToldBy, Turn};

use super::repeat::LIMITS;

/// How an attempt ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Succeeds,
    Fails(FailureClass),
    IsUnknown,
    OutlivesPatience,
}

pub(super) const ENDS: [How; 5] = [
    How::Succeeds,
    How::Fails(FailureClass::Retryable),
    How::Fails(FailureClass::Permanent),
    How::IsUnknown,
    How::OutlivesPatience,
];

/// The only call of `turn`.
pub(super) fn asked(turn: Turn) -> Asked {
    Asked {
        run: "r".into(),
        turn: Some(turn),
        nth: Some(0),
        id: String::new(),
        fingerprint: Fingerprint::default(),
        executed: Digest::default(),
        again: false,
        looked_up: false,
    }
}

/// The place of that call, or of the `nth` equal one.
pub(super) fn place(turn: Turn, nth: u32) -> NotedPlace {
    NotedPlace { run: "r".into(), turn, nth, id: String::new(), fingerprint: Fingerprint::default() }
}

/// Asks a rule about `base`.
pub(super) fn about<T>(base: &Base, rule: impl FnOnce(Facts<'_>) -> T) -> T {
    rule(Facts {
        base,
        history: &History::default(),
        last_turn: None,
        answered: None,
        owners: &|_: OwnerId| Liveness::Alive,
        here: &Here::default(),
        reopened: 0,
        look_alike: None,
        now: 0,
        wall: 0,
    })
}

/// The wish to execute `asked`, without a permission.
pub(super) fn new_claim(asked: &Asked, effect: Effect, over: Over) -> NewClaim {
    NewClaim {
        owner: OwnerId([0; 16]),
        at: 0,
        attempt_deadline: LIMITS.attempt_deadline,
        window: None,
        over,
        asker: asked.asker(),
        turn: None,
        permitted: false,
        settle_delay: LIMITS.settle_delay,
        strictness: effect.into(),
        executed: asked.executed,
        kept_arguments: None,
        leaves: Vec::new(),
    }
}

pub(super) fn success(order: u64) -> End {
    End::Success { body: Body::Inline(Vec::new()), fingerprint: Fingerprint::default(), order }
}

pub(super) fn no_effect(class: FailureClass) -> End {
    End::NoEffect { failure: Failure { class, message: String::new() }, not_before: 0 }
}

pub(super) fn unknown() -> End {
    End::Unknown { error: String::new() }
}

/// A human found that it happened.
pub(super) fn happened(order: u64) -> Answer {
    let (body, fingerprint) = (Body::Inline(Vec::new()), Fingerprint::default());
    Answer::Happened { body, fingerprint, told_by: ToldBy::Human, order }
}
