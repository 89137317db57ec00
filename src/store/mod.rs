//! Where records live: the [`Store`] trait and the stores that come with the library.
//!
//! A store is dumb on purpose. It keeps bytes under keys, each with a version, and commits a [`Batch`] of changes if
//! the versions it names still hold. Every decision (who may run, what a retry gets) is made by the pure functions in
//! [`protocol`](crate::protocol); a store that passes [`conformance`] is enough.
//!
//! # Writing a store
//!
//! Implement [`Store`] and run [`conformance::check`] against it. The methods whose loss would cost an effect are
//! [`commit`](Store::commit) and [`get`](Store::get); [`changed`](Store::changed) only makes waiting cheaper.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

pub mod conformance;
mod limits;
mod memory;
#[cfg(feature = "sled")]
mod sled;
mod wakeups;

pub use self::limits::MAX_VALUE;
pub use self::memory::MemoryStore;
#[cfg(feature = "sled")]
pub use self::sled::{Accept, SledOptions, SledStore};

/// A boxed future: what the methods of a `dyn` [`Store`] return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A key of the store: at most [`Key::MAX`] bytes, compared byte by byte.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Box<[u8]>);

impl Key {
    /// The longest key a store must take, in bytes.
    pub const MAX: usize = 1024;

    /// A key of these bytes.
    pub fn new(bytes: impl Into<Box<[u8]>>) -> Self {
        Self(bytes.into())
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.0.escape_ascii())
    }
}

/// The version of one value. A store never gives two values of one key the same version, not even when the key was
/// deleted in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// A value and its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned {
    /// Changes with every put.
    pub version: Version,
    /// The bytes as they were put.
    pub value: Vec<u8>,
}

/// What one commit checks and changes, all or nothing. All keys of a batch belong to one namespace.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// Versions that must hold for the batch to be applied; `None` means that the key must be absent.
    pub checks: Vec<(Key, Option<Version>)>,
    /// Values to write.
    pub puts: Vec<(Key, Vec<u8>)>,
    /// Keys to remove. Removing an absent key is no error.
    pub deletes: Vec<Key>,
    /// What the commit is for. For tests and traces; a store may ignore it.
    pub purpose: Purpose,
}

/// What a [`Batch`] is for, as far as tests and traces want to know. Changes nothing about how it is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Purpose {
    /// Takes a key before an effect.
    Claim,
    /// Records how an attempt ended.
    Complete,
    /// Anything else.
    #[default]
    Other,
}

/// When a committed batch must be safe from a crash of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Before [`Store::commit`] returns.
    Synced,
    /// Never later than a `Synced` batch committed after it, and before any read returns it; no sync of its own is
    /// waited for.
    Ordered,
}

/// How a [`Store::commit`] ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Committed {
    /// Applied as a whole. Every put has this version.
    Applied(Version),
    /// A check failed and nothing was changed. Holds what the store has under each *checked* key, in the order of
    /// [`Batch::checks`], so that a loser needs no second round trip.
    Conflict(Vec<Option<Versioned>>),
}

/// One page of a [`Store::scan`].
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// Keys in ascending order, with their values.
    pub items: Vec<(Key, Versioned)>,
    /// Where the next page starts; `None` after the last one.
    pub next: Option<Key>,
}

/// Which store this is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Chosen at random when the store was created.
    pub store: [u8; 16],
    /// How often it was opened for writing.
    pub incarnation: u64,
    /// Sequence number of the newest commit that is safe from a crash. Never goes back, but may skip numbers.
    pub sequence: u64,
}

/// Why a store could not do what it was asked.
///
/// `kind` decides what the guard does; `message` is for people and names the store and what to do.
#[derive(Clone, thiserror::Error)]
#[error("{message}{remedy}")]
pub struct StoreError {
    kind: StoreErrorKind,
    message: String,
    remedy: String,
    holder: Option<u32>,
}

