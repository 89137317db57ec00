//! A store that fails on demand.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::store::{
    Batch, BoxFuture, Committed, Durability, Identity, Key, Page, Purpose, Store, StoreError, StoreErrorKind, Versioned,
};

/// Which traffic a fault hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultOn {
    /// Commits that take a key.
    Claim,
    /// Commits that record an end.
    Complete,
    /// `get` and `scan`.
    Read,
    /// Everything.
    All,
}

/// What a fault looks like to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The store can't be reached; nothing is changed.
    Unavailable,
    /// The store is full; nothing is changed.
    Full,
    /// The sync failed: the caller can't know whether the commit was applied. The store then opens itself anew, once, and
    /// works on; if the fault has any times left, that fails too, and every later call fails the same way until
    /// [`FaultyStore::clear`]. Told from a read, it only fails.
    SyncError {
        /// Whether it was, as shows afterwards.
        applied: bool,
    },
    /// Stored bytes can't be read; nothing is changed.
    Corrupt,
}

type Classifier = dyn Fn(&Batch, Durability) -> Option<FaultOn> + Send + Sync;

/// Wraps a store and makes it fail or hang on demand. Clones are handles on the same store.
///
/// As with the real ones, dropping the future of a commit doesn't take it back: it is carried out by a task of its own,
/// so commits need a tokio runtime.
#[derive(Clone)]
pub struct FaultyStore {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    classify: Box<Classifier>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    faults: Vec<Fault>,
    hits: HashMap<FaultOn, u64>,
    poisoned: bool,
    paused: bool,
    /// Who waits for [`FaultyStore::resume`], in order.
    waiting: Vec<oneshot::Sender<()>>,
}

struct Fault {
    on: FaultOn,
    kind: FaultKind,
    left: Option<u32>,
}

impl FaultyStore {
    /// A store that behaves as `store` until told otherwise. Commits are told apart by [`Batch::purpose`].
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self::with_classifier(store, |batch, _| match batch.purpose {
            Purpose::Claim => Some(FaultOn::Claim),
            Purpose::Complete => Some(FaultOn::Complete),
            _ => None,
        })
    }

    /// As [`new`](Self::new), with commits told apart by `classify`; those for which it returns `None` are hit by
    /// [`FaultOn::All`] only.
    pub fn with_classifier(
        store: Arc<dyn Store>,
        classify: impl Fn(&Batch, Durability) -> Option<FaultOn> + Send + Sync + 'static,
    ) -> Self {
        Self { inner: Arc::new(Inner { store, classify: Box::new(classify), state: Mutex::default() }) }
    }

    /// Makes the next `times` calls of that traffic fail, or all until [`clear`](Self::clear) with `None`. Of several
    /// faults that fit, the one set first is used.
    pub fn fault(&self, on: FaultOn, kind: FaultKind, times: Option<u32>) {
        self.inner.lock().faults.push(Fault { on, kind, left: times });
    }

    /// Ends all faults, the aftermath of a sync error included. Paused traffic stays paused, and hits stay counted.
    pub fn clear(&self) {
        let mut state = self.inner.lock();
        state.faults.clear();
        state.poisoned = false;
    }

    /// Holds all traffic back until [`resume`](Self::resume).
    pub fn pause(&self) {
        self.inner.lock().paused = true;
    }

    /// Lets traffic go on, in the order in which it came. Commits whose callers are gone are carried out too.
    pub fn resume(&self) {
        let mut state = self.inner.lock();
        state.paused = false;
        for waiting in state.waiting.drain(..) {
            // A reader that is gone reads nothing.
            let _ = waiting.send(());
        }
    }

    /// How many calls that traffic's faults have hit; for [`FaultOn::All`], all faults together.
    pub fn hits(&self, on: FaultOn) -> u64 {
        let state = self.inner.lock();
        match on {
            FaultOn::All => state.hits.values().sum(),
            on => state.hits.get(&on).copied().unwrap_or(0),
        }
    }

    async fn read<T>(&self, read: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        self.inner.gate().await;
        match self.inner.strike(Some(FaultOn::Read))? {
            None => read.await,
            Some(kind) => Err(error(kind)),
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while the store is paused.
    async fn gate(&self) {
        let waiting = {
            let mut state = self.lock();
            state.paused.then(|| {
                let (sender, waiting) = oneshot::channel();
                state.waiting.push(sender);
                waiting
            })
        };
        if let Some(waiting) = waiting {
            // The sender lives in `self` until it is used.
            drop(waiting.await);
        }
    }

    /// The fault that hits a call of this traffic, if any; an error if the store is poisoned.
    fn strike(&self, traffic: Option<FaultOn>) -> Result<Option<FaultKind>, StoreError> {
        let mut state = self.lock();
        if state.poisoned {
            return Err(error(FaultKind::SyncError { applied: false }));
        }
        let hits = |fault: &Fault| fault.on == FaultOn::All || Some(fault.on) == traffic;
        let Some(fault) = state.faults.iter_mut().find(|fault| fault.left != Some(0) && hits(fault)) else {
            return Ok(None);
        };
        fault.left = fault.left.map(|left| left - 1);
        let kind = fault.kind;
        if matches!(kind, FaultKind::SyncError { .. }) && fault.left != Some(0) {
            // The next one hits the opening anew.
            fault.left = fault.left.map(|left| left - 1);
            state.poisoned = true;
        }
        *state.hits.entry(traffic.unwrap_or(FaultOn::All)).or_default() += 1;
        Ok(Some(kind))
    }

    async fn commit(&self, batch: Batch, durability: Durability) -> Result<Committed, StoreError> {
        self.gate().await;
        let Some(kind) = self.strike((self.classify)(&batch, durability))? else {
            return self.store.commit(batch, durability).await;
        };
        if kind == (FaultKind::SyncError { applied: true }) {
            self.store.commit(batch, durability).await?;
        }
        Err(error(kind))
    }
}

fn error(kind: FaultKind) -> StoreError {
    match kind {
        FaultKind::Unavailable => StoreError::new(StoreErrorKind::Unavailable, "the store can't be reached (injected)"),
        FaultKind::Full => StoreError::new(StoreErrorKind::Unavailable, "the store is full (injected)"),
        FaultKind::SyncError { .. } => {
            StoreError::new(StoreErrorKind::Uncertain, "a sync failed: what was stored isn't known (injected)")
        }
        FaultKind::Corrupt => StoreError::new(StoreErrorKind::Corrupt, "stored bytes can't be read (injected)"),
    }
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.inner.lock();
        f.debug_struct("FaultyStore")
            .field("paused", &state.paused)
            .field("poisoned", &state.poisoned)
            .finish_non_exhaustive()
    }
}

