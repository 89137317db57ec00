//! What a store holds for one unit of work, and what follows from it.

use crate::Millis;
use crate::key::{Digest, Fingerprint, LeafDigest};
use crate::policy::Effect;

/// Index of an assistant message within its run, from 0.
pub type Turn = u32;

/// A number that only grows for the life of a key; each attempt has its own. 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Fence(pub u64);

/// One instance of a process that executes tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub [u8; 16]);

/// One base key: all intended equal calls, in order. The empty one is what a store without the key stands for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Base {
    /// The tool and the run (of the first call), for people.
    pub about: About,
    /// One record per intended call.
    pub occurrences: Vec<Record>,
    /// Questions put to a human about calls of this key, and the answers that aren't used up.
    pub approvals: Vec<Approval>,
    /// What its attempts go on from.
    pub floor: Floor,
}

/// What is left of a base record that was removed: the life of a key goes on, so its numbers do. An attempt from before
/// the removal can neither end nor settle one made after it, and what is sent then has a downstream key of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Floor {
    /// The highest fence that was handed out before.
    pub fence: Fence,
    /// The generation that each occurrence begins with.
    pub generation: u32,
}

impl Base {
    /// What must stay when everything else of it is removed.
    pub fn removed(&self) -> Self {
        let begun = self.occurrences.iter().filter(|record| record.fence != Fence::default());
        let floor = begun.fold(self.floor, |floor, record| Floor {
            fence: floor.fence.max(record.fence),
            generation: floor.generation.max(record.generation.saturating_add(1)),
        });
        Self { floor, ..Self::default() }
    }

    /// Whether it has an attempt whose end isn't known, and no outcome beside it.
    pub fn is_in_doubt(&self) -> bool {
        self.occurrences.iter().any(|record| record.outcome.is_none() && record.is_tainted())
    }

    /// Whether it says nothing of any call.
    pub fn is_blank(&self) -> bool {
        self.occurrences.is_empty() && self.approvals.is_empty()
    }
}

/// What a base record is about; never part of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct About {
    /// The tool's name.
    pub tool: String,
    /// The run that asked first.
    pub run: String,
}

/// Permission for one more execution, bound to who asked and with what.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Approval {
    /// Whose question it is.
    pub asker: Asker,
    /// When it was asked for.
    pub asked_at: Millis,
    /// Why it is needed.
    pub reason: Reason,
    /// The arguments, for the human who decides; dropped with the answer.
    pub arguments: Option<String>,
    /// What came of it.
    pub state: ApprovalState,
    /// Who answered, where it is known; for people, never part of a decision.
    pub signed: Option<Signature>,
    /// The assistant message whose call asked, if it had one.
    pub turn: Option<Turn>,
}

/// Who said something, and when.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Signature {
    /// A name, as whoever answered gave it; may be empty.
    pub who: String,
    /// When, in milliseconds since the Unix epoch.
    pub at: Millis,
}

/// What a human said of a call in doubt; for people, never part of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Statement {
    /// The newest attempt at that time: it is about this one and those before.
    pub fence: Fence,
    /// Whether it happened.
    pub happened: bool,
    /// How they know, in their words; may be empty.
    pub why: String,
    /// Who said so.
    pub signed: Signature,
}

/// What a permission is bound to beside its key: another call id doesn't void it, other arguments do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Asker {
    /// The run of the call that asked: a denial holds for it.
    pub run: String,
    /// Of its arguments.
    pub fingerprint: Fingerprint,
}

/// Why a call needs permission.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The tool's policy asks before each first execution.
    First,
    /// It was done before, and the tool's policy asks before it is done again.
    Repeat,
    /// It looks like another call that isn't finished.
    LookAlike {
        /// The reference of that call.
        of: String,
    },
}

/// What came of an [`Approval`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ApprovalState {
    /// Nobody has answered.
    Pending,
    /// The next claim of its asker consumes it.
    Approved,
    /// It holds for the run.
    Denied {
        /// In the human's words, for the model; may be empty.
        why: String,
    },
}

/// One intended call. Its state is never stored: see [`view`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Record {
    /// The newest fence handed out.
    pub fence: Fence,
    /// Goes into the downstream key; raised only when the earlier one can't have had an effect.
    pub generation: u32,
    /// When a key of this generation may first have been sent.
    pub first_sent: Option<Millis>,
    /// Who executes now, or was when it fell silent.
    pub claim: Option<Claim>,
    /// Earlier attempts whose end isn't known, by ascending fence: the taint.
    pub open: Vec<Open>,
    /// Whose turn began the newest attempts.
    pub begun: Begun,
    /// The newest attempt that is known to have had no effect.
    pub last: Option<Last>,
    /// The success. Once set it never changes.
    pub outcome: Option<Outcome>,
    /// Fingerprint of the newest attempt's arguments.
    pub fingerprint: Fingerprint,
    /// Digest of the newest attempt's arguments as executed.
    pub executed: Digest,
    /// What the tool was declared to do when the newest attempt was claimed: a later declaration may be stricter, never
    /// laxer, for what is open.
    pub strictness: Strictness,
    /// How long after its end an effect of an attempt may still show downstream, in milliseconds, as the tool said when it
    /// was claimed: who settles the call later need not know the tool.
    pub settle: Millis,
    /// The run whose permission by a human the newest attempt has, if it has one.
    pub approved: Option<String>,
    /// Who did, where it is known.
    pub permit: Option<Signature>,
    /// What a human said last when it was in doubt. Later attempts leave it.
    pub statement: Option<Statement>,
    /// The arguments as executed, while they may have to be sent again.
    pub kept_arguments: Option<String>,
    /// A digest for each value of the newest attempt's arguments, to name what differs.
    pub leaves: Vec<Leaf>,
    /// Marked replays in a row.
    pub replays: u32,
    /// The places that were answered from this record.
    pub slots: Vec<Slot>,
}

