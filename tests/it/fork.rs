//! Forks: what was done before the cut is done in the fork, and from then on the two know nothing of each other.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use toolonce::store::MemoryStore;
use toolonce::testing::ManualClock;
use toolonce::{Call, Error, ErrorKind, GcClock, GcOptions, Reply, ReplyKind, Run, Seen};

use crate::bench::{Ledger, Shop, call, shop};
use crate::gc::{failing, full_run, kinds};

fn charge(cents: u32) -> Call {
    call("charge", &json!({"cents": cents}))
}

fn each() -> Call {
    call("each", &json!({"n": 1}))
}

async fn one(shop: &Shop, run: &Run, turn: u32, call: Call) -> Reply {
    shop.tools.answer(run, turn, &[call]).await.remove(0)
}

async fn kind(shop: &Shop, run: &Run, turn: u32, call: Call) -> (ReplyKind, bool) {
    let reply = one(shop, run, turn, call).await;
    (reply.kind(), reply.is_marked())
}

const EXECUTED: (ReplyKind, bool) = (ReplyKind::Executed, false);
const SAME: (ReplyKind, bool) = (ReplyKind::Replayed, false);
const MARKED: (ReplyKind, bool) = (ReplyKind::Replayed, true);

async fn never<T>() -> Result<T, Error> {
    panic!("computed again")
}

#[tokio::test]
async fn earlier_turns_are_answered_as_before_and_later_ones_are_new() {
    let shop = shop().await;
    let run = shop.run("r").await;
    let first = one(&shop, &run, 0, charge(1)).await;
    one(&shop, &run, 1, charge(2)).await;
    let fork = run.fork("f", 1).await.unwrap();
    assert_eq!(fork.id(), "f");
    let again = one(&shop, &fork, 0, charge(1)).await;
    assert_eq!((again.kind(), again.message()), (ReplyKind::Replayed, first.message()));
    assert_eq!(kind(&shop, &fork, 1, charge(2)).await, EXECUTED);
    // A repeat in a later turn is one of what was done before the cut.
    assert_eq!(kind(&shop, &fork, 2, charge(1)).await, MARKED);
    assert_eq!(shop.ledger.count("charge"), 3);
}

#[tokio::test]
async fn what_one_does_the_other_never_sees() {
    let shop = shop().await;
    let run = shop.run("r").await;
    assert_eq!(kind(&shop, &run, 0, each()).await, EXECUTED);
    let fork = run.fork("f", 1).await.unwrap();
    assert_eq!(kind(&shop, &fork, 1, each()).await, EXECUTED);
    assert_eq!(kind(&shop, &fork, 2, each()).await, EXECUTED);
    assert_eq!(kind(&shop, &run, 1, each()).await, EXECUTED);
    assert_eq!(kind(&shop, &run, 2, charge(5)).await, EXECUTED);
    assert_eq!(kind(&shop, &fork, 3, charge(5)).await, EXECUTED);
    for (run, last) in [(&run, 1), (&fork, 2)] {
        for turn in 0..=last {
            assert_eq!(kind(&shop, run, turn, each()).await, SAME);
        }
    }
    assert_eq!((shop.ledger.count("each"), shop.ledger.count("charge")), (4, 2));
}

#[tokio::test]
async fn it_survives_a_crash_and_keeps_its_keys() {
    let store = MemoryStore::new();
    let shop = Shop::open(store.clone()).await;
    let run = shop.run("r").await;
    one(&shop, &run, 0, charge(1)).await;
    let fork = run.fork("f", 1).await.unwrap();
    assert_eq!(kind(&shop, &fork, 1, charge(2)).await, EXECUTED);
    shop.guard.crash();
    let shop = Shop::open_on(Arc::new(store.crash()), shop.ledger.clone(), shop.clock.clone()).await;
    let fork = Run::resume(&shop.guard, "f", Seen::Through(1)).await.unwrap();
    assert_eq!(kind(&shop, &fork, 0, charge(1)).await, SAME);
    assert_eq!(kind(&shop, &fork, 1, charge(2)).await, SAME);
    assert_eq!(shop.ledger.count("charge"), 2);
}

