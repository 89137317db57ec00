//! The one thread that writes: takes what callers queued, decides it in order, applies it as one sled batch, syncs
//! once, and only then answers (group commit).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::super::wakeups::Wakeups;
use super::super::{Batch, Committed, Durability, Identity, Key, StoreError, StoreErrorKind, Version, Versioned};
use super::directory::Directory;
use super::engine::{Changes, Engine};
use super::witness::Witness;

/// How long an `Ordered` commit may stay unsynced when nothing else makes a sync.
const IDLE_SYNC: Duration = Duration::from_millis(50);

/// How many bytes of commits one sync carries at most, so that the first of them doesn't wait for ever.
const TURN_BYTES: usize = 4 * 1024 * 1024;

/// How long after a failed opening anew it is tried again; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What callers ask of the writer.
pub(super) enum Job {
    Commit(Commit),
    /// Answers when everything committed so far is safe.
    Sync(oneshot::Sender<Result<(), StoreError>>),
    Close(oneshot::Sender<Result<(), StoreError>>),
    #[cfg(feature = "testing")]
    Abandon,
}

/// A queued commit. It goes on if its caller is gone.
pub(super) struct Commit {
    pub(super) batch: Batch,
    pub(super) durability: Durability,
    pub(super) reply: oneshot::Sender<Result<Committed, StoreError>>,
    /// Its share of the queue, given back when it is answered.
    pub(super) _room: OwnedSemaphorePermit,
}

/// What the writer and the callers both see.
pub(super) struct Shared {
    pub(super) engine: Engine,
    pub(super) wakeups: Arc<Wakeups>,
    pub(super) store: [u8; 16],
    pub(super) incarnation: u64,
    /// Sequence number of the newest synced commit.
    pub(super) synced: AtomicU64,
    unsynced: Mutex<BTreeSet<Key>>,
}

impl Shared {
    pub(super) fn new(engine: Engine, identity: &Identity) -> Self {
        Self {
            engine,
            wakeups: Arc::default(),
            store: identity.store,
            incarnation: identity.incarnation,
            synced: AtomicU64::new(identity.sequence),
            unsynced: Mutex::default(),
        }
    }

    /// Keys changed by commits that aren't synced yet. A key is in here before its change can be read, so who reads
    /// first and looks here afterwards misses none.
    pub(super) fn unsynced(&self) -> MutexGuard<'_, BTreeSet<Key>> {
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The writer thread's state.
pub(super) struct Writer {
    shared: Arc<Shared>,
    directory: Directory,
    witness: Witness,
    jobs: Receiver<Job>,
    /// Sequence number of the newest commit.
    sequence: u64,
    /// When the oldest unsynced commit was applied.
    dirty: Option<Instant>,
    /// All changes since the last good sync: should the next one fail, they are applied once more.
    pending: Changes,
    /// Set while nothing works until the store could be opened anew.
    retry: Option<Retry>,
}

/// The next try to open the store anew.
struct Retry {
    /// What failed first.
    why: StoreError,
    at: Instant,
    /// The pause before it.
    pause: Duration,
}

/// Why the writer stops.
enum Stop {
    Closed(Option<oneshot::Sender<Result<(), StoreError>>>),
    #[cfg(feature = "testing")]
    Abandoned,
}

/// What one turn of the writer takes from the queue.
#[derive(Default)]
struct Turn {
    commits: Vec<Commit>,
    syncs: Vec<oneshot::Sender<Result<(), StoreError>>>,
    bytes: usize,
    stop: Option<Stop>,
}

impl Turn {
    fn add(&mut self, job: Job) {
        match job {
            Job::Commit(commit) => {
                self.bytes += weight(&commit.batch);
                self.commits.push(commit);
            }
            Job::Sync(reply) => self.syncs.push(reply),
            Job::Close(reply) => self.stop = Some(Stop::Closed(Some(reply))),
            #[cfg(feature = "testing")]
            Job::Abandon => self.stop = Some(Stop::Abandoned),
        }
    }

