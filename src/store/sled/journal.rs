//! The journal in front of sled: an append-only file whose sync is what makes a commit safe.
//!
//! sled needs some seven file operations and the help of all its threads for one batch, a log of our own one write and
//! one `fdatasync`. What is in it goes into sled later, thousands of rows at once, those that changed several times or
//! came and went only as they are in the end. Files `toolonce.journal.<number>`, all numbers big-endian:
//!
//! ```text
//! file    → "tojrnl01" · store id (16) · incarnation (8) · number (8) · start (8) · CRC-32 of all that (4) · record*
//! record  → "\nrec" · length of its changes (4) · synced (8) · sequence (8) · CRC-32 of all that follows "\nrec" (4) · change*
//! change  → sequence (8) · kind (1): 0 removed, 1 put · key length (2) · key · for a put: value length (4) · value
//! ```
//!
//! `sequence` is the newest commit in a record, `start` the newest before the file, and `synced` the newest that was safe
//! when the record was written. sled's identity names the oldest file that is needed. A file is written from its start to
//! its end and never changed; what comes after a failed write goes into a new one.
//!
//! The end of the last file may be torn by a power cut: what isn't whole there was never told to anybody. Damage is told
//! from that by what comes behind it: a record that says that more was safe than there is, or a file that starts later.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::super::{Batch, Identity, Key, StoreError};
use super::damaged;
use super::directory::{open_private, sync_directory};
use super::engine::{Meta, unavailable};
use super::overlay::{Change, Changes};

/// How the names of its files begin.
pub(super) const NAME: &str = "toolonce.journal.";
const TITLE: &[u8; 8] = b"tojrnl01";
const HEADER: usize = 8 + 16 + 8 + 8 + 8 + 4;
const MARK: &[u8; 4] = b"\nrec";
const RECORD: usize = 4 + 4 + 8 + 8 + 4;

/// How much memory for records is kept from one turn of the writer to the next.
const KEPT: usize = 1024 * 1024;

/// Syncs files, and fails to where a test wants it.
#[derive(Debug, Clone, Default)]
pub(super) struct Syncs {
    #[cfg(feature = "testing")]
    failing: std::sync::Arc<std::sync::atomic::AtomicU32>,
}

impl Syncs {
    /// Makes the next `times` syncs fail.
    #[cfg(feature = "testing")]
    pub(super) fn fail(&self, times: u32) {
        self.failing.store(times, std::sync::atomic::Ordering::Release);
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        #[cfg(feature = "testing")]
        {
            use std::sync::atomic::Ordering;
            let take = |left: u32| left.checked_sub(1);
            if self.failing.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).is_ok() {
                return Err(io::Error::other("injected sync error"));
            }
        }
        file.sync_data()
    }
}

/// The file that is written.
#[derive(Debug)]
pub(super) struct Journal {
    directory: PathBuf,
    store: [u8; 16],
    incarnation: u64,
    syncs: Syncs,
    file: File,
    number: u64,
    /// How long the file is, in bytes, without what is pending.
    length: u64,
    /// Records that aren't safe yet, whole but for the one in the making.
    pending: Vec<u8>,
    /// Where in `pending` the record in the making begins.
    open: Option<usize>,
}

impl Journal {
    /// Begins the file `number` for what comes after the commit `start`, and makes sure that it stays.
    ///
    /// # Errors
    /// If that can't be done; then there is no such file, or an empty one that does no harm.
    pub(super) fn begin(
        directory: &Path,
        (store, incarnation): ([u8; 16], u64),
        number: u64,
        start: u64,
        syncs: &Syncs,
    ) -> io::Result<Self> {
        let file = write_new(directory, &header(&store, incarnation, number, start), number, syncs)?;
        Ok(Self {
            directory: directory.to_owned(),
            store,
            incarnation,
            syncs: syncs.clone(),
            file,
            number,
            length: HEADER as u64,
            pending: Vec::new(),
            open: None,
        })
    }

