//! Runs cases against the guard.
//!
//! A case has a runtime, a store, a clock moved by hand and a ledger of what really happened for itself. Time stands
//! still while anything is at work; when nothing is, and a step still waits, the clock moves to the next deadline.

mod case;
mod events;
mod judge;
mod ledger;
mod process;
mod store;
#[cfg(test)]
mod tests;
mod time;
mod tools;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub use self::store::StoreKind;
use crate::file::{FaultKind, Scenario, Step};

/// The namespace of calls that name none.
const NAMESPACE: &str = "n";

/// How long a case may take in real time: one that takes longer hangs.
const HANG: Duration = Duration::from_secs(60);

/// One case on one store.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// The case.
    pub case: &'a Scenario,
    /// The store.
    pub store: StoreKind,
}

impl<'a> Job<'a> {
    /// The jobs of a case on each of `stores` that it is meant for.
    pub fn of(case: &'a Scenario, stores: &[StoreKind]) -> impl Iterator<Item = Self> {
        let on_disk = |step: &Step| matches!(step, Step::DeleteStore(_) | Step::Backup(_) | Step::RestoreBackup(_));
        let sled_only = case.steps.iter().any(on_disk);
        let fits = move |store: &StoreKind| !sled_only || *store == StoreKind::Sled;
        stores.iter().copied().filter(fits).map(move |store| Self { case, store })
    }

    /// Runs it; gives back a line for each thing that was not as expected.
    pub fn run(self) -> Vec<String> {
        let mut found = self.run_in_time();
        for line in &mut found {
            *line = format!("{} [{}]: {line}", self.case.id, self.store.name());
        }
        found
    }

    /// In a thread of its own: one that spins can't be stopped, only left behind.
    fn run_in_time(self) -> Vec<String> {
        let (case, store) = (self.case.clone(), self.store);
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || tell.send(Job { case: &case, store }.run_ways()));
        told.recv_timeout(HANG).unwrap_or_else(|error| match error {
            RecvTimeoutError::Timeout => vec![format!("it hangs: not done after {} s", HANG.as_secs())],
            RecvTimeoutError::Disconnected => vec!["the runner panicked".to_owned()],
        })
    }

    /// After a sync error the commit may be there or not: such a case must hold both ways.
    fn run_ways(self) -> Vec<String> {
        let uncertain = |step: &Step| matches!(step, Step::StoreFault(fault) if fault.kind == FaultKind::SyncError);
        let ways: &[bool] = if self.case.steps.iter().any(uncertain) { &[true, false] } else { &[true] };
        ways.iter().flat_map(|applied| self.run_here(*applied)).collect()
    }

    fn run_here(self, syncs_applied: bool) -> Vec<String> {
        let runtime = match tokio::runtime::Builder::new_current_thread().build() {
            Ok(runtime) => runtime,
            Err(error) => return vec![format!("no runtime: {error}")],
        };
        let found = runtime.block_on(case::run(self, syncs_applied));
        runtime.shutdown_background();
        found
    }
}

/// Runs all jobs, as many at a time as there are cores; the answers come in the order of the jobs.
pub fn run_all(jobs: &[Job<'_>]) -> Vec<Vec<String>> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Vec<String>>> = Mutex::new(vec![Vec::new(); jobs.len()]);
    let work = || {
        while let Some(at) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|at| *at < jobs.len()) {
            let found = jobs[at].run();
            done.lock().unwrap_or_else(PoisonError::into_inner)[at] = found;
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(work);
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}
