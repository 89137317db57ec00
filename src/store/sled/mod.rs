//! The sled store: one directory, one process, durable against power cuts.
//!
//! sled 0.34.7 alone is not: its `flush` doesn't reach the disk, large values are never synced, and `flush_async`
//! deadlocks. This store adds what is missing:
//!
//! - one writer thread, so that the commits of many callers ride one sync ([`writer`]);
//! - a journal in front of sled, since a batch costs sled some seven file operations and a journal one write and one
//!   sync ([`journal`]), and what is in it and not in sled yet, in memory ([`overlay`]);
//! - `fdatasync` on a handle of its own after each flush, and segments large enough to keep every value in the log
//!   ([`engine`]);
//! - after a failed write or sync fresh handles, and nothing for anybody until they work ([`engine`]);
//! - a lock and a marker of its own, so that a foreign, half-created or gutted directory is told apart ([`directory`]);
//! - a witness beside the directory, so that a deleted, replaced, restored or truncated store is ([`witness`]).

mod directory;
mod engine;
mod journal;
mod overlay;
mod witness;
mod writer;

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

use self::directory::{Directory, Stage};
use self::engine::{Engine, Meta};
use self::journal::{Journal, Syncs};
pub use self::witness::Accept;
use self::witness::Witness;
use self::writer::{Commit, Job, Seen, Shared, Writer};
use super::{
    Batch, BoxFuture, Committed, Durability, Identity, Key, Page, Store, StoreError, StoreErrorKind, Versioned, limits,
};

/// How long opening waits for a holder that may be on its way out.
const LOCK_WITHIN: Duration = Duration::from_secs(2);

/// How long dropping a store waits for its last sync.
const DROP_WITHIN: Duration = Duration::from_secs(5);

/// How many KiB of commits may wait for the writer before callers wait for room.
const QUEUE_KIB: u32 = 64 * 1024;

/// Least cache that is asked of sled, which refuses to open with less than 256 bytes.
const MIN_CACHE: u64 = 1024 * 1024;

/// Sequence numbers left out at each opening: a version that was told but lost with an unsynced commit is not given
/// out again. Far more than 50 ms of unsynced commits can use up.
const SEQUENCE_GAP: u64 = 1 << 20;

/// How to open a [`SledStore`].
///
/// # Example
///
/// ```no_run
/// use toolonce::store::SledOptions;
///
/// # async fn open() -> Result<(), toolonce::store::StoreError> {
/// let store = SledOptions::new("state/calls").cache_bytes(64 * 1024 * 1024).open().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct SledOptions {
    path: PathBuf,
    cache_bytes: u64,
    witness: Option<PathBuf>,
    accept: Option<Accept>,
    absent: Absent,
}

/// What to do where there is no store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Absent {
    Make,
    Refuse,
}

