//! Retention: what is removed, what never is, and what a removed run is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use toolonce::store::{MemoryStore, Store};
use toolonce::testing::{FaultKind, FaultOn, FaultyStore};
use toolonce::{
    Attempt, Error, ErrorKind, GcClock, GcOptions, GcReport, Policy, Registry, ReplyKind, Resolution, Run, Scope, Seen,
    value_tool,
};

use crate::bench::{Ledger, Shop, call};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn trusted() -> GcOptions {
    GcOptions::new().clock(GcClock::Trusted)
}

async fn gc(shop: &Shop) -> GcReport {
    shop.guard.gc(trusted()).await.unwrap()
}

/// The kinds of all keys in the store, as `rows` names them.
pub(crate) async fn kinds(store: &dyn Store) -> String {
    let page = store.scan(b"", None, 10_000).await.unwrap();
    page.items.iter().map(|(key, _)| char::from(key.as_bytes()[8])).collect()
}

/// A run that leaves a row of every kind: a record with a short and one with a long result (which reopens another tool),
/// a read, a manifest, a step.
pub(crate) async fn full_run(shop: &Shop, id: &str) -> Run {
    let run = shop.run(id).await;
    let _: u32 = run.step("model", "q", || async { Ok(7) }).await.unwrap();
    let calls = [call("charge", &json!({"cents": 1})), call("big", &json!({"n": 9000})), call("look", &json!({}))];
    for reply in shop.tools.answer(&run, 0, &calls).await {
        assert_eq!(reply.kind(), ReplyKind::Executed, "{reply:?}");
    }
    shop.settle().await;
    run
}

#[tokio::test]
async fn a_run_goes_with_all_it_has_and_leaves_a_tombstone() {
    let store = MemoryStore::new();
    let shop = Shop::open(store.clone()).await;
    let run = full_run(&shop, "r").await;
    assert_eq!(kinds(&store).await, "bbbciiilmprsttxx");
    shop.pass(DAY * 29).await;
    assert_eq!(gc(&shop).await, GcReport::default());
    shop.pass(DAY).await;
    let report = gc(&shop).await;
    assert_eq!((report.runs, report.records, report.unresolved), (1, 3, 0));
    assert_eq!(kinds(&store).await, "r");

    let charge = || call("charge", &json!({"cents": 1}));
    for reply in [
        shop.tools.call(&run, charge().turn(1)).await,
        shop.tools.call(&run, call("look", &json!({})).turn(1)).await,
        shop.tools.answer(&run, 0, &[charge()]).await.remove(0),
    ] {
        assert_eq!(reply.kind(), ReplyKind::Refused, "{reply:?}");
        assert!(reply.message().contains("removed"), "{reply:?}");
    }
    let kind = |error: Result<Run, Error>| error.unwrap_err().kind();
    assert_eq!(kind(Run::start(&shop.guard, "r").await), ErrorKind::RunPurged);
    assert_eq!(kind(Run::attach(&shop.guard, "r").await), ErrorKind::RunPurged);
    assert_eq!(kind(Run::resume(&shop.guard, "r", Seen::Nothing).await), ErrorKind::RunPurged);
    assert_eq!(kind(Run::start_or_resume(&shop.guard, "r", Seen::Nothing).await), ErrorKind::RunPurged);
    assert_eq!(kind(run.fork("f", 1).await), ErrorKind::RunPurged);
    assert_eq!(run.step("model", "q", || async { Ok(8) }).await.unwrap_err().kind(), ErrorKind::RunPurged);
    assert_eq!((shop.ledger.count("charge"), shop.ledger.count("look")), (1, 1));
    // What is said to have been shown after all is nobody's business any more.
    shop.settle().await;
    assert_eq!(kinds(&store).await, "r");
    assert_eq!(gc(&shop).await, GcReport::default());
}

