//! Durations that nobody should set, and somebody will.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use toolonce::store::{MemoryStore, Store};
use toolonce::testing::ManualClock;
use toolonce::{Call, Clock, Guard, Policy, Registry, ReplyKind, Run, value_tool};

use super::bench::{Ledger, Shop};

/// With a lease of nothing the guard's heart beat without a pause, and no other task of the thread ever ran again.
#[tokio::test]
async fn a_lease_of_nothing_leaves_time_for_calls() {
    for lease in [Duration::ZERO, Duration::from_nanos(1)] {
        let clock = ManualClock::new();
        let guard = Guard::builder(MemoryStore::shared(), "n").clock(clock).lease(lease).build().await.unwrap();
        let mut tools = Registry::new(&guard);
        let body = |_: Value, _| std::future::ready(Ok(json!("done")));
        tools.add(value_tool("pay", "", json!({"type": "object"}), Policy::write(), body)).unwrap();
        let run = Run::start(&guard, "r").await.unwrap();
        tokio::task::yield_now().await;
        let reply = tools.call(&run, Call::new("pay", r#"{"n": 1}"#).turn(0)).await;
        assert_eq!(reply.kind(), ReplyKind::Executed);
    }
}

/// HOLES 36: signs of life while a body is at work don't get in the way of its end.
#[tokio::test]
async fn what_lasts_longer_than_signs_of_life_take_is_recorded() {
    let (store, ledger, clock) = (MemoryStore::shared(), Ledger::new(), ManualClock::new());
    let open = async || Shop::open_on(Arc::new(store.clone()), ledger.clone(), clock.clone()).await;
    let shop = open().await;
    let run = Run::start(&shop.guard, "r").await.unwrap();
    let slow = Call::new("slow", r#"{"n": 1}"#).turn(0);
    let working = tokio::spawn({
        let (tools, run, slow) = (shop.tools.clone(), run.clone(), slow.clone());
        async move { tools.call(&run, slow).await }
    });
    shop.begun.acquire().await.unwrap().forget();
    for _ in 0..4 {
        let before = store.identity().sequence;
        clock.advance(Duration::from_secs(11));
        while store.identity().sequence == before {
            tokio::task::yield_now().await;
        }
    }
    shop.gate.add_permits(1);
    assert_eq!(working.await.unwrap().kind(), ReplyKind::Executed);
    let other = open().await;
    let run = Run::attach(&other.guard, "r").await.unwrap();
    assert_eq!(other.tools.call(&run, slow).await.kind(), ReplyKind::Replayed);
    assert_eq!(ledger.lines().len(), 1);
}

#[tokio::test]
async fn for_ever_is_a_patience_like_any_other() {
    let guard = Guard::builder(MemoryStore::new(), "n").patience(Duration::MAX).attempt_deadline(Duration::MAX);
    let guard = guard.settle_delay(Duration::MAX).build().await.unwrap();
    let mut tools = Registry::new(&guard);
    let body = |_: Value, _| std::future::ready(Ok(json!("done")));
    tools.add(value_tool("pay", "", json!({"type": "object"}), Policy::write(), body)).unwrap();
    let run = Run::start(&guard, "r").await.unwrap();
    let reply = tools.call(&run, Call::new("pay", r#"{"n": 1}"#).turn(0).patience(Duration::MAX)).await;
    assert_eq!(reply.kind(), ReplyKind::Executed);
}

#[test]
fn a_clock_moved_by_hand_comes_to_its_end_without_a_panic() {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1));
    clock.advance(Duration::MAX);
    assert_eq!(clock.monotonic(), Duration::MAX);
    clock.advance(Duration::from_secs(1));
    assert_eq!(clock.wall(), u64::MAX);
}
