//! Durations that nobody should set, and somebody will.

use std::time::Duration;

use serde_json::{Value, json};
use toolonce::store::MemoryStore;
use toolonce::testing::ManualClock;
use toolonce::{Call, Clock, Guard, Policy, Registry, ReplyKind, Run, value_tool};

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
