//! The part of a run that a fork has, as it is read.

use std::collections::{BTreeMap, BTreeSet};

use super::Parent;
use crate::error::{Error, ErrorKind};
use crate::guard::Inner;
use crate::guard::long;
use crate::guard::pages::Pages;
use crate::guard::records::downstream;
use crate::guard::reopen::order_of;
use crate::guard::rows::{
    Completion, LookAlikeCall, LookAlikes, Manifest, Prefix, Reopening, Row, RunKind, RunLog, RunUnit, StepRow,
};
use crate::key::BaseKey;
use crate::protocol::fork::{Part, inherited, is_earlier, part_of};
use crate::protocol::history::History;
use crate::protocol::record::Turn;
use crate::store::{Key, Version, Versioned};

/// What a fork has, under its own keys.
#[derive(PartialEq)]
pub(super) struct Earlier {
    /// The parent's row.
    pub(super) row: Version,
    pub(super) history: History,
    /// Its progress; without the time of it.
    pub(super) log: RunLog,
    pub(super) copies: Vec<Copy>,
    pub(super) rows: Vec<(Key, Vec<u8>)>,
    /// Those that may be cut into pieces.
    pub(super) long_rows: Vec<(Key, Vec<u8>)>,
}

/// A record of the fork to be.
#[derive(PartialEq)]
pub(super) struct Copy {
    pub(super) from: BaseKey,
    pub(super) alias: BaseKey,
    pub(super) part: Part,
}

impl Copy {
    /// The places of its completions in the run's order.
    fn orders(&self) -> impl Iterator<Item = u64> {
        let outcomes = self.part.base.occurrences.iter().filter_map(|record| record.outcome.as_ref());
        outcomes.map(|outcome| outcome.order).filter(|order| *order > 0)
    }
}

/// The run while it is read.
struct Reading<'a> {
    inner: &'a Inner,
    parent: &'a Parent<'a>,
    prefix: Prefix,
    id: &'a str,
    /// Keys of its records, whether the fork has anything of them or not.
    units: BTreeSet<BaseKey>,
    earlier: Earlier,
}

impl Inner {
    /// What the fork `id` has of its parent.
    pub(super) async fn earlier(&self, parent: &Parent<'_>, id: &str) -> Result<Earlier, Error> {
        self.noted().await;
        self.runs.refresh(parent.run).await?;
        let now = parent.run.now().in_epoch(parent.epoch)?;
        let last_turn = parent.before.checked_sub(1).and_then(|last| now.log.last_turn.map(|turn| turn.min(last)));
        let mut reading = Reading {
            inner: self,
            parent,
            prefix: parent.run.prefix,
            id,
            units: BTreeSet::new(),
            earlier: Earlier {
                row: now.row,
                history: History::clone(&now.history),
                log: RunLog { last_turn, ..RunLog::default() },
                copies: Vec::new(),
                rows: Vec::new(),
                long_rows: Vec::new(),
            },
        };
        reading.records().await?;
        let mut tools: BTreeSet<String> = reading.tools();
        tools.extend(reading.manifests().await?);
        reading.contracts(&tools).await?;
        reading.look_alikes().await?;
        reading.reopenings().await?;
        reading.steps().await?;
        Ok(reading.earlier)
    }
}