/// How careful one has to be with an effect, from the least to the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Strictness {
    /// There is none.
    #[default]
    ReadOnly,
    /// Doing it again is harmless.
    Idempotent,
    /// Doing it again under the same downstream key is.
    Keyed,
    /// Doing it again is harm.
    Write,
}

impl From<Effect> for Strictness {
    fn from(effect: Effect) -> Self {
        match effect {
            Effect::ReadOnly => Self::ReadOnly,
            Effect::Idempotent => Self::Idempotent,
            Effect::Keyed(_) => Self::Keyed,
            Effect::Write => Self::Write,
        }
    }
}

/// A running attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The attempt.
    pub fence: Fence,
    /// The process instance that executes it.
    pub owner: OwnerId,
    /// When it was claimed.
    pub claimed_at: Millis,
    /// No send begins after this.
    pub deadline: Millis,
}

/// Which turn began attempts. One over a doubt carries on what is in doubt, so it is of the turn that began that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Begun {
    /// The first of them: all since are of this turn.
    pub fence: Fence,
    /// The assistant message; `None` if the calls had none.
    pub turn: Option<Turn>,
}

/// An attempt that isn't running any more and whose end isn't known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Open {
    /// The attempt.
    pub fence: Fence,
    /// From when on it can't begin a send: its deadline, or when its body ended.
    pub quiet_from: Millis,
    /// What the tool said, for people.
    pub error: Option<String>,
}

/// An attempt that is known to have had no effect.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Last {
    /// The attempt.
    pub fence: Fence,
    /// What it reported.
    pub failure: Failure,
    /// How many attempts of this record failed so.
    pub attempts: u32,
    /// No new attempt before this.
    pub not_before: Millis,
}

/// A failure as data.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Failure {
    /// Whether it is known what happened.
    pub class: FailureClass,
    /// What the tool said.
    pub message: String,
}

/// What is known of the effect of a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureClass {
    /// It did not happen, and may be tried again.
    Retryable,
    /// It did not happen, and trying again is useless.
    Permanent,
    /// It may have happened.
    Unknown,
}

/// What the tool returned.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// The attempt that is known to have succeeded.
    pub fence: Fence,
    /// Fingerprint of that attempt's arguments.
    pub fingerprint: Fingerprint,
    /// When it was recorded.
    pub at: Millis,
    /// Place in the order of completions of the run, for tools that take part in `reopened_by`; else 0.
    pub order: u64,
    /// Who says so.
    pub told_by: ToldBy,
    /// The result.
    pub body: Body,
}

/// Who says that an effect happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ToldBy {
    /// The attempt itself.
    Attempt,
    /// The tool's look-up.
    LookUp,
    /// A human.
    Human,
}

/// Where the bytes of a result are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Body {
    /// Here.
    Inline(Vec<u8>),
    /// In so many pieces under (key, occurrence, fence).
    Pieces {
        /// How many.
        count: u32,
        /// Length of the whole in bytes.
        length: u64,
        /// Digest of the whole.
        digest: Digest,
    },
    /// Nowhere: it was too large or could not be written as JSON.
    NotKept {
        /// Length of the whole in bytes.
        length: u64,
        /// Digest of the whole.
        digest: Digest,
        /// The first bytes.
        head: Vec<u8>,
    },
    /// It was kept once; so many newer ones came since that it is gone.
    Dropped,
}

/// Digest of one value of the arguments.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Leaf {
    /// JSON Pointer to the value.
    pub pointer: String,
    /// Salted with the key.
    pub digest: LeafDigest,
}

/// One place that must be answered: a call of an assistant message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The run.
    pub run: String,
    /// The assistant message.
    pub turn: Turn,
    /// Position among the equal calls of that message.
    pub nth: u32,
    /// The call id, empty if none. Tells nothing across deliveries.
    pub id: String,
    /// The history that the place belongs to.
    pub epoch: u32,
    /// Fingerprint of the arguments it asked with.
    pub fingerprint: Fingerprint,
    /// What the place was answered with, if it was.
    pub given: Option<Given>,
    /// Whether the caller took the outcome.
    pub delivered: bool,
}

