//! Forks: a run that begins where another one stood before a turn.
//!
//! A fork is a copy. What the parent did in earlier turns (records, results, manifests, steps) is written once more under
//! the fork's own keys, so that from then on neither run knows of the other: what one does is never seen by the other,
//! and each may be removed without the other. An equal call of the fork finds the copy and is answered from it.
//!
//! A base key can't be computed from that of another run, so the index of a run keeps for each record the key that the
//! call would have in a run without a name ([`Work::alias`](super::work::Work::alias)), and the keys of a fork are made
//! from that.
//!
//! ```text
//! 1  read the parent; refuse if an earlier record is open
//! 2  the fork's row says `Copying`     nobody can start or join it
//! 3  copy                              each batch checks the row
//! 4  the row says `Open`               checked together with the parent's row
//! ```
//!
//! A crash leaves a run that is being copied; forking again empties it and begins anew.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Inner;
use super::gc::{Pages, Sweep};
use super::long;
use super::records::{Along, Known, Put, downstream};
use super::reopen::order_of;
use super::rows::{
    Completion, Life, LookAlikeCall, LookAlikes, Manifest, Prefix, Row, RunKind, RunLog, RunRow, RunUnit, StepRow,
};
use super::runs::{RunNow, RunState, exists};
use crate::error::{Error, ErrorKind};
use crate::key::BaseKey;
use crate::protocol::growth::Dropped;
use crate::protocol::history::History;
use crate::protocol::record::{Base, Fence, Record, Turn};
use crate::store::{Batch, Committed, Durability, Key, Purpose, Version, Versioned};

/// The run that a fork is made of, and where it is cut.
pub(crate) struct Parent<'a> {
    pub(crate) run: &'a RunState,
    pub(crate) epoch: u32,
    pub(crate) before: Turn,
}

/// A record of the fork to be.
struct Copy {
    from: BaseKey,
    alias: BaseKey,
    base: Base,
    /// The parent's number of each of its occurrences.
    numbers: Vec<usize>,
}

impl Copy {
    /// The places of its completions in the run's order.
    fn orders(&self) -> impl Iterator<Item = u64> {
        let of = |record: &Record| record.outcome.as_ref().map(|outcome| outcome.order).filter(|order| *order > 0);
        self.base.occurrences.iter().filter_map(of)
    }
}

/// The fork while it is being made.
struct Making<'a> {
    inner: &'a Inner,
    prefix: Prefix,
    id: &'a str,
    /// The row that says `Copying`: whoever changes it has taken the making over.
    row: Version,
}

impl Inner {
    /// Makes the fork `id`.
    pub(crate) async fn fork(&self, parent: Parent<'_>, id: &str) -> Result<Arc<RunState>, Error> {
        self.noted().await;
        self.runs.refresh(parent.run).await?;
        let now = parent.run.now().in_epoch(parent.epoch)?;
        let copies = self.copies(&parent, id).await?;
        let making = self.begin_fork(parent.run, id).await?;
        let mut log = log_before(&now.log, parent.before, &copies);
        for copy in &copies {
            making.record(copy).await?;
        }
        let mut tools: BTreeSet<String> = copies.iter().map(|copy| copy.base.about.tool.clone()).collect();
        tools.extend(making.manifests(&parent, &now.history).await?);
        making.contracts(&parent, &tools).await?;
        making.look_alikes(&parent, &copies).await?;
        making.reopenings(&parent, &copies).await?;
        log.seen = making.steps(&parent).await?;
        log.active_at = self.now.get();
        making.open(&parent, &now, &log).await
    }

