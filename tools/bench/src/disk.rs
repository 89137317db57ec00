//! What the disk can do: the measures that durable figures are given in.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// What the plain append writes: about as much as a claim.
const APPENDED: [u8; 320] = [b'.'; 320];

/// The unit: one append to a growing file, and one `fdatasync`.
#[derive(Debug)]
pub struct Append(File);

impl Append {
    /// On a new file in `directory`.
    ///
    /// # Errors
    /// If it can't be made.
    pub fn new(directory: &Path) -> io::Result<Self> {
        Ok(Self(File::options().append(true).create_new(true).open(directory.join("append"))?))
    }

    /// Does it once; how long it took.
    ///
    /// # Errors
    /// If it can't be written or synced.
    pub fn once(&mut self) -> io::Result<Duration> {
        let begun = Instant::now();
        self.0.write_all(&APPENDED)?;
        self.0.sync_data()?;
        Ok(begun.elapsed())
    }
}

struct Entry {
    bytes: usize,
    done: oneshot::Sender<io::Result<()>>,
}

/// The bound for crowds: an append-only file with group commit and nothing else. One thread takes all entries that
/// wait, writes them at once, syncs once, and answers all.
#[derive(Debug, Clone)]
pub struct GroupLog(mpsc::Sender<Entry>);

impl GroupLog {
    /// On a new file in `directory`. Its thread ends with the last handle.
    ///
    /// # Errors
    /// If it can't be made.
    pub fn new(directory: &Path) -> io::Result<Self> {
        let mut file = File::options().append(true).create_new(true).open(directory.join("log"))?;
        let (entries, waiting) = mpsc::channel::<Entry>();
        thread::Builder::new().name("log".to_owned()).spawn(move || {
            while let Ok(first) = waiting.recv() {
                let entries: Vec<_> = std::iter::once(first).chain(waiting.try_iter()).collect();
                let bytes = entries.iter().map(|entry| entry.bytes).sum();
                let written = file.write_all(&vec![b'.'; bytes]).and_then(|()| file.sync_data());
                for entry in entries {
                    let again = written.as_ref().copied().map_err(|error| io::Error::from(error.kind()));
                    // Who left needs no answer.
                    let _ = entry.done.send(again);
                }
            }
        })?;
        Ok(Self(entries))
    }

    /// Appends so many bytes; back when they are synced.
    ///
    /// # Errors
    /// If they can't be written or synced.
    pub async fn append(&self, bytes: usize) -> io::Result<()> {
        let (done, answer) = oneshot::channel();
        let gone = || io::Error::other("the log's thread is gone");
        self.0.send(Entry { bytes, done }).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}
