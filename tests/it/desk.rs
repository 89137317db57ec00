//! A guard with tools of any policy, their effects counted outside of it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use toolonce::store::{MemoryStore, Store};
use toolonce::testing::ManualClock;
use toolonce::{Attempt, Call, Guard, Policy, Registry, Reply, Run, ToolError, value_tool};

/// What the world keeps while guards come and go.
#[derive(Clone, Default)]
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    effects: Arc<Mutex<Vec<(String, Value)>>>,
    /// What the next executions fail with, before they have an effect.
    failures: Arc<Mutex<VecDeque<ToolError>>>,
}

pub(crate) struct Desk {
    pub(crate) guard: Guard,
    pub(crate) tools: Registry,
    pub(crate) world: World,
    /// Tools added by [`slow`](Self::slow) wait for a permit before their effect.
    pub(crate) gate: Arc<Semaphore>,
}

impl Desk {
    /// A guard on a fresh store.
    pub(crate) async fn new() -> Self {
        Self::on(MemoryStore::new(), World::default()).await
    }

    pub(crate) async fn on(store: impl Store, world: World) -> Self {
        let guard = Guard::builder(store, "desk").clock(world.clock.clone()).build().await.unwrap();
        Self { tools: Registry::new(&guard), guard, world, gate: Arc::new(Semaphore::new(0)) }
    }

    /// Adds a tool that takes any object.
    pub(crate) fn with(self, name: &str, policy: Policy) -> Self {
        self.with_schema(name, policy, json!({"type": "object"}))
    }

    pub(crate) fn with_schema(self, name: &str, policy: Policy, schema: Value) -> Self {
        let open = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        self.add(name, policy, schema, open)
    }

    /// Adds a tool that waits at the gate.
    pub(crate) fn slow(self, name: &str, policy: Policy) -> Self {
        let gate = Arc::clone(&self.gate);
        self.add(name, policy, json!({"type": "object"}), gate)
    }

    /// The tool returns `{"n": …}`, the number of effects before this one; its look-up finds what happened.
    fn add(mut self, name: &str, policy: Policy, schema: Value, gate: Arc<Semaphore>) -> Self {
        let (world, own) = (self.world.clone(), name.to_owned());
        let body = move |args: Value, _: Attempt| {
            let (world, own, gate) = (world.clone(), own.clone(), Arc::clone(&gate));
            async move {
                let _passed = gate.acquire().await.unwrap();
                if let Some(error) = world.failures.lock().unwrap().pop_front() {
                    return Err(error);
                }
                let mut effects = world.effects.lock().unwrap();
                effects.push((own, args));
                Ok(json!({"n": effects.len() - 1}))
            }
        };
        self.tools.add(value_tool(name, "", schema, policy, body)).unwrap();
        self
    }

    pub(crate) fn fails_with(&self, error: ToolError) {
        self.world.failures.lock().unwrap().push_back(error);
    }

    /// The arguments of each effect of `tool`.
    pub(crate) fn effects(&self, tool: &str) -> Vec<Value> {
        let effects = self.world.effects.lock().unwrap();
        effects.iter().filter(|(of, _)| of == tool).map(|(_, args)| args.clone()).collect()
    }

    pub(crate) fn count(&self, tool: &str) -> usize {
        self.effects(tool).len()
    }

    pub(crate) async fn run(&self, id: &str) -> Run {
        Run::start(&self.guard, id).await.unwrap()
    }

    /// A call whose caller waits in a task of its own; it has gone as far as it gets without time passing.
    pub(crate) async fn begin(&self, run: &Run, call: Call) -> JoinHandle<Reply> {
        let (tools, run) = (self.tools.clone(), run.clone());
        let waits = tokio::spawn(async move { tools.call(&run, call).await });
        self.settle().await;
        waits
    }

    /// A call whose caller waits until its patience ends, if it must.
    pub(crate) async fn ask(&self, run: &Run, call: Call) -> Reply {
        let waits = self.begin(run, call).await;
        if !waits.is_finished() {
            self.pass(Duration::from_secs(61)).await;
        }
        waits.await.unwrap()
    }

    /// The reference of the only call that waits for permission.
    pub(crate) async fn question(&self) -> String {
        let mut all = self.guard.approvals().await.unwrap();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0).reference
    }

    pub(crate) async fn settle(&self) {
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) async fn pass(&self, time: Duration) {
        self.settle().await;
        self.world.clock.advance(time);
        self.settle().await;
    }
}
