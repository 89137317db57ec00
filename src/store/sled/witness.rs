//! The witness: a small file beside the store's directory that knows how far the store has come.
//!
//! A deleted directory, an older copy put in its place, another store's files, a log that lost its end: to what is
//! inside, each looks like a store in good order, and everything that it forgot would run again. The witness is outside
//! and tells. Its lines:
//!
//! ```text
//! toolonce witness
//! format 1
//! id <store id, 32 hex digits>
//! incarnation <how often the store was opened>
//! sequence <newest commit that was safe when this was written>
//! check <FNV-1a of all that is above, 16 hex digits>
//! ```
//!
//! It is replaced as a whole and never runs ahead of the store: written at opening and closing, and by the writer thread
//! at most once a second while commits go on. What it doesn't see: commits of the last second before a kill or a power
//! cut. If exactly those are lost, by a copy made within that second or a log cut short by so much, nothing tells.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::super::{Identity, StoreError, StoreErrorKind};
use super::directory::{advice, open_private, sync_directory};

/// How often the witness is written while commits go on.
const EVERY: Duration = Duration::from_secs(1);

const TITLE: &str = "toolonce witness";
const FORMAT: u32 = 1;

/// What a person may let pass once, having looked: why a store isn't as its witness says.
///
/// Whatever the store has forgotten may be done again. Name one for a single start, through an argument or a
/// variable of the environment, not in the program's text: there it would switch the check off for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Accept {
    /// The store is gone: an empty one is begun.
    Missing,
    /// It is another store.
    Foreign,
    /// It is older than it was: an older copy, or the end of its log is lost.
    Older,
    /// The witness can't be read, so that nothing is known.
    Unreadable,
}

impl Accept {
    fn name(self) -> &'static str {
        match self {
            Self::Missing => "Missing",
            Self::Foreign => "Foreign",
            Self::Older => "Older",
            Self::Unreadable => "Unreadable",
        }
    }
}

/// What the file says.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Testimony {
    None,
    Of(Identity),
    Unreadable,
}

/// The witness of the store in one directory.
#[derive(Debug)]
pub(super) struct Witness {
    path: PathBuf,
    store: PathBuf,
    accept: Option<Accept>,
    /// The sequence last written, and when.
    written: Option<(u64, Instant)>,
    /// Whether the last try to write it failed: told once.
    failing: bool,
}

impl Witness {
    /// The witness of the store at `store`: at `path`, or beside the directory.
    ///
    /// # Errors
    /// `Unavailable` if the directory has no name to put a file beside.
    pub(super) fn of(store: &Path, path: Option<&Path>, accept: Option<Accept>) -> Result<Self, StoreError> {
        let beside = || {
            let mut name = store.file_name()?.to_owned();
            name.push(".witness");
            Some(store.with_file_name(name))
        };
        let path = path.map(Path::to_owned).or_else(beside).ok_or_else(|| {
            let message = format!(
                "the store path {} ends in no name to put a witness beside: say where it is with SledOptions::witness",
                store.display()
            );
            StoreError::new(StoreErrorKind::Unavailable, message)
        })?;
        Ok(Self { path, store: store.to_owned(), accept, written: None, failing: false })
    }

    /// Compares what was found with what was witnessed: `None` if there is no store.
    ///
    /// # Errors
    /// `NotAsWitnessed` with the call that accepts it, unless it is accepted; `Unavailable` if the file can't be read
    /// or has a newer format.
    pub(super) fn confirm(&self, found: Option<&Identity>) -> Result<(), StoreError> {
        let objection = match (self.read()?, found) {
            (Testimony::None, found) => {
                if found.is_some() {
                    tracing::warn!(witness = %self.path.display(), "the store has no witness: it is taken as it is");
                }
                return Ok(());
            }
            (Testimony::Unreadable, _) => Some((Accept::Unreadable, self.unreadable())),
            (Testimony::Of(seen), None) => Some((Accept::Missing, self.missing(&seen))),
            (Testimony::Of(seen), Some(found)) if seen.store != found.store => {
                Some((Accept::Foreign, self.foreign(&seen, found)))
            }
            (Testimony::Of(seen), Some(found)) => {
                let older = found.incarnation < seen.incarnation || found.sequence < seen.sequence;
                older.then(|| (Accept::Older, self.older(&seen, found)))
            }
        };
        let Some((kind, what)) = objection else { return Ok(()) };
        if self.accept == Some(kind) {
            tracing::warn!("{what}; accepted");
            return Ok(());
        }
        let error = StoreError::new(StoreErrorKind::NotAsWitnessed, what);
        Err(error.or_else_do(format!(", or accept that with SledOptions::accept(Accept::{})", kind.name())))
    }

    fn missing(&self, seen: &Identity) -> String {
        let (store, path) = (self.store.display(), self.path.display());
        let id = hex(&seen.store);
        format!("there is no store in {store}, but its witness {path} has seen one ({id}): bring it back")
    }