    /// The records that the fork has, read before anything is written.
    async fn copies(&self, parent: &Parent<'_>, id: &str) -> Result<Vec<Copy>, Error> {
        let mut copies = Vec::new();
        let mut pages = Pages::of(parent.run.prefix.all_of_run(RunKind::Units, &parent.run.id));
        while let Some(page) = pages.next(self).await? {
            for (index, unit) in page {
                let Some(from) = Prefix::key_in(&index) else { continue };
                let RunUnit { alias } = RunUnit::from_bytes(&unit.value)
                    .map_err(|error| Error::corrupt("an entry of the index of records", error))?;
                let known = self.records.load_fresh(parent.run.prefix, &from).await?;
                copies.extend(copy_of(&known.base, parent, (from, alias), id)?);
            }
        }
        Ok(copies)
    }

    async fn begin_fork<'a>(&'a self, parent: &RunState, id: &'a str) -> Result<Making<'a>, Error> {
        let prefix = parent.prefix;
        let key = prefix.run(id);
        let existing = self.records.store().get(std::slice::from_ref(&key)).await?.pop().flatten();
        let life = match &existing {
            Some(row) => Some(RunRow::from_bytes(&row.value).map_err(|error| Error::corrupt("a run", error))?.life),
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
        if over.is_some() {
            Sweep::of(self, prefix).empty(id).await?;
        }
        Ok(Making { inner: self, prefix, id, row })
    }

    fn fork_row(&self, parent: &RunState, id: &str, life: Life, history: History) -> RunRow {
        let root = Some(parent.salt().to_owned());
        RunRow { run: id.to_owned(), started_at: self.now.get(), history, life, root }
    }
}

impl Making<'_> {
    async fn record(&self, copy: &Copy) -> Result<(), Error> {
        let key = copy.alias.in_fork(self.id);
        let mut along = Along { checks: vec![self.check()], ..Along::default() };
        along.puts.push((self.prefix.run_unit(self.id, &key), RunUnit { alias: copy.alias }.to_bytes()));
        for (occurrence, (record, &number)) in copy.base.occurrences.iter().zip(&copy.numbers).enumerate() {
            let Some(pieces) = record.outcome.as_ref().and_then(|outcome| Dropped::of(number, outcome)) else {
                continue;
            };
            let piece = |key: &BaseKey, occurrence, n| self.prefix.piece(key, occurrence, pieces.fence, n);
            let from: Vec<Key> = (0..pieces.count).map(|n| piece(&copy.from, pieces.occurrence, n)).collect();
            // One that is lost is lost in the fork, too.
            let found = self.inner.records.store().get(&from).await?.into_iter().zip(0..);
            along.puts.extend(found.filter_map(|(found, n)| Some((piece(&key, occurrence, n), found?.value))));
        }
        let absent = Known::default();
        let (base, how) = (copy.base.clone(), Durability::Ordered);
        let put = self.inner.records.put(self.prefix, &key, &absent, base, along, how, Purpose::Other);
        match put.await? {
            Put::Done { .. } => Ok(()),
            Put::Moved(_) => Err(exists(self.id, None)?),
        }
    }

    fn check(&self) -> (Key, Option<Version>) {
        (self.prefix.run(self.id), Some(self.row))
    }

    async fn put_long(&self, key: &Key, row: &[u8]) -> Result<(), Error> {
        let mut puts = Vec::new();
        long::put(key, row, &mut puts);
        self.put(puts).await
    }

    async fn put(&self, puts: Vec<(Key, Vec<u8>)>) -> Result<(), Error> {
        let batch = Batch { checks: vec![self.check()], puts, ..Batch::default() };
        match self.inner.records.store().commit(batch, Durability::Ordered).await? {
            Committed::Applied(_) => Ok(()),
            Committed::Conflict(_) => Err(exists(self.id, None)?),
        }
    }

