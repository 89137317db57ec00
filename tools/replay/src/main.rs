//! `cargo replay`: recorded agent runs against the guard.

use std::fs;
use std::io::{self, ErrorKind, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, ensure};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use toolonce_replay::corpus::Corpus;
use toolonce_replay::faults::{self, Fault};
use toolonce_replay::policies::{BUILT_IN, Policies};
use toolonce_replay::stage::StoreKind;
use toolonce_replay::tally::{Summary, Tally};
use toolonce_replay::{Settings, replay};

/// The part of the corpus that comes with the source.
const COMMITTED: &str = include_str!("../../../tests/corpus/tau_calls.jsonl");

/// Drives the tool calls of recorded agent runs through the guard, with faults, and counts what happened twice, was
/// lost or got another call's outcome. Exit code 1 if any of these is not 0, 2 for bad input.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo replay", version)]
struct Arguments {
    /// Corpus files, one JSON object a line [default: the part that comes with the source]
    files: Vec<PathBuf>,
    /// none, all, or a list: reply-lost, gives-up, redelivered, reworded, sibling, crash-before, crash-after,
    /// unknown-error
    #[arg(long, default_value = "all")]
    faults: String,
    /// Decides where the faults strike
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Replays with this many seeds, from --seed on, and adds the counts up
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Drives only the first trajectories
    #[arg(long)]
    limit: Option<usize>,
    /// The store of the guard
    #[arg(long, value_enum, default_value_t = StoreKind::Memory)]
    store: StoreKind,
    /// A table of policies [default: the one that comes with the source]
    #[arg(long, value_name = "FILE")]
    policies: Option<PathBuf>,
    /// Prints one JSON object
    #[arg(long)]
    json: bool,
}

/// What is to be done, read and checked.
struct Job {
    corpus: Corpus,
    policies: Policies,
    faults: Vec<Fault>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = Job::read(&arguments).and_then(|job| job.run(&arguments));
    let failed = |code: u8, error: &dyn std::fmt::Display| {
        // Whoever closed it doesn't want to know.
        let _ = writeln!(io::stderr(), "error: {error:#}");
        ExitCode::from(code)
    };
    match result {
        Ok(tally) => match print(&arguments, &tally) {
            // That nobody reads any more is no error.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                failed(1, &format_args!("the result can't be printed: {error}"))
            }
            _ => ExitCode::from(u8::from(!tally.is_clean())),
        },
        Err(error) => failed(2, &error),
    }
}

impl Job {
    fn read(arguments: &Arguments) -> anyhow::Result<Self> {
        ensure!(arguments.limit != Some(0), "--limit 0 leaves nothing to replay: it must be at least 1");
        let faults = faults::parse(&arguments.faults).map_err(|why| anyhow!(why))?;
        let text = match &arguments.policies {
            Some(file) => text_of(file)?,
            None => BUILT_IN.to_owned(),
        };
        let file = arguments.policies.as_ref().map_or_else(String::new, |file| format!("{}: ", file.display()));
        let policies = Policies::read(&text).map_err(|why| anyhow!("{file}this is no table of policies: {why}"))?;
        let mut corpus = Corpus::default();
        for file in &arguments.files {
            corpus.add(&file.display().to_string(), &text_of(file)?)?;
        }
        if arguments.files.is_empty() {
            corpus.add("tests/corpus/tau_calls.jsonl", COMMITTED)?;
        }
        Ok(Self { corpus, policies, faults })
    }

    fn run(self, arguments: &Arguments) -> anyhow::Result<Tally> {
        let limit = arguments.limit.unwrap_or(usize::MAX);
        let steps = self.corpus.trajectories.len().min(limit) as u64 * arguments.seeds;
        let bar = bar(steps);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let mut total = Tally::default();
        for n in 0..arguments.seeds {
            let seed = arguments.seed.wrapping_add(n);
            let settings = Settings { faults: self.faults.clone(), seed, limit, store: arguments.store };
            let replayed = replay(&self.corpus, &self.policies, &settings, || bar.inc(1));
            total.add(runtime.block_on(replayed).with_context(|| format!("seed {seed}"))?);
        }
        bar.finish_and_clear();
        Ok(total)
    }
}

fn text_of(file: &PathBuf) -> anyhow::Result<String> {
    let bytes = fs::read(file).with_context(|| format!("{} can't be read", file.display()))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        anyhow!("{}, line {}: this is not UTF-8 text", file.display(), line + 1)
    })?;
    let marked = text.starts_with('\u{feff}');
    ensure!(!marked, "{}: it begins with a byte order mark: save it as UTF-8 without one", file.display());
    Ok(text)
}

/// Only people see it: it draws on a terminal alone.
fn bar(steps: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40.green/dim} {pos}/{len} runs  {eta} left");
    ProgressBar::new(steps).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Prints without a panic if standard output is closed or full.
fn print(arguments: &Arguments, tally: &Tally) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string(tally)?)?;
        return out.flush();
    }
    let seeds = match arguments.seeds {
        1 => format!("seed {}", arguments.seed),
        n => format!("{n} seeds from {}", arguments.seed),
    };
    let how = format!("{} store, faults: {}, {seeds}", arguments.store.name(), arguments.faults);
    writeln!(out, "{}", Summary { tally, how: &how })?;
    out.flush()
}