impl Reading<'_> {
    fn pages(&self, kind: RunKind) -> Pages {
        Pages::of(self.prefix.all_of_run(kind, &self.parent.run.id))
    }

    fn tools(&self) -> BTreeSet<String> {
        self.earlier.copies.iter().map(|copy| copy.part.base.about.tool.clone()).collect()
    }

    async fn records(&mut self) -> Result<(), Error> {
        let mut pages = self.pages(RunKind::Units);
        while let Some(page) = pages.next(self.inner).await? {
            for (index, unit) in page {
                let Some(from) = Prefix::key_in(&index) else { continue };
                self.units.insert(from);
                let RunUnit { alias } = RunUnit::read(&unit.value)?;
                let known = self.inner.records.load_fresh(self.prefix, &from).await?;
                let part = part_of(&known.base, self.parent.before, self.id).map_err(|open| {
                    let reference = downstream(&from, &known.base, open).reference();
                    unresolved(&known.base.about.tool, &reference)
                })?;
                self.earlier.copies.extend(part.map(|part| Copy { from, alias, part }));
            }
        }
        Ok(())
    }

    /// The long rows of one kind that the parent has, without their pieces.
    async fn long_rows(&self, kind: RunKind, length: usize) -> Result<Vec<(Key, Vec<u8>)>, Error> {
        let length = self.prefix.all_of_run(kind, &self.parent.run.id).len() + length;
        let (mut rows, mut pages) = (Vec::new(), self.pages(kind));
        while let Some(page) = pages.next(self.inner).await? {
            for (key, _) in page.into_iter().filter(|(key, _)| key.as_bytes().len() == length) {
                if let Some((_, row)) = long::get(&**self.inner.records.store(), &key).await? {
                    rows.push((self.prefix.for_run(kind, &key, self.id), row));
                }
            }
        }
        Ok(rows)
    }

    /// The manifests of earlier turns; gives the tools that they name.
    async fn manifests(&mut self) -> Result<BTreeSet<String>, Error> {
        let mut tools = BTreeSet::new();
        for (key, row) in self.long_rows(RunKind::Manifests, 4).await? {
            let mut manifest = Manifest::read(&row)?;
            let turn = key.as_bytes().last_chunk().map_or(Turn::MAX, |turn| Turn::from_be_bytes(*turn));
            if turn >= self.parent.before || !self.earlier.history.holds(manifest.epoch, turn) {
                continue;
            }
            for call in &mut manifest.calls {
                call.key = call.alias.map_or(call.key, |alias| alias.in_fork(self.id));
                tools.insert(call.tool.clone());
            }
            self.earlier.long_rows.push((key, manifest.to_bytes()));
        }
        Ok(tools)
    }

    /// The fork goes by the key rules by which earlier calls were keyed.
    async fn contracts(&mut self, tools: &BTreeSet<String>) -> Result<(), Error> {
        let from: Vec<Key> = tools.iter().map(|tool| self.prefix.contract(&self.parent.run.id, tool)).collect();
        let found = self.inner.records.store().get(&from).await?;
        let row =
            |(tool, found): (&String, Option<Versioned>)| Some((self.prefix.contract(self.id, tool), found?.value));
        self.earlier.rows.extend(tools.iter().zip(found).filter_map(row));
        Ok(())
    }

    /// An earlier call that nobody has seen the outcome of may be worded anew in the fork as well.
    async fn look_alikes(&mut self) -> Result<(), Error> {
        let mut pages = self.pages(RunKind::LookAlikes);
        while let Some(page) = pages.next(self.inner).await? {
            for (key, stored) in page {
                let row = LookAlikes::read(&stored.value)?;
                let mut calls = Vec::new();
                for call in row.calls {
                    calls.extend(self.look_alike(call).await?);
                }
                if !calls.is_empty() {
                    let key = self.prefix.for_run(RunKind::LookAlikes, &key, self.id);
                    self.earlier.rows.push((key, LookAlikes { calls }.to_bytes()));
                }
            }
        }
        Ok(())
    }

    /// The call in the fork's name, if an earlier turn made it.
    async fn look_alike(&self, call: LookAlikeCall) -> Result<Option<LookAlikeCall>, Error> {
        if self.units.contains(&call.key) {
            let copies = &self.earlier.copies;
            let here = copies.iter().find(|copy| copy.from == call.key).and_then(|copy| {
                let occurrence = copy.part.numbers.iter().position(|number| *number == call.occurrence as usize)?;
                let occurrence = u32::try_from(occurrence).unwrap_or(u32::MAX);
                Some(LookAlikeCall { key: copy.alias.in_fork(self.id), occurrence })
            });
            return Ok(here);
        }
        let (run, before) = (self.parent.run, self.parent.before);
        let known = self.inner.records.load_fresh(self.prefix, &call.key).await?;
        let base = inherited(&known.base, &run.id, &run.line);
        let shared = base.occurrences.get(call.occurrence as usize);
        let of_run = |record: &crate::protocol::record::Record| {
            record.slots.iter().any(|slot| *slot.run == *run.id && slot.turn < before)
        };
        Ok(shared.is_some_and(of_run).then_some(call))
    }

    /// What was completed before reopens in the fork what it reopened before.
    async fn reopenings(&mut self) -> Result<(), Error> {
        let orders: BTreeSet<u64> = self.earlier.copies.iter().flat_map(Copy::orders).collect();
        let mut newest: BTreeMap<String, u64> = BTreeMap::new();
        let mut pages = self.pages(RunKind::Reopenings);
        while let Some(page) = pages.next(self.inner).await? {
            for (key, stored) in page {
                let row = Reopening::read(&stored.value)?;
                let order = order_of(&key);
                if is_earlier(row.turn, self.parent.before) || orders.contains(&order) {
                    newest.insert(row.tool, order);
                    let key = self.prefix.for_run(RunKind::Reopenings, &key, self.id);
                    self.earlier.rows.push((key, stored.value));
                }
            }
        }
        let log = &mut self.earlier.log;
        log.completions = orders.into_iter().chain(newest.values().copied()).max().unwrap_or(0);
        log.newest = newest.into_iter().map(|(tool, order)| Completion { tool, order }).collect();
        Ok(())
    }

    /// The steps of earlier turns, and the last turn that they have seen.
    async fn steps(&mut self) -> Result<(), Error> {
        for (key, row) in self.long_rows(RunKind::Steps, 32 + 4).await? {
            let step = StepRow::read(&row)?;
            if step.turn < self.parent.before {
                self.earlier.log.seen = self.earlier.log.seen.max(step.turn.checked_sub(1));
                self.earlier.long_rows.push((key, row));
            }
        }
        Ok(())
    }
}

fn unresolved(tool: &str, reference: &str) -> Error {
    let message = format!(
        "the run can't be forked there: it isn't known yet whether an earlier call of {tool:?} happened ({reference}). \
         Wait for it or settle it first"
    );
    Error::new(ErrorKind::Unresolved, message)
}
