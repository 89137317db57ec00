//! What a guard does while its store doesn't work, beside what the scenarios say.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use toolonce::store::MemoryStore;
use toolonce::testing::{FaultKind, FaultOn, FaultyStore};
use toolonce::{Attempt, Guard, Policy, Registry, Reply, ReplyKind, Run, StoreDown, ToolError, value_tool};

use crate::bench::call;

/// A guard with a tool of each effect on a store that can be made to fail; effects are counted outside of it.
struct Bench {
    store: FaultyStore,
    guard: Guard,
    tools: Registry,
    run: Run,
    effects: Arc<AtomicUsize>,
}

impl Bench {
    async fn new<F>(down: StoreDown, body: impl Fn(usize, Attempt) -> F + Clone + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Value, ToolError>> + Send + 'static,
    {
        let store = FaultyStore::new(Arc::new(MemoryStore::new()));
        let guard = Guard::builder(store.clone(), "bench").store_down(down).build().await.unwrap();
        let effects = Arc::new(AtomicUsize::new(0));
        let mut tools = Registry::new(&guard);
        for (name, policy) in [("write", Policy::write()), ("set", Policy::idempotent()), ("read", Policy::read_only())]
        {
            let (body, counted) = (body.clone(), Arc::clone(&effects));
            let run = move |_: Value, at: Attempt| body(counted.fetch_add(1, Ordering::SeqCst), at);
            tools.add(value_tool(name, "", json!({"type": "object"}), policy, run)).unwrap();
        }
        let run = Run::start(&guard, "r").await.unwrap();
        Self { store, guard, tools, run, effects }
    }

    fn fail(&self, kind: FaultKind) {
        self.store.fault(FaultOn::All, kind, None);
    }

    async fn call(&self, tool: &str, turn: u32) -> Reply {
        self.tools.call(&self.run, call(tool, &json!({"n": 1})).turn(turn).id("c")).await
    }

    async fn expect(&self, tool: &str, turn: u32, kind: ReplyKind, text: &str) {
        let reply = self.call(tool, turn).await;
        assert_eq!(reply.kind(), kind, "{tool} in turn {turn}: {reply:?}");
        let came = reply.outcome().map_or("", |outcome| outcome.text());
        assert_eq!(came, text, "{tool} in turn {turn}: {reply:?}");
    }

    fn effects(&self) -> usize {
        self.effects.load(Ordering::SeqCst)
    }
}

async fn number(n: usize) -> Result<Value, ToolError> {
    Ok(json!(n))
}

#[tokio::test]
async fn by_default_reads_run_and_nothing_else() {
    let bench = Bench::new(StoreDown::default(), |n, _| number(n)).await;
    bench.fail(FaultKind::Unavailable);
    for tool in ["write", "set"] {
        bench.expect(tool, 0, ReplyKind::Refused, "").await;
    }
    bench.expect("read", 0, ReplyKind::Executed, "0").await;
    assert_eq!(bench.effects(), 1);
}

#[tokio::test]
async fn a_guard_may_refuse_reads_too() {
    let bench = Bench::new(StoreDown::RefuseAll, |n, _| number(n)).await;
    bench.fail(FaultKind::Full);
    for tool in ["write", "set", "read"] {
        bench.expect(tool, 0, ReplyKind::Refused, "").await;
    }
    assert_eq!(bench.effects(), 0);
}

#[tokio::test]
async fn an_unguarded_write_is_told_as_such_and_recorded_later() {
    let bench = Bench::new(StoreDown::RunUnguarded, |n, _| number(n)).await;
    bench.fail(FaultKind::Unavailable);
    bench.expect("write", 0, ReplyKind::Unrecorded, "0").await;
    bench.expect("write", 0, ReplyKind::Unrecorded, "0").await;
    bench.expect("write", 1, ReplyKind::Unrecorded, "0").await;
    bench.store.clear();
    let again = bench.call("write", 0).await;
    assert!(again.kind() == ReplyKind::Replayed && !again.is_marked(), "{again:?}");
    let later = bench.call("write", 2).await;
    assert!(later.kind() == ReplyKind::Replayed && later.is_marked(), "{later:?}");
    assert_eq!((bench.effects(), bench.guard.incidents()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn equal_unguarded_calls_at_once_run_once_in_this_process() {
    let body = async |n: usize| {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(json!(n))
    };
    let bench = Bench::new(StoreDown::RunUnguarded, move |n, _| body(n)).await;
    bench.fail(FaultKind::Unavailable);
    let (one, other) = tokio::join!(bench.call("write", 0), bench.call("write", 1));
    for reply in [one, other] {
        assert_eq!(reply.kind(), ReplyKind::Unrecorded, "{reply:?}");
    }
    assert_eq!(bench.effects(), 1);
}

#[tokio::test]
async fn an_unguarded_write_that_ends_unknown_is_in_doubt_then_and_later() {
    let lost = |_, _| std::future::ready(Err(ToolError::unknown("the connection was lost")));
    let bench = Bench::new(StoreDown::RunUnguarded, lost).await;
    bench.fail(FaultKind::Unavailable);
    let reply = bench.call("write", 0).await;
    bench.expect("write", 0, ReplyKind::InDoubt, "").await;
    bench.store.clear();
    bench.expect("write", 1, ReplyKind::InDoubt, "").await;
    let inbox = bench.guard.inbox().await.unwrap();
    assert_eq!(inbox.len(), 1, "{inbox:?}");
    assert_eq!((reply.kind(), reply.reference()), (ReplyKind::InDoubt, Some(inbox[0].reference.as_str())));
    assert_eq!(bench.effects(), 1);
}

#[tokio::test]
async fn an_unguarded_write_that_failed_cleanly_may_run_again() {
    let busy = |_, _| std::future::ready(Err(ToolError::permanent("declined")));
    let bench = Bench::new(StoreDown::RunUnguarded, busy).await;
    bench.fail(FaultKind::Unavailable);
    for effects in 1..3 {
        bench.expect("write", 0, ReplyKind::Failed, "").await;
        assert_eq!(bench.effects(), effects);
    }
}

#[tokio::test]
async fn records_that_cannot_be_read_are_no_reason_to_run_anything() {
    let bench = Bench::new(StoreDown::RunUnguarded, |n, _| number(n)).await;
    bench.fail(FaultKind::Corrupt);
    bench.expect("write", 0, ReplyKind::Refused, "").await;
    assert_eq!(bench.effects(), 0);
}

#[tokio::test]
async fn a_claim_that_may_exist_is_not_run_unguarded() {
    for applied in [true, false] {
        let bench = Bench::new(StoreDown::RunUnguarded, |n, _| number(n)).await;
        bench.store.fault(FaultOn::Claim, FaultKind::SyncError { applied }, None);
        bench.expect("write", 0, ReplyKind::Refused, "").await;
        assert_eq!(bench.effects(), 0);
        bench.store.clear();
        bench.expect("write", 0, ReplyKind::Executed, "0").await;
    }
}

#[tokio::test]
async fn a_second_execution_that_comes_to_light_is_counted() {
    let store = MemoryStore::shared();
    let faulty = FaultyStore::new(Arc::new(store.clone()));
    let mut shops = Vec::new();
    let effects = Arc::new(AtomicUsize::new(0));
    for store in [FaultyStore::new(Arc::new(store)), faulty.clone()] {
        let guard = Guard::builder(store, "bench").store_down(StoreDown::RunUnguarded).build().await.unwrap();
        let mut tools = Registry::new(&guard);
        let counted = Arc::clone(&effects);
        let body = move |_: Value, _: Attempt| number(counted.fetch_add(1, Ordering::SeqCst));
        tools.add(value_tool("write", "", json!({"type": "object"}), Policy::write(), body)).unwrap();
        let run = match Run::start(&guard, "r").await {
            Ok(run) => run,
            Err(_) => Run::attach(&guard, "r").await.unwrap(),
        };
        shops.push((guard, tools, run));
    }
    faulty.fault(FaultOn::All, FaultKind::Unavailable, None);
    for (_, tools, run) in &shops {
        tools.call(run, call("write", &json!({"n": 1})).turn(0).id("c")).await;
    }
    assert_eq!(effects.load(Ordering::SeqCst), 2, "what the setting allows");
    faulty.clear();
    let (guard, tools, run) = &shops[1];
    let reply = tools.call(run, call("write", &json!({"n": 1})).turn(0).id("c")).await;
    assert_eq!(reply.outcome().map(|outcome| outcome.text()), Some("0"), "{reply:?}");
    assert_eq!(guard.incidents(), 1);
}
