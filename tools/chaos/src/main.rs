//! `cargo chaos`: kills, power cuts and damaged files against the guard.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use toolonce_chaos::points::Point;
use toolonce_chaos::summary::Summary;
use toolonce_chaos::workload::{self, Orders, Plan, Sizes};
use toolonce_chaos::{Length, Settings, chores, corrupt, kill, owners, power, race, store, time};

/// Hostile conditions for the guard and the sled store. Effects are counted in a ledger of its own; each mode prints one
/// line of figures. Exit code 1 if anything was lost, happened twice or can't be explained; 2 if the test itself failed.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo chaos", version)]
struct Arguments {
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Debug, Subcommand)]
enum Mode {
    /// kill -9 at every named point of a call and at random
    ///
    /// A child process opens a store, goes on with a run and makes calls of a `Write` and a `Keyed` tool with results
    /// from 16 bytes to 4 MB. It is killed: before the claim is written, between the claim and the body, in the body
    /// before and after the effect, before the record, between record and reply (it kills itself there); while it opens
    /// the store, while a large result is recorded in pieces, and at random with four calls under way (killed from
    /// outside). Every fourth store has no guard and is killed while six tasks commit and delete, also while sled takes
    /// in what the journal in front of it has. In every fourth the child is killed before or after a commit of, or
    /// during, a recorded step, a person's answer (it happened, it did not, approved, denied), a fork of the run, the
    /// removal of an old run. Half of the stores are sealed. Each kill is known to have hit what it was for.
    ///
    /// After each: the store is opened, the run resumed, the calls made again, doubts settled as the ledger says.
    /// Counted: lost, a call whose outcome was acknowledged in a synced log and doesn't come back byte by byte; twice, a
    /// write with two effects in the ledger or a keyed one under two downstream keys; unexplained, an answer that the
    /// marks of the process rule out, such as a doubt about a call whose claim was never written, or none about one
    /// whose body was entered. A recorded step comes back without being computed, an answer that was taken holds, a fork
    /// is whole or can be made, a removed run is whole or gone and never begins anew.
    ///
    /// A kill leaves the page cache alone: for what a power cut takes see `power`.
    Kill(Common),
    /// Power cuts: only what a completed sync covered survives
    ///
    /// A workload runs under a small preloaded library (compiled with `cc`) that writes down every file operation in the
    /// store's directory with its contents, in order, and when each sync began and ended. From such a trace any number of
    /// cuts is simulated: what a sync that ended before the cut covered is there; of all later writes a random part is,
    /// in any order, torn at sectors of 512 bytes; creations, renames and removals survive in their order up to a random
    /// one, surely only up to the last sync of their directory. Then as after a kill. Every other workload does the chores
    /// that `kill` names, and every other two are on a sealed store.
    ///
    /// Modelled after POSIX, so harsher than ext4, where syncing a file saves its name too. Not modelled: disks that
    /// lie about a sync, sectors that are torn within, bits that flip (see `corrupt`), writes through memory maps.
    Power(Power),
    /// Damaged, lost, exchanged, older and read-only files
    ///
    /// A store with settled calls and calls in doubt, every third one sealed, is closed, or, every other one, left as
    /// a kill leaves it. Then, again and again from the same files, one thing, at times several, is done to one file or
    /// to the directory: bits flipped, sectors zeroed, the end cut off, a file deleted or exchanged for another, the
    /// directory deleted, an older copy put in its place, a newer format version written, all rights to write taken
    /// away. The store is opened and every call made again.
    ///
    /// Allowed: a refusal to open, and for each call its own outcome, an error, that it is in doubt, or that it was done
    /// and its result can't be read. Counted: twice,
    /// an execution of a write that the ledger has; lost, another outcome or none where nothing was damaged;
    /// unexplained, a panic, a process that dies or hangs.
    Corrupt(Common),
    /// Two owners of one call: stopped past its lease, overtaken, continued
    ///
    /// Two guards, each with a clock of its own, share a store in memory. The first is stopped in a call: between claim and
    /// body, in the body before its effect, or after it; for little more than its lease, or past the attempt's deadline and
    /// the settle delay. The second goes on with the run: one caller asks at once, one comes late. Then the first is
    /// continued. The tool is held, sent again under its key, or asked whether it happened, and knows or can't tell; the
    /// continued execution ends well or doesn't know how it ended. Last, a real second process opens a directory that
    /// this one holds.
    ///
    /// Counted: twice, a second effect (a keyed one under another downstream key) or an incident; lost, no outcome in the
    /// end although the ledger has the effect; unexplained, an answer that says more than is known, none in time, a late
    /// success that doesn't settle the record.
    Owners(Common),
    /// A store that fails at every single operation
    ///
    /// Five kinds of tools are called by a script, on a store in memory that fails at its n-th operation, for each n: it
    /// can't be reached, is full, its sync fails and the commit is there or isn't, what it reads is damaged; once, or until
    /// it is healed. Then all calls are made again, once more in another process, doubts settled as the ledger says, and
    /// made a last time.
    ///
    /// Counted: twice, a second effect; lost, an outcome that was handed out and isn't the answer any more, or no outcome
    /// in the end; unexplained, an answer that denies an effect, a panic, none within two minutes of the guard's clock.
    Store(Common),
    /// Clocks that jump, machines that sleep, durations of nothing and of for ever
    ///
    /// Stories of calls, retries, crashes and people's answers in which the wall clock is set back and forward by hours,
    /// between calls and within them, while the monotonic clock doesn't notice. And every duration that can be set, at
    /// 0, 1 ns, 1 ms and the longest there is, on a store of one process and of several.
    ///
    /// Counted: twice, a second effect (a keyed one under another downstream key); lost, an outcome that changed;
    /// unexplained, a panic, a call or a shutdown that hangs.
    Time(Common),
    /// Equal calls that race on several threads
    ///
    /// 1,000 equal calls over 1, 2, 8 and 64 tasks; calls that come in while an outcome is published; executions that
    /// panic, callers that leave, and a runtime that is shut down in the middle of a call; tools that call the guard from
    /// inside: themselves, through another tool, another tool. Which thread is when where is up to the scheduler.
    ///
    /// Counted: twice, a second effect; lost, a caller without the one outcome; unexplained, any other answer.
    Race(Common),
    /// Opens a store and says how that went.
    #[command(hide = true)]
    OpenChild { directory: PathBuf },
    /// Works until it is killed.
    #[command(hide = true)]
    Child(Child),
    /// Does chores until it is killed.
    #[command(hide = true)]
    ChoresChild(ChoresChild),
    /// Commits until it is killed.
    #[command(hide = true)]
    CommitsChild { directory: PathBuf },
    /// Damages stores and looks what happens.
    #[command(hide = true)]
    CorruptChild(corrupt::ChildArguments),
}

