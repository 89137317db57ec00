//! What only this process knows: which bodies live in it, which outcomes were taken, which ends aren't recorded yet.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::long;
use super::records::unpack;
use super::work::Work;
use crate::key::BaseKey;
use crate::protocol::apply::{End, Event, NewClaim};
use crate::protocol::decide::{Here, Place};
use crate::protocol::record::{Body, Fence};
use crate::store::Key;
use crate::tell;
use crate::tool::Produced;

/// Bodies that live in this process or whose end isn't recorded yet, and occurrences whose outcome a caller without turns took.
#[derive(Debug, Default)]
pub(crate) struct Bodies {
    map: Mutex<HashMap<BaseKey, Here>>,
}

impl Bodies {
    fn change(&self, key: BaseKey, change: impl FnOnce(&mut Here)) {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        let here = map.entry(key).or_default();
        change(here);
        if *here == Here::default() {
            map.remove(&key);
        }
    }

    pub(crate) fn enter(&self, key: BaseKey, unit: (usize, Fence)) {
        self.change(key, |here| here.bodies.push(unit));
    }

    pub(crate) fn leave(&self, key: &BaseKey, unit: (usize, Fence)) {
        self.change(*key, |here| here.bodies.retain(|body| *body != unit));
    }

    /// A caller took the outcome, or says that it has not.
    pub(crate) fn take(&self, key: BaseKey, occurrence: usize, taken: bool) {
        self.change(key, |here| {
            here.taken.retain(|known| *known != occurrence);
            here.taken.extend(taken.then_some(occurrence));
        });
    }

    pub(crate) fn of(&self, key: &BaseKey) -> Here {
        let map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        map.get(key).cloned().unwrap_or_default()
    }

    pub(crate) fn count(&self) -> usize {
        let map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        map.values().map(|here| here.bodies.len()).sum()
    }
}

/// Claims whose commit was reported as failed and may be in the store all the same: their bodies never started.
#[derive(Debug, Default)]
pub(crate) struct Unstarted {
    set: Mutex<HashSet<(BaseKey, usize, Fence)>>,
}

impl Unstarted {
    pub(crate) fn add(&self, key: BaseKey, unit: (usize, Fence)) {
        self.set.lock().unwrap_or_else(PoisonError::into_inner).insert((key, unit.0, unit.1));
    }

    pub(crate) fn has(&self, key: &BaseKey, unit: (usize, Fence)) -> bool {
        self.set.lock().unwrap_or_else(PoisonError::into_inner).contains(&(*key, unit.0, unit.1))
    }

    /// Whether there may be any of a record.
    pub(crate) fn has_any(&self, key: &BaseKey) -> bool {
        self.set.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|(known, ..)| known == key)
    }

    pub(crate) fn forget(&self, key: &BaseKey, unit: (usize, Fence)) {
        self.set.lock().unwrap_or_else(PoisonError::into_inner).remove(&(*key, unit.0, unit.1));
    }
}

/// Ends that the store could not take, in the order in which they came. They stay here until they are recorded.
#[derive(Debug, Default)]
pub(crate) struct Unrecorded {
    map: Mutex<HashMap<BaseKey, Vec<UnrecordedEnd>>>,
}

/// One of them.
#[derive(Debug, Clone)]
pub(crate) struct UnrecordedEnd {
    pub(crate) work: Arc<Work>,
    pub(crate) occurrence: usize,
    pub(crate) what: Unwritten,
}

/// What the store has to be told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Unwritten {
    /// How an attempt ended whose claim it has.
    End { event: Event, puts: Vec<(Key, Vec<u8>)> },
    /// That there was an execution at all: it ran without a claim, see [`StoreDown`](super::StoreDown). What came of it,
    /// or what is known of an end that says nothing.
    Whole { claim: Box<NewClaim>, place: Option<Place>, came: Result<Produced, String> },
}

impl UnrecordedEnd {
    /// The attempt whose end it is, if it had a claim.
    pub(crate) fn unit(&self) -> Option<(usize, Fence)> {
        match self.what {
            Unwritten::End { event: Event::Ended { fence, .. }, .. } => Some((self.occurrence, fence)),
            _ => None,
        }
    }

    /// The result in it.
    pub(crate) fn text(&self) -> Option<String> {
        let (body, puts) = match &self.what {
            Unwritten::End { event: Event::Ended { end: End::Success { body, .. }, .. }, puts } => (body, puts),
            Unwritten::Whole { came: Ok(Ok(text)), .. } => return Some(text.clone()),
            Unwritten::Whole { came: Ok(Err(why)), .. } => return Some(tell::not_kept(0, why)),
            _ => return None,
        };
        match body {
            Body::Inline(bytes) => String::from_utf8(bytes.clone()).ok(),
            Body::Pieces { length, digest, .. } => {
                let packed = long::join(puts.iter().map(|(_, piece)| &piece[..])).ok()?;
                unpack(&packed, *length, *digest)
            }
            Body::NotKept { length, head, .. } => Some(tell::not_kept(*length, &String::from_utf8_lossy(head))),
            Body::Dropped => None,
        }
    }
}

impl Unrecorded {
    fn lock(&self) -> MutexGuard<'_, HashMap<BaseKey, Vec<UnrecordedEnd>>> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps an end. Whether it is the only one now: somebody has to go on trying.
    pub(crate) fn keep(&self, end: UnrecordedEnd) -> bool {
        let mut map = self.lock();
        let first = map.is_empty();
        map.entry(end.work.key).or_default().push(end);
        first
    }

    /// The oldest of one record.
    pub(crate) fn first(&self, key: &BaseKey) -> Option<UnrecordedEnd> {
        self.lock().get(key)?.first().cloned()
    }

    /// It is recorded. Somebody else may have been quicker.
    pub(crate) fn remove(&self, end: &UnrecordedEnd) {
        let mut map = self.lock();
        let Some(ends) = map.get_mut(&end.work.key) else { return };
        if let Some(at) = ends.iter().position(|kept| kept.occurrence == end.occurrence && kept.what == end.what) {
            ends.remove(at);
        }
        if ends.is_empty() {
            map.remove(&end.work.key);
        }
    }

    pub(crate) fn has(&self, key: &BaseKey) -> bool {
        self.lock().contains_key(key)
    }

    /// The records that have any.
    pub(crate) fn keys(&self) -> Vec<BaseKey> {
        self.lock().keys().copied().collect()
    }
}
