//! What a record forgets so that it stays small.

use super::record::{Base, Body, Record};

/// Of settled occurrences the newest this many keep their outcome and slots.
pub const KEPT_OUTCOMES: usize = 64;
/// Of one occurrence's slots the newest this many are kept.
pub const KEPT_SLOTS: usize = 256;

/// Drops what only old redeliveries could ask for: outcomes of all but the newest `outcomes` completed occurrences
/// (their slots keep their place, not what they were given), and all but the newest `slots` slots of each. Gives back
/// the occurrences whose outcome was dropped from pieces, so that these can be deleted.
pub fn bound(base: &mut Base, outcomes: usize, slots: usize) -> Vec<Dropped> {
    let done: Vec<usize> = (0..base.occurrences.len()).filter(|&n| base.occurrences[n].outcome.is_some()).collect();
    let old = &done[..done.len().saturating_sub(outcomes)];
    let dropped = old.iter().filter_map(|&n| drop_outcome(n, &mut base.occurrences[n])).collect();
    for record in &mut base.occurrences {
        let surplus = record.slots.len().saturating_sub(slots);
        record.slots.drain(..surplus);
    }
    dropped
}

/// Finds room for one more execution of a read: the next occurrence or, when there are `outcomes` of them, that of the
/// oldest, which is forgotten: their numbers mean nothing to anybody, and a redelivery of a forgotten one runs again.
/// The others keep their numbers, under which their pieces are stored.
pub fn room_for_read(base: &mut Base, outcomes: usize) -> (usize, Option<Dropped>) {
    let count = base.occurrences.len();
    let age = |n: &usize| (base.occurrences[*n].outcome.as_ref().map(|outcome| outcome.at), base.occurrences[*n].fence);
    let Some(oldest) = (0..count).min_by_key(age).filter(|_| count >= outcomes) else { return (count, None) };
    let record = &mut base.occurrences[oldest];
    let dropped = drop_outcome(oldest, record);
    *record = Record { fence: record.fence, ..Record::default() };
    (oldest, dropped)
}

/// Pieces that no record points to any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// The occurrence.
    pub occurrence: usize,
    /// The attempt under which they are stored.
    pub fence: super::record::Fence,
    /// How many.
    pub count: u32,
}

fn drop_outcome(occurrence: usize, record: &mut Record) -> Option<Dropped> {
    let outcome = record.outcome.as_mut()?;
    let body = std::mem::replace(&mut outcome.body, Body::Dropped);
    record.leaves.clear();
    for slot in &mut record.slots {
        slot.given = None;
    }
    match body {
        Body::Pieces { count, .. } => Some(Dropped { occurrence, fence: outcome.fence, count }),
        _ => None,
    }
}
