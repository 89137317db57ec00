//! `cargo scenario FILE…`: runs scenario files against the guard and says what is not as they expect.
#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use toolonce_scenario::engine::{Job, StoreKind, run_all};
use toolonce_scenario::file;

/// Runs scenario files. Prints a line for each thing that is not as expected, and how many cases passed. Exit code 1 if
/// a case failed, 2 for bad input.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo scenario", version)]
struct Options {
    /// The store; both by default.
    #[arg(long, value_name = "STORE")]
    store: Option<StoreName>,
    /// Scenario files, one JSON object a line.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum StoreName {
    Memory,
    Sled,
}

impl Options {
    fn stores(&self) -> Vec<StoreKind> {
        match self.store {
            Some(StoreName::Memory) => vec![StoreKind::Memory],
            Some(StoreName::Sled) => vec![StoreKind::Sled],
            None => StoreKind::ALL.to_vec(),
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let stores = options.stores();
    let (mut cases, mut problems) = (Vec::new(), String::new());
    for path in &options.files {
        match file::read(path) {
            Ok(read) => cases.extend(read),
            Err(found) => {
                found.iter().for_each(|problem| line(&mut problems, format!("{}: {problem}", path.display())))
            }
        }
    }
    // Whoever closed it doesn't want to know.
    let _ = io::stderr().write_all(problems.as_bytes());
    let jobs: Vec<Job<'_>> = cases.iter().flat_map(|case| Job::of(case, &stores)).collect();
    let (text, failed) = report(&jobs);
    match print(&text) {
        Ok(()) => ExitCode::from(if !problems.is_empty() { 2 } else { u8::from(failed > 0) }),
        Err(code) => code,
    }
}

/// Runs the jobs; what is to be said about them, and how many failed.
fn report(jobs: &[Job<'_>]) -> (String, usize) {
    let mut text = String::new();
    if jobs.is_empty() {
        return (text, 0);
    }
    let found = run_all(jobs);
    found.iter().flatten().for_each(|problem| line(&mut text, problem));
    let failed = found.iter().filter(|lines| !lines.is_empty()).count();
    line(&mut text, format!("{} passed, {failed} failed", jobs.len() - failed));
    (text, failed)
}

fn line(text: &mut String, line: impl std::fmt::Display) {
    // A string takes everything.
    let _ = writeln!(text, "{line}");
}

/// Prints without a panic if standard output is closed or full. That nobody reads any more is no error.
fn print(text: &str) -> Result<(), ExitCode> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let _ = writeln!(io::stderr(), "error: the result can't be printed: {error}");
            Err(ExitCode::FAILURE)
        }
        _ => Ok(()),
    }
}
