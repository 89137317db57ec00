//! The directory around sled's files: whose it is, who holds it, and how far its creation came.
//!
//! Files of ours, beside sled's `conf`, `db`, `blobs/` and `snap.*`:
//!
//! - `toolonce.lock`: locked by the process that uses the store; names that process.
//! - `toolonce.journal.<number>`: the [journal](super::journal)'s.
//! - `toolonce.store`, the marker: lines `toolonce store`, `format 1`, and either `creating` or `id` with the store id
//!   in hex. The id is written once sled's files are safe, so a creation cut short is told from a store that lost its
//!   files. How far the store has come is the [witness](super::witness)'s to know: it is outside.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::super::{StoreError, StoreErrorKind};
use super::Absent;

const LOCK: &str = "toolonce.lock";
const MARKER: &str = "toolonce.store";
const OURS: &str = "toolonce.";
const TITLE: &str = "toolonce store";
const FORMAT: u32 = 1;

/// How far the creation of the store in a directory came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing in it was ever acknowledged.
    New,
    /// Holds the store with this id.
    Created([u8; 16]),
}

/// A directory that this process holds. Dropping it gives the lock up.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    lock: File,
}

impl Directory {
    /// Makes sure of a directory that is empty or ours and locks it, waiting until `deadline` if another holds it: the
    /// one before may still be on its way out.
    ///
    /// # Errors
    /// `Locked` with the holder's process id, `Corrupt` for a store without its marker, or `Unavailable` if the
    /// directory can't be used.
    pub(super) fn hold(path: &Path, deadline: Instant) -> Result<Self, StoreError> {
        create(path).map_err(|error| failed(path, "create", &error))?;
        refuse_foreign(path, foreign)?;
        let lock = open_private(&path.join(LOCK)).map_err(|error| failed(path, "open the lock file of", &error))?;
        let mut held = Self { path: path.to_owned(), lock };
        held.acquire(deadline)?;
        refuse_foreign(&held.path, foreign)?;
        held.name_holder().map_err(|error| held.failed("write the lock file of", &error))?;
        Ok(held)
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn acquire(&mut self, deadline: Instant) -> Result<(), StoreError> {
        let mut pause = Duration::from_millis(2);
        loop {
            match self.lock.try_lock() {
                Ok(()) => return Ok(()),
                Err(fs::TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(pause),
                Err(fs::TryLockError::WouldBlock) => return Err(self.locked()),
                Err(fs::TryLockError::Error(error)) => return Err(self.failed("lock", &error)),
            }
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    fn name_holder(&mut self) -> io::Result<()> {
        let line = format!("{} {}\n", std::process::id(), unix_seconds());
        self.lock.set_len(0)?;
        self.lock.rewind()?;
        self.lock.write_all(line.as_bytes())
    }

    /// The error that names the holder. The holder may not have written its line yet.
    fn locked(&mut self) -> StoreError {
        let mut line = String::new();
        let read = self.lock.rewind().and_then(|()| self.lock.read_to_string(&mut line));
        let mut words = line.split_whitespace();
        let pid = words.next().and_then(|word| word.parse::<u32>().ok());
        let holder = match (read, pid, words.next().and_then(|word| word.parse::<u64>().ok())) {
            (Ok(_), Some(pid), Some(since)) => {
                let seconds = unix_seconds().saturating_sub(since);
                format!("process {pid} (for {seconds} s)")
            }
            _ => "another process".to_owned(),
        };
        let path = self.path.display();
        let message = match pid {
            Some(own) if own == std::process::id() => {
                format!("this program already has the store {path} open: use that one")
            }
            _ => format!("the store {path} is in use by {holder}: stop it or choose another directory"),
        };
        let error = StoreError::new(StoreErrorKind::Locked, message);
        match pid {
            Some(pid) => error.held_by(pid),
            None => error,
        }
    }

    /// Clears away what a crash left half done. On [`Stage::New`] none of sled's files are left.
    ///
    /// # Errors
    /// `Missing` for a creation cut short if none is to be made, `Unavailable` if that can't be done, `Corrupt` for
    /// missing data.
    pub(super) fn prepare(&self, stage: Stage, absent: Absent) -> Result<(), StoreError> {
        match stage {
            Stage::New if absent == Absent::Refuse => Err(missing(&self.path)),
            Stage::New => self.start_creation().map_err(|error| self.failed("create", &error)),
            Stage::Created(_) => {
                self.remove_torn_snapshots().map_err(|error| self.failed("clean up", &error))?;
                self.refuse_missing_log()
            }
        }
    }

    /// Reads the marker.
    ///
    /// # Errors
    /// `Unavailable` for a newer format, `Corrupt` if it can't be read.
    pub(super) fn stage(&self) -> Result<Stage, StoreError> {
        let text = match fs::read(self.path.join(MARKER)) {
            // What isn't text isn't what was written, and no line of it matches.
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Stage::New),
            Err(error) => return Err(self.failed("read the marker of", &error)),
        };
        let mut lines = text.lines();
        let format = lines.next().filter(|title| *title == TITLE).and(lines.next());
        match (format.and_then(|line| line.strip_prefix("format ")).map(str::parse::<u32>), lines.next()) {
            (Some(Ok(format)), _) if format > FORMAT => Err(StoreError::new(
                StoreErrorKind::Unavailable,
                format!(
                    "the store {} has format {format}, this version reads up to {FORMAT}: use a newer toolonce",
                    self.path.display()
                ),
            )),
            (Some(Ok(FORMAT)), Some("creating")) => Ok(Stage::New),
            (Some(Ok(FORMAT)), Some(line)) => {
                let id = line.strip_prefix("id ").and_then(|id| u128::from_str_radix(id, 16).ok());
                let created = id.map(|id| Stage::Created(id.to_be_bytes()));
                created.ok_or_else(|| self.damaged("its marker names no store"))
            }
            _ => Err(self.damaged("its marker can't be read")),
        }
    }

    fn start_creation(&self) -> io::Result<()> {
        self.write_marker("creating")?;
        // Without the marker, sled's files would be taken for somebody else's.
        sync_directory(&self.path)?;
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            match entry.file_name().to_str() {
                Some("blobs") => fs::remove_dir_all(entry.path())?,
                Some(name)
                    if ["conf", "db"].contains(&name)
                        || name.starts_with("snap.")
                        || name.starts_with(super::journal::NAME) =>
                {
                    fs::remove_file(entry.path())?;
                }
                _ => {}
            }
        }
        restrict(&self.path, 0o700)
    }

    /// Says that a new store is there, once sled's files are safe.
    pub(super) fn finish_creation(&self, store: [u8; 16]) -> Result<(), StoreError> {
        let finish = || {
            File::open(self.path.join("conf"))?.sync_all()?;
            File::open(self.path.join("db"))?.sync_all()?;
            sync_directory(&self.path)?;
            self.write_marker(&format!("id {:032x}", u128::from_be_bytes(store)))?;
            sync_directory(&self.path)
        };
        finish().map_err(|error| self.failed("create", &error))
    }

    /// Replaces the marker. After a power cut it is the old or the new one.
    fn write_marker(&self, lines: &str) -> io::Result<()> {
        let draft = self.path.join("toolonce.store.new");
        let mut file = open_private(&draft)?;
        file.set_len(0)?;
        write!(file, "{TITLE}\nformat {FORMAT}\n{lines}\n")?;
        file.sync_all()?;
        fs::rename(&draft, self.path.join(MARKER))
    }

    /// A snapshot that was being written when the process died makes sled refuse to open (spacejam/sled#1527). It is
    /// only a short cut: sled reads its log instead.
    fn remove_torn_snapshots(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with("snap.") && name.ends_with(".generating") {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// sled would start afresh on an empty log, and everything would run again.
    fn refuse_missing_log(&self) -> Result<(), StoreError> {
        match fs::metadata(self.path.join("db")) {
            Ok(log) if log.is_file() && log.len() > 0 => Ok(()),
            Ok(_) => Err(self.damaged("its log is empty")),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(self.damaged("its log is missing")),
            Err(error) => Err(self.failed("read the log of", &error)),
        }
    }

    /// Takes others' rights to sled's files away, which it makes as the process's mask has it.
    pub(super) fn restrict_files(&self) -> Result<(), StoreError> {
        let all = || {
            for entry in fs::read_dir(&self.path)? {
                let entry = entry?;
                restrict(&entry.path(), if entry.file_type()?.is_dir() { 0o700 } else { 0o600 })?;
            }
            Ok(())
        };
        all().map_err(|error| self.failed("restrict the files of", &error))
    }

    /// Keeps the lock until the process ends, as a process that hangs would.
    #[cfg(feature = "testing")]
    pub(super) fn abandon(self) {
        std::mem::forget(self);
    }

    pub(super) fn damaged(&self, what: &str) -> StoreError {
        super::damaged(&self.path.display(), what)
    }

    fn failed(&self, verb: &str, error: &io::Error) -> StoreError {
        failed(&self.path, verb, error)
    }
}

/// The whole path of a store's directory, whether it is there or not.
///
/// # Errors
/// `Unavailable` if there is none, or no directory can be there.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, StoreError> {
    if path.as_os_str().is_empty() {
        let message = "the store path is empty: name a directory for the store";
        return Err(StoreError::new(StoreErrorKind::Unavailable, message));
    }
    let path = std::path::absolute(path).map_err(|error| failed(path, "find", &error))?;
    refuse_file(&path)?;
    Ok(path)
}

fn failed(path: &Path, verb: &str, error: &io::Error) -> StoreError {
    let message = format!("can't {verb} the store directory {}: {error}{}", path.display(), advice(error));
    StoreError::new(StoreErrorKind::Unavailable, message)
}

/// What to do about an error of the operating system, where it can be said; follows the error's own text.
pub(super) fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => ": let this user read and write it, or choose another directory",
        ErrorKind::ReadOnlyFilesystem => ": choose a directory that can be written",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => ": make room",
        ErrorKind::FileTooLarge => ": raise the limit on the size of files (ulimit -f)",
        _ => "",
    }
}

/// Says which part of the path is a file, which creating the directory would call an existing one.
fn refuse_file(path: &Path) -> Result<(), StoreError> {
    match path.ancestors().find(|path| path.exists()).filter(|path| !path.is_dir()) {
        None => Ok(()),
        Some(file) => {
            let message = format!("{} is a file: choose a directory for the store", file.display());
            Err(StoreError::new(StoreErrorKind::Unavailable, message))
        }
    }
}

/// Makes the directory and those above it, and makes sure that they stay.
fn create(path: &Path) -> io::Result<()> {
    let missing = path.ancestors().take_while(|path| !path.exists()).collect::<Vec<_>>();
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)?;
    missing.into_iter().filter_map(Path::parent).try_for_each(sync_directory)
}

