//! The guard: what stands between the caller and the tool. The only part of the library that awaits.
//!
//! A call goes `registry → call → Drive (path) → claim → attempt → recorded end → finish → reply`. Everything from the
//! claim on runs on a task of the guard; the caller holds only a receiver, so dropping the caller's future, running
//! out of patience or losing the client neither cancels the effect nor loses its outcome.

mod answer;
mod attempt;
mod blank;
mod builder;
mod contract;
mod deliver;
mod doubt;
mod down;
mod flight;
mod fork;
mod gc;
mod here;
mod ladder;
mod later;
mod lease;
pub(crate) mod long;
mod look;
mod look_alike;
mod manifest;
mod now;
mod pages;
mod path;
mod permission;
mod read;
mod reads;
mod records;
mod reopen;
#[cfg(feature = "testing")]
mod row_again;
mod rows;
mod runs;
mod secrets;
mod sole;
mod sync;
mod tasks;
mod unrecorded;
mod work;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

pub(crate) use self::answer::{Answer, Turnstile};
use self::answer::{ResultText, SharedSpot, Spot, Told};
pub(crate) use self::attempt::AttemptState;
pub use self::builder::GuardBuilder;
pub(crate) use self::deliver::Delivery;
pub use self::doubt::{InDoubtCall, Resolution};
pub use self::down::StoreDown;
pub(crate) use self::fork::Parent;
pub use self::gc::{GcClock, GcOptions, GcReport};
use self::later::Later;
pub use self::look::{
    CallDetail, CallStatus, CallSummary, CallsFrom, CallsPage, Execution, NextCall, OpenAttempt, Question,
    RecordedOutcome,
};
pub(crate) use self::manifest::Plan;
use self::path::{Beside, Drive};
pub use self::permission::ApprovalRequest;
use self::records::Records;
pub(crate) use self::reopen::{Part, Reopens, placed};
#[cfg(feature = "testing")]
pub use self::row_again::row_again;
pub(crate) use self::rows::{Manifest, ManifestCall, Prefix, Row, RunLog, StepRow};
pub(crate) use self::runs::RunState;
pub(crate) use self::secrets::{Keying, Secrets};
pub(crate) use self::work::{Guarded, Keyed, MOST_TIMES, Work};
use crate::canonical::Limits;
use crate::error::{Error, ErrorKind};
use crate::protocol::apply::millis;
use crate::protocol::decide::Act;
use crate::protocol::notes::Note;
use crate::store::{Store, StoreError, StoreErrorKind};

/// What a guard goes by where a tool's policy doesn't say otherwise.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) patience: Duration,
    pub(crate) attempt_deadline: Duration,
    pub(crate) settle_delay: Duration,
    pub(crate) lease: Duration,
    pub(crate) heartbeat: Duration,
    pub(crate) max_result: usize,
    pub(crate) arguments: Limits,
    pub(crate) memory_tier: u64,
    pub(crate) replay_stop: u32,
    pub(crate) store_down: StoreDown,
    pub(crate) retention: Duration,
}

/// That something happened in a run is written no more often than this, or than a thousandth of how long it is kept.
const SIGN_OF_LIFE: Duration = Duration::from_secs(60);

/// Proof of life, three times a lease.
async fn beat(inner: std::sync::Weak<Inner>, every: Duration) {
    let mut count = 0;
    loop {
        let Some(clock) = inner.upgrade().map(|inner| Arc::clone(inner.now.clock())) else { return };
        clock.sleep(every).await;
        let Some(inner) = inner.upgrade() else { return };
        count += 1;
        if let Err(error) = inner.lease.beat(&**inner.records.store(), count, inner.now.get()).await {
            tracing::warn!(%error, "no sign of life could be given; others may take this process for dead");
        }
    }
}

pub(crate) struct Inner {
    pub(crate) records: Records,
    pub(crate) runs: runs::Runs,
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) settings: Settings,
    pub(crate) now: now::Now,
    pub(crate) lease: lease::Lease,
    flights: flight::Flights,
    bodies: here::Bodies,
    unrecorded: here::Unrecorded,
    unstarted: here::Unstarted,
    tasks: tasks::Tasks,
    background: tasks::Tasks,
    writer: mpsc::UnboundedSender<Later>,
    incidents: AtomicU64,
    closed: AtomicBool,
    sole: sole::Sole,
    /// By tool, as registered: a human's answer knows the tool by its name only.
    settle_delays: Mutex<HashMap<String, Duration>>,
    /// By tool, as registered: how long its global records are kept, `None` for ever.
    retentions: Mutex<HashMap<String, Option<Duration>>>,
}

