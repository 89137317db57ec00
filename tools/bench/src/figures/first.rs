//! First calls of one caller.

use std::path::{Path, PathBuf};

use super::{Bench, ROUNDS};
use crate::disk::Append;
use crate::stage::{KINDS, Kind, Stage, quiet};
use crate::stats::{Times, median};
use crate::table::{Row, Unit};

/// What one round found of one kind of tool.
#[derive(Debug, Default)]
struct Found {
    appends: Times,
    calls: Times,
    commits: u64,
    synced: u64,
    rows: u64,
}

/// By kind, what all rounds found.
type Rounds = Vec<[Found; KINDS.len()]>;

async fn rounds(directory: PathBuf, often: u64) -> anyhow::Result<Rounds> {
    let (stage, counts) = Stage::counted(&directory.join("store")).await?;
    let mut append = Append::new(&directory)?;
    let mut rounds = Rounds::new();
    for round in 0..ROUNDS {
        let run = stage.run(format!("run-{round}")).await?;
        let mut found: [Found; KINDS.len()] = Default::default();
        for n in 0..often {
            for (kind, found) in KINDS.into_iter().zip(&mut found) {
                quiet(&counts).await;
                found.appends.add(append.once()?);
                let before = (counts.commits(), counts.synced(), counts.rows());
                found.calls.add(stage.first(&run, kind.call(round * often + n, n as u32)).await?);
                quiet(&counts).await;
                found.commits += counts.commits() - before.0;
                found.synced += counts.synced() - before.1;
                found.rows += counts.rows() - before.2;
            }
        }
        rounds.push(found);
    }
    stage.close().await?;
    Ok(rounds)
}

fn of(kind: Kind, rounds: &Rounds) -> impl Iterator<Item = &Found> {
    rounds.iter().flat_map(move |found| KINDS.into_iter().zip(found).filter(move |(of, _)| *of == kind)).map(|of| of.1)
}

/// The middle of the rounds' ratios.
fn ratio(kind: Kind, rounds: &Rounds) -> f64 {
    median(of(kind, rounds).map(|found| found.calls.mean() / found.appends.mean()).collect())
}

/// How many of something one call makes, on average over all rounds.
fn each(kind: Kind, rounds: &Rounds, count: impl Fn(&Found) -> u64) -> f64 {
    let calls: usize = of(kind, rounds).map(|found| found.calls.count()).sum();
    of(kind, rounds).map(count).sum::<u64>() as f64 / calls.max(1) as f64
}

/// How many commits of a first `Write` call wait for a sync.
///
/// # Errors
/// If it can't be measured.
pub fn syncs(bench: &Bench, directory: &Path, often: u64) -> anyhow::Result<f64> {
    let rounds = bench.on_a_worker(rounds(directory.to_owned(), often))?;
    Ok(each(Kind::Write, &rounds, |found| found.synced))
}

pub(super) fn rows(bench: &Bench, directory: &Path) -> anyhow::Result<Vec<Row>> {
    let mut rounds = bench.on_a_worker(rounds(directory.to_owned(), bench.of(5, 40, 200, 500)))?;
    let times = |name, kind| Row::new(name, ratio(kind, &rounds), Unit::Times);
    let mut rows = vec![
        times("first Write call / append + fdatasync", Kind::Write).at_most(2.3),
        times("first Idempotent call / append + fdatasync", Kind::Idempotent).at_most(1.4),
        times("first Keyed call, window for ever / append + fdatasync", Kind::Keyed).at_most(1.4),
        Row::new("commits of a first Write call", each(Kind::Write, &rounds, |found| found.commits), Unit::Count),
        Row::new("… of them waited for", each(Kind::Write, &rounds, |found| found.synced), Unit::Count),
        Row::new("… rows in them", each(Kind::Write, &rounds, |found| found.rows), Unit::Count),
    ];
    let (mut appends, mut writes, mut reads) = (Vec::new(), Vec::new(), Vec::new());
    for [write, .., read] in &mut rounds {
        appends.push(write.appends.quantile(0.5));
        writes.push(write.calls.quantile(0.5));
        reads.push(read.calls.quantile(0.5));
    }
    rows.insert(3, Row::new("ReadOnly call, p50", median(reads), Unit::Micros).at_most(5.0));
    rows.push(Row::new("first Write call, p50", median(writes), Unit::Micros));
    rows.push(Row::new("append + fdatasync beside it, p50", median(appends), Unit::Micros));
    Ok(rows)
}
