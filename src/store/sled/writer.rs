//! The one thread that writes: takes what callers queued, decides it in order, writes it to the journal, syncs once, and
//! only then answers (group commit). Now and then another thread takes into sled what the journal has.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::super::wakeups::Wakeups;
use super::super::{Batch, Committed, Durability, Identity, Key, Page, StoreError, StoreErrorKind, Version, Versioned};
use super::directory::Directory;
use super::engine::{Engine, Meta, uncertain};
#[cfg(feature = "testing")]
use super::journal::Syncs;
use super::journal::{self, Journal};
use super::overlay::{Change, Overlay};
use super::witness::Witness;

/// How long an `Ordered` commit may stay unsynced when nothing else makes a sync.
const IDLE_SYNC: Duration = Duration::from_millis(50);

/// How many bytes of commits one sync carries at most, so that the first of them doesn't wait for ever.
const TURN_BYTES: usize = 4 * 1024 * 1024;

/// How long the journal's file may become, in bytes, before sled takes in what it has and another one is begun: some
/// thousands of calls, which opening the store after a crash reads in a fraction of a second.
const JOURNAL_BYTES: u64 = 4 * 1024 * 1024;

/// How far the journal may run ahead while sled takes in what was before, in bytes; then commits wait for it.
const AHEAD_BYTES: u64 = 8 * JOURNAL_BYTES;

/// How often the writer looks whether sled has taken all in.
const LOOK_EVERY: Duration = Duration::from_millis(20);

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
    pub(super) overlay: Overlay,
    pub(super) wakeups: Arc<Wakeups>,
    pub(super) store: [u8; 16],
    pub(super) incarnation: u64,
    /// Sequence number of the newest synced commit.
    pub(super) synced: AtomicU64,
    #[cfg(feature = "testing")]
    pub(super) syncs: Syncs,
}

/// What was read, and the commit that must be safe before anybody may know of it.
pub(super) struct Seen<T> {
    pub(super) found: T,
    pub(super) newest: u64,
}

impl Shared {
    pub(super) fn new(engine: Engine, identity: &Identity, #[cfg(feature = "testing")] syncs: Syncs) -> Self {
        Self {
            engine,
            overlay: Overlay::default(),
            wakeups: Arc::default(),
            store: identity.store,
            incarnation: identity.incarnation,
            synced: AtomicU64::new(identity.sequence),
            #[cfg(feature = "testing")]
            syncs,
        }
    }

    /// The values under `keys` if none of them is in sled.
    pub(super) fn get_in_memory(&self, keys: &[Key]) -> Option<Seen<Vec<Option<Versioned>>>> {
        let changes = self.overlay.get_all(keys)?;
        let newest = changes.iter().map(|change| change.sequence).max().unwrap_or(0);
        Some(Seen { found: changes.into_iter().map(Change::into_versioned).collect(), newest })
    }

    /// The values under `keys`, in order.
    pub(super) fn get(&self, keys: &[Key]) -> Result<Seen<Vec<Option<Versioned>>>, StoreError> {
        let mut seen = Seen { found: Vec::with_capacity(keys.len()), newest: 0 };
        for key in keys {
            seen.found.push(match self.overlay.get(key) {
                Some(change) => {
                    seen.newest = seen.newest.max(change.sequence);
                    change.into_versioned()
                }
                None => self.engine.get_one(key)?,
            });
        }
        Ok(seen)
    }

    fn version(&self, key: &Key) -> Result<Option<Version>, StoreError> {
        self.overlay.version(key).map_or_else(|| self.engine.version(key), Ok)
    }

    /// At most `limit` keys that start with `prefix`.
    pub(super) fn scan(&self, prefix: &[u8], from: Option<Key>, limit: usize) -> Result<Seen<Page>, StoreError> {
        let (limit, first) = (limit.max(1), Key::new(prefix));
        let from = from.map_or(first.clone(), |from| from.max(first));
        let fresh = self.overlay.range(prefix, &from, limit.saturating_add(1));
        let newest = fresh.values().map(|change| change.sequence).max().unwrap_or(0);
        let mut items = self.engine.range(prefix, &from, limit.saturating_add(1), &fresh)?;
        items.extend(fresh.into_iter().filter_map(|(key, change)| Some((key, change.into_versioned()?))));
        items.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        items.truncate(limit.saturating_add(1));
        let next = if items.len() > limit { items.pop().map(|(key, _)| key) } else { None };
        Ok(Seen { found: Page { items, next }, newest })
    }

