//! sled behind calls that neither panic nor lie: everything that knows sled's types.
//!
//! Layout of the one tree, all numbers big-endian:
//!
//! ```text
//! 'd' key   → version (8 bytes) · value
//! 'm'       → format (1 byte, now 1) · store id (16) · incarnation (8) · sequence (8) · journal (8)
//! ```
//!
//! Everything up to the commit `sequence` is in here; what came later is in the journal's files from number `journal` on
//! (0: nothing came).

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use ::sled::{Db, IVec};

use super::super::{Identity, Key, StoreError, StoreErrorKind, Version, Versioned};
use super::damaged;
use super::directory::advice;
use super::overlay::Changes;

/// Fixed when a directory is created. sled writes values that don't fit a quarter of a segment to files of their own,
/// which it never syncs (spacejam/sled#1351): with 8 MiB a full leaf of the largest values stays in the log.
const SEGMENT: usize = 8 * 1024 * 1024;

/// How long sled may take to open. On damaged files it can loop for ever.
const OPEN_WITHIN: Duration = Duration::from_secs(30);

/// How long opening anew waits for sled's own lock, which its threads give up a little after the last handle is gone.
const REOPEN_WITHIN: Duration = Duration::from_secs(2);

const DATA: u8 = b'd';
const META: &[u8] = b"m";
const FORMAT: u8 = 1;
const META_LENGTH: usize = 1 + 16 + 8 + 8 + 8;

/// How many rows are written in one go, so that nobody who wants the files for himself waits long.
const AT_ONCE: usize = 256;

/// Which store this is and how much of it is in sled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) identity: Identity,
    /// The oldest file of the journal that has something which isn't here; 0 if there is none.
    pub(super) journal: u64,
}

/// An open sled database and our own handle on its log.
#[derive(Debug)]
struct Files {
    db: Db,
    /// sled's `flush` writes without syncing (spacejam/sled#1452); `fdatasync` on this handle covers it.
    log: File,
}

impl Files {
    /// Opens `directory` in a thread of its own, since sled may panic or loop on damaged files.
    fn open(directory: &Path, cache_bytes: u64) -> Result<Self, StoreError> {
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
        Ok(Self { db, log })
    }

    /// As [`open`](Self::open), again and again while sled's own lock is held: under ours only by a holder on its way
    /// out.
    fn open_by(directory: &Path, cache_bytes: u64, deadline: Instant) -> Result<Self, StoreError> {
        loop {
            match Self::open(directory, cache_bytes) {
                Err(error) if error.kind() == StoreErrorKind::Locked && Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(20));
                }
                result => return result,
            }
        }
    }

    /// What is under the identity's key; `None` in a database that was never written.
    fn meta(&self) -> ::sled::Result<Option<Option<IVec>>> {
        if self.db.is_empty() { Ok(None) } else { self.db.get(META).map(Some) }
    }
}

/// The database behind one handle that outlives it.
#[derive(Debug)]
pub(super) struct Engine {
    /// `None` once closed. Readers hold the lock while they read, so that nobody uses the files after closing, and
    /// wait at it while the store is opened anew.
    files: RwLock<Option<Files>>,
    /// Why the store can't be used any more until it is reopened: it failed, or was closed.
    failed: Mutex<Option<StoreError>>,
    directory: PathBuf,
    cache_bytes: u64,
    name: String,
}

impl Engine {
    /// Opens `directory`, waiting until `deadline` for one that is on its way out of it.
    ///
    /// # Errors
    /// `Locked` if sled's own lock is held, else what is wrong with the files.
    pub(super) fn open(directory: &Path, cache_bytes: u64, deadline: Instant) -> Result<Self, StoreError> {
        let files = Files::open_by(directory, cache_bytes, deadline)?;
        Ok(Self {
            files: RwLock::new(Some(files)),
            failed: Mutex::default(),
            directory: directory.to_owned(),
            cache_bytes,
            name: directory.display().to_string(),
        })
    }

    /// The value under `key`.
    pub(super) fn get_one(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        let value = self.call("read", |files| files.db.get(data_key(key.as_bytes())))?;
        value.map(|bytes| self.decode(&bytes)).transpose()
    }

    /// The version of the value under `key`.
    pub(super) fn version(&self, key: &Key) -> Result<Option<Version>, StoreError> {
        let value = self.call("read", |files| files.db.get(data_key(key.as_bytes())))?;
        value.map(|bytes| self.split(&bytes).map(|(version, _)| version)).transpose()
    }

