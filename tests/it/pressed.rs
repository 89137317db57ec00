//! What a guard withstands: slow and failing stores, impatient callers, long runs, large and odd calls.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use toolonce::store::{
    Batch, BoxFuture, Committed, Durability, Identity, Key, MemoryStore, Page, Purpose, Store, StoreError,
    StoreErrorKind, Versioned,
};
use toolonce::testing::{FaultKind, FaultOn, FaultyStore, ManualClock};
use toolonce::{
    Attempt, Guard, KeyWindow, Policy, Registry, Repeat, Reply, ReplyKind, Run, Seen, ToolError, value_tool,
};

use crate::bench::{call, shop};

const SECOND: Duration = Duration::from_secs(1);

/// A guard with one tool `t`, on the system's clock; effects are counted outside of it.
struct Bench {
    guard: Guard,
    tools: Registry,
    run: Run,
    effects: Arc<AtomicUsize>,
}

impl Bench {
    /// `body` is given the number of the execution, from 0.
    async fn new<F>(
        store: impl Store,
        policy: Policy,
        body: impl Fn(usize, Attempt) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Value, ToolError>> + Send + 'static,
    {
        let guard = Guard::builder(store, "bench").build().await.unwrap();
        let effects = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&effects);
        let mut tools = Registry::new(&guard);
        let tool = value_tool("t", "", json!({"type": "object"}), policy, move |_: Value, at: Attempt| {
            body(counted.fetch_add(1, Ordering::SeqCst), at)
        });
        tools.add(tool).unwrap();
        let run = Run::start(&guard, "r").await.unwrap();
        Self { guard, tools, run, effects }
    }

    fn call(&self, turn: u32, patience: Duration) -> impl Future<Output = Reply> {
        self.tools.call(&self.run, call("t", &json!({"n": 1})).turn(turn).patience(patience))
    }

    fn effects(&self) -> usize {
        self.effects.load(Ordering::SeqCst)
    }
}

async fn number(n: usize) -> Result<Value, ToolError> {
    Ok(json!(n))
}

/// A store whose first commits of ends take their time and fail as planned.
struct SlowEnds {
    store: MemoryStore,
    ends: AtomicUsize,
    plan: Vec<(Duration, bool)>,
}

impl SlowEnds {
    fn new(plan: Vec<(Duration, bool)>) -> Self {
        Self { store: MemoryStore::new(), ends: AtomicUsize::new(0), plan }
    }
}

impl Store for SlowEnds {
    fn get<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Versioned>>, StoreError>> {
        self.store.get(keys)
    }

    fn commit(&self, batch: Batch, durability: Durability) -> BoxFuture<'_, Result<Committed, StoreError>> {
        Box::pin(async move {
            if batch.purpose == Purpose::Complete
                && let Some((delay, works)) = self.plan.get(self.ends.fetch_add(1, Ordering::SeqCst))
            {
                tokio::time::sleep(*delay).await;
                if !works {
                    return Err(StoreError::new(StoreErrorKind::Unavailable, "on purpose"));
                }
            }
            self.store.commit(batch, durability).await
        })
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a [u8],
        from: Option<Key>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page, StoreError>> {
        self.store.scan(prefix, from, limit)
    }

