//! One leader for each unit of work in this process; everybody else follows.
//!
//! `tests/shuttle` includes this file with primitives whose every order is tried.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::sync::{Arc, Mutex, MutexGuard, PoisonError};
use crate::key::{BaseKey, Fingerprint};
use crate::protocol::record::Failure;

/// How far the leader has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is about to claim: nothing is known yet.
    Claiming,
    /// It executes, waits to try again, or asks whether it happened.
    Going,
    /// It ended.
    Ended(FlightEnd),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FlightEnd {
    /// The outcome is recorded.
    Success,
    /// It failed without effect; followers get that failure and start nothing.
    Failed(Failure),
    /// It is in doubt.
    InDoubt,
    /// It happened with this result, but isn't recorded.
    Unrecorded(std::sync::Arc<str>),
    /// The leader got nowhere: look again.
    Nothing,
}

type Map = Mutex<HashMap<(BaseKey, usize), Arc<Shared>>>;

#[derive(Debug)]
struct Shared {
    fingerprint: Fingerprint,
    progress: Mutex<Progress>,
}

/// Followers are told in the order in which they came: of two deliveries of one place the second has the last word.
#[derive(Debug)]
struct Progress {
    stage: Stage,
    /// By ascending number.
    waiting: Vec<(u64, Waker)>,
    came: u64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Comes to `stage`, if `from` says so of the present one, and wakes those that wait.
    fn come_to(&self, stage: Stage, from: impl FnOnce(&Stage) -> bool) {
        let woken = {
            let mut progress = self.lock();
            if !from(&progress.stage) {
                return;
            }
            let is_over = matches!(stage, Stage::Ended(_));
            progress.stage = stage;
            if is_over { std::mem::take(&mut progress.waiting) } else { progress.waiting.clone() }
        };
        woken.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

/// The leaders of this process.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    map: Arc<Map>,
}

impl Flights {
    /// Becomes the leader, or follows the one there is.
    pub(crate) fn lead(&self, unit: (BaseKey, usize), fingerprint: Fingerprint) -> Result<Leader, Follower> {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        match map.entry(unit) {
            Entry::Occupied(entry) => Err(Follower::of(entry.get())),
            Entry::Vacant(entry) => {
                let progress = Progress { stage: Stage::Claiming, waiting: Vec::new(), came: 0 };
                let shared = Arc::new(Shared { fingerprint, progress: Mutex::new(progress) });
                entry.insert(Arc::clone(&shared));
                Ok(Leader { map: Arc::clone(&self.map), unit, shared, end: FlightEnd::Nothing })
            }
        }
    }

    pub(crate) fn follow(&self, unit: (BaseKey, usize)) -> Option<Follower> {
        let map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        map.get(&unit).map(Follower::of)
    }
}

/// The only task of this process that may claim or look up its unit of work. Dropping it, by a panic too, tells the
/// followers how it ended.
#[derive(Debug)]
pub(crate) struct Leader {
    map: Arc<Map>,
    unit: (BaseKey, usize),
    shared: Arc<Shared>,
    end: FlightEnd,
}

impl Leader {
    pub(crate) fn unit(&self) -> (BaseKey, usize) {
        self.unit
    }

    pub(crate) fn going(&self) {
        self.shared.come_to(Stage::Going, |stage| *stage == Stage::Claiming);
    }

    pub(crate) fn end(mut self, end: FlightEnd) {
        self.end = end;
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        // Out of the map first: who comes later finds the record, who followed keeps the flight.
        self.map.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.unit);
        self.shared.come_to(Stage::Ended(self.end.clone()), |_| true);
    }
}

/// Waits for a leader.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) fingerprint: Fingerprint,
    shared: Arc<Shared>,
}

impl Follower {
    fn of(shared: &Arc<Shared>) -> Self {
        Self { fingerprint: shared.fingerprint, shared: Arc::clone(shared) }
    }

    pub(crate) fn is_claiming(&self) -> bool {
        self.shared.lock().stage == Stage::Claiming
    }

    /// Waits until the leader has claimed or given up.
    pub(crate) async fn claimed(&mut self) {
        self.reaches(|stage| (*stage != Stage::Claiming).then_some(())).await;
    }

    /// Waits for the end.
    pub(crate) async fn ended(&mut self) -> FlightEnd {
        let end = |stage: &Stage| match stage {
            Stage::Ended(end) => Some(end.clone()),
            _ => None,
        };
        self.reaches(end).await
    }

    fn reaches<T, F: Fn(&Stage) -> Option<T> + Unpin>(&self, far_enough: F) -> Reaches<'_, F> {
        Reaches { shared: &self.shared, number: None, far_enough }
    }
}

/// Ready when the leader is far enough.
struct Reaches<'a, F> {
    shared: &'a Shared,
    /// Among those that wait.
    number: Option<u64>,
    far_enough: F,
}

impl<T, F: Fn(&Stage) -> Option<T> + Unpin> Future for Reaches<'_, F> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut progress = self.shared.lock();
        // Looked at and entered under one lock: in between nobody can come to the stage that is waited for.
        if let Some(told) = (self.far_enough)(&progress.stage) {
            return Poll::Ready(told);
        }
        let waker = context.waker();
        let place = self.number.and_then(|number| progress.place(number));
        match place {
            Some(at) => progress.waiting[at].1.clone_from(waker),
            None => {
                let number = progress.came;
                progress.came += 1;
                progress.waiting.push((number, waker.clone()));
                drop(progress);
                self.number = Some(number);
            }
        }
        Poll::Pending
    }
}

impl Progress {
    fn place(&self, number: u64) -> Option<usize> {
        self.waiting.binary_search_by_key(&number, |(number, _)| *number).ok()
    }
}

impl<F> Drop for Reaches<'_, F> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut progress = self.shared.lock();
        if let Some(at) = progress.place(number) {
            progress.waiting.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit() -> (BaseKey, usize) {
        (BaseKey::from_bytes([1; 32]), 0)
    }

    #[tokio::test]
    async fn followers_of_a_leader_that_dies_are_told_to_look_again() {
        let flights = Flights::default();
        let leader = flights.lead(unit(), Fingerprint::default()).unwrap();
        let mut follower = flights.lead(unit(), Fingerprint::default()).unwrap_err();
        assert!(follower.is_claiming());
        let task = tokio::spawn(async move {
            let _leader = leader;
            panic!("on purpose");
        });
        assert!(task.await.is_err());
        follower.claimed().await;
        assert_eq!(follower.ended().await, FlightEnd::Nothing);
        assert!(flights.lead(unit(), Fingerprint::default()).is_ok(), "the place is free again");
    }

    #[tokio::test]
    async fn who_follows_after_the_end_was_told_still_hears_it() {
        let flights = Flights::default();
        let leader = flights.lead(unit(), Fingerprint::default()).unwrap();
        let mut follower = flights.follow(unit()).unwrap();
        leader.going();
        leader.end(FlightEnd::Success);
        assert_eq!(follower.ended().await, FlightEnd::Success);
        assert!(flights.follow(unit()).is_none());
    }
}
