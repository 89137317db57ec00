//! First calls of many callers at once.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use toolonce::Run;
use toolonce::store::MemoryStore;

use super::{Bench, ROUNDS};
use crate::counted::{Counted, Counts};
use crate::disk::{Append, GroupLog};
use crate::stage::{Kind, Stage};
use crate::stats::{Times, median, micros};
use crate::table::{Row, Unit};

/// Appends before and after each slice of calls.
const APPENDS: u32 = 10;

struct Crowd {
    stage: Stage,
    counts: Arc<Counts>,
    log: GroupLog,
    append: Append,
    runs: Vec<Run>,
    /// How many calls each caller makes in a slice.
    each: u32,
    /// How many each has made.
    made: u32,
}

/// What one round found.
#[derive(Debug, Default)]
struct Found {
    appends: Times,
    calls: Duration,
    log: Duration,
}

/// Lets all callers work until the last is done.
async fn all<F>(callers: impl Iterator<Item = F>) -> anyhow::Result<Duration>
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let begun = Instant::now();
    let mut working: JoinSet<_> = callers.collect();
    while let Some(done) = working.join_next().await {
        done??;
    }
    Ok(begun.elapsed())
}

impl Crowd {
    async fn new(directory: &Path, callers: usize) -> anyhow::Result<Self> {
        std::fs::create_dir(directory)?;
        let (stage, counts) = Stage::counted(&directory.join("store")).await?;
        Self::of(stage, counts, directory, callers).await
    }

    /// With the store in memory.
    async fn without_a_disk(directory: &Path, callers: usize) -> anyhow::Result<Self> {
        std::fs::create_dir(directory)?;
        let (store, counts) = Counted::new(Arc::new(MemoryStore::new()));
        Self::of(Stage::on(store).await?, counts, directory, callers).await
    }

    async fn of(stage: Stage, counts: Arc<Counts>, directory: &Path, callers: usize) -> anyhow::Result<Self> {
        let (log, append) = (GroupLog::new(directory)?, Append::new(directory)?);
        let mut runs = Vec::new();
        for n in 0..callers {
            runs.push(stage.run(format!("run-{n}")).await?);
        }
        // A slice takes some ten milliseconds.
        let each = (128 / callers as u32).max(2);
        let mut crowd = Self { stage, counts, log, append, runs, each, made: 0 };
        crowd.calls().await?;
        Ok(crowd)
    }

    async fn calls(&mut self) -> anyhow::Result<Duration> {
        let turns = self.made..self.made + self.each;
        self.made += self.each;
        all(self.runs.iter().zip(0_u64..).map(|(run, caller)| {
            let (stage, run, turns) = (self.stage.clone(), run.clone(), turns.clone());
            async move {
                for turn in turns {
                    stage.first(&run, Kind::Write.call(caller << 32 | u64::from(turn), turn)).await?;
                }
                Ok(())
            }
        }))
        .await
    }

    /// The same crowd with two synced entries for each call, as long as claim and end.
    async fn entries(&self) -> anyhow::Result<Duration> {
        let sizes = [self.counts.claims.mean_bytes(), self.counts.ends.mean_bytes()];
        let each = self.each;
        all(self.runs.iter().map(|_| {
            let log = self.log.clone();
            async move {
                for _ in 0..each {
                    for bytes in sizes {
                        log.append(bytes).await?;
                    }
                }
                Ok(())
            }
        }))
        .await
    }

    async fn round(&mut self, slices: u32) -> anyhow::Result<Found> {
        let mut found = Found::default();
        for _ in 0..slices {
            found.appends.join(self.appends()?);
            found.log += self.entries().await?;
            found.appends.join(self.appends()?);
            found.calls += self.calls().await?;
            // What is left for later is written now, and not beside the appends.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(found)
    }

    fn appends(&mut self) -> anyhow::Result<Times> {
        let mut times = Times::default();
        for _ in 0..APPENDS {
            times.add(self.append.once()?);
        }
        Ok(times)
    }
}

/// Completed calls per append + fdatasync, and as a share of the log; each in the middle of five rounds.
async fn measured(directory: PathBuf, callers: usize, slices: u32) -> anyhow::Result<(f64, f64)> {
    let mut crowd = Crowd::new(&directory, callers).await?;
    let (mut per_sync, mut share) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let found = crowd.round(slices).await?;
        let calls = f64::from(slices) * f64::from(crowd.each) * callers as f64;
        per_sync.push(calls * found.appends.mean() / micros(found.calls));
        share.push(100.0 * found.log.as_secs_f64() / found.calls.as_secs_f64());
    }
    crowd.stage.close().await?;
    Ok((median(per_sync), median(share)))
}

fn crowd(bench: &Bench, directory: &Path, callers: usize, slices: u32) -> anyhow::Result<(f64, f64)> {
    bench.on_a_worker(measured(directory.join(callers.to_string()), callers, slices))
}

/// What a first call of one of many callers takes, in microseconds.
#[derive(Debug, Clone, Copy)]
pub struct PerCall {
    /// With the sled store.
    pub on_disk: f64,
    /// With a store in memory: what the guard itself takes of the processor.
    pub in_memory: f64,
    /// One append + fdatasync beside it.
    pub append: f64,
}

/// The same crowd with and without a disk, by turns.
///
/// # Errors
/// If it can't be measured.
pub fn per_call(bench: &Bench, directory: &Path, callers: usize, slices: u32) -> anyhow::Result<PerCall> {
    let (disk, memory) = (directory.join("disk"), directory.join("memory"));
    bench.on_a_worker(async move {
        let mut disk = Crowd::new(&disk, callers).await?;
        let mut memory = Crowd::without_a_disk(&memory, callers).await?;
        let (mut appends, mut times) = (Times::default(), [Duration::ZERO; 2]);
        for _ in 0..slices {
            appends.join(disk.appends()?);
            times[0] += disk.calls().await?;
            times[1] += memory.calls().await?;
        }
        let calls = f64::from(slices) * f64::from(disk.each) * callers as f64;
        let [on_disk, in_memory] = times.map(|time| micros(time) / calls);
        disk.stage.close().await?;
        memory.stage.close().await?;
        Ok(PerCall { on_disk, in_memory, append: appends.mean() })
    })
}

pub(super) fn rows(bench: &Bench, directory: &Path) -> anyhow::Result<Vec<Row>> {
    let slices = bench.of(1, 3, 10, 30);
    let mut rows = Vec::new();
    for (callers, goal) in [(8, 0.9), (64, 4.0), (512, 6.0)] {
        let (per_sync, share) = crowd(bench, directory, callers, slices)?;
        let name = format!("first Write calls, {callers} callers");
        rows.push(Row::new(format!("{name}, per append + fdatasync"), per_sync, Unit::PerSync).at_least(goal));
        rows.push(Row::new(format!("{name}, share of an append-only log"), share, Unit::Percent).at_least(55.0));
    }
    Ok(rows)
}