#[tokio::test]
async fn a_fork_is_refused_while_an_earlier_call_is_open_and_only_then() {
    let shop = shop().await;
    let run = shop.run("r").await;
    one(&shop, &run, 0, charge(1)).await;
    let unsure = one(&shop, &run, 1, call("unsure", &json!({"n": 1}))).await;
    assert_eq!(unsure.kind(), ReplyKind::InDoubt);
    let error = run.fork("f", 2).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unresolved, "{error}");
    assert!(error.to_string().contains(unsure.reference().unwrap()), "{error}");
    // Nothing is left of it, and what came later doesn't matter to an earlier cut.
    let fork = run.fork("f", 1).await.unwrap();
    assert_eq!(kind(&shop, &fork, 0, charge(1)).await, SAME);
    let own = one(&shop, &fork, 1, call("unsure", &json!({"n": 1}))).await;
    assert_ne!(own.reference(), unsure.reference());
    assert_eq!(shop.ledger.count("unsure"), 2);
}

#[tokio::test]
async fn steps_of_earlier_turns_have_their_values() {
    let shop = shop().await;
    let run = shop.run("r").await;
    for turn in 0..3_u32 {
        let _: u32 = run.step("model", &turn, || async { Ok(turn * 10) }).await.unwrap();
        one(&shop, &run, turn, charge(turn)).await;
    }
    let fork = run.fork("f", 2).await.unwrap();
    assert_eq!(fork.step("model", &0, never::<u32>).await.unwrap(), 0);
    assert_eq!(fork.step("model", &1, never::<u32>).await.unwrap(), 10);
    // The message of the turn at which it begins is asked for anew.
    assert_eq!(fork.step("model", "another question", || async { Ok(99) }).await.unwrap(), 99);
    let resumed = Run::resume(&shop.guard, "f", Seen::Steps).await.unwrap();
    assert_eq!(kind(&shop, &resumed, 1, charge(1)).await, SAME);
    assert_eq!(shop.ledger.count("charge"), 3);
}

#[tokio::test]
async fn other_calls_in_a_copied_turn_are_held() {
    let shop = shop().await;
    let run = shop.run("r").await;
    one(&shop, &run, 0, charge(1)).await;
    let fork = run.fork("f", 1).await.unwrap();
    assert_eq!(kind(&shop, &fork, 0, charge(9)).await.0, ReplyKind::Diverged);
    assert_eq!(kind(&shop, &fork, 0, charge(1)).await, SAME);
    assert_eq!(kind(&shop, &fork, 1, charge(9)).await, EXECUTED);
}

#[tokio::test]
async fn what_the_parent_abandoned_is_no_part_of_the_fork_s_history() {
    let shop = shop().await;
    let run = shop.run("r").await;
    one(&shop, &run, 0, charge(1)).await;
    one(&shop, &run, 1, each()).await;
    let run = Run::resume(&shop.guard, "r", Seen::Through(0)).await.unwrap();
    let fork = run.fork("f", 2).await.unwrap();
    assert_eq!(fork.epoch(), run.epoch());
    // Turn 1 was never seen: its equal call is a retry, here as there, and not the first one's alone.
    assert_eq!(kind(&shop, &fork, 1, each()).await, SAME);
    assert_eq!(kind(&shop, &fork, 2, each()).await, EXECUTED);
    assert_eq!(kind(&shop, &run, 1, each()).await, SAME);
    assert_eq!(shop.ledger.count("each"), 2);
}