/// What a [`StoreError`] means for the batch it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// Nothing was changed: the store can't be reached, is full or read-only, or refuses the batch.
    Unavailable,
    /// The batch may have been applied or not, and may or may not survive a crash: a claim in it may exist. A store
    /// that can't help itself with fresh handles answers every later call the same way until it can, or is reopened.
    Uncertain,
    /// Stored bytes can't be read. Never treated as absent.
    Corrupt,
    /// Stored bytes are sealed with a key that wasn't given, or aren't sealed where they must be. Never treated as
    /// absent.
    Sealed,
    /// Another process holds the store.
    Locked,
    /// The store isn't the one that was here before, or less of it is: gone, another one, an older copy, cut short.
    /// What it forgot would run again. The message names the call that accepts it.
    NotAsWitnessed,
    /// There is no store, and none was to be made.
    Missing,
    /// [`Store::close`] was called.
    Closed,
}

impl StoreError {
    /// An error of this kind. The message starts in lower case and says what to do.
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), remedy: String::new(), holder: None }
    }

    /// The same error with what a program could do about it, which follows the message in the text.
    #[must_use]
    pub fn or_else_do(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }

    /// The message without what a program could do about it: for people who can't change the program.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The same error about a store that the process with this id holds.
    #[must_use]
    pub fn held_by(mut self, process: u32) -> Self {
        self.holder = Some(process);
        self
    }

    /// What the error means for the batch it answers.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// The id of the process that holds the store, where the error is about that and it is known.
    pub fn holder(&self) -> Option<u32> {
        self.holder
    }
}

/// As readable as its text: it is what a `main` that returns it prints.
impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreError({:?}: {self})", self.kind)
    }
}

/// Bytes under keys with versions, changed by conditional commits.
///
/// # What must hold
///
/// - A commit is atomic: after a crash all of it is there or nothing.
/// - Commits are totally ordered, and what a `Synced` one returned for survives a power cut together with every
///   earlier commit.
/// - A read returns only what is safe: reading a key of a batch that isn't synced yet waits for (or makes) the sync.
/// - A conflict returns what the store holds, read in the same step as the failed check.
pub trait Store: Send + Sync + 'static {
    /// Reads the values of `keys`, in order; `None` where a key is absent.
    ///
    /// # Errors
    /// Any [`StoreErrorKind`]. Unreadable bytes are an error, never `None`.
    fn get<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Versioned>>, StoreError>>;

    /// Applies `batch` if all its checks hold. Dropping the future doesn't take a commit back.
    ///
    /// A batch may not name a key twice among its puts and deletes; keys are at most [`Key::MAX`] bytes and values at
    /// most [`MAX_VALUE`].
    ///
    /// # Errors
    /// [`StoreErrorKind::Uncertain`] if it is not known whether the batch was applied; any other kind means that
    /// nothing was changed.
    fn commit(&self, batch: Batch, durability: Durability) -> BoxFuture<'_, Result<Committed, StoreError>>;

    /// Lists at most `limit` keys (0 is taken as 1) that start with `prefix`, from `from` on (or from the first). A
    /// scan is no snapshot: it may or may not show commits made while it goes on.
    ///
    /// # Errors
    /// As [`get`](Store::get).
    fn scan<'a>(&'a self, prefix: &'a [u8], from: Option<Key>, limit: usize)
    -> BoxFuture<'a, Result<Page, StoreError>>;

    /// Which store this is and how far it has come.
    fn identity(&self) -> Identity;

    /// Whether every commit of this store goes through this handle. If so, another owner's claim is a dead process's.
    fn is_exclusive(&self) -> bool;

    /// Completes when one of `keys` may have changed since the call; `None` if the store has no such signal. Never
    /// needed for correctness: who waits polls as well.
    fn changed<'a>(&'a self, keys: &'a [Key]) -> Option<BoxFuture<'a, ()>> {
        let _ = keys;
        None
    }

    /// The store's own clock in milliseconds since the Unix epoch, where it has one that all its clients share;
    /// `None` means that each process goes by its own [`Clock`](crate::Clock).
    fn now(&self) -> Option<BoxFuture<'_, Result<u64, StoreError>>> {
        None
    }

    /// Syncs what is pending and gives the store up. Later calls fail with [`StoreErrorKind::Closed`]. Calling it
    /// twice is no error.
    ///
    /// # Errors
    /// If the last sync failed.
    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>>;
}
