//! Calls, retries, crashes and people's answers, while the wall clock jumps by hours.

use std::time::Duration;

use serde_json::{Value, json};
use toolonce::store::MemoryStore;
use toolonce::testing::ManualClock;
use toolonce::{
    Attempt, Call, Guard, InDoubt, KeyWindow, LookUp, Policy, Reconciled, Registry, Reply, Resolution, Run, Seen,
    ToolError, value_tool,
};

use crate::stage::{Effects, result, within};
use crate::summary::{Findings, Kind};

/// How long a provider remembers a key. Told apart by it: a key that was sent again after that is an effect.
const WINDOW: Duration = Duration::from_secs(3600);
const BOUND: Duration = Duration::from_secs(200);
/// Tools; whether they are keyed.
const TOOLS: [(&str, bool); 4] = [("pay", false), ("asks", false), ("charge", true), ("charge_asks", true)];

struct Program {
    guard: Guard,
    tools: Registry,
    run: Run,
}

async fn begin(store: &MemoryStore, clock: &ManualClock, effects: &Effects, seed: u64) -> anyhow::Result<Program> {
    let guard = Guard::builder(store.clone(), "time").clock(clock.clone()).build().await?;
    let mut tools = Registry::new(&guard);
    for (name, is_keyed) in TOOLS {
        let asks = name.ends_with("asks");
        let policy = if is_keyed { Policy::keyed(KeyWindow::For(WINDOW)) } else { Policy::write() };
        let policy = if asks { policy.in_doubt(InDoubt::Reconcile) } else { policy };
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
        let world = (effects.clone(), clock.clone());
        let tool = value_tool(name, "", schema, policy, move |args: Value, attempt: Attempt| {
            let world = world.clone();
            async move { act(name, &args, &world, &attempt, seed).await }
        });
        let world = effects.clone();
        let look = move |args: String, _: LookUp| std::future::ready(look(name, &args, &world));
        tools.add(if asks { tool.reconcile(look) } else { tool })?;
    }
    let run = Run::start_or_resume(&guard, "run", Seen::Nothing).await?;
    Ok(Program { guard, tools, run })
}

/// The first execution of two calls of three goes wrong: after the effect, or before it.
async fn act(
    name: &str,
    args: &Value,
    (world, clock): &(Effects, ManualClock),
    attempt: &Attempt,
    seed: u64,
) -> Result<Value, ToolError> {
    let call = format!("{name} {}", args["n"]);
    let key = attempt.downstream_key().hex64();
    let fate = (seed ^ args["n"].as_u64().unwrap_or(0).wrapping_mul(0x9e37_79b9)) % 3;
    let is_first = attempt.number() == 1;
    if is_first && fate == 1 {
        return Err(ToolError::unknown("the connection was lost before anything was sent"));
    }
    toolonce::Clock::sleep(clock, Duration::from_secs(2)).await;
    attempt.check().await?;
    world.happen(&call, &key);
    match is_first && fate == 2 {
        true => Err(ToolError::unknown("the connection was lost after it was sent")),
        false => Ok(json!({"done": call})),
    }
}

fn look(name: &str, args: &str, world: &Effects) -> Result<Reconciled<Value>, ToolError> {
    let args: Value = serde_json::from_str(args).map_err(ToolError::permanent)?;
    let call = format!("{name} {}", args["n"]);
    Ok(if world.has(&call) { Reconciled::Happened(json!({"done": call})) } else { Reconciled::DidNotHappen })
}

/// Moves the clocks; what that was.
fn jump(clock: &ManualClock, random: &mut fastrand::Rng) -> &'static str {
    let hours = i64::from(random.u32(1..30));
    match random.u8(..4) {
        0 => {
            clock.set_wall_by(-hours * 3_600_000);
            "set back"
        }
        1 => {
            clock.set_wall_by(hours * 3_600_000);
            "set forward or asleep"
        }
        2 => {
            clock.set_wall_by(-1);
            "set back a little"
        }
        _ => {
            clock.advance(Duration::from_secs(random.u64(1..4_000)));
            "passed"
        }
    }
}

