//! The transition table: what may happen to a record, and what each event makes of it.

use std::time::Duration;

use super::approval;
use super::record::{
    ApprovalState, Asker, Base, Begun, Body, Claim, Failure, FailureClass, Fence, Last, Leaf, Open, Outcome, OwnerId,
    Record, Signature, Strictness, ToldBy, Turn,
};
use crate::Millis;
use crate::key::{Digest, Fingerprint};
use crate::policy::KeyWindow;

/// Something that happened to a base record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// An owner wants to execute.
    Claim(Box<NewClaim>),
    /// An attempt ended.
    Ended {
        /// The attempt.
        fence: Fence,
        /// How.
        end: End,
        /// When.
        at: Millis,
    },
    /// A look-up or a human says whether it happened.
    Answered {
        /// The newest attempt when the question was put.
        fence: Fence,
        /// The answer.
        answer: Answer,
        /// When.
        at: Millis,
    },
    /// A human permits what was asked for.
    Approve(Asker),
    /// A human forbids it.
    Deny {
        /// What was asked for.
        asker: Asker,
        /// In the human's words, for the model.
        why: String,
    },
    /// Nobody answered in time.
    Expire(Asker),
}

/// A wish to execute, with all that the record must keep about it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NewClaim {
    /// Who will execute.
    pub owner: OwnerId,
    /// When.
    pub at: Millis,
    /// How long an attempt may take.
    pub attempt_deadline: Duration,
    /// The window of a `Keyed` tool's downstream key; `None` for other effects.
    pub window: Option<KeyWindow>,
    /// What the decision found and accepts: nothing open, or a doubt that a re-run can't make worse.
    pub over: Over,
    /// Whose call it is: its permission is used up, its open question void.
    pub asker: Asker,
    /// The assistant message of the call, if it has one.
    pub turn: Option<Turn>,
    /// Whether it needs that permission.
    pub permitted: bool,
    /// How long after its end its effect may still show downstream.
    pub settle_delay: Duration,
    /// What the tool is declared to do.
    pub strictness: Strictness,
    /// Digest of the arguments as executed.
    pub executed: Digest,
    /// The arguments as executed, if the record must keep them while it is open.
    pub kept_arguments: Option<String>,
    /// Digests of the values.
    pub leaves: Vec<Leaf>,
}

/// The doubt that a claim accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Over {
    /// None: the record must have no attempt whose end isn't known.
    Nothing,
    /// Earlier attempts may have had their effect and executing the same bytes again is harmless.
    Doubt {
        /// The claim that was seen as no longer running, and from when on it can't begin a send.
        silent: Option<(Fence, Millis)>,
    },
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum End {
    /// It happened.
    Success {
        /// The result.
        body: Body,
        /// Fingerprint of the arguments that this attempt executed.
        fingerprint: Fingerprint,
        /// Place in the run's order of completions, or 0.
        order: u64,
    },
    /// It is known not to have happened.
    NoEffect {
        /// What the tool said; its class is `Retryable` or `Permanent`.
        failure: Failure,
        /// No new attempt before this.
        not_before: Millis,
    },
    /// It may have happened.
    Unknown {
        /// What the tool said.
        error: String,
    },
}

/// What a look-up or a human knows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It happened, with this result.
    Happened {
        /// The result.
        body: Body,
        /// Fingerprint of the arguments that the question was about.
        fingerprint: Fingerprint,
        /// Who says so.
        told_by: ToldBy,
        /// Place in the run's order of completions, or 0.
        order: u64,
    },
    /// It did not happen.
    DidNotHappen,
}

/// Why an event can't happen to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// Only a claim makes an occurrence, and only the next one.
    #[error("there is no such occurrence")]
    NoOccurrence,
    /// The outcome is recorded and never changes.
    #[error("an outcome is recorded")]
    OutcomeRecorded,
    /// Somebody else executes it.
    #[error("another attempt is running")]
    Running,
    /// An earlier attempt may have had its effect.
    #[error("an earlier attempt may have had its effect")]
    InDoubt,
    /// A doubtful record may only be executed again with the bytes that were sent.
    #[error("an earlier attempt sent other bytes")]
    OtherBytes,
    /// The attempt isn't open: its end is known, or it was never begun.
    #[error("the attempt isn't open")]
    NotOpen,
    /// The attempt is from before the record was removed: it says nothing of what was begun since.
    #[error("the record of the attempt was removed")]
    Removed,
    /// A newer attempt was begun after the question was put.
    #[error("the answer is about an older attempt")]
    OldAttempt,
    /// No approval waits for an answer.
    #[error("no approval is pending")]
    NoApproval,
    /// The claim needs a permission that isn't there.
    #[error("nobody has approved it")]
    NotApproved,
}

