//! Kills in the middle of chores: steps, answers, forks, removals. The child kills itself before or after one of the
//! commits that the chore makes, or is killed from outside while it is at it.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::{WITHIN, expect_killed, spawn, spin};
use crate::chores::{Chore, Orders, PARTS, judge};
use crate::ledger::Journal;
use crate::points::Point;
use crate::summary::Summary;
use crate::workload::Plan;
use crate::{Group, Settings};

/// Chores before the one that is hit.
const BEFORE: u64 = 1;

/// What kills a child, and in which kind of chore.
#[derive(Debug, Clone, Copy)]
enum Death {
    /// Itself, before or after the n-th commit.
    At(Point, u64),
    /// This process, so long after the chore began.
    During(Duration),
}

impl Death {
    fn random(chore: Chore, random: &mut fastrand::Rng) -> Self {
        if random.u8(..4) == 0 {
            return Self::During(Duration::from_micros(random.u64(..3_000)));
        }
        let point = if random.bool() { Point::BeforeCommit } else { Point::AfterCommit };
        let many = matches!(chore, Chore::Fork | Chore::Collect);
        Self::At(point, if many { random.u64(1..40) } else { 1 })
    }

    /// The next try, if a chore was over before.
    fn earlier(self) -> Self {
        match self {
            Self::At(point, nth) => Self::At(point, (nth / 2).max(1)),
            // Some are over before anybody outside can see that they began.
            Self::During(delay) if delay < Duration::from_micros(20) => Self::At(Point::AfterCommit, 1),
            Self::During(delay) => Self::During(delay / 2),
        }
    }
}

/// The kills of one store.
pub(super) fn kills(group: &Group<'_>, directory: &Path, plan: Plan, summary: &mut Summary) -> anyhow::Result<()> {
    let runtime = crate::runtime()?;
    let mut random = fastrand::Rng::with_seed(plan.seed);
    for kill in 0..group.cases {
        let kind = Chore::ALL[random.usize(..Chore::ALL.len())];
        let sample = random.u64(..10);
        let is_last = kill + 1 == group.cases;
        let mut death = Death::random(kind, &mut random);
        for tries in 0.. {
            ensure!(tries < 50, "no child could be killed in a chore {}", kind.name());
            let killed = kill_once(group.settings, directory, plan, kind, death);
            let killed = killed.with_context(|| format!("kill {kill}, {}, {death:?}", kind.name()))?;
            // What was hit too early or too late is looked at as well: it may have left something open.
            let wanted = |n: u64| is_last || n >= killed.first || n % 10 == sample;
            let found = runtime.block_on(judge(directory, plan, killed.died(kind), wanted))?;
            summary.add(found, format_args!("kill {kill}, {} {}, {death:?}: {group}", kind.name(), killed.chore));
            if killed.has_hit {
                break;
            }
            death = death.earlier();
        }
        summary.hit(kind.name());
    }
    Ok(())
}

struct Killed {
    /// The first chore of the child.
    first: u64,
    /// The one in which it was to die.
    chore: u64,
    has_hit: bool,
    point: Option<Point>,
}

impl Killed {
    /// Where it died, if that decides what the chore's outcome is: a fork and a removal have many commits.
    fn died(&self, kind: Chore) -> Option<(u64, Point)> {
        let is_one = self.has_hit && !matches!(kind, Chore::Fork | Chore::Collect);
        self.point.filter(|_| is_one).map(|point| (self.chore, point))
    }
}

/// Starts a child and has it die in a chore of this kind.
fn kill_once(settings: &Settings, directory: &Path, plan: Plan, kind: Chore, death: Death) -> anyhow::Result<Killed> {
    let first = next_chore(directory)?;
    let chore = (first + BEFORE..).find(|n| Chore::of(plan, *n) == kind).context("no such chore")?;
    let point = if let Death::At(point, nth) = death { Some((chore, point, nth)) } else { None };
    let orders = Orders { plan, first, count: chore + 1 - first, point };
    let before = Journal::read(directory)?.notes.len();
    let mut child = spawn(settings, orders.arguments(directory))?;
    if let Death::During(delay) = death {
        let start = Instant::now();
        while !trail_of(directory, chore)?.answering && child.try_wait()?.is_none() {
            ensure!(start.elapsed() < WITHIN, "the child hangs");
        }
        spin(delay);
        child.kill()?;
    }
    let was_killed = expect_killed(child, |status| status.success())?;
    let has_hit = match death {
        Death::At(point, _) => {
            let notes = Journal::read(directory)?.notes;
            notes.len() > before && notes.last().is_some_and(|note| note == point.name())
        }
        Death::During(_) => {
            let trail = trail_of(directory, chore)?;
            trail.answering && !trail.answered && !trail.acknowledged
        }
    };
    let point = point.map(|(_, point, _)| point);
    Ok(Killed { first, chore, has_hit: was_killed && has_hit, point })
}

fn trail_of(directory: &Path, chore: u64) -> anyhow::Result<crate::ledger::Trail> {
    Ok(Journal::read(directory)?.calls.remove(&(chore * PARTS)).unwrap_or_default())
}

/// A number that no chore has.
fn next_chore(directory: &Path) -> anyhow::Result<u64> {
    let last = Journal::read(directory)?.calls.into_keys().next_back();
    Ok(last.map_or(0, |last| last / PARTS + 1))
}