#[derive(Debug, Args)]
struct Common {
    /// For each run of the tests
    #[arg(long, conflicts_with = "long")]
    short: bool,
    /// Before a release
    #[arg(long)]
    long: bool,
    /// Decides all that isn't up to the scheduler
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many injections [default: by length]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    cases: Option<u64>,
    /// Only the group of injections that a failure names
    #[arg(long, value_name = "GROUP")]
    only: Option<u64>,
}

#[derive(Debug, Args)]
struct Power {
    #[command(flatten)]
    common: Common,
    /// The control: takes the store's syncs of its log for not done. Must find losses
    #[arg(long)]
    without_log_syncs: bool,
}

#[derive(Debug, Args)]
struct Child {
    directory: PathBuf,
    #[arg(long)]
    seed: u64,
    #[arg(long, value_parser = |name: &str| Sizes::of_name(name).ok_or("no such sizes"))]
    sizes: Sizes,
    #[arg(long)]
    first: u64,
    #[arg(long)]
    count: u64,
    #[arg(long)]
    at_once: bool,
    #[arg(long)]
    sealed: bool,
    #[arg(long, value_parser = |name: &str| Point::of_name(name).ok_or("no such point"))]
    point: Option<Point>,
    #[arg(long, default_value_t = 1)]
    nth: u64,
}