/// Stands between agents and their tools. Cheap to clone; all clones are one guard.
///
/// One guard per process and store. Make a [`Registry`](crate::Registry) of tools on it and a [`Run`](crate::Run) for
/// each piece of work.
#[derive(Clone)]
pub struct Guard {
    pub(crate) inner: Arc<Inner>,
    pub(crate) namespace: Arc<str>,
    pub(crate) prefix: Prefix,
    /// Whose answers it takes down.
    answerer: Arc<str>,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// How long a shutdown waits for a store that hangs, once for the last writes and once for closing it.
const LAST_WRITES: Duration = Duration::from_secs(5);

/// What was left when a guard was shut down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shutdown {
    /// Executions that had not ended: they are in doubt when the store is opened next.
    pub unfinished: usize,
}

impl Guard {
    /// A guard on `store` for the calls of `namespace`: an application, a customer, an environment. Runs and records
    /// of two namespaces never meet.
    pub fn builder(store: impl Store, namespace: impl Into<String>) -> GuardBuilder {
        Self::builder_on(Arc::new(store), namespace)
    }

    /// As [`builder`](Self::builder), on a store that the program holds as well, for example to close it. A second
    /// guard needs a store that is made for several, such as [`MemoryStore::shared`](crate::store::MemoryStore::shared).
    pub fn builder_on(store: Arc<dyn Store>, namespace: impl Into<String>) -> GuardBuilder {
        GuardBuilder::new(store, namespace.into())
    }

    /// The same guard for another namespace.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it is empty.
    pub fn with_namespace(&self, namespace: impl Into<String>) -> Result<Self, Error> {
        let namespace: String = namespace.into();
        if namespace.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "the namespace is empty: give the calls a name"));
        }
        let prefix = Prefix::new(&namespace);
        Ok(Self { namespace: namespace.into(), prefix, ..self.clone() })
    }

    /// How often a `Write` was found to have been executed twice: a process that was stopped for longer than anybody
    /// waited, and went on. Each one is logged with its tool and run.
    pub fn incidents(&self) -> u64 {
        self.inner.incidents.load(Ordering::Relaxed)
    }

    /// Takes no more calls, waits for the running ones at most `deadline`, and closes the store. What is left is in
    /// doubt when it is opened next.
    ///
    /// # Errors
    /// If the store can't be closed cleanly.
    pub async fn shutdown(&self, deadline: Duration) -> Result<Shutdown, Error> {
        let inner = &self.inner;
        inner.closed.store(true, Ordering::Release);
        let clock = Arc::clone(inner.now.clock());
        tokio::select! {
            () = inner.tasks.idle() => {}
            () = clock.sleep(deadline) => {}
        }
        let last = async {
            inner.record_what_can_be().await;
            inner.noted().await;
        };
        tokio::select! {
            biased;
            () = last => {}
            () = clock.sleep(LAST_WRITES) => tracing::error!("the store hangs: what isn't written yet is lost"),
        }
        let unfinished = inner.bodies.count();
        inner.background.stop();
        let closed = tokio::select! {
            biased;
            closed = inner.close() => closed,
            () = clock.sleep(LAST_WRITES) => {
                Err(StoreError::new(StoreErrorKind::Uncertain, "the store hangs: it could not be closed in time"))
            }
        };
        inner.tasks.stop();
        inner.sole.release();
        closed?;
        Ok(Shutdown { unfinished })
    }

    /// Stops every task where it is, as a kill of the process would. For tests.
    #[cfg(feature = "testing")]
    pub fn crash(&self) {
        self.inner.closed.store(true, Ordering::Release);
        self.inner.tasks.stop();
        self.inner.background.stop();
        self.inner.sole.release();
    }

    /// How many of this guard's tasks are at work. For tests.
    #[cfg(feature = "testing")]
    pub fn busy(&self) -> usize {
        self.inner.tasks.count()
    }
}

