//! Runs: pieces of work that survive a crash.
//!
//! A run has an id that the host chose before the work began, turns (the assistant messages, from 0) and steps. A
//! step is anything whose value must not be computed twice, above all the model call: it is durable before it is
//! returned, and a resumed run gets it from the store. Effects belong in tools, not in steps.
//!
//! ```
//! use toolonce::store::MemoryStore;
//! use toolonce::{Guard, Run, Seen};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), toolonce::Error> {
//! let guard = Guard::builder(MemoryStore::new(), "shop").build().await?;
//! let run = Run::start(&guard, "order-17").await?;
//! let said: String = run.step("model", &"hello", || async { Ok("hi".to_owned()) }).await?;
//!
//! // … the process dies; the next one goes on from the log, and pays for no token again …
//! let run = Run::resume(&guard, "order-17", Seen::Nothing).await?;
//! let again: String = run.step("model", &"hello", || async { unreachable!("it is recorded") }).await?;
//! assert_eq!(said, again);
//! # Ok(())
//! # }
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::canonical::{self, Limits};
use crate::error::{Error, ErrorKind};
use crate::guard::{Guard, Parent, Row, RunLog, RunState, StepRow, long};
use crate::key::Digest;
use crate::protocol::history;
use crate::store::{Batch, Committed, Durability, Key};

/// What digests of a step's input are for.
const STEP: &str = "toolonce step";

/// How much of a run its caller has seen when it resumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Seen {
    /// The answers of turns up to and including this one.
    Through(u32),
    /// None: the work begins anew, on the same records.
    Nothing,
    /// What the steps tell: a turn was seen if a step ended after its answers were given. For hosts whose model calls
    /// are steps.
    Steps,
}

/// A handle of one run. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Run {
    guard: Guard,
    state: Arc<RunState>,
    epoch: u32,
    steps: Arc<Mutex<Steps>>,
    context: Arc<BTreeMap<String, String>>,
}

#[derive(Debug, Default)]
struct Steps {
    uses: HashMap<String, u32>,
    in_flight: HashSet<String>,
}

impl Run {
    /// Begins a run. The id must be new in the guard's namespace; it is what a retry of the whole run must reuse.
    ///
    /// # Errors
    /// [`ErrorKind::RunExists`]; [`ErrorKind::RunPurged`] if it existed; [`ErrorKind::Invalid`] for an empty id; a store
    /// error.
    pub async fn start(guard: &Guard, id: impl AsRef<str>) -> Result<Self, Error> {
        let id = checked(id.as_ref())?;
        let state = guard.inner.runs.start(&guard.namespace, id, guard.inner.now.get()).await?;
        Ok(Self::of(guard, state, 0))
    }

