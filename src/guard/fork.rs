//! Forks: a run that begins where another one stood before a turn.
//!
//! A fork is a copy. What the parent did in earlier turns (records, results, manifests, steps) is written once more under
//! the fork's own keys, so that from then on neither run knows of the other: what one does is never seen by the other,
//! and each may be removed without the other. An equal call of the fork finds the copy and is answered from it.
//!
//! A base key can't be computed from that of another run, so the index of a run keeps for each record the key that the
//! call would have in a run without a name ([`Work::alias`](super::work::Work::alias)), and the keys of a fork are made
//! from that. A global record belongs to every run and isn't copied: there the fork is known by the places of the runs
//! that it came from ([`inherited`](crate::protocol::fork::inherited)).
//!
//! ```text
//! 1  read the parent's earlier turns      refuse if a record of theirs is open
//! 2  the fork's row says `Copying`        nobody can start or join it
//! 3  write the copy                       each batch checks the row
//! 4  read the parent once more            something moved: remove the copy, and from 3 on again
//! 5  the row says `Open`                  checked together with the parent's row
//! ```
//!
//! The parent goes on meanwhile. What reads the same twice stood so at the moment when the first reading was over, all
//! of it at once: a copy of which one half knows of a call and the other doesn't is never opened.
//!
//! A crash leaves a run that is being copied; forking again empties it and begins anew.

mod earlier;

use std::sync::Arc;

use self::earlier::{Copy, Earlier};
use super::Inner;
use super::long;
use super::pages::Pages;
use super::records::{Along, Known, Put, all_pieces};
use super::rows::{Life, Prefix, Row, RunKind, RunLog, RunRow, RunUnit};
use super::runs::{RunState, exists};
use crate::error::{Error, ErrorKind};
use crate::key::BaseKey;
use crate::protocol::fork::Ancestor;
use crate::protocol::growth::Dropped;
use crate::protocol::history::History;
use crate::protocol::record::Turn;
use crate::store::{Batch, Committed, Durability, Key, Purpose, Version};

/// So often a copy is written before the parent is said to be too busy.
const ROUNDS: usize = 8;

/// The run that a fork is made of, and where it is cut.
pub(crate) struct Parent<'a> {
    pub(crate) run: &'a RunState,
    pub(crate) epoch: u32,
    pub(crate) before: Turn,
}

impl Parent<'_> {
    /// The runs that a fork of it comes from.
    fn line(&self) -> Vec<Ancestor> {
        let own = Ancestor { run: self.run.id.to_string(), before: self.before, epoch: self.epoch };
        let older = self.run.line.iter().cloned();
        let mut line: Vec<Ancestor> = older.chain([own]).collect();
        line.iter_mut().for_each(|ancestor| ancestor.before = ancestor.before.min(self.before));
        line
    }
}

/// The fork while it is being made.
struct Making<'a> {
    inner: &'a Inner,
    parent: &'a Parent<'a>,
    prefix: Prefix,
    id: &'a str,
    /// The row that says `Copying`: whoever changes it has taken the making over.
    row: Version,
}

impl Inner {
    /// Makes the fork `id`.
    pub(crate) async fn fork(&self, parent: Parent<'_>, id: &str) -> Result<Arc<RunState>, Error> {
        let earlier = self.earlier(&parent, id).await?;
        let making = self.begin_fork(&parent, id).await?;
        let made = making.make(earlier).await;
        if made.is_err()
            && let Err(error) = making.give_up().await
        {
            tracing::debug!(%error, fork = id, "what was copied for a fork stays until it is made again or removed");
        }
        made
    }

    async fn begin_fork<'a>(&'a self, parent: &'a Parent<'a>, id: &'a str) -> Result<Making<'a>, Error> {
        let prefix = parent.run.prefix;
        let key = prefix.run(id);
        let existing = self.records.store().get(std::slice::from_ref(&key)).await?.pop().flatten();
        let life = match &existing {
            Some(row) => Some(RunRow::read(&row.value)?.life),
            None => None,
        };
        let over = match (existing, life) {
            (None, _) => None,
            (Some(row), Some(Life::Copying)) => Some(row.version),
            (row, _) => return Err(exists(id, row)?),
        };
        let row = self.fork_row(parent, id, Life::Copying, History::default());
        let batch = Batch { checks: vec![(key.clone(), over)], puts: vec![(key, row.to_bytes())], ..Batch::default() };
        let Committed::Applied(row) = self.records.store().commit(batch, Durability::Synced).await? else {
            return Err(exists(id, None)?);
        };
        let making = Making { inner: self, parent, prefix, id, row };
        if over.is_some() {
            making.empty().await?;
        }
        Ok(making)
    }

    fn fork_row(&self, parent: &Parent<'_>, id: &str, life: Life, history: History) -> RunRow {
        RunRow { run: id.to_owned(), started_at: self.now.get(), history, life, line: parent.line() }
    }
}

