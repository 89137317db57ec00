//! Retention: what is removed from the store, when, and what must be known before.
//!
//! Removing a record frees its key, so an equal call would run again. That is why nothing frees a key but [`Guard::gc`]:
//! records of a run go with their run and leave a tombstone, so that no call comes too late to be told; global ones
//! only if their tool said so, and not while a run is there to which a person refused or permitted them; what isn't
//! settled never; and a clock that contradicts the store removes nothing. Of a global record its numbers stay (see
//! [`Floor`](crate::protocol::record::Floor)), so that what comes late from before can't be taken for what began since.
//!
//! # One run
//!
//! ```text
//! 1  its row says `Closing`     every claim checks the row: from here on none is made
//! 2  look again                 something came in between: its row says `Open` again
//! 3  its row says `Removing`    if it still says `Closing` as in 1, and its log is as in 2
//! 4  record after record        on the version seen, together with its pieces and its row in the index
//! 5  manifests, steps, log
//! 6  its row says `Purged`      the tombstone
//! ```
//!
//! Whoever works in a run that is closing sets it to `Open` again. A crash before 3 leaves such a run; the next gc looks
//! at it as at any other. A crash after 3 leaves one that the next gc goes on with.

use std::collections::{BTreeSet, HashSet};
use std::sync::PoisonError;
use std::time::Duration;

use super::pages::Pages;
use super::path::newest_time;
use super::records::{all_pieces, is_open};
use super::rows::{GlobalUnit, Kind, Life, Prefix, Row, RunKind, RunLog, RunRow};
use super::{Guard, Inner};
use crate::Millis;
use crate::error::{Error, ErrorKind};
use crate::key::BaseKey;
use crate::protocol::apply::millis;
use crate::protocol::approval::is_expired;
use crate::protocol::bytes;
use crate::protocol::history::History;
use crate::protocol::record::{Approval, ApprovalState, Base, Record};
use crate::store::{Batch, Committed, Durability, Key, Version, Versioned};

/// A clock this far past the last thing that the store knows of is not believed.
const FARTHEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// How far times in the store may lie before the wall clock: processes judge by the later of two clocks, which don't
/// run at the same speed.
const APART: Duration = Duration::from_secs(60);

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
#[non_exhaustive]
pub enum GcClock {
    /// Only if it is not before the newest record, nor more than 7 days past it: a clock set to the year 2080 would
    /// free every key.
    ///
    /// It can't see a wrong clock that has already left its time in the store: after a single run, call or step under
    /// that clock, the store's newest record agrees with it. Where that may happen, look at the time before.
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

/// What a look at a run or a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Goes,
    /// Something happened in it lately, or may yet.
    Active,
    Unresolved,
}

/// Whose a record is.
#[derive(Debug, Clone, Copy)]
enum Of {
    Run,
    /// It goes by itself, so many milliseconds after the last thing that happened in it.
    NoRun {
        retention: u64,
    },
}

impl Guard {
    /// Removes the runs of this guard's namespace in which nothing has happened for their
    /// [retention](crate::GuardBuilder::retention), and the global records past that of their
    /// [tool](crate::Advanced::retention). What isn't settled (an open call, a pending approval) stays, and its run with
    /// it; so does a global record that a person has refused or permitted to a run which is kept. A call, start, attach
    /// or resume of a removed run is refused from then on. Safe beside running calls, other gcs and after a crash in the
    /// middle. Reads every record of the namespace.
    ///
    /// # Errors
    /// [`ErrorKind::ClockDoubtful`] if the clock is more than a minute before the newest record, or more than 7 days past
    /// the last activity that the store knows of, unless it is [trusted](GcClock::Trusted); a store error, or a record
    /// that can't be read.
    pub async fn gc(&self, options: GcOptions) -> Result<GcReport, Error> {
        let sweep = Sweep::of(&self.inner, self.prefix);
        self.inner.written().await;
        let runs = sweep.runs().await?;
        let newest = sweep.newest(&runs).await?;
        if options.clock == GcClock::Checked {
            // Read anew: calls go on beside this, and what they write is no sign of a wrong clock.
            check_clock(self.inner.now.wall(), newest)?;
        }
        let mut report = GcReport::default();
        let held = sweep.unresolved_runs().await?;
        for run in runs {
            sweep.run(run, &held, &mut report).await?;
        }
        sweep.globals(&mut report).await?;
        if !self.inner.lease.is_alone() {
            self.inner.lease.sweep(&**self.inner.records.store(), sweep.now).await?;
        }
        Ok(report)
    }
}

