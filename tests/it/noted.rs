//! What was delivered is known to whoever asks next, at whatever moment it is written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};
use toolonce::store::{
    Batch, BoxFuture, Committed, Durability, Identity, Key, MemoryStore, Page, Purpose, Store, StoreError, Versioned,
};
use toolonce::{Attempt, Guard, Policy, Registry, Repeat, ReplyKind, Run, value_tool};

use crate::bench::call;

/// A store of several processes where a note is written after a read has found the record without it, and before that
/// read returns.
struct LateRead {
    store: MemoryStore,
    /// How many reads are yet to come before the late one.
    before_late: AtomicUsize,
    is_reading: AtomicBool,
    notes_written: AtomicUsize,
}

/// The guard's share of it.
#[derive(Clone)]
struct Late(Arc<LateRead>);

impl Late {
    fn new() -> Self {
        Self(Arc::new(LateRead {
            store: MemoryStore::shared(),
            before_late: AtomicUsize::new(usize::MAX),
            is_reading: AtomicBool::new(false),
            notes_written: AtomicUsize::new(0),
        }))
    }

    /// Waits for what others do, if they do it at all.
    async fn until(&self, holds: impl Fn(&LateRead) -> bool) {
        for _ in 0..100 {
            if holds(&self.0) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }
}

impl Store for Late {
    fn get<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Versioned>>, StoreError>> {
        Box::pin(async move {
            let read = self.0.store.get(keys).await;
            if self.0.before_late.fetch_sub(1, Ordering::SeqCst) == 0 {
                let before = self.0.notes_written.load(Ordering::SeqCst);
                self.0.is_reading.store(true, Ordering::SeqCst);
                self.until(|it| it.notes_written.load(Ordering::SeqCst) > before).await;
            }
            read
        })
    }

    fn commit(&self, batch: Batch, durability: Durability) -> BoxFuture<'_, Result<Committed, StoreError>> {
        Box::pin(async move {
            let is_note = batch.purpose == Purpose::Other;
            if is_note {
                self.until(|it| it.is_reading.load(Ordering::SeqCst)).await;
            }
            let committed = self.0.store.commit(batch, durability).await;
            self.0.notes_written.fetch_add(usize::from(is_note), Ordering::SeqCst);
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
        false
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.0.store.close()
    }
}

/// A tool whose every call in a new turn is a new wish once the outcome before was seen; effects are counted outside.
async fn bench(store: impl Store) -> (Registry, Run, Arc<AtomicUsize>) {
    let guard = Guard::builder(store, "noted").build().await.unwrap();
    let effects = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&effects);
    let mut tools = Registry::new(&guard);
    let body = move |_: Value, _: Attempt| {
        let n = counted.fetch_add(1, Ordering::SeqCst);
        async move { Ok(json!(n)) }
    };
    let policy = Policy::write().repeat(Repeat::Each);
    tools.add(value_tool("t", "", json!({"type": "object"}), policy, body)).unwrap();
    (tools, Run::start(&guard, "r").await.unwrap(), effects)
}

#[tokio::test]
async fn while_it_is_written_a_slow_read_of_the_store_does_not_hide_it() {
    // Whichever of the reads it is.
    for late in 0..8 {
        let store = Late::new();
        let (tools, run, effects) = bench(store.clone()).await;
        for turn in 0..2 {
            let reply = tools.call(&run, call("t", &json!({"n": 1})).turn(turn)).await;
            assert_eq!(reply.kind(), ReplyKind::Executed, "{late}: {reply:?}");
            store.0.before_late.store(late, Ordering::SeqCst);
        }
        assert_eq!(effects.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_it_is_written_the_memory_tier_does_not_hide_it() {
    let (tools, run, effects) = bench(MemoryStore::new()).await;
    let mut turns = 0..;
    for n in 0..1000 {
        for again in 0..2 {
            let reply = tools.call(&run, call("t", &json!({"n": n})).turn(turns.next().unwrap())).await;
            assert_eq!(reply.kind(), ReplyKind::Executed, "{n} {again}: {reply:?}");
        }
    }
    assert_eq!(effects.load(Ordering::SeqCst), 2000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_it_is_written_a_replay_is_counted_one_time() {
    let guard = Guard::builder(MemoryStore::new(), "noted").replay_stop(3).build().await.unwrap();
    let mut tools = Registry::new(&guard);
    let body = |_: Value, _: Attempt| async { Ok(json!("done")) };
    tools.add(value_tool("t", "", json!({"type": "object"}), Policy::write(), body)).unwrap();
    let run = Run::start(&guard, "r").await.unwrap();
    let mut turns = 0..;
    for n in 0..2000 {
        for kind in [ReplyKind::Executed, ReplyKind::Replayed, ReplyKind::Replayed, ReplyKind::Stopped] {
            let reply = tools.call(&run, call("t", &json!({"n": n})).turn(turns.next().unwrap())).await;
            assert_eq!(reply.kind(), kind, "{n}: {reply:?}");
        }
    }
}