    /// Begins the file after this one, for what comes after the commit `start`, when nothing is pending.
    ///
    /// # Errors
    /// As [`begin`](Self::begin). This one can still be used.
    pub(super) fn next(&self, start: u64) -> io::Result<Self> {
        Self::begin(&self.directory, (self.store, self.incarnation), self.number + 1, start, &self.syncs)
    }

    /// The file's number.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// How long the file is, in bytes.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Adds the changes of one commit to the record in the making, in memory only.
    pub(super) fn add(&mut self, sequence: u64, batch: &Batch) {
        if self.open.is_none() {
            self.open = Some(self.pending.len());
            self.pending.extend([0; RECORD]);
        }
        for (key, value) in &batch.puts {
            put_change(&mut self.pending, sequence, key, Some(value));
        }
        for key in &batch.deletes {
            put_change(&mut self.pending, sequence, key, None);
        }
    }

    /// Ends the record in the making, if there is one.
    pub(super) fn end_record(&mut self, synced: u64, sequence: u64) {
        let Some(at) = self.open.take() else { return };
        let (head, changes) = self.pending[at..].split_at_mut(RECORD);
        head[..4].copy_from_slice(MARK);
        // A turn of the writer is far shorter than 4 GiB.
        head[4..8].copy_from_slice(&u32::try_from(changes.len()).unwrap_or(u32::MAX).to_be_bytes());
        head[8..16].copy_from_slice(&synced.to_be_bytes());
        head[16..24].copy_from_slice(&sequence.to_be_bytes());
        let check = checksum(&[&head[4..24], changes]);
        head[24..].copy_from_slice(&check.to_be_bytes());
    }

    /// Makes all records safe from a power cut.
    ///
    /// # Errors
    /// Of this file nobody knows what is safe any more but what was before: only [`renew`](Self::renew) helps.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.file.write_all(&self.pending)?;
        self.syncs.sync(&self.file)?;
        self.all_safe();
        Ok(())
    }

    /// Writes all that isn't safe into a new file, after a failed sync: the operating system may have dropped what it
    /// calls written, so that trying again proves nothing. `synced` is the newest commit that was safe.
    ///
    /// # Errors
    /// If that fails too. It may be tried again.
    pub(super) fn renew(&mut self, synced: u64) -> io::Result<()> {
        let number = self.number + 1;
        let mut whole = header(&self.store, self.incarnation, number, synced);
        whole.extend_from_slice(&self.pending);
        self.file = write_new(&self.directory, &whole, number, &self.syncs)?;
        (self.number, self.length) = (number, HEADER as u64);
        self.all_safe();
        Ok(())
    }

    fn all_safe(&mut self) {
        self.length += self.pending.len() as u64;
        self.pending.clear();
        self.pending.shrink_to(KEPT);
    }
}

/// Removes all files before `number`: sled has what is in them.
pub(super) fn remove_before(directory: &Path, number: u64) -> io::Result<()> {
    numbers(directory)?.into_iter().filter(|found| *found < number).try_for_each(|found| {
        match fs::remove_file(path(directory, found)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    })
}

/// What the journal knows beyond sled.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) changes: Changes,
    /// The newest commit there is.
    pub(super) sequence: u64,
    /// The number of the newest file; 0 if there is none.
    pub(super) last: u64,
}