#[tokio::test]
async fn a_fork_of_a_fork_outlives_both() {
    let store = MemoryStore::new();
    let shop = Shop::open(store.clone()).await;
    let run = full_run(&shop, "r").await;
    let big = one(&shop, &run, 1, call("big", &json!({"n": 7000}))).await;
    let fork = run.fork("f", 2).await.unwrap();
    one(&shop, &fork, 2, charge(2)).await;
    shop.pass(Duration::from_secs(29 * 24 * 3600)).await;
    let last = fork.fork("g", 3).await.unwrap();
    shop.pass(Duration::from_secs(2 * 24 * 3600)).await;
    let report = shop.guard.gc(GcOptions::new().clock(GcClock::Trusted)).await.unwrap();
    assert_eq!(report.runs, 2);
    let again = one(&shop, &last, 1, call("big", &json!({"n": 7000}))).await;
    assert_eq!((again.kind(), again.message()), (ReplyKind::Replayed, big.message()));
    assert_eq!(kind(&shop, &last, 0, charge(1)).await.0, ReplyKind::Replayed);
    assert_eq!(kind(&shop, &last, 2, charge(2)).await, SAME);
    assert_eq!((shop.ledger.count("charge"), shop.ledger.count("big")), (2, 2));
}

#[tokio::test]
async fn the_id_of_a_fork_must_be_new() {
    let shop = shop().await;
    let run = shop.run("r").await;
    let _other = shop.run("other").await;
    assert_eq!(run.fork("other", 1).await.unwrap_err().kind(), ErrorKind::RunExists);
    assert_eq!(run.fork("r", 1).await.unwrap_err().kind(), ErrorKind::RunExists);
    assert_eq!(run.fork("", 1).await.unwrap_err().kind(), ErrorKind::Invalid);
    let _resumed = Run::resume(&shop.guard, "r", Seen::Nothing).await.unwrap();
    assert_eq!(run.fork("f", 1).await.unwrap_err().kind(), ErrorKind::StaleRun);
}

#[tokio::test]
async fn a_crash_at_any_point_leaves_no_half_of_a_fork() {
    let mut hit = 0;
    loop {
        let store = MemoryStore::new();
        let (faulty, left) = failing(&store);
        let shop = Shop::open_on(Arc::new(faulty), Ledger::new(), ManualClock::new()).await;
        let run = full_run(&shop, "r").await;
        one(&shop, &run, 1, charge(2)).await;
        shop.settle().await;
        left.store(hit, Ordering::SeqCst);
        let ended = run.fork("f", 2).await;
        left.store(usize::MAX, Ordering::SeqCst);
        shop.guard.crash();
        let store = store.crash();
        let next = Shop::open_on(Arc::new(store.clone()), shop.ledger.clone(), shop.clock.clone()).await;
        let parent = Run::attach(&next.guard, "r").await.unwrap();
        if ended.is_ok() {
            assert_eq!(kind(&next, &Run::attach(&next.guard, "f").await.unwrap(), 0, charge(1)).await, SAME);
            break;
        }
        if hit > 0 {
            assert_eq!(Run::start(&next.guard, "f").await.unwrap_err().kind(), ErrorKind::NoSuchRun);
        }
        assert_eq!(Run::attach(&next.guard, "f").await.unwrap_err().kind(), ErrorKind::NoSuchRun);
        // An earlier cut than the one that was begun: nothing of the first is left.
        let fork = parent.fork("f", 1).await.unwrap();
        assert_eq!(kind(&next, &fork, 1, charge(2)).await, EXECUTED, "after {hit} commits");
        assert_eq!(kind(&next, &fork, 0, charge(1)).await, SAME, "after {hit} commits");
        hit += 1;
    }
    assert!(hit >= 7, "only {hit} commits");
}

#[tokio::test]
async fn an_abandoned_fork_goes_like_any_run() {
    let store = MemoryStore::new();
    let (faulty, left) = failing(&store);
    let shop = Shop::open_on(Arc::new(faulty), Ledger::new(), ManualClock::new()).await;
    let run = full_run(&shop, "r").await;
    left.store(4, Ordering::SeqCst);
    run.fork("f", 2).await.unwrap_err();
    left.store(usize::MAX, Ordering::SeqCst);
    shop.pass(Duration::from_secs(31 * 24 * 3600)).await;
    let report = shop.guard.gc(GcOptions::new().clock(GcClock::Trusted)).await.unwrap();
    assert_eq!(report.runs, 2);
    assert_eq!(kinds(&store).await, "rr");
}