#[tokio::test]
async fn an_expired_run_answers_until_it_is_removed() {
    let shop = crate::bench::shop().await;
    let run = full_run(&shop, "r").await;
    shop.pass(DAY * 400).await;
    let again = shop.tools.call(&run, call("charge", &json!({"cents": 1})).turn(1)).await;
    assert_eq!((again.kind(), again.is_marked()), (ReplyKind::Replayed, true));
    // And that was a sign of life.
    shop.settle().await;
    assert_eq!(gc(&shop).await, GcReport::default());
}

#[tokio::test]
async fn a_step_is_a_sign_of_life() {
    let shop = crate::bench::shop().await;
    let run = full_run(&shop, "r").await;
    shop.pass(DAY * 29).await;
    let _: u32 = run.step("model", "q2", || async { Ok(1) }).await.unwrap();
    shop.pass(DAY * 29).await;
    assert_eq!(gc(&shop).await, GcReport::default());
    shop.pass(DAY * 2).await;
    assert_eq!(gc(&shop).await.runs, 1);
}

#[tokio::test]
async fn what_is_not_settled_stays_and_its_run_with_it() {
    let shop = crate::bench::shop().await;
    let run = full_run(&shop, "r").await;
    let unsure = shop.tools.call(&run, call("unsure", &json!({"n": 1})).turn(1)).await;
    assert_eq!(unsure.kind(), ReplyKind::InDoubt);
    shop.pass(DAY * 300).await;
    let report = gc(&shop).await;
    assert_eq!((report.runs, report.records, report.unresolved), (0, 0, 1));
    let reference = unsure.reference().unwrap();
    shop.guard.resolve(reference, Resolution::Happened(json!("found")), "looked").await.unwrap();
    assert_eq!(gc(&shop).await, GcReport::default(), "the answer was a sign of life");
    shop.pass(DAY * 31).await;
    assert_eq!(gc(&shop).await.runs, 1);
}

#[tokio::test]
async fn a_call_that_runs_keeps_its_run_and_ends_as_any_other() {
    let shop = crate::bench::shop().await;
    let run = full_run(&shop, "r").await;
    let (tools, other) = (shop.tools.clone(), run.clone());
    let running = tokio::spawn(async move {
        let call = call("slow", &json!({"n": 1})).turn(1).patience(DAY * 1000);
        tools.call(&other, call).await
    });
    shop.begun().await;
    // Past its deadline it is answered "in doubt", which is a sign of life; the body goes on.
    shop.pass(DAY * 40).await;
    assert_eq!(gc(&shop).await, GcReport::default());
    shop.pass(DAY * 40).await;
    assert_eq!(gc(&shop).await.unresolved, 1);
    shop.gate.add_permits(1);
    shop.settle().await;
    assert_eq!(gc(&shop).await, GcReport::default(), "its end was a sign of life");
    drop(running);
    let again = shop.tools.call(&run, call("slow", &json!({"n": 1})).turn(1)).await;
    assert_eq!(again.kind(), ReplyKind::Replayed);
    assert_eq!(shop.ledger.count("slow"), 1);
}

#[tokio::test]
async fn a_clock_that_contradicts_the_store_removes_nothing() {
    let shop = crate::bench::shop().await;
    let _run = full_run(&shop, "r").await;
    let kind = async || shop.guard.gc(GcOptions::new()).await.unwrap_err().kind();
    shop.clock.set_wall_by(-3_600_000);
    assert_eq!(kind().await, ErrorKind::ClockDoubtful, "before the newest record");
    shop.clock.set_wall_by(3_600_000);
    shop.guard.gc(GcOptions::new()).await.unwrap();
    shop.clock.set_wall_by(50 * 365 * 24 * 3_600_000);
    assert_eq!(kind().await, ErrorKind::ClockDoubtful, "2080");
    shop.clock.set_wall_by(-50 * 365 * 24 * 3_600_000 + 8 * 24 * 3_600_000);
    assert_eq!(kind().await, ErrorKind::ClockDoubtful, "more than a week past the last activity");
    // A person says that the clock is right; the run is still young.
    assert_eq!(gc(&shop).await, GcReport::default());
}

