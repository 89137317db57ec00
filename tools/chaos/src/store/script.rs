//! The calls that are made while the store fails, and what must hold afterwards.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use toolonce::store::MemoryStore;
use toolonce::testing::{FaultyStore, ManualClock};
use toolonce::{
    Attempt, Call, Guard, InDoubt, LookUp, Policy, Reconciled, Registry, Reply, ReplyKind, Resolution, Run, Seen,
    ToolError, provider, value_tool,
};

use super::nth::{Fault, Handle, Nth};
use crate::stage::{Effects, result, settle, within};
use crate::summary::{Findings, Kind};

/// No answer may take longer, whatever the store does: patience, and what a store that fails adds to it.
const BOUND: Duration = Duration::from_secs(120);

/// A turn after all of the script.
const LATER: u32 = 100;

/// Tools, and whether a second effect under the same downstream key is none.
const TOOLS: [(&str, bool); 5] = [("pay", false), ("asks", false), ("charge", true), ("set", true), ("unsure", false)];

/// Calls in an order, some of a message together.
#[derive(Debug)]
pub(super) struct Script {
    messages: Vec<Vec<(usize, u32)>>,
}

impl Script {
    pub(super) fn of(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut calls: Vec<_> = (0..TOOLS.len()).flat_map(|tool| [(tool, 0), (tool, 1)]).collect();
        random.shuffle(&mut calls);
        let mut messages = Vec::new();
        while !calls.is_empty() {
            let rest = calls.split_off(random.usize(1..4).min(calls.len()));
            messages.push(std::mem::replace(&mut calls, rest));
        }
        Self { messages }
    }
}

fn name((tool, n): (usize, u32)) -> String {
    format!("{} {n}", TOOLS[tool].0)
}

/// A program with a guard.
struct Program {
    guard: Guard,
    tools: Registry,
    run: Run,
    clock: ManualClock,
}

impl Program {
    async fn begin(store: Arc<Nth>, effects: &Effects, clock: &ManualClock) -> anyhow::Result<Self> {
        let guard = Guard::builder(Handle(store), "store").clock(clock.clone()).settle_delay(Duration::from_secs(1));
        let guard = guard.build().await?;
        let mut tools = Registry::new(&guard);
        for (tool, (name, _)) in TOOLS.into_iter().enumerate() {
            let policy = match name {
                "asks" => Policy::write().in_doubt(InDoubt::Reconcile),
                "charge" => Policy::keyed(provider::STRIPE),
                "set" => Policy::idempotent(),
                _ => Policy::write(),
            };
            let world = effects.clone();
            let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
            let body = move |args: Value, attempt: Attempt| {
                let done = act(tool, &args, &world, &attempt);
                async move { done }
            };
            let world = effects.clone();
            let look = move |args: String, _: LookUp| std::future::ready(look(tool, &args, &world));
            let made = value_tool(name, "", schema, policy, body);
            tools.add(if name == "asks" { made.reconcile(look) } else { made })?;
        }
        let run = Run::start_or_resume(&guard, "run", Seen::Nothing).await?;
        Ok(Self { guard, tools, run, clock: clock.clone() })
    }

    /// Makes the calls of all messages, from a turn on.
    async fn work(&self, script: &Script, first: u32, found: &mut Findings) -> Vec<((usize, u32), Reply)> {
        let mut replies = Vec::new();
        for (turn, message) in (first..).zip(&script.messages) {
            let call = |&(tool, n): &(usize, u32)| Call::with_value(TOOLS[tool].0, &json!({"n": n}));
            let calls: Vec<Call> = message.iter().map(call).collect();
            let (tools, run) = (self.tools.clone(), self.run.clone());
            let task = tokio::spawn(async move { tools.answer(&run, turn, &calls).await });
            match within(&self.clock, BOUND, task).await {
                Some(answers) => replies.extend(message.iter().copied().zip(answers)),
                None => found.add(Kind::Unexplained, format!("message {turn} panicked, or has no answer in {BOUND:?}")),
            }
        }
        replies
    }
}

fn act(tool: usize, args: &Value, world: &Effects, attempt: &Attempt) -> Result<Value, ToolError> {
    let call = format!("{} {}", TOOLS[tool].0, args["n"]);
    world.happen(&call, &attempt.downstream_key().hex64());
    match TOOLS[tool].0 {
        "unsure" if attempt.number() == 1 => Err(ToolError::unknown("the connection was lost")),
        _ => Ok(json!({"done": call})),
    }
}

fn look(tool: usize, args: &str, world: &Effects) -> Result<Reconciled<Value>, ToolError> {
    let args: Value = serde_json::from_str(args).map_err(ToolError::permanent)?;
    let call = format!("{} {}", TOOLS[tool].0, args["n"]);
    Ok(if world.has(&call) { Reconciled::Happened(json!({"done": call})) } else { Reconciled::DidNotHappen })
}

/// How many operations the script makes on a store that works.
pub(super) async fn count(script: &Script) -> anyhow::Result<u64> {
    let store = Nth::new(FaultyStore::new(Arc::new(MemoryStore::new())), None);
    let program = Program::begin(Arc::clone(&store), &Effects::default(), &ManualClock::new()).await?;
    program.work(script, 0, &mut Findings::default()).await;
    settle().await;
    Ok(store.done())
}

