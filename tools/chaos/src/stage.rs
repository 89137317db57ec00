//! What the modes without a process of their own share: time that is moved by hand, and effects that are counted where
//! the guard has no part.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use toolonce::testing::ManualClock;
use toolonce::{Clock as _, Reply};

use crate::summary::{Findings, Kind};

/// What happened in the world, in order: which call's effect, under which downstream key.
#[derive(Debug, Clone, Default)]
pub(crate) struct Effects {
    all: Arc<Mutex<Vec<(String, String)>>>,
}

impl Effects {
    fn lock(&self) -> MutexGuard<'_, Vec<(String, String)>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It happens.
    pub(crate) fn happen(&self, call: &str, downstream: &str) {
        self.lock().push((call.to_owned(), downstream.to_owned()));
    }

    /// Whether it did.
    pub(crate) fn has(&self, call: &str) -> bool {
        self.lock().iter().any(|(happened, _)| happened == call)
    }

    /// How many effects a call had; what is sent again under one downstream key is dropped downstream if `is_keyed`.
    pub(crate) fn count(&self, call: &str, is_keyed: bool) -> usize {
        let all = self.lock();
        let mut keys: Vec<&String> = all.iter().filter(|(happened, _)| happened == call).map(|(_, key)| key).collect();
        if is_keyed {
            keys.sort();
            keys.dedup();
        }
        keys.len()
    }

    /// Whether the call had an effect under the downstream key that people call by this reference.
    pub(crate) fn has_reference(&self, call: &str, reference: &str) -> bool {
        self.lock().iter().any(|(happened, key)| happened == call && key.starts_with(reference))
    }

    /// No call may have a second effect.
    pub(crate) fn judge(&self, call: &str, is_keyed: bool, found: &mut Findings) {
        let count = self.count(call, is_keyed);
        if count > 1 {
            found.add(Kind::Twice, format!("{call} has {count} effects"));
        }
    }
}

/// The result that a reply carries, if it does.
pub(crate) fn result(reply: &Reply) -> Option<&str> {
    reply.outcome().map(toolonce::Outcome::text)
}

/// Lets all tasks of this thread's runtime go as far as they get without time passing.
pub(crate) async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Waits for a task while time passes from one sleeper to the next. `None` if it panicked, nobody would ever wake it, or
/// it takes longer than `bound` by the clock.
pub(crate) async fn within<T>(clock: &ManualClock, bound: Duration, task: JoinHandle<T>) -> Option<T> {
    within_strides(clock, bound, Duration::ZERO, task).await.ok()
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Silence {
    /// The task panicked.
    Panicked,
    /// Nobody would ever wake it, or not within the bound.
    Waits,
}

/// The same, in strides of at least `stride`: sleepers who wake more often than that all oversleep.
pub(crate) async fn within_strides<T>(
    clock: &ManualClock,
    bound: Duration,
    stride: Duration,
    task: JoinHandle<T>,
) -> Result<T, Silence> {
    let until = clock.monotonic().saturating_add(bound);
    loop {
        settle().await;
        if task.is_finished() {
            return task.await.map_err(|_| Silence::Panicked);
        }
        match clock.next_deadline() {
            Some(next) if clock.monotonic().saturating_add(next) <= until => clock.advance(next.max(stride)),
            _ => {
                task.abort();
                return Err(Silence::Waits);
            }
        }
    }
}

/// A runtime on one thread: what is done there is done in the same order each time.
pub(crate) fn still() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}
