//! A run that goes on under another version of the program.

use serde_json::{Value, json};
use toolonce::store::MemoryStore;
use toolonce::{Call, Policy, ReplyKind, Run, Seen, ToolError};

use crate::bench::call;
use crate::desk::{Desk, World};

fn old() -> Value {
    json!({"type": "object", "properties": {"to": {"type": "string"}, "memo": {"type": "string"}}})
}

/// Under it the same arguments have another key.
fn new() -> Value {
    json!({"type": "object", "properties": {
        "to": {"type": "string", "x-toolonce": "identity"}, "memo": {"type": "string"},
    }})
}

fn pay(to: &str) -> Call {
    call("pay", &json!({"to": to, "memo": "rent"})).id(to)
}

/// The next version of the program, on what the last one left.
async fn deploy(desk: &Desk, store: &mut MemoryStore, policy: Policy, schema: Value) -> Desk {
    desk.guard.crash();
    *store = store.crash();
    Desk::on(store.clone(), desk.world.clone()).await.with_schema("pay", policy, schema)
}

#[tokio::test]
async fn a_recorded_turn_keeps_its_keys_and_other_writes_of_the_run_are_refused() {
    let mut store = MemoryStore::new();
    let desk = Desk::on(store.clone(), World::default()).await.with_schema("pay", Policy::write(), old());
    let run = desk.run("r").await;
    let before = desk.tools.answer(&run, 0, &[pay("ann"), pay("bob")]).await;
    assert_eq!(desk.count("pay"), 2);

    let desk = deploy(&desk, &mut store, Policy::write(), new()).await;
    let run = Run::resume(&desk.guard, "r", Seen::Through(0)).await.unwrap();
    let after = desk.tools.answer(&run, 0, &[pay("ann"), pay("bob")]).await;
    for (before, after) in before.iter().zip(&after) {
        assert_eq!((after.kind(), after.is_marked()), (ReplyKind::Replayed, false), "{after:?}");
        assert_eq!(before.message(), after.message());
    }
    for call in [pay("ann"), pay("eve")] {
        let refused = desk.ask(&run, call.turn(1)).await;
        assert_eq!(refused.kind(), ReplyKind::Refused, "{refused:?}");
        assert!(refused.message().contains("new run"), "{refused:?}");
    }
    let other = desk.run("s").await;
    assert_eq!(desk.ask(&other, pay("ann").turn(0)).await.kind(), ReplyKind::Executed);
    assert_eq!(desk.count("pay"), 3);
}

/// Two versions at work at the same time: who claims first binds the run.
#[tokio::test]
async fn of_two_versions_the_first_to_claim_binds_the_run() {
    let (store, world) = (MemoryStore::shared(), World::default());
    let one = Desk::on(store.clone(), world.clone()).await.with_schema("pay", Policy::write(), old());
    let two = Desk::on(store, world).await.with_schema("pay", Policy::write(), new());
    let run = one.run("r").await;
    let same = Run::attach(&two.guard, "r").await.unwrap();
    let (tools, there) = (one.tools.clone(), two.tools.clone());
    let first = tokio::spawn(async move { tools.call(&run, pay("ann").turn(0)).await });
    let second = tokio::spawn(async move { there.call(&same, pay("ann").turn(0)).await });
    one.settle().await;
    let mut kinds = [first.await.unwrap().kind(), second.await.unwrap().kind()];
    kinds.sort_by_key(|kind| *kind as u8);
    assert_eq!((kinds, one.count("pay")), ([ReplyKind::Executed, ReplyKind::Refused], 1));
}

#[tokio::test]
async fn a_write_in_doubt_stays_held_whatever_it_is_declared_to_be_by_now() {
    let mut store = MemoryStore::new();
    let mut desk = Desk::on(store.clone(), World::default()).await.with_schema("pay", Policy::write(), old());
    let run = desk.run("r").await;
    desk.fails_with(ToolError::unknown("lost"));
    assert_eq!(desk.ask(&run, pay("ann").turn(0)).await.kind(), ReplyKind::InDoubt);
    let laxer = [Policy::idempotent(), Policy::read_only(), Policy::keyed(toolonce::KeyWindow::Permanent)];
    for (turn, policy) in (1..).zip(laxer) {
        desk = deploy(&desk, &mut store, policy.clone(), old()).await;
        let run = Run::resume(&desk.guard, "r", Seen::Through(turn - 1)).await.unwrap();
        for call in [pay("ann").turn(0), pay("ann").turn(turn)] {
            let held = desk.ask(&run, call).await;
            assert_eq!(held.kind(), ReplyKind::InDoubt, "{policy:?}: {held:?}");
        }
    }
    assert_eq!(desk.count("pay"), 0);
}
