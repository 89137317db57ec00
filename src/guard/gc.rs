//! Retention: what is removed from the store, when, and what must be known before.
//!
//! Removing a record frees its key, so an equal call would run again. That is why nothing frees a key but [`Guard::gc`]:
//! records of a run go with their run and leave a tombstone, so that no call comes too late to be told; global ones
//! only if their tool said so; what isn't settled never; and a clock that contradicts the store removes nothing.
//!
//! # One run
//!
//! ```text
//! 1  its row says `Closing`     every claim checks the row: from here on none is made
//! 2  look again                 something came in between: its row says `Open` again
//! 3  record after record        on the version seen, together with its pieces and its row in the index
//! 4  manifests, steps, log
//! 5  its row says `Purged`      the tombstone
//! ```
//!
//! A crash leaves a run that is closing; the next gc goes on with it.

use std::collections::HashSet;
use std::sync::PoisonError;
use std::time::Duration;

use super::path::newest_time;
use super::records::pieces_of;
use super::rows::{GlobalUnit, Kind, Life, Prefix, Row, RunKind, RunLog, RunRow};
use super::{Guard, Inner};
use crate::Millis;
use crate::error::{Error, ErrorKind};
use crate::key::BaseKey;
use crate::protocol::apply::millis;
use crate::protocol::approval::is_expired;
use crate::protocol::bytes;
use crate::protocol::growth::Dropped;
use crate::protocol::history::History;
use crate::protocol::record::{Approval, ApprovalState, Base};
use crate::store::{Batch, Committed, Durability, Key, Version, Versioned};

/// A clock this far past the last thing that the store knows of is not believed.
const FARTHEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// How [`Guard::gc`] goes about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
#[must_use]
pub struct GcOptions {
    clock: GcClock,
}

impl GcOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the clock is believed. Default [`GcClock::Checked`].
    pub fn clock(mut self, clock: GcClock) -> Self {
        self.clock = clock;
        self
    }
}

/// Whether [`Guard::gc`] believes the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GcClock {
    /// Only if it is not before the newest record, nor more than 7 days past it: a clock set to the year 2080 would
    /// free every key.
    #[default]
    Checked,
    /// Always: a person has looked at it. For a store that was idle for more than a week.
    Trusted,
}

/// What [`Guard::gc`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct GcReport {
    /// Runs that were removed.
    pub runs: usize,
    /// Records that were removed, those of the runs included.
    pub records: usize,
    /// Runs and global records that are past their retention and were kept, since something in them isn't settled.
    pub unresolved: usize,
}

/// A run as the survey found it.
struct Found {
    row: RunRow,
    version: Version,
}

/// What a look at a run past its retention says.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Goes,
    /// Something happened in it lately.
    Active,
    Unresolved,
}

impl Guard {
    /// Removes the runs of this guard's namespace in which nothing has happened for their
    /// [retention](crate::GuardBuilder::retention), and the global records past that of their
    /// [tool](crate::Advanced::retention). What isn't settled (an open call, a pending approval) stays, and its run
    /// with it. A call, start, attach or resume of a removed run is refused from then on. Safe beside running calls and
    /// after a crash in the middle. Reads every record of the namespace.
    ///
    /// # Errors
    /// [`ErrorKind::ClockDoubtful`] if the clock is before the newest record or more than 7 days past the last activity
    /// that the store knows of, unless it is [trusted](GcClock::Trusted); a store error, or a record that can't be read.
    pub async fn gc(&self, options: GcOptions) -> Result<GcReport, Error> {
        let sweep = Sweep::of(&self.inner, self.prefix);
        self.inner.noted().await;
        let newest = sweep.newest().await?;
        if options.clock == GcClock::Checked {
            check_clock(sweep.now, newest)?;
        }
        let mut report = GcReport::default();
        let held = sweep.unresolved_runs().await?;
        for run in sweep.runs().await? {
            sweep.run(run, &held, &mut report).await?;
        }
        sweep.globals(&mut report).await?;
        Ok(report)
    }
}

