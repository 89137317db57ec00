//! Power cuts: what only the page cache knew is gone.
//!
//! A workload runs under a preloaded library that writes down every file operation (`shim`, `trace`). From one trace
//! any number of cuts is made: `disk` carries the operations out up to the cut and says what is left, and
//! [`judge`](crate::judge) looks whether that is enough. The ledger's files are the world's and lose nothing: what they
//! tell at the cut is what the workload had written by then.

mod disk;
mod shim;
mod trace;

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::ensure;

use self::disk::Disk;
use self::shim::Shim;
use self::trace::Op;
use crate::chores::{self, Chore};
use crate::files::contents_of;
use crate::judge::judge;
use crate::ledger::{ACKNOWLEDGED, FILES, Journal};
use crate::points::Point;
use crate::summary::Summary;
use crate::workload::{Orders, PER_TURN, Plan, Sizes, arguments};
use crate::{Group, Settings};

/// Cuts made from one trace.
const PER_TRACE: u64 = 25;
/// Calls of the process that isn't killed.
const CALLS: u64 = 6 * PER_TURN;
/// Chores of it.
const CHORES: u64 = 16;
/// Chores of the process that is killed, at most.
const BEFORE: u64 = 8;

/// What the processes do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Calls,
    Chores,
}

impl Work {
    fn name(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Chores => "chores",
        }
    }

    /// The command lines of a process that dies, and where, and of one that goes on after it.
    fn orders(self, plan: Plan, random: &mut fastrand::Rng, root: &Path) -> (Point, [Vec<OsString>; 2]) {
        match self {
            Self::Calls => {
                let point = Point::ALL[random.usize(..Point::ALL.len())];
                let deadly = Some((point, random.u64(3..8)));
                let first = Orders { plan, first: 0, count: 10, at_once: false, point: deadly };
                let second = Orders { plan, first: 3 * PER_TURN, count: CALLS, at_once: true, point: None };
                (point, [first, second].map(|orders| arguments(root, &orders)))
            }
            Self::Chores => {
                let point = if random.bool() { Point::BeforeCommit } else { Point::AfterCommit };
                // A plain call has no commit of its own kind.
                let dies = (random.u64(2..BEFORE)..).find(|n| Chore::of(plan, *n) != Chore::Call).unwrap_or(BEFORE);
                let first = chores::Orders { plan, first: 0, count: dies + 1, point: Some((dies, point, 1)) };
                let second = chores::Orders { plan, first: dies + 1, count: CHORES, point: None };
                (point, [first, second].map(|orders| orders.arguments(root)))
            }
        }
    }
}

/// Which syncs count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syncs {
    /// All that were done.
    All,
    /// All but those of the journal and of sled's log: as if the store's own `fdatasync` weren't there. The control, which
    /// must lose.
    NotOfTheLog,
}

impl Syncs {
    /// How the names of the files begin whose syncs don't count.
    fn ignored(self) -> &'static [&'static str] {
        match self {
            Self::All => &[],
            Self::NotOfTheLog => &["store/db", "store/toolonce.journal."],
        }
    }
}

/// Cuts the power as often as the settings say.
///
/// # Errors
/// If something else than the store fails: no C compiler, a workload that doesn't end, a trace with a hole.
pub fn run(settings: &Settings, syncs: Syncs) -> anyhow::Result<Summary> {
    let scratch = crate::scratch()?;
    let shim = Shim::compile(scratch.path())?;
    let size = (settings.cases(75, 250, 1_000), PER_TRACE);
    settings.each_group(("cuts", "power"), size, |group, summary| {
        // Calls and chores, plain and sealed.
        let sizes = if group.n % 8 < 4 { Sizes::Large } else { Sizes::Moderate };
        let (work, sizes) = if group.n.is_multiple_of(2) { (Work::Calls, sizes) } else { (Work::Chores, Sizes::Small) };
        let plan = Plan { seed: group.seed(), sizes, sealed: group.n % 4 >= 2 };
        let ops = record(group, &shim, work, plan)?;
        cut(group, &ops, syncs, (work, plan), summary)
    })
}

