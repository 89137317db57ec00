//! One scene: where the first owner is stopped, for how long, how the tool is guarded, and how the first one's execution
//! ends when it is continued.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use toolonce::store::{
    Batch, BoxFuture, Committed, Durability, Identity, Key, MemoryStore, Page, Purpose, Store, StoreError, Versioned,
};
use toolonce::testing::ManualClock;
use toolonce::{
    Attempt, Call, Guard, InDoubt, LookUp, Policy, Reconciled, Registry, Reply, ReplyKind, Resolution, Run, ToolError,
    provider, value_tool,
};

use crate::stage::{Effects, result, settle, within};
use crate::summary::{Findings, Kind};

const LEASE: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(20);
const DEADLINE: Duration = Duration::from_secs(600);
const SETTLE: Duration = Duration::from_secs(60);
/// Any answer must have come by then: patience, and a look-up that was begun before it ended.
const BOUND: Duration = Duration::from_secs(40);
const CALL: &str = "pay";

/// Where the first owner is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    /// The claim is in the store; its owner doesn't know yet.
    BeforeBody,
    /// The tool has begun.
    BeforeEffect,
    /// The tool did it and hasn't returned.
    AfterEffect,
}

impl Stopped {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::BeforeBody => "before the body",
            Self::BeforeEffect => "before the effect",
            Self::AfterEffect => "after the effect",
        }
    }
}

/// How the tool is guarded, and what its look-up says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guarding {
    Hold,
    Resend,
    Asks { keyed: bool, tells: bool },
}

impl Guarding {
    fn policy(self) -> Policy {
        match self {
            Self::Hold => Policy::write(),
            Self::Resend => Policy::keyed(provider::STRIPE),
            Self::Asks { keyed: true, .. } => Policy::keyed(provider::STRIPE).in_doubt(InDoubt::Reconcile),
            Self::Asks { keyed: false, .. } => Policy::write().in_doubt(InDoubt::Reconcile),
        }
    }

    fn is_keyed(self) -> bool {
        matches!(self, Self::Resend | Self::Asks { keyed: true, .. })
    }
}

/// One scene.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scene {
    pub(super) stopped: Stopped,
    guarding: Guarding,
    /// Past the attempt's deadline and the settle delay, else only past the lease.
    long: bool,
    /// Whether the continued execution doesn't know how it ended.
    unsure: bool,
}

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stopped, guarding, long, unsure } = self;
        write!(f, "stopped {}, {guarding:?}, long {long}, unsure {unsure}", stopped.name())
    }
}

impl Scene {
    pub(super) fn all() -> Vec<Self> {
        let asks = [(false, false), (false, true), (true, false), (true, true)];
        let asks = asks.map(|(keyed, tells)| Guarding::Asks { keyed, tells });
        let guardings: Vec<_> = [Guarding::Hold, Guarding::Resend].into_iter().chain(asks).collect();
        let mut all = Vec::new();
        for stopped in [Stopped::BeforeBody, Stopped::BeforeEffect, Stopped::AfterEffect] {
            for &guarding in &guardings {
                for (long, unsure) in [(false, false), (false, true), (true, false), (true, true)] {
                    all.push(Self { stopped, guarding, long, unsure });
                }
            }
        }
        all
    }
}

/// A store whose owner is stopped once its claim is in: it hears of it only when it is continued.
struct Stopping {
    store: MemoryStore,
    gate: Option<Arc<Gate>>,
}

/// Where somebody waits to be let on.
struct Gate {
    reached: Semaphore,
    open: Semaphore,
}

impl Gate {
    fn new() -> Arc<Self> {
        Arc::new(Self { reached: Semaphore::new(0), open: Semaphore::new(0) })
    }

    async fn pass(&self) {
        self.reached.add_permits(1);
        // It is never closed.
        let _ = self.open.acquire().await;
    }
}

impl Store for Stopping {
    fn get<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Versioned>>, StoreError>> {
        self.store.get(keys)
    }

