//! The memory store.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::wakeups::Wakeups;
use super::{
    Batch, BoxFuture, Committed, Durability, Identity, Key, Page, Store, StoreError, StoreErrorKind, Version,
    Versioned, limits,
};

/// How many keys may have an unsynced change. A store with a disk would have synced by then.
const UNSYNCED_MAX: usize = 1024;

/// A store in memory: nothing survives the process. For tests, and for work that needs no memory of an earlier one.
///
/// A clone is another handle on the same data; closing one handle leaves the others open.
///
/// # Example
///
/// ```
/// use toolonce::store::{Batch, Committed, Durability, Key, MemoryStore, Store};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let store = MemoryStore::new();
/// let key = Key::new(*b"colour");
/// let claim = Batch {
///     checks: vec![(key.clone(), None)],
///     puts: vec![(key.clone(), b"red".to_vec())],
///     ..Batch::default()
/// };
/// assert!(matches!(store.commit(claim.clone(), Durability::Synced).await?, Committed::Applied(_)));
/// let Committed::Conflict(existing) = store.commit(claim, Durability::Synced).await? else { panic!() };
/// assert_eq!(existing[0].as_ref().unwrap().value, b"red");
/// # Ok::<_, toolonce::store::StoreError>(())
/// # })?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct MemoryStore {
    data: Arc<Mutex<Data>>,
    wakeups: Arc<Wakeups>,
    exclusive: bool,
    closed: AtomicBool,
}

impl MemoryStore {
    /// An empty store used by one guard: [`is_exclusive`](Store::is_exclusive) is true.
    pub fn new() -> Self {
        Self::open(Data::new(), true)
    }

    /// An empty store whose clones are given to several guards, as if each were a process of its own:
    /// [`is_exclusive`](Store::is_exclusive) is false.
    pub fn shared() -> Self {
        Self::open(Data::new(), false)
    }

    fn open(data: Data, exclusive: bool) -> Self {
        let data = Arc::new(Mutex::new(data));
        Self { data, wakeups: Arc::default(), exclusive, closed: AtomicBool::new(false) }
    }

    /// What a process finds that opens the store after a power cut: only what was synced. All handles on the old data
    /// answer [`StoreErrorKind::Closed`] from now on.
    #[cfg(feature = "testing")]
    pub fn crash(&self) -> Self {
        let mut old = self.lock();
        old.forget_unsynced();
        self.restart(old)
    }

    /// What a process finds that opens the store after all handles were closed: everything. All handles on the old
    /// data answer [`StoreErrorKind::Closed`] from now on.
    #[cfg(feature = "testing")]
    pub fn reopen(&self) -> Self {
        let mut old = self.lock();
        old.sync();
        self.restart(old)
    }

    #[cfg(feature = "testing")]
    fn restart(&self, mut old: MutexGuard<'_, Data>) -> Self {
        let values = std::mem::take(&mut old.values);
        let mut data = Data { values, sequence: old.sequence, identity: old.identity.clone(), ..Data::new() };
        data.identity.incarnation += 1;
        old.dead = true;
        drop(old);
        self.wakeups.wake_all();
        Self::open(data, self.exclusive)
    }