    fn identity(&self) -> Identity {
        self.store.identity()
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.store.close()
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_that_is_being_recorded_late_is_no_orphan() {
    // The end fails to be recorded; then one caller's second try hangs while another caller comes along.
    for works in [true, false] {
        let store = SlowEnds::new(vec![(Duration::ZERO, false), (SECOND, works)]);
        let bench = Bench::new(store, Policy::write(), |n, _| number(n)).await;
        assert_eq!(bench.call(0, SECOND * 60).await.kind(), ReplyKind::Unrecorded);
        let (second, third) = tokio::join!(bench.call(1, SECOND * 60), bench.call(2, SECOND * 60));
        for reply in [second, third] {
            assert_eq!(reply.outcome().map(|outcome| outcome.text()), Some("0"), "{reply:?}");
        }
        assert_eq!(bench.effects(), 1);
        assert_eq!(bench.guard.shutdown(SECOND).await.unwrap().unfinished, 0);
    }
}

#[tokio::test]
async fn a_caller_without_patience_starts_it() {
    let bench = Bench::new(MemoryStore::new(), Policy::write(), |n, _| number(n)).await;
    let reply = bench.call(0, Duration::ZERO).await;
    assert!(matches!(reply.kind(), ReplyKind::Running | ReplyKind::Executed), "{reply:?}");
    let reply = bench.call(0, SECOND * 60).await;
    assert_eq!(reply.outcome().map(|outcome| outcome.text()), Some("0"), "{reply:?}");
    assert_eq!(bench.effects(), 1);
}

#[tokio::test]
async fn an_endless_retry_after_is_a_failure_like_any_other() {
    for delay in [Duration::from_millis(u64::MAX), Duration::MAX] {
        let busy = move |_, _| std::future::ready(Err(ToolError::retryable("busy").retry_after(delay)));
        let bench = Bench::new(MemoryStore::new(), Policy::write(), busy).await;
        assert_eq!(bench.call(0, SECOND).await.kind(), ReplyKind::Failed);
        assert_eq!(bench.effects(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_result_that_is_forgotten_at_once_is_recorded() {
    let body = async |n: usize| {
        tokio::time::sleep(if n == 0 { SECOND } else { Duration::ZERO }).await;
        Ok(json!(format!("{n}{}", "x".repeat(5000))))
    };
    let bench = Bench::new(MemoryStore::new(), Policy::write().repeat(Repeat::Each), move |n, _| body(n)).await;
    let calls: Vec<_> = (0..80).map(|n| call("t", &json!({"n": 1})).id(format!("c{n}"))).collect();
    for reply in bench.tools.answer(&bench.run, 0, &calls).await {
        assert_eq!(reply.kind(), ReplyKind::Executed, "{reply:?}");
    }
    assert_eq!(bench.effects(), 80);
}

#[tokio::test]
async fn a_tool_that_calls_itself_through_another_one_is_told_so() {
    let guard = Guard::builder(MemoryStore::new(), "bench").build().await.unwrap();
    let mut tools = Registry::new(&guard);
    let all: Arc<OnceLock<(Registry, Run)>> = Arc::default();
    for (name, other) in [("a", "b"), ("b", "a")] {
        let all = Arc::clone(&all);
        let body = move |_: Value, _: Attempt| {
            let all = Arc::clone(&all);
            async move {
                let (tools, run) = all.get().unwrap();
                Ok(json!(tools.call(run, call(other, &json!({"n": 1}))).await.message()))
            }
        };
        tools.add(value_tool(name, "", json!({"type": "object"}), Policy::write(), body)).unwrap();
    }
    let run = Run::start(&guard, "r").await.unwrap();
    all.set((tools.clone(), run.clone())).unwrap();
    let asked = tokio::time::timeout(SECOND * 10, tools.call(&run, call("a", &json!({"n": 1})))).await;
    let reply = asked.expect("it waits for itself");
    assert!(reply.message().contains("inside itself"), "{reply:?}");
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_although_the_store_hangs() {
    let store = FaultyStore::new(Arc::new(MemoryStore::new()));
    let bench = Bench::new(store.clone(), Policy::write(), |n, _| number(n)).await;
    bench.call(0, SECOND).await;
    store.pause();
    let closing = tokio::time::timeout(SECOND * 60, bench.guard.shutdown(SECOND)).await;
    assert!(closing.is_ok(), "it waits for a store that hangs");
}

#[tokio::test(start_paused = true)]
async fn what_was_started_is_not_called_not_started_when_the_store_fails() {
    let store = FaultyStore::new(Arc::new(MemoryStore::shared()));
    let failing = store.clone();
    let body = move |_, _| {
        let store = failing.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            store.fault(FaultOn::All, FaultKind::Unavailable, None);
        });
        std::future::ready(Err(ToolError::unknown("the connection was lost")))
    };
    let bench = Bench::new(store, Policy::keyed(KeyWindow::Permanent), body).await;
    let reply = bench.call(0, SECOND * 60).await;
    assert_eq!(reply.kind(), ReplyKind::InDoubt, "{reply:?}");
}

#[tokio::test]
async fn a_write_that_its_turn_did_not_make_is_held_although_its_outcome_is_at_hand() {
    let bench = Bench::new(MemoryStore::new(), Policy::write(), |n, _| number(n)).await;
    let calls = [[call("t", &json!({"n": 1}))], [call("t", &json!({"n": 2}))]];
    bench.tools.answer(&bench.run, 0, &calls[0]).await;
    bench.tools.answer(&bench.run, 1, &calls[1]).await;
    let other = bench.tools.answer(&bench.run, 1, &calls[0]).await;
    assert_eq!(other[0].kind(), ReplyKind::Diverged, "{other:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_resumes_at_once_the_later_one_goes_on() {
    let bench = Bench::new(MemoryStore::new(), Policy::write(), |n, _| number(n)).await;
    for n in 0..300 {
        let id = format!("r{n}");
        Run::start(&bench.guard, &id).await.unwrap();
        let resume = || {
            let (guard, id) = (bench.guard.clone(), id.clone());
            tokio::spawn(async move { Run::resume(&guard, id, Seen::Nothing).await.unwrap() })
        };
        let (one, other) = (resume(), resume());
        let mut runs = [one.await.unwrap(), other.await.unwrap()];
        runs.sort_by_key(Run::epoch);
        assert_eq!(runs.each_ref().map(Run::epoch), [1, 2]);
        let reply = bench.tools.call(&runs[1], call("t", &json!({"n": 1})).turn(0)).await;
        assert_eq!(reply.kind(), ReplyKind::Executed, "{reply:?}");
        let reply = bench.tools.call(&runs[0], call("t", &json!({"n": 2})).turn(0)).await;
        assert_eq!(reply.kind(), ReplyKind::Refused, "{reply:?}");
    }
}

#[tokio::test]
async fn of_many_reads_the_newest_are_redelivered_whatever_their_length() {
    let body = |n: usize, _| number_of_length(n, [10, 2000, 100_000][n % 3]);
    let bench = Bench::new(MemoryStore::new(), Policy::read_only(), body).await;
    let calls = [call("t", &json!({"n": 1}))];
    let mut given = Vec::new();
    for turn in 0..200 {
        given.push(bench.tools.answer(&bench.run, turn, &calls).await[0].message().to_owned());
    }
    for turn in 150..200 {
        let again = bench.tools.answer(&bench.run, turn, &calls).await;
        assert!(again[0].message() == given[turn as usize], "turn {turn}: {:.100}", again[0].message());
    }
}

async fn number_of_length(n: usize, length: usize) -> Result<Value, ToolError> {
    Ok(json!(format!("{n} {}", "x".repeat(length))))
}

#[tokio::test]
async fn what_there_is_no_room_to_record_is_not_started() {
    let bench = Bench::new(MemoryStore::new(), Policy::write().repeat(Repeat::Each), |n, _| number(n)).await;
    let calls: Vec<_> = (0..1000).map(|n| call("t", &json!({"n": 1})).id(format!("call_{n:024}"))).collect();
    let replies = bench.tools.answer(&bench.run, 0, &calls).await;
    let executed = replies.iter().filter(|reply| reply.kind() == ReplyKind::Executed).count();
    assert_eq!(bench.effects(), executed);
    for reply in replies.iter().filter(|reply| reply.kind() != ReplyKind::Executed) {
        assert!(reply.kind() == ReplyKind::Refused && reply.message().contains("no room"), "{reply:?}");
    }
    assert!(executed > 100, "{executed}");
}

#[tokio::test]
async fn arguments_too_long_to_be_kept_are_executed_all_the_same() {
    let bench = Bench::new(MemoryStore::new(), Policy::keyed(KeyWindow::Permanent), |n, _| number(n)).await;
    let long = call("t", &json!({"n": "x".repeat(100_000)}));
    let reply = bench.tools.call(&bench.run, long).await;
    assert_eq!(reply.kind(), ReplyKind::Executed, "{reply:?}");
    assert_eq!(bench.effects(), 1);
}

#[tokio::test]
async fn long_names_and_ids_are_no_hindrance() {
    let bench = Bench::new(MemoryStore::new(), Policy::write(), |n, _| number(n)).await;
    let calls = [
        call("t", &json!({"x".repeat(100_000): 1})).turn(0),
        call("t", &json!({"n": 1})).id("i".repeat(70_000)).turn(0),
        call("t", &json!({"n": 1})).id("i".repeat(70_000)).turn(0),
    ];
    for (call, effects) in calls.into_iter().zip([1, 2, 2]) {
        let reply = bench.tools.call(&bench.run, call).await;
        assert!(reply.outcome().is_some() && !reply.is_marked(), "{reply:?}");
        assert_eq!(bench.effects(), effects);
    }
}

#[tokio::test]
async fn a_success_that_a_look_up_told_first_is_no_incident() {
    let shop = shop().await;
    let run = shop.run("r").await;
    let asks = || call("slow_asks", &json!({"n": 1}));
    let first = tokio::spawn({
        let (tools, run) = (shop.tools.clone(), run.clone());
        async move { tools.call(&run, asks().turn(0)).await }
    });
    shop.begun().await;
    shop.pass(SECOND * 601).await;
    first.await.unwrap();
    shop.ledger.write(r#"slow_asks {"n":1}"#); // the effect shows before its body ends
    let second = shop.tools.call(&run, asks().turn(1)).await;
    assert_eq!(second.outcome().map(|outcome| outcome.text()), Some(r#""found""#), "{second:?}");
    shop.gate.add_permits(1);
    shop.settle().await;
    assert_eq!(shop.guard.incidents(), 0);
}

/// A store whose second read finds the record claimed, and returns when all is over.
#[derive(Clone, Default)]
struct StaleRead(Arc<Stale>);

#[derive(Default)]
struct Stale {
    store: MemoryStore,
    reads: AtomicUsize,
    /// Each is told of once: that the second read has begun, the claim is in, the call is answered.
    begun: Notify,
    claimed: Notify,
    over: Notify,
}

impl Store for StaleRead {
    fn get<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Versioned>>, StoreError>> {
        Box::pin(async move {
            if self.0.reads.fetch_add(1, Ordering::SeqCst) != 1 {
                return self.0.store.get(keys).await;
            }
            self.0.begun.notify_one();
            self.0.claimed.notified().await;
            let read = self.0.store.get(keys).await;
            self.0.over.notified().await;
            read
        })
    }

    fn commit(&self, batch: Batch, durability: Durability) -> BoxFuture<'_, Result<Committed, StoreError>> {
        Box::pin(async move {
            if batch.purpose != Purpose::Claim {
                return self.0.store.commit(batch, durability).await;
            }
            self.0.begun.notified().await;
            let committed = self.0.store.commit(batch, durability).await;
            self.0.claimed.notify_one();
            committed
        })
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a [u8],
        from: Option<Key>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page, StoreError>> {
        self.0.store.scan(prefix, from, limit)
    }

    fn identity(&self) -> Identity {
        self.0.store.identity()
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.0.store.close()
    }
}

#[tokio::test(start_paused = true)]
async fn who_read_that_it_runs_when_it_has_ended_waits_for_nothing() {
    let store = StaleRead::default();
    let clock = ManualClock::new();
    let guard = Guard::builder(store.clone(), "bench").clock(clock.clone()).build().await.unwrap();
    let mut tools = Registry::new(&guard);
    let body = |_: Value, _: Attempt| number(7);
    tools.add(value_tool("t", "", json!({"type": "object"}), Policy::idempotent(), body)).unwrap();
    let run = Run::start(&guard, "r").await.unwrap();
    store.0.reads.store(0, Ordering::SeqCst);
    let deliver = || tools.call(&run, call("t", &json!({"n": 1})).turn(0).id("c"));
    let first = async {
        let reply = deliver().await;
        store.0.over.notify_one();
        reply
    };
    // The guard's clock stands still: whoever sleeps by it waits for ever.
    let both = tokio::time::timeout(SECOND * 60, async { tokio::join!(first, deliver()) }).await;
    let (first, second) = both.expect("it waits for a change that has been");
    assert_eq!(first.kind(), ReplyKind::Executed, "{first:?}");
    assert_eq!(second.outcome().map(|outcome| outcome.text()), Some("7"), "{second:?}");
    assert_eq!(store.0.reads.load(Ordering::SeqCst), 2, "the second read was the stale one");
}