    fn foreign(&self, seen: &Identity, found: &Identity) -> String {
        let (store, path) = (self.store.display(), self.path.display());
        let (was, is) = (hex(&seen.store), hex(&found.store));
        format!("{store} holds another store ({is}) than its witness {path} has seen ({was}): bring that one back")
    }

    fn older(&self, seen: &Identity, found: &Identity) -> String {
        let (store, path) = (self.store.display(), self.path.display());
        format!(
            "the store {store} is older than its witness {path} has seen it (opening {}, commit {}; was opening {}, commit \
             {}), so a copy was restored or the end of its log is lost, and what it forgot would run again: bring the \
             newer one back",
            found.incarnation, found.sequence, seen.incarnation, seen.sequence
        )
    }

    fn unreadable(&self) -> String {
        let (store, path) = (self.store.display(), self.path.display());
        format!("the witness {path} of the store {store} can't be read: bring it back")
    }

    fn read(&self) -> Result<Testimony, StoreError> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Testimony::None),
            Err(error) => return Err(self.failed("read", &error)),
        };
        let Ok(text) = String::from_utf8(bytes) else { return Ok(Testimony::Unreadable) };
        match format(&text) {
            Some(format) if format > FORMAT => Err(StoreError::new(
                StoreErrorKind::Unavailable,
                format!(
                    "the witness {} has format {format}, this version reads up to {FORMAT}: use a newer toolonce",
                    self.path.display()
                ),
            )),
            Some(FORMAT) => Ok(testimony(&text).map_or(Testimony::Unreadable, Testimony::Of)),
            _ => Ok(Testimony::Unreadable),
        }
    }

    /// Writes down how far the store has come. After a power cut the file is the old or the new one.
    ///
    /// # Errors
    /// `Unavailable` if it can't be written.
    pub(super) fn record(&mut self, identity: &Identity) -> Result<(), StoreError> {
        let replaced = self.replace(&described(identity)).map_err(|error| self.failed("write", &error));
        let sequence =
            replaced.as_ref().map_or(self.written.map_or(0, |(sequence, _)| sequence), |()| identity.sequence);
        self.written = Some((sequence, Instant::now()));
        replaced
    }

    /// How long until [`keep_up`](Self::keep_up) has to be called; `None` if it is up to date.
    pub(super) fn due_in(&self, sequence: u64) -> Option<Duration> {
        let (written, at) = self.written?;
        (written != sequence).then(|| EVERY.saturating_sub(at.elapsed()))
    }

    /// Writes it if it is due. A witness that falls behind sees less, and that is all: commits go on.
    pub(super) fn keep_up(&mut self, identity: &Identity) {
        if self.due_in(identity.sequence).is_none_or(|left| !left.is_zero()) {
            return;
        }
        match self.record(identity) {
            Ok(()) => self.failing = false,
            Err(error) if !std::mem::replace(&mut self.failing, true) => {
                tracing::error!(%error, "the store's witness falls behind");
            }
            Err(_) => {}
        }
    }

    fn replace(&self, lines: &str) -> io::Result<()> {
        let mut draft = self.path.clone().into_os_string();
        draft.push(".new");
        let draft = PathBuf::from(draft);
        let mut file = open_private(&draft)?;
        file.set_len(0)?;
        file.write_all(lines.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, &self.path)?;
        sync_directory(self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")))
    }

    fn failed(&self, verb: &str, error: &io::Error) -> StoreError {
        let message = format!(
            "can't {verb} the store's witness {}: {error}{} (SledOptions::witness says where it is)",
            self.path.display(),
            advice(error)
        );
        StoreError::new(StoreErrorKind::Unavailable, message)
    }
}

fn hex(id: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*id))
}

fn described(identity: &Identity) -> String {
    let (id, incarnation, sequence) = (hex(&identity.store), identity.incarnation, identity.sequence);
    let lines = format!("{TITLE}\nformat {FORMAT}\nid {id}\nincarnation {incarnation}\nsequence {sequence}\n");
    format!("{lines}check {:016x}\n", fnv(lines.as_bytes()))
}

fn format(text: &str) -> Option<u32> {
    let mut lines = text.lines();
    lines.next().filter(|title| *title == TITLE)?;
    lines.next()?.strip_prefix("format ")?.parse().ok()
}

/// Reads what [`described`] writes, and nothing else.
fn testimony(text: &str) -> Option<Identity> {
    let mut lines = text.lines().skip(2);
    let id = lines.next()?.strip_prefix("id ")?;
    let store = u128::from_str_radix(id, 16).ok()?.to_be_bytes();
    let incarnation = lines.next()?.strip_prefix("incarnation ")?.parse().ok()?;
    let sequence = lines.next()?.strip_prefix("sequence ")?.parse().ok()?;
    let identity = Identity { store, incarnation, sequence };
    (described(&identity) == text).then_some(identity)
}

/// FNV-1a, 64 bits: against torn and flipped bytes, not against people.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
