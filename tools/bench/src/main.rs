//! `cargo measure`: what the guard costs, in units of what the disk can do.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use clap::{Parser, Subcommand, ValueEnum as _};
use toolonce_bench::figures::{Bench, Figure, Length, growth};
use toolonce_bench::machine::Machine;
use toolonce_bench::{chart, table};

/// Measures what the guard costs and compares it with goals. Every durable figure is a ratio to a plain append +
/// fdatasync on a growing file of the same directory, done by turns with it: a disk that is slow now and fast a minute
/// later changes both. Each is the median of 5 rounds.
///
/// The ratio is 1 where a goal is just met, 2 where it is beaten twofold. Exit code 0 whether goals are met or not, 1 if
/// something could not be measured.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo measure", version, args_conflicts_with_subcommands = true)]
struct Arguments {
    /// In less than a minute, and less exact
    #[arg(long, conflicts_with = "long")]
    quick: bool,
    /// With more of everything
    #[arg(long)]
    long: bool,
    /// With too little for a figure: for the tests
    #[arg(long, hide = true, conflicts_with_all = ["quick", "long"])]
    tiny: bool,
    /// Only these figures
    #[arg(long, value_name = "FIGURE", num_args = 1.., value_delimiter = ',')]
    only: Vec<Figure>,
    /// Where to measure: on the disk that is meant [default: beside this program]
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    /// Also writes everything there, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draws the ratios there
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Prints the table in Markdown
    #[arg(long)]
    markdown: bool,
    /// Decides what is random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Compares with other crates for the same purpose instead, on the same work in the same run. The first time, their
    /// build takes some minutes and needs a C compiler
    #[arg(long, conflicts_with_all = ["only", "svg"])]
    rivals: bool,
    #[command(subcommand)]
    child: Option<Child>,
}

/// Processes of their own, which this program starts from itself.
#[derive(Debug, Subcommand)]
enum Child {
    /// Works on a store until it is killed.
    #[command(hide = true)]
    Hold { directory: PathBuf },
    /// Opens a store and says what that took.
    #[command(hide = true)]
    Open { directory: PathBuf, records: u64, seed: u64 },
}

impl Arguments {
    fn length(&self) -> Length {
        match (self.tiny, self.quick, self.long) {
            (true, ..) => Length::Tiny,
            (_, true, _) => Length::Quick,
            (.., true) => Length::Long,
            _ => Length::Usual,
        }
    }

    fn figures(&self) -> Vec<Figure> {
        let is_meant = |figure: &Figure| match self.only.is_empty() {
            true => *figure != Figure::Build || self.long,
            false => self.only.contains(figure),
        };
        Figure::value_variants().iter().copied().filter(is_meant).collect()
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.child {
        None if arguments.rivals => rivals(&arguments),
        None => run(&arguments),
        Some(Child::Hold { directory }) => bench(Length::Tiny, 1).and_then(|bench| growth::hold(&bench, directory)),
        Some(Child::Open { directory, records, seed }) => {
            bench(Length::Tiny, *seed).and_then(|bench| growth::open(&bench, directory, *records))
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Whoever closed it doesn't want to know.
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Where the program that compares is: a workspace of its own.
const RIVALS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../rivals/Cargo.toml");

/// Builds the program that compares and lets it measure.
fn rivals(arguments: &Arguments) -> anyhow::Result<()> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target");
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| root.into());
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["run", "--quiet", "--release", "--locked", "--manifest-path", RIVALS, "--target-dir"]);
    cargo.arg(PathBuf::from(target).join("rivals")).arg("--");
    let flags = [("--quick", arguments.quick), ("--long", arguments.long), ("--markdown", arguments.markdown)];
    cargo.args(flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag));
    for (option, path) in [("--json", &arguments.json), ("--directory", &arguments.directory)] {
        cargo.args(path.iter().flat_map(|path| [OsStr::new(option), path.as_os_str()]));
    }
    let done = cargo.status().context("cargo can't be started")?;
    ensure!(done.success(), "the comparison failed");
    Ok(())
}

fn bench(length: Length, seed: u64) -> anyhow::Result<Bench> {
    Bench::new(length, seed).context("no runtime could be made")
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let place = match &arguments.directory {
        Some(directory) => directory.clone(),
        None => std::env::current_exe()?.parent().map(PathBuf::from).unwrap_or_default(),
    };
    let begun = Instant::now();
    let scratch = tempfile::Builder::new().prefix("measure-").tempdir_in(place)?;
    let machine = Machine::look(scratch.path())?;
    writeln!(io::stderr(), "{machine}")?;
    let bench = bench(arguments.length(), arguments.seed)?;
    let mut rows = Vec::new();
    for figure in arguments.figures() {
        writeln!(io::stderr(), "{:4.0} s  {figure} …", begun.elapsed().as_secs_f64())?;
        let directory = scratch.path().join(figure.to_string());
        std::fs::create_dir(&directory)?;
        rows.extend(bench.measure(figure, &directory).with_context(|| format!("could not measure {figure}"))?);
    }
    let text = if arguments.markdown { table::markdown(&rows) } else { table::plain(&rows) };
    write!(io::stdout(), "{text}")?;
    if let Some(path) = &arguments.json {
        std::fs::write(path, format!("{:#}\n", table::json(&machine, &rows)))?;
    }
    if let Some(path) = &arguments.svg {
        std::fs::write(path, chart::svg(&rows))?;
    }
    Ok(())
}
