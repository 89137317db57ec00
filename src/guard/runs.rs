//! Runs as this process knows them: the history that a run stands on, and how far it has come.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::blank::Blank;
use super::reads::Reads;
use super::rows::{self, Life, Prefix, Row, RunLog, RunRow};
use super::secrets::Secrets;
use crate::Millis;
use crate::error::{Error, ErrorKind};
use crate::key::{BaseKey, Digest};
use crate::protocol::fork::Ancestor;
use crate::protocol::history::{History, Seen};
use crate::protocol::record::Turn;
use crate::store::{Batch, Committed, Durability, Key, Store, Version, Versioned};

/// One run, shared by all its handles of this process.
pub(crate) struct RunState {
    pub(crate) prefix: Prefix,
    pub(crate) namespace: Arc<str>,
    pub(crate) id: Arc<str>,
    /// Of a fork: the runs of its line, the first one first.
    pub(crate) line: Arc<[Ancestor]>,
    pub(crate) reads: Reads,
    now: Mutex<RunNow>,
    /// The key contracts that the run is known to go by.
    contracts: Mutex<HashMap<String, Digest>>,
    /// The newest writes that were done in this process, oldest first.
    done: Mutex<VecDeque<Done>>,
    /// Which of its rows needn't be looked for.
    pub(crate) blank: Blank,
}

/// A write of a run that was done in this process.
#[derive(Debug, Clone)]
struct Done {
    tool: String,
    unit: (BaseKey, usize),
    at: u64,
}

/// So many of them are remembered.
const REMEMBERED: usize = 256;

impl fmt::Debug for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunState").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What was last seen of a run.
#[derive(Debug, Clone)]
pub(crate) struct RunNow {
    pub(crate) history: Arc<History>,
    pub(crate) row: Version,
    started_at: Millis,
    life: Life,
    pub(crate) log: RunLog,
    pub(crate) log_version: Option<Version>,
    /// A turn that was answered here and isn't in the stored log yet.
    unwritten: Option<Turn>,
}

impl RunNow {
    fn new(row: RunRow, version: Version) -> Self {
        Self {
            history: Arc::new(row.history),
            row: version,
            started_at: row.started_at,
            life: row.life,
            log: RunLog::default(),
            log_version: None,
            unwritten: None,
        }
    }

    /// Whether nothing of the run is removed.
    pub(crate) fn is_there(&self) -> bool {
        self.life.is_there()
    }

    /// The run for a handle of this epoch.
    ///
    /// # Errors
    /// [`ErrorKind::RunPurged`]; [`ErrorKind::RunClosing`]; [`ErrorKind::StaleRun`] if the epoch is over.
    pub(crate) fn in_epoch(self, epoch: u32) -> Result<Self, Error> {
        match self.life {
            Life::Open => {}
            Life::Closing => return Err(closing()),
            Life::Copying | Life::Removing | Life::Purged { .. } => return Err(purged()),
        }
        if self.history.epoch() != epoch {
            return Err(Error::new(
                ErrorKind::StaleRun,
                "this run was resumed since, here or by another process; only the newer one may go on. Make no more calls \
                 here",
            ));
        }
        Ok(self)
    }
}

fn closing() -> Error {
    Error::new(
        ErrorKind::RunClosing,
        "nothing had happened in this run for longer than runs are kept, and it is being looked at whether it can be \
         removed. Nothing is removed yet: try again",
    )
}

fn purged() -> Error {
    Error::new(
        ErrorKind::RunPurged,
        "this run was removed from the store: nothing had happened in it for longer than runs are kept. What was done in it \
         isn't known any more, so nothing of it should be done again unless somebody has looked. New work needs a run of its \
         own",
    )
}

/// Why nobody may join a run in this state.
fn closed(id: &str, life: Life) -> Option<Error> {
    match life {
        Life::Open | Life::Closing => None,
        Life::Copying => Some(Error::new(
            ErrorKind::NoSuchRun,
            format!("run {id:?} is a fork that was not made to its end: fork again, or choose another id"),
        )),
        Life::Removing | Life::Purged { .. } => Some(purged()),
    }
}