    fn lock(&self) -> MutexGuard<'_, Data> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn usable(&self) -> Result<MutexGuard<'_, Data>, StoreError> {
        let data = self.lock();
        if self.closed.load(Ordering::Acquire) || data.dead {
            return Err(StoreError::new(StoreErrorKind::Closed, "the memory store is closed"));
        }
        Ok(data)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for MemoryStore {
    fn clone(&self) -> Self {
        Self {
            data: Arc::clone(&self.data),
            wakeups: Arc::clone(&self.wakeups),
            exclusive: self.exclusive,
            closed: AtomicBool::new(false),
        }
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("exclusive", &self.exclusive).finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    fn get<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Versioned>>, StoreError>> {
        Box::pin(async move { Ok(self.usable()?.read(keys)) })
    }

    fn commit(&self, batch: Batch, durability: Durability) -> BoxFuture<'_, Result<Committed, StoreError>> {
        Box::pin(async move {
            limits::check(&batch)?;
            let changed = batch.puts.iter().map(|(key, _)| key).chain(&batch.deletes).cloned().collect::<Vec<_>>();
            let committed = self.usable()?.commit(batch, durability);
            if matches!(committed, Committed::Applied(_)) {
                self.wakeups.wake(&changed);
            }
            Ok(committed)
        })
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a [u8],
        from: Option<Key>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page, StoreError>> {
        Box::pin(async move { Ok(self.usable()?.scan(prefix, from, limit)) })
    }

    fn identity(&self) -> Identity {
        self.lock().identity.clone()
    }

    fn is_exclusive(&self) -> bool {
        self.exclusive
    }

    fn changed<'a>(&'a self, keys: &'a [Key]) -> Option<BoxFuture<'a, ()>> {
        Some(Box::pin(self.wakeups.wait(keys)))
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.lock().sync();
            self.closed.store(true, Ordering::Release);
            self.wakeups.wake_all();
            Ok(())
        })
    }
}

struct Data {
    values: BTreeMap<Key, Versioned>,
    /// What unsynced commits replaced: key → the synced value, `None` if there was none.
    unsynced: HashMap<Key, Option<Versioned>>,
    /// Sequence number of the newest commit, synced or not.
    sequence: u64,
    identity: Identity,
    dead: bool,
}

impl Data {
    fn new() -> Self {
        Self {
            values: BTreeMap::new(),
            unsynced: HashMap::new(),
            sequence: 0,
            identity: Identity { store: fastrand::u128(..).to_be_bytes(), incarnation: 1, sequence: 0 },
            dead: false,
        }
    }

    fn read(&mut self, keys: &[Key]) -> Vec<Option<Versioned>> {
        if keys.iter().any(|key| self.unsynced.contains_key(key)) {
            self.sync();
        }
        keys.iter().map(|key| self.values.get(key).cloned()).collect()
    }

    fn commit(&mut self, batch: Batch, durability: Durability) -> Committed {
        let holds = |(key, version): &(Key, Option<Version>)| self.values.get(key).map(|v| v.version) == *version;
        if !batch.checks.iter().all(holds) {
            let keys = batch.checks.into_iter().map(|(key, _)| key).collect::<Vec<_>>();
            return Committed::Conflict(self.read(&keys));
        }
        self.sequence += 1;
        let version = Version(self.sequence);
        for (key, value) in batch.puts {
            let replaced = self.values.insert(key.clone(), Versioned { version, value });
            self.unsynced.entry(key).or_insert(replaced);
        }
        for key in batch.deletes {
            let removed = self.values.remove(&key);
            self.unsynced.entry(key).or_insert(removed);
        }
        if durability == Durability::Synced || self.unsynced.len() > UNSYNCED_MAX {
            self.sync();
        }
        Committed::Applied(version)
    }

    fn scan(&mut self, prefix: &[u8], from: Option<Key>, limit: usize) -> Page {
        if self.unsynced.keys().any(|key| key.as_bytes().starts_with(prefix)) {
            self.sync();
        }
        let start = from.unwrap_or_else(|| Key::new(prefix)).max(Key::new(prefix));
        let mut rest = self.values.range(start..).take_while(|(key, _)| key.as_bytes().starts_with(prefix));
        let items = rest.by_ref().take(limit.max(1)).map(|(key, value)| (key.clone(), value.clone())).collect();
        Page { items, next: rest.next().map(|(key, _)| key.clone()) }
    }

    fn sync(&mut self) {
        self.unsynced.clear();
        self.identity.sequence = self.sequence;
    }

    /// Takes unsynced commits back. Their sequence numbers are spent: a version that was once told isn't given out
    /// again.
    #[cfg(feature = "testing")]
    fn forget_unsynced(&mut self) {
        for (key, synced) in std::mem::take(&mut self.unsynced) {
            match synced {
                Some(value) => self.values.insert(key, value),
                None => self.values.remove(&key),
            };
        }
        self.sync();
    }
}
