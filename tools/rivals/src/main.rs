//! The same work by several guards in one run: first calls by turns with a plain append + fdatasync, crowds, repeats.

#![forbid(unsafe_code)]

mod systems;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Parser;
use tokio::task::JoinSet;
use toolonce_bench::disk::Append;
use toolonce_bench::figures::{Bench, Length, ROUNDS};
use toolonce_bench::machine::Machine;
use toolonce_bench::stats::{Times, median};
use toolonce_bench::table::{self, Row, Unit};

use crate::systems::{Ran, System};

/// Measures ours and other guards on the same work: 80 bytes of arguments as text, 200 bytes of result, a tool that does
/// nothing and may not run twice. First calls of one caller by turns with a plain append + fdatasync and with each other;
/// first calls of 64 callers in short slices by turns; repeats. The median of 5 rounds.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo measure --rivals")]
struct Arguments {
    /// In less than a minute, and less exact
    #[arg(long, conflicts_with = "long")]
    quick: bool,
    /// With more of everything
    #[arg(long)]
    long: bool,
    /// Where to measure [default: beside this program]
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    /// Also writes everything there, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Prints the table in Markdown
    #[arg(long)]
    markdown: bool,
    /// Only so many first calls of the system with this name, for looking at what it asks of the kernel
    #[arg(long, hide = true, num_args = 2, value_names = ["SYSTEM", "CALLS"])]
    trace: Vec<String>,
}

/// Callers of a crowd.
const CALLERS: u64 = 64;

/// Calls of each in a slice.
const EACH: u64 = 2;

/// Appends before each slice.
const APPENDS: u64 = 10;

/// How long whoever has something left to write has for that, before each append.
const REST: Duration = Duration::from_micros(500);

/// Lets others work; a processor that slept would make the append after it slower.
async fn rest(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        tokio::task::yield_now().await;
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Whoever closed it doesn't want to know.
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let place = match &arguments.directory {
        Some(directory) => directory.clone(),
        None => std::env::current_exe()?.parent().map(PathBuf::from).unwrap_or_default(),
    };
    let scratch = tempfile::Builder::new().prefix("rivals-").tempdir_in(place)?;
    let length = match (arguments.quick, arguments.long) {
        (true, _) => Length::Quick,
        (_, true) => Length::Long,
        _ => Length::Usual,
    };
    let runtime = Bench::new(length, 1)?.runtime;
    if let [name, calls] = &arguments.trace[..] {
        return runtime.block_on(trace(scratch.path(), name, calls.parse()?));
    }
    let machine = Machine::look(scratch.path())?;
    writeln!(io::stderr(), "{machine}")?;
    let directory = scratch.path().to_owned();
    let often = match length {
        Length::Tiny | Length::Quick => 1,
        Length::Usual => 5,
        Length::Long => 20,
    };
    let rows = runtime.block_on(async { tokio::spawn(measured(directory, often)).await? })?;
    let text = if arguments.markdown { table::markdown(&rows) } else { table::plain(&rows) };
    write!(io::stdout(), "{text}")?;
    for system in systems::NAMES {
        writeln!(io::stdout(), "\n{}", systems::what_is_durable(system))?;
    }
    if let Some(path) = &arguments.json {
        std::fs::write(path, format!("{:#}\n", table::json(&machine, &rows)))?;
    }
    Ok(())
}

async fn trace(directory: &Path, name: &str, calls: u64) -> anyhow::Result<()> {
    let system = System::open(name, directory).await?;
    writeln!(io::stderr(), "opened")?;
    for n in 0..calls {
        first(&system, n).await?;
    }
    system.close().await
}

async fn first(system: &System, n: u64) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let ran = system.call(n).await?;
    let took = begun.elapsed();
    ensure!(ran == Ran::Executed, "{} didn't execute a new call", system.name());
    Ok(took)
}

async fn measured(directory: PathBuf, often: u64) -> anyhow::Result<Vec<Row>> {
    let mut systems = Vec::new();
    for name in systems::NAMES {
        systems.push(Arc::new(System::open(name, &directory).await?));
    }
    let mut append = Append::new(&directory)?;
    let mut rows = Vec::new();
    let mut next = 0;

    let mut ratios = vec![Vec::new(); systems.len()];
    for _ in 0..ROUNDS {
        let mut times: Vec<_> = systems.iter().map(|_| (Times::default(), Times::default())).collect();
        for _ in 0..40 * often {
            for (system, (appends, calls)) in systems.iter().zip(&mut times) {
                rest(REST).await;
                appends.add(append.once()?);
                calls.add(first(system, next).await?);
            }
            next += 1;
        }
        times.iter().zip(&mut ratios).for_each(|((appends, calls), ratios)| ratios.push(calls.mean() / appends.mean()));
    }
    for (system, ratios) in systems.iter().zip(ratios) {
        rows.push(Row::new(format!("{}: first call / append + fdatasync", system.name()), median(ratios), Unit::Times));
    }

    let mut per_sync = vec![Vec::new(); systems.len()];
    for _ in 0..ROUNDS {
        let mut appends = Times::default();
        let mut taken = vec![Duration::ZERO; systems.len()];
        for _ in 0..2 * often {
            for (system, taken) in systems.iter().zip(&mut taken) {
                rest(10 * REST).await;
                for _ in 0..APPENDS {
                    appends.add(append.once()?);
                }
                *taken += crowd(system, next).await?;
                next += CALLERS * EACH;
            }
        }
        let calls = (2 * often * CALLERS * EACH) as f64;
        let each = |taken: Duration| calls * appends.mean() / (taken.as_secs_f64() * 1e6);
        taken.into_iter().zip(&mut per_sync).for_each(|(taken, found)| found.push(each(taken)));
    }
    for (system, found) in systems.iter().zip(per_sync) {
        let name = format!("{}: first calls, 64 callers, per append + fdatasync", system.name());
        rows.push(Row::new(name, median(found), Unit::PerSync));
    }

    let mut middles = vec![Vec::new(); systems.len()];
    for _ in 0..ROUNDS {
        for (system, middles) in systems.iter().zip(&mut middles) {
            let mut times = Times::default();
            // Calls of the first round, which are known by now.
            for n in (0..40 * often).cycle().take(500) {
                let begun = Instant::now();
                let ran = system.call(n).await?;
                times.add(begun.elapsed());
                ensure!(ran == Ran::Replayed, "{} executed a call twice", system.name());
            }
            middles.push(times.quantile(0.5));
        }
    }
    for (system, middles) in systems.iter().zip(middles) {
        rows.push(Row::new(format!("{}: repeat of a call, p50", system.name()), median(middles), Unit::Micros));
    }
    for system in systems {
        system.close().await?;
    }
    Ok(rows)
}

/// How long 64 callers take for two new calls each, whose numbers begin with `first`.
async fn crowd(system: &Arc<System>, from: u64) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let mut working = JoinSet::new();
    for caller in 0..CALLERS {
        let system = Arc::clone(system);
        working.spawn(async move {
            for n in 0..EACH {
                first(&system, from + caller * EACH + n).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = working.join_next().await {
        done??;
    }
    Ok(begun.elapsed())
}
