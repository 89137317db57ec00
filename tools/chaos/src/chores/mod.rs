//! What a guard is asked beside plain calls: recorded steps, people's answers, forks, removal of old runs, writes that
//! are known to all runs. As with [`workload`](crate::workload) everything follows from a seed and a number.
//!
//! A chore has its number and a turn of its own, and [`PARTS`] calls with a number each in the ledger. Time is the
//! chore's too: hours pass between two of them, so that runs grow old.

mod judge;
mod work;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use toolonce::store::{BoxFuture, SledOptions};
use toolonce::{
    Approval, Attempt, Call, Clock, Guard, Millis, Policy, Registry, Reply, ReplyKind, Run, Scope, Seen, SystemClock,
    ToolError, value_tool,
};

pub use self::judge::judge;
use crate::ledger::{Ledger, Mark};
use crate::points::{Commits, Point, Points, Watched};
use crate::workload::{PATIENCE, Plan, STORE};

/// Calls that belong to one chore.
pub const PARTS: u64 = 4;
/// Calls of a chore in the run of its own that is to be removed.
const IN_OLD_RUN: [u64; 2] = [1, 2];
/// The call of a chore that all runs know.
const OF_ALL_RUNS: u64 = 3;
const RUN: &str = "chaos";
/// Between two chores.
const STRIDE: Millis = 3 * 3600 * 1000;
/// Within a chore, before it removes what is old.
const LATER: Millis = 2 * 3600 * 1000;
const RETENTION: Duration = Duration::from_secs(3600);
/// When chore 0 is done: some time in 2023.
const BEGINNING: Millis = 1_700_000_000_000;

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Chore {
    /// A recorded step.
    Step,
    /// A plain call, for what comes later.
    Call,
    /// A call whose tool doesn't know how it ended; a person says that it happened.
    Happened,
    /// The same, and it didn't.
    DidNotHappen,
    /// A call that waits for permission, and gets it.
    Approve,
    /// The same, and it doesn't.
    Deny,
    /// A fork of the run.
    Fork,
    /// A run that grows old, and its removal.
    Collect,
}

impl Chore {
    /// All that can be interrupted by itself.
    pub const ALL: [Self; 7] =
        [Self::Step, Self::Happened, Self::DidNotHappen, Self::Approve, Self::Deny, Self::Fork, Self::Collect];

    /// The chore of this number.
    pub fn of(plan: Plan, number: u64) -> Self {
        let n = plan.random(number, 4).usize(..Self::ALL.len() + 2);
        Self::ALL.get(n).copied().unwrap_or(Self::Call)
    }

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Call => "call",
            Self::Happened => "happened",
            Self::DidNotHappen => "did-not-happen",
            Self::Approve => "approve",
            Self::Deny => "deny",
            Self::Fork => "fork",
            Self::Collect => "collect",
        }
    }

    /// Which of its commits are points: copies and removals are written unsynced, so there all of them.
    fn commits(self) -> Commits {
        if matches!(self, Self::Fork | Self::Collect) { Commits::All } else { Commits::Synced }
    }

    fn tool(self) -> &'static str {
        match self {
            Self::Happened => "lose",
            Self::DidNotHappen => "drop",
            Self::Approve | Self::Deny => "ask",
            _ => "pay",
        }
    }
}

fn unit(chore: u64, part: u64) -> u64 {
    chore * PARTS + part
}

fn turn(chore: u64) -> u32 {
    u32::try_from(chore).unwrap_or(u32::MAX)
}

fn fork_id(chore: u64) -> String {
    format!("fork-{chore}")
}

fn old_id(chore: u64) -> String {
    format!("old-{chore}")
}

fn step_name(chore: u64) -> String {
    format!("step-{chore}")
}

/// A wall clock that is set to the time of a chore and goes on from there.
#[derive(Debug, Clone)]
struct ChoreClock {
    wall: Arc<AtomicU64>,
    real: SystemClock,
}

