//! What a record forgets so that it stays small.
//!
//! An occurrence whose outcome was taken by a caller is worth its outcome only to an old redelivery. Of those the
//! newest [`KEPT_OUTCOMES`] keep everything; of an older one a few numbers are left, so that it goes on to be *done*, in
//! its place and with its number, and answers "the result is no longer kept". What is open, and an outcome that nobody
//! took yet, is never touched.

use super::record::{Base, Begun, Body, Fence, Given, Outcome, Record, Slot, ToldBy, Turn};
use crate::key::Fingerprint;

/// Of settled occurrences the newest this many keep their outcome and slots.
pub const KEPT_OUTCOMES: usize = 64;
/// Of one occurrence's slots the newest this many are kept.
pub const KEPT_SLOTS: usize = 256;
/// Of one occurrence's attempts whose end isn't known the newest this many keep what their tool said.
const KEPT_ERRORS: usize = 4;

/// Shrinks all but the newest `outcomes` occurrences whose outcome was taken, and drops all but the newest `slots` slots
/// of each. Gives back the occurrences whose outcome was dropped from pieces, so that these can be deleted.
pub fn bound(base: &mut Base, outcomes: usize, slots: usize) -> Vec<Dropped> {
    let taken: Vec<usize> = (0..base.occurrences.len()).filter(|&n| was_taken(&base.occurrences[n])).collect();
    let old = &taken[..taken.len().saturating_sub(outcomes)];
    let dropped = old.iter().filter_map(|&n| shrink(n, &mut base.occurrences[n])).collect();
    for record in &mut base.occurrences {
        drop_slots(record, slots);
        record.open.iter_mut().rev().skip(KEPT_ERRORS).for_each(|open| open.error = None);
    }
    dropped
}

/// Completed, and delivered to some place. One that no place asked for (its calls have no turn) has no redelivery either.
fn was_taken(record: &Record) -> bool {
    record.outcome.is_some() && (record.slots.is_empty() || record.slots.iter().any(|slot| slot.delivered))
}

/// The oldest go first, but never the first of all, which says when it was done, nor the only one that says that the
/// outcome was delivered: without it the next wish would be taken for a retry.
fn drop_slots(record: &mut Record, most: usize) {
    while record.slots.len() > most.max(3) {
        let delivered = record.slots.iter().filter(|slot| slot.delivered).count();
        let only = record.slots[1].delivered && delivered == 1;
        record.slots.remove(1 + usize::from(only));
    }
}

/// Cuts what tools said of failures, and the heads of results that weren't kept, to `most` bytes, and drops what is only
/// for people: the last resort before the end of an attempt can't be recorded.
pub fn cut_texts(base: &mut Base, most: usize) {
    base.approvals.iter_mut().for_each(|approval| approval.signed = None);
    for record in &mut base.occurrences {
        (record.permit, record.statement) = (None, None);
        if let Some(last) = &mut record.last {
            cut(&mut last.failure.message, most);
        }
        record.open.iter_mut().filter_map(|open| open.error.as_mut()).for_each(|error| cut(error, most));
        if let Some(Outcome { body: Body::NotKept { head, .. }, .. }) = &mut record.outcome {
            head.truncate(most);
        }
        for slot in &mut record.slots {
            if let Some(Given::Failure(failure)) = &mut slot.given {
                cut(&mut failure.message, most);
            }
        }
    }
}

fn cut(text: &mut String, most: usize) {
    let end = (0..=most.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    text.truncate(end);
}

/// Finds room for one more execution of a read: the next occurrence or, when there are `outcomes` of them, that of the
/// oldest, which is forgotten: their numbers mean nothing to anybody, and a redelivery of a forgotten one runs again.
/// The others keep their numbers, under which their pieces are stored.
pub fn room_for_read(base: &mut Base, outcomes: usize) -> (usize, Option<Dropped>) {
    let count = base.occurrences.len();
    let age = |n: &usize| (base.occurrences[*n].outcome.as_ref().map(|outcome| outcome.at), base.occurrences[*n].fence);
    let Some(oldest) = (0..count).min_by_key(age).filter(|_| count >= outcomes) else { return (count, None) };
    let record = &mut base.occurrences[oldest];
    let dropped = shrink(oldest, record);
    *record = Record { fence: record.fence, ..Record::default() };
    (oldest, dropped)
}

/// Pieces that no record points to any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// The occurrence.
    pub occurrence: usize,
    /// The attempt under which they are stored.
    pub fence: Fence,
    /// How many.
    pub count: u32,
}

