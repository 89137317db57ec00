//! What is written when there is time, with nobody waiting: what callers were told, and how far their runs have come.
//!
//! All that has gathered meanwhile goes into one commit, so that many calls at a time don't each cost one. Where something
//! of it has moved, each is written by itself.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::Inner;
use super::records::Noted;
use super::rows::Prefix;
use super::runs::{RunState, WrittenLog};
use crate::key::BaseKey;
use crate::store::{Batch, Committed, Durability};

/// Something to write when there is time: nothing waits for it.
pub(crate) enum Later {
    Notes(Prefix, BaseKey),
    Log(Arc<RunState>),
    /// Tells when all that came before is written.
    Flush(oneshot::Sender<()>),
}

/// The most that is taken up at a time.
const GATHERED: usize = 256;

/// A commit is closed when it has so many bytes.
const BATCH_BYTES: usize = 512 * 1024;

/// Writes what is left for later, as it gathers.
pub(super) async fn write_later(inner: Weak<Inner>, mut later: mpsc::UnboundedReceiver<Later>) {
    let mut gathered = Vec::new();
    while later.recv_many(&mut gathered, GATHERED).await > 0 {
        let Some(inner) = inner.upgrade() else { return };
        let mut done = Vec::new();
        let (mut keys, mut logs) = (HashSet::new(), HashMap::new());
        for next in gathered.drain(..) {
            match next {
                Later::Notes(prefix, key) => drop(keys.insert((prefix, key))),
                Later::Log(run) => drop(logs.insert(run.log_key(), run)),
                Later::Flush(flushed) => done.push(flushed),
            }
        }
        inner.write_together(keys, logs.into_values()).await;
        for flushed in done {
            let _ = flushed.send(());
        }
    }
}

/// One commit of many rows.
#[derive(Default)]
struct Together {
    batch: Batch,
    notes: Vec<(BaseKey, Noted)>,
    logs: Vec<(Arc<RunState>, WrittenLog)>,
}

impl Together {
    fn is_full(&self) -> bool {
        let bytes: usize = self.batch.puts.iter().map(|(_, value)| value.len()).sum();
        bytes >= BATCH_BYTES
    }
}

impl Inner {
    /// All keys of one batch belong to one namespace.
    async fn write_together(
        self: &Arc<Self>,
        keys: HashSet<(Prefix, BaseKey)>,
        logs: impl Iterator<Item = Arc<RunState>>,
    ) {
        let mut open: HashMap<Prefix, Together> = HashMap::new();
        let mut writing = JoinSet::new();
        for (prefix, key) in keys {
            let together = open.entry(prefix).or_default();
            if let Some(noted) = self.records.add_notes(prefix, &key, &mut together.batch).await {
                together.notes.push((key, noted));
            }
            if together.is_full() {
                writing.spawn(Arc::clone(self).write(std::mem::take(together)));
            }
        }
        for run in logs {
            let together = open.entry(run.prefix).or_default();
            if let Some(log) = run.add_log(self.now.get(), &mut together.batch) {
                together.logs.push((Arc::clone(&run), log));
            }
            if together.is_full() {
                writing.spawn(Arc::clone(self).write(std::mem::take(together)));
            }
        }
        for together in open.into_values() {
            writing.spawn(Arc::clone(self).write(together));
        }
        while writing.join_next().await.is_some() {}
    }

    async fn write(self: Arc<Self>, together: Together) {
        let Together { batch, notes, logs } = together;
        if notes.is_empty() && logs.is_empty() {
            return;
        }
        if let Ok(Committed::Applied(version)) = self.records.store().commit(batch, Durability::Ordered).await {
            notes.into_iter().for_each(|(key, noted)| self.records.noted(&key, noted, version));
            logs.into_iter().for_each(|(run, log)| log.written(&run, version));
            return;
        }
        for (key, _) in notes {
            self.records.flush(&key).await;
        }
        for (run, _) in logs {
            if let Err(error) = self.runs.write_log(&run, self.now.get()).await {
                tracing::warn!(%error, run = %run.id, "the progress of a run could not be noted");
            }
        }
    }

    /// Waits until the store has what was noted before: what was delivered must not be durable later than the claim
    /// that follows from it.
    pub(crate) async fn noted(&self) {
        if self.records.has_notes() {
            self.written().await;
        }
    }

    /// Waits until the store has everything that was left for later before.
    pub(crate) async fn written(&self) {
        let (done, flushed) = oneshot::channel();
        if self.writer.send(Later::Flush(done)).is_ok() {
            let _ = flushed.await;
        }
    }
}
