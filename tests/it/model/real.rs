//! The real side: a guard on a store, with tools that do as they are told.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use tokio::sync::oneshot;
use toolonce::store::{
    Batch, BoxFuture, Committed, Durability, Identity, Key, MemoryStore, Page, SledOptions, Store, StoreError,
    Versioned,
};
use toolonce::testing::ManualClock;
use toolonce::{
    Attempt, Call, Clock, ErrorKind, Guard, LookUp, Reconciled, Registry, Reply, Resolution, Run, Seen, ToolError,
    value_tool,
};

use super::tools::{
    ATTEMPT_DEADLINE, Answer, Ask, End, KINDS, Kind, Look, NAMESPACE, PATIENCE, RUN, SETTLE_DELAY, Said, schema,
};

/// An execution that has begun.
#[derive(Debug)]
pub(super) struct Body {
    /// Its number in the ledger.
    pub(super) id: usize,
    pub(super) tool: usize,
    pub(super) key: u8,
    pub(super) content: u8,
    /// What people call its unit of work by: of the downstream key.
    pub(super) reference: String,
    end: Option<oneshot::Sender<End>>,
}

/// The world outside the guard. Everything that happens in it is written down here first.
#[derive(Debug)]
struct World {
    bodies: Vec<Body>,
    look: Look,
    /// Which units of work were asked about.
    look_ups: Vec<String>,
}

/// Where the store is.
enum Place {
    Memory(MemoryStore),
    Disk(tempfile::TempDir),
}

pub(super) struct Real {
    place: Place,
    guard: Guard,
    tools: Registry,
    run: Run,
    pub(super) clock: ManualClock,
    world: Arc<Mutex<World>>,
    pending: Arc<AtomicUsize>,
}

impl Real {
    pub(super) async fn in_memory() -> Self {
        let store = MemoryStore::new();
        Self::begin(Place::Memory(store.clone()), Arc::new(store)).await
    }

    pub(super) async fn on_disk() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = SledOptions::new(directory.path().join("store")).open().await.unwrap();
        Self::begin(Place::Disk(directory), Arc::new(store)).await
    }

    async fn begin(place: Place, store: Arc<dyn Store>) -> Self {
        let (clock, pending) = (ManualClock::new(), Arc::default());
        let world = Arc::new(Mutex::new(World { bodies: Vec::new(), look: Look::CannotTell, look_ups: Vec::new() }));
        let (guard, tools) = open(store, &clock, &world, &pending).await;
        let run = Run::start(&guard, RUN).await.unwrap();
        Self { place, guard, tools, run, clock, world, pending }
    }

    /// The process dies where it is and another one goes on with the run.
    pub(super) async fn crash(&mut self, seen: Seen) {
        self.guard.crash();
        // Sled's lock is given up only by closing; what a kill leaves of the disk is the matter of `cargo chaos kill`.
        let _ = self.guard.shutdown(std::time::Duration::ZERO).await;
        self.settle().await;
        let store: Arc<dyn Store> = match &mut self.place {
            Place::Memory(store) => {
                *store = store.reopen();
                Arc::new(store.clone())
            }
            Place::Disk(directory) => Arc::new(SledOptions::new(directory.path().join("store")).open().await.unwrap()),
        };
        self.world().bodies.iter_mut().for_each(|body| body.end = None);
        (self.guard, self.tools) = open(store, &self.clock, &self.world, &self.pending).await;
        self.run = Run::resume(&self.guard, RUN, seen).await.unwrap();
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// Wall and monotonic time, in milliseconds.
    pub(super) fn time(&self) -> (u64, u64) {
        (self.clock.wall(), u64::try_from(self.clock.monotonic().as_millis()).unwrap())
    }

    pub(super) fn clock_now(&self) -> std::time::Duration {
        self.clock.monotonic()
    }

    /// Lets everything go as far as it gets without time passing.
    pub(super) async fn settle(&self) {
        let mut quiet = 0;
        while quiet < 40 {
            tokio::task::yield_now().await;
            quiet = if self.pending.load(Ordering::SeqCst) == 0 { quiet + 1 } else { 0 };
            if quiet == 0 {
                std::thread::yield_now();
            }
        }
    }

    /// Makes the calls of one message.
    pub(super) fn make(&self, calls: Vec<Call>, together: Option<u32>) -> tokio::task::JoinHandle<Vec<Answer>> {
        let (tools, run) = (self.tools.clone(), self.run.clone());
        tokio::spawn(async move {
            let replies = match together {
                Some(turn) => tools.answer(&run, turn, &calls).await,
                None => {
                    let mut replies = Vec::new();
                    for call in calls {
                        replies.push(tools.call(&run, call).await);
                    }
                    replies
                }
            };
            replies.iter().map(answer).collect()
        })
    }

    /// How many executions have begun.
    pub(super) fn begun(&self) -> usize {
        self.world().bodies.len()
    }

    /// What is known of an execution.
    pub(super) fn body(&self, id: usize) -> (Ask, String) {
        let world = self.world();
        let body = &world.bodies[id];
        let ask = Ask { tool: body.tool, key: body.key, content: body.content, ends: [End::Hangs; 2] };
        (ask, body.reference.clone())
    }

    pub(super) fn look_ups(&self) -> Vec<String> {
        self.world().look_ups.clone()
    }

    pub(super) fn set_look(&self, look: Look) {
        self.world().look = look;
    }

    /// Executions that wait to be told how they end.
    pub(super) fn open_bodies(&self) -> Vec<usize> {
        self.world().bodies.iter().filter(|body| body.end.is_some()).map(|body| body.id).collect()
    }

    pub(super) fn end(&self, id: usize, end: End) {
        let sender = self.world().bodies[id].end.take().unwrap();
        sender.send(end).unwrap();
    }

    pub(super) async fn inbox(&self) -> Vec<String> {
        let mut references: Vec<_> = self.guard.inbox().await.unwrap().into_iter().map(|call| call.reference).collect();
        references.sort();
        references
    }

    /// What a human says, and what the guard says to that.
    pub(super) async fn resolve(&self, reference: &str, said: Said, result: Value) -> Option<ErrorKind> {
        let resolution = match said {
            Said::Happened => Resolution::Happened(result),
            Said::DidNotHappen => Resolution::DidNotHappen,
            Said::DidNotHappenForSure => Resolution::DidNotHappenForSure,
        };
        self.guard.resolve(reference, resolution, "").await.err().map(|error| error.kind())
    }

    pub(super) fn incidents(&self) -> u64 {
        self.guard.incidents()
    }
}