    /// The long rows of one kind that the parent has, without their pieces.
    async fn long_rows(&self, kind: RunKind, parent: &Parent<'_>, length: usize) -> Result<Vec<(Key, Vec<u8>)>, Error> {
        let start = self.prefix.all_of_run(kind, &parent.run.id);
        let length = start.len() + length;
        let (mut rows, mut pages) = (Vec::new(), Pages::of(start));
        while let Some(page) = pages.next(self.inner).await? {
            for (key, _) in page.into_iter().filter(|(key, _)| key.as_bytes().len() == length) {
                if let Some((_, row)) = long::get(&**self.inner.records.store(), &key).await? {
                    rows.push((self.prefix.for_run(kind, &key, self.id), row));
                }
            }
        }
        Ok(rows)
    }

    /// Copies the manifests of earlier turns; gives the tools that they name.
    async fn manifests(&self, parent: &Parent<'_>, history: &History) -> Result<BTreeSet<String>, Error> {
        let mut tools = BTreeSet::new();
        for (key, row) in self.long_rows(RunKind::Manifests, parent, 4).await? {
            let mut manifest =
                Manifest::from_bytes(&row).map_err(|error| Error::corrupt("the manifest of a turn", error))?;
            let turn = key.as_bytes().last_chunk().map_or(Turn::MAX, |turn| Turn::from_be_bytes(*turn));
            if turn >= parent.before || !history.holds(manifest.epoch, turn) {
                continue;
            }
            for call in &mut manifest.calls {
                call.key = call.alias.map_or(call.key, |alias| alias.in_fork(self.id));
                tools.insert(call.tool.clone());
            }
            self.put_long(&key, &manifest.to_bytes()).await?;
        }
        Ok(tools)
    }

    /// The fork goes by the key rules by which earlier calls were keyed.
    async fn contracts(&self, parent: &Parent<'_>, tools: &BTreeSet<String>) -> Result<(), Error> {
        let from: Vec<Key> = tools.iter().map(|tool| self.prefix.contract(&parent.run.id, tool)).collect();
        let found = self.inner.records.store().get(&from).await?;
        let row =
            |(tool, found): (&String, Option<Versioned>)| Some((self.prefix.contract(self.id, tool), found?.value));
        self.put(tools.iter().zip(found).filter_map(row).collect()).await
    }

    /// An earlier call that nobody has seen the outcome of may be worded anew in the fork as well.
    async fn look_alikes(&self, parent: &Parent<'_>, copies: &[Copy]) -> Result<(), Error> {
        let here = |call: &LookAlikeCall| {
            let copy = copies.iter().find(|copy| copy.from == call.key)?;
            let occurrence = copy.numbers.iter().position(|number| *number == call.occurrence as usize)?;
            let occurrence = u32::try_from(occurrence).unwrap_or(u32::MAX);
            Some(LookAlikeCall { key: copy.alias.in_fork(self.id), occurrence })
        };
        let mut pages = Pages::of(self.prefix.all_of_run(RunKind::LookAlikes, &parent.run.id));
        while let Some(page) = pages.next(self.inner).await? {
            for (key, stored) in page {
                let row = LookAlikes::from_bytes(&stored.value)
                    .map_err(|error| Error::corrupt("the calls that look alike", error))?;
                let row = LookAlikes { calls: row.calls.iter().filter_map(here).collect() };
                if !row.calls.is_empty() {
                    self.put(vec![(self.prefix.for_run(RunKind::LookAlikes, &key, self.id), row.to_bytes())]).await?;
                }
            }
        }
        Ok(())
    }

    /// What was completed before reopens in the fork what it reopened before.
    async fn reopenings(&self, parent: &Parent<'_>, copies: &[Copy]) -> Result<(), Error> {
        let orders: BTreeSet<u64> = copies.iter().flat_map(Copy::orders).collect();
        let mut pages = Pages::of(self.prefix.all_of_run(RunKind::Reopenings, &parent.run.id));
        while let Some(page) = pages.next(self.inner).await? {
            let rows = page.into_iter().filter(|(key, _)| orders.contains(&order_of(key)));
            let here =
                |(key, row): (Key, Versioned)| (self.prefix.for_run(RunKind::Reopenings, &key, self.id), row.value);
            self.put(rows.map(here).collect()).await?;
        }
        Ok(())
    }