/// Tells one story; the jumps in it.
pub(super) async fn tell(random: &mut fastrand::Rng, found: &mut Findings) -> anyhow::Result<Vec<&'static str>> {
    let (mut store, clock, effects) = (MemoryStore::new(), ManualClock::new(), Effects::default());
    let seed = random.u64(..);
    let mut program = begin(&store, &clock, &effects, seed).await?;
    let mut jumps = Vec::new();
    let mut outcomes = std::collections::BTreeMap::<String, String>::new();
    for step in 0..30 {
        match random.u8(..10) {
            0..3 => jumps.push(jump(&clock, random)),
            3 => {
                program.guard.crash();
                store = store.reopen();
                program = begin(&store, &clock, &effects, seed).await?;
            }
            4 => resolve(&program.guard, &effects, found).await?,
            _ => {
                let (tool, n) = (random.usize(..TOOLS.len()), random.u32(..2));
                let during = random.bool().then(|| (random.u64(..1_500), jump_of(random)));
                let (reply, was_within) = call(&program, &clock, tool, n, during).await;
                if was_within {
                    jumps.push("within a call");
                }
                let Some(reply) = reply else {
                    found.add(Kind::Unexplained, format!("step {step}: {} panicked or hangs", TOOLS[tool].0));
                    continue;
                };
                remember(&format!("{} {n}", TOOLS[tool].0), &reply, &mut outcomes, found);
            }
        }
    }
    for (name, is_keyed) in TOOLS {
        (0..2).for_each(|n| effects.judge(&format!("{name} {n}"), is_keyed, found));
    }
    Ok(jumps)
}

fn jump_of(random: &mut fastrand::Rng) -> i64 {
    (i64::from(random.u32(..48)) - 24) * 3_600_000
}

/// Makes a call, and sets the wall clock; whether that was while it was under way.
async fn call(
    program: &Program,
    clock: &ManualClock,
    tool: usize,
    n: u32,
    during: Option<(u64, i64)>,
) -> (Option<Reply>, bool) {
    let (tools, run) = (program.tools.clone(), program.run.clone());
    let asked = Call::with_value(TOOLS[tool].0, &json!({"n": n})).turn(0).id(format!("{tool}.{n}"));
    let task = tokio::spawn(async move { tools.call(&run, asked).await });
    let mut was_within = false;
    if let Some((after, by)) = during {
        crate::stage::settle().await;
        was_within = !task.is_finished();
        clock.advance(Duration::from_millis(after));
        clock.set_wall_by(by);
    }
    (within(clock, BOUND, task).await, was_within)
}

/// An outcome never changes.
fn remember(
    call: &str,
    reply: &Reply,
    outcomes: &mut std::collections::BTreeMap<String, String>,
    found: &mut Findings,
) {
    let now = result(reply);
    match (outcomes.get(call), now) {
        (Some(before), now) if now != Some(before) => {
            found.add(Kind::Lost, format!("{call} had {before} and is now {}: {:.200}", reply.kind(), reply.message()));
        }
        (None, Some(now)) => {
            found.acknowledged += 1;
            outcomes.insert(call.to_owned(), now.to_owned());
        }
        _ => {}
    }
}

/// A person who looks into the ledger and doesn't hurry: a plain *no* before its time is refused.
async fn resolve(guard: &Guard, effects: &Effects, found: &mut Findings) -> anyhow::Result<()> {
    for doubt in guard.inbox().await? {
        let mut calls = (0..2).map(|n| format!("{} {n}", doubt.tool));
        let happened = calls.find(|call| effects.has_reference(call, &doubt.reference));
        let said = match happened {
            Some(call) => Resolution::Happened(json!({"done": call})),
            None => Resolution::DidNotHappen,
        };
        match guard.resolve(&doubt.reference, said, "").await {
            Ok(()) => {}
            Err(error) if error.kind() == toolonce::ErrorKind::TooEarly => {}
            Err(error) => found.add(Kind::Unexplained, format!("{} can't be settled: {error}", doubt.reference)),
        }
    }
    Ok(())
}