impl Inner {
    /// One call, from the caller's side: waits for its answer as long as patience lasts. What makes it a reply is
    /// [`finish`](Self::finish), in the poll that hands it over.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        work: Arc<Work>,
        patience: Option<Duration>,
        turnstile: Turnstile,
    ) -> Answer {
        if let Some(why) = self.turned_away(&work) {
            return Answer { told: Told::Refused(why.to_owned()), spot: Spot::default() };
        }
        if turnstile.before.is_none()
            && let Some(answer) = self.at_once(&work)
        {
            return answer;
        }
        let patience = patience.unwrap_or(self.settings.patience);
        let spot = SharedSpot::default();
        let until = self.now.clock().monotonic().saturating_add(patience);
        let drive = Drive::new(Arc::clone(self), Arc::clone(&work), Arc::clone(&spot), until);
        let (tell, told) = oneshot::channel();
        self.tasks.spawn(attempt::within(attempt::inside(), async move {
            let answer = drive.run(turnstile).await;
            // Nobody listens any more if the caller left: then it was not delivered.
            let _ = tell.send(answer);
        }));
        tokio::select! {
            biased;
            told = told => told.unwrap_or_else(|_| interrupted(&spot)),
            () = self.now.clock().sleep(patience) => out_of_patience(&spot),
        }
    }

    /// Gives the store up. What is left of this process's claims is nobody's from here on.
    async fn close(&self) -> Result<(), StoreError> {
        let store = self.records.store();
        if !self.lease.is_alone()
            && let Err(error) = self.lease.end(&**store).await
        {
            tracing::warn!(%error, "the sign of life could not be taken away: a later gc does it");
        }
        store.close().await
    }

    fn turned_away(&self, work: &Work) -> Option<&'static str> {
        if self.closed.load(Ordering::Acquire) {
            return Some("the program is shutting down. Try again when it is back.");
        }
        attempt::is_inside(&work.key).then_some(
            "a tool may not make the same call from inside itself: it would wait for itself. Go on without it.",
        )
    }

    /// A replay from the memory tier, without a task of its own.
    fn at_once(self: &Arc<Self>, work: &Arc<Work>) -> Option<Answer> {
        if !self.lease.is_alone() || self.unrecorded.has(&work.key) {
            return None;
        }
        let bound = !work.tool.policy.effect().is_write() || work.run.contract(work.name()) == Some(work.tool.contract);
        if !bound || work.before.is_some() || !work.part.reopened_by.is_empty() {
            return None;
        }
        let known = self.records.at_hand(&work.key)?;
        let decision = self.decide(work, &known.base, Beside::default()).ok()?;
        if work.has_diverged() {
            return None;
        }
        let Act::Give(mark) = decision.act else { return None };
        let record = known.base.occurrences.get(decision.occurrence)?;
        let outcome = record.outcome.as_ref()?;
        let crate::protocol::record::Body::Inline(bytes) = &outcome.body else { return None };
        let text = ResultText::kept(String::from_utf8(bytes.clone()).ok()?);
        if let (Some(place), Some(_)) = (decision.place, work.asked.nth) {
            // The next equal call of the message must find the place taken.
            self.note(
                work,
                Note {
                    occurrence: decision.occurrence,
                    place: work.place(place.nth),
                    given: None,
                    delivered: None,
                    replay: false,
                },
            );
        }
        let told =
            Told::Outcome { kind: crate::ReplyKind::Replayed, mark, at: outcome.at, replays: record.replays, text };
        let spot = Spot {
            occurrence: decision.occurrence,
            place: decision.place,
            downstream: Some(records::downstream(&work.key, &known.base, decision.occurrence)),
            found: true,
            ..Spot::default()
        };
        Some(Answer { told, spot })
    }

    /// Waits until the record may have changed in another process.
    pub(crate) async fn changed_or_later(&self, work: &Work) {
        let keys = [work.run.prefix.base(&work.key)];
        let later = self.now.clock().sleep(Duration::from_millis(250));
        match self.records.store().changed(&keys) {
            Some(changed) => tokio::select! {
                () = changed => {}
                () = later => {}
            },
            None => later.await,
        }
    }

    /// Writes that something happened in a run, soon, unless that was written shortly before.
    pub(crate) fn sign_of_life(&self, run: &Arc<RunState>) {
        let often = (self.settings.retention / 1000).min(SIGN_OF_LIFE);
        if self.now.get().saturating_sub(run.active_at()) >= millis(often) {
            let _ = self.writer.send(Later::Log(Arc::clone(run)));
        }
    }
}

fn snapshot(spot: &Mutex<Spot>) -> Spot {
    spot.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn out_of_patience(spot: &Mutex<Spot>) -> Answer {
    let spot = snapshot(spot);
    let told = match &spot.awaited {
        Some(awaited) => Told::Awaiting(awaited.clone()),
        None if spot.doubt => Told::InDoubt,
        None => Told::Running,
    };
    Answer { told, spot }
}

/// The call's task was stopped: by a shutdown, or by a panic of its own.
fn interrupted(spot: &Mutex<Spot>) -> Answer {
    let spot = snapshot(spot);
    let told = match spot.found {
        true => Told::InDoubt,
        false => Told::Refused("the program was stopped before it could be started. Calling again is safe.".to_owned()),
    };
    Answer { told, spot }
}
