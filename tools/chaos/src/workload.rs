//! The calls that are made, here or in a process that is about to die. Everything follows from a seed and the call's
//! number: its tool, its arguments and its result, so that what must come back is known without a copy.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::{Value, json};
use toolonce::store::{SledOptions, Store};
use toolonce::{
    Attempt, Call, Guard, GuardBuilder, Policy, Registry, Reply, ReplyKind, Run, SealKeys, Seen, ToolError, provider,
    value_tool,
};

use crate::ledger::{Ledger, Mark};
use crate::points::{Point, Points, Watched};

/// Name of the store's directory inside of a case's.
pub const STORE: &str = "store";
/// Id of the one run of a store.
const RUN: &str = "chaos";
/// Calls of one assistant message.
pub const PER_TURN: u64 = 4;
/// How long an answer may take: nothing here takes a second.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// The largest result that the guard is to keep.
const MAX_RESULT: usize = 8 << 20;
/// What a sealed store is sealed with. Nothing here is secret.
const SEAL: [u8; 32] = [7; 32];

/// How large results are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sizes {
    /// Short ones, few of several kB and single ones of megabytes among them.
    Small,
    /// Up to 100 kB.
    Moderate,
    /// Some of several megabytes among them.
    Large,
}

impl Sizes {
    /// The name on the command line of a child.
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Moderate => "moderate",
            Self::Large => "large",
        }
    }

    /// The sizes of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        [Self::Small, Self::Moderate, Self::Large].into_iter().find(|sizes| sizes.name() == name)
    }
}

/// What is called.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Decides everything.
    pub seed: u64,
    /// How large results are.
    pub sizes: Sizes,
    /// Whether all that is stored is encrypted.
    pub sealed: bool,
}

impl Plan {
    /// A guard on a store, as all processes of a case build it.
    pub(crate) fn guard(self, store: impl Store) -> GuardBuilder {
        let guard = Guard::builder(store, "chaos").max_result(MAX_RESULT).patience(PATIENCE);
        if self.sealed { guard.seal(SealKeys::new(SEAL)) } else { guard }
    }

    pub(crate) fn random(self, call: u64, what: u64) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (call << 8 | what))
    }

    /// Whether the call's tool is a plain write; else it is keyed.
    pub fn is_write(self, call: u64) -> bool {
        self.random(call, 0).u8(..4) != 0
    }

    /// The length of the call's result in bytes.
    pub fn size(self, call: u64) -> usize {
        let mut random = self.random(call, 1);
        let is_large = match self.sizes {
            Sizes::Small => call % 64 == 13,
            Sizes::Moderate => false,
            Sizes::Large => call % 16 == 13,
        };
        if is_large {
            return random.usize(2_000_000..4_000_000);
        }
        let n = random.u8(..20);
        if self.sizes == Sizes::Small {
            return if n < 16 { random.usize(16..400) } else { random.usize(4_000..12_000) };
        }
        match n {
            0..10 => random.usize(16..400),
            10..14 => 4_000 + random.usize(..200),
            14..17 => 32_000 + random.usize(..1_000),
            _ => 100_000 + random.usize(..1_000),
        }
    }

    /// The call's result: text that doesn't get shorter by compression.
    pub fn result(self, call: u64) -> Value {
        const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let mut bytes = vec![0; self.size(call)];
        self.random(call, 2).fill(&mut bytes);
        let text = bytes.into_iter().map(|byte| char::from(LETTERS[usize::from(byte % 64)])).collect::<String>();
        json!({"call": call, "text": text})
    }

    /// Whether a reply has the call's result, byte by byte.
    pub fn is_result(self, call: u64, reply: &Reply) -> bool {
        let expected = self.result(call).to_string();
        reply.outcome().is_some_and(|outcome| outcome.text() == expected)
    }

    /// The call as the model makes it.
    pub fn call(self, call: u64) -> Call {
        let tool = if self.is_write(call) { "pay" } else { "charge" };
        let arguments = json!({"order": format!("order-{call}")}).to_string();
        Call::new(tool, arguments).id(format!("call-{call}")).turn(turn(call))
    }
}

fn turn(call: u64) -> u32 {
    u32::try_from(call / PER_TURN).unwrap_or(u32::MAX)
}

/// A guard on the store of a directory, its tools and its run.
#[derive(Debug)]
pub struct Workload {
    plan: Plan,
    /// For looking into the inbox and for settling.
    pub guard: Guard,
    tools: Registry,
    run: Run,
    ledger: Arc<Ledger>,
    points: Arc<Points>,
}