    fn commit(&self, batch: Batch, durability: Durability) -> BoxFuture<'_, Result<Committed, StoreError>> {
        Box::pin(async move {
            let claims = batch.purpose == Purpose::Claim;
            let done = self.store.commit(batch, durability).await;
            if let Some(gate) = self.gate.as_ref().filter(|_| claims) {
                gate.pass().await;
            }
            done
        })
    }

    fn scan<'a>(&'a self, prefix: &'a [u8], from: Option<Key>, most: usize) -> BoxFuture<'a, Result<Page, StoreError>> {
        self.store.scan(prefix, from, most)
    }

    fn identity(&self) -> Identity {
        self.store.identity()
    }

    fn is_exclusive(&self) -> bool {
        false
    }

    fn changed<'a>(&'a self, keys: &'a [Key]) -> Option<BoxFuture<'a, ()>> {
        self.store.changed(keys)
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.store.close()
    }
}

/// A guard with a clock of its own: while a process is stopped, time doesn't pass for it.
struct Owner {
    guard: Guard,
    tools: Registry,
    clock: ManualClock,
}

impl Owner {
    /// `stop` is where its claim or its tool waits.
    async fn new(
        scene: Scene,
        store: &MemoryStore,
        effects: &Effects,
        stop: Option<Arc<Gate>>,
    ) -> anyhow::Result<Self> {
        let clock = ManualClock::new();
        let (of_claim, of_body) = match scene.stopped {
            Stopped::BeforeBody => (stop, None),
            _ => (None, stop),
        };
        let store = Stopping { store: store.clone(), gate: of_claim };
        let guard = Guard::builder(store, "owners").clock(clock.clone()).lease(LEASE).patience(PATIENCE);
        let guard = guard.attempt_deadline(DEADLINE).settle_delay(SETTLE).build().await?;
        let mut tools = Registry::new(&guard);
        let world = effects.clone();
        let schema = json!({"type": "object", "properties": {"order": {"type": "integer"}}});
        let tool = value_tool(CALL, "", schema, scene.guarding.policy(), move |_: Value, attempt: Attempt| {
            let (world, gate) = (world.clone(), of_body.clone());
            async move { pay(scene, &world, gate.as_deref(), &attempt).await }
        });
        let world = effects.clone();
        let tool = match scene.guarding {
            Guarding::Asks { tells, .. } => tool.reconcile(move |_: String, _: LookUp| {
                let found = match world.has(CALL) {
                    _ if !tells => Reconciled::CannotTell,
                    true => Reconciled::Happened(json!("paid")),
                    false => Reconciled::DidNotHappen,
                };
                std::future::ready(Ok(found))
            }),
            _ => tool,
        };
        tools.add(tool)?;
        Ok(Self { guard, tools, clock })
    }

