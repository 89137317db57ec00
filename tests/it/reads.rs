//! Reads: they run each time, but for equal ones of a turn that are under way, and never show the world before a write.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use toolonce::{Attempt, Call, Policy, Reply, ReplyKind, Run, Seen, ToolError, value_tool};

use crate::bench::{Shop, call, shop};

/// A shop with a read `weather` that waits for a permit and says how often it was read, and a quick one `rate` whose
/// answers stand for a minute.
struct Station {
    shop: Shop,
    read: Arc<AtomicU32>,
    begun: Arc<Semaphore>,
    gate: Arc<Semaphore>,
}

impl Station {
    async fn open() -> Self {
        let mut shop = shop().await;
        let (read, begun, gate) = (Arc::default(), Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let state = (Arc::clone(&read), Arc::clone(&begun), Arc::clone(&gate));
        let body = move |args: Value, _: Attempt| {
            let (read, begun, gate): (Arc<AtomicU32>, Arc<Semaphore>, Arc<Semaphore>) = state.clone();
            async move {
                let n = read.fetch_add(1, Ordering::SeqCst) + 1;
                begun.add_permits(1);
                gate.acquire().await.unwrap().forget();
                if args["fails"] == true { Err(ToolError::permanent("no such town")) } else { Ok(json!({"read": n})) }
            }
        };
        let schema = || json!({"type": "object"});
        shop.tools.add(value_tool("weather", "", schema(), Policy::read_only(), body)).unwrap();
        let count = Arc::clone(&read);
        let policy = Policy::read_only().advanced(|a| a.time_to_live(Duration::from_secs(60)));
        let rate = move |_: Value, _: Attempt| {
            std::future::ready(Ok(json!({"read": count.fetch_add(1, Ordering::SeqCst) + 1})))
        };
        shop.tools.add(value_tool("rate", "", schema(), policy, rate)).unwrap();
        Self { shop, read, begun, gate }
    }

    fn spawn(&self, run: &Run, call: Call) -> JoinHandle<Reply> {
        let (tools, run) = (self.shop.tools.clone(), run.clone());
        tokio::spawn(async move { tools.call(&run, call).await })
    }

    /// A read that has begun and waits at the gate.
    async fn under_way(&self, run: &Run, call: Call) -> JoinHandle<Reply> {
        let reading = self.spawn(run, call);
        self.begun.acquire().await.unwrap().forget();
        reading
    }

    fn reads(&self) -> u32 {
        self.read.load(Ordering::SeqCst)
    }
}

fn weather() -> Call {
    call("weather", &json!({"town": "Ulm"}))
}

fn rate() -> Call {
    call("rate", &json!({"of": "EUR"}))
}

#[tokio::test]
async fn equal_reads_of_one_message_are_one_and_a_redelivery_says_the_same() {
    let at = Station::open().await;
    let run = at.shop.run("r").await;
    at.gate.add_permits(1);
    let calls = [weather().id("a"), weather().id("b")];
    let first = at.shop.tools.answer(&run, 0, &calls).await;
    assert_eq!((first[0].kind(), first[0].is_marked()), (ReplyKind::Executed, false));
    assert_eq!((first[1].kind(), first[1].is_marked()), (ReplyKind::Joined, true));
    assert_eq!(first[0].outcome(), first[1].outcome());
    assert!(first[1].message().contains("It was not read again"), "{:?}", first[1]);
    at.shop.settle().await;
    let again = at.shop.tools.answer(&run, 0, &calls).await;
    for (first, again) in first.iter().zip(&again) {
        assert_eq!((again.kind(), again.is_marked()), (ReplyKind::Replayed, first.is_marked()));
        assert_eq!(again.outcome(), first.outcome());
    }
    assert_eq!(at.reads(), 1);
}

#[tokio::test]
async fn a_second_delivery_of_a_read_under_way_is_the_same_read_unmarked() {
    let at = Station::open().await;
    let run = at.shop.run("r").await;
    let first = at.under_way(&run, weather().turn(0).id("a")).await;
    let second = at.spawn(&run, weather().turn(0).id("a"));
    at.shop.settle().await;
    at.gate.add_permits(1);
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert_eq!((second.kind(), second.is_marked()), (ReplyKind::Joined, false));
    assert_eq!(first.message(), second.message());
    assert_eq!(at.reads(), 1);
}

/// HOLES 37: whoever asks after a write must not get what was read before it.
#[tokio::test]
async fn nobody_joins_a_read_that_began_before_a_write_of_its_run() {
    let at = Station::open().await;
    let run = at.shop.run("r").await;
    let old = at.under_way(&run, weather().turn(0).id("a")).await;
    let written = at.shop.tools.call(&run, call("charge", &json!({"cents": 1})).turn(0).id("w")).await;
    assert_eq!(written.kind(), ReplyKind::Executed);
    let new = at.under_way(&run, weather().turn(0).id("b")).await;
    at.gate.add_permits(2);
    let (old, new) = (old.await.unwrap(), new.await.unwrap());
    assert_eq!((old.kind(), new.kind()), (ReplyKind::Executed, ReplyKind::Executed));
    assert_ne!(old.outcome(), new.outcome());
    // Each has a place of its own.
    at.shop.settle().await;
    for (id, first) in [("a", &old), ("b", &new)] {
        let again = at.shop.tools.call(&run, weather().turn(0).id(id)).await;
        assert_eq!((again.kind(), again.outcome()), (ReplyKind::Replayed, first.outcome()));
    }
}

#[tokio::test]
async fn a_write_of_unknown_end_counts_as_one() {
    let at = Station::open().await;
    let run = at.shop.run("r").await;
    let _old = at.under_way(&run, weather().turn(0).id("a")).await;
    let unsure = at.shop.tools.call(&run, call("unsure", &json!({"n": 1})).turn(0)).await;
    assert_eq!(unsure.kind(), ReplyKind::InDoubt);
    let _new = at.under_way(&run, weather().turn(0).id("b")).await;
    assert_eq!(at.reads(), 2);
}

#[tokio::test]
async fn reads_of_other_turns_runs_and_epochs_and_without_turns_run() {
    let at = Station::open().await;
    let run = at.shop.run("r").await;
    let other = at.shop.run("other").await;
    let mut reading = vec![at.under_way(&run, weather().turn(0).id("a")).await];
    reading.push(at.under_way(&run, weather().turn(1).id("a")).await);
    reading.push(at.under_way(&other, weather().turn(0).id("a")).await);
    reading.push(at.under_way(&run, weather()).await);
    reading.push(at.under_way(&run, weather()).await);
    let resumed = Run::resume(&at.shop.guard, "r", Seen::Nothing).await.unwrap();
    reading.push(at.under_way(&resumed, weather().turn(0).id("a")).await);
    at.gate.add_permits(6);
    for reading in reading {
        assert_eq!(reading.await.unwrap().kind(), ReplyKind::Executed);
    }
    assert_eq!(at.reads(), 6);
}

#[tokio::test]
async fn who_joined_gets_the_read_though_its_first_caller_left() {
    let at = Station::open().await;
    let run = at.shop.run("r").await;
    let first = at.under_way(&run, weather().turn(0).id("a")).await;
    let second = at.spawn(&run, weather().turn(0).id("b"));
    at.shop.settle().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    at.gate.add_permits(1);
    let second = second.await.unwrap();
    assert_eq!((second.kind(), second.is_marked()), (ReplyKind::Joined, true));
    assert_eq!(at.reads(), 1);
}

#[tokio::test]
async fn who_joined_a_read_that_fails_gets_its_failure() {
    let at = Station::open().await;
    let run = at.shop.run("r").await;
    let fails = || call("weather", &json!({"fails": true}));
    at.gate.add_permits(1);
    let replies = at.shop.tools.answer(&run, 0, &[fails(), fails()]).await;
    for reply in &replies {
        assert_eq!(reply.kind(), ReplyKind::Failed);
        assert!(reply.message().contains("no such town"), "{reply:?}");
    }
    assert_eq!(at.reads(), 1);
}

#[tokio::test]
async fn a_result_with_a_time_to_live_stands_for_later_turns_until_a_write_or_its_end() {
    let at = Station::open().await;
    let run = at.shop.run("r").await;
    let ask = async |turn: u32| {
        let reply = at.shop.tools.call(&run, rate().turn(turn).id("a")).await;
        at.shop.settle().await;
        (reply.kind(), reply.is_marked(), reply.outcome().unwrap().text().to_owned())
    };
    let executed = |n: u32| (ReplyKind::Executed, false, format!(r#"{{"read":{n}}}"#));
    let stood = |n: u32| (ReplyKind::Replayed, true, format!(r#"{{"read":{n}}}"#));
    assert_eq!(ask(0).await, executed(1));
    assert_eq!(ask(1).await, stood(1));
    at.shop.clock.advance(Duration::from_secs(59));
    assert_eq!(ask(2).await, stood(1));
    at.shop.clock.advance(Duration::from_secs(1));
    assert_eq!(ask(3).await, executed(2));
    at.shop.tools.call(&run, call("charge", &json!({"cents": 1})).turn(4)).await;
    assert_eq!(ask(5).await, executed(3));
    // A redelivered place says what it said.
    assert_eq!(ask(1).await, stood(1));
    assert_eq!(ask(3).await, (ReplyKind::Replayed, false, r#"{"read":2}"#.to_owned()));
    // Another run, and a resumed one, look for themselves.
    let other = at.shop.run("other").await;
    assert_eq!(at.shop.tools.call(&other, rate().turn(0)).await.kind(), ReplyKind::Executed);
    let resumed = Run::resume(&at.shop.guard, "r", Seen::Through(5)).await.unwrap();
    assert_eq!(at.shop.tools.call(&resumed, rate().turn(6)).await.kind(), ReplyKind::Executed);
}

#[tokio::test]
async fn only_reads_may_stand_for_a_time() {
    let mut shop = shop().await;
    let policy = Policy::idempotent().advanced(|a| a.time_to_live(Duration::from_secs(1)));
    let tool = value_tool("set", "", json!({"type": "object"}), policy, async |_: Value, _: Attempt| Ok(json!(1)));
    assert!(shop.tools.add(tool).unwrap_err().to_string().contains("read-only"));
}

#[tokio::test]
async fn a_result_that_is_too_long_is_cut_alike_each_time() {
    let mut shop = shop().await;
    let body = |_: Value, _: Attempt| std::future::ready(Ok(json!("é".repeat(2000))));
    let policy = Policy::read_only().advanced(|a| a.max_result(2000));
    shop.tools.add(value_tool("long", "", json!({"type": "object"}), policy, body)).unwrap();
    let run = shop.run("r").await;
    let first = shop.tools.call(&run, call("long", &json!({})).turn(0).id("a")).await;
    shop.settle().await;
    let again = shop.tools.call(&run, call("long", &json!({})).turn(0).id("a")).await;
    assert_eq!((again.kind(), again.message()), (ReplyKind::Replayed, first.message()));
}