impl ChoreClock {
    fn set(&self, chore: u64, later: Millis) {
        self.wall.store(BEGINNING + chore * STRIDE + later, Ordering::Release);
    }
}

impl Clock for ChoreClock {
    fn wall(&self) -> Millis {
        let passed = u64::try_from(self.real.monotonic().as_millis()).unwrap_or(0);
        self.wall.load(Ordering::Acquire) + passed
    }

    fn monotonic(&self) -> Duration {
        self.real.monotonic()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.real.sleep(duration)
    }
}

/// A guard on the store of a directory, its tools and its main run.
struct Desk {
    plan: Plan,
    guard: Guard,
    tools: Registry,
    run: Run,
    ledger: Arc<Ledger>,
    points: Arc<Points>,
    clock: ChoreClock,
}

impl Desk {
    /// Opens the store in `directory` at the time of a chore, and goes on with its run.
    async fn open(
        directory: &Path,
        plan: Plan,
        ledger: Arc<Ledger>,
        points: Points,
        (chore, later): (u64, Millis),
        seen: Seen,
    ) -> anyhow::Result<Self> {
        let clock = ChoreClock { wall: Arc::default(), real: SystemClock::new() };
        clock.set(chore, later);
        let store = SledOptions::new(directory.join(STORE)).open().await?;
        let points = Arc::new(points);
        let store = Watched::new(store, Arc::clone(&points));
        let guard = plan.guard(store).clock(clock.clone()).retention(RETENTION).build().await?;
        let mut tools = Registry::new(&guard);
        let policies = [
            ("pay", Policy::write()),
            ("lose", Policy::write()),
            ("drop", Policy::write()),
            ("ask", Policy::write().approval(Approval::First)),
            ("once", Policy::write().scope(Scope::Global)),
        ];
        for (name, policy) in policies {
            let schema = json!({"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]});
            let ledger = Arc::clone(&ledger);
            let body = move |arguments: Value, attempt: Attempt| {
                let done = body(name, plan, &ledger, &arguments, &attempt);
                std::future::ready(done)
            };
            tools.add(value_tool(name, "", schema, policy, body))?;
        }
        let run = Run::start_or_resume(&guard, RUN, seen).await?;
        Ok(Self { plan, guard, tools, run, ledger, points, clock })
    }

    /// Makes a part of a chore as a call in a run.
    async fn call(&self, run: &Run, chore: u64, part: u64) -> Reply {
        self.tools.call(run, self.call_of(chore, part)).await
    }

    /// The same, by a caller who doesn't wait for a person; one who executes it in the end has executed it.
    async fn ask(&self, run: &Run, chore: u64, part: u64) -> (ReplyKind, Reply) {
        let mut patience = if self.call_of(chore, part).tool() == "ask" { Duration::from_millis(5) } else { PATIENCE };
        let mut was_running = false;
        loop {
            let reply = self.tools.call(run, self.call_of(chore, part).patience(patience)).await;
            match reply.kind() {
                ReplyKind::Running if patience < PATIENCE => {
                    was_running = true;
                    patience *= 2;
                }
                // One who had no patience may still be there, and go on once a person has answered.
                ReplyKind::Joined => return (ReplyKind::Executed, reply),
                ReplyKind::Replayed if was_running => return (ReplyKind::Executed, reply),
                kind => return (kind, reply),
            }
        }
    }

    fn call_of(&self, chore: u64, part: u64) -> Call {
        let unit = unit(chore, part);
        let tool = match part {
            OF_ALL_RUNS => "once",
            0 => Chore::of(self.plan, chore).tool(),
            _ => "pay",
        };
        let arguments = json!({"order": format!("order-{unit}")}).to_string();
        Call::new(tool, arguments).id(format!("call-{unit}")).turn(turn(chore))
    }

    /// Does the chore's step, and tells whether it had to be computed.
    async fn step(&self, run: &Run, chore: u64) -> Result<(Value, bool), toolonce::Error> {
        let mut is_computed = false;
        let compute = || {
            is_computed = true;
            let marked = self.ledger.mark(unit(chore, 0), Mark::Body).map_err(toolonce::Error::step);
            std::future::ready(marked.map(|()| self.plan.result(unit(chore, 0))))
        };
        let value = run.step(&step_name(chore), &json!({"chore": chore}), compute).await?;
        Ok((value, is_computed))
    }

    async fn close(self) -> anyhow::Result<()> {
        self.guard.shutdown(Duration::from_secs(10)).await?;
        Ok(())
    }
}

fn body(name: &str, plan: Plan, ledger: &Ledger, arguments: &Value, at: &Attempt) -> Result<Value, ToolError> {
    let unit = arguments["order"].as_str().and_then(|order| order.strip_prefix("order-")).and_then(|n| n.parse().ok());
    let unit = unit.ok_or_else(|| ToolError::permanent("no such order"))?;
    ledger.mark(unit, Mark::Body)?;
    if name == "drop" && at.number() == 1 {
        return Err(ToolError::unknown("the connection was lost before anything was sent"));
    }
    ledger.effect(unit, &at.idempotency_key())?;
    ledger.mark(unit, Mark::Returned)?;
    match name {
        "lose" => Err(ToolError::unknown("the connection was lost after it was sent")),
        _ => Ok(plan.result(unit)),
    }
}

/// What a child process is told to do.
#[derive(Debug, Clone)]
pub struct Orders {
    /// Decides everything.
    pub plan: Plan,
    /// Number of the first chore.
    pub first: u64,
    /// How many, if it lives so long.
    pub count: u64,
    /// The chore in which it kills itself, at which of its commits, before or after it.
    pub point: Option<(u64, Point, u64)>,
}

impl Orders {
    /// Where the child's command line is made.
    pub(crate) fn arguments(&self, directory: &Path) -> Vec<std::ffi::OsString> {
        let mut arguments = vec!["chores-child".into(), directory.into()];
        let mut add = |name: &str, value: String| arguments.extend([format!("--{name}").into(), value.into()]);
        add("seed", self.plan.seed.to_string());
        add("sizes", self.plan.sizes.name().to_owned());
        add("first", self.first.to_string());
        add("count", self.count.to_string());
        if let Some((chore, point, nth)) = self.point {
            add("chore", chore.to_string());
            add("point", point.name().to_owned());
            add("nth", nth.to_string());
        }
        if self.plan.sealed {
            arguments.push("--sealed".into());
        }
        arguments
    }
}

/// A child process: opens the store in `directory`, does chores, and closes it, unless it dies before.
///
/// # Errors
/// If anything goes wrong: then it didn't die as it should.
pub fn child(directory: &Path, orders: &Orders) -> anyhow::Result<()> {
    let ledger = Arc::new(Ledger::open(directory)?);
    crate::runtime()?.block_on(async {
        ledger.note("opening")?;
        let points = orders.point.map(|(_, point, nth)| (point, nth));
        let points = Points::new(points, Arc::clone(&ledger));
        let seen = match turn(orders.first).checked_sub(1) {
            Some(last) if orders.plan.random(orders.first, 3).bool() => Seen::Through(last),
            _ => Seen::Nothing,
        };
        let at = (orders.first, 0);
        let desk = Desk::open(directory, orders.plan, Arc::clone(&ledger), points, at, seen).await;
        let desk = desk.context("the store doesn't open")?;
        ledger.note("opened")?;
        for chore in orders.first..orders.first + orders.count {
            let is_armed = orders.point.is_some_and(|(armed, ..)| armed == chore);
            let done = desk.work(chore, is_armed).await;
            done.with_context(|| format!("chore {chore}, {}", Chore::of(orders.plan, chore).name()))?;
            if is_armed {
                ledger.note("missed")?;
                break;
            }
        }
        desk.close().await?;
        ledger.note("closed")?;
        Ok(())
    })
}