impl RunState {
    fn lock(&self) -> MutexGuard<'_, RunNow> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> RunNow {
        self.lock().clone()
    }

    /// The run, if a gc looks at it.
    fn closing(&self) -> Option<RunNow> {
        let now = self.lock();
        (now.life == Life::Closing).then(|| now.clone())
    }

    /// When it was last written down that something happened in the run.
    pub(crate) fn active_at(&self) -> Millis {
        let now = self.lock();
        now.log.active_at.max(now.started_at)
    }

    /// The run's row with this history, open.
    fn row(&self, now: &RunNow, history: History) -> RunRow {
        RunRow {
            run: self.id.to_string(),
            started_at: now.started_at,
            history,
            life: Life::Open,
            line: self.line.to_vec(),
        }
    }

    /// What values of the run are salted with.
    pub(crate) fn salt(&self) -> &str {
        rows::salt(&self.id, &self.line)
    }

    pub(crate) fn row_key(&self) -> Key {
        self.prefix.run(&self.id)
    }

    pub(crate) fn log_key(&self) -> Key {
        self.prefix.log(&self.id)
    }

    /// The key contract of a tool that the run is known to go by.
    pub(crate) fn contract(&self, tool: &str) -> Option<Digest> {
        self.contracts.lock().unwrap_or_else(PoisonError::into_inner).get(tool).copied()
    }

    /// Takes note of the contract that the store has.
    pub(crate) fn bind(&self, tool: &str, contract: Digest) {
        self.contracts.lock().unwrap_or_else(PoisonError::into_inner).insert(tool.to_owned(), contract);
    }

    /// Takes note of a write that was done.
    pub(crate) fn did(&self, tool: &str, unit: (BaseKey, usize), at: u64) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        if done.len() >= REMEMBERED {
            done.pop_front();
        }
        done.push_back(Done { tool: tool.to_owned(), unit, at });
    }

    /// How often `tool` did something else after `at`, as far as this process knows, and when last.
    pub(crate) fn did_since(&self, tool: &str, unit: (BaseKey, usize), at: u64) -> Option<(usize, u64)> {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let others = done.iter().filter(|done| done.tool == tool && done.unit != unit && done.at >= at);
        let newest = others.clone().map(|done| done.at).max()?;
        Some((others.count(), newest))
    }

    /// Takes note that a call of `turn` was answered under `epoch`. Whether the log has to be written.
    pub(crate) fn answered(&self, turn: Turn, epoch: u32) -> bool {
        let mut now = self.lock();
        let newer = now.history.epoch() == epoch && now.log.last_turn.is_none_or(|last| last < turn);
        if newer {
            now.log.last_turn = Some(turn);
            now.unwritten = Some(turn);
        }
        newer
    }

    /// Takes over what the store has, if it is newer.
    pub(crate) fn refresh(&self, row: Option<Versioned>, log: Option<Versioned>) -> Result<(), Error> {
        let row = row.ok_or_else(|| missing(&self.id))?;
        let read = RunRow::read(&row.value)?;
        {
            let mut now = self.lock();
            if row.version > now.row {
                now.row = row.version;
                now.life = read.life;
                if now.history.epoch() != read.history.epoch() {
                    now.unwritten = None;
                }
                now.history = Arc::new(read.history);
            }
        }
        self.refresh_log(log)
    }

    fn refresh_log(&self, log: Option<Versioned>) -> Result<(), Error> {
        let Some(log) = log else { return Ok(()) };
        let read = RunLog::read(&log.value)?;
        let mut now = self.lock();
        if now.log_version.is_none_or(|version| version < log.version) {
            now.log = RunLog { last_turn: read.last_turn.max(now.unwritten), ..read };
            now.log_version = Some(log.version);
        }
        Ok(())
    }

    /// Takes note of a log that this process wrote.
    pub(crate) fn wrote_log(&self, log: RunLog, version: Version) {
        let mut now = self.lock();
        if now.log_version.is_none_or(|known| known < version) {
            let last_turn = now.log.last_turn.max(log.last_turn);
            now.log = RunLog { last_turn, ..log };
            now.log_version = Some(version);
            if now.log.last_turn == now.unwritten {
                now.unwritten = None;
            }
        }
    }
}

fn missing(id: &str) -> Error {
    Error::new(ErrorKind::NoSuchRun, format!("there is no run {id:?} in this namespace: start it first"))
}

/// Runs by namespace and id.
type Known = HashMap<(Prefix, Arc<str>), Arc<RunState>>;