impl Store for FaultyStore {
    fn get<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Versioned>>, StoreError>> {
        Box::pin(self.read(self.inner.store.get(keys)))
    }

    fn commit(&self, batch: Batch, durability: Durability) -> BoxFuture<'_, Result<Committed, StoreError>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            let task = tokio::spawn(async move { inner.commit(batch, durability).await });
            task.await.unwrap_or_else(|error| {
                Err(StoreError::new(StoreErrorKind::Uncertain, format!("the commit's task ended early: {error}")))
            })
        })
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a [u8],
        from: Option<Key>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page, StoreError>> {
        Box::pin(self.read(self.inner.store.scan(prefix, from, limit)))
    }

    fn identity(&self) -> Identity {
        self.inner.store.identity()
    }

    fn is_exclusive(&self) -> bool {
        self.inner.store.is_exclusive()
    }

    fn changed<'a>(&'a self, keys: &'a [Key]) -> Option<BoxFuture<'a, ()>> {
        self.inner.store.changed(keys)
    }

    fn now(&self) -> Option<BoxFuture<'_, Result<u64, StoreError>>> {
        self.inner.store.now()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.store.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    fn store() -> FaultyStore {
        FaultyStore::new(Arc::new(MemoryStore::new()))
    }

    fn put(key: &str, purpose: Purpose) -> Batch {
        Batch { puts: vec![(Key::new(key.as_bytes()), b"v".to_vec())], purpose, ..Batch::default() }
    }

    async fn has(store: &FaultyStore, key: &str) -> bool {
        store.get(&[Key::new(key.as_bytes())]).await.unwrap()[0].is_some()
    }

    #[tokio::test]
    async fn a_fault_hits_its_traffic_as_often_as_told() {
        let store = store();
        store.fault(FaultOn::Claim, FaultKind::Unavailable, Some(1));
        store.commit(put("end", Purpose::Complete), Durability::Synced).await.unwrap();
        let error = store.commit(put("claim", Purpose::Claim), Durability::Synced).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        assert!(!has(&store, "claim").await);
        store.commit(put("claim", Purpose::Claim), Durability::Synced).await.unwrap();
        assert_eq!((store.hits(FaultOn::Claim), store.hits(FaultOn::All)), (1, 1));
    }

    #[tokio::test]
    async fn after_one_sync_error_the_store_works_on() {
        for applied in [true, false] {
            let store = store();
            store.fault(FaultOn::Complete, FaultKind::SyncError { applied }, Some(1));
            let error = store.commit(put("end", Purpose::Complete), Durability::Synced).await.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Uncertain);
            assert_eq!(has(&store, "end").await, applied);
        }
    }

    #[tokio::test]
    async fn a_second_sync_error_poisons_until_cleared_and_then_shows_what_happened() {
        for (applied, times) in [(true, Some(2)), (false, Some(2)), (true, None)] {
            let store = store();
            store.fault(FaultOn::Complete, FaultKind::SyncError { applied }, times);
            let error = store.commit(put("end", Purpose::Complete), Durability::Synced).await.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Uncertain);
            assert_eq!(store.scan(b"", None, 1).await.unwrap_err().kind(), StoreErrorKind::Uncertain);
            store.clear();
            assert_eq!(has(&store, "end").await, applied);
        }
    }

    #[tokio::test]
    async fn a_paused_commit_happens_on_resume_without_its_caller() {
        let store = store();
        store.pause();
        let handle = store.clone();
        let caller = tokio::spawn(async move { handle.commit(put("a", Purpose::Claim), Durability::Synced).await });
        while store.inner.lock().waiting.is_empty() {
            tokio::task::yield_now().await;
        }
        caller.abort();
        assert!(caller.await.unwrap_err().is_cancelled());
        store.resume();
        while !has(&store, "a").await {
            tokio::task::yield_now().await;
        }
    }
}
