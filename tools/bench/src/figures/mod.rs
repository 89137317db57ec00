//! The figures, one module each.

mod build;
pub mod crowd;
pub mod first;
pub mod growth;
mod honesty;
mod joiners;
pub mod key;
pub mod replay;

use std::fmt;
use std::future::Future;
use std::path::Path;

use clap::ValueEnum;
use tokio::runtime::Runtime;

use crate::table::Row;

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Length {
    /// For the tests: too little for a figure.
    Tiny,
    /// Under a minute.
    Quick,
    /// Some minutes.
    #[default]
    Usual,
    /// With 10,000,000 records.
    Long,
}

/// How often each figure is measured; what is told is the median.
pub const ROUNDS: u64 = 5;

/// What there is to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Figure {
    /// From the text of the arguments to key and fingerprint, without a guard: strict reading, normalisation by a schema,
    /// hashing. 80 B, 400 B, 1 MB; the median of many
    Key,
    /// A call that is delivered again, through the registry, reading of its arguments and key included, answered from
    /// memory: 80 B of arguments, 200 B of result, 1,000 calls in turn. And how many allocations one makes in its
    /// caller's task
    Replay,
    /// First calls of one caller on sled, one after the other, in units of one append + fdatasync on a growing file of
    /// the same directory. Interleaved: append, write, append, idempotent … ; before each append the guard has nothing
    /// left to write. The ratio of the sums of a round. Tools do nothing
    First,
    /// First `Write` calls of 8, 64 and 512 callers at once, each with a run of its own: completed calls per append +
    /// fdatasync, and as a share of an append-only log with the same batching (one thread takes what waits, one write,
    /// one fdatasync, all are answered) and two synced entries of the same size for each call. In short slices by turns
    Crowd,
    /// 1,000 equal calls at once: how long after the outcome is durable the 990th has its answer. The tool's effect is
    /// counted in a ledger, a file with a sync of its own
    Joiners,
    /// A store with 100k (`--quick`), 1M, or 1M and 10M (`--long`) records. Replays of random records that aren't in
    /// memory; first calls by turns on it and on one with 10k; how long opening it, guard included, takes after a process
    /// that worked on it was killed; what that process has in memory after it has replayed a tenth of it (at most 100,000)
    /// and made 500 calls. The records are of real calls: made by the guard on a store in memory, its rows copied
    Growth,
    /// The longest time between two ticks of a task that sleeps 1 ms, while 64 callers make first calls on a runtime with
    /// two workers, less the same of an idle runtime: what blocks a worker delays ticks. So does a full machine, which
    /// the same with an append-only log shows
    Honesty,
    /// A build of the default features from nothing: packages, processor time, and that nothing needs a C compiler. Only
    /// with `--long` or if it is named
    Build,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// What each figure is measured with.
#[derive(Debug)]
pub struct Bench {
    /// How much is measured.
    pub length: Length,
    /// Decides what is random.
    pub seed: u64,
    /// Two workers.
    pub runtime: Runtime,
}

impl Bench {
    /// With a runtime of its own.
    ///
    /// # Errors
    /// If that can't be made.
    pub fn new(length: Length, seed: u64) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        Ok(Self { length, seed, runtime })
    }

    /// One of four numbers by length.
    fn of<T>(&self, tiny: T, quick: T, usual: T, long: T) -> T {
        match self.length {
            Length::Tiny => tiny,
            Length::Quick => quick,
            Length::Usual => usual,
            Length::Long => long,
        }
    }

    /// Runs on a worker, as a server's requests do, and not on this thread.
    fn on_a_worker<T: Send + 'static>(
        &self,
        work: impl Future<Output = anyhow::Result<T>> + Send + 'static,
    ) -> anyhow::Result<T> {
        self.runtime.block_on(self.runtime.spawn(work))?
    }

    /// Measures one figure with files in `directory`, which is empty.
    ///
    /// # Errors
    /// If it can't be measured, or the guard answers otherwise than it must.
    pub fn measure(&self, figure: Figure, directory: &Path) -> anyhow::Result<Vec<Row>> {
        match figure {
            Figure::Key => key::rows(self),
            Figure::Replay => replay::rows(self),
            Figure::First => first::rows(self, directory),
            Figure::Crowd => crowd::rows(self, directory),
            Figure::Joiners => joiners::rows(self, directory),
            Figure::Growth => growth::rows(self, directory),
            Figure::Honesty => honesty::rows(self, directory),
            Figure::Build => build::rows(directory),
        }
    }
}
