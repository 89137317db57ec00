//! Making a guard.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;

use super::records::Records;
use super::rows::Prefix;
use super::secrets::{Secrets, Unwritten};
use super::{Guard, Inner, Settings, StoreDown, beat, flight, here, later, lease, now, runs, sole, tasks};
use crate::canonical::Limits;
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, ErrorKind};
use crate::key::Secret;
use crate::store::{Store, StoreErrorKind};

/// Makes a [`Guard`].
///
/// ```
/// use std::time::Duration;
/// use toolonce::Guard;
/// use toolonce::store::MemoryStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), toolonce::Error> {
/// let guard = Guard::builder(MemoryStore::new(), "shop").patience(Duration::from_secs(20)).build().await?;
/// # guard.shutdown(Duration::from_secs(1)).await?;
/// # Ok(())
/// # }
/// ```
#[must_use]
#[derive(Debug)]
pub struct GuardBuilder {
    store: StoreHandle,
    namespace: String,
    clock: Arc<dyn Clock>,
    settings: Settings,
    secret: Option<Secret>,
    older_secrets: Vec<Secret>,
    unwritten: Unwritten,
    #[cfg(feature = "seal")]
    seal: Option<crate::seal::SealKeys>,
}

struct StoreHandle(Arc<dyn Store>);

impl fmt::Debug for StoreHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Store")
    }
}

impl GuardBuilder {
    pub(super) fn new(store: Arc<dyn Store>, namespace: String) -> Self {
        Self {
            store: StoreHandle(store),
            namespace,
            clock: Arc::new(SystemClock::new()),
            settings: Settings {
                patience: Duration::from_secs(60),
                attempt_deadline: Duration::from_secs(600),
                settle_delay: Duration::from_secs(60),
                lease: Duration::from_secs(30),
                heartbeat: Duration::from_secs(10),
                max_result: 1 << 20,
                arguments: Limits::default(),
                memory_tier: 32_000_000,
                replay_stop: 5,
                store_down: StoreDown::default(),
                retention: Duration::from_secs(30 * 24 * 3600),
            },
            secret: None,
            older_secrets: Vec::new(),
            unwritten: Unwritten::Begin,
            #[cfg(feature = "seal")]
            seal: None,
        }
    }