#[derive(Debug, Args)]
struct ChoresChild {
    directory: PathBuf,
    #[arg(long)]
    seed: u64,
    #[arg(long, value_parser = |name: &str| Sizes::of_name(name).ok_or("no such sizes"))]
    sizes: Sizes,
    #[arg(long)]
    sealed: bool,
    #[arg(long)]
    first: u64,
    #[arg(long)]
    count: u64,
    #[arg(long, requires = "point")]
    chore: Option<u64>,
    #[arg(long, value_parser = |name: &str| Point::of_name(name).ok_or("no such point"))]
    point: Option<Point>,
    #[arg(long, default_value_t = 1)]
    nth: u64,
}

impl ChoresChild {
    fn orders(&self) -> chores::Orders {
        chores::Orders {
            plan: Plan { seed: self.seed, sizes: self.sizes, sealed: self.sealed },
            first: self.first,
            count: self.count,
            point: self.chore.zip(self.point).map(|(chore, point)| (chore, point, self.nth)),
        }
    }
}

impl Child {
    fn orders(&self) -> Orders {
        Orders {
            plan: Plan { seed: self.seed, sizes: self.sizes, sealed: self.sealed },
            first: self.first,
            count: self.count,
            at_once: self.at_once,
            point: self.point.map(|point| (point, self.nth)),
        }
    }
}

impl Common {
    fn settings(&self) -> io::Result<Settings> {
        let length = match (self.short, self.long) {
            (true, _) => Length::Short,
            (_, true) => Length::Long,
            _ => Length::Usual,
        };
        let program = std::env::current_exe()?;
        Ok(Settings { length, cases: self.cases, seed: self.seed, only: self.only, program })
    }
}

fn main() -> ExitCode {
    let done = match &Arguments::parse().mode {
        Mode::Kill(common) => common.settings().map_err(Into::into).and_then(|settings| kill::run(&settings)),
        Mode::Power(Power { common, without_log_syncs }) => {
            let model = if *without_log_syncs { power::Syncs::NotOfTheLog } else { power::Syncs::All };
            common.settings().map_err(Into::into).and_then(|settings| power::run(&settings, model))
        }
        Mode::Corrupt(common) => common.settings().map_err(Into::into).and_then(|settings| corrupt::run(&settings)),
        Mode::Owners(common) => common.settings().map_err(Into::into).and_then(|settings| owners::run(&settings)),
        Mode::Store(common) => common.settings().map_err(Into::into).and_then(|settings| store::run(&settings)),
        Mode::Time(common) => common.settings().map_err(Into::into).and_then(|settings| time::run(&settings)),
        Mode::Race(common) => common.settings().map_err(Into::into).and_then(|settings| race::run(&settings)),
        Mode::OpenChild { directory } => return ended(owners::child(directory)),
        Mode::Child(child) => return ended(workload::child(&child.directory, &child.orders())),
        Mode::ChoresChild(child) => return ended(chores::child(&child.directory, &child.orders())),
        Mode::CommitsChild { directory } => return ended(kill::commits_child(directory)),
        Mode::CorruptChild(arguments) => return ended(corrupt::child(arguments)),
    };
    match done {
        Ok(summary) => print(&summary),
        Err(error) => ended(Err(error)),
    }
}

/// How a child ends that isn't killed, or a mode that couldn't be carried out.
fn ended(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Whoever closed it doesn't want to know.
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// How many failures are told; the figures have them all.
const TOLD: usize = 20;

fn print(summary: &Summary) -> ExitCode {
    let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
    for failure in summary.failures.iter().take(TOLD) {
        let _ = writeln!(err, "{failure}");
    }
    if summary.failures.len() > TOLD {
        let _ = writeln!(err, "… and {} more", summary.failures.len() - TOLD);
    }
    for detail in &summary.details {
        let _ = writeln!(err, "{detail}");
    }
    match writeln!(out, "{summary}").and_then(|()| out.flush()) {
        Ok(()) => ExitCode::from(u8::from(!summary.is_clean())),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::from(u8::from(!summary.is_clean())),
        Err(error) => ended(Err(error.into())),
    }
}