/// The runs of one store.
pub(crate) struct Runs {
    store: Arc<dyn Store>,
    secrets: Arc<Secrets>,
    known: Mutex<Known>,
}

impl Runs {
    pub(crate) fn new(store: Arc<dyn Store>, secrets: Arc<Secrets>) -> Self {
        Self { store, secrets, known: Mutex::default() }
    }

    /// Makes a run that must not exist.
    pub(crate) async fn start(&self, namespace: &Arc<str>, id: &str, at: u64) -> Result<Arc<RunState>, Error> {
        self.secrets.admit(&*self.store, namespace).await?;
        let prefix = Prefix::new(namespace);
        let row = RunRow { run: id.to_owned(), started_at: at, ..RunRow::default() };
        let batch = Batch {
            checks: vec![(prefix.run(id), None)],
            puts: vec![(prefix.run(id), row.to_bytes())],
            ..Batch::default()
        };
        match self.store.commit(batch, Durability::Synced).await? {
            Committed::Applied(version) => {
                let blank = if self.store.is_exclusive() { Blank::all() } else { Blank::unknown() };
                Ok(self.share_as(namespace, row, version, blank))
            }
            Committed::Conflict(existing) => Err(exists(id, existing.into_iter().next().flatten())?),
        }
    }

    /// Finds a run to work in.
    pub(crate) async fn attach(&self, namespace: &Arc<str>, id: &str) -> Result<Arc<RunState>, Error> {
        let state = self.find(namespace, id).await?;
        self.keep_open(&state).await?;
        Ok(state)
    }

    /// Takes a run back that a gc has closed to look at it: whoever works in it shows that it isn't left. The gc finds
    /// that the row has moved.
    pub(crate) async fn keep_open(&self, state: &RunState) -> Result<(), Error> {
        while let Some(now) = state.closing() {
            let value = state.row(&now, History::clone(&now.history)).to_bytes();
            let batch = Batch {
                checks: vec![(state.row_key(), Some(now.row))],
                puts: vec![(state.row_key(), value.clone())],
                ..Batch::default()
            };
            let row = match self.store.commit(batch, Durability::Synced).await? {
                Committed::Applied(version) => Some(Versioned { version, value }),
                Committed::Conflict(existing) => existing.into_iter().next().flatten(),
            };
            state.refresh(row, None)?;
        }
        Ok(())
    }

    async fn find(&self, namespace: &Arc<str>, id: &str) -> Result<Arc<RunState>, Error> {
        self.secrets.admit(&*self.store, namespace).await?;
        let prefix = Prefix::new(namespace);
        let mut found = self.store.get(&[prefix.run(id), prefix.log(id)]).await?;
        let (log, row) = (found.pop().flatten(), found.pop().flatten());
        let row = row.ok_or_else(|| missing(id))?;
        let read = RunRow::read(&row.value)?;
        if let Some(closed) = closed(id, read.life) {
            return Err(closed);
        }
        let state = self.share(namespace, read, row.version);
        state.refresh(Some(row), log)?;
        Ok(state)
    }

    /// Begins the next epoch of a run, and says which: what was not seen is cut off.
    pub(crate) async fn resume(
        &self,
        namespace: &Arc<str>,
        id: &str,
        at: Millis,
        seen: impl Fn(&RunLog) -> Seen,
    ) -> Result<(Arc<RunState>, u32), Error> {
        loop {
            let state = self.find(namespace, id).await?;
            let now = state.now();
            let seen = seen(&now.log);
            let mut history = History::clone(&now.history);
            history.cuts.push(seen);
            let row = state.row(&now, history.clone());
            let log = RunLog { active_at: at, ..cut(now.log, seen) };
            let batch = Batch {
                checks: vec![(state.row_key(), Some(now.row)), (state.log_key(), now.log_version)],
                puts: vec![(state.row_key(), row.to_bytes()), (state.log_key(), log.to_bytes())],
                ..Batch::default()
            };
            if let Committed::Applied(version) = self.store.commit(batch, Durability::Synced).await? {
                let epoch = history.epoch();
                {
                    let mut known = state.lock();
                    // Another resume may have come after this one, and be known here already.
                    if known.row < version {
                        *known = RunNow {
                            history: Arc::new(history),
                            row: version,
                            log,
                            log_version: Some(version),
                            life: Life::Open,
                            unwritten: None,
                            ..now
                        };
                    }
                }
                return Ok((state, epoch));
            }
        }
    }