/// What `event` makes of the `occurrence`-th record of `base`.
///
/// # Errors
/// [`Refused`] if the table has no such transition; then nothing has changed.
pub fn apply(base: &Base, occurrence: usize, event: &Event) -> Result<Base, Refused> {
    if let Event::Ended { fence, .. } | Event::Answered { fence, .. } = event
        && (Fence(1)..=base.floor.fence).contains(fence)
    {
        return Err(Refused::Removed);
    }
    let mut next = base.clone();
    match event {
        Event::Claim(claim) => {
            if occurrence == next.occurrences.len() {
                next.occurrences.push(Record { generation: next.floor.generation, ..Record::default() });
            }
            if claim.permitted && !approval::is_approved(&next, &claim.asker) {
                return Err(Refused::NotApproved);
            }
            let permit = approval::signature(&next, &claim.asker).cloned();
            approval::withdraw(&mut next, &claim.asker);
            let floor = next.floor.fence;
            claim_record(record(&mut next, occurrence)?, claim, permit, floor)?;
        }
        Event::Ended { fence, end, at } => ended(record(&mut next, occurrence)?, *fence, end, *at)?,
        Event::Answered { fence, answer, at } => answered(record(&mut next, occurrence)?, *fence, answer, *at)?,
        Event::Approve(asker) => approval::settle(&mut next, asker, Some(ApprovalState::Approved))?,
        Event::Deny { asker, why } => {
            approval::settle(&mut next, asker, Some(ApprovalState::Denied { why: why.clone() }))?;
        }
        Event::Expire(asker) => approval::settle(&mut next, asker, None)?,
    }
    Ok(next)
}

fn record(base: &mut Base, occurrence: usize) -> Result<&mut Record, Refused> {
    base.occurrences.get_mut(occurrence).ok_or(Refused::NoOccurrence)
}

fn claim_record(record: &mut Record, new: &NewClaim, permit: Option<Signature>, floor: Fence) -> Result<(), Refused> {
    if record.outcome.is_some() {
        return Err(Refused::OutcomeRecorded);
    }
    supersede(record, new)?;
    if !record.open.is_empty() {
        if record.executed != new.executed {
            return Err(Refused::OtherBytes);
        }
    } else if begins_generation(record, new) {
        record.generation += u32::from(record.fence != Fence::default());
        record.first_sent = None;
    }
    record.fence = Fence(record.fence.max(floor).0 + 1);
    if record.open.is_empty() {
        record.begun = Begun { fence: record.fence, turn: new.turn };
    }
    let first_sent = *record.first_sent.get_or_insert(new.at);
    record.claim = Some(Claim {
        fence: record.fence,
        owner: new.owner,
        claimed_at: new.at,
        deadline: deadline(new.at, new.attempt_deadline, new.window, first_sent),
    });
    // What was permitted once may be tried again as long as it is the same.
    let stays = record.is_permitted_to(&new.asker);
    record.approved = (new.permitted || stays).then(|| new.asker.run.clone());
    if new.permitted || !stays {
        record.permit = permit.filter(|_| new.permitted);
    }
    let settle = millis(new.settle_delay);
    record.settle = if record.open.is_empty() { settle } else { record.settle.max(settle) };
    // What is open under a stricter declaration stays so.
    record.strictness = if record.open.is_empty() { new.strictness } else { record.strictness.max(new.strictness) };
    record.fingerprint = new.asker.fingerprint;
    record.executed = new.executed;
    record.kept_arguments.clone_from(&new.kept_arguments);
    record.leaves.clone_from(&new.leaves);
    record.replays = 0;
    Ok(())
}

/// Moves a claim that was seen as no longer running into the taint, and checks that the doubt is accepted.
fn supersede(record: &mut Record, new: &NewClaim) -> Result<(), Refused> {
    let silent = match new.over {
        Over::Nothing => None,
        Over::Doubt { silent } => silent,
    };
    if let Some(claim) = &record.claim {
        match silent {
            Some((fence, quiet_from)) if fence == claim.fence => {
                record.open.push(Open { fence, quiet_from, error: None });
                record.claim = None;
            }
            _ => return Err(Refused::Running),
        }
    }
    match new.over {
        Over::Nothing if !record.open.is_empty() => Err(Refused::InDoubt),
        _ => Ok(()),
    }
}

/// Whether a new attempt on a record without open attempts needs a new downstream key: the provider would replay a
/// stored failure, refuse other bytes, or has forgotten the old key.
fn begins_generation(record: &Record, new: &NewClaim) -> bool {
    // Only the newest attempt's failure: an older one began this generation already, and whoever said of the attempts
    // since that they did not happen may be wrong; under the same key that does no harm.
    let newest = record.last.as_ref().filter(|last| last.fence == record.fence);
    let failed = newest.is_some_and(|last| last.failure.class == FailureClass::Permanent);
    let forgotten = match (new.window, record.first_sent) {
        // An unknown window never protects a re-send, but it is no reason for another key after a clean failure.
        (Some(window @ KeyWindow::For(_)), Some(first)) => !window_holds(new.at, new.attempt_deadline, window, first),
        _ => false,
    };
    record.fence == Fence::default() || failed || record.executed != new.executed || forgotten
}