fn check_clock(now: Millis, newest: Millis) -> Result<(), Error> {
    let doubt = |why: &str| Err(Error::new(ErrorKind::ClockDoubtful, format!("nothing was removed: {why}")));
    if now < newest {
        return doubt(
            "the clock is before the newest record of the store, so it tells nothing about ages: set it right",
        );
    }
    if newest > 0 && now - newest > millis(FARTHEST) {
        return doubt(
            "the clock is more than 7 days past the last activity that the store knows of: look whether it is right, and \
             say so with GcClock::Trusted",
        );
    }
    Ok(())
}

pub(super) struct Sweep<'a> {
    inner: &'a Inner,
    prefix: Prefix,
    /// The wall clock: time that only this process has measured is no evidence about the store's.
    now: Millis,
}

impl<'a> Sweep<'a> {
    pub(super) fn of(inner: &'a Inner, prefix: Prefix) -> Self {
        Self { inner, prefix, now: inner.now.wall() }
    }

    /// The newest time that the namespace knows of.
    async fn newest(&self) -> Result<Millis, Error> {
        let mut newest = 0;
        let mut pages = Pages::of(self.prefix.all_of(Kind::Records));
        while let Some(page) = pages.next(self.inner).await? {
            for (_, stored) in page {
                newest = newest.max(newest_in(&read(&stored)?));
            }
        }
        let mut pages = Pages::of(self.prefix.all_of(Kind::Logs));
        while let Some(page) = pages.next(self.inner).await? {
            for (_, stored) in page {
                newest = newest.max(log(&stored)?.active_at);
            }
        }
        Ok(self.runs().await?.iter().map(|run| run.row.started_at).fold(newest, Millis::max))
    }

    async fn runs(&self) -> Result<Vec<Found>, Error> {
        let mut runs = Vec::new();
        let mut pages = Pages::of(self.prefix.all_of(Kind::Runs));
        while let Some(page) = pages.next(self.inner).await? {
            for (_, stored) in page {
                let row = RunRow::from_bytes(&stored.value).map_err(|error| Error::corrupt("a run", error))?;
                runs.push(Found { row, version: stored.version });
            }
        }
        Ok(runs)
    }

    /// Runs that asked for something which isn't settled: a global record, too, keeps the run that began it.
    async fn unresolved_runs(&self) -> Result<HashSet<String>, Error> {
        let open = self.inner.open_records(self.prefix).await?;
        let mut runs = HashSet::new();
        for (_, known) in open.iter().filter(|(key, known)| self.is_unresolved(key, &known.base)) {
            let slots = known.base.occurrences.iter().flat_map(|record| &record.slots);
            runs.extend(slots.map(|slot| slot.run.clone()));
            runs.extend(known.base.approvals.iter().map(|approval| approval.asker.run.clone()));
            runs.insert(known.base.about.run.clone());
        }
        Ok(runs)
    }

    async fn run(&self, found: Found, held: &HashSet<String>, report: &mut GcReport) -> Result<(), Error> {
        let Found { row, version } = found;
        let id = row.run.clone();
        let (log_key, life) = (self.prefix.log(&id), row.life);
        if matches!(life, Life::Purged { .. }) {
            return Ok(());
        }
        let stored = self.inner.records.store().get(std::slice::from_ref(&log_key)).await?.pop().flatten();
        let active_at = stored.as_ref().map(log).transpose()?.map_or(0, |log| log.active_at).max(row.started_at);
        let is_due = |at: Millis| self.now.saturating_sub(at) >= millis(self.inner.settings.retention);
        if !is_due(active_at) {
            return Ok(());
        }
        let verdict = if held.contains(&id) { Verdict::Unresolved } else { self.judge(&id, &is_due).await? };
        match verdict {
            Verdict::Goes => {}
            Verdict::Active => return Ok(()),
            Verdict::Unresolved => {
                report.unresolved += 1;
                return Ok(());
            }
        }
        let log_check = (log_key, stored.map(|stored| stored.version));
        let Some(version) = self.put_row(&row, Life::Closing, version, Some(log_check)).await? else {
            return Ok(()); // somebody is at work in it
        };
        if self.judge(&id, &is_due).await? != Verdict::Goes {
            self.put_row(&row, life, version, None).await?;
            return Ok(());
        }
        report.records += self.empty(&id).await?;
        let tombstone = RunRow { history: History::default(), ..row };
        if self.put_row(&tombstone, Life::Purged { at: self.now }, version, None).await?.is_some() {
            report.runs += 1;
            tracing::info!(run = %id, "a run was removed");
        }
        Ok(())
    }

