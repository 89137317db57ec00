//! Mutants of the repeat rule.

use toolonce::key::Fingerprint;
use toolonce::protocol::apply::{Event, Over, Refused, apply};
use toolonce::protocol::decide::{Act, Asked, Decision, Facts, Limits, Mark, decide};
use toolonce::protocol::record::{Base, Body, Given, Liveness, Outcome, Slot, ToldBy, Turn};
use toolonce::{Effect, KeyWindow, Policy};

use crate::explore::table::Table;

type DecideFn = fn(&Facts<'_>, &Asked, &Policy, Limits) -> Decision;

/// The real rules but for `decide`.
pub(super) struct Decide(pub(super) DecideFn);

impl Table for Decide {
    fn decide(&self, facts: &Facts<'_>, asked: &Asked, policy: &Policy, limits: Limits) -> Decision {
        (self.0)(facts, asked, policy, limits)
    }
}

/// Decides on another base than the store's.
fn on(base: &Base, facts: &Facts<'_>, asked: &Asked, policy: &Policy, limits: Limits) -> Decision {
    decide(&Facts { base, ..*facts }, asked, policy, limits)
}

fn change_slots(base: &Base, mut change: impl FnMut(&mut Vec<Slot>)) -> Base {
    let mut base = base.clone();
    base.occurrences.iter_mut().for_each(|record| change(&mut record.slots));
    base
}

/// A silent owner's claim counts as none.
pub(super) struct SilenceFrees;

impl Table for SilenceFrees {
    fn apply(&self, base: &Base, n: usize, event: &Event) -> Result<Base, Refused> {
        let mut base = base.clone();
        if let (Event::Claim(_), Some(record)) = (event, base.occurrences.get_mut(n)) {
            record.claim = None;
        }
        apply(&base, n, event)
    }

    fn decide(&self, facts: &Facts<'_>, asked: &Asked, policy: &Policy, limits: Limits) -> Decision {
        let mut base = facts.base.clone();
        for record in &mut base.occurrences {
            record.claim = record.claim.take().filter(|c| facts.owners.liveness(c.owner) == Liveness::Alive);
        }
        on(&base, facts, asked, policy, limits)
    }
}

/// A re-send doesn't look at the window.
pub(super) struct ResendsForEver;

impl Table for ResendsForEver {
    fn apply(&self, base: &Base, n: usize, event: &Event) -> Result<Base, Refused> {
        let mut event = event.clone();
        if let Event::Claim(claim) = &mut event {
            claim.window = Some(KeyWindow::Permanent);
        }
        apply(base, n, &event)
    }

    fn decide(&self, facts: &Facts<'_>, asked: &Asked, _policy: &Policy, limits: Limits) -> Decision {
        decide(facts, asked, &Policy::keyed(KeyWindow::Permanent), limits)
    }
}

/// HOLES 5: what runs or is done is joined before anybody looks for siblings.
pub(super) fn sibling_joined(facts: &Facts<'_>, asked: &Asked, policy: &Policy, limits: Limits) -> Decision {
    decide(facts, &Asked { nth: None, ..asked.clone() }, policy, limits)
}

pub(super) fn in_doubt_rerun(facts: &Facts<'_>, asked: &Asked, policy: &Policy, limits: Limits) -> Decision {
    let mut decision = decide(facts, asked, policy, limits);
    if decision.act == Act::Hold && facts.here.bodies.is_empty() && policy.effect() == Effect::Write {
        let record = &facts.base.occurrences[decision.occurrence];
        let silent = record.claim.as_ref().map(|claim| (claim.fence, claim.deadline));
        decision.act = Act::Attempt { over: Over::Doubt { silent }, kept: false, not_before: 0, permitted: false };
    }
    decision
}

/// HOLES 7: the highest occurrence, whatever became of the lower ones.
pub(super) fn highest(facts: &Facts<'_>, asked: &Asked, policy: &Policy, limits: Limits) -> Decision {
    let mut base = facts.base.clone();
    let lower = base.occurrences.len().saturating_sub(1);
    for record in &mut base.occurrences[..lower] {
        let is_place = |slot: &Slot| Some(slot.turn) == asked.turn && Some(slot.nth) == asked.nth;
        if !record.slots.iter().any(is_place) {
            record.outcome.get_or_insert(some_outcome());
            record.slots.push(seen_slot(&asked.run, facts.history.epoch()));
        }
    }
    on(&base, facts, asked, policy, limits)
}

fn some_outcome() -> Outcome {
    Outcome {
        fence: Default::default(),
        fingerprint: Default::default(),
        at: 0,
        order: 0,
        told_by: ToldBy::Attempt,
        body: Body::Dropped,
    }
}

fn seen_slot(run: &str, epoch: u32) -> Slot {
    const FIRST: Turn = 0;
    Slot {
        run: run.into(),
        turn: FIRST,
        nth: u32::MAX,
        id: String::new(),
        epoch,
        fingerprint: Fingerprint::default(),
        given: None,
        delivered: true,
    }
}

/// HOLES 8: the occurrence that another call of this turn retries may be retried again.
pub(super) fn slots_of_turn_ignored(facts: &Facts<'_>, asked: &Asked, policy: &Policy, limits: Limits) -> Decision {
    let is_other = |slot: &Slot| Some(slot.turn) == asked.turn && Some(slot.nth) != asked.nth;
    let base = change_slots(facts.base, |slots| slots.retain(|slot| !is_other(slot)));
    on(&base, facts, asked, policy, limits)
}

/// HOLES 14: a place of an abandoned history matches whatever the present one has seen.
pub(super) fn abandoned_slot_matches(facts: &Facts<'_>, asked: &Asked, policy: &Policy, limits: Limits) -> Decision {
    let is_place = |slot: &Slot| Some(slot.turn) == asked.turn && Some(slot.nth) == asked.nth;
    let epoch = facts.history.epoch();
    let base = change_slots(facts.base, |slots| {
        let abandoned = |slot: &&mut Slot| is_place(slot) && !facts.history.holds_slot(slot);
        slots.iter_mut().filter(abandoned).for_each(|slot| {
            slot.epoch = epoch;
            slot.given = None;
        });
    });
    on(&base, facts, asked, policy, limits)
}

/// HOLES 15.
pub(super) fn not_frozen(facts: &Facts<'_>, asked: &Asked, policy: &Policy, limits: Limits) -> Decision {
    let facts = Facts { last_turn: None, ..*facts };
    decide(&facts, asked, policy, limits)
}

pub(super) fn mark_forgotten(facts: &Facts<'_>, asked: &Asked, policy: &Policy, limits: Limits) -> Decision {
    let mut decision = decide(facts, asked, policy, limits);
    if matches!(decision.act, Act::GiveAgain(Given::Outcome { .. })) {
        decision.act = Act::Give(Mark::Own);
    }
    decision
}