/// Makes sure, without making anything, that a store is or was begun to be made in the directory.
///
/// # Errors
/// `Missing` if there is none; else as [`Directory::hold`].
pub(super) fn refuse_missing(path: &Path) -> Result<(), StoreError> {
    if !path.try_exists().map_err(|error| failed(path, "find", &error))? {
        return Err(missing(path));
    }
    refuse_foreign(path, no_store)?;
    if path.join(MARKER).exists() { Ok(()) } else { Err(missing(path)) }
}

/// The error for a directory in which there is no store and none is to be made.
pub(super) fn missing(path: &Path) -> StoreError {
    let message =
        format!("there is no store in {}: give the directory that the program keeps its store in", path.display());
    StoreError::new(StoreErrorKind::Missing, message)
}

/// A directory with files and without our marker is somebody else's, unless there is what else a store leaves.
fn refuse_foreign(path: &Path, error: fn(&Path) -> StoreError) -> Result<(), StoreError> {
    let look = || {
        for entry in fs::read_dir(path)? {
            if !entry?.file_name().to_string_lossy().starts_with(OURS) {
                return Ok(!path.join(MARKER).try_exists()?);
            }
        }
        Ok(false)
    };
    match look() {
        Ok(false) => Ok(()),
        Ok(true) if path.join(LOCK).exists() && path.join("db").exists() => {
            Err(super::damaged(&path.display(), "it looks like a store, but its marker toolonce.store is missing"))
        }
        Ok(true) => Err(error(path)),
        Err(error) => Err(failed(path, "list", &error)),
    }
}

/// The error for a directory in which a store can't be made.
fn foreign(path: &Path) -> StoreError {
    let message = format!("{} holds files of something else: choose an empty directory for the store", path.display());
    StoreError::new(StoreErrorKind::Unavailable, message)
}

/// The error for a directory in which a store was looked for.
fn no_store(path: &Path) -> StoreError {
    let message = format!(
        "{} holds files of something else and is no toolonce store: give the directory that the program keeps its store \
         in",
        path.display()
    );
    StoreError::new(StoreErrorKind::Missing, message)
}

/// Opens a file for reading and writing, made for the owner only.
pub(super) fn open_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(unix)]
fn restrict(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))
}

#[cfg(not(unix))]
fn restrict(_: &Path, _: u32) -> io::Result<()> {
    Ok(())
}

/// Makes renames and new files in `path` safe. Only Unix has a way to ask for it.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
