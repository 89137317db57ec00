//! A fork of a run that works on while it is made: it has a beginning of what is done, whole, or it isn't made.

use std::sync::Arc;

use serde_json::json;
use toolonce::ReplyKind::{Executed, Replayed};
use toolonce::store::MemoryStore;
use toolonce::{Call, ErrorKind, Run};

use crate::bench::call;
use crate::desk::{Desk, World};
use crate::fork_cut::{kind, one, pay, write};
use crate::stops::Stops;

fn mail() -> Call {
    call("mail", &json!({"to": "ann"}))
}

/// A desk whose store can be stopped, and a run with one turn.
async fn stoppable() -> (Stops, Arc<Desk>, Run) {
    let store = Stops::new(MemoryStore::new());
    let desk = Desk::on(store.clone(), World::default()).await.with("pay", write()).with("mail", write());
    let desk = Arc::new(desk.slow("slow", write()));
    let run = desk.run("r").await;
    one(&desk, &run, 0, mail()).await;
    desk.settle().await;
    (store, desk, run)
}

#[tokio::test]
async fn a_fork_of_a_run_at_work_has_a_beginning_of_what_was_done() {
    let (mut stops, mut with_all) = (0, 0);
    loop {
        let (store, desk, run) = stoppable().await;
        store.stop_after(stops);
        let parent = run.clone();
        let forking = tokio::spawn(async move { parent.fork("f", 5).await });
        if !store.stopped(&desk).await {
            break;
        }
        let paid = one(&desk, &run, 1, pay()).await;
        let _: u32 = run.step("model", paid.message(), || async { Ok(7) }).await.unwrap();
        assert_eq!(kind(&desk, &run, 2, call("mail", &json!({"to": "bob"}))).await, Executed);
        store.go();
        let fork = forking.await.unwrap().unwrap();
        let stepped = fork.step("model", paid.message(), || async { Ok(8) }).await.unwrap() == 7;
        let has_paid = kind(&desk, &fork, 1, pay()).await == Replayed;
        let has_mailed = kind(&desk, &fork, 2, call("mail", &json!({"to": "bob"}))).await == Replayed;
        assert!(has_paid >= stepped && stepped >= has_mailed, "after {stops}: {has_paid} {stepped} {has_mailed}");
        let effects = 2 + usize::from(!has_paid) + usize::from(!has_mailed);
        assert_eq!(desk.count("pay") + desk.count("mail"), 1 + effects);
        assert_eq!(kind(&desk, &fork, 0, mail()).await, Replayed);
        with_all += usize::from(has_mailed);
        stops += 1;
    }
    assert!(with_all > 10 && stops > with_all, "{with_all} of {stops}");
}

#[tokio::test]
async fn an_earlier_call_that_begins_before_all_is_copied_refuses_the_fork_and_leaves_nothing() {
    let (mut stops, mut refused) = (0, 0);
    loop {
        let (store, desk, run) = stoppable().await;
        store.stop_after(stops);
        let parent = run.clone();
        let forking = tokio::spawn(async move { parent.fork("f", 5).await });
        if !store.stopped(&desk).await {
            break;
        }
        let slow = || call("slow", &json!({"n": 1}));
        let running = desk.begin(&run, slow().turn(1)).await;
        store.go();
        match forking.await.unwrap() {
            Ok(fork) => {
                desk.gate.add_permits(9);
                let own = one(&desk, &fork, 1, slow()).await;
                assert_eq!(own.kind(), Executed, "after {stops}: {own:?}");
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unresolved, "{error}");
                desk.gate.add_permits(9);
                Run::start(&desk.guard, "f").await.unwrap();
                refused += 1;
            }
        }
        assert_eq!(running.await.unwrap().kind(), Executed);
        stops += 1;
    }
    assert!(refused > 10, "{refused} of {stops}");
}

#[tokio::test]
async fn a_run_that_never_rests_is_said_to_be_busy() {
    let (store, desk, run) = stoppable().await;
    let parent = run.clone();
    store.stop_after(8);
    let forking = tokio::spawn(async move { parent.fork("f", 1000).await });
    let mut calls = 0;
    while store.stopped(&desk).await {
        calls += 1;
        assert_eq!(kind(&desk, &run, calls, call("pay", &json!({"n": calls}))).await, Executed);
        store.stop_after(8);
        store.go();
    }
    let error = forking.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unresolved, "{error}");
    assert!(error.to_string().contains("at work"), "{error}");
    // Turns from the cut on may be as busy as they like.
    let parent = run.clone();
    store.stop_after(8);
    let forking = tokio::spawn(async move { parent.fork("f", 1).await });
    while store.stopped(&desk).await {
        calls += 1;
        assert_eq!(kind(&desk, &run, calls, call("pay", &json!({"n": calls}))).await, Executed);
        store.stop_after(8);
        store.go();
    }
    let fork = forking.await.unwrap().unwrap();
    assert_eq!(kind(&desk, &fork, 1, call("pay", &json!({"n": 1}))).await, Executed);
}

#[tokio::test]
async fn who_lost_the_making_of_a_fork_to_another_leaves_it_alone() {
    let mut stops = 0;
    loop {
        let (store, desk, run) = stoppable().await;
        one(&desk, &run, 1, pay()).await;
        store.stop_after(stops);
        let parent = run.clone();
        let slower = tokio::spawn(async move { parent.fork("f", 2).await.map(drop) });
        if !store.stopped(&desk).await {
            break;
        }
        let fork = run.fork("f", 2).await;
        store.go();
        let slower = slower.await.unwrap();
        assert!(fork.is_ok() || slower.is_ok(), "after {stops}: {fork:?} {slower:?}");
        let fork = Run::attach(&desk.guard, "f").await.unwrap();
        for (turn, call) in [(0, mail()), (1, pay())] {
            let told = one(&desk, &fork, turn, call).await;
            assert_eq!((told.kind(), told.is_marked()), (Replayed, false), "after {stops}");
        }
        assert_eq!((desk.count("pay"), desk.count("mail")), (1, 1));
        stops += 1;
    }
    assert!(stops > 10, "only {stops}");
}