impl Workload {
    /// Opens the store in `directory` and goes on with its run, of which the caller has seen `seen`.
    ///
    /// # Errors
    /// What the store or the guard says.
    pub async fn open(
        directory: &Path,
        plan: Plan,
        ledger: Arc<Ledger>,
        points: Points,
        seen: Seen,
    ) -> anyhow::Result<Self> {
        let store = SledOptions::new(directory.join(STORE)).open().await?;
        let points = Arc::new(points);
        let store = Watched::new(store, Arc::clone(&points));
        let guard = plan.guard(store).build().await?;
        let mut tools = Registry::new(&guard);
        for (name, policy) in [("pay", Policy::write()), ("charge", Policy::keyed(provider::STRIPE))] {
            let schema = json!({"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]});
            let (ledger, points) = (Arc::clone(&ledger), Arc::clone(&points));
            let body = move |arguments: Value, attempt: Attempt| {
                let (ledger, points) = (Arc::clone(&ledger), Arc::clone(&points));
                async move { body(plan, &ledger, &points, &arguments, &attempt) }
            };
            tools.add(value_tool(name, "Moves money", schema, policy, body))?;
        }
        let run = Run::start_or_resume(&guard, RUN, seen).await?;
        Ok(Self { plan, guard, tools, run, ledger, points })
    }

    /// Makes one call.
    pub async fn call(&self, call: u64) -> Reply {
        self.tools.call(&self.run, self.plan.call(call)).await
    }

    /// Makes calls that nobody made before, from `first` on, one after the other or a message at a time, and
    /// acknowledges each outcome.
    ///
    /// # Errors
    /// If a call gets an answer that a new call can't get, or the ledger can't be written.
    pub async fn work(&self, first: u64, count: u64, at_once: bool) -> anyhow::Result<()> {
        let step = if at_once { PER_TURN } else { 1 };
        for begin in (first..first + count).step_by(usize::try_from(step)?) {
            let numbers = begin..begin + step;
            numbers.clone().try_for_each(|call| self.ledger.mark(call, Mark::Begun))?;
            let replies = if at_once {
                let calls = numbers.clone().map(|call| self.plan.call(call)).collect::<Vec<_>>();
                self.tools.answer(&self.run, turn(begin), &calls).await
            } else {
                vec![self.call(begin).await]
            };
            for (call, reply) in numbers.zip(&replies) {
                anyhow::ensure!(
                    reply.kind() == ReplyKind::Executed,
                    "the new call {call} was answered {}: {}",
                    reply.kind(),
                    reply.message()
                );
                self.ledger.acknowledge(call)?;
            }
        }
        Ok(())
    }

    /// Waits until the witness of the store in `directory` has seen all that is safe now, and nothing is on its way.
    ///
    /// # Errors
    /// If it can't be read, or never does.
    pub async fn witnessed(&self, directory: &Path) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let witness = fs::read_to_string(directory.join(format!("{STORE}.witness")))?;
            let seen = witness.lines().find_map(|line| line.strip_prefix("sequence ")).context("no sequence")?;
            if self.points.newest() <= seen.parse()? {
                return Ok(());
            }
            anyhow::ensure!(Instant::now() < until, "the witness never sees commit {}", self.points.newest());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Closes the store.
    ///
    /// # Errors
    /// If it can't be closed cleanly.
    pub async fn close(self) -> anyhow::Result<()> {
        self.guard.shutdown(Duration::from_secs(10)).await?;
        Ok(())
    }
}

fn body(plan: Plan, ledger: &Ledger, points: &Points, arguments: &Value, at: &Attempt) -> Result<Value, ToolError> {
    let call = arguments["order"].as_str().and_then(|order| order.strip_prefix("order-")).and_then(|n| n.parse().ok());
    let call = call.ok_or_else(|| ToolError::permanent("no such order"))?;
    ledger.mark(call, Mark::Body)?;
    points.reach(Point::BodyBeforeEffect);
    ledger.effect(call, &at.idempotency_key())?;
    points.reach(Point::EffectBeforeRecord);
    ledger.mark(call, Mark::Returned)?;
    Ok(plan.result(call))
}

/// What a child process is told to do.
#[derive(Debug, Clone)]
pub struct Orders {
    /// What is called.
    pub plan: Plan,
    /// Number of the first call.
    pub first: u64,
    /// How many calls, if it lives so long.
    pub count: u64,
    /// Whether the calls of a message are made at once.
    pub at_once: bool,
    /// Where it kills itself, and at the how manieth time it gets there.
    pub point: Option<(Point, u64)>,
}

/// A child process: opens the store in `directory`, works, and closes it, unless it dies before.
///
/// # Errors
/// If anything goes wrong: then it didn't die as it should.
pub fn child(directory: &Path, orders: &Orders) -> anyhow::Result<()> {
    let ledger = Arc::new(Ledger::open(directory)?);
    crate::runtime()?.block_on(async {
        ledger.note("opening")?;
        let points = Points::new(orders.point, Arc::clone(&ledger));
        // Half of the callers know the answers of all turns before, half begin anew.
        let seen = match turn(orders.first).checked_sub(1) {
            Some(last) if orders.plan.random(orders.first, 3).bool() => Seen::Through(last),
            _ => Seen::Nothing,
        };
        let workload = Workload::open(directory, orders.plan, Arc::clone(&ledger), points, seen).await;
        let workload = workload.context("the store doesn't open")?;
        ledger.note("opened")?;
        workload.work(orders.first, orders.count, orders.at_once).await?;
        workload.close().await?;
        ledger.note("closed")?;
        Ok(())
    })
}

/// The command line of a child process.
pub(crate) fn arguments(directory: &Path, orders: &Orders) -> Vec<std::ffi::OsString> {
    let mut arguments = vec!["child".into(), directory.into()];
    let mut add = |name: &str, value: String| arguments.extend([format!("--{name}").into(), value.into()]);
    add("seed", orders.plan.seed.to_string());
    add("sizes", orders.plan.sizes.name().to_owned());
    add("first", orders.first.to_string());
    add("count", orders.count.to_string());
    if let Some((point, nth)) = orders.point {
        add("point", point.name().to_owned());
        add("nth", nth.to_string());
    }
    for (is_set, flag) in [(orders.at_once, "--at-once"), (orders.plan.sealed, "--sealed")] {
        if is_set {
            arguments.push(flag.into());
        }
    }
    arguments
}
