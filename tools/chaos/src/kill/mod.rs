//! `kill -9` at every named point of a call, while the store opens, while a large result is recorded, and at random;
//! and, one floor down, while a store churns through commits.
//!
//! A child process works on a store until it is dead; this process then opens the store, makes every call of the child
//! once more, and has [`judge`](crate::judge) compare the answers with the ledger. A store lives through
//! 20 kills, and in the end every call that was ever acknowledged is looked for again.

mod chores;
mod commits;

use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

pub use self::commits::child as commits_child;
use crate::judge::judge;
use crate::ledger::Journal;
use crate::points::Point;
use crate::summary::Summary;
use crate::workload::{Orders, PER_TURN, Plan, Sizes};
use crate::{Group, Settings};

/// Kills that one store lives through.
const PER_STORE: u64 = 20;
/// A child that isn't dead after this long hangs.
const WITHIN: Duration = Duration::from_secs(60);

/// What kills a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Death {
    /// Itself, at the n-th time it gets to a point.
    At(Point, u64),
    /// This process, so long after the store began to open.
    Opening(Duration),
    /// This process, so long after a large result was handed over to be recorded.
    Recording(Duration),
    /// This process, so long after the store was open.
    Any(Duration),
}

impl Death {
    fn random(random: &mut fastrand::Rng) -> Self {
        match random.u8(..20) {
            0..12 => Self::At(Point::ALL[random.usize(..Point::ALL.len())], random.u64(1..8)),
            12..14 => Self::Opening(Duration::from_micros(random.u64(..12_000))),
            14..16 => Self::Recording(Duration::from_micros(random.u64(..15_000))),
            _ => Self::Any(Duration::from_micros(random.u64(..20_000))),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::At(point, _) => point.name(),
            Self::Opening(_) => "during-open",
            Self::Recording(_) => "large-result",
            Self::Any(_) => "random",
        }
    }

    /// The orders of a child that has to die so.
    fn orders(self, plan: Plan, first: u64) -> Orders {
        let orders = Orders { plan, first, count: 400, at_once: false, point: None };
        match self {
            Self::At(point, nth) => Orders { point: Some((point, nth)), ..orders },
            Self::Any(_) => Orders { at_once: true, ..orders },
            Self::Opening(_) => orders,
            // The first call is the one with the large result.
            Self::Recording(_) => Orders { first: large_from(plan, first), ..orders },
        }
    }

    /// Whether the process was where it should die, from what it noted.
    fn has_hit(self, orders: &Orders, journal: &Journal) -> bool {
        let last = journal.notes.last().map(String::as_str);
        let first = || journal.calls.get(&orders.first);
        match self {
            Self::At(point, _) => last == Some(point.name()),
            Self::Opening(_) => last == Some("opening"),
            Self::Recording(_) => first().is_some_and(|trail| trail.returned && !trail.acknowledged),
            Self::Any(_) => last == Some("opened") && first().is_some(),
        }
    }
}

/// The next call from `first` on whose result is cut into many pieces.
fn large_from(plan: Plan, first: u64) -> u64 {
    let large = if plan.sizes == Sizes::Large { 1_000_000 } else { 90_000 };
    (first..).find(|call| plan.size(*call) > large).unwrap_or(first)
}

/// Kills as often as the settings say.
///
/// # Errors
/// If something else than the store fails: a child that can't be started, or never gets where it should die.
pub fn run(settings: &Settings) -> anyhow::Result<Summary> {
    let size = (settings.cases(300, 1_500, 10_000), PER_STORE);
    settings.each_group(("kills", "kill"), size, |group, summary| {
        let directory = crate::scratch()?;
        let sizes = if group.n.is_multiple_of(4) { Sizes::Large } else { Sizes::Moderate };
        let plan = Plan { seed: group.seed(), sizes, sealed: group.n % 8 >= 4 };
        match group.n % 4 {
            1 => chores::kills(group, directory.path(), Plan { sizes: Sizes::Small, ..plan }, summary)?,
            3 => commits::kills(group, directory.path(), summary)?,
            _ => calls(group, directory.path(), plan, summary)?,
        }
        if !summary.failures.is_empty() {
            summary.details.push(format!("{group}: files kept in {}", directory.keep().display()));
        }
        Ok(())
    })
}