    /// Copies the steps of earlier turns; gives the last turn that they have seen.
    async fn steps(&self, parent: &Parent<'_>) -> Result<Option<Turn>, Error> {
        let mut last = None;
        for (key, row) in self.long_rows(RunKind::Steps, parent, 32 + 4).await? {
            let step = StepRow::from_bytes(&row).map_err(|error| Error::corrupt("a step", error))?;
            if step.turn < parent.before {
                last = last.max(step.turn.checked_sub(1));
                self.put_long(&key, &row).await?;
            }
        }
        Ok(last)
    }

    async fn open(&self, parent: &Parent<'_>, now: &RunNow, log: &RunLog) -> Result<Arc<RunState>, Error> {
        let row = self.inner.fork_row(parent.run, self.id, Life::Open, History::clone(&now.history));
        let (key, log_key) = (self.prefix.run(self.id), self.prefix.log(self.id));
        let batch = Batch {
            checks: vec![self.check(), (parent.run.row_key(), Some(now.row))],
            puts: vec![(key, row.to_bytes()), (log_key, log.to_bytes())],
            ..Batch::default()
        };
        if let Committed::Applied(_) = self.inner.records.store().commit(batch, Durability::Synced).await? {
            return self.inner.runs.attach(&parent.run.namespace, self.id).await;
        }
        self.inner.runs.refresh(parent.run).await?;
        parent.run.now().in_epoch(parent.epoch)?;
        Err(exists(self.id, None)?)
    }
}

/// What a fork has of a record: the occurrences that an earlier turn asked for. Calls without a turn may have been
/// made before it, so theirs are kept, too.
fn copy_of(
    base: &Base,
    parent: &Parent<'_>,
    (from, alias): (BaseKey, BaseKey),
    id: &str,
) -> Result<Option<Copy>, Error> {
    let mut copied = Base { about: base.about.clone(), ..Base::default() };
    id.clone_into(&mut copied.about.run);
    let mut numbers = Vec::new();
    for (n, record) in base.occurrences.iter().enumerate() {
        let Some(kept) = record_before(record, parent.before, id) else { continue };
        if kept.outcome.is_none() && kept.is_tainted() {
            let reference = downstream(&from, base, n).reference();
            let message = format!(
                "the run can't be forked there: it isn't known yet whether an earlier call of {:?} happened \
                 ({reference}). Wait for it or settle it first",
                base.about.tool
            );
            return Err(Error::new(ErrorKind::Unresolved, message));
        }
        copied.occurrences.push(kept);
        numbers.push(n);
    }
    Ok((!numbers.is_empty()).then_some(Copy { from, alias, base: copied, numbers }))
}

fn record_before(record: &Record, before: Turn, id: &str) -> Option<Record> {
    let mut kept = record.clone();
    kept.slots.retain(|slot| slot.turn < before);
    kept.slots.iter_mut().for_each(|slot| id.clone_into(&mut slot.run));
    let begun = record.fence != Fence::default();
    (begun && (record.slots.is_empty() || !kept.slots.is_empty())).then_some(kept)
}

/// The parent's progress as it was before the turn, as far as its records tell.
fn log_before(log: &RunLog, before: Turn, copies: &[Copy]) -> RunLog {
    let last_turn = before.checked_sub(1).and_then(|last| log.last_turn.map(|turn| turn.min(last)));
    let mut newest: Vec<Completion> = Vec::new();
    for copy in copies {
        let Some(order) = copy.orders().max() else { continue };
        let tool = &copy.base.about.tool;
        match newest.iter_mut().find(|completion| completion.tool == *tool) {
            Some(completion) => completion.order = completion.order.max(order),
            None => newest.push(Completion { tool: tool.clone(), order }),
        }
    }
    RunLog { active_at: 0, last_turn, seen: None, completions: log.completions, newest }
}