/// Plays the script on a store that fails at one operation, heals the store and makes all calls again, then once more in
/// another process. Whether the fault hit.
pub(super) async fn play(script: &Script, fault: Option<(u64, Fault)>, found: &mut Findings) -> anyhow::Result<bool> {
    let (memory, effects, clock) = (MemoryStore::new(), Effects::default(), ManualClock::new());
    let store = Nth::new(FaultyStore::new(Arc::new(memory.clone())), fault);
    let began = Program::begin(Arc::clone(&store), &effects, &clock).await;
    let hit_early = began.is_err() && store.has_hit();
    let (program, before) = match began {
        Ok(program) => {
            let before = program.work(script, 0, found).await;
            settle().await;
            store.heal();
            (program, before)
        }
        // It doesn't begin on a store that fails, and does on one that works.
        Err(error) => {
            anyhow::ensure!(hit_early, "the script doesn't begin: {error}");
            store.heal();
            (Program::begin(Arc::clone(&store), &effects, &clock).await.context("healed")?, Vec::new())
        }
    };
    let hit = store.has_hit();
    if let Some((at, _)) = fault {
        anyhow::ensure!(store.done() > at, "the operation is never reached");
    }
    for (call, reply) in &before {
        judge_first(*call, reply, &effects, found);
    }
    let again = program.work(script, 0, found).await;
    compare("healed", &before, &again, found);
    judge_effects(&effects, found);
    // What the store didn't take is recorded by then.
    let _ = within(&clock, BOUND, tokio::spawn(shut(program.guard.clone()))).await;
    program.guard.crash();

    let store = Nth::new(FaultyStore::new(Arc::new(memory.reopen())), None);
    let program = Program::begin(store, &effects, &clock).await.context("reopened")?;
    let reopened = program.work(script, 0, found).await;
    compare("reopened", &again, &reopened, found);
    settle_all(&program, &effects, found).await?;
    // In later turns: what a place was told before a later one stays its answer.
    let last = program.work(script, LATER, found).await;
    for (call, reply) in &last {
        let is_settled = result(reply) == Some(json!({"done": name(*call)}).to_string().as_str());
        if !is_settled {
            let told = format!("{} is {} in the end: {:.200}", name(*call), reply.kind(), reply.message());
            found.add(Kind::Lost, told);
        } else if effects.count(&name(*call), true) == 0 {
            found.add(Kind::Lost, format!("{} has an outcome and no effect", name(*call)));
        }
    }
    judge_effects(&effects, found);
    Ok(hit)
}

async fn shut(guard: Guard) {
    // A store that was broken may say so once more.
    let _ = guard.shutdown(Duration::from_secs(10)).await;
}

fn judge_effects(effects: &Effects, found: &mut Findings) {
    // Setting the same again is harmless, and a later turn may mean it.
    let counted = TOOLS.into_iter().enumerate().filter(|(_, (name, _))| *name != "set");
    for (tool, (_, is_keyed)) in counted {
        for n in 0..2 {
            effects.judge(&name((tool, n)), is_keyed, found);
        }
    }
}

/// What a caller may be told while the store fails.
fn judge_first(call: (usize, u32), reply: &Reply, effects: &Effects, found: &mut Findings) {
    let happened = effects.has(&name(call));
    let explained = match reply.kind() {
        ReplyKind::Executed | ReplyKind::Unrecorded | ReplyKind::Replayed => happened && result(reply).is_some(),
        // Nothing was done, or what was done before is not denied.
        ReplyKind::Refused | ReplyKind::Failed | ReplyKind::Running => true,
        ReplyKind::InDoubt => true,
        _ => false,
    };
    if !explained {
        found.add(Kind::Unexplained, format!("{} was answered {}: {:.200}", name(call), reply.kind(), reply.message()));
    }
}

/// An outcome that was handed out stays the answer.
fn compare(when: &str, before: &[((usize, u32), Reply)], after: &[((usize, u32), Reply)], found: &mut Findings) {
    for (call, reply) in before {
        let Some(outcome) = result(reply) else { continue };
        found.acknowledged += 1;
        let now = after.iter().find(|(other, _)| other == call).map(|(_, reply)| reply);
        if now.and_then(result) != Some(outcome) {
            let now = now.map_or_else(String::new, |now| format!("{}: {:.200}", now.kind(), now.message()));
            found.add(Kind::Lost, format!("{when}: {} had {outcome} and has now {now}", name(*call)));
        }
    }
}

/// A person looks into the ledger.
async fn settle_all(program: &Program, effects: &Effects, found: &mut Findings) -> anyhow::Result<()> {
    for doubt in program.guard.inbox().await? {
        let call = TOOLS.iter().position(|(name, _)| *name == doubt.tool);
        let calls = call.into_iter().flat_map(|tool| [(tool, 0), (tool, 1)]);
        // The inbox keeps no arguments of plain writes: the downstream key tells which call it is.
        let call = calls.map(name).find(|call| effects.has_reference(call, &doubt.reference));
        let said = match &call {
            Some(call) => Resolution::Happened(json!({"done": call})),
            None => Resolution::DidNotHappenForSure,
        };
        if let Err(error) = program.guard.resolve(&doubt.reference, said, "").await {
            found.add(Kind::Unexplained, format!("{call:?} in doubt can't be settled: {error}"));
        }
    }
    Ok(())
}
