//! What a fork has of its parent: the run as it stood before a turn.
//!
//! An attempt is of the turn that began it, whenever it ended: what an earlier turn began is the fork's, however it
//! ended, and what a later turn began never is. The places of earlier turns keep what they were given. A call without a
//! turn, and an attempt whose turn is forgotten, are taken for earlier ones: the fork rather has what was done than does
//! it again.

use std::borrow::Cow;

use super::record::{Approval, ApprovalState, Base, Fence, Given, Last, Record, Slot, Turn};

/// A run that another one was forked from, at first or second hand.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ancestor {
    /// Its id.
    pub run: String,
    /// Its turns before this one are the fork's own.
    pub before: Turn,
    /// In which epoch it was forked: what later ones made of those turns is its own.
    pub epoch: u32,
}

/// A base record as a fork has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The record, in the fork's name.
    pub base: Base,
    /// The parent's number of each of its occurrences.
    pub numbers: Vec<usize>,
}

/// What the fork `id`, which begins with the turn `before`, has of a record of its parent's; `None` if nothing.
///
/// # Errors
/// The occurrence of which it isn't known whether what an earlier turn began has happened.
pub fn part_of(base: &Base, before: Turn, id: &str) -> Result<Option<Part>, usize> {
    let mut about = base.about.clone();
    id.clone_into(&mut about.run);
    let approvals = base.approvals.iter().filter_map(|approval| denial(approval, before, id)).collect();
    let mut part = Part { base: Base { about, approvals, ..Base::default() }, numbers: Vec::new() };
    for (n, record) in base.occurrences.iter().enumerate() {
        let Some(kept) = record_before(record, before, id) else { continue };
        if kept.outcome.is_none() && kept.is_tainted() {
            return Err(n);
        }
        part.base.occurrences.push(kept);
        part.numbers.push(n);
    }
    let is_empty = part.numbers.is_empty() && part.base.approvals.is_empty();
    Ok((!is_empty).then_some(part))
}

/// Whether what is of this turn is earlier than `before`.
pub fn is_earlier(turn: Option<Turn>, before: Turn) -> bool {
    turn.is_none_or(|turn| turn < before)
}

/// A refusal holds in the fork, too. What was permitted was permitted once, and a question is the parent's.
fn denial(approval: &Approval, before: Turn, id: &str) -> Option<Approval> {
    let is_denied = matches!(approval.state, ApprovalState::Denied { .. });
    (is_denied && is_earlier(approval.turn, before)).then(|| {
        let mut denial = approval.clone();
        id.clone_into(&mut denial.asker.run);
        denial
    })
}

fn record_before(record: &Record, before: Turn, id: &str) -> Option<Record> {
    let mut slots: Vec<Slot> = record.slots.iter().filter(|slot| slot.turn < before).cloned().collect();
    slots.iter_mut().for_each(|slot| id.clone_into(&mut slot.run));
    let was_given = |slot: &Slot| slot.delivered || matches!(slot.given, Some(Given::Outcome { .. }));
    let has_outcome = record.outcome.as_ref().is_some_and(|outcome| {
        // An earlier place was answered with it, though a later turn began it: in a history that was cut off since.
        is_earlier(record.turn_of(outcome.fence), before) || slots.iter().any(was_given)
    });
    if has_outcome {
        // How often it was repeated later is none of the fork's business.
        return Some(Record { slots, replays: 0, ..record.clone() });
    }
    if record.fence != Fence::default() && is_earlier(record.begun.turn, before) {
        let unpermitted = Record { approved: Default::default(), permit: None, replays: 0, ..record.clone() };
        return Some(Record { slots, ..unpermitted });
    }
    (!slots.is_empty()).then(|| without_attempts(record, slots))
}

/// An occurrence whose newest attempts are a later turn's: of the ones before them the places tell what became of them.
fn without_attempts(record: &Record, slots: Vec<Slot>) -> Record {
    let fence = Fence(record.begun.fence.0.saturating_sub(1));
    let failure = |slot: &Slot| match &slot.given {
        Some(Given::Failure(failure)) => Some((slot.turn, failure.clone())),
        _ => None,
    };
    let newest = slots.iter().filter_map(failure).max_by_key(|(turn, _)| *turn);
    Record {
        fence,
        last: newest.map(|(_, failure)| Last { fence, failure, attempts: 1, not_before: 0 }),
        fingerprint: slots.last().map(|slot| slot.fingerprint).unwrap_or_default(),
        statement: record.statement.clone().filter(|statement| statement.fence <= fence),
        slots,
        ..Record::default()
    }
}

/// `base` as the fork `run` sees it: in a record that several runs share, what `ancestors` have of turns that are the
/// fork's own, too, stands in its name.
pub fn inherited<'a>(base: &'a Base, run: &str, ancestors: &[Ancestor]) -> Cow<'a, Base> {
    let mut seen = Cow::Borrowed(base);
    // The nearest first: it knows best what a place was given.
    for ancestor in ancestors.iter().rev() {
        inherit(&mut seen, run, ancestor);
    }
    seen
}

fn inherit(base: &mut Cow<'_, Base>, run: &str, ancestor: &Ancestor) {
    let slots = || base.occurrences.iter().flat_map(|record| &record.slots);
    let own: Vec<(Turn, u32)> = slots().filter(|slot| slot.run == run).map(|slot| (slot.turn, slot.nth)).collect();
    // A place that the ancestor answered in a later epoch may be another one under the same number.
    let is_inherited = |slot: &Slot| {
        let is_of = slot.run == ancestor.run && slot.turn < ancestor.before && slot.epoch <= ancestor.epoch;
        is_of && !own.contains(&(slot.turn, slot.nth))
    };
    if slots().any(is_inherited) {
        let all = base.to_mut().occurrences.iter_mut().flat_map(|record| &mut record.slots);
        for slot in all.filter(|slot| is_inherited(slot)) {
            run.clone_into(&mut slot.run);
        }
    }
    for at in 0..base.approvals.len() {
        let approval = &base.approvals[at];
        if approval.asker.run == ancestor.run
            && let Some(denial) = denial(approval, ancestor.before, run)
            && !base.approvals.iter().any(|own| own.asker == denial.asker)
        {
            base.to_mut().approvals[at] = denial;
        }
    }
}