fn answer(reply: &Reply) -> Answer {
    Answer {
        kind: reply.kind(),
        is_marked: reply.is_marked(),
        // What is forgotten is the same as no text: how that is told is the matter of `growth`.
        outcome: reply
            .outcome()
            .map(|outcome| if outcome.is_kept() { outcome.text().to_owned() } else { String::new() }),
    }
}

async fn open(
    store: Arc<dyn Store>,
    clock: &ManualClock,
    world: &Arc<Mutex<World>>,
    pending: &Arc<AtomicUsize>,
) -> (Guard, Registry) {
    let store = Counted { store, pending: Arc::clone(pending) };
    let guard = Guard::builder(store, NAMESPACE)
        .clock(clock.clone())
        .patience(PATIENCE)
        .attempt_deadline(ATTEMPT_DEADLINE)
        .settle_delay(SETTLE_DELAY);
    let guard = guard.build().await.unwrap();
    let mut tools = Registry::new(&guard);
    for (n, kind) in KINDS.iter().enumerate() {
        add(&mut tools, n, kind, world);
    }
    (guard, tools)
}

fn add(tools: &mut Registry, n: usize, kind: &Kind, world: &Arc<Mutex<World>>) {
    let schema = schema();
    let outside = Arc::clone(world);
    let tool = value_tool(kind.name, "", schema, kind.policy(), move |args: Value, attempt: Attempt| {
        let world = Arc::clone(&outside);
        async move { execute(&world, n, &args, &attempt).await }
    });
    let outside = Arc::clone(world);
    let tool = match kind.asks() {
        true => tool.reconcile(move |_args: String, at: LookUp| std::future::ready(look_up(&outside, &at))),
        false => tool,
    };
    tools.add(tool).unwrap();
}

async fn execute(world: &Mutex<World>, tool: usize, args: &Value, attempt: &Attempt) -> Result<Value, ToolError> {
    let number = |name: &str| u8::try_from(args[name].as_u64().unwrap()).unwrap();
    let (id, told) = {
        let (end, told) = oneshot::channel();
        let mut world = world.lock().unwrap();
        let id = world.bodies.len();
        let reference = attempt.downstream_key().reference();
        let (key, content) = (number("key"), number("content"));
        world.bodies.push(Body { id, tool, key, content, reference, end: Some(end) });
        (id, told)
    };
    match told.await {
        Ok(End::Succeeds) => Ok(json!({"execution": id})),
        Ok(End::Retryable) => Err(ToolError::retryable("not now")),
        Ok(End::Permanent) => Err(ToolError::permanent("declined")),
        Ok(End::Panics) => panic!("on purpose"),
        Ok(End::Unknown) | Ok(End::Hangs) | Err(_) => Err(ToolError::unknown("the connection was lost")),
    }
}

fn look_up(world: &Mutex<World>, at: &LookUp) -> Result<Reconciled<Value>, ToolError> {
    let mut world = world.lock().unwrap();
    let n = world.look_ups.len();
    world.look_ups.push(at.downstream_key().reference());
    match world.look {
        Look::Happened => Ok(Reconciled::Happened(json!({"look_up": n}))),
        Look::DidNotHappen => Ok(Reconciled::DidNotHappen),
        Look::CannotTell => Ok(Reconciled::CannotTell),
        Look::Fails => Err(ToolError::unknown("no connection")),
    }
}

/// Counts what a store is busy with, so that a test knows when nothing moves any more.
struct Counted {
    store: Arc<dyn Store>,
    pending: Arc<AtomicUsize>,
}

struct Busy<'a>(&'a AtomicUsize);

impl<'a> Busy<'a> {
    fn new(pending: &'a AtomicUsize) -> Self {
        pending.fetch_add(1, Ordering::SeqCst);
        Self(pending)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Store for Counted {
    fn get<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Versioned>>, StoreError>> {
        Box::pin(async move {
            let _busy = Busy::new(&self.pending);
            self.store.get(keys).await
        })
    }

    fn commit(&self, batch: Batch, durability: Durability) -> BoxFuture<'_, Result<Committed, StoreError>> {
        Box::pin(async move {
            let _busy = Busy::new(&self.pending);
            self.store.commit(batch, durability).await
        })
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a [u8],
        from: Option<Key>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page, StoreError>> {
        Box::pin(async move {
            let _busy = Busy::new(&self.pending);
            self.store.scan(prefix, from, limit).await
        })
    }

    fn identity(&self) -> Identity {
        self.store.identity()
    }

    fn is_exclusive(&self) -> bool {
        self.store.is_exclusive()
    }

    fn changed<'a>(&'a self, keys: &'a [Key]) -> Option<BoxFuture<'a, ()>> {
        self.store.changed(keys)
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.store.close()
    }
}
