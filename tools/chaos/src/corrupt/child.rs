//! The process that opens damaged stores. Should it die or hang, only the case at hand is lost.

use std::io::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use toolonce::{Reply, ReplyKind, Seen};

use super::damage::{Copies, damaged};
use super::{NOW, OLDER};
use crate::files::{contents_of, write_all};
use crate::ledger::{Journal, Ledger, Trail};
use crate::points::Points;
use crate::summary::Kind;
use crate::workload::{Plan, Sizes, Workload};

/// Opening may take 30 s on damaged files. A thread of such an opening may run on for ever, so a new process goes on.
const SLOW: Duration = Duration::from_secs(20);

/// What a child process is told to do.
#[derive(Debug, clap::Args)]
pub struct ChildArguments {
    /// Holds the two copies and the ledger.
    pub(super) copies: PathBuf,
    #[arg(long)]
    pub(super) seed: u64,
    #[arg(long, value_parser = |name: &str| Sizes::of_name(name).ok_or("no such sizes"))]
    pub(super) sizes: Sizes,
    #[arg(long)]
    pub(super) sealed: bool,
    /// The first case.
    #[arg(long)]
    pub(super) first: u64,
    /// The first case that isn't its own any more.
    #[arg(long)]
    pub(super) end: u64,
    /// Opens the store of this directory as it is, as the only case.
    #[arg(long)]
    pub(super) as_it_is: Option<PathBuf>,
    /// Nothing was done to it, so that everything must be there.
    #[arg(long, requires = "as_it_is")]
    pub(super) untouched: bool,
}

/// Damages the copies in one way after the other and looks what happens. Prints lines: `case`, its number, kind and
/// place; `opened` or `refused`; `acknowledged`, and how many outcomes are looked for; and one with `lost`, `twice` or
/// `unexplained` for each finding.
///
/// # Errors
/// If the copies can't be read or a damaged one can't be written.
pub fn child(arguments: &ChildArguments) -> anyhow::Result<()> {
    // Panics inside of sled are expected; what matters is whether they get out.
    std::panic::set_hook(Box::new(|_| {}));
    let journal = Journal::read(&arguments.copies)?;
    let plan = Plan { seed: arguments.seed, sizes: arguments.sizes, sealed: arguments.sealed };
    if let Some(directory) = &arguments.as_it_is {
        match arguments.untouched {
            true => say(format_args!("control untouched"))?,
            false => say(format_args!("case 0 read-only-directory everywhere"))?,
        }
        look(directory, &arguments.copies, plan, &journal, arguments.untouched)?;
        return Ok(());
    }
    let copies =
        Copies { now: contents_of(&arguments.copies.join(NOW))?, older: contents_of(&arguments.copies.join(OLDER))? };
    for case in arguments.first..arguments.end {
        let mut random = fastrand::Rng::with_seed(arguments.seed ^ (case + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (files, damage, place) = damaged(&copies, &mut random);
        say(format_args!("case {case} {damage} {place}"))?;
        let directory = crate::scratch()?;
        write_all(directory.path(), &files)?;
        if look(directory.path(), directory.path(), plan, &journal, false)? > SLOW {
            break;
        }
    }
    Ok(())
}

fn say(line: std::fmt::Arguments<'_>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

fn finding(kind: Kind, text: &str) -> io::Result<()> {
    say(format_args!("{kind} {}", text.escape_debug()))
}

/// Opens the store in `directory` and makes its calls again. Effects go to the ledger in `effects`.
fn look(
    directory: &Path,
    effects: &Path,
    plan: Plan,
    journal: &Journal,
    is_untouched: bool,
) -> anyhow::Result<Duration> {
    let start = Instant::now();
    let effects_before = Journal::read(effects)?;
    let runtime = crate::runtime()?;
    let work = || runtime.block_on(calls(directory, effects, plan, journal, is_untouched));
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => done?,
        Err(_) => finding(Kind::Unexplained, "a panic came out of the library")?,
    }
    // An unreadable store may leave a read behind that never ends.
    runtime.shutdown_background();
    for (call, trail) in Journal::read(effects)?.calls {
        let before = effects_before.calls.get(&call).map_or(0, Trail::count);
        let had = journal.calls.get(&call).is_some_and(|trail| trail.count() > 0);
        if had && trail.count() > before {
            finding(Kind::Twice, &format!("call {call} was executed again"))?;
        }
    }
    Ok(start.elapsed())
}

/// Whether it says that the call was done and that its result can't be read: never a short one, nor another's.
fn says_lost(reply: &Reply) -> bool {
    let kept = reply.outcome().is_none_or(|outcome| outcome.is_kept());
    !kept && reply.message().contains("damaged or lost")
}

async fn calls(
    directory: &Path,
    effects: &Path,
    plan: Plan,
    journal: &Journal,
    is_untouched: bool,
) -> anyhow::Result<()> {
    let ledger = Arc::new(Ledger::open(effects)?);
    let workload = match Workload::open(directory, plan, ledger, Points::none(), Seen::Nothing).await {
        Ok(workload) => workload,
        Err(error) => {
            say(format_args!("refused {}", format!("{error:#}").escape_debug()))?;
            return Ok(());
        }
    };
    say(format_args!("opened"))?;
    let acknowledged = journal.calls.values().filter(|trail| trail.acknowledged).count();
    say(format_args!("acknowledged {acknowledged}"))?;
    for (&call, trail) in &journal.calls {
        let reply = workload.call(call).await;
        let is_whole = plan.is_result(call, &reply);
        let told = format!("call {call} was answered {}: {:.200}", reply.kind(), reply.message());
        match reply.kind() {
            kind if is_untouched && trail.acknowledged => {
                if kind != ReplyKind::Replayed || !is_whole {
                    finding(Kind::Lost, &told)?;
                }
            }
            ReplyKind::Replayed if trail.acknowledged && (is_whole || says_lost(&reply)) => {}
            ReplyKind::Replayed => finding(Kind::Lost, &told)?,
            // The store said that it can't be read, or the call isn't known to have happened.
            ReplyKind::Refused | ReplyKind::InDoubt => {}
            // Told by its effect.
            ReplyKind::Executed | ReplyKind::Unrecorded => {}
            _ => finding(Kind::Unexplained, &told)?,
        }
    }
    // A damaged store need not close cleanly; that it says so is enough.
    drop(workload.close().await);
    Ok(())
}