/// A trace that tells everything. A process that is killed may leave what it did in the same moment out of it, so there
/// are some tries.
fn record(group: &Group<'_>, shim: &Shim, work: Work, plan: Plan) -> anyhow::Result<Vec<Op>> {
    for _ in 0..5 {
        let place = crate::scratch()?;
        let ops = record_once(group.settings, shim, (work, plan), &place.path().canonicalize()?)?;
        let mut disk = Disk::new(&[]);
        ops.iter().try_for_each(|op| disk.apply(op))?;
        if disk.contents() == contents_of(place.path())? {
            return Ok(ops);
        }
    }
    anyhow::bail!("the trace doesn't tell everything that was done to the files");
}

/// The operations of a process that dies with a call under way and of one that goes on after it, calls at once.
fn record_once(settings: &Settings, shim: &Shim, (work, plan): (Work, Plan), root: &Path) -> anyhow::Result<Vec<Op>> {
    let traces = crate::scratch()?;
    let trace = traces.path().join("trace");
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let (point, both) = work.orders(plan, &mut random, root);
    for (arguments, dies) in both.into_iter().zip([true, false]) {
        let mut command = Command::new(&settings.program);
        shim.watch(command.args(arguments).stdin(Stdio::null()), root, &trace);
        let output = command.output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        let as_ordered = output.status.success() != dies;
        ensure!(as_ordered, "a process ended with {}: {said}", output.status);
    }
    let notes = Journal::read(root)?.notes;
    ensure!(notes.iter().any(|note| note == point.name()), "the process missed {point:?}");
    ensure!(notes.last().is_some_and(|note| note == "closed"), "the process didn't close the store");
    trace::read(&fs::read(&trace)?)
}

/// Cuts from one trace. Half are right behind an acknowledgement, where a missing sync shows.
fn cut(
    group: &Group<'_>,
    ops: &[Op],
    syncs: Syncs,
    (work, plan): (Work, Plan),
    summary: &mut Summary,
) -> anyhow::Result<()> {
    let runtime = crate::runtime()?;
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let acknowledged = after_acknowledgements(ops);
    ensure!(!acknowledged.is_empty(), "nothing was acknowledged");
    let mut points = (0..group.cases)
        .map(|n| match n % 2 {
            0 => acknowledged[random.usize(..acknowledged.len())],
            _ => random.usize(1..ops.len()),
        })
        .collect::<Vec<_>>();
    points.sort_unstable();
    let mut disk = Disk::new(syncs.ignored());
    let mut done = 0;
    for at in points {
        ops[done..at].iter().try_for_each(|op| disk.apply(op))?;
        done = at;
        let left = crate::scratch()?;
        disk.cut(left.path(), &FILES, &mut random)?;
        let place = if acknowledged.binary_search(&at).is_ok() { "after-acknowledgement" } else { "anywhere" };
        summary.hit(&format!("{}, {place}", work.name()));
        let found = match work {
            Work::Calls => runtime.block_on(judge(left.path(), plan, None, |_, _| true))?,
            Work::Chores => runtime.block_on(chores::judge(left.path(), plan, None, |_| true))?,
        };
        let before = summary.failures.len();
        summary.add(found, format_args!("cut after operation {at} of {}: {group}", ops.len()));
        if syncs == Syncs::All && summary.failures.len() > before {
            summary.details.push(format!("{group}: files kept in {}", left.keep().display()));
        }
    }
    Ok(())
}

/// How many operations there are up to and with each acknowledgement.
fn after_acknowledgements(ops: &[Op]) -> Vec<usize> {
    let mut log = None;
    let mut found = Vec::new();
    for (n, op) in ops.iter().enumerate() {
        match op {
            Op::Process => log = None,
            Op::Open { file, path, .. } if path == ACKNOWLEDGED => log = Some(*file),
            Op::Write { file, .. } if log == Some(*file) => found.push(n + 1),
            _ => {}
        }
    }
    found
}