/// Times in the store may be a little ahead of the wall clock.
#[tokio::test]
async fn a_clock_that_is_a_little_behind_is_no_contradiction() {
    for (behind, is_doubtful) in [(30_000, false), (120_000, true)] {
        let shop = crate::bench::shop().await;
        let _run = full_run(&shop, "r").await;
        shop.clock.set_wall_by(-behind);
        let doubt = shop.guard.gc(GcOptions::new()).await.err().map(|error| error.kind());
        assert_eq!(doubt, is_doubtful.then_some(ErrorKind::ClockDoubtful), "{behind}");
    }
}

#[tokio::test]
async fn retention_is_settable() {
    let store = MemoryStore::new();
    let clock = toolonce::testing::ManualClock::new();
    let guard = toolonce::Guard::builder(store, "n").retention(DAY).clock(clock.clone()).build().await.unwrap();
    let _run = Run::start(&guard, "r").await.unwrap();
    clock.advance(DAY - Duration::from_millis(1));
    assert_eq!(guard.gc(GcOptions::new()).await.unwrap().runs, 0);
    clock.advance(Duration::from_millis(1));
    assert_eq!(guard.gc(GcOptions::new()).await.unwrap().runs, 1);
}

/// Registers a global tool that is kept for `retention`.
fn global(tools: &mut Registry, name: &str, retention: Option<Duration>, ledger: &Ledger) {
    let (ledger, line) = (ledger.clone(), name.to_owned());
    let policy = Policy::write().scope(Scope::Global).advanced(|a| match retention {
        Some(retention) => a.retention(retention),
        None => a,
    });
    let tool = value_tool(name, "", json!({"type": "object"}), policy, move |_: Value, _: Attempt| {
        ledger.write(&line);
        std::future::ready(Ok(json!("sent")))
    });
    tools.add(tool).unwrap();
}

#[tokio::test]
async fn a_global_record_is_kept_for_ever_unless_its_tool_says_otherwise() {
    let store = MemoryStore::new();
    let mut shop = Shop::open(store.clone()).await;
    global(&mut shop.tools, "invoice", None, &shop.ledger);
    global(&mut shop.tools, "digest", Some(DAY * 60), &shop.ledger);
    let run = shop.run("r").await;
    let send = async |run: &Run, tool| shop.tools.call(run, call(tool, &json!({"n": 1})).turn(0)).await.kind();
    assert_eq!(send(&run, "invoice").await, ReplyKind::Executed);
    assert_eq!(send(&run, "digest").await, ReplyKind::Executed);
    shop.settle().await;

    shop.pass(DAY * 59).await;
    let report = gc(&shop).await;
    assert_eq!((report.runs, report.records), (1, 0), "their run goes, they don't");
    let second = shop.run("r2").await;
    assert_eq!(send(&second, "digest").await, ReplyKind::Replayed);
    shop.settle().await;
    shop.pass(DAY * 2).await;
    let report = gc(&shop).await;
    assert_eq!((report.runs, report.records), (0, 1), "it goes by itself, and the second run stays");
    let third = shop.run("r3").await;
    assert_eq!(send(&third, "invoice").await, ReplyKind::Replayed);
    assert_eq!(send(&third, "digest").await, ReplyKind::Executed);
    assert_eq!((shop.ledger.count("invoice"), shop.ledger.count("digest")), (1, 2));
}

#[tokio::test]
async fn a_tool_that_asks_for_longer_today_is_kept_longer() {
    let store = MemoryStore::new();
    let mut shop = Shop::open(store.clone()).await;
    global(&mut shop.tools, "digest", Some(DAY), &shop.ledger);
    let run = shop.run("r").await;
    shop.tools.call(&run, call("digest", &json!({"n": 1})).turn(0)).await;
    shop.guard.crash();
    let mut next = Shop::open_on(Arc::new(store.crash()), shop.ledger.clone(), shop.clock.clone()).await;
    global(&mut next.tools, "digest", None, &next.ledger);
    next.pass(DAY * 900).await;
    assert_eq!(gc(&next).await.records, 0);
}