/// Reads all that sled doesn't have yet.
///
/// # Errors
/// `Corrupt` if a file is damaged, missing or another store's; `Unavailable` if one can't be read.
pub(super) fn read(directory: &Path, meta: &Meta) -> Result<Found, StoreError> {
    let Meta { identity: Identity { store, incarnation, sequence }, journal: oldest } = *meta;
    let name = directory.display();
    let unreadable = |error: io::Error| unavailable(format!("can't read the journal of {name}: {error}"));
    let numbers = numbers(directory).map_err(unreadable)?;
    let last = numbers.last().copied().unwrap_or(0);
    let mut found = Found { changes: Changes::new(), sequence, last };
    if oldest == 0 {
        return Ok(found);
    }
    if !numbers.contains(&oldest) {
        return Err(damaged(&name, "its journal is missing"));
    }
    for number in numbers.into_iter().filter(|number| *number >= oldest) {
        let bytes = fs::read(path(directory, number)).map_err(unreadable)?;
        let Some(start) = start_of(&bytes, &store, incarnation, number) else {
            // A file that is just being made, of which nobody knows yet.
            if number == last && number > oldest && bytes.len() <= HEADER {
                break;
            }
            return Err(damaged(&name, "its journal has no beginning that belongs to it"));
        };
        if start > found.sequence {
            return Err(damaged(&name, "a part of its journal is missing"));
        }
        read_records(&bytes[HEADER..], start, &mut found).map_err(|what| damaged(&name, what))?;
    }
    Ok(found)
}

/// Takes the records of one file in, up to its end or where it is torn.
fn read_records(mut rest: &[u8], start: u64, found: &mut Found) -> Result<(), &'static str> {
    let mut newest = start;
    while let Some((record, after)) = record(rest) {
        if record.sequence <= newest {
            return Err("its journal goes back");
        }
        (newest, rest) = (record.sequence, after);
        let mut changes = record.changes;
        while !changes.is_empty() {
            let (key, change) = take_change(&mut changes).ok_or("a record of its journal isn't what was written")?;
            if change.sequence > found.sequence {
                found.changes.insert(key, change);
            }
        }
        found.sequence = found.sequence.max(newest);
    }
    // Nothing behind the end, or behind a torn one, may know of more that was safe.
    let behind = (1..rest.len()).filter(|at| rest[*at..].starts_with(MARK));
    let knows_more = behind.filter_map(|at| record(&rest[at..])).any(|(record, _)| record.synced > newest);
    if knows_more { Err("a part of its journal can't be read") } else { Ok(()) }
}

struct Record<'a> {
    synced: u64,
    sequence: u64,
    changes: &'a [u8],
}