/// What a slot was answered with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Given {
    /// The outcome of the record.
    Outcome {
        /// The sentence that marked it as an earlier call's; `None` if it was given untouched.
        mark: Option<String>,
        /// Whether the answer told the model to stop repeating.
        stop: bool,
    },
    /// A failure without effect.
    Failure(Failure),
    /// A text about a call that has no outcome.
    Status {
        /// Which: the code of a [`ReplyKind`](crate::ReplyKind).
        kind: u8,
        /// As it was told.
        text: String,
    },
}

/// What is known of a process instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Liveness {
    /// It gave proof of life within the lease.
    Alive,
    /// It gave none for a lease; it may wake up again.
    Silent,
    /// It ended, at this time or before.
    Dead(Millis),
}

/// What is known of the owners of claims.
pub trait Owners {
    /// Whether the owner lives.
    fn liveness(&self, owner: OwnerId) -> Liveness;
}

impl<F: Fn(OwnerId) -> Liveness> Owners for F {
    fn liveness(&self, owner: OwnerId) -> Liveness {
        self(owner)
    }
}

/// The state of a record: what its fields mean at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum View {
    /// It happened; the outcome is recorded.
    Done,
    /// A living owner executes it and its deadline lies ahead.
    Running,
    /// It may have happened.
    InDoubt,
    /// It did not happen, and the tool called that final.
    Failed,
    /// It did not happen, or was never tried.
    Free,
}

/// What the fields of `record` mean at `now`.
pub fn view(record: &Record, owners: &dyn Owners, now: Millis) -> View {
    if record.outcome.is_some() {
        return View::Done;
    }
    match &record.claim {
        Some(claim) if is_live(claim, owners, now) => View::Running,
        Some(_) => View::InDoubt,
        None if !record.open.is_empty() => View::InDoubt,
        None => match &record.last {
            Some(last) if last.failure.class == FailureClass::Permanent => View::Failed,
            _ => View::Free,
        },
    }
}

fn is_live(claim: &Claim, owners: &dyn Owners, now: Millis) -> bool {
    owners.liveness(claim.owner) == Liveness::Alive && now < claim.deadline
}

impl Claim {
    /// From when on this attempt can't begin a send: its deadline, or its owner's proven end.
    pub fn quiet_from(&self, owners: &dyn Owners) -> Millis {
        match owners.liveness(self.owner) {
            Liveness::Dead(at) => at.min(self.deadline),
            Liveness::Alive | Liveness::Silent => self.deadline,
        }
    }
}

impl Record {
    /// From when on a *no* counts, if a look-up or a human says it: every open attempt is quiet, and what it sent last has
    /// had its time to show. `settle` is what the tool says today, in milliseconds.
    pub fn no_counts_from(&self, owners: &dyn Owners, settle: Millis) -> Millis {
        self.quiet_from(owners).saturating_add(settle.max(self.settle))
    }

    /// Whether a human permitted the newest attempt to this asker: then it may be tried again until it happens.
    pub fn is_permitted_to(&self, asker: &Asker) -> bool {
        self.approved.as_ref() == Some(&asker.run) && self.fingerprint == asker.fingerprint
    }

    /// Whether it was done so long ago that only the fact is left.
    pub fn is_forgotten(&self) -> bool {
        self.outcome.as_ref().is_some_and(|outcome| outcome.body == Body::Dropped)
    }

    /// Whether this record is about arguments with this fingerprint: those of its outcome, or of its newest attempt. Of
    /// an outcome that is forgotten only the first 64 bits of the fingerprint are kept.
    pub fn is_about(&self, fingerprint: Fingerprint) -> bool {
        match &self.outcome {
            Some(Outcome { body: Body::Dropped, fingerprint: kept, .. }) => kept.head() == fingerprint.head(),
            Some(outcome) => outcome.fingerprint == fingerprint,
            None => self.fingerprint == fingerprint,
        }
    }

    /// The turn that began the attempt; `None` if it had none, or if it is forgotten behind those of another turn.
    pub fn turn_of(&self, fence: Fence) -> Option<Turn> {
        self.begun.turn.filter(|_| fence >= self.begun.fence)
    }

    /// Whether an attempt's end isn't known, the running one's included.
    pub fn is_tainted(&self) -> bool {
        self.claim.is_some() || !self.open.is_empty()
    }

    /// The attempts whose end isn't known.
    pub fn unknown_ends(&self) -> impl Iterator<Item = Fence> {
        self.open.iter().map(|open| open.fence).chain(self.claim.iter().map(|claim| claim.fence))
    }

    /// From when on no attempt of this record can begin a send.
    pub fn quiet_from(&self, owners: &dyn Owners) -> Millis {
        let open = self.open.iter().map(|open| open.quiet_from);
        let claim = self.claim.iter().map(|claim| claim.quiet_from(owners));
        open.chain(claim).max().unwrap_or(0)
    }
}
