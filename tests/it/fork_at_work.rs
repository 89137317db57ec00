//! A fork of a run that works on while it is made: it has a beginning of what is done, whole, or it isn't made.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tokio::sync::Semaphore;
use toolonce::ReplyKind::{Executed, Replayed};
use toolonce::store::{
    Batch, BoxFuture, Committed, Durability, Identity, Key, MemoryStore, Page, Store, StoreError, Versioned,
};
use toolonce::{Call, ErrorKind, Run};

use crate::bench::call;
use crate::desk::{Desk, World};
use crate::fork_cut::{kind, one, pay, write};

/// A store that stops before one operation.
#[derive(Clone)]
struct Stops {
    store: MemoryStore,
    /// How many operations are yet to come before it.
    left: Arc<AtomicUsize>,
    reached: Arc<Semaphore>,
    go: Arc<Semaphore>,
}

impl Stops {
    fn new() -> Self {
        let shut = || Arc::new(Semaphore::new(0));
        let left = Arc::new(AtomicUsize::new(usize::MAX));
        Self { store: MemoryStore::new(), left, reached: shut(), go: shut() }
    }

    fn stop_after(&self, operations: usize) {
        self.left.store(operations, Ordering::SeqCst);
    }

    /// Whether it stopped; `false` if it was not reached while the tasks went as far as they got.
    async fn stopped(&self, desk: &Desk) -> bool {
        desk.settle().await;
        self.left.store(usize::MAX, Ordering::SeqCst);
        self.reached.try_acquire().map(|permit| permit.forget()).is_ok()
    }

    fn go(&self) {
        self.go.add_permits(1);
    }

    async fn gate(&self) {
        let next = |left| match left {
            usize::MAX => None,
            0 => Some(usize::MAX),
            left => Some(left - 1),
        };
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next) == Ok(0) {
            self.reached.add_permits(1);
            self.go.acquire().await.unwrap().forget();
        }
    }
}

impl Store for Stops {
    fn get<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Versioned>>, StoreError>> {
        Box::pin(async move {
            self.gate().await;
            self.store.get(keys).await
        })
    }

    fn commit(&self, batch: Batch, durability: Durability) -> BoxFuture<'_, Result<Committed, StoreError>> {
        Box::pin(async move {
            self.gate().await;
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
            self.gate().await;
            self.store.scan(prefix, from, limit).await
        })
    }

    fn identity(&self) -> Identity {
        self.store.identity()
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn changed<'a>(&'a self, keys: &'a [Key]) -> Option<BoxFuture<'a, ()>> {
        self.store.changed(keys)
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.store.close()
    }
}

fn mail() -> Call {
    call("mail", &json!({"to": "ann"}))
}

/// A desk whose store can be stopped, and a run with one turn.
async fn stoppable() -> (Stops, Arc<Desk>, Run) {
    let store = Stops::new();
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