    /// The first `limit` keys from `from` on that start with `prefix`, without those in `but`.
    pub(super) fn range(
        &self,
        prefix: &[u8],
        from: &Key,
        limit: usize,
        but: &Changes,
    ) -> Result<Vec<(Key, Versioned)>, StoreError> {
        let (start, wanted) = (data_key(from.as_bytes()), data_key(prefix));
        let found = self.call("scan", |files| {
            let within = |item: &::sled::Result<(IVec, IVec)>| match item {
                Ok((key, _)) => key.starts_with(&wanted),
                Err(_) => true,
            };
            let keyed = files
                .db
                .range(start..)
                .take_while(within)
                .map(|item| item.map(|(key, value)| (Key::new(&key[1..]), value)));
            let wanted = keyed.filter(|item| item.as_ref().map_or(true, |(key, _)| !but.contains_key(key)));
            wanted.take(limit).collect::<::sled::Result<Vec<_>>>()
        })?;
        found.into_iter().map(|(key, value)| Ok((key, self.decode(&value)?))).collect()
    }

    /// Writes `changes`, and after them `meta`, which says so, safe from a power cut. If it fails in between, `meta` is as
    /// it was, and the same changes may be written again.
    ///
    /// # Errors
    /// What is wrong with the files or the disk: only [`reopen`](Self::reopen) helps.
    pub(super) fn take_in(&self, changes: &Changes, meta: &Meta) -> Result<(), StoreError> {
        let mut rows = changes.iter().peekable();
        while rows.peek().is_some() {
            self.call("write", |files| {
                rows.by_ref().take(AT_ONCE).try_for_each(|(key, change)| {
                    let key = data_key(key.as_bytes());
                    let replaced = match &change.value {
                        Some(value) => files.db.insert(key, encode(change.sequence, value)),
                        None => files.db.remove(key),
                    };
                    replaced.map(drop)
                })
            })?;
        }
        if !changes.is_empty() {
            self.write_out()?;
        }
        self.call("write", |files| files.db.insert(META, encode_meta(meta)))?;
        self.write_out()
    }

    fn write_out(&self) -> Result<(), StoreError> {
        // The outer error is sled's, the inner one that of our own handle.
        let synced = self.call("write", |files| {
            files.db.flush()?;
            Ok(files.log.sync_data())
        });
        synced.and_then(|synced| synced.map_err(|error| self.unsynced(&error)))
    }

    /// The error of a sync that failed.
    pub(super) fn unsynced(&self, error: &io::Error) -> StoreError {
        unavailable(format!("can't sync the store {}: {error}{}", self.name, advice(error)))
    }

    /// Begins anew on the same files after a failed write or sync: what lies in them is written once more, since the
    /// operating system may call it written when it isn't, and sled is opened with fresh handles. Readers wait meanwhile.
    ///
    /// # Errors
    /// `Corrupt` or `Closed`, and only a store opened from scratch can be used: sled panicked, the store was closed, or
    /// what was safe in it (up to the sequence of `safe`) isn't there any more. Anything else may be tried again.
    pub(super) fn reopen(&self, safe: &Identity) -> Result<(), StoreError> {
        if let Some(error) = self.failure().clone().filter(|error| error.kind() != StoreErrorKind::Uncertain) {
            return Err(error);
        }
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        let old = files.take();
        let renewed = catch_unwind(AssertUnwindSafe(|| {
            drop(old);
            self.renew(safe)
        }));
        *files = Some(renewed.unwrap_or_else(|_| Err(damaged(&self.name, "sled panicked")))?);
        Ok(())
    }

    fn renew(&self, safe: &Identity) -> Result<Files, StoreError> {
        write_again(&self.directory.join("db")).map_err(|error| self.unsynced(&error))?;
        let files = Files::open_by(&self.directory, self.cache_bytes, Instant::now() + REOPEN_WITHIN)?;
        let meta = files.meta().map_err(|error| translate(&self.name, "read", &error))?;
        let found = self.decode_meta(meta)?.map(|meta| meta.identity);
        if !found.is_some_and(|found| found.store == safe.store && found.sequence >= safe.sequence) {
            return Err(damaged(&self.name, "it came back without what was safe"));
        }
        Ok(files)
    }

    /// Everybody gets an error from now on, because of `why` and because opening anew failed with `again`.
    pub(super) fn give_up(&self, why: &StoreError, again: &StoreError) -> StoreError {
        let (kind, remedy) = match again.kind() {
            StoreErrorKind::Corrupt => (StoreErrorKind::Corrupt, "mend that and reopen the store"),
            _ => (StoreErrorKind::Uncertain, "mend that: it is tried again, or reopen the store"),
        };
        let error = StoreError::new(kind, format!("{why}; opening it anew failed too ({again}): {remedy}"));
        *self.failure() = Some(error.clone());
        error
    }

    /// It works again.
    pub(super) fn mended(&self) {
        self.failure().take_if(|error| error.kind() == StoreErrorKind::Uncertain);
    }

    /// What sled knows of the store; `None` in a database that was never written.
    pub(super) fn meta(&self) -> Result<Option<Meta>, StoreError> {
        self.decode_meta(self.call("read", Files::meta)?)
    }