    /// Sled takes in what is sealed; what is in the journal before the file that `meta` names isn't needed any more.
    pub(super) fn take_in(&self, directory: &Path, meta: &Meta) -> Result<(), StoreError> {
        self.engine.take_in(&self.overlay.sealed(), meta)?;
        self.overlay.drop_sealed();
        let needed = if meta.journal == 0 { u64::MAX } else { meta.journal };
        if let Err(error) = journal::remove_before(directory, needed) {
            tracing::warn!(%error, directory = %directory.display(), "an old journal can't be removed; it does no harm");
        }
        Ok(())
    }
}

/// The writer thread's state.
pub(super) struct Writer {
    shared: Arc<Shared>,
    directory: Directory,
    witness: Witness,
    journal: Journal,
    jobs: Receiver<Job>,
    /// Sequence number of the newest commit.
    sequence: u64,
    /// When the oldest unsynced commit was applied.
    dirty: Option<Instant>,
    /// Sled is taking something in.
    taking: Option<JoinHandle<Result<(), StoreError>>>,
    /// What sled says once it has taken in what is sealed.
    meta: Meta,
    /// What it says as long as it hasn't.
    taken: Meta,
    /// What failed and wasn't mended yet.
    broken: Broken,
    /// Set while nothing works until the store could be opened anew.
    retry: Option<Retry>,
}

/// Which files must be begun anew.
#[derive(Debug, Clone, Copy, Default)]
struct Broken {
    journal: bool,
    sled: bool,
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

/// How the thread ended that had sled take something in.
fn ended(taking: JoinHandle<Result<(), StoreError>>) -> Result<(), StoreError> {
    let panicked = |_| Err(StoreError::new(StoreErrorKind::Unavailable, "the thread for sled panicked"));
    taking.join().unwrap_or_else(panicked)
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
    pub(super) fn new(
        shared: Arc<Shared>,
        directory: Directory,
        witness: Witness,
        journal: Journal,
        meta: Meta,
        jobs: Receiver<Job>,
    ) -> Self {
        let Meta { identity: Identity { sequence, .. }, .. } = meta;
        Self {
            shared,
            directory,
            witness,
            journal,
            jobs,
            sequence,
            dirty: None,
            taking: None,
            taken: meta.clone(),
            meta,
            broken: Broken::default(),
            retry: None,
        }
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
            self.look_after_sled();
            self.witness.keep_up(&self.identity_at(self.synced()));
            if let Some(stop) = stop {
                break stop;
            }
        };
        match stop {
            Stop::Closed(reply) => self.close(reply),
            #[cfg(feature = "testing")]
            Stop::Abandoned => {
                drop(self.taking.take().map(JoinHandle::join));
                self.shared.engine.abandon();
                self.directory.abandon();
            }
        }
    }

