//! The store of a case: one that can be crashed and made to fail, with every operation counted.
//!
//! ```text
//! guard → Door (one per process: pause) → FaultyStore (one per case) → Counted → memory or sled
//! ```

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail};
use tempfile::TempDir;
use tokio::sync::{Notify, watch};
use toolonce::store::{
    Batch, BoxFuture, Committed, Durability, Identity, Key, MemoryStore, Page, Purpose, SledStore, Store, StoreError,
    Versioned,
};

/// Which store a case runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// The memory store.
    Memory,
    /// The sled store, in a directory of its own.
    Sled,
}

impl StoreKind {
    /// Both, in the order in which they are reported.
    pub const ALL: [Self; 2] = [Self::Memory, Self::Sled];

    /// The name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sled => "sled",
        }
    }
}

/// What lies under a case, and how to crash it.
pub(super) enum Ground {
    Memory(MemoryStore),
    Sled {
        store: Arc<SledStore>,
        directory: TempDir,
        backup: Option<TempDir>,
    },
    /// A store with several processes on it: killing one of them leaves the data as it is.
    Shared(Box<Ground>),
}

impl Ground {
    pub(super) async fn open(kind: StoreKind, shared: bool) -> anyhow::Result<Self> {
        let ground = match kind {
            StoreKind::Memory => Self::Memory(MemoryStore::new()),
            StoreKind::Sled => Self::sled(tempfile::tempdir()?).await?,
        };
        Ok(if shared { Self::Shared(Box::new(ground)) } else { ground })
    }

    async fn sled(directory: TempDir) -> anyhow::Result<Self> {
        let store = Arc::new(SledStore::open(store_in(&directory)).await?);
        Ok(Self::Sled { store, directory, backup: None })
    }

    pub(super) fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Memory(store) => Arc::new(store.clone()),
            Self::Sled { store, .. } => Arc::clone(store) as Arc<dyn Store>,
            Self::Shared(ground) => ground.store(),
        }
    }

    /// Whether several processes use it, so that none may take itself for the only one.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    /// What the next process finds after a kill.
    pub(super) async fn crash(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Memory(store) => *store = store.crash(),
            Self::Shared(_) => {}
            Self::Sled { store, directory, backup } => {
                store.abandon();
                let copy = tempfile::tempdir()?;
                // The witness, which lies beside the store, too.
                copy_directory(directory.path(), copy.path()).context("copying the store's directory")?;
                let store = Arc::new(SledStore::open(store_in(&copy)).await?);
                *self = Self::Sled { store, directory: copy, backup: backup.take() };
            }
        }
        Ok(())
    }

    /// Copies the store's directory while the store is open, as a snapshot of the file system would.
    pub(super) async fn back_up(&mut self) -> anyhow::Result<()> {
        let Self::Sled { store, directory, backup } = self else { bail!("only a store on disk can be copied") };
        // A read waits until what it has seen is synced.
        store.scan(b"", None, usize::MAX).await?;
        let copy = tempfile::tempdir()?;
        copy_directory(&store_in(directory), copy.path()).context("copying the store's directory")?;
        *backup = Some(copy);
        Ok(())
    }

    /// The program ends in good order, its store is deleted, or the copy is put in its place, and the program starts.
    pub(super) async fn swap(&mut self, for_backup: bool) -> anyhow::Result<Result<(), StoreError>> {
        let Self::Sled { store, directory, backup } = self else { bail!("only a store on disk can be deleted") };
        store.close().await?;
        std::fs::remove_dir_all(store_in(directory)).context("deleting the store's directory")?;
        if for_backup {
            let copy = backup.as_ref().context("there is no backup")?;
            copy_directory(copy.path(), &store_in(directory)).context("copying the backup")?;
        }
        Ok(SledStore::open(store_in(directory)).await.map(drop))
    }
}

fn store_in(directory: &TempDir) -> PathBuf {
    directory.path().join("store")
}

fn copy_directory(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_directory(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Tells whether the store has work in hand: while it has, time must not move. Lives on over crashes; what is under it
/// changes.
pub(super) struct Counted {
    under: Mutex<Arc<dyn Store>>,
    /// Whether several guards use it: the store itself only knows of one process.
    shared: bool,
    in_flight: AtomicUsize,
    begun: AtomicUsize,
    ended: Notify,
    /// Reads are answered in the order in which they were asked: which of two equal calls comes first must not depend
    /// on a store's threads.
    reading: tokio::sync::Mutex<()>,
}

/// One operation; it ends when its future is dropped, too.
struct Operation<'a>(&'a Counted);

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
        self.0.ended.notify_waiters();
    }
}

