//! What a call gets: the promise in its plainest form.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use toolonce::store::MemoryStore;
use toolonce::{Call, Guard, KeyWindow, Policy, Registry, ReplyKind, Run, ToolError, value_tool};

use crate::bench::call;
use crate::desk::Desk;

#[tokio::test]
async fn a_write_runs_once_per_run() {
    let guard = Guard::builder(MemoryStore::new(), "n").build().await.unwrap();
    let count = Arc::new(AtomicU32::new(0));
    let mut tools = Registry::new(&guard);
    let counter = Arc::clone(&count);
    let schema = json!({"type": "object", "properties": {"cents": {"type": "integer"}}});
    tools
        .add(value_tool("charge", "", schema, Policy::write(), move |args: Value, _at| {
            counter.fetch_add(1, Ordering::SeqCst);
            async move { Ok(json!({"charged": args["cents"]})) }
        }))
        .unwrap();
    let run = Run::start(&guard, "r").await.unwrap();
    let first = tools.call(&run, Call::new("charge", r#"{"cents": 42}"#).id("a").turn(0)).await;
    let again = tools.call(&run, Call::new("charge", r#"{"cents": 42.0}"#).id("b").turn(1)).await;
    let redelivered = tools.call(&run, Call::new("charge", r#"{"cents": 42}"#).id("a").turn(0)).await;
    let other = tools.call(&run, Call::new("charge", r#"{"cents": 43}"#).id("c").turn(1)).await;
    println!("{first:?}\n{again:?}\n{redelivered:?}\n{other:?}");
    assert_eq!(first.kind(), ReplyKind::Executed);
    assert_eq!((again.kind(), again.is_marked()), (ReplyKind::Replayed, true));
    assert_eq!((redelivered.kind(), redelivered.is_marked()), (ReplyKind::Replayed, false));
    assert_eq!(other.kind(), ReplyKind::Executed);
    assert_eq!(count.load(Ordering::SeqCst), 2);
    let siblings: Vec<Call> = (0..2).map(|n| Call::new("charge", r#"{"cents": 7}"#).id(format!("s{n}"))).collect();
    let replies = tools.answer(&run, 2, &siblings).await;
    println!("{replies:?}");
    assert_eq!(count.load(Ordering::SeqCst), 3);
}

/// What a call tries again by itself is still one call, also without an id that tells it from others of its turn.
#[tokio::test]
async fn a_call_that_tries_again_keeps_its_one_place() {
    let desk = Desk::new().await.with("pay", Policy::write());
    let run = desk.run("r").await;
    desk.fails_with(ToolError::retryable("busy"));
    desk.fails_with(ToolError::retryable("busy"));
    let waits = desk.begin(&run, call("pay", &json!({"n": 1})).turn(0)).await;
    for _ in 0..10 {
        desk.pass(Duration::from_secs(1)).await;
    }
    let reply = waits.await.unwrap();
    assert_eq!((reply.kind(), reply.is_marked(), desk.count("pay")), (ReplyKind::Executed, false, 1));
    let detail = desk.guard.show(reply.reference().unwrap()).await.unwrap().unwrap();
    assert_eq!(detail.execution.unwrap().places.len(), 1);
}

/// A place was told that its call failed, and then asked for something else, whose first attempt ended unknown: it was
/// told the old failure, "nothing was done", and the call was left in doubt.
#[tokio::test]
async fn a_place_that_asks_for_something_else_is_not_told_its_old_answer() {
    let schema = json!({"type": "object", "properties": {
        "to": {"type": "string", "x-toolonce": "identity"}, "note": {"type": "string", "x-toolonce": "content"},
    }});
    let twice = Policy::keyed(KeyWindow::Permanent).advanced(|a| a.attempts(2));
    let desk = Desk::new().await.with_schema("pay", twice, schema);
    let run = desk.run("r").await;
    let pay = async |to: &str, note: &str, turn| {
        let waits = desk.begin(&run, call("pay", &json!({"to": to, "note": note})).id("a").turn(turn)).await;
        desk.pass(Duration::from_secs(1)).await;
        waits.await.unwrap()
    };
    desk.fails_with(ToolError::retryable("busy"));
    desk.fails_with(ToolError::retryable("busy"));
    assert_eq!(pay("ann", "first", 1).await.kind(), ReplyKind::Failed);
    assert_eq!(pay("bob", "first", 3).await.kind(), ReplyKind::Executed);
    desk.fails_with(ToolError::unknown("the connection was lost"));
    let reply = pay("ann", "second", 1).await;
    assert_eq!((reply.kind(), desk.count("pay")), (ReplyKind::Executed, 2), "{reply:?}");
}