    fn decode_meta(&self, meta: Option<Option<IVec>>) -> Result<Option<Meta>, StoreError> {
        match meta {
            None => Ok(None),
            Some(None) => Err(damaged(&self.name, "it doesn't say which store it is")),
            Some(Some(bytes)) => decode_meta(&self.name, &bytes).map(Some),
        }
    }

    /// Gives the files up, waiting for readers. sled writes out what it has left; that is not synced.
    pub(super) fn close(&self) {
        let files = self.files.write().unwrap_or_else(PoisonError::into_inner).take();
        self.failure().get_or_insert_with(|| self.closed());
        // A panic here is about data that is already lost or synced; there is nobody left to tell.
        drop(catch_unwind(AssertUnwindSafe(|| drop(files))));
    }

    /// Stops as a killed process would: nothing is written out and sled's lock stays held.
    #[cfg(feature = "testing")]
    pub(super) fn abandon(&self) {
        std::mem::forget(self.files.write().unwrap_or_else(PoisonError::into_inner).take());
        self.failure().get_or_insert_with(|| self.closed());
    }

    fn failure(&self) -> MutexGuard<'_, Option<StoreError>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the store can still be used, as far as is known.
    pub(super) fn usable(&self) -> Result<(), StoreError> {
        self.failure().clone().map_or(Ok(()), Err)
    }

    /// Runs one call into sled. After a panic nothing sled says can be trusted: the store is unusable from then on.
    fn call<T>(&self, verb: &str, f: impl FnOnce(&Files) -> ::sled::Result<T>) -> Result<T, StoreError> {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        self.usable()?;
        let files = files.as_ref().ok_or_else(|| self.closed())?;
        match catch_unwind(AssertUnwindSafe(|| f(files))) {
            Ok(result) => result.map_err(|error| translate(&self.name, verb, &error)),
            Err(_) => Err(self.failure().get_or_insert_with(|| damaged(&self.name, "sled panicked")).clone()),
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
        self.split(bytes).map(|(version, value)| Versioned { version, value: value.to_vec() })
    }

    fn split<'a>(&self, bytes: &'a [u8]) -> Result<(Version, &'a [u8]), StoreError> {
        let (version, value) =
            bytes.split_first_chunk().ok_or_else(|| damaged(&self.name, "a value is shorter than its version"))?;
        Ok((Version(u64::from_be_bytes(*version)), value))
    }
}

fn data_key(key: &[u8]) -> Vec<u8> {
    [&[DATA], key].concat()
}

fn encode(version: u64, value: &[u8]) -> Vec<u8> {
    [&version.to_be_bytes(), value].concat()
}

fn encode_meta(meta: &Meta) -> Vec<u8> {
    let Meta { identity, journal } = meta;
    let mut bytes = Vec::with_capacity(META_LENGTH);
    bytes.push(FORMAT);
    bytes.extend(identity.store);
    bytes.extend(identity.incarnation.to_be_bytes());
    bytes.extend(identity.sequence.to_be_bytes());
    bytes.extend(journal.to_be_bytes());
    bytes
}

fn decode_meta(name: &str, bytes: &[u8]) -> Result<Meta, StoreError> {
    let bytes: &[u8; META_LENGTH] =
        bytes.try_into().map_err(|_| damaged(&name, "its identity has an unknown length"))?;
    if bytes[0] != FORMAT {
        return Err(damaged(&name, "its identity has an unknown format"));
    }
    let number = |at: usize| bytes[at..].first_chunk().copied().map_or(0, u64::from_be_bytes);
    let store = bytes[1..].first_chunk().copied().unwrap_or_default();
    Ok(Meta { identity: Identity { store, incarnation: number(17), sequence: number(25) }, journal: number(33) })
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

/// What the callers of a write get that failed.
pub(super) fn uncertain(why: &StoreError) -> StoreError {
    if why.kind() == StoreErrorKind::Uncertain {
        return why.clone();
    }
    let message = format!("{why}; it is not known what was stored, a claim may exist");
    StoreError::new(StoreErrorKind::Uncertain, message)
}

/// Writes a file over itself and syncs it. After a failed sync the operating system may take pages for written that
/// are not on the disk: later syncs then leave them out, and a power cut would find a hole in the middle of the log.
fn write_again(path: &Path) -> io::Result<()> {
    let mut file = File::options().read(true).write(true).open(path)?;
    let mut piece = vec![0; 1024 * 1024];
    let mut at = 0;
    loop {
        let length = file.read(&mut piece)?;
        if length == 0 {
            return file.sync_all();
        }
        file.seek(SeekFrom::Start(at))?;
        file.write_all(&piece[..length])?;
        at += length as u64;
    }
}

pub(super) fn unavailable(message: String) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, message)
}
