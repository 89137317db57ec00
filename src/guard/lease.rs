//! Who lives: one proof of life for each process instance, not one for each claim.
//!
//! ```text
//! count    8 bytes  grows with each sign of life
//! mark     8 bytes  when a gc marked the row, in milliseconds; not there in a row as its owner writes it
//! ```
//!
//! A process takes its row away when it shuts down. A row that still has a gc's mark when a later gc finds it, a day or
//! more after, had no sign of life in between, and is taken away as well. Neither changes what others make of the owner:
//! without a row it is as silent as with one that doesn't change, and should it go on, its next sign makes a new one.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::rows;
use crate::Millis;
use crate::protocol::apply::millis;
use crate::protocol::record::{Liveness, OwnerId, Owners};
use crate::store::{Batch, Durability, Key, Store, StoreError, Versioned};

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
    /// What it wrote; empty if only its claims were seen.
    count: Vec<u8>,
    /// When this process first saw that, by its own clock.
    at: Millis,
    /// Whether it has no row: it shut down, or gave no sign for so long that its row was taken away.
    is_gone: bool,
}

/// A row that had no sign of life for so long since it was marked belongs to nobody.
const ABANDONED_AFTER: Millis = 24 * 60 * 60 * 1000;

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
        let sign = seen.entry(owner).or_insert(Sign { count: Vec::new(), at: now, is_gone: false });
        let is_silent = sign.is_gone || now.saturating_sub(sign.at) >= millis(self.length);
        if is_silent { Liveness::Silent } else { Liveness::Alive }
    }

    /// Writes this process's sign of life and reads everybody else's.
    pub(crate) async fn beat(&self, store: &dyn Store, count: u64, now: Millis) -> Result<(), StoreError> {
        let mine = rows::owner(self.me);
        let batch = Batch { puts: vec![(mine.clone(), count.to_be_bytes().to_vec())], ..Batch::default() };
        store.commit(batch, Durability::Ordered).await?;
        // Whoever is known before the rows are read had one by then: it gives its first sign before it claims anything.
        let mut gone = self.known();
        for (key, stored) in others(store, &mine).await? {
            if let Some(owner) = rows::key_of_owner(&key) {
                gone.remove(&owner);
                self.saw(owner, count_in(&stored.value), now);
            }
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter_mut().filter(|(owner, _)| gone.contains(owner)).for_each(|(_, sign)| sign.is_gone = true);
        Ok(())
    }

    fn known(&self) -> HashSet<OwnerId> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }

    fn saw(&self, owner: OwnerId, count: &[u8], now: Millis) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let sign = seen.entry(owner).or_insert(Sign { count: Vec::new(), at: now, is_gone: false });
        sign.is_gone = false;
        if sign.count != count {
            *sign = Sign { count: count.to_vec(), at: now, is_gone: false };
        }
    }

    /// Takes this process's sign of life away: it claims nothing more.
    pub(crate) async fn end(&self, store: &dyn Store) -> Result<(), StoreError> {
        let batch = Batch { deletes: vec![rows::owner(self.me)], ..Batch::default() };
        store.commit(batch, Durability::Ordered).await.map(drop)
    }

    /// Takes away the rows that had no sign of life since they were marked, and marks the others. `now` is the wall
    /// clock's: the mark is for processes that come after this one.
    pub(crate) async fn sweep(&self, store: &dyn Store, now: Millis) -> Result<(), StoreError> {
        for (key, stored) in others(store, &rows::owner(self.me)).await? {
            let mut batch = Batch { checks: vec![(key.clone(), Some(stored.version))], ..Batch::default() };
            match mark_in(&stored.value) {
                None => batch.puts.push((key, [count_in(&stored.value), &now.to_be_bytes()].concat())),
                Some(marked) if now.saturating_sub(marked) >= ABANDONED_AFTER => batch.deletes.push(key),
                Some(_) => continue,
            }
            // A conflict means that it lives.
            store.commit(batch, Durability::Ordered).await?;
        }
        Ok(())
    }
}

/// The rows of all owners but one.
async fn others(store: &dyn Store, mine: &Key) -> Result<Vec<(Key, Versioned)>, StoreError> {
    let (mut found, mut from) = (Vec::new(), None);
    loop {
        let page = store.scan(&rows::OWNERS, from, 256).await?;
        found.extend(page.items.into_iter().filter(|(key, _)| key != mine));
        from = page.next;
        if from.is_none() {
            return Ok(found);
        }
    }
}

fn count_in(row: &[u8]) -> &[u8] {
    row.get(..8).unwrap_or(row)
}

/// When a gc marked it.
fn mark_in(row: &[u8]) -> Option<Millis> {
    row.get(8..)?.try_into().ok().map(Millis::from_be_bytes)
}
