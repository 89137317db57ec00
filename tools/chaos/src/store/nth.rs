//! A store that fails at its n-th operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use toolonce::store::{
    Batch, BoxFuture, Committed, Durability, Identity, Key, Page, Store, StoreError, StoreErrorKind, Versioned,
};
use toolonce::testing::{FaultKind, FaultOn, FaultyStore};

/// How it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    kind: FaultKind,
    /// Until it is healed, else once.
    lasts: bool,
}

const fn fault(kind: FaultKind, lasts: bool) -> Fault {
    Fault { kind, lasts }
}

impl Fault {
    /// Every way.
    pub(super) const ALL: [Self; 10] = [
        fault(FaultKind::Unavailable, false),
        fault(FaultKind::Unavailable, true),
        fault(FaultKind::Full, false),
        fault(FaultKind::Full, true),
        fault(FaultKind::SyncError { applied: true }, false),
        fault(FaultKind::SyncError { applied: false }, false),
        fault(FaultKind::SyncError { applied: true }, true),
        fault(FaultKind::SyncError { applied: false }, true),
        fault(FaultKind::Corrupt, false),
        fault(FaultKind::Corrupt, true),
    ];

    pub(super) fn name(self) -> &'static str {
        match self.kind {
            FaultKind::Unavailable => "unavailable",
            FaultKind::Full => "full",
            FaultKind::SyncError { applied: true } => "sync failed, applied",
            FaultKind::SyncError { applied: false } => "sync failed, not applied",
            FaultKind::Corrupt => "corrupt",
        }
    }

    /// A disk is full for who writes; a read has nothing to sync; a commit finds nothing unreadable.
    fn hits(self, is_read: bool) -> bool {
        match self.kind {
            FaultKind::Unavailable => true,
            FaultKind::Full | FaultKind::SyncError { .. } => !is_read,
            FaultKind::Corrupt => is_read,
        }
    }
}

/// Counts operations, and fails at one of them.
pub(super) struct Nth {
    store: FaultyStore,
    at: Option<(u64, Fault)>,
    done: AtomicU64,
}

impl Nth {
    pub(super) fn new(store: FaultyStore, at: Option<(u64, Fault)>) -> Arc<Self> {
        Arc::new(Self { store, at, done: AtomicU64::new(0) })
    }

    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }

    /// Whether the fault has hit.
    pub(super) fn has_hit(&self) -> bool {
        self.store.hits(FaultOn::All) > 0
    }

    /// Works from now on.
    pub(super) fn heal(&self) {
        self.store.clear();
    }

    fn next(&self, is_read: bool) {
        let n = self.done.fetch_add(1, Ordering::SeqCst);
        if let Some((at, fault)) = self.at
            && n == at
            && fault.hits(is_read)
        {
            self.store.fault(FaultOn::All, fault.kind, (!fault.lasts).then_some(1));
        }
    }
}

/// The store that a guard gets.
pub(super) struct Handle(pub(super) Arc<Nth>);

impl Store for Handle {
    fn get<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Versioned>>, StoreError>> {
        self.0.next(true);
        self.0.store.get(keys)
    }

    fn commit(&self, batch: Batch, durability: Durability) -> BoxFuture<'_, Result<Committed, StoreError>> {
        self.0.next(false);
        self.0.store.commit(batch, durability)
    }

    fn scan<'a>(&'a self, prefix: &'a [u8], from: Option<Key>, most: usize) -> BoxFuture<'a, Result<Page, StoreError>> {
        self.0.next(true);
        self.0.store.scan(prefix, from, most)
    }

    fn identity(&self) -> Identity {
        self.0.store.identity()
    }

    fn is_exclusive(&self) -> bool {
        self.0.store.is_exclusive()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            match self.0.store.close().await {
                // A script closes what it has broken.
                Err(error) if error.kind() == StoreErrorKind::Uncertain => Ok(()),
                closed => closed,
            }
        })
    }
}