/// When the last send of an attempt claimed at `at` may begin.
pub fn deadline(at: Millis, limit: Duration, window: Option<KeyWindow>, first_sent: Millis) -> Millis {
    let own = at.saturating_add(millis(limit));
    match window {
        Some(KeyWindow::For(window)) => own.min(window_end(first_sent, window)),
        _ => own,
    }
}

/// Whether a key first sent at `first_sent` still protects an attempt that begins at `at`: at least a tenth of the
/// attempt deadline is left. A clock before `first_sent` proves nothing and an unknown window counts as zero.
pub fn window_holds(at: Millis, limit: Duration, window: KeyWindow, first_sent: Millis) -> bool {
    match window {
        KeyWindow::Permanent => true,
        KeyWindow::Unknown => false,
        KeyWindow::For(window) => {
            let left = window_end(first_sent, window).saturating_sub(at);
            at >= first_sent && left > 0 && left >= millis(limit) / 10
        }
    }
}

fn window_end(first_sent: Millis, window: Duration) -> Millis {
    first_sent.saturating_add(millis(window) / 10 * 8)
}

/// A duration in milliseconds; what doesn't fit is the longest there is.
pub(crate) fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX)
}

/// An end speaks of its own attempt only.
fn ended(record: &mut Record, fence: Fence, end: &End, at: Millis) -> Result<(), Refused> {
    if record.outcome.is_some() {
        return Err(Refused::OutcomeRecorded);
    }
    if !is_begun(record, fence) {
        return Err(Refused::NotOpen);
    }
    match end {
        // A success is a fact, whatever became of its claim in the meantime.
        End::Success { body, fingerprint, order } => {
            complete(
                record,
                Success { fence, fingerprint: *fingerprint, told_by: ToldBy::Attempt, body, order: *order, at },
            );
        }
        End::NoEffect { failure, not_before } => {
            close(record, fence)?;
            failed(record, fence, failure, *not_before);
        }
        End::Unknown { error } => {
            let known = close(record, fence)?;
            let quiet_from = known.map_or(at, |known| known.min(at));
            record.open.push(Open { fence, quiet_from, error: Some(error.clone()) });
            record.open.sort_by_key(|open| open.fence);
        }
    }
    Ok(())
}

fn is_begun(record: &Record, fence: Fence) -> bool {
    fence != Fence::default() && fence <= record.fence
}

/// Takes `fence` out of the attempts whose end isn't known; gives back from when on it was known to be quiet.
fn close(record: &mut Record, fence: Fence) -> Result<Option<Millis>, Refused> {
    if record.claim.as_ref().is_some_and(|claim| claim.fence == fence) {
        record.claim = None;
        return Ok(None);
    }
    let at = record.open.iter().position(|open| open.fence == fence).ok_or(Refused::NotOpen)?;
    Ok(Some(record.open.remove(at).quiet_from))
}

fn failed(record: &mut Record, fence: Fence, failure: &Failure, not_before: Millis) {
    let attempts = record.last.as_ref().map_or(0, |last| last.attempts) + 1;
    match &mut record.last {
        // A straggler's failure must not hide what the newest attempt said.
        Some(last) if last.fence > fence => last.attempts = attempts,
        last => *last = Some(Last { fence, failure: failure.clone(), attempts, not_before }),
    }
    forget_arguments(record);
}

fn answered(record: &mut Record, fence: Fence, answer: &Answer, at: Millis) -> Result<(), Refused> {
    if record.outcome.is_some() {
        return Err(Refused::OutcomeRecorded);
    }
    if !is_begun(record, fence) {
        return Err(Refused::NotOpen);
    }
    match answer {
        Answer::Happened { body, fingerprint, told_by, order } => {
            complete(record, Success { fence, fingerprint: *fingerprint, told_by: *told_by, body, order: *order, at });
        }
        Answer::DidNotHappen if fence != record.fence => return Err(Refused::OldAttempt),
        Answer::DidNotHappen if !record.is_tainted() => return Err(Refused::NotOpen),
        Answer::DidNotHappen => {
            record.claim = None;
            record.open.clear();
            forget_arguments(record);
        }
    }
    Ok(())
}

struct Success<'a> {
    fence: Fence,
    fingerprint: Fingerprint,
    told_by: ToldBy,
    body: &'a Body,
    order: u64,
    at: Millis,
}

fn complete(record: &mut Record, success: Success<'_>) {
    let Success { fence, fingerprint, told_by, body, order, at } = success;
    if fingerprint != record.fingerprint {
        // The leaves describe a newer attempt's arguments.
        record.leaves.clear();
    }
    record.outcome = Some(Outcome { fence, fingerprint, at, order, told_by, body: body.clone() });
    record.claim = None;
    record.open.clear();
    forget_arguments(record);
}

/// Arguments are kept only while they may have to be sent again.
fn forget_arguments(record: &mut Record) {
    if !record.is_tainted() {
        record.kept_arguments = None;
    }
}