/// The kills of one store under a guard.
fn calls(group: &Group<'_>, directory: &Path, plan: Plan, summary: &mut Summary) -> anyhow::Result<()> {
    let runtime = crate::runtime()?;
    let mut random = fastrand::Rng::with_seed(plan.seed);
    for kill in 0..group.cases {
        let death = Death::random(&mut random);
        let killed = kill_once(group.settings, directory, plan, death);
        let first = killed.with_context(|| format!("kill {kill}, {death:?}"))?;
        summary.hit(death.name());
        let at = if let Death::At(point, _) = death { Some(point) } else { None };
        let sample = random.u64(..10);
        let is_last = kill + 1 == group.cases;
        // All calls of this child, and some of those before it.
        let wanted = |call: u64, _: &_| is_last || call >= first || call % 10 == sample;
        let found = runtime.block_on(judge(directory, plan, at, wanted))?;
        summary.add(found, format_args!("kill {kill}, {death:?}: {group}"));
    }
    Ok(())
}

/// Starts children until one dies where it should, and returns the number of the first call that wasn't judged yet.
/// Only where this process has to hit a short moment is there more than one.
fn kill_once(settings: &Settings, directory: &Path, plan: Plan, death: Death) -> anyhow::Result<u64> {
    let unjudged = next_call(directory)?;
    let mut death = death;
    for _ in 0..50 {
        let orders = death.orders(plan, next_call(directory)?);
        let before = Journal::read(directory)?.notes.len();
        let mut child = spawn(settings, crate::workload::arguments(directory, &orders))?;
        if !matches!(death, Death::At(..)) {
            wait_for(&mut child, directory, death, &orders, before)?;
            child.kill()?;
        }
        expect_killed(child, |_| false)?;
        let journal = Journal::read(directory)?;
        if journal.notes.len() > before && death.has_hit(&orders, &journal) {
            return Ok(unjudged);
        }
        // Too late: a little earlier the next time.
        death = match death {
            Death::Opening(delay) => Death::Opening(delay / 2),
            Death::Recording(delay) => Death::Recording(delay / 2),
            other => other,
        };
    }
    anyhow::bail!("no child could be killed there");
}

/// A number that no call has, at the beginning of a message.
fn next_call(directory: &Path) -> anyhow::Result<u64> {
    let last = Journal::read(directory)?.calls.into_keys().next_back();
    Ok(last.map_or(0, |last| (last / PER_TURN + 1) * PER_TURN))
}

fn spawn(settings: &Settings, arguments: Vec<OsString>) -> anyhow::Result<Child> {
    let mut command = Command::new(&settings.program);
    command.args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().context("no child can be started")
}

/// Waits until the child is about where it should die.
fn wait_for(child: &mut Child, directory: &Path, death: Death, orders: &Orders, before: usize) -> anyhow::Result<()> {
    let is_there = |journal: &Journal| match death {
        Death::At(..) => true,
        Death::Opening(_) => journal.notes.len() > before,
        Death::Recording(_) => journal.calls.get(&orders.first).is_some_and(|trail| trail.returned),
        Death::Any(_) => journal.notes.len() > before + 1 && journal.calls.contains_key(&orders.first),
    };
    let start = Instant::now();
    while !is_there(&Journal::read(directory)?) {
        ensure!(start.elapsed() < WITHIN, "the child hangs");
        if child.try_wait()?.is_some() {
            return Ok(()); // Said by who looks at its status.
        }
    }
    let (Death::Opening(delay) | Death::Recording(delay) | Death::Any(delay)) = death else { return Ok(()) };
    spin(delay);
    Ok(())
}

/// Waits, more exactly than sleeping does.
fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Waits for the child's end: whether it was killed. Else it must have ended as is `allowed`.
fn expect_killed(mut child: Child, allowed: impl Fn(ExitStatus) -> bool) -> anyhow::Result<bool> {
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > WITHIN {
            child.kill()?;
            anyhow::bail!("the child never came to its end");
        }
        std::thread::sleep(Duration::from_micros(200));
    };
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut said)?;
    }
    let was_killed = status.signal() == Some(9);
    ensure!(was_killed || allowed(status), "the child wasn't killed but ended with {status}: {said}");
    Ok(was_killed)
}