    /// Answers everybody with `error`: nothing was changed.
    fn refuse(self, error: &StoreError) {
        for commit in self.commits {
            drop(commit.reply.send(Err(error.clone())));
        }
        for reply in self.syncs {
            drop(reply.send(Err(error.clone())));
        }
    }

    fn is_full(&self) -> bool {
        self.stop.is_some() || self.bytes >= TURN_BYTES
    }
}

/// About how many bytes a batch takes in memory.
pub(super) fn weight(batch: &Batch) -> usize {
    let checks = batch.checks.iter().map(|(key, _)| key.as_bytes().len());
    let puts = batch.puts.iter().map(|(key, value)| key.as_bytes().len() + value.len());
    let deletes = batch.deletes.iter().map(|key| key.as_bytes().len());
    256 + checks.chain(puts).chain(deletes).map(|bytes| bytes + 64).sum::<usize>()
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, directory: Directory, witness: Witness, jobs: Receiver<Job>) -> Self {
        let sequence = shared.synced.load(Ordering::Acquire);
        Self { shared, directory, witness, jobs, sequence, dirty: None, pending: Changes::new(), retry: None }
    }

    /// Works until the store is closed or dropped.
    pub(super) fn run(mut self) {
        let stop = loop {
            let mut turn = self.next_turn();
            let stop = turn.stop.take();
            #[cfg(feature = "testing")]
            if matches!(stop, Some(Stop::Abandoned)) {
                break Stop::Abandoned;
            }
            self.try_again();
            self.serve(turn);
            self.witness.keep_up(&self.identity_at(self.synced()));
            if let Some(stop) = stop {
                break stop;
            }
        };
        match stop {
            Stop::Closed(reply) => self.close(reply),
            #[cfg(feature = "testing")]
            Stop::Abandoned => {
                self.shared.engine.abandon();
                self.directory.abandon();
            }
        }
    }

    /// Waits for work, and takes all that is there.
    fn next_turn(&self) -> Turn {
        let mut turn = Turn::default();
        let sync_in = self.dirty.map(|since| IDLE_SYNC.saturating_sub(since.elapsed()));
        let retry_in = self.retry.as_ref().map(|retry| retry.at.saturating_duration_since(Instant::now()));
        let due_in = self.witness.due_in(self.synced());
        let first = match sync_in.into_iter().chain(due_in).chain(retry_in).min() {
            None => self.jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(wait) => self.jobs.recv_timeout(wait),
        };
        match first {
            Ok(job) => turn.add(job),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => turn.stop = Some(Stop::Closed(None)),
        }
        while !turn.is_full()
            && let Ok(job) = self.jobs.try_recv()
        {
            turn.add(job);
        }
        turn
    }

    fn serve(&mut self, turn: Turn) {
        if let Err(error) = self.shared.engine.usable() {
            return turn.refuse(&error);
        }
        let mut changes = Changes::new();
        let mut decided = Vec::with_capacity(turn.commits.len());
        let mut must_sync = !turn.syncs.is_empty() || self.dirty.is_some_and(|since| since.elapsed() >= IDLE_SYNC);
        for Commit { batch, durability, reply, _room } in turn.commits {
            let decision = self.decide(batch, &mut changes);
            // A conflict returns stored values, so it is a read: what it shows must be safe.
            must_sync |= durability == Durability::Synced || matches!(decision, Ok(Committed::Conflict(_)));
            decided.push((reply, decision, _room));
        }
        let changed = changes.keys().cloned().collect::<Vec<_>>();
        let done = self.apply(changes).and_then(|()| if must_sync { self.sync() } else { Ok(()) });
        for (reply, decision, room) in decided {
            drop(room);
            // A caller that is gone needs no answer.
            drop(reply.send(done.clone().and(decision)));
        }
        for reply in turn.syncs {
            drop(reply.send(done.clone()));
        }
        match done {
            Ok(()) => self.shared.wakeups.wake(&changed),
            Err(why) => {
                // The commits that wait in the queue are the first to learn whether it worked.
                drop(self.recover(&why));
                self.shared.wakeups.wake_all();
            }
        }
    }