impl Making<'_> {
    async fn make(&self, mut earlier: Earlier) -> Result<Arc<RunState>, Error> {
        for _ in 0..ROUNDS {
            self.write(&earlier).await?;
            let again = self.inner.earlier(self.parent, self.id).await?;
            if again == earlier {
                return self.open(earlier).await;
            }
            self.empty().await?;
            earlier = again;
        }
        Err(busy())
    }

    async fn write(&self, earlier: &Earlier) -> Result<(), Error> {
        for copy in &earlier.copies {
            self.record(copy).await?;
        }
        for rows in earlier.rows.chunks(64) {
            self.commit(rows.to_vec(), Vec::new()).await?;
        }
        for (key, row) in &earlier.long_rows {
            let mut puts = Vec::new();
            long::put(key, row, &mut puts);
            self.commit(puts, Vec::new()).await?;
        }
        Ok(())
    }

    async fn record(&self, copy: &Copy) -> Result<(), Error> {
        let key = copy.alias.in_fork(self.id);
        let mut along = Along { checks: vec![self.check()], ..Along::default() };
        along.puts.push((self.prefix.run_unit(self.id, &key), RunUnit { alias: copy.alias }.to_bytes()));
        for (occurrence, (record, &number)) in copy.part.base.occurrences.iter().zip(&copy.part.numbers).enumerate() {
            let Some(pieces) = record.outcome.as_ref().and_then(|outcome| Dropped::of(number, outcome)) else {
                continue;
            };
            let piece = |key: &BaseKey, occurrence, n| self.prefix.piece(key, occurrence, pieces.fence, n);
            let from = |n| piece(&copy.from, pieces.occurrence, n);
            // One that is lost is lost in the fork, too, and makes the others worthless.
            let found = long::pieces(&**self.inner.records.store(), pieces.count, from).await?;
            along.puts.extend(found.into_iter().zip(0..).map(|(found, n)| (piece(&key, occurrence, n), found)));
        }
        let absent = Known::default();
        let (base, how) = (copy.part.base.clone(), Durability::Ordered);
        let put = self.inner.records.put(self.prefix, &key, &absent, base, along, how, Purpose::Other);
        match put.await? {
            Put::Done { .. } => Ok(()),
            Put::Moved(_) => Err(exists(self.id, None)?),
        }
    }

    fn check(&self) -> (Key, Option<Version>) {
        (self.prefix.run(self.id), Some(self.row))
    }

    /// Changes something of the fork, unless somebody else is making it by now.
    async fn commit(&self, puts: Vec<(Key, Vec<u8>)>, deletes: Vec<Key>) -> Result<(), Error> {
        let batch = Batch { checks: vec![self.check()], puts, deletes, ..Batch::default() };
        match self.inner.records.store().commit(batch, Durability::Ordered).await? {
            Committed::Applied(_) => Ok(()),
            Committed::Conflict(_) => Err(exists(self.id, None)?),
        }
    }

    /// Removes what was copied: by this making or by one that it took over.
    async fn empty(&self) -> Result<(), Error> {
        let mut pages = Pages::of(self.prefix.all_of_run(RunKind::Units, self.id));
        while let Some(page) = pages.next(self.inner).await? {
            for (index, _) in page {
                let Some(key) = Prefix::key_in(&index) else { continue };
                self.remove(&key, index).await?;
            }
        }
        for kind in RunKind::BESIDE_UNITS {
            let mut pages = Pages::of(self.prefix.all_of_run(kind, self.id));
            while let Some(page) = pages.next(self.inner).await? {
                self.commit(Vec::new(), page.into_iter().map(|(key, _)| key).collect()).await?;
            }
        }
        Ok(())
    }

    /// Removes a copied record with the pieces of its results and its row in the index.
    async fn remove(&self, key: &BaseKey, index: Key) -> Result<(), Error> {
        let known = self.inner.records.load_fresh(self.prefix, key).await?;
        let pieces = all_pieces(self.prefix, key, &known.base);
        self.commit(Vec::new(), [self.prefix.base(key), index].into_iter().chain(pieces).collect()).await?;
        self.inner.records.forget(key);
        Ok(())
    }

    /// Leaves nothing of the fork.
    async fn give_up(&self) -> Result<(), Error> {
        self.empty().await?;
        self.commit(Vec::new(), vec![self.prefix.run(self.id)]).await
    }

    async fn open(&self, earlier: Earlier) -> Result<Arc<RunState>, Error> {
        let parent = self.parent.run;
        let row = self.inner.fork_row(self.parent, self.id, Life::Open, earlier.history);
        let log = RunLog { active_at: self.inner.now.get(), ..earlier.log };
        let (key, log_key) = (self.prefix.run(self.id), self.prefix.log(self.id));
        let batch = Batch {
            checks: vec![self.check(), (parent.row_key(), Some(earlier.row))],
            puts: vec![(key, row.to_bytes()), (log_key, log.to_bytes())],
            ..Batch::default()
        };
        match self.inner.records.store().commit(batch, Durability::Synced).await? {
            Committed::Applied(_) => self.inner.runs.attach(&parent.namespace, self.id).await,
            Committed::Conflict(existing) => {
                self.inner.runs.refresh(parent).await?;
                parent.now().in_epoch(self.parent.epoch)?;
                let is_ours = existing.into_iter().next().flatten().is_some_and(|row| row.version == self.row);
                Err(if is_ours { busy() } else { exists(self.id, None)? })
            }
        }
    }
}

fn busy() -> Error {
    let message = "the run can't be forked there: it is at work in the turns before, and each time something had changed \
                   before all was copied. Fork it when it rests, or before an earlier turn";
    Error::new(ErrorKind::Unresolved, message)
}
