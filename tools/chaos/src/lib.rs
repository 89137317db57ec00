//! `cargo chaos`: hostile conditions for the guard and its stores, judged by a ledger that the store has no part in.
//!
//! Each mode is a module with a function that takes [`Settings`] and returns a [`Summary`]: [`kill`], [`power`],
//! [`corrupt`] with processes and files; [`owners`], [`store`], [`time`], [`race`] without. What the first three share:
//! [`workload`], the calls and the process that makes them, [`chores`], the same for what isn't a plain call;
//! [`ledger`], what really happened; [`judge`], which compares the two; [`points`], where a process can be killed.

pub mod chores;
pub mod corrupt;
mod files;
pub mod judge;
pub mod kill;
pub mod ledger;
pub mod owners;
pub mod points;
pub mod power;
pub mod race;
mod stage;
pub mod store;
pub mod summary;
pub mod time;
pub mod workload;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context as _, ensure};

use crate::summary::Summary;

/// How long a mode takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Length {
    /// For each run of the tests: a minute at most.
    Short,
    /// Some minutes.
    #[default]
    Usual,
    /// Many minutes: before a release.
    Long,
}

/// What every mode is told.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How many injections.
    pub length: Length,
    /// Overrides the number of injections that follows from the length.
    pub cases: Option<u64>,
    /// Decides everything that isn't up to the scheduler.
    pub seed: u64,
    /// Does only the group of injections with this number, from 0: a failure names it.
    pub only: Option<u64>,
    /// The program itself: children are started from it.
    pub program: PathBuf,
}

impl Settings {
    /// How many injections to make.
    pub fn cases(&self, short: u64, usual: u64, long: u64) -> u64 {
        self.cases.unwrap_or(match self.length {
            Length::Short => short,
            Length::Usual => usual,
            Length::Long => long,
        })
    }

    /// Does all groups of `size` injections, several at a time, and adds up what they found.
    ///
    /// # Errors
    /// The first of a group that could not be carried out.
    pub(crate) fn each_group(
        &self,
        (what, mode): (&'static str, &'static str),
        (cases, size): (u64, u64),
        work: impl Fn(&Group<'_>, &mut Summary) -> anyhow::Result<()> + Sync,
    ) -> anyhow::Result<Summary> {
        if let Some(only) = self.only {
            let groups = cases.div_ceil(size);
            ensure!(only < groups, "there is no group {only}, only 0 to {}: say --long or --cases too", groups - 1);
        }
        let next = AtomicU64::new(0);
        let found = Mutex::new(BTreeMap::new());
        let worker = || {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n * size >= cases {
                    return;
                }
                if self.only.is_some_and(|only| only != n) {
                    continue;
                }
                let group = Group { settings: self, mode, n, cases: size.min(cases - n * size) };
                let mut summary = Summary::new(what);
                let done = work(&group, &mut summary).with_context(|| group.to_string());
                found.lock().unwrap_or_else(PoisonError::into_inner).insert(n, done.map(|()| summary));
            }
        };
        thread::scope(|scope| {
            let workers = thread::available_parallelism().map_or(1, |n| n.get());
            (0..workers).for_each(|_| drop(scope.spawn(worker)));
        });
        let mut all = Summary::new(what);
        for part in found.into_inner().unwrap_or_else(PoisonError::into_inner).into_values() {
            all.merge(part?);
        }
        all.details.push(all.hits());
        Ok(all)
    }
}

/// Injections that are done one after the other, on one store. Its text says how to do them again.
pub(crate) struct Group<'a> {
    pub(crate) settings: &'a Settings,
    mode: &'static str,
    /// Which one, from 0.
    pub(crate) n: u64,
    /// How many injections.
    pub(crate) cases: u64,
}

impl Group<'_> {
    /// What decides everything in it.
    pub(crate) fn seed(&self) -> u64 {
        fastrand::Rng::with_seed(self.settings.seed ^ self.n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).u64(..)
    }
}

impl fmt::Display for Group<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cargo chaos {}", self.mode)?;
        match (self.settings.cases, self.settings.length) {
            (Some(cases), _) => write!(f, " --cases {cases}")?,
            (None, Length::Short) => f.write_str(" --short")?,
            (None, Length::Usual) => {}
            (None, Length::Long) => f.write_str(" --long")?,
        }
        write!(f, " --seed {} --only {}", self.settings.seed, self.n)
    }
}

/// A runtime for the guard.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// A directory for one group of injections: removed in the end, or kept with `keep` for a look at a failure.
pub(crate) fn scratch() -> std::io::Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix("toolonce-chaos-").tempdir()
}