impl Dropped {
    /// The pieces of an outcome, if it is in pieces.
    pub fn of(occurrence: usize, outcome: &Outcome) -> Option<Self> {
        match outcome.body {
            Body::Pieces { count, .. } => Some(Self { occurrence, fence: outcome.fence, count }),
            _ => None,
        }
    }
}

fn shrink(occurrence: usize, record: &mut Record) -> Option<Dropped> {
    let outcome = record.outcome.as_ref()?;
    let dropped = Dropped::of(occurrence, outcome);
    let slots = record.slots.iter().map(|slot| PastSlot::of(slot, "").into_slot("")).collect();
    let begun = Begun { fence: outcome.fence, turn: record.turn_of(outcome.fence) };
    *record = Record { slots, ..bare(record.fence, record.generation, begun, outcome.at, outcome.fingerprint) };
    dropped
}

/// What is left of a completed occurrence beside its places; `begun` is of the attempt that succeeded.
fn bare(fence: Fence, generation: u32, begun: Begun, at: u64, fingerprint: Fingerprint) -> Record {
    Record {
        fence,
        generation,
        begun,
        outcome: Some(Outcome {
            fence: begun.fence,
            fingerprint: FingerprintHead(fingerprint.head()).into_fingerprint(),
            at: at / 1000 * 1000,
            order: 0,
            told_by: ToldBy::Attempt,
            body: Body::Dropped,
        }),
        ..Record::default()
    }
}

/// A shrunk occurrence as it is stored.
#[derive(Debug)]
pub(super) struct Past {
    pub(super) fence: Fence,
    pub(super) outcome: Fence,
    pub(super) generation: u32,
    pub(super) second: u64,
    pub(super) fingerprint: FingerprintHead,
    pub(super) turn: Option<Turn>,
    pub(super) slots: Vec<PastSlot>,
}

/// What is left of the sentence that marked an outcome as another call's.
const MARK: &str = "This is the result of the same call, made earlier. It was not done again.";

/// A place of a shrunk occurrence.
#[derive(Debug)]
pub(super) struct PastSlot {
    /// `None` if it is the run that the record is about.
    pub(super) run: Option<String>,
    pub(super) turn: Turn,
    pub(super) nth: u32,
    pub(super) epoch: u32,
    pub(super) delivered: bool,
    /// Whether it got the outcome as another call's.
    pub(super) marked: bool,
}

/// The first bytes of a fingerprint.
#[derive(Debug)]
pub(super) struct FingerprintHead(pub(super) [u8; 8]);

impl FingerprintHead {
    fn into_fingerprint(self) -> Fingerprint {
        let mut whole = [0; 32];
        whole[..8].copy_from_slice(&self.0);
        Fingerprint::from_bytes(whole)
    }
}

impl Past {
    /// The short form of a record that has nothing which the short form hasn't.
    pub(super) fn of(record: &Record, run: &str) -> Option<Self> {
        let outcome = record.outcome.as_ref().filter(|outcome| outcome.body == Body::Dropped)?;
        let past = || Self {
            fence: record.fence,
            outcome: outcome.fence,
            generation: record.generation,
            second: outcome.at / 1000,
            fingerprint: FingerprintHead(outcome.fingerprint.head()),
            turn: record.begun.turn,
            slots: record.slots.iter().map(|slot| PastSlot::of(slot, run)).collect(),
        };
        (past().into_record(run) == *record).then(past)
    }

    pub(super) fn into_record(self, run: &str) -> Record {
        let at = self.second.saturating_mul(1000);
        let fingerprint = self.fingerprint.into_fingerprint();
        Record {
            slots: self.slots.into_iter().map(|slot| slot.into_slot(run)).collect(),
            ..bare(self.fence, self.generation, Begun { fence: self.outcome, turn: self.turn }, at, fingerprint)
        }
    }
}

impl PastSlot {
    fn of(slot: &Slot, run: &str) -> Self {
        let Slot { turn, nth, epoch, delivered, .. } = *slot;
        let marked = matches!(&slot.given, Some(Given::Outcome { mark: Some(_), .. }));
        Self { run: (slot.run != run).then(|| slot.run.clone()), turn, nth, epoch, delivered, marked }
    }

    fn into_slot(self, run: &str) -> Slot {
        let Self { run: other, turn, nth, epoch, delivered, marked } = self;
        let given = marked.then(|| Given::Outcome { mark: Some(MARK.to_owned()), stop: false });
        Slot {
            run: other.unwrap_or_else(|| run.to_owned()),
            turn,
            nth,
            id: String::new(),
            epoch,
            fingerprint: Fingerprint::default(),
            given,
            delivered,
        }
    }
}