    async fn judge(&self, run: &str, is_due: &impl Fn(Millis) -> bool) -> Result<Verdict, Error> {
        let mut verdict = Verdict::Goes;
        let mut pages = Pages::of(self.prefix.all_of_run(RunKind::Units, run));
        while let Some(page) = pages.next(self.inner).await? {
            for key in page.iter().filter_map(|(index, _)| Prefix::key_in(index)) {
                let Some(stored) = self.stored(&key).await? else { continue };
                let base = read(&stored)?;
                if self.is_unresolved(&key, &base) {
                    return Ok(Verdict::Unresolved);
                }
                if !is_due(newest_in(&base)) {
                    verdict = Verdict::Active;
                }
            }
        }
        Ok(verdict)
    }

    fn is_unresolved(&self, key: &BaseKey, base: &Base) -> bool {
        let open = base.occurrences.iter().any(|record| record.outcome.is_none() && record.is_tainted());
        let waits = |approval: &Approval| approval.state == ApprovalState::Pending && !is_expired(approval, self.now);
        let here = !self.inner.bodies.of(key).bodies.is_empty() || self.inner.unrecorded.has(key);
        open || here || base.approvals.iter().any(waits)
    }

    /// Removes what a run has, but for its row; gives the number of records.
    pub(super) async fn empty(&self, run: &str) -> Result<usize, Error> {
        let mut records = 0;
        let mut pages = Pages::of(self.prefix.all_of_run(RunKind::Units, run));
        while let Some(page) = pages.next(self.inner).await? {
            for (index, _) in page {
                let Some(key) = Prefix::key_in(&index) else { continue };
                records += usize::from(self.remove(&key, index, |_| true).await?);
            }
        }
        use RunKind::{Contracts, LookAlikes, Manifests, Reopenings, Steps};
        for kind in [Manifests, Steps, Contracts, LookAlikes, Reopenings] {
            let mut pages = Pages::of(self.prefix.all_of_run(kind, run));
            while let Some(page) = pages.next(self.inner).await? {
                self.delete(page.into_iter().map(|(key, _)| key).collect()).await?;
            }
        }
        self.delete(vec![self.prefix.log(run)]).await?;
        Ok(records)
    }

    async fn globals(&self, report: &mut GcReport) -> Result<(), Error> {
        let mut pages = Pages::of(self.prefix.all_of(Kind::Globals));
        while let Some(page) = pages.next(self.inner).await? {
            for (index, unit) in page {
                let Some(key) = Prefix::key_in(&index) else { continue };
                let unit = GlobalUnit::from_bytes(&unit.value);
                let unit = unit.map_err(|error| Error::corrupt("an entry of the index of records", error))?;
                let Some(stored) = self.stored(&key).await? else { continue };
                let base = read(&stored)?;
                let due = |base: &Base| {
                    let kept = self.inner.kept_for(&base.about.tool, unit.retention);
                    kept.is_some_and(|kept| self.now.saturating_sub(newest_in(base)) >= kept)
                };
                match (due(&base), self.is_unresolved(&key, &base)) {
                    (true, false) => report.records += usize::from(self.remove(&key, index, due).await?),
                    (true, true) => report.unresolved += 1,
                    (false, _) => {}
                }
            }
        }
        Ok(())
    }

    async fn stored(&self, key: &BaseKey) -> Result<Option<Versioned>, Error> {
        Ok(self.inner.records.store().get(&[self.prefix.base(key)]).await?.pop().flatten())
    }