    /// Joins a run that exists in its present epoch, from a second process or a second task.
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchRun`]; [`ErrorKind::RunPurged`]; [`ErrorKind::Invalid`] for an empty id; a store error.
    pub async fn attach(guard: &Guard, id: impl AsRef<str>) -> Result<Self, Error> {
        let id = checked(id.as_ref())?;
        let state = guard.inner.runs.attach(&guard.namespace, id).await?;
        let epoch = state.now().history.epoch();
        Ok(Self::of(guard, state, epoch))
    }

    /// Goes on with a run after its process died, in a new epoch: handles of the older one are refused from now on.
    /// What the caller has not seen may be sampled again; equal calls then get the recorded outcomes.
    ///
    /// # Errors
    /// As [`attach`](Self::attach).
    pub async fn resume(guard: &Guard, id: impl AsRef<str>, seen: Seen) -> Result<Self, Error> {
        let id = checked(id.as_ref())?;
        let cut = move |log: &RunLog| match seen {
            Seen::Through(turn) => history::Seen::Through(turn),
            Seen::Nothing => history::Seen::Nothing,
            Seen::Steps => log.seen.map_or(history::Seen::Nothing, history::Seen::Through),
        };
        let (state, epoch) = guard.inner.runs.resume(&guard.namespace, id, guard.inner.now.get(), cut).await?;
        Ok(Self::of(guard, state, epoch))
    }

    /// Begins a run, or goes on with it if it exists: what a program does that may be started again after a crash.
    ///
    /// # Errors
    /// [`ErrorKind::RunPurged`]; [`ErrorKind::Invalid`] for an empty id; a store error.
    pub async fn start_or_resume(guard: &Guard, id: impl AsRef<str>, seen: Seen) -> Result<Self, Error> {
        match Self::start(guard, id.as_ref()).await {
            Err(error) if error.kind() == ErrorKind::RunExists => Self::resume(guard, id, seen).await,
            started => started,
        }
    }

    /// Begins a run that stands where this one stood before it came to `before_turn`: what was done in earlier turns is
    /// done in the fork, too, and equal calls there get the same outcomes; steps of earlier turns have their values. From
    /// then on the two know nothing of each other: what either does later is its own, a write of the same meaning
    /// included. The copy takes time and room in proportion to what the earlier turns left in the store.
    ///
    /// What a call did belongs to the turn that began it, however late that is known; calls without a turn, and what they
    /// did, are taken for earlier ones. What a person refused in an earlier turn stays refused in the fork; what was
    /// permitted is not permitted there once more. This run may work on meanwhile: the fork stands where it stood at one
    /// moment of the copying.
    ///
    /// # Errors
    /// [`ErrorKind::Unresolved`] while a call that an earlier turn began is running or in doubt, or while earlier turns go
    /// on changing; [`ErrorKind::RunExists`] and [`ErrorKind::RunPurged`] as [`start`](Self::start) for the new id;
    /// [`ErrorKind::StaleRun`] if this run was resumed since; [`ErrorKind::Invalid`] for an empty id; a store error, after
    /// which it may be tried again.
    pub async fn fork(&self, id: impl AsRef<str>, before_turn: u32) -> Result<Self, Error> {
        let id = checked(id.as_ref())?;
        let parent = Parent { run: &self.state, epoch: self.epoch, before: before_turn };
        let state = self.guard.inner.fork(parent, id).await?;
        let epoch = state.now().history.epoch();
        Ok(Self::of(&self.guard, state, epoch))
    }

    fn of(guard: &Guard, state: Arc<RunState>, epoch: u32) -> Self {
        Self { guard: guard.clone(), state, epoch, steps: Arc::default(), context: Arc::default() }
    }

    /// The run id.
    pub fn id(&self) -> &str {
        &self.state.id
    }

    /// How often the run was resumed before this handle was made.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// This handle, with a context value for all calls made through it and its clones: the account, environment or
    /// directory that the run is about. What a [call](crate::Call::context) says itself goes first. It isn't recorded:
    /// whoever resumes the run says it again.
    #[must_use]
    pub fn with_context(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.context).insert(name.into(), value.into());
        self
    }

    pub(crate) fn context(&self, name: &str) -> Option<&String> {
        self.context.get(name)
    }

    pub(crate) fn guard(&self) -> &Guard {
        &self.guard
    }

    pub(crate) fn state(&self) -> &Arc<RunState> {
        &self.state
    }

    /// The value of a step: from the log if this run recorded it, else from `compute`, recorded before it is returned.
    /// A step is known by its name and how often the name was used before in this run, so a resumed run must ask for
    /// its steps in the same order.
    ///
    /// # Errors
    /// [`ErrorKind::Diverged`] if the recorded step had another input; [`ErrorKind::StepInFlight`] if one of this name
    /// is being computed; [`ErrorKind::StaleRun`] if the run was resumed since; what `compute` returned (an error of its
    /// own goes into [`Error::step`]), in which case nothing is recorded and the step may be tried again; a store
    /// error, in which case the value is not recorded and not returned.
    pub fn step<I, T, F, Fut>(&self, name: &str, input: &I, compute: F) -> impl Future<Output = Result<T, Error>>
    where
        I: Serialize + ?Sized,
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, Error>>,
    {
        // Numbered when called, not when first polled: the order of the calls is what a resumed run repeats.
        let in_flight = InFlight::enter(&self.steps, name);
        async move { self.step_as(in_flight?, name, input, compute).await }
    }

    async fn step_as<I, T, F, Fut>(&self, in_flight: InFlight, name: &str, input: &I, compute: F) -> Result<T, Error>
    where
        I: Serialize + ?Sized,
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, Error>>,
    {
        let input = canonical(json(input)?);
        let key = self.state.prefix.step(&self.state.id, name, in_flight.n);
        if let Some(value) = self.recorded(&key, name, &input).await? {
            in_flight.used();
            return Ok(value);
        }
        self.guard.inner.runs.keep_open(&self.state).await?;
        let before = self.state.now().in_epoch(self.epoch)?.log.last_turn;
        let text = String::from_utf8(json(&compute().await?)?).unwrap_or_default();
        // What a resumed run will get, or nothing: a value that can't be read back would stop the run for good.
        let value = serde_json::from_str(&text).map_err(|error| unrepeatable(name, &error))?;
        let digest = self.guard.inner.secrets.current().digest(STEP, &input);
        let value = match self.record(&key, digest, text, before).await? {
            true => value,
            // Another handle of the run was faster: its value is what every resume will get.
            false => self.recorded(&key, name, &input).await?.unwrap_or(value),
        };
        in_flight.used();
        Ok(value)
    }

    async fn recorded<T: DeserializeOwned>(&self, key: &Key, name: &str, input: &[u8]) -> Result<Option<T>, Error> {
        let store = self.guard.inner.records.store();
        let Some((_, row)) = long::get(&**store, key).await? else { return Ok(None) };
        let row = StepRow::read(&row)?;
        if !self.guard.inner.secrets.is_digest(row.input, STEP, input) {
            let message = format!(
                "step {name:?} of run {:?} was recorded with another input: the program or the history changed since",
                self.id()
            );
            return Err(Error::new(ErrorKind::Diverged, message));
        }
        serde_json::from_str(&row.value).map(Some).map_err(|error| self.unreadable(name, &error))
    }

    /// `false` if somebody else has recorded the step meanwhile.
    async fn record(&self, key: &Key, input: Digest, text: String, seen: Option<u32>) -> Result<bool, Error> {
        let turn = seen.map_or(0, |seen| seen.saturating_add(1));
        let row = StepRow { turn, input, value: text }.to_bytes();
        loop {
            self.guard.inner.runs.keep_open(&self.state).await?;
            let now = self.state.now().in_epoch(self.epoch)?;
            let log = RunLog { seen: now.log.seen.max(seen), active_at: self.guard.inner.now.get(), ..now.log };
            let mut batch = Batch {
                checks: vec![
                    (self.state.row_key(), Some(now.row)),
                    (self.state.log_key(), now.log_version),
                    (key.clone(), None),
                ],
                puts: vec![(self.state.log_key(), log.to_bytes())],
                ..Batch::default()
            };
            long::put(key, &row, &mut batch.puts);
            match self.guard.inner.records.store().commit(batch, Durability::Synced).await? {
                Committed::Applied(version) => {
                    self.state.wrote_log(log, version);
                    return Ok(true);
                }
                Committed::Conflict(mut existing) => {
                    // In the order of the checks, from behind.
                    let step = existing.pop().flatten();
                    let (log, row) = (existing.pop().flatten(), existing.pop().flatten());
                    self.state.refresh(row, log)?;
                    if step.is_some() {
                        return Ok(false);
                    }
                }
            }
        }
    }

    fn unreadable(&self, name: &str, error: &serde_json::Error) -> Error {
        let message =
            format!("the recorded value of step {name:?} of run {:?} doesn't fit its type: {error}", self.id());
        Error::new(ErrorKind::Diverged, message)
    }
}

fn unrepeatable(name: &str, error: &serde_json::Error) -> Error {
    let message = format!("the value of step {name:?} can't be read back from its JSON: {error}");
    Error::new(ErrorKind::Invalid, message)
}

fn checked(id: &str) -> Result<&str, Error> {
    match id.len() {
        0 => Err(Error::new(
            ErrorKind::Invalid,
            "the run id is empty: choose one that a restart of the work would choose again",
        )),
        1..=1024 => Ok(id),
        _ => Err(Error::new(
            ErrorKind::Invalid,
            "the run id is longer than 1024 bytes: use a shorter one, or its digest",
        )),
    }
}

fn json<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(value)
        .map_err(|error| Error::new(ErrorKind::Invalid, format!("a step can't be written as JSON: {error}")))
}

/// Inputs are compared by meaning: maps come in any order, and an older program may have written a number otherwise.
/// What has no canonical form (numbers beyond its range) is compared as it is.
fn canonical(text: Vec<u8>) -> Vec<u8> {
    let limits = Limits { bytes: usize::MAX, depth: Limits::MAX_DEPTH };
    match canonical::read_bytes(&text, &limits) {
        Ok(node) => canonical::write(&node).into_bytes(),
        Err(_) => text,
    }
}

/// A step that is being computed. Its number is used up only when it has a value.
struct InFlight {
    steps: Arc<Mutex<Steps>>,
    name: String,
    n: u32,
}

impl InFlight {
    fn enter(steps: &Arc<Mutex<Steps>>, name: &str) -> Result<Self, Error> {
        let mut lock = steps.lock().unwrap_or_else(PoisonError::into_inner);
        if !lock.in_flight.insert(name.to_owned()) {
            let message = format!("a step {name:?} is being computed: wait for it, or give this one another name");
            return Err(Error::new(ErrorKind::StepInFlight, message));
        }
        let n = lock.uses.get(name).copied().unwrap_or(0);
        Ok(Self { steps: Arc::clone(steps), name: name.to_owned(), n })
    }

    fn used(&self) {
        let mut lock = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        *lock.uses.entry(self.name.clone()).or_default() += 1;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut lock = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        lock.in_flight.remove(&self.name);
    }
}