impl SledOptions {
    /// A store in the directory `path`, which is created if it is missing. An existing one must be empty or hold a
    /// store.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), cache_bytes: 32 * 1024 * 1024, witness: None, accept: None, absent: Absent::Make }
    }

    /// How much sled may keep in memory, in bytes. Default 32 MiB; less than 1 MiB, 0 too, is taken as 1 MiB.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.cache_bytes = bytes.max(MIN_CACHE);
        self
    }

    /// The file that witnesses how far the store has come, so that a deleted directory, an older copy in its place or
    /// another store is refused instead of everything running again. Default: beside the directory, with `.witness`
    /// added to its name. It must lie outside of the directory, be moved together with it, and last as long; a store
    /// that is found without a witness is taken as it is.
    ///
    /// It is written when the store is opened and closed and at most once a second meanwhile, so it can't tell the loss
    /// of what was committed in the last second before a kill or a power cut.
    #[must_use]
    pub fn witness(mut self, path: impl Into<PathBuf>) -> Self {
        self.witness = Some(path.into());
        self
    }

    /// Opens the store although it isn't as its witness says, and has the witness follow. Default: nothing is accepted.
    /// For one start, after a person has looked: see [`Accept`].
    #[must_use]
    pub fn accept(mut self, what: Accept) -> Self {
        self.accept = Some(what);
        self
    }

    /// Opens only a store that is there, and makes nothing where none is. Default: it is created.
    #[must_use]
    pub fn existing(mut self) -> Self {
        self.absent = Absent::Refuse;
        self
    }

    /// Opens the store, waiting up to two seconds if another holds it.
    ///
    /// # Errors
    /// - [`StoreErrorKind::NotAsWitnessed`]: the store is gone, another one, an older copy or cut short, or its witness
    ///   can't be read. Bring the right files back, or say what to [`accept`](Self::accept); the message names it.
    /// - [`StoreErrorKind::Missing`]: there is no store, and only an [`existing`](Self::existing) one was asked for.
    /// - [`StoreErrorKind::Locked`]: another process, or another part of this one, holds the store; the message names
    ///   it.
    /// - [`StoreErrorKind::Corrupt`]: the files are damaged or partly missing, or sled didn't open them within 30
    ///   seconds.
    /// - [`StoreErrorKind::Unavailable`]: the path is empty or no directory, belongs to something else, can't be read or
    ///   written, or was written by a newer version; or the witness is.
    pub async fn open(self) -> Result<SledStore, StoreError> {
        let (opened, result) = oneshot::channel();
        let (jobs, queue) = mpsc::channel();
        let (running, stopped) = mpsc::channel::<()>();
        let path = self.path.clone();
        let work = move || {
            let _running = running;
            match self.open_blocking() {
                Ok(Opened { shared, directory, witness, journal, meta }) => {
                    // If nobody waits any more the queue is closed too, and the writer stops at once.
                    drop(opened.send(Ok(Arc::clone(&shared))));
                    Writer::new(shared, directory, witness, journal, meta, queue).run();
                }
                Err(error) => drop(opened.send(Err(error))),
            }
        };
        let failed = |why: &dyn fmt::Display| {
            let message = format!("can't start the writer of the store {}: {why}", path.display());
            StoreError::new(StoreErrorKind::Unavailable, message)
        };
        thread::Builder::new().name("toolonce-store".to_owned()).spawn(work).map_err(|error| failed(&error))?;
        let shared = result.await.map_err(|_| failed(&"it stopped"))??;
        let room = Arc::new(Semaphore::new(QUEUE_KIB as usize));
        Ok(SledStore { shared, jobs: Some(jobs), room, stopped: Mutex::new(stopped) })
    }

    fn open_blocking(&self) -> Result<Opened, StoreError> {
        let deadline = Instant::now() + LOCK_WITHIN;
        let path = directory::absolute(&self.path)?;
        let mut witness = Witness::of(&path, self.witness.as_deref(), self.accept)?;
        let is_missing = !path.exists();
        if is_missing {
            // Before anything is made: who brings the store back finds its place free.
            witness.confirm(None)?;
        }
        if self.absent == Absent::Refuse {
            directory::refuse_missing(&path)?;
        }
        let directory = Directory::hold(&path, deadline)?;
        let stage = directory.stage()?;
        if stage == Stage::New && !is_missing {
            witness.confirm(None)?;
        }
        directory.prepare(stage, self.absent)?;
        let engine = Engine::open(directory.path(), self.cache_bytes, deadline)?;
        directory.restrict_files()?;
        let stored = engine.meta()?;
        let found = stored.as_ref().map(|meta| journal::read(directory.path(), meta)).transpose()?.unwrap_or_default();
        let known = stored.map(|meta| Identity { sequence: found.sequence, ..meta.identity });
        let identity = next_identity(&directory, &witness, stage, known)?;
        let (syncs, owner) = (Syncs::default(), (identity.store, identity.incarnation));
        let begun = Journal::begin(directory.path(), owner, found.last + 1, found.sequence, &syncs);
        let journal = begun.map_err(|error| engine.unsynced(&error))?;
        let meta = Meta { identity, journal: journal.number() };
        engine.take_in(&found.changes, &meta)?;
        if stage == Stage::New {
            directory.finish_creation(meta.identity.store)?;
        }
        journal::remove_before(directory.path(), meta.journal).map_err(|error| engine.unsynced(&error))?;
        witness.record(&meta.identity)?;
        let shared = Arc::new(Shared::new(
            engine,
            &meta.identity,
            #[cfg(feature = "testing")]
            syncs,
        ));
        Ok(Opened { shared, directory, witness, journal, meta })
    }
}

/// All that belongs to an open store.
struct Opened {
    shared: Arc<Shared>,
    directory: Directory,
    witness: Witness,
    journal: Journal,
    meta: Meta,
}

fn damaged(store: &dyn fmt::Display, what: &str) -> StoreError {
    let message = format!("the store {store} is damaged ({what}): keep the directory, restore a copy");
    StoreError::new(StoreErrorKind::Corrupt, message)
}

/// The identity of the incarnation that begins.
fn next_identity(
    directory: &Directory,
    witness: &Witness,
    stage: Stage,
    stored: Option<Identity>,
) -> Result<Identity, StoreError> {
    match (stage, stored) {
        (Stage::New, _) => {
            Ok(Identity { store: fastrand::u128(..).to_be_bytes(), incarnation: 1, sequence: SEQUENCE_GAP })
        }
        (Stage::Created(_), None) => Err(directory.damaged("its log has lost everything")),
        (Stage::Created(store), Some(stored)) => {
            if stored.store != store {
                return Err(directory.damaged("its log belongs to another store"));
            }
            witness.confirm(Some(&stored))?;
            Ok(Identity {
                store,
                incarnation: stored.incarnation.saturating_add(1),
                sequence: stored.sequence.saturating_add(SEQUENCE_GAP),
            })
        }
    }
}