fn check_clock(now: Millis, newest: Millis) -> Result<(), Error> {
    let doubt = |why: &str| Err(Error::new(ErrorKind::ClockDoubtful, format!("nothing was removed: {why}")));
    if now.saturating_add(millis(APART)) < newest {
        return doubt(
            "the clock is before the newest record of the store, so it tells nothing about ages: set it right",
        );
    }
    if newest > 0 && now.saturating_sub(newest) > millis(FARTHEST) {
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
    async fn newest(&self, runs: &[Found]) -> Result<Millis, Error> {
        let mut newest = runs.iter().map(|run| run.row.started_at).max().unwrap_or(0);
        let mut pages = Pages::of(self.prefix.all_of(Kind::Records));
        while let Some(page) = pages.next(self.inner).await? {
            for (_, stored) in page {
                newest = newest.max(newest_in(&read(&stored)?));
            }
        }
        let mut pages = Pages::of(self.prefix.all_of(Kind::Logs));
        while let Some(page) = pages.next(self.inner).await? {
            for (_, stored) in page {
                newest = newest.max(RunLog::read(&stored.value)?.active_at);
            }
        }
        Ok(newest)
    }

    async fn runs(&self) -> Result<Vec<Found>, Error> {
        let mut runs = Vec::new();
        let mut pages = Pages::of(self.prefix.all_of(Kind::Runs));
        while let Some(page) = pages.next(self.inner).await? {
            for (_, stored) in page {
                let row = RunRow::read(&stored.value)?;
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
            runs.extend(runs_in(&known.base).into_iter().map(str::to_owned));
            runs.insert(known.base.about.run.clone());
        }
        Ok(runs)
    }

    async fn run(&self, found: Found, held: &HashSet<String>, report: &mut GcReport) -> Result<(), Error> {
        let Found { row, version } = found;
        let version = match row.life {
            Life::Purged { .. } => return Ok(()),
            Life::Removing => version,
            Life::Open | Life::Copying | Life::Closing => match self.close(&row, version, held, report).await? {
                Some(version) => version,
                None => return Ok(()),
            },
        };
        report.records += self.empty(&row.run).await?;
        let tombstone = RunRow { history: History::default(), ..row };
        if self.put_row(&tombstone, Life::Purged { at: self.now }, version, None).await?.is_some() {
            report.runs += 1;
            tracing::info!(run = %tombstone.run, "a run was removed");
        }
        Ok(())
    }

    /// Lets nothing begin any more in a run that is past its retention; gives the version of its row, which says
    /// `Removing` then. What was judged holds at that commit: the row was `Closing` all the time, and the log unchanged.
    async fn close(
        &self,
        row: &RunRow,
        mut version: Version,
        held: &HashSet<String>,
        report: &mut GcReport,
    ) -> Result<Option<Version>, Error> {
        let (verdict, log) = self.judge(row, held).await?;
        if verdict != Verdict::Goes {
            return self.leave(row, version, (verdict, row.life == Life::Closing), report).await;
        }
        if row.life == Life::Copying {
            return self.put_row(row, Life::Removing, version, Some(log)).await; // nothing can begin in it
        }
        if row.life == Life::Open {
            match self.put_row(row, Life::Closing, version, Some(log)).await? {
                Some(closing) => version = closing,
                None => return Ok(None), // somebody is at work in it
            }
        }
        let (verdict, log) = self.judge(row, held).await?;
        if verdict == Verdict::Goes
            && let Some(removing) = self.put_row(row, Life::Removing, version, Some(log)).await?
        {
            return Ok(Some(removing));
        }
        self.leave(row, version, (verdict, true), report).await
    }

    /// Leaves a run as it is, open.
    async fn leave(
        &self,
        row: &RunRow,
        version: Version,
        (verdict, is_closing): (Verdict, bool),
        report: &mut GcReport,
    ) -> Result<Option<Version>, Error> {
        report.unresolved += usize::from(verdict == Verdict::Unresolved);
        if is_closing {
            // A conflict means that somebody else has opened it, or another gc goes on with it.
            self.put_row(row, Life::Open, version, None).await?;
        }
        Ok(None)
    }

    /// Whether a run goes, and the version of its log that this was found with.
    async fn judge(&self, row: &RunRow, held: &HashSet<String>) -> Result<(Verdict, (Key, Option<Version>)), Error> {
        let key = self.prefix.log(&row.run);
        let stored = self.inner.records.store().get(std::slice::from_ref(&key)).await?.pop().flatten();
        let active_at = stored
            .as_ref()
            .map(|stored| RunLog::read(&stored.value))
            .transpose()?
            .map_or(0, |log| log.active_at)
            .max(row.started_at);
        let verdict = if !self.is_due(active_at) {
            Verdict::Active
        } else if held.contains(&row.run) {
            Verdict::Unresolved
        } else {
            self.judge_records(&row.run).await?
        };
        Ok((verdict, (key, stored.map(|stored| stored.version))))
    }

    fn is_due(&self, active_at: Millis) -> bool {
        self.now.saturating_sub(active_at) >= millis(self.inner.settings.retention)
    }

    /// What the records say in which a run has claimed or asked for something.
    async fn judge_records(&self, run: &str) -> Result<Verdict, Error> {
        let mut verdict = Verdict::Goes;
        for kind in [RunKind::Units, RunKind::Globals] {
            let mut pages = Pages::of(self.prefix.all_of_run(kind, run));
            while let Some(page) = pages.next(self.inner).await? {
                for key in page.iter().filter_map(|(index, _)| Prefix::key_in(index)) {
                    let Some(stored) = self.stored(&key).await? else { continue };
                    let base = read(&stored)?;
                    if self.is_unresolved(&key, &base) {
                        return Ok(Verdict::Unresolved);
                    }
                    if !self.is_due(newest_of(run, &base)) {
                        verdict = Verdict::Active;
                    }
                }
            }
        }
        Ok(verdict)
    }

    fn is_unresolved(&self, key: &BaseKey, base: &Base) -> bool {
        let waits = |approval: &Approval| approval.state == ApprovalState::Pending && !is_expired(approval, self.now);
        let here = !self.inner.bodies.of(key).bodies.is_empty() || self.inner.unrecorded.has(key);
        base.is_in_doubt() || here || base.approvals.iter().any(waits)
    }

    /// Removes what a run has, but for its row; gives the number of records.
    pub(super) async fn empty(&self, run: &str) -> Result<usize, Error> {
        let mut records = 0;
        let mut pages = Pages::of(self.prefix.all_of_run(RunKind::Units, run));
        while let Some(page) = pages.next(self.inner).await? {
            for (index, _) in page {
                let Some(key) = Prefix::key_in(&index) else { continue };
                records += usize::from(self.remove(&key, index, Of::Run).await? == Verdict::Goes);
            }
        }
        let mut pages = Pages::of(self.prefix.all_of_run(RunKind::Globals, run));
        while let Some(page) = pages.next(self.inner).await? {
            for key in page.iter().filter_map(|(index, _)| Prefix::key_in(index)) {
                self.forget_answers(&key, run).await?;
            }
        }
        for kind in RunKind::BESIDE_UNITS {
            let mut pages = Pages::of(self.prefix.all_of_run(kind, run));
            while let Some(page) = pages.next(self.inner).await? {
                self.delete(page.into_iter().map(|(key, _)| key).collect()).await?;
            }
        }
        self.delete(vec![self.prefix.log(run)]).await?;
        Ok(records)
    }

    /// Takes what people answered to a run out of a global record: it held as long as the run, and there is room for a
    /// few answers only.
    async fn forget_answers(&self, key: &BaseKey, run: &str) -> Result<(), Error> {
        loop {
            let Some(stored) = self.stored(key).await? else { return Ok(()) };
            let mut base = read(&stored)?;
            let count = base.approvals.len();
            base.approvals.retain(|approval| approval.asker.run != run);
            if base.approvals.len() == count {
                return Ok(());
            }
            let mut batch = Batch { puts: vec![(self.prefix.base(key), bytes::encode(&base))], ..Batch::default() };
            batch.checks.push((self.prefix.base(key), Some(stored.version)));
            if !is_open(&base) {
                batch.deletes.push(self.prefix.open(key));
            }
            let committed = self.inner.records.store().commit(batch, Durability::Ordered).await?;
            self.inner.records.forget(key);
            if let Committed::Applied(_) = committed {
                return Ok(());
            }
        }
    }

    async fn globals(&self, report: &mut GcReport) -> Result<(), Error> {
        let mut pages = Pages::of(self.prefix.all_of(Kind::Globals));
        while let Some(page) = pages.next(self.inner).await? {
            for (index, unit) in page {
                let Some(key) = Prefix::key_in(&index) else { continue };
                let unit = GlobalUnit::read(&unit.value)?;
                match self.remove(&key, index, Of::NoRun { retention: unit.retention }).await? {
                    Verdict::Goes => report.records += 1,
                    Verdict::Unresolved => report.unresolved += 1,
                    Verdict::Active => {}
                }
            }
        }
        Ok(())
    }

    async fn stored(&self, key: &BaseKey) -> Result<Option<Versioned>, Error> {
        Ok(self.inner.records.store().get(&[self.prefix.base(key)]).await?.pop().flatten())
    }

    /// Removes a record with all that belongs to it, on the version that was judged; says what was found.
    async fn remove(&self, key: &BaseKey, index: Key, of: Of) -> Result<Verdict, Error> {
        loop {
            let mut batch = Batch { deletes: vec![self.prefix.open(key), index.clone()], ..Batch::default() };
            let Some(stored) = self.stored(key).await? else {
                batch.checks.push((self.prefix.base(key), None));
                self.inner.records.store().commit(batch, Durability::Ordered).await?;
                return Ok(Verdict::Active);
            };
            let base = read(&stored)?;
            let verdict = self.judge_record(key, &base, of).await?;
            if verdict != Verdict::Goes {
                return Ok(verdict);
            }
            batch.deletes.extend(all_pieces(self.prefix, key, &base));
            batch.checks.push((self.prefix.base(key), Some(stored.version)));
            match (of, base.removed()) {
                // What is left is found by its key only, as a global record that is kept for ever.
                (Of::NoRun { .. }, left) if left != Base::default() => {
                    batch.puts.push((self.prefix.base(key), bytes::encode(&left)));
                }
                // The tombstone of its run refuses everything that could go on from it.
                _ => batch.deletes.push(self.prefix.base(key)),
            }
            let committed = self.inner.records.store().commit(batch, Durability::Ordered).await?;
            self.inner.records.forget(key);
            if let Committed::Applied(_) = committed {
                return Ok(Verdict::Goes);
            }
        }
    }

    async fn judge_record(&self, key: &BaseKey, base: &Base, of: Of) -> Result<Verdict, Error> {
        if let Of::NoRun { retention } = of {
            let kept = self.inner.kept_for(&base.about.tool, retention);
            if kept.is_none_or(|kept| self.now.saturating_sub(newest_in(base)) < kept) {
                return Ok(Verdict::Active);
            }
        }
        if self.is_unresolved(key, base) {
            return Ok(Verdict::Unresolved);
        }
        let is_needed = matches!(of, Of::NoRun { .. }) && self.has_answers(base).await?;
        Ok(if is_needed { Verdict::Active } else { Verdict::Goes })
    }

    /// Whether a run is there to which a person has refused or permitted it: that holds as long as the run.
    async fn has_answers(&self, base: &Base) -> Result<bool, Error> {
        let answered = base.approvals.iter().filter(|approval| approval.state != ApprovalState::Pending);
        let rows: Vec<Key> = answered.map(|approval| self.prefix.run(&approval.asker.run)).collect();
        for found in self.inner.records.store().get(&rows).await?.into_iter().flatten() {
            let row = RunRow::read(&found.value)?;
            if row.life.is_there() {
                return Ok(true);
            }
        }
        Ok(false)
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

/// The newest time that a record knows of.
fn newest_in(base: &Base) -> Millis {
    newest_that(base, |_| true, |_| true)
}

/// The newest time that a record knows of what a run did in it.
fn newest_of(run: &str, base: &Base) -> Millis {
    let is_first = base.about.run == run;
    let record = |record: &Record| match record.slots.is_empty() {
        true => is_first,
        false => record.slots.iter().any(|slot| slot.run == run),
    };
    newest_that(base, record, |approval| approval.asker.run == run)
}

fn newest_that(base: &Base, record: impl Fn(&Record) -> bool, approval: impl Fn(&Approval) -> bool) -> Millis {
    let records = base.occurrences.iter().filter(|found| record(found)).flat_map(|record| {
        let said = record.statement.as_ref().map(|statement| statement.signed.at);
        [newest_time(record), said.unwrap_or(0)]
    });
    let questions = base.approvals.iter().filter(|found| approval(found)).flat_map(|approval| {
        let answered = approval.signed.as_ref().map(|signed| signed.at);
        [approval.asked_at, answered.unwrap_or(0)]
    });
    records.chain(questions).max().unwrap_or(0)
}

/// The runs that have a place or an answer of a human in a record.
fn runs_in(base: &Base) -> BTreeSet<&str> {
    let slots = base.occurrences.iter().flat_map(|record| &record.slots).map(|slot| slot.run.as_str());
    slots.chain(base.approvals.iter().map(|approval| approval.asker.run.as_str())).collect()
}

fn read(stored: &Versioned) -> Result<Base, Error> {
    bytes::decode(&stored.value).map_err(|error| Error::corrupt("a record", error))
}
