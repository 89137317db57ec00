//! Whether the guard blocks the threads that run async tasks.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::{Bench, ROUNDS};
use crate::disk::GroupLog;
use crate::stage::{Kind, Stage};
use crate::stats::{median, micros};
use crate::table::{Row, Unit};

const CALLERS: u64 = 64;

/// The longest time between two ticks while `work` goes on for as long as it is told.
async fn longest_gap<F>(within: Duration, work: impl FnOnce(Arc<AtomicBool>) -> F) -> anyhow::Result<f64>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let over = Arc::new(AtomicBool::new(false));
    let ticker = tokio::spawn({
        let over = Arc::clone(&over);
        async move {
            let (begun, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
            while begun.elapsed() < within {
                tokio::time::sleep(Duration::from_millis(1)).await;
                longest = longest.max(last.elapsed());
                last = Instant::now();
            }
            over.store(true, Ordering::Relaxed);
            longest
        }
    });
    work(over).await?;
    Ok(micros(ticker.await?) / 1000.0)
}

async fn all(
    callers: impl Iterator<Item = impl Future<Output = anyhow::Result<()>> + Send + 'static>,
) -> anyhow::Result<()> {
    let mut working: JoinSet<_> = callers.collect();
    while let Some(done) = working.join_next().await {
        done??;
    }
    Ok(())
}

/// The longest gaps in milliseconds: of an idle runtime, with the append-only log, with the guard.
async fn gaps(directory: PathBuf, within: Duration) -> anyhow::Result<[f64; 3]> {
    let (stage, counts) = Stage::counted(&directory.join("store")).await?;
    let log = GroupLog::new(&directory)?;
    let mut runs = Vec::new();
    for caller in 0..CALLERS {
        runs.push(stage.run(format!("run-{caller}")).await?);
    }
    let mut found: [Vec<f64>; 3] = Default::default();
    for round in 0..ROUNDS {
        found[0].push(longest_gap(within, async |_| Ok(())).await?);
        let (guard, callers) = (stage.clone(), runs.clone());
        let guarded = move |over: Arc<AtomicBool>| {
            all(callers.into_iter().zip(0..).map(move |(run, caller)| {
                let (stage, over) = (guard.clone(), Arc::clone(&over));
                async move {
                    let mut n = 0;
                    while !over.load(Ordering::Relaxed) {
                        let turn = round << 20 | n;
                        stage.first(&run, Kind::Write.call(caller << 32 | turn, turn as u32)).await?;
                        n += 1;
                    }
                    Ok(())
                }
            }))
        };
        found[2].push(longest_gap(within, guarded).await?);
        let sizes = [counts.claims.mean_bytes(), counts.ends.mean_bytes()];
        let file = log.clone();
        let logged = move |over: Arc<AtomicBool>| {
            all((0..CALLERS).map(move |_| {
                let (log, over) = (file.clone(), Arc::clone(&over));
                async move {
                    while !over.load(Ordering::Relaxed) {
                        for bytes in sizes {
                            log.append(bytes).await?;
                        }
                    }
                    Ok(())
                }
            }))
        };
        found[1].push(longest_gap(within, logged).await?);
    }
    stage.close().await?;
    Ok(found.map(median))
}

pub(super) fn rows(bench: &Bench, directory: &Path) -> anyhow::Result<Vec<Row>> {
    let within = Duration::from_millis(bench.of(50, 300, 1000, 3000));
    let [idle, log, guard] = bench.on_a_worker(gaps(directory.to_owned(), within))?;
    Ok(vec![
        Row::new("longest gap of a 1 ms ticker, 64 callers, beyond idle", (guard - idle).max(0.0), Unit::Millis)
            .at_most(1.0),
        Row::new("… with an append-only log in place of the guard", (log - idle).max(0.0), Unit::Millis),
        Row::new("… of the idle runtime itself", idle, Unit::Millis),
    ])
}