    /// Waits for work, and takes all that is there.
    fn next_turn(&self) -> Turn {
        let mut turn = Turn::default();
        let can_sync = self.dirty.filter(|_| self.retry.is_none());
        let sync_in = can_sync.map(|since| IDLE_SYNC.saturating_sub(since.elapsed()));
        let retry_in = self.retry.as_ref().map(|retry| retry.at.saturating_duration_since(Instant::now()));
        let due_in = self.witness.due_in(self.synced());
        let look_in = self.taking.as_ref().map(|_| LOOK_EVERY);
        let first = match sync_in.into_iter().chain(due_in).chain(retry_in).chain(look_in).min() {
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
        let mut changed = Vec::new();
        let mut decided = Vec::with_capacity(turn.commits.len());
        let mut must_sync = !turn.syncs.is_empty() || self.dirty.is_some_and(|since| since.elapsed() >= IDLE_SYNC);
        for Commit { batch, durability, reply, _room } in turn.commits {
            let decision = self.decide(batch, &mut changed);
            // A conflict returns stored values, so it is a read: what it shows must be safe.
            must_sync |= durability == Durability::Synced || matches!(decision, Ok(Committed::Conflict(_)));
            decided.push((reply, decision, _room));
        }
        self.journal.end_record(self.synced(), self.sequence);
        let done = if must_sync { self.sync() } else { Ok(()) };
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

    /// Judges one commit, and applies it for all who come after it.
    fn decide(&mut self, batch: Batch, changed: &mut Vec<Key>) -> Result<Committed, StoreError> {
        for (key, wanted) in &batch.checks {
            if self.shared.version(key)? != *wanted {
                let keys: Vec<Key> = batch.checks.into_iter().map(|(key, _)| key).collect();
                return Ok(Committed::Conflict(self.shared.get(&keys)?.found));
            }
        }
        self.sequence += 1;
        let sequence = self.sequence;
        self.journal.add(sequence, &batch);
        self.dirty.get_or_insert_with(Instant::now);
        changed.extend(batch.puts.iter().map(|(key, _)| key).chain(&batch.deletes).cloned());
        let puts = batch.puts.into_iter().map(|(key, value)| (key, Some(value)));
        let all = puts.chain(batch.deletes.into_iter().map(|key| (key, None)));
        self.shared.overlay.extend(all.map(|(key, value)| (key, Change { sequence, value })));
        Ok(Committed::Applied(Version(sequence)))
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        if self.dirty.is_none() {
            return self.shared.engine.usable();
        }
        match self.journal.sync() {
            Ok(()) => {
                self.all_safe();
                Ok(())
            }
            Err(error) => {
                self.broken.journal = true;
                Err(uncertain(&self.shared.engine.unsynced(&error)))
            }
        }
    }

    /// Has sled take in what the journal has once that is much, and sees how that goes.
    fn look_after_sled(&mut self) {
        let waits = self.journal.length() >= AHEAD_BYTES;
        if let Some(taking) = self.taking.take_if(|taking| waits || taking.is_finished()) {
            let taken = ended(taking);
            self.took_in(taken);
        }
        if self.taking.is_some() || self.retry.is_some() {
            return;
        }
        if self.taken != self.meta {
            self.have_taken_in();
        } else if self.dirty.is_none() && self.journal.length() >= JOURNAL_BYTES {
            self.begin_another();
        }
    }

    fn took_in(&mut self, taken: Result<(), StoreError>) {
        match taken {
            Ok(()) => self.taken = self.meta.clone(),
            Err(why) => {
                self.broken.sled = true;
                drop(self.recover(&uncertain(&why)));
                self.shared.wakeups.wake_all();
            }
        }
    }

    fn begin_another(&mut self) {
        let synced = self.synced();
        match self.journal.next(synced) {
            Ok(journal) => {
                self.meta = Meta { identity: self.identity_at(synced), journal: journal.number() };
                self.journal = journal;
                self.shared.overlay.seal();
                self.have_taken_in();
            }
            // The one there is will do.
            Err(error) => tracing::warn!(%error, "no other journal can be begun yet"),
        }
    }

    fn have_taken_in(&mut self) {
        let (shared, directory, meta) = (Arc::clone(&self.shared), self.directory.path().to_owned(), self.meta.clone());
        let work = move || shared.take_in(&directory, &meta);
        match thread::Builder::new().name("toolonce-take-in".to_owned()).spawn(work) {
            Ok(taking) => self.taking = Some(taking),
            Err(error) => {
                tracing::warn!(%error, "no thread for sled: commits wait for it");
                let taken = self.shared.take_in(self.directory.path(), &self.meta);
                self.took_in(taken);
            }
        }
    }

    /// Has sled take in all there is, so that the journal isn't needed any more.
    fn empty_journal(&mut self) -> Result<(), StoreError> {
        let directory = self.directory.path();
        if let Some(taking) = self.taking.take() {
            ended(taking)?;
        } else if self.taken != self.meta {
            self.shared.take_in(directory, &self.meta)?;
        }
        if self.dirty.is_some() {
            return Err(self.shared.engine.unanswered());
        }
        self.shared.overlay.seal();
        self.shared.take_in(directory, &Meta { identity: self.identity_at(self.synced()), journal: 0 })
    }

    /// A try with fresh handles after a failed write or sync. Those who were told that their commit is uncertain will
    /// find it; if the try fails too, nobody gets anything from this store until another one works.
    fn recover(&mut self, why: &StoreError) -> Result<(), StoreError> {
        match self.begin_anew() {
            Ok(()) => {
                tracing::warn!(error = %why, "the store was opened anew after a failed write; nothing is lost");
                self.shared.engine.mended();
                self.retry = None;
                Ok(())
            }
            Err(again) => {
                let error = self.shared.engine.give_up(why, &again);
                tracing::error!(%error, "the store can't be used");
                let pause = self.retry.take().map_or(FIRST_PAUSE, |last| (last.pause * 2).min(LONGEST_PAUSE));
                let retry = || Retry { why: why.clone(), at: Instant::now() + pause, pause };
                self.retry = (error.kind() == StoreErrorKind::Uncertain).then(retry);
                Err(error)
            }
        }
    }

    fn begin_anew(&mut self) -> Result<(), StoreError> {
        if self.broken.sled {
            self.shared.engine.reopen(&self.taken.identity)?;
            self.broken.sled = false;
        }
        if self.broken.journal {
            let renewed = self.journal.renew(self.synced());
            renewed.map_err(|error| self.shared.engine.unsynced(&error))?;
            self.broken.journal = false;
            self.all_safe();
        }
        Ok(())
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
        if let Err(error) = self.empty_journal() {
            tracing::warn!(%error, "the journal stays until the store is opened again: sled can't take it in");
        }
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