    /// Judges one commit on top of `changes`, those decided before it in this turn.
    fn decide(&mut self, batch: Batch, changes: &mut Changes) -> Result<Committed, StoreError> {
        let stored = batch
            .checks
            .iter()
            .map(|(key, _)| match changes.get(key) {
                Some(change) => Ok(change.clone()),
                None => self.shared.engine.get_one(key),
            })
            .collect::<Result<Vec<_>, _>>()?;
        let holds = |(found, (_, wanted)): (&Option<Versioned>, &(Key, Option<Version>))| {
            found.as_ref().map(|found| found.version) == *wanted
        };
        if !stored.iter().zip(&batch.checks).all(holds) {
            return Ok(Committed::Conflict(stored));
        }
        self.sequence += 1;
        let version = Version(self.sequence);
        changes.extend(batch.puts.into_iter().map(|(key, value)| (key, Some(Versioned { version, value }))));
        changes.extend(batch.deletes.into_iter().map(|key| (key, None)));
        Ok(Committed::Applied(version))
    }

    fn apply(&mut self, changes: Changes) -> Result<(), StoreError> {
        if changes.is_empty() {
            return Ok(());
        }
        self.shared.unsynced().extend(changes.keys().cloned());
        self.dirty.get_or_insert_with(Instant::now);
        let applied = self.shared.engine.apply(&changes, &self.identity_at(self.sequence));
        self.pending.extend(changes);
        applied
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        if self.dirty.is_none() {
            return self.shared.engine.usable();
        }
        self.shared.engine.sync()?;
        self.all_safe();
        Ok(())
    }

    /// A try with fresh handles after a failed write or sync. Those who were told that their commit is uncertain will
    /// find it; if the try fails too, nobody gets anything from this store until another one works.
    fn recover(&mut self, why: &StoreError) -> Result<(), StoreError> {
        let identity = self.identity_at(self.sequence);
        match self.shared.engine.reopen(why, self.synced(), &self.pending, &identity) {
            Ok(()) => {
                tracing::warn!(error = %why, "the store was opened anew after a failed write; nothing is lost");
                self.retry = None;
                self.all_safe();
                Ok(())
            }
            Err(error) => {
                tracing::error!(%error, "the store can't be used");
                self.dirty = None; // All that there is to sync is pending, and applied once more by the next try.
                let pause = self.retry.take().map_or(FIRST_PAUSE, |last| (last.pause * 2).min(LONGEST_PAUSE));
                let retry = || Retry { why: why.clone(), at: Instant::now() + pause, pause };
                self.retry = (error.kind() == StoreErrorKind::Uncertain).then(retry);
                Err(error)
            }
        }
    }

    /// Opens the store anew if it is time for another try.
    fn try_again(&mut self) {
        let due = self.retry.as_ref().filter(|retry| retry.at <= Instant::now());
        if let Some(why) = due.map(|retry| retry.why.clone())
            && self.recover(&why).is_ok()
        {
            self.shared.wakeups.wake_all();
        }
    }

    fn all_safe(&mut self) {
        self.dirty = None;
        self.pending.clear();
        self.shared.unsynced().clear();
        self.shared.synced.store(self.sequence, Ordering::Release);
    }

    fn synced(&self) -> u64 {
        self.shared.synced.load(Ordering::Acquire)
    }

    fn identity_at(&self, sequence: u64) -> Identity {
        Identity { store: self.shared.store, incarnation: self.shared.incarnation, sequence }
    }

    /// Syncs, gives the files and the lock up, and answers last, so that who waited can open the store again.
    fn close(mut self, reply: Option<oneshot::Sender<Result<(), StoreError>>>) {
        let synced = match self.retry.as_ref().map(|retry| retry.why.clone()) {
            Some(why) => self.recover(&why),
            None => self.sync().or_else(|why| self.recover(&why)),
        };
        self.shared.engine.close();
        let identity = self.identity_at(self.synced());
        let closed = synced.and_then(|()| self.witness.record(&identity));
        drop(self.directory);
        self.shared.wakeups.wake_all();
        if let Some(reply) = reply {
            drop(reply.send(closed));
        }
    }
}
