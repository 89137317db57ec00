//! One leader for each unit of work in this process; everybody else follows.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

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
    Unrecorded(Arc<str>),
    /// The leader got nowhere: look again.
    Nothing,
}

type Map = Mutex<HashMap<(BaseKey, usize), Arc<Shared>>>;

#[derive(Debug)]
struct Shared {
    fingerprint: Fingerprint,
    stage: watch::Sender<Stage>,
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
                let shared = Arc::new(Shared { fingerprint, stage: watch::Sender::new(Stage::Claiming) });
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
        self.shared.stage.send_if_modified(|stage| {
            let changed = *stage == Stage::Claiming;
            *stage = Stage::Going;
            changed
        });
    }

    pub(crate) fn end(mut self, end: FlightEnd) {
        self.end = end;
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        // Out of the map first: who comes later finds the record, who followed keeps the channel.
        self.map.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.unit);
        self.shared.stage.send_replace(Stage::Ended(self.end.clone()));
    }
}

/// Waits for a leader.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) fingerprint: Fingerprint,
    stage: watch::Receiver<Stage>,
}

impl Follower {
    fn of(shared: &Arc<Shared>) -> Self {
        Self { fingerprint: shared.fingerprint, stage: shared.stage.subscribe() }
    }

    pub(crate) fn is_claiming(&self) -> bool {
        *self.stage.borrow() == Stage::Claiming
    }

    /// Waits until the leader has claimed or given up.
    pub(crate) async fn claimed(&mut self) {
        let _ = self.stage.wait_for(|stage| *stage != Stage::Claiming).await;
    }

    /// Waits for the end.
    pub(crate) async fn ended(&mut self) -> FlightEnd {
        match self.stage.wait_for(|stage| matches!(stage, Stage::Ended(_))).await.as_deref() {
            Ok(Stage::Ended(end)) => end.clone(),
            _ => FlightEnd::Nothing,
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