    fn call(&self, run: &Run, turn: u32) -> tokio::task::JoinHandle<Reply> {
        let (tools, run) = (self.tools.clone(), run.clone());
        tokio::spawn(async move { tools.call(&run, Call::new(CALL, r#"{"order": 1}"#).id("a").turn(turn)).await })
    }

    /// Time passes for its heartbeats and waiters.
    async fn pass(&self, time: Duration) {
        let _ = within(&self.clock, time, tokio::spawn(std::future::pending::<()>())).await;
    }
}

/// A tool that keeps the promise: it checks right before it sends.
async fn pay(scene: Scene, effects: &Effects, gate: Option<&Gate>, attempt: &Attempt) -> Result<Value, ToolError> {
    if let Some(gate) = gate.filter(|_| scene.stopped == Stopped::BeforeEffect) {
        gate.pass().await;
    }
    attempt.check().await?;
    effects.happen(CALL, &attempt.downstream_key().hex64());
    if let Some(gate) = gate.filter(|_| scene.stopped == Stopped::AfterEffect) {
        gate.pass().await;
    }
    match scene.unsure && gate.is_some() {
        true => Err(ToolError::unknown("the connection was lost meanwhile")),
        false => Ok(json!("paid")),
    }
}

/// Plays it to its end: in the end the call has its outcome, and its effect happened once.
pub(super) async fn play(scene: &Scene, random: &mut fastrand::Rng, found: &mut Findings) -> anyhow::Result<()> {
    let (store, effects, gate) = (MemoryStore::shared(), Effects::default(), Gate::new());
    let first = Owner::new(*scene, &store, &effects, Some(Arc::clone(&gate))).await?;
    let second = Owner::new(*scene, &store, &effects, None).await?;
    let run = Run::start(&first.guard, "run").await?;
    let call = first.call(&run, 0);
    settle().await;
    ensure!(gate.reached.available_permits() == 1, "the first owner wasn't stopped {}", scene.stopped.name());

    let joined = Run::attach(&second.guard, "run").await?;
    // Who asks at once waits for a living owner; it must be answered all the same.
    let waiter = within(&second.clock, BOUND, second.call(&joined, 0)).await;
    let stopped =
        if scene.long { DEADLINE + SETTLE + LEASE } else { LEASE * 2 } + Duration::from_secs(random.u64(1..50));
    second.pass(stopped).await;
    let late = within(&second.clock, BOUND, second.call(&joined, 0)).await;
    for (who, reply) in [("who waited", &waiter), ("who came late", &late)] {
        match reply {
            Some(reply) => judge_answer(scene, who, reply, &effects, found),
            None => found.add(Kind::Unexplained, format!("{who} wasn't answered within {BOUND:?}")),
        }
    }
    effects.judge(CALL, scene.guarding.is_keyed(), found);

    // Continued: all the time that it missed has passed at once.
    gate.open.add_permits(1);
    first.clock.advance(stopped + PATIENCE);
    let continued = within(&first.clock, BOUND, call).await;
    if continued.is_none() {
        found.add(Kind::Unexplained, "the first caller has no answer");
    }
    settle().await;
    effects.judge(CALL, scene.guarding.is_keyed(), found);
    settle_all(scene, &second, &effects, found).await?;
    end(scene, &first, &run, &second, &joined, &effects, found).await
}

/// Only what can be known is told.
fn judge_answer(scene: &Scene, who: &str, reply: &Reply, effects: &Effects, found: &mut Findings) {
    let carries = result(reply).is_some();
    let explained = match reply.kind() {
        ReplyKind::Executed | ReplyKind::Replayed | ReplyKind::Joined => carries && effects.has(CALL),
        ReplyKind::Running | ReplyKind::InDoubt => !carries,
        // An attempt of its own that the owner had kept from sending, or a re-send without an effect.
        ReplyKind::Failed => !effects.has(CALL) || scene.guarding.is_keyed(),
        _ => false,
    };
    if !explained {
        found.add(Kind::Unexplained, format!("{who} was answered {}: {:.200}", reply.kind(), reply.message()));
    }
}

/// What is in doubt is settled as the ledger says, by a person who looked once nothing can be under way any more.
async fn settle_all(scene: &Scene, owner: &Owner, effects: &Effects, found: &mut Findings) -> anyhow::Result<()> {
    let doubts = owner.guard.inbox().await?;
    // A success is a fact, whenever it comes: then nobody has to be asked.
    let is_known = scene.stopped == Stopped::AfterEffect && !scene.unsure;
    if is_known && !doubts.is_empty() {
        found.add(Kind::Unexplained, "a late success didn't settle the record");
    }
    for doubt in doubts {
        let said = match effects.has(CALL) {
            true => Resolution::Happened(json!("paid")),
            false => Resolution::DidNotHappenForSure,
        };
        owner.guard.resolve(&doubt.reference, said, "it is in the ledger or it isn't").await?;
    }
    Ok(())
}

/// In the end everybody gets one outcome, of one effect.
async fn end(
    scene: &Scene,
    first: &Owner,
    run: &Run,
    second: &Owner,
    joined: &Run,
    effects: &Effects,
    found: &mut Findings,
) -> anyhow::Result<()> {
    for (owner, run) in [(second, joined), (first, run)] {
        // Twice: what is known by now not to have happened is executed by whoever asks next.
        let mut reply = within(&owner.clock, DEADLINE, owner.call(run, 1)).await.context("no answer in the end")?;
        if result(&reply).is_none() {
            reply = within(&owner.clock, DEADLINE, owner.call(run, 1)).await.context("no answer in the end")?;
        }
        if result(&reply) != Some("\"paid\"") {
            let told = format!("in the end the answer is {}: {:.200}", reply.kind(), reply.message());
            found.add(Kind::Lost, told);
        }
        found.acknowledged += 1;
    }
    let count = effects.count(CALL, scene.guarding.is_keyed());
    match count {
        1 => {}
        0 => found.add(Kind::Lost, "an outcome without an effect"),
        _ => found.add(Kind::Twice, format!("{count} effects")),
    }
    if first.guard.incidents() + second.guard.incidents() != 0 {
        found.add(Kind::Twice, "an incident was counted");
    }
    Ok(())
}