    /// Removes a record with all that belongs to it, on the version that was judged. Whether it was there and went.
    async fn remove(&self, key: &BaseKey, index: Key, goes: impl Fn(&Base) -> bool) -> Result<bool, Error> {
        loop {
            let Some(stored) = self.stored(key).await? else {
                let checks = vec![(self.prefix.base(key), None)];
                let batch = Batch { checks, deletes: vec![index], ..Batch::default() };
                self.inner.records.store().commit(batch, Durability::Ordered).await?;
                return Ok(false);
            };
            let base = read(&stored)?;
            if self.is_unresolved(key, &base) || !goes(&base) {
                return Ok(false);
            }
            let outcomes =
                base.occurrences.iter().enumerate().filter_map(|(n, record)| Some((n, record.outcome.as_ref()?)));
            let pieces = outcomes.filter_map(|(n, outcome)| Dropped::of(n, outcome));
            let mut deletes = vec![self.prefix.base(key), self.prefix.open(key), index.clone()];
            deletes.extend(pieces.flat_map(|pieces| pieces_of(self.prefix, key, pieces)));
            let checks = vec![(self.prefix.base(key), Some(stored.version))];
            let batch = Batch { checks, deletes, ..Batch::default() };
            let committed = self.inner.records.store().commit(batch, Durability::Ordered).await?;
            self.inner.records.forget(key);
            if let Committed::Applied(_) = committed {
                return Ok(true);
            }
        }
    }

    async fn delete(&self, deletes: Vec<Key>) -> Result<(), Error> {
        let batch = Batch { deletes, ..Batch::default() };
        self.inner.records.store().commit(batch, Durability::Ordered).await?;
        Ok(())
    }

    /// Changes the state of a run if nobody else has changed it; gives the row's new version.
    async fn put_row(
        &self,
        row: &RunRow,
        life: Life,
        over: Version,
        log: Option<(Key, Option<Version>)>,
    ) -> Result<Option<Version>, Error> {
        let key = self.prefix.run(&row.run);
        let value = RunRow { life, ..row.clone() }.to_bytes();
        let checks = [(key.clone(), Some(over))].into_iter().chain(log).collect();
        let batch = Batch { checks, puts: vec![(key, value.clone())], ..Batch::default() };
        let Committed::Applied(version) = self.inner.records.store().commit(batch, Durability::Synced).await? else {
            return Ok(None);
        };
        if let Some(run) = self.inner.runs.at_hand(self.prefix, &row.run) {
            run.refresh(Some(Versioned { version, value }), None)?;
        }
        Ok(Some(version))
    }
}

impl Inner {
    /// A tool was registered whose global records are kept so long.
    pub(crate) fn keeps(&self, tool: &str, retention: Option<Duration>) {
        let mut retentions = self.retentions.lock().unwrap_or_else(PoisonError::into_inner);
        let known = retentions.entry(tool.to_owned()).or_insert(retention);
        *known = known.zip(retention).map(|(known, retention)| known.max(retention));
    }

    /// How long a global record is kept, in milliseconds: the longer of what its tool says today and what it said when
    /// the record was made.
    fn kept_for(&self, tool: &str, then: u64) -> Option<u64> {
        let retentions = self.retentions.lock().unwrap_or_else(PoisonError::into_inner);
        match retentions.get(tool) {
            Some(today) => today.map(|today| millis(today).max(then)),
            None => Some(then),
        }
    }
}

fn newest_in(base: &Base) -> Millis {
    let asked = base.approvals.iter().map(|approval| approval.asked_at);
    base.occurrences.iter().map(newest_time).chain(asked).max().unwrap_or(0)
}

fn read(stored: &Versioned) -> Result<Base, Error> {
    bytes::decode(&stored.value).map_err(|error| Error::corrupt("a record", error))
}

fn log(stored: &Versioned) -> Result<RunLog, Error> {
    RunLog::from_bytes(&stored.value).map_err(|error| Error::corrupt("a run's log", error))
}

/// The pages of a scan.
pub(super) struct Pages {
    start: Vec<u8>,
    from: Option<Key>,
    ended: bool,
}

impl Pages {
    pub(super) fn of(start: Vec<u8>) -> Self {
        Self { start, from: None, ended: false }
    }

    pub(super) async fn next(&mut self, inner: &Inner) -> Result<Option<Vec<(Key, Versioned)>>, Error> {
        if self.ended {
            return Ok(None);
        }
        let page = inner.records.store().scan(&self.start, self.from.take(), 64).await?;
        self.ended = page.next.is_none();
        self.from = page.next;
        Ok(Some(page.items))
    }
}
