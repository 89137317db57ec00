//! Stores with many records.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use toolonce::Run;
use toolonce::store::SledStore;

use super::{Bench, ROUNDS};
use crate::counted::Counts;
use crate::fill::{call_of, fill, run_of};
use crate::stage::{Kind, Stage, quiet};
use crate::stats::{Times, median};
use crate::table::{Row, Unit};

/// Numbers of calls that no record of a filled store has.
const NEW: u64 = 1 << 40;

/// Replays of records at random places, none twice: each is read from the store.
struct Records {
    stage: Stage,
    records: u64,
    random: fastrand::Rng,
    runs: HashMap<String, Run>,
    seen: HashSet<u64>,
}

impl Records {
    fn new(stage: &Stage, records: u64, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self { stage: stage.clone(), records, random, runs: HashMap::new(), seen: HashSet::new() }
    }

    async fn replay(&mut self, often: u64) -> anyhow::Result<Times> {
        let mut times = Times::default();
        for _ in 0..often {
            let mut n = self.random.u64(..self.records);
            while !self.seen.insert(n) {
                n = self.random.u64(..self.records);
            }
            let id = run_of(n);
            if !self.runs.contains_key(&id) {
                self.runs.insert(id.clone(), Run::attach(&self.stage.guard, &id).await?);
            }
            times.add(self.stage.replay(&self.runs[&id], call_of(n)).await?);
        }
        Ok(times)
    }
}

/// The middle of replays in microseconds.
async fn replays(directory: PathBuf, records: u64, often: u64, seed: u64) -> anyhow::Result<f64> {
    let (stage, _) = Stage::counted(&directory).await?;
    let mut random = Records::new(&stage, records, seed);
    let mut middles = Vec::new();
    for _ in 0..ROUNDS {
        middles.push(random.replay(often).await?.quantile(0.5));
    }
    stage.close().await?;
    Ok(median(middles))
}

/// How much longer a first call takes on the large store than on the small one, done by turns.
async fn slower(few: PathBuf, many: PathBuf, often: u64) -> anyhow::Result<f64> {
    let stages: [(Stage, std::sync::Arc<Counts>); 2] = [Stage::counted(&few).await?, Stage::counted(&many).await?];
    let mut ratios = Vec::new();
    for round in 0..ROUNDS {
        let mut times = [Times::default(), Times::default()];
        let id = format!("new-{round}");
        let runs = [stages[0].0.run(&id).await?, stages[1].0.run(&id).await?];
        for turn in 0..often {
            for (n, (stage, counts)) in stages.iter().enumerate() {
                let call = Kind::Write.call(NEW + round * often + turn, turn as u32);
                times[n].add(stage.first(&runs[n], call).await?);
                quiet(counts).await;
            }
        }
        ratios.push(times[1].mean() / times[0].mean());
    }
    for (stage, _) in stages {
        stage.close().await?;
    }
    Ok(median(ratios))
}

/// What a process says that has opened a store after another was killed.
#[derive(Debug, Serialize, Deserialize)]
struct Opened {
    /// Store and guard.
    seconds: f64,
    /// When it had opened it.
    resident_at_first: f64,
    /// After many replays and calls, so that what is kept in memory is full.
    resident: f64,
}

/// The child that is killed: says so when it has made some calls, and goes on.
///
/// # Errors
/// If a call can't be made.
pub fn hold(bench: &Bench, directory: &Path) -> anyhow::Result<()> {
    bench.runtime.block_on(async {
        let (stage, _) = Stage::counted(directory).await?;
        let run = stage.run(format!("held-{}", std::process::id())).await?;
        for n in 0.. {
            stage.first(&run, Kind::Write.call(2 * NEW + n, n as u32)).await?;
            if n == 100 {
                writeln!(std::io::stdout(), "ready")?;
            }
        }
        Ok(())
    })
}

/// The child that opens the store afterwards, and tells what that took.
///
/// # Errors
/// If it can't, or something in it isn't there.
pub fn open(bench: &Bench, directory: &Path, records: u64) -> anyhow::Result<()> {
    let opened = bench.runtime.block_on(async {
        let begun = Instant::now();
        let stage = Stage::on(SledStore::open(directory).await?).await?;
        let seconds = begun.elapsed().as_secs_f64();
        let resident_at_first = resident()?;
        let replays = (records / 10).clamp(1000, 100_000);
        Records::new(&stage, records, bench.seed).replay(replays).await?;
        let run = stage.run(format!("opened-{}", std::process::id())).await?;
        for n in 0..500 {
            stage.first(&run, Kind::Write.call(3 * NEW + n, n as u32)).await?;
        }
        let resident = resident()?;
        stage.close().await?;
        anyhow::Ok(Opened { seconds, resident_at_first, resident })
    })?;
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&opened)?)?;
    Ok(())
}

/// What this process has in memory, in megabytes.
fn resident() -> anyhow::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS in /proc/self/status")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024.0 / 1e6)
}

/// Kills a process that works on the store, and has another one open it.
fn after_a_kill(bench: &Bench, directory: &Path, records: u64) -> anyhow::Result<Opened> {
    let program = std::env::current_exe()?;
    let mut held = Command::new(&program).arg("hold").arg(directory).stdout(Stdio::piped()).spawn()?;
    let mut said = String::new();
    BufReader::new(held.stdout.take().context("it has no output")?).read_line(&mut said)?;
    held.kill()?;
    held.wait()?;
    ensure!(said == "ready\n", "the process that was to be killed ended by itself");
    let numbers = [records.to_string(), bench.seed.to_string()];
    let opened = Command::new(&program).arg("open").arg(directory).args(numbers).stderr(Stdio::inherit()).output()?;
    ensure!(opened.status.success(), "the process that opened the store failed");
    Ok(serde_json::from_slice(&opened.stdout)?)
}

fn thousands(n: u64) -> String {
    match n {
        n if n >= 1_000_000 => format!("{}M", n / 1_000_000),
        n => format!("{}k", n / 1000),
    }
}

pub(super) fn rows(bench: &Bench, directory: &Path) -> anyhow::Result<Vec<Row>> {
    let few = directory.join("few");
    let least = bench.of(1000, 10_000, 10_000, 10_000);
    bench.runtime.block_on(fill(&few, least))?;
    let mut rows = Vec::new();
    let sizes: &[u64] = bench.of(&[4_000], &[100_000], &[1_000_000], &[1_000_000, 10_000_000]);
    for &records in sizes {
        let many = directory.join(records.to_string());
        bench.runtime.block_on(fill(&many, records))?;
        let opened = after_a_kill(bench, &many, records)?;
        let often = bench.of(200, 2000, 5000, 10_000);
        let replay = bench.on_a_worker(replays(many.clone(), records, often, bench.seed))?;
        let slower = bench.on_a_worker(slower(few.clone(), many.clone(), bench.of(5, 40, 100, 300)))?;
        let (all, least) = (thousands(records), thousands(least));
        let goal = if records > 1_000_000 { 60.0 } else { 25.0 };
        rows.extend([
            Row::new(format!("replay from sled at {all} records, p50"), replay, Unit::Micros).at_most(goal),
            Row::new(format!("first Write call at {all} / at {least} records"), slower, Unit::Times).at_most(1.5),
            Row::new(format!("open at {all} records after a kill"), opened.seconds, Unit::Seconds).at_most(2.0),
            Row::new(format!("resident at {all} records"), opened.resident, Unit::Megabytes).at_most(150.0),
            Row::new("… of it when opened", opened.resident_at_first, Unit::Megabytes),
        ]);
        std::fs::remove_dir_all(many)?;
    }
    Ok(rows)
}