    /// The run, if somebody in this process holds a handle of it.
    pub(crate) fn at_hand(&self, prefix: Prefix, id: &str) -> Option<Arc<RunState>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&(prefix, Arc::from(id))).map(Arc::clone)
    }

    pub(super) fn share(&self, namespace: &Arc<str>, row: RunRow, version: Version) -> Arc<RunState> {
        self.share_as(namespace, row, version, Blank::unknown())
    }

    fn share_as(&self, namespace: &Arc<str>, row: RunRow, version: Version, blank: Blank) -> Arc<RunState> {
        let id: Arc<str> = row.run.as_str().into();
        let line = row.line.as_slice().into();
        let now = RunNow::new(row, version);
        let prefix = Prefix::new(namespace);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Runs that nobody holds a handle of are found in the store again.
        known.retain(|_, state| Arc::strong_count(state) > 1);
        let state = known.entry((prefix, Arc::clone(&id))).or_insert_with(|| {
            Arc::new(RunState {
                prefix,
                namespace: Arc::clone(namespace),
                id,
                line,
                reads: Reads::default(),
                now: Mutex::new(now),
                contracts: Mutex::default(),
                done: Mutex::default(),
                blank,
            })
        });
        Arc::clone(state)
    }

    /// Reads the run anew where other processes may have changed it.
    pub(crate) async fn refresh(&self, state: &RunState) -> Result<(), Error> {
        let mut found = self.store.get(&[state.row_key(), state.log_key()]).await?;
        let (log, row) = (found.pop().flatten(), found.pop().flatten());
        state.refresh(row, log)
    }

    /// Writes which turn was answered last and that something happened, in order and not synced.
    pub(crate) async fn write_log(&self, state: &RunState, at: Millis) -> Result<(), Error> {
        let epoch = state.now().history.epoch();
        loop {
            let mut batch = Batch::default();
            let Some(log) = state.add_log(at, &mut batch).filter(|log| log.epoch == epoch) else { return Ok(()) };
            match self.store.commit(batch, Durability::Ordered).await? {
                Committed::Applied(version) => {
                    log.written(state, version);
                    return Ok(());
                }
                Committed::Conflict(mut existing) => {
                    let (row, log) = (existing.pop().flatten(), existing.pop().flatten());
                    state.refresh(row, log)?;
                }
            }
        }
    }
}

/// A log on its way into the store.
#[derive(Debug)]
pub(crate) struct WrittenLog {
    log: RunLog,
    /// Of the history that it is about: a resume is a sign of life as well.
    epoch: u32,
}

impl WrittenLog {
    /// It is in the store.
    pub(crate) fn written(self, run: &RunState, version: Version) {
        run.wrote_log(self.log, version);
    }
}

impl RunState {
    /// Adds to a batch which turn was answered last and that something happened; `None` if the run was removed.
    pub(crate) fn add_log(&self, at: Millis, batch: &mut Batch) -> Option<WrittenLog> {
        let mut now = self.now();
        if !now.is_there() {
            return None;
        }
        now.log.active_at = now.log.active_at.max(at);
        batch.checks.push((self.log_key(), now.log_version));
        batch.checks.push((self.row_key(), Some(now.row)));
        batch.puts.push((self.log_key(), now.log.to_bytes()));
        Some(WrittenLog { log: now.log, epoch: now.history.epoch() })
    }
}

/// Why a run can't be begun in whose place this row stands.
pub(super) fn exists(id: &str, row: Option<Versioned>) -> Result<Error, Error> {
    if let Some(row) = row {
        let read = RunRow::read(&row.value)?;
        if let Some(closed) = closed(id, read.life) {
            return Ok(closed);
        }
    }
    Ok(Error::new(
        ErrorKind::RunExists,
        format!("run {id:?} exists: resume it after a crash, attach to it from a second process, or choose another id"),
    ))
}

/// The log without what a resume cuts off.
fn cut(log: RunLog, seen: Seen) -> RunLog {
    let (last_turn, seen) = match seen {
        // Whoever has seen a turn was answered in it, whether or not the note of that survived.
        Seen::Through(last) => (Some(last), log.seen.map(|turn| turn.min(last))),
        Seen::Nothing => (None, None),
    };
    RunLog { last_turn, seen, ..log }
}
