//! What only this process knows: which bodies live in it, which outcomes were taken, which ends aren't recorded yet.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use super::work::Work;
use crate::key::BaseKey;
use crate::protocol::apply::{End, Event};
use crate::protocol::decide::Here;
use crate::protocol::record::Fence;
use crate::store::Key;

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

    pub(crate) fn forget(&self, key: &BaseKey, unit: (usize, Fence)) {
        self.set.lock().unwrap_or_else(PoisonError::into_inner).remove(&(*key, unit.0, unit.1));
    }
}

/// Ends that the store could not take.
#[derive(Debug, Default)]
pub(crate) struct Unrecorded {
    map: Mutex<HashMap<BaseKey, Vec<UnrecordedEnd>>>,
}

/// One of them.
#[derive(Debug, Clone)]
pub(crate) struct UnrecordedEnd {
    pub(crate) work: Arc<Work>,
    pub(crate) occurrence: usize,
    pub(crate) event: Event,
    pub(crate) puts: Vec<(Key, Vec<u8>)>,
}

impl UnrecordedEnd {
    /// Whose end it is.
    pub(crate) fn unit(&self) -> (usize, Fence) {
        let fence = match self.event {
            Event::Ended { fence, .. } => fence,
            _ => Fence::default(),
        };
        (self.occurrence, fence)
    }

    pub(crate) fn is_success(&self) -> bool {
        matches!(self.event, Event::Ended { end: End::Success { .. }, .. })
    }
}

impl Unrecorded {
    pub(crate) fn keep(&self, work: &Arc<Work>, occurrence: usize, event: Event, puts: Vec<(Key, Vec<u8>)>) {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        let end = UnrecordedEnd { work: Arc::clone(work), occurrence, event, puts };
        map.entry(work.key).or_default().push(end);
    }

    pub(crate) fn take(&self, key: &BaseKey) -> Vec<UnrecordedEnd> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner).remove(key).unwrap_or_default()
    }

    pub(crate) fn put_back(&self, ends: Vec<UnrecordedEnd>) {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        for end in ends {
            map.entry(end.work.key).or_default().push(end);
        }
    }

    pub(crate) fn has(&self, key: &BaseKey) -> bool {
        self.map.lock().unwrap_or_else(PoisonError::into_inner).contains_key(key)
    }

    pub(crate) fn take_all(&self) -> Vec<UnrecordedEnd> {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        map.drain().flat_map(|(_, ends)| ends).collect()
    }
}