impl Counted {
    pub(super) fn new(ground: &Ground) -> Self {
        Self {
            under: Mutex::new(ground.store()),
            shared: ground.is_shared(),
            in_flight: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            ended: Notify::new(),
            reading: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn replace(&self, under: Arc<dyn Store>) {
        *self.under.lock().unwrap_or_else(PoisonError::into_inner) = under;
    }

    fn under(&self) -> Arc<dyn Store> {
        Arc::clone(&self.under.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn begin(&self) -> Operation<'_> {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        self.begun.fetch_add(1, Ordering::AcqRel);
        Operation(self)
    }

    /// How many operations were begun so far.
    pub(super) fn begun(&self) -> usize {
        self.begun.load(Ordering::Acquire)
    }

    /// Waits until none is in flight.
    pub(super) async fn idle(&self) {
        loop {
            let ended = self.ended.notified();
            if self.in_flight.load(Ordering::Acquire) == 0 {
                return;
            }
            ended.await;
        }
    }
}

impl Store for Counted {
    fn get<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Versioned>>, StoreError>> {
        let under = self.under();
        Box::pin(async move {
            let _operation = self.begin();
            let _reading = self.reading.lock().await;
            under.get(keys).await
        })
    }

    fn commit(&self, batch: Batch, durability: Durability) -> BoxFuture<'_, Result<Committed, StoreError>> {
        let under = self.under();
        Box::pin(async move {
            let _operation = self.begin();
            under.commit(batch, durability).await
        })
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a [u8],
        from: Option<Key>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page, StoreError>> {
        let under = self.under();
        Box::pin(async move {
            let _operation = self.begin();
            let _reading = self.reading.lock().await;
            under.scan(prefix, from, limit).await
        })
    }

    fn identity(&self) -> Identity {
        self.under().identity()
    }

    fn is_exclusive(&self) -> bool {
        !self.shared && self.under().is_exclusive()
    }

    fn changed<'a>(&'a self, keys: &'a [Key]) -> Option<BoxFuture<'a, ()>> {
        let under = self.under();
        Some(Box::pin(async move {
            match under.changed(keys) {
                Some(changed) => changed.await,
                None => std::future::pending().await,
            }
        }))
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        let under = self.under();
        Box::pin(async move { under.close().await })
    }
}

/// One process's way to the store; shut while the process is stopped.
pub(super) struct Door {
    inner: Arc<dyn Store>,
    open: watch::Sender<bool>,
    shuts_after_claim: AtomicBool,
}

impl Door {
    pub(super) fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, open: watch::Sender::new(true), shuts_after_claim: AtomicBool::new(false) }
    }

    pub(super) fn shut(&self) {
        self.open.send_replace(false);
    }

    /// The next claim goes through, and its answer is held back.
    pub(super) fn shut_after_claim(&self) {
        self.shuts_after_claim.store(true, Ordering::Release);
    }

    pub(super) fn open(&self) {
        self.shuts_after_claim.store(false, Ordering::Release);
        self.open.send_replace(true);
    }

    async fn pass(&self) {
        // The sender lives in `self`.
        let _ = self.open.subscribe().wait_for(|open| *open).await;
    }
}

impl Store for Door {
    fn get<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Versioned>>, StoreError>> {
        Box::pin(async move {
            self.pass().await;
            self.inner.get(keys).await
        })
    }

    fn commit(&self, batch: Batch, durability: Durability) -> BoxFuture<'_, Result<Committed, StoreError>> {
        Box::pin(async move {
            self.pass().await;
            let claims = batch.purpose == Purpose::Claim;
            let committed = self.inner.commit(batch, durability).await;
            if claims && self.shuts_after_claim.swap(false, Ordering::AcqRel) {
                self.shut();
                self.pass().await;
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
        Box::pin(async move {
            self.pass().await;
            self.inner.scan(prefix, from, limit).await
        })
    }

    fn identity(&self) -> Identity {
        self.inner.identity()
    }

    fn is_exclusive(&self) -> bool {
        self.inner.is_exclusive()
    }

    fn changed<'a>(&'a self, keys: &'a [Key]) -> Option<BoxFuture<'a, ()>> {
        self.inner.changed(keys)
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.close()
    }
}
