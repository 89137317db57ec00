//! Stores with very many records.
//!
//! Real calls, made by the guard on a store in memory, whose rows are then copied as they are into the sled store in large
//! commits: the same rows as if the calls had been made there, in a hundredth of the time.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use tokio::task::JoinSet;
use toolonce::Call;
use toolonce::store::{Batch, Durability, MemoryStore, SledStore, Store};

use crate::counted::Counted;
use crate::stage::{Kind, Stage, quiet};

/// Calls of one run, each in a turn of its own.
const IN_A_RUN: u64 = 1000;

/// Runs that are made in memory at a time: with few, the store in memory stays small and quick.
const AT_A_TIME: u64 = 4;

/// Rows of one commit.
const ROWS: usize = 2000;

/// The run that record `n` is in.
pub fn run_of(n: u64) -> String {
    format!("filled-{}", n / IN_A_RUN)
}

/// The call that record `n` is of.
pub fn call_of(n: u64) -> Call {
    Kind::Write.call(n, (n % IN_A_RUN) as u32)
}

/// Makes a sled store in `directory` with so many records of completed calls, a multiple of 1,000.
///
/// # Errors
/// If it can't be written.
pub async fn fill(directory: &Path, records: u64) -> anyhow::Result<()> {
    let store = SledStore::open(directory).await?;
    let runs = records / IN_A_RUN;
    for first in (0..runs).step_by(AT_A_TIME as usize) {
        make(first..runs.min(first + AT_A_TIME), &store).await?;
    }
    store.close().await?;
    Ok(())
}

/// Some runs.
async fn make(runs: Range<u64>, store: &SledStore) -> anyhow::Result<()> {
    let made = Arc::new(MemoryStore::new());
    let (counted, counts) = Counted::new(Arc::<MemoryStore>::clone(&made));
    let stage = Stage::on(counted).await?;
    let mut working = JoinSet::new();
    for n in runs {
        let stage = stage.clone();
        working.spawn(async move {
            let run = stage.run(run_of(n * IN_A_RUN)).await?;
            for call in 0..IN_A_RUN {
                stage.first(&run, call_of(n * IN_A_RUN + call)).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = working.join_next().await {
        done??;
    }
    quiet(&counts).await;
    copy(&made, store).await?;
    stage.close().await
}

async fn copy(from: &MemoryStore, to: &SledStore) -> anyhow::Result<()> {
    let mut next = None;
    loop {
        let page = from.scan(b"", next, ROWS).await?;
        let puts = page.items.into_iter().map(|(key, row)| (key, row.value)).collect();
        to.commit(Batch { puts, ..Batch::default() }, Durability::Ordered).await?;
        next = page.next;
        if next.is_none() {
            return Ok(());
        }
    }
}