#[test]
fn a_tool_of_a_run_has_no_retention_of_its_own() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut shop = crate::bench::shop().await;
        let policy = Policy::write().advanced(|a| a.retention(DAY));
        let tool = value_tool("t", "", json!({"type": "object"}), policy, async |_: Value, _: Attempt| Ok(json!(1)));
        assert!(shop.tools.add(tool).unwrap_err().to_string().contains("Scope::Global"));
    });
}

/// A store whose commits fail from the `n`-th on, counted from when `left` is set.
pub(crate) fn failing(store: &MemoryStore) -> (FaultyStore, Arc<AtomicUsize>) {
    let left = Arc::new(AtomicUsize::new(usize::MAX));
    let count = Arc::clone(&left);
    let fails = move |_: &toolonce::store::Batch, _| {
        let before = count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| Some(n.saturating_sub(1)));
        (before == Ok(0)).then_some(FaultOn::Claim)
    };
    let faulty = FaultyStore::with_classifier(Arc::new(store.clone()), fails);
    faulty.fault(FaultOn::Claim, FaultKind::Unavailable, None);
    (faulty, left)
}

#[tokio::test]
async fn a_crash_at_any_point_leaves_what_the_next_gc_finishes() {
    let mut hit = 0;
    loop {
        let store = MemoryStore::new();
        let (faulty, left) = failing(&store);
        let shop = Shop::open_on(Arc::new(faulty), Ledger::new(), toolonce::testing::ManualClock::new()).await;
        let run = full_run(&shop, "r").await;
        shop.pass(DAY * 31).await;
        left.store(hit, Ordering::SeqCst);
        let ended = shop.guard.gc(trusted()).await;
        // Whatever is left by now, no call gets through to the tool. Before the second commit nothing is decided: a call
        // would take the run back.
        left.store(usize::MAX, Ordering::SeqCst);
        if hit > 1 {
            let reply = shop.tools.call(&run, call("charge", &json!({"cents": 1})).turn(1)).await;
            assert_eq!(reply.kind(), ReplyKind::Refused, "after {hit} commits: {reply:?}");
        }
        shop.guard.crash();
        let store = store.crash();
        let next = Shop::open_on(Arc::new(store.clone()), shop.ledger.clone(), shop.clock.clone()).await;
        assert_eq!(gc(&next).await.runs, usize::from(ended.is_err()), "after {hit} commits");
        assert_eq!(kinds(&store).await, "r", "after {hit} commits");
        assert_eq!(shop.ledger.count("charge"), 1);
        if ended.is_ok() {
            break;
        }
        hit += 1;
    }
    assert!(hit >= 8, "only {hit} commits");
}

#[tokio::test]
async fn another_process_learns_of_it() {
    let store = MemoryStore::shared();
    let shop = Shop::open(store.clone()).await;
    let other = Shop::open_on(Arc::new(store), shop.ledger.clone(), shop.clock.clone()).await;
    let run = full_run(&shop, "r").await;
    let attached = Run::attach(&other.guard, "r").await.unwrap();
    shop.pass(DAY * 31).await;
    assert_eq!(gc(&shop).await.runs, 1);
    let reply = other.tools.call(&attached, call("charge", &json!({"cents": 1})).turn(1)).await;
    assert_eq!(reply.kind(), ReplyKind::Refused, "{reply:?}");
    let step = attached.step("new", "", || async { Ok(1) }).await;
    assert_eq!(step.unwrap_err().kind(), ErrorKind::RunPurged);
    drop(run);
    assert_eq!(shop.ledger.count("charge"), 1);
}

/// Calls that have no turn, and of which nothing is executed any more, are signs of life, too.
#[tokio::test]
async fn a_run_in_daily_use_stays() {
    let shop = crate::bench::shop().await;
    let run = shop.run("r").await;
    for _ in 0..40 {
        let reply = shop.tools.call(&run, call("charge", &json!({"cents": 1}))).await;
        assert!(reply.outcome().is_some(), "{reply:?}");
        shop.pass(DAY).await;
        assert_eq!(gc(&shop).await.runs, 0);
    }
    assert_eq!(shop.ledger.count("charge"), 1);
}
