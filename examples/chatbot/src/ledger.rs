//! What happened: an append-only file, one line for each effect, synced before anybody is told. The guard knows
//! nothing of it, and it drops no repeats: if something is done twice, it has two lines.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// Something that can happen.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Effect {
    Charge { order: String, cents: u64 },
    Email { to: String, subject: String, body: String },
    Reboot,
}

/// A request to make it happen.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Wish {
    /// The run that asks, for telling conversations apart.
    pub(crate) run: String,
    /// The reference under which the sender will look for it.
    pub(crate) key: String,
    #[serde(flatten)]
    pub(crate) effect: Effect,
}

/// A line of the ledger.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) id: String,
    /// Milliseconds since the Unix epoch.
    pub(crate) at: u64,
    #[serde(flatten)]
    pub(crate) wish: Wish,
}

pub(crate) struct Ledger {
    path: PathBuf,
    file: Mutex<(File, usize)>,
}

impl Ledger {
    pub(crate) fn open(directory: &Path) -> anyhow::Result<Self> {
        let path = directory.join("ledger.jsonl");
        let open = || -> anyhow::Result<Self> {
            std::fs::create_dir_all(directory)?;
            let file = OpenOptions::new().append(true).create(true).open(&path)?;
            let lines = entries(&path)?.len();
            Ok(Self { path: path.clone(), file: Mutex::new((file, lines)) })
        };
        open().with_context(|| format!("can't open the ledger {}", path.display()))
    }

    /// Makes it happen: from the sync on, it has.
    pub(crate) fn append(&self, wish: Wish) -> anyhow::Result<Entry> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, lines) = &mut *file;
        let prefix = match wish.effect {
            Effect::Charge { .. } => "ch",
            Effect::Email { .. } => "em",
            Effect::Reboot => "rb",
        };
        let entry = Entry { id: format!("{prefix}_{:03}", *lines + 1), at: now(), wish };
        let mut line = serde_json::to_vec(&entry)?;
        line.push(b'\n');
        file.write_all(&line)?;
        file.sync_data()?;
        *lines += 1;
        Ok(entry)
    }

    pub(crate) fn entries(&self) -> anyhow::Result<Vec<Entry>> {
        entries(&self.path)
    }
}

fn entries(path: &Path) -> anyhow::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for line in BufReader::new(File::open(path)?).lines() {
        entries.push(serde_json::from_str(&line?).context("the ledger has a line that isn't an entry")?);
    }
    Ok(entries)
}

/// Milliseconds since the Unix epoch.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
