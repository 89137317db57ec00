//! Calls that are delivered again, answered from memory.

use std::sync::Arc;

use toolonce::store::MemoryStore;
use toolonce::{Call, Run};

use super::{Bench, ROUNDS};
use crate::stage::{Kind, Stage};
use crate::stats::{Times, median};
use crate::table::{Row, Unit};

/// So many calls take turns, more than a processor's first caches hold.
const CALLS: u64 = 1000;

/// How many replays are made to count allocations.
const COUNTED: u64 = 100;

/// The `n`-th call of the thousand, delivered again.
pub fn again(n: u64) -> Call {
    Kind::Write.call(n % CALLS, (n % CALLS) as u32)
}

/// A guard and a run whose thousand calls are all done and delivered. In memory: the store isn't asked.
///
/// # Errors
/// If one could not be done.
pub async fn done() -> anyhow::Result<(Stage, Run)> {
    let stage = Stage::on(MemoryStore::new()).await?;
    let run = stage.run("run").await?;
    for n in 0..CALLS {
        stage.first(&run, again(n)).await?;
        stage.replay(&run, again(n)).await?;
    }
    Ok((stage, run))
}

/// How many allocations a replay makes in its caller's task.
///
/// # Errors
/// If it isn't a replay.
pub fn allocations(bench: &Bench) -> anyhow::Result<f64> {
    let runtime = &bench.runtime;
    let (stage, run) = runtime.block_on(done())?;
    let calls: Vec<_> = (0..COUNTED).map(again).collect();
    let mut answered = Ok(());
    // The block itself, once for all calls, makes a handful.
    let counted = allocation_counter::measure(|| {
        answered = runtime.block_on(async {
            for call in calls {
                stage.replay(&run, call).await?;
            }
            anyhow::Ok(())
        });
    });
    answered?;
    runtime.block_on(stage.close())?;
    Ok((counted.count_total as f64 / COUNTED as f64).round())
}

/// The middle and the slowest hundredth of replays, in microseconds, each in the middle of five rounds.
///
/// # Errors
/// If one isn't a replay.
pub fn time(bench: &Bench, often: u64) -> anyhow::Result<(f64, f64)> {
    let (stage, run) = bench.on_a_worker(done())?;
    let stage = Arc::new(stage);
    let (mut p50, mut p99) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (stage, run) = (Arc::clone(&stage), run.clone());
        let mut times = bench.on_a_worker(async move {
            let mut times = Times::default();
            for n in 0..often {
                times.add(stage.replay(&run, again(n)).await?);
            }
            Ok(times)
        })?;
        p50.push(times.quantile(0.5));
        p99.push(times.quantile(0.99));
    }
    bench.runtime.block_on(Stage::clone(&stage).close())?;
    Ok((median(p50), median(p99)))
}

pub(super) fn rows(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let (p50, p99) = time(bench, bench.of(1000, 50_000, 200_000, 500_000))?;
    Ok(vec![
        Row::new("replay from memory, p50", p50, Unit::Micros).at_most(2.0),
        Row::new("replay from memory, p99", p99, Unit::Micros).at_most(6.0),
        Row::new("allocations of a replay", allocations(bench)?, Unit::Count),
    ])
}