    /// How long a caller waits for a call before it is told that it is still running. Default 60 s.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.settings.patience = patience;
        self
    }

    /// After this long an execution is in doubt. Default 10 min.
    pub fn attempt_deadline(mut self, deadline: Duration) -> Self {
        self.settings.attempt_deadline = deadline;
        self
    }

    /// How long after the end of an attempt its effect may still show downstream. Default 60 s.
    pub fn settle_delay(mut self, delay: Duration) -> Self {
        self.settings.settle_delay = delay;
        self
    }

    /// On a store with several processes, one that gave no sign of life for this long is taken for silent; signs are
    /// given three times as often. Default 30 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        // A heart that beats without a pause does nothing else.
        self.settings.heartbeat = (lease / 3).max(Duration::from_millis(1));
        self
    }

    /// The largest result that is kept, in bytes. Default 1 MiB.
    pub fn max_result(mut self, bytes: usize) -> Self {
        self.settings.max_result = bytes;
        self
    }

    /// How large and deep arguments may be. Default 1 MiB, depth 128.
    pub fn argument_limits(mut self, limits: Limits) -> Self {
        self.settings.arguments = limits;
        self
    }

    /// How much memory completed records may take, in bytes. Default 32 MB.
    pub fn memory_tier(mut self, bytes: u64) -> Self {
        self.settings.memory_tier = bytes;
        self
    }

    /// From which marked replay of one call in a row on the model is told to stop repeating it, at least 1. Default 5.
    pub fn replay_stop(mut self, nth: u32) -> Self {
        self.settings.replay_stop = nth.max(1);
        self
    }

    /// What is done with calls while the store doesn't work. Default: reads run, everything else is refused.
    pub fn store_down(mut self, down: StoreDown) -> Self {
        self.settings.store_down = down;
        self
    }

    /// How long after the last thing that happened in a run [`Guard::gc`] may remove it; with zero the next one removes
    /// every run in which nothing is open or asked of a person. Default 30 days.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.settings.retention = retention;
        self
    }

    /// Where time comes from. Default [`SystemClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Derives keys and digests with this secret, so that whoever reads the store can't find out arguments by trying
    /// candidates, and tools with the hint `secret` can be registered. Default: none.
    ///
    /// A namespace is written with a secret from its first row on, or never; the guard is refused where it doesn't have
    /// every secret that was in use. To change it, give the new one here and the former with
    /// [`older_secret`](Self::older_secret), in all processes; one that doesn't know the new one yet is refused from
    /// then on. Records stay under the secret they were begun with.
    pub fn secret(mut self, secret: Secret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// Also finds what was written with this secret. It must stay as long as the namespace has records. May be called
    /// several times.
    pub fn older_secret(mut self, secret: Secret) -> Self {
        self.older_secrets.push(secret);
        self
    }

    /// Seals everything that is written to the store: encrypted and authenticated, each row bound to its place. Default:
    /// rows are plain.
    ///
    /// A store that was written plainly may be opened with a key: what is there is read as it is, what is written from
    /// then on is sealed, and opening it without the key is an error from then on. Keys of rows are not sealed; give a
    /// [`secret`](Self::secret) as well, else arguments can be guessed from them.
    #[cfg(feature = "seal")]
    pub fn seal(mut self, keys: crate::seal::SealKeys) -> Self {
        self.seal = Some(keys);
        self
    }

    /// Refuses a secret or seal key that the namespace isn't already written with, with [`ErrorKind::Secret`]. For
    /// programs that look into another program's store: beginning a new key would lock that program out. Default: a new
    /// key is begun.
    pub fn existing(mut self) -> Self {
        self.unwritten = Unwritten::Refuse;
        self
    }

    /// Makes the guard. Its tasks run on the present tokio runtime.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an empty namespace, and for a second guard on a store of which the first takes every
    /// commit for its own: clone the first, or use [`Guard::with_namespace`]. [`ErrorKind::Secret`] if the namespace was
    /// written with a secret that the guard doesn't have, or without one; of a store that only this process writes and
    /// that can't be reached now, it is asked when a run begins. Any other store error; its kind is
    /// [`Sealed`](StoreErrorKind::Sealed) if a seal key is missing.
    pub async fn build(self) -> Result<Guard, Error> {
        if self.namespace.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "the namespace is empty: give the guard a name for its calls"));
        }
        if self.secret.is_none() && !self.older_secrets.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "there are older secrets and none for writing: give one"));
        }
        let (store, seals) = self.sealed();
        let list = self.secret.into_iter().chain(self.older_secrets).collect();
        let secrets = Arc::new(Secrets::new(list, seals, !store.is_exclusive(), self.unwritten)?);
        let sole = sole::Sole::of(&*store)?;
        match secrets.admit_to_look(&*store, &self.namespace).await {
            // No call can be made before a run is begun, which asks again.
            Err(error) if error.kind() == ErrorKind::Store(StoreErrorKind::Unavailable) => {
                tracing::warn!(%error, "the store doesn't work: with which secrets it was written is asked later");
            }
            admitted => admitted?,
        }
        let now = now::Now::new(self.clock);
        let lease = lease::Lease::new(store.is_exclusive(), self.settings.lease, now.get());
        if !lease.is_alone() {
            lease.beat(&*store, 0, now.get()).await?;
        }
        let (writer, later) = mpsc::unbounded_channel();
        let inner = Arc::new(Inner {
            records: Records::new(Arc::clone(&store), self.settings.memory_tier),
            runs: runs::Runs::new(store, Arc::clone(&secrets)),
            secrets,
            settings: self.settings,
            now,
            lease,
            flights: flight::Flights::default(),
            bodies: here::Bodies::default(),
            unrecorded: here::Unrecorded::default(),
            unstarted: here::Unstarted::default(),
            tasks: tasks::Tasks::default(),
            background: tasks::Tasks::default(),
            writer,
            incidents: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            sole,
            settle_delays: Mutex::default(),
            retentions: Mutex::default(),
        });
        inner.background.spawn(later::write_later(Arc::downgrade(&inner), later));
        if !inner.lease.is_alone() {
            inner.background.spawn(beat(Arc::downgrade(&inner), inner.settings.heartbeat));
        }
        let namespace: Arc<str> = self.namespace.into();
        let prefix = Prefix::new(&namespace);
        Ok(Guard { inner, namespace, prefix, answerer: Arc::default() })
    }
}

impl GuardBuilder {
    /// The store as the guard sees it, and the ids of the keys it is sealed with.
    fn sealed(&self) -> (Arc<dyn Store>, Vec<u64>) {
        let inner = Arc::clone(&self.store.0);
        #[cfg(feature = "seal")]
        if let Some(keys) = self.seal.clone() {
            let seals = keys.ids().collect();
            return (Arc::new(crate::seal::SealedStore { inner, keys }), seals);
        }
        (inner, Vec::new())
    }
}
