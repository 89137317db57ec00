//! Mutants of the transition table.

use toolonce::protocol::apply::{Answer, End, Event, Refused, apply};
use toolonce::protocol::record::{Base, Fence, Record};

use crate::explore::table::Table;

type ApplyFn = fn(&Base, usize, &Event) -> Result<Base, Refused>;

/// The real rules but for `apply`.
pub(super) struct Apply(pub(super) ApplyFn);

impl Table for Apply {
    fn apply(&self, base: &Base, occurrence: usize, event: &Event) -> Result<Base, Refused> {
        (self.0)(base, occurrence, event)
    }
}

/// Applies `event` to a base whose record was changed before.
fn after_change(base: &Base, n: usize, event: &Event, change: impl FnOnce(&mut Record)) -> Result<Base, Refused> {
    let mut changed = base.clone();
    changed.occurrences.get_mut(n).map(change);
    apply(&changed, n, event)
}

/// Applies `event` and changes the record afterwards.
fn and_change(base: &Base, n: usize, event: &Event, change: impl FnOnce(&mut Record)) -> Result<Base, Refused> {
    let mut next = apply(base, n, event)?;
    next.occurrences.get_mut(n).map(change);
    Ok(next)
}

fn ended(event: &Event) -> Option<(Fence, &End)> {
    match event {
        Event::Ended { fence, end, .. } => Some((*fence, end)),
        _ => None,
    }
}

fn failed(event: &Event) -> Option<Fence> {
    ended(event).filter(|(_, end)| matches!(end, End::NoEffect { .. })).map(|(fence, _)| fence)
}

fn succeeded(event: &Event) -> Option<Fence> {
    ended(event).filter(|(_, end)| matches!(end, End::Success { .. })).map(|(fence, _)| fence)
}

fn is_no(event: &Event) -> bool {
    matches!(event, Event::Answered { answer: Answer::DidNotHappen, .. })
}

pub(super) fn end_without_fence(base: &Base, n: usize, event: &Event) -> Result<Base, Refused> {
    let newest = base.occurrences.get(n).map(|record| record.fence);
    match (event, newest) {
        (Event::Ended { end, at, .. }, Some(fence)) => {
            let (end, at) = (end.clone(), *at);
            apply(base, n, &Event::Ended { fence, end, at })
        }
        _ => apply(base, n, event),
    }
}

pub(super) fn failure_deletes(base: &Base, n: usize, event: &Event) -> Result<Base, Refused> {
    and_change(base, n, event, |record| {
        if failed(event).is_some() {
            *record = Record::default();
        }
    })
}

pub(super) fn open_set_forgotten(base: &Base, n: usize, event: &Event) -> Result<Base, Refused> {
    and_change(base, n, event, |record| {
        if matches!(event, Event::Claim(_)) {
            record.open.clear();
        }
    })
}

pub(super) fn late_success_dropped(base: &Base, n: usize, event: &Event) -> Result<Base, Refused> {
    let claim = base.occurrences.get(n).and_then(|record| record.claim.as_ref());
    match succeeded(event) {
        Some(fence) if claim.is_none_or(|claim| claim.fence != fence) => Err(Refused::NotOpen),
        _ => apply(base, n, event),
    }
}

/// HOLES 21: only an attempt that is still open may report its success.
pub(super) fn closed_success_dropped(base: &Base, n: usize, event: &Event) -> Result<Base, Refused> {
    let is_open =
        |fence: Fence| base.occurrences.get(n).is_some_and(|record| record.unknown_ends().any(|f| f == fence));
    match succeeded(event) {
        Some(fence) if !is_open(fence) => Err(Refused::NotOpen),
        _ => apply(base, n, event),
    }
}

pub(super) fn deadline_beyond_window(base: &Base, n: usize, event: &Event) -> Result<Base, Refused> {
    let Event::Claim(claim) = event else {
        return apply(base, n, event);
    };
    let own = claim.at + claim.attempt_deadline.as_millis() as u64 * 10;
    and_change(base, n, event, |record| {
        record.claim.iter_mut().for_each(|claim| claim.deadline = own);
    })
}

pub(super) fn window_from_newest(base: &Base, n: usize, event: &Event) -> Result<Base, Refused> {
    let Event::Claim(claim) = event else {
        return apply(base, n, event);
    };
    after_change(base, n, event, |record| record.first_sent = Some(claim.at))
}

pub(super) fn generation_raised(base: &Base, n: usize, event: &Event) -> Result<Base, Refused> {
    and_change(base, n, event, |record| {
        record.generation += u32::from(matches!(event, Event::Claim(_)) && !record.open.is_empty());
    })
}

pub(super) fn outcome_overwritten(base: &Base, n: usize, event: &Event) -> Result<Base, Refused> {
    after_change(base, n, event, |record| {
        if succeeded(event).is_some() {
            record.outcome = None;
        }
    })
}

pub(super) fn claim_after_success(base: &Base, n: usize, event: &Event) -> Result<Base, Refused> {
    let outcome = base.occurrences.get(n).and_then(|record| record.outcome.clone());
    if !matches!(event, Event::Claim(_)) || outcome.is_none() {
        return apply(base, n, event);
    }
    let mut next = after_change(base, n, event, |record| record.outcome = None)?;
    next.occurrences[n].outcome = outcome;
    Ok(next)
}

pub(super) fn no_way_out(base: &Base, n: usize, event: &Event) -> Result<Base, Refused> {
    if is_no(event) { Err(Refused::NotOpen) } else { apply(base, n, event) }
}

/// HOLES 18: the failure of a re-send is taken for the whole call's.
pub(super) fn one_end_closes_all(base: &Base, n: usize, event: &Event) -> Result<Base, Refused> {
    and_change(base, n, event, |record| {
        if failed(event).is_some() {
            record.claim = None;
            record.open.clear();
        }
    })
}

/// HOLES 24: once tainted, tainted, although every end is known.
pub(super) fn older_end_closes_nothing(base: &Base, n: usize, event: &Event) -> Result<Base, Refused> {
    let before = base.occurrences.get(n).map(|record| record.open.clone()).unwrap_or_default();
    and_change(base, n, event, |record| {
        if failed(event).is_some_and(|fence| fence < record.fence) {
            record.open = before;
        }
    })
}

/// HOLES 23: a look-up asked about one attempt frees a later one.
pub(super) fn no_for_any_fence(base: &Base, n: usize, event: &Event) -> Result<Base, Refused> {
    match (event, base.occurrences.get(n)) {
        (Event::Answered { answer, at, .. }, Some(record)) if is_no(event) => {
            let (fence, answer, at) = (record.fence, answer.clone(), *at);
            apply(base, n, &Event::Answered { fence, answer, at })
        }
        _ => apply(base, n, event),
    }
}

/// HOLES 28.
pub(super) fn fence_used_again(base: &Base, n: usize, event: &Event) -> Result<Base, Refused> {
    let before = base.occurrences.get(n).filter(|record| !record.is_tainted()).map(|record| record.fence);
    and_change(base, n, event, |record| {
        if let (Event::Claim(_), Some(fence), Some(claim)) = (event, before, &mut record.claim) {
            record.fence = fence;
            claim.fence = fence;
        }
    })
}

pub(super) fn other_bytes_resent(base: &Base, n: usize, event: &Event) -> Result<Base, Refused> {
    let Event::Claim(claim) = event else {
        return apply(base, n, event);
    };
    after_change(base, n, event, |record| record.executed = claim.executed)
}