/// The record at the start of `bytes` and what comes after it; `None` if there is no whole one.
fn record(bytes: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<RECORD>()?;
    let length = u32::from_be_bytes(*head[4..].first_chunk()?);
    let (changes, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    let check = u32::from_be_bytes(*head[24..].first_chunk()?);
    let whole = head.starts_with(MARK) && checksum(&[&head[4..24], changes]) == check;
    let record = Record {
        synced: u64::from_be_bytes(*head[8..].first_chunk()?),
        sequence: u64::from_be_bytes(*head[16..].first_chunk()?),
        changes,
    };
    whole.then_some((record, rest))
}

fn put_change(out: &mut Vec<u8>, sequence: u64, key: &Key, value: Option<&Vec<u8>>) {
    out.extend(sequence.to_be_bytes());
    out.push(u8::from(value.is_some()));
    // Both lengths are within the limits that every batch is held to.
    out.extend(u16::try_from(key.as_bytes().len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(key.as_bytes());
    if let Some(value) = value {
        out.extend(u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
        out.extend_from_slice(value);
    }
}

fn take_change(bytes: &mut &[u8]) -> Option<(Key, Change)> {
    let sequence = u64::from_be_bytes(take(bytes)?);
    let [kind] = take(bytes)?;
    let length = u16::from_be_bytes(take(bytes)?);
    let key = Key::new(take_slice(bytes, length.into())?);
    let value = match kind {
        0 => None,
        1 => {
            let length = u32::from_be_bytes(take(bytes)?);
            Some(take_slice(bytes, usize::try_from(length).ok()?)?.to_vec())
        }
        _ => return None,
    };
    Some((key, Change { sequence, value }))
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*head)
}

fn take_slice<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(head)
}

fn header(store: &[u8; 16], incarnation: u64, number: u64, start: u64) -> Vec<u8> {
    let numbers = [incarnation, number, start].map(u64::to_be_bytes);
    let mut bytes = [&TITLE[..], store, numbers.as_flattened()].concat();
    bytes.extend(checksum(&[&bytes]).to_be_bytes());
    bytes
}

/// What the file `number` starts after, if this is its header and it isn't older than the incarnation.
fn start_of(bytes: &[u8], store: &[u8; 16], incarnation: u64, number: u64) -> Option<u64> {
    let number_at = |at: usize| Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
    let (found, start) = (number_at(24)?, number_at(40)?);
    (found >= incarnation && bytes.starts_with(&header(store, found, number, start))).then_some(start)
}

fn checksum(parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

/// Makes the file `number` with these bytes and makes sure that it stays. If that fails there is none, if that can be had.
fn write_new(directory: &Path, bytes: &[u8], number: u64, syncs: &Syncs) -> io::Result<File> {
    let path = path(directory, number);
    let write = || {
        let mut file = open_private(&path)?;
        file.set_len(0)?; // What a failed try may have left.
        file.write_all(bytes)?;
        syncs.sync(&file)?;
        sync_directory(directory)?;
        Ok(file)
    };
    write().inspect_err(|_| drop(fs::remove_file(&path)))
}

fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{NAME}{number:08}"))
}

/// The numbers of the files that there are, in order.
fn numbers(directory: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        numbers.extend(name.to_str().and_then(|name| name.strip_prefix(NAME)?.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::super::super::StoreErrorKind;
    use super::*;

    const STORE: [u8; 16] = [7; 16];

    fn meta(sequence: u64, journal: u64) -> Meta {
        Meta { identity: Identity { store: STORE, incarnation: 3, sequence }, journal }
    }

    fn batch(name: &str, value: &str) -> Batch {
        Batch { puts: vec![(Key::new(name.as_bytes()), value.as_bytes().to_vec())], ..Batch::default() }
    }

    /// Two files: commits 11 to 13 in the first, 14 to 16 in the second, each safe before the next but the last two.
    fn written() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::begin(directory.path(), (STORE, 3), 5, 10, &Syncs::default()).unwrap();
        for sequence in 11..=16 {
            if sequence == 14 {
                journal = journal.next(13).unwrap();
            }
            journal.add(sequence, &batch(&format!("key {}", sequence % 4), &format!("value {sequence}")));
            if sequence == 13 {
                journal.add(13, &Batch { deletes: vec![Key::new(*b"gone")], ..Batch::default() });
            }
            journal.end_record(if sequence == 16 { 14 } else { sequence - 1 }, sequence);
            if sequence != 15 {
                journal.sync().unwrap();
            }
        }
        directory
    }

    fn read_from(directory: &tempfile::TempDir, sequence: u64, oldest: u64) -> Result<Found, StoreErrorKind> {
        read(directory.path(), &meta(sequence, oldest)).map_err(|error| error.kind())
    }

    #[test]
    fn what_was_written_is_read_from_where_sled_has_come_to() {
        let directory = written();
        let found = read_from(&directory, 10, 5).unwrap();
        assert_eq!((found.sequence, found.last), (16, 6));
        let sequences = found.changes.values().map(|change| (change.sequence, change.value.is_some()));
        assert_eq!(sequences.collect::<Vec<_>>(), [(13, false), (16, true), (13, true), (14, true), (15, true)]);
        let found = read_from(&directory, 13, 6).unwrap();
        assert_eq!((found.sequence, found.changes.len()), (16, 3));
        let found = read_from(&directory, 16, 0).unwrap();
        assert_eq!((found.sequence, found.last, found.changes.len()), (16, 6, 0));
    }

    #[test]
    fn a_missing_file_is_missed_unless_it_is_the_last() {
        let directory = written();
        remove_before(directory.path(), 6).unwrap();
        assert_eq!(read_from(&directory, 10, 5).unwrap_err(), StoreErrorKind::Corrupt);
        assert_eq!(read_from(&directory, 10, 6).unwrap_err(), StoreErrorKind::Corrupt, "it starts after 13");
        remove_before(directory.path(), 9).unwrap();
        assert_eq!(read_from(&directory, 13, 6).unwrap_err(), StoreErrorKind::Corrupt);
    }

    #[test]
    fn files_of_another_store_or_an_earlier_time_are_refused() {
        let directory = written();
        let other = Meta { identity: Identity { store: [8; 16], ..meta(10, 5).identity }, journal: 5 };
        assert_eq!(read(directory.path(), &other).unwrap_err().kind(), StoreErrorKind::Corrupt);
        let later = Meta { identity: Identity { incarnation: 4, ..meta(10, 5).identity }, journal: 5 };
        assert_eq!(read(directory.path(), &later).unwrap_err().kind(), StoreErrorKind::Corrupt);
    }

    /// Refused, or less by what may be a torn end, which the witness tells: never another content of the same age.
    #[test]
    fn no_flipped_byte_and_no_cut_changes_what_is_read() {
        let directory = written();
        let all = read_from(&directory, 10, 5).unwrap().changes;
        let (mut refused, mut shorter) = (0, 0);
        for number in [5, 6] {
            let path = path(directory.path(), number);
            let whole = fs::read(&path).unwrap();
            let flipped = (0..whole.len()).map(|at| {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << (at % 8);
                bytes
            });
            let zeroed = (0..whole.len()).step_by(4).map(|at| {
                let mut bytes = whole.clone();
                bytes[at..].fill(0);
                bytes
            });
            for damaged in flipped.chain((0..whole.len()).map(|at| whole[..at].to_vec())).chain(zeroed) {
                let as_it_was = damaged == whole;
                fs::write(&path, damaged).unwrap();
                match read_from(&directory, 10, 5) {
                    Ok(found) if found.sequence == 16 => assert!(found.changes == all && as_it_was),
                    Ok(found) => {
                        // What sync 14 covered is only lost with the record behind it that tells so.
                        assert!(number == 6 && found.sequence >= 13, "{} of file {number}", found.sequence);
                        assert!(found.changes.iter().all(|(key, change)| change.sequence <= found.sequence
                            && (all[key] == *change || all[key].sequence > found.sequence)));
                        shorter += 1;
                    }
                    Err(kind) => {
                        assert_eq!(kind, StoreErrorKind::Corrupt);
                        refused += 1;
                    }
                }
            }
            fs::write(&path, whole).unwrap();
        }
        assert!(refused > 300 && shorter > 100, "{refused} refused, {shorter} shorter");
    }

    #[test]
    fn after_a_failed_sync_a_new_file_has_what_was_not_safe() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::begin(directory.path(), (STORE, 3), 1, 0, &Syncs::default()).unwrap();
        journal.add(1, &batch("a", "1"));
        journal.end_record(0, 1);
        journal.sync().unwrap();
        let safe = journal.length();
        journal.add(2, &batch("b", "2"));
        journal.end_record(1, 2);
        // As much of it as a full disk may have taken.
        journal.file.write_all(&journal.pending[..20]).unwrap();
        journal.renew(1).unwrap();
        journal.add(3, &batch("c", "3"));
        journal.end_record(2, 3);
        journal.sync().unwrap();
        let whole = read_from(&directory, 0, 1).unwrap();
        assert_eq!((whole.sequence, whole.last, whole.changes.len()), (3, 2, 3));
        // The first file without what was safe in it isn't made up for.
        File::options().write(true).open(path(directory.path(), 1)).unwrap().set_len(safe - 1).unwrap();
        assert_eq!(read_from(&directory, 0, 1).unwrap_err(), StoreErrorKind::Corrupt);
    }
}
