//! A store that counts what the guard asks of the one behind it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use toolonce::store::{
    Batch, BoxFuture, Committed, Durability, Identity, Key, Page, Purpose, Store, StoreError, Versioned,
};

/// Commits of one purpose.
#[derive(Debug, Default)]
pub struct Commits {
    count: AtomicU64,
    bytes: AtomicU64,
}

impl Commits {
    /// How many bytes of keys and values one of them puts, on average.
    pub fn mean_bytes(&self) -> usize {
        let count = self.count.load(Ordering::Relaxed).max(1);
        (self.bytes.load(Ordering::Relaxed) / count) as usize
    }

    fn add(&self, batch: &Batch) {
        let bytes = batch.puts.iter().map(|(key, value)| key.as_bytes().len() + value.len()).sum::<usize>();
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// What was counted.
#[derive(Debug, Default)]
pub struct Counts {
    /// Claims.
    pub claims: Commits,
    /// Ends of attempts.
    pub ends: Commits,
    commits: AtomicU64,
    synced: AtomicU64,
    rows: AtomicU64,
    answered: AtomicU64,
    completed: Mutex<Option<Instant>>,
}

impl Counts {
    /// How many commits were asked for.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::SeqCst)
    }

    /// How many of them had to be safe before they were answered.
    pub fn synced(&self) -> u64 {
        self.synced.load(Ordering::SeqCst)
    }

    /// How many rows they put.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::SeqCst)
    }

    /// Whether a commit is under way.
    pub fn is_busy(&self) -> bool {
        self.answered.load(Ordering::SeqCst) < self.commits()
    }

    /// When the newest end of an attempt was safe.
    pub fn completed(&self) -> Option<Instant> {
        *self.completed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Passes everything on, and counts commits.
pub struct Counted {
    store: Arc<dyn Store>,
    counts: Arc<Counts>,
}

impl Counted {
    /// Around `store`.
    pub fn new(store: Arc<dyn Store>) -> (Self, Arc<Counts>) {
        let counts = Arc::<Counts>::default();
        (Self { store, counts: Arc::clone(&counts) }, counts)
    }
}

impl Store for Counted {
    fn get<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Versioned>>, StoreError>> {
        self.store.get(keys)
    }

    fn commit(&self, batch: Batch, durability: Durability) -> BoxFuture<'_, Result<Committed, StoreError>> {
        let purpose = batch.purpose;
        match purpose {
            Purpose::Claim => self.counts.claims.add(&batch),
            Purpose::Complete => self.counts.ends.add(&batch),
            _ => {}
        }
        self.counts.rows.fetch_add(batch.puts.len() as u64, Ordering::SeqCst);
        self.counts.synced.fetch_add(u64::from(durability == Durability::Synced), Ordering::SeqCst);
        self.counts.commits.fetch_add(1, Ordering::SeqCst);
        let commit = self.store.commit(batch, durability);
        Box::pin(async move {
            let committed = commit.await;
            self.counts.answered.fetch_add(1, Ordering::SeqCst);
            if purpose == Purpose::Complete {
                *self.counts.completed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            }
            committed
        })
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a [u8],
        from: Option<Key>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page, StoreError>> {
        self.store.scan(prefix, from, limit)
    }

    fn identity(&self) -> Identity {
        self.store.identity()
    }

    fn is_exclusive(&self) -> bool {
        self.store.is_exclusive()
    }

    fn changed<'a>(&'a self, keys: &'a [Key]) -> Option<BoxFuture<'a, ()>> {
        self.store.changed(keys)
    }

    fn now(&self) -> Option<BoxFuture<'_, Result<u64, StoreError>>> {
        self.store.now()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.store.close()
    }
}
