//! Who lives: one proof of life for each process instance, not one for each claim.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::rows;
use crate::Millis;
use crate::protocol::record::{Liveness, OwnerId, Owners};
use crate::store::{Batch, Durability, Store, StoreError};

/// What this process knows of the owners of claims.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) me: OwnerId,
    /// Where every commit goes through this process, everybody else ended before it was opened.
    alone_since: Option<Millis>,
    length: Duration,
    seen: Mutex<HashMap<OwnerId, Sign>>,
}

/// The last sign of life of another owner.
#[derive(Debug, Clone)]
struct Sign {
    /// What it wrote.
    value: Vec<u8>,
    /// When this process first saw that, by its own clock.
    at: Millis,
}

impl Lease {
    pub(crate) fn new(exclusive: bool, length: Duration, now: Millis) -> Self {
        let me = OwnerId(fastrand::u128(..).to_be_bytes());
        Self { me, alone_since: exclusive.then_some(now), length, seen: Mutex::default() }
    }

    pub(crate) fn is_alone(&self) -> bool {
        self.alone_since.is_some()
    }

    pub(crate) fn length(&self) -> Duration {
        self.length
    }

    /// The owners as they look at `now`.
    pub(crate) fn at(&self, now: Millis) -> impl Owners + '_ {
        move |owner| self.liveness(owner, now)
    }

    /// An owner is silent if it wrote nothing new for a whole lease, measured from when this process began to watch.
    fn liveness(&self, owner: OwnerId, now: Millis) -> Liveness {
        if owner == self.me {
            return Liveness::Alive;
        }
        if let Some(since) = self.alone_since {
            return Liveness::Dead(since);
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let sign = seen.entry(owner).or_insert(Sign { value: Vec::new(), at: now });
        let lease = Millis::try_from(self.length.as_millis()).unwrap_or(Millis::MAX);
        if now.saturating_sub(sign.at) < lease { Liveness::Alive } else { Liveness::Silent }
    }

    /// Writes this process's sign of life and reads everybody else's.
    pub(crate) async fn beat(&self, store: &dyn Store, count: u64, now: Millis) -> Result<(), StoreError> {
        let mine = rows::owner(self.me);
        let batch = Batch { puts: vec![(mine.clone(), count.to_be_bytes().to_vec())], ..Batch::default() };
        store.commit(batch, Durability::Ordered).await?;
        let mut from = None;
        loop {
            let page = store.scan(&rows::OWNERS, from, 256).await?;
            for (key, stored) in page.items {
                if key != mine {
                    self.saw(rows::key_of_owner(&key), stored.value, now);
                }
            }
            from = page.next;
            if from.is_none() {
                return Ok(());
            }
        }
    }

    fn saw(&self, owner: Option<OwnerId>, value: Vec<u8>, now: Millis) {
        let Some(owner) = owner else { return };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match seen.get_mut(&owner) {
            Some(sign) if sign.value == value => {}
            Some(sign) => *sign = Sign { value, at: now },
            None => {
                seen.insert(owner, Sign { value, at: now });
            }
        }
    }
}
