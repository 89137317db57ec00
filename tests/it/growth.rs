//! What a record forgets so that it stays small, and what it must not forget.

use toolonce::key::{Digest, Fingerprint};
use toolonce::protocol::growth::{Dropped, KEPT_OUTCOMES, KEPT_SLOTS, bound};
use toolonce::protocol::record::{Base, Body, Fence, Given, Open, Outcome, Record, Slot, ToldBy};

fn done(fence: u64, body: Body) -> Record {
    Record {
        fence: Fence(fence),
        outcome: Some(Outcome {
            fence: Fence(fence),
            fingerprint: Default::default(),
            at: 0,
            order: 0,
            told_by: ToldBy::Attempt,
            body,
        }),
        slots: vec![slot(0)],
        ..Record::default()
    }
}

fn slot(turn: u32) -> Slot {
    Slot {
        run: "r".into(),
        turn,
        nth: 0,
        id: String::new(),
        epoch: 0,
        fingerprint: Fingerprint::default(),
        given: Some(Given::Outcome { mark: None, stop: false }),
        delivered: true,
    }
}

fn inline() -> Body {
    Body::Inline(vec![1])
}

fn pieces() -> Body {
    Body::Pieces { count: 3, length: 9, digest: Digest::default() }
}

fn base(occurrences: Vec<Record>) -> Base {
    Base { occurrences, ..Base::default() }
}

fn is_dropped(record: &Record) -> bool {
    record.outcome.as_ref().is_some_and(|outcome| outcome.body == Body::Dropped)
}

#[test]
fn the_newest_outcomes_are_kept() {
    let mut base = base((0..KEPT_OUTCOMES + 2).map(|_| done(1, inline())).collect());
    assert_eq!(bound(&mut base, KEPT_OUTCOMES, KEPT_SLOTS), []);
    let dropped: Vec<_> = base.occurrences.iter().map(is_dropped).collect();
    assert_eq!(dropped[..3], [true, true, false]);
    assert_eq!(dropped.iter().filter(|dropped| **dropped).count(), 2);
}

#[test]
fn an_old_occurrence_keeps_its_places_and_stays_done() {
    let mut base = base(vec![done(1, inline()), done(1, inline())]);
    bound(&mut base, 1, KEPT_SLOTS);
    let old = &base.occurrences[0];
    assert!(is_dropped(old));
    let [slot] = &old.slots[..] else { panic!("{:?}", old.slots) };
    assert!(slot.delivered && slot.given.is_none());
}

#[test]
fn dropped_pieces_are_named_once() {
    let mut base = base(vec![done(7, pieces()), done(1, inline())]);
    let expected = Dropped { occurrence: 0, fence: Fence(7), count: 3 };
    assert_eq!(bound(&mut base, 1, KEPT_SLOTS), [expected]);
    assert_eq!(bound(&mut base, 1, KEPT_SLOTS), []);
}

#[test]
fn what_is_open_is_never_dropped() {
    let open = Record {
        open: vec![Open { fence: Fence(1), quiet_from: 0, error: None }],
        slots: vec![slot(0)],
        ..Record::default()
    };
    let mut base = base(vec![open.clone(), done(1, inline())]);
    bound(&mut base, 0, KEPT_SLOTS);
    assert_eq!(base.occurrences[0], open);
}

#[test]
fn the_newest_slots_are_kept() {
    let mut record = done(1, inline());
    record.slots = (0..5).map(slot).collect();
    let mut base = base(vec![record]);
    bound(&mut base, 1, 3);
    let turns: Vec<_> = base.occurrences[0].slots.iter().map(|slot| slot.turn).collect();
    assert_eq!(turns, [2, 3, 4]);
}