/// A store in a directory of this machine, for one process at a time: the default.
///
/// Committed data survives the death of the process and, once `Synced`, a power cut. Dropping the store syncs what is
/// pending too and waits for it up to five seconds, but only [`close`](Store::close) tells whether that worked.
///
/// Commits go to a journal in the directory first, and into sled in the background; the journal is read at opening, and
/// gone after [`close`](Store::close). A copy of the directory is whole only with it.
///
/// When a write or a sync fails, every commit of that batch is answered with [`StoreErrorKind::Uncertain`]. The store
/// then begins a new file and stores the batch again; what comes later works as before. If that fails too (the disk is
/// still full, say), every call fails until it works: it is tried again, a second later at first, then at longer and
/// longer intervals of at most 30 seconds. Files that turn out to be damaged are not tried again.
pub struct SledStore {
    shared: Arc<Shared>,
    /// `None` only while dropping.
    jobs: Option<mpsc::Sender<Job>>,
    room: Arc<Semaphore>,
    /// Hangs up when the writer has stopped.
    stopped: Mutex<mpsc::Receiver<()>>,
}

impl SledStore {
    /// Opens the store in the directory `path` with default [options](SledOptions).
    ///
    /// # Errors
    /// See [`SledOptions::open`].
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self, StoreError> {
        SledOptions::new(path).open().await
    }

    /// Stops as a killed process would: what isn't synced is not written out, and the lock stays held until this
    /// process ends. A copy of the directory is what another process would find. Blocks until the commits in hand are
    /// done.
    #[cfg(feature = "testing")]
    pub fn abandon(&self) {
        if self.send(Job::Abandon).is_ok() {
            self.wait_stopped(DROP_WITHIN);
        }
    }

    /// Makes the next `times` syncs fail: the first is that of a batch, the second that of the opening anew which
    /// follows.
    #[cfg(feature = "testing")]
    pub fn fail_syncs(&self, times: u32) {
        self.shared.syncs.fail(times);
    }

    fn send(&self, job: Job) -> Result<(), StoreError> {
        let jobs = self.jobs.as_ref().ok_or_else(|| self.shared.engine.closed())?;
        jobs.send(job).map_err(|_| self.shared.engine.closed())
    }

    fn wait_stopped(&self, within: Duration) {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        // The writer never sends; the end of the wait is its hanging up.
        let _ = stopped.recv_timeout(within);
    }

    /// Runs a read off the async threads, then waits until what it saw is safe.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Shared) -> Result<Seen<T>, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let seen = match Handle::try_current() {
            Ok(runtime) => {
                let shared = Arc::clone(&self.shared);
                let reading = runtime.spawn_blocking(move || read(&shared));
                reading.await.unwrap_or_else(|error| Err(interrupted(&error)))?
            }
            Err(_) => read(&self.shared)?,
        };
        self.when_safe(seen).await
    }

    async fn when_safe<T>(&self, seen: Seen<T>) -> Result<T, StoreError> {
        if seen.newest > self.shared.synced.load(Ordering::Acquire) {
            let (reply, answer) = oneshot::channel();
            self.send(Job::Sync(reply))?;
            answer.await.unwrap_or_else(|_| Err(self.shared.engine.unanswered()))?;
        }
        Ok(seen.found)
    }
}

/// The runtime is on its way out and runs no blocking work any more.
fn interrupted(error: &tokio::task::JoinError) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, format!("a read of the store was interrupted: {error}"))
}

impl fmt::Debug for SledStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SledStore").field("identity", &self.identity()).finish_non_exhaustive()
    }
}

impl Drop for SledStore {
    fn drop(&mut self) {
        self.jobs = None;
        self.wait_stopped(DROP_WITHIN);
    }
}

impl Store for SledStore {
    fn get<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Versioned>>, StoreError>> {
        Box::pin(async move {
            self.shared.engine.usable()?;
            if let Some(seen) = self.shared.get_in_memory(keys) {
                return self.when_safe(seen).await;
            }
            let wanted = keys.to_vec();
            self.read(move |shared| shared.get(&wanted)).await
        })
    }

    fn commit(&self, batch: Batch, durability: Durability) -> BoxFuture<'_, Result<Committed, StoreError>> {
        Box::pin(async move {
            self.shared.engine.usable()?;
            limits::check(&batch)?;
            let kib = u32::try_from(writer::weight(&batch) / 1024 + 1).map_or(QUEUE_KIB, |kib| kib.min(QUEUE_KIB));
            let room = Arc::clone(&self.room).acquire_many_owned(kib).await;
            let _room = room.map_err(|_| self.shared.engine.closed())?;
            let (reply, answer) = oneshot::channel();
            self.send(Job::Commit(Commit { batch, durability, reply, _room }))?;
            answer.await.unwrap_or_else(|_| Err(self.shared.engine.unanswered()))
        })
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a [u8],
        from: Option<Key>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page, StoreError>> {
        let wanted = prefix.to_vec();
        Box::pin(self.read(move |shared| shared.scan(&wanted, from, limit)))
    }

    fn identity(&self) -> Identity {
        Identity {
            store: self.shared.store,
            incarnation: self.shared.incarnation,
            sequence: self.shared.synced.load(Ordering::Acquire),
        }
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn changed<'a>(&'a self, keys: &'a [Key]) -> Option<BoxFuture<'a, ()>> {
        Some(Box::pin(self.shared.wakeups.wait(keys)))
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            if self.send(Job::Close(reply)).is_err() {
                return Ok(());
            }
            // Unanswered: another close came first.
            answer.await.unwrap_or(Ok(()))
        })
    }
}
