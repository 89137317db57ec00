//! A store that stops before one of its operations, so that others can act at that very moment.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use toolonce::store::{
    Batch, BoxFuture, Committed, Durability, Identity, Key, MemoryStore, Page, Store, StoreError, StoreErrorKind,
    Versioned,
};

use crate::desk::Desk;

/// Stops before its `n`-th operation, counted from 0 when it is armed, until it is told to go on. It may also die there.
#[derive(Clone)]
pub(crate) struct Stops {
    inner: MemoryStore,
    /// How many operations are yet to come before it; the most there is if it isn't armed.
    left: Arc<AtomicUsize>,
    reached: Arc<Semaphore>,
    go: Arc<Semaphore>,
    is_dead: Arc<AtomicBool>,
}

impl Stops {
    pub(crate) fn new(inner: MemoryStore) -> Self {
        let shut = || Arc::new(Semaphore::new(0));
        let left = Arc::new(AtomicUsize::new(usize::MAX));
        Self { inner, left, reached: shut(), go: shut(), is_dead: Arc::default() }
    }

    pub(crate) fn stop_after(&self, operations: usize) {
        self.left.store(operations, Ordering::SeqCst);
    }

    /// Whether it stopped; `false` if it was not reached while the tasks went as far as they got.
    pub(crate) async fn stopped(&self, desk: &Desk) -> bool {
        desk.settle().await;
        self.stop_after(usize::MAX);
        self.reached.try_acquire().map(|permit| permit.forget()).is_ok()
    }

    /// Waits until `task` stopped before its `n`-th operation; if it never did, it has ended.
    pub(crate) async fn stop_at<T>(&self, n: usize, task: &mut JoinHandle<T>) -> Option<T> {
        self.stop_after(n);
        let ended = tokio::select! {
            biased;
            () = async { self.reached.acquire().await.unwrap().forget() } => None,
            ended = task => Some(ended.unwrap()),
        };
        self.stop_after(usize::MAX);
        ended
    }

    pub(crate) fn go(&self) {
        self.go.add_permits(1);
    }

    /// From here on nothing works any more.
    pub(crate) fn die(&self) {
        self.is_dead.store(true, Ordering::SeqCst);
    }

    async fn step<T>(&self, step: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let next = |left| match left {
            usize::MAX => None,
            0 => Some(usize::MAX),
            left => Some(left - 1),
        };
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next) == Ok(0) {
            self.reached.add_permits(1);
            self.go.acquire().await.unwrap().forget();
        }
        if self.is_dead.load(Ordering::SeqCst) {
            return Err(StoreError::new(StoreErrorKind::Unavailable, "the machine is off"));
        }
        step.await
    }
}

impl Store for Stops {
    fn get<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Versioned>>, StoreError>> {
        Box::pin(self.step(self.inner.get(keys)))
    }

    fn commit(&self, batch: Batch, durability: Durability) -> BoxFuture<'_, Result<Committed, StoreError>> {
        Box::pin(self.step(self.inner.commit(batch, durability)))
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a [u8],
        from: Option<Key>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page, StoreError>> {
        Box::pin(self.step(self.inner.scan(prefix, from, limit)))
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
