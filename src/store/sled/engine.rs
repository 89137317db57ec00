//! sled behind calls that neither panic nor lie: everything that knows sled's types.
//!
//! Layout of the one tree, all numbers big-endian:
//!
//! ```text
//! 'd' key   → version (8 bytes) · value
//! 'm'       → format (1 byte, now 1) · store id (16) · incarnation (8) · sequence (8)
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{OnceLock, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use ::sled::{Db, IVec};

use super::super::{Identity, Key, Page, StoreError, StoreErrorKind, Version, Versioned};
use super::damaged;
use super::directory::advice;

/// Fixed when a directory is created. sled writes values that don't fit a quarter of a segment to files of their own,
/// which it never syncs (spacejam/sled#1351): with 8 MiB a full leaf of the largest values stays in the log.
const SEGMENT: usize = 8 * 1024 * 1024;

/// How long sled may take to open. On damaged files it can loop for ever.
const OPEN_WITHIN: Duration = Duration::from_secs(30);

const DATA: u8 = b'd';
const META: &[u8] = b"m";
const FORMAT: u8 = 1;
const META_LENGTH: usize = 1 + 16 + 8 + 8;

/// What a batch leaves under each key it changes; `None` = removed.
pub(super) type Changes = HashMap<Key, Option<Versioned>>;

/// An open sled database and our own handle on its log.
#[derive(Debug)]
pub(super) struct Engine {
    /// `None` once closed. Readers hold the lock while they read, so that nobody uses the files after closing.
    db: RwLock<Option<Db>>,
    /// sled's `flush` writes without syncing (spacejam/sled#1452); `fdatasync` on this handle covers it.
    log: File,
    /// Why the store can't be used any more until it is reopened.
    failed: OnceLock<StoreError>,
    name: String,
    #[cfg(feature = "testing")]
    failing_syncs: std::sync::atomic::AtomicU32,
}

impl Engine {
    /// Opens `directory` in a thread of its own, since sled may panic or loop on damaged files.
    ///
    /// # Errors
    /// `Locked` if sled's own lock is held, else what is wrong with the files.
    pub(super) fn open(directory: &Path, cache_bytes: u64) -> Result<Self, StoreError> {
        let name = directory.display().to_string();
        let config = ::sled::Config::new()
            .path(directory)
            .cache_capacity(cache_bytes)
            .segment_size(SEGMENT)
            .flush_every_ms(None);
        let (sender, opened) = mpsc::channel();
        let open = move || sender.send(catch_unwind(AssertUnwindSafe(|| config.open())));
        thread::Builder::new()
            .name("toolonce-open".to_owned())
            .spawn(open)
            .map_err(|error| unavailable(format!("can't start a thread to open the store {name}: {error}")))?;
        let db = match opened.recv_timeout(OPEN_WITHIN) {
            Ok(Ok(Ok(db))) => db,
            Ok(Ok(Err(error))) => return Err(translate(&name, "open", &error)),
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => return Err(damaged(&name, "opening it panicked")),
            Err(RecvTimeoutError::Timeout) => return Err(damaged(&name, "it didn't open within 30 s")),
        };
        // For writing, since Windows syncs no other handle.
        let log = File::options()
            .write(true)
            .open(directory.join("db"))
            .map_err(|error| unavailable(format!("can't open the log of the store {name}: {error}")))?;
        Ok(Self {
            db: RwLock::new(Some(db)),
            log,
            failed: OnceLock::new(),
            name,
            #[cfg(feature = "testing")]
            failing_syncs: std::sync::atomic::AtomicU32::new(0),
        })
    }

    /// Whether the store can still be used.
    pub(super) fn usable(&self) -> Result<(), StoreError> {
        self.call("use", |_| Ok(()))
    }

    /// The values under `keys`, in order.
    pub(super) fn get(&self, keys: &[Key]) -> Result<Vec<Option<Versioned>>, StoreError> {
        keys.iter().map(|key| self.get_one(key)).collect()
    }

    /// The value under `key`.
    pub(super) fn get_one(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        let value = self.call("read", |db| db.get(data_key(key.as_bytes())))?;
        value.map(|bytes| self.decode(&bytes)).transpose()
    }

    /// At most `limit` keys that start with `prefix`.
    pub(super) fn scan(&self, prefix: &[u8], from: Option<Key>, limit: usize) -> Result<Page, StoreError> {
        let start = data_key(from.as_ref().map_or(prefix, |key| key.as_bytes().max(prefix)));
        let wanted = data_key(prefix);
        let found = self.call("scan", |db| {
            let within = |item: &::sled::Result<(IVec, IVec)>| match item {
                Ok((key, _)) => key.starts_with(&wanted),
                Err(_) => true,
            };
            let limit = limit.max(1).saturating_add(1);
            db.range(start..).take_while(within).take(limit).collect::<::sled::Result<Vec<_>>>()
        })?;
        let mut page = Page::default();
        for (key, value) in found {
            let key = Key::new(&key[1..]);
            if page.items.len() == limit.max(1) {
                page.next = Some(key);
                break;
            }
            page.items.push((key, self.decode(&value)?));
        }
        Ok(page)
    }

    /// Applies `changes` and the identity that goes with them as one atomic batch, in memory only.
    ///
    /// # Errors
    /// `Uncertain`, and the store is unusable from then on.
    pub(super) fn apply(&self, changes: &Changes, identity: &Identity) -> Result<(), StoreError> {
        let mut batch = ::sled::Batch::default();
        for (key, change) in changes {
            match change {
                Some(versioned) => batch.insert(data_key(key.as_bytes()), encode(versioned)),
                None => batch.remove(data_key(key.as_bytes())),
            }
        }
        batch.insert(META, encode_meta(identity));
        self.usable()?;
        self.call("write", |db| db.apply_batch(batch)).map_err(|error| self.fail(&error))
    }

    /// Makes everything applied so far safe from a power cut.
    ///
    /// # Errors
    /// `Uncertain`, and the store is unusable from then on: after a failed sync the operating system may have dropped
    /// the data while calling it written, so that trying again proves nothing.
    pub(super) fn sync(&self) -> Result<(), StoreError> {
        self.usable()?;
        let synced = self.call("write", |db| db.flush()).and_then(|_| {
            self.sync_log().map_err(|error| unavailable(format!("can't sync the store {}: {error}", self.name)))
        });
        synced.map_err(|error| self.fail(&error))
    }

    fn sync_log(&self) -> std::io::Result<()> {
        #[cfg(feature = "testing")]
        {
            use std::sync::atomic::Ordering;
            let take = |left: u32| left.checked_sub(1);
            if self.failing_syncs.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).is_ok() {
                return Err(std::io::Error::other("injected sync error"));
            }
        }
        self.log.sync_data()
    }

    /// Makes the next `times` syncs fail.
    #[cfg(feature = "testing")]
    pub(super) fn fail_syncs(&self, times: u32) {
        self.failing_syncs.store(times, std::sync::atomic::Ordering::Release);
    }

    /// The identity as stored; `None` in a database that was never written.
    pub(super) fn identity(&self) -> Result<Option<Identity>, StoreError> {
        let meta = self.call("read", |db| if db.is_empty() { Ok(None) } else { db.get(META).map(Some) })?;
        match meta {
            None => Ok(None),
            Some(None) => Err(damaged(&self.name, "it doesn't say which store it is")),
            Some(Some(bytes)) => decode_meta(&self.name, &bytes).map(Some),
        }
    }

    /// Gives the files up, waiting for readers. sled writes out what it has left; that is not synced.
    pub(super) fn close(&self) {
        let db = self.db.write().unwrap_or_else(PoisonError::into_inner).take();
        // A panic here is about data that is already lost or synced; there is nobody left to tell.
        drop(catch_unwind(AssertUnwindSafe(|| drop(db))));
    }

    /// Stops as a killed process would: nothing is written out and sled's lock stays held.
    #[cfg(feature = "testing")]
    pub(super) fn abandon(&self) {
        std::mem::forget(self.db.write().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Makes every later call fail. Returns what the callers of this write get.
    fn fail(&self, why: &StoreError) -> StoreError {
        let message = format!("{why}; it is not known what was stored: reopen the store");
        let error = StoreError::new(StoreErrorKind::Uncertain, message);
        self.failed.get_or_init(|| error.clone());
        error
    }

    /// Runs one call into sled. After a panic nothing sled says can be trusted: the store is unusable from then on.
    fn call<T>(&self, verb: &str, f: impl FnOnce(&Db) -> ::sled::Result<T>) -> Result<T, StoreError> {
        let db = self.db.read().unwrap_or_else(PoisonError::into_inner);
        let db = db.as_ref().ok_or_else(|| self.closed())?;
        if let Some(error) = self.failed.get() {
            return Err(error.clone());
        }
        match catch_unwind(AssertUnwindSafe(|| f(db))) {
            Ok(result) => result.map_err(|error| translate(&self.name, verb, &error)),
            Err(_) => {
                let error = damaged(&self.name, "sled panicked");
                Err(self.failed.get_or_init(|| error).clone())
            }
        }
    }

    /// What calls get after [`close`](Self::close).
    pub(super) fn closed(&self) -> StoreError {
        StoreError::new(StoreErrorKind::Closed, format!("the store {} is closed", self.name))
    }

    /// What a caller gets whose commit was taken but never answered.
    pub(super) fn unanswered(&self) -> StoreError {
        self.usable().err().unwrap_or_else(|| {
            let message = format!("the store {} stopped: it is not known what was stored", self.name);
            StoreError::new(StoreErrorKind::Uncertain, message)
        })
    }

    fn decode(&self, bytes: &[u8]) -> Result<Versioned, StoreError> {
        let (version, value) =
            bytes.split_first_chunk().ok_or_else(|| damaged(&self.name, "a value is shorter than its version"))?;
        Ok(Versioned { version: Version(u64::from_be_bytes(*version)), value: value.to_vec() })
    }
}

fn data_key(key: &[u8]) -> Vec<u8> {
    [&[DATA], key].concat()
}

fn encode(value: &Versioned) -> Vec<u8> {
    [&value.version.0.to_be_bytes()[..], &value.value].concat()
}

fn encode_meta(identity: &Identity) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(META_LENGTH);
    bytes.push(FORMAT);
    bytes.extend(identity.store);
    bytes.extend(identity.incarnation.to_be_bytes());
    bytes.extend(identity.sequence.to_be_bytes());
    bytes
}

fn decode_meta(name: &str, bytes: &[u8]) -> Result<Identity, StoreError> {
    let bytes: &[u8; META_LENGTH] =
        bytes.try_into().map_err(|_| damaged(&name, "its identity has an unknown length"))?;
    if bytes[0] != FORMAT {
        return Err(damaged(&name, "its identity has an unknown format"));
    }
    let number = |at: usize| bytes[at..].first_chunk().copied().map_or(0, u64::from_be_bytes);
    let store = bytes[1..].first_chunk().copied().unwrap_or_default();
    Ok(Identity { store, incarnation: number(17), sequence: number(25) })
}

/// sled's error as ours. Its lock is only told apart by the text.
fn translate(name: &str, verb: &str, error: &::sled::Error) -> StoreError {
    match error {
        ::sled::Error::Io(io) if io.to_string().contains("could not acquire lock") => {
            StoreError::new(StoreErrorKind::Locked, format!("another program holds the files of the store {name}"))
        }
        ::sled::Error::Io(io) if io.kind() != std::io::ErrorKind::UnexpectedEof => {
            unavailable(format!("can't {verb} the store {name}: {io}{}", advice(io)))
        }
        ::sled::Error::Unsupported(why) => unavailable(format!("can't {verb} the store {name}: {why}")),
        other => damaged(&name, &format!("sled says: {other}")),
    }
}

fn unavailable(message: String) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, message)
}
