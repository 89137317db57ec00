//! What replays of recorded agent runs found.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use toolonce::store::MemoryStore;
use toolonce::{Call, Guard, Policy, Registry, ReplyKind, Resolution, Run, ToolError, value_tool};

fn any() -> Value {
    json!({"type": "object"})
}

/// A cancellation ended unknown and a person found that it had happened. The booking that it reopened was answered
/// with the outcome of the first one, as if nothing had been cancelled: the handle of the run didn't know.
#[tokio::test]
async fn a_completion_by_a_persons_word_reopens_at_once() {
    let guard = Guard::builder(MemoryStore::new(), "n").build().await.unwrap();
    let mut tools = Registry::new(&guard);
    let book = Policy::write().reopened_by(["cancel"]);
    tools.add(value_tool("book", "", any(), book, async |_, _| Ok(json!("booked")))).unwrap();
    let lost = async |_, _| Err(ToolError::unknown("the connection was lost"));
    tools.add(value_tool("cancel", "", any(), Policy::write(), lost)).unwrap();
    let run = Run::start(&guard, "r").await.unwrap();
    let call = |tool: &str, turn| Call::new(tool, r#"{"flight": 7}"#).turn(turn);

    assert_eq!(tools.call(&run, call("book", 0)).await.kind(), ReplyKind::Executed);
    let cancel = tools.call(&run, call("cancel", 1)).await;
    assert_eq!(cancel.kind(), ReplyKind::InDoubt);
    let happened = Resolution::Happened(json!("cancelled"));
    guard.resolve(cancel.reference().unwrap(), happened, "asked the airline").await.unwrap();

    assert_eq!(tools.call(&run, call("book", 2)).await.kind(), ReplyKind::Executed);
    assert_eq!(tools.call(&run, call("book", 3)).await.kind(), ReplyKind::Replayed);
}

/// A caller left while a read ran, something was written, and its host delivered the turn again: the second read was
/// answered, the first was kept, and a third delivery got another answer than the second.
#[tokio::test]
async fn one_place_has_one_answer_however_many_reads_ran_for_it() {
    let guard = Guard::builder(MemoryStore::new(), "n").build().await.unwrap();
    let (gate, begun) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (at_gate, signal, count) = (Arc::clone(&gate), Arc::clone(&begun), AtomicU32::new(0));
    let look = move |_: Value, _| {
        let (gate, begun) = (Arc::clone(&at_gate), Arc::clone(&signal));
        let nth = count.fetch_add(1, Ordering::SeqCst);
        async move {
            begun.add_permits(1);
            gate.acquire().await?.forget();
            Ok(json!(nth))
        }
    };
    let mut tools = Registry::new(&guard);
    tools.add(value_tool("look", "", any(), Policy::read_only(), look)).unwrap();
    tools.add(value_tool("note", "", any(), Policy::write(), async |_, _| Ok(json!("noted")))).unwrap();
    let run = Run::start(&guard, "r").await.unwrap();
    let calls = [Call::new("look", r#"{"order": 7}"#).id("a")];

    let first = tokio::spawn({
        let (tools, run, calls) = (tools.clone(), run.clone(), calls.clone());
        async move { tools.answer(&run, 0, &calls).await }
    });
    begun.acquire().await.unwrap().forget();
    first.abort();
    // Else the second delivery would share the read of the first.
    assert_eq!(tools.call(&run, Call::new("note", r#"{"text": "x"}"#)).await.kind(), ReplyKind::Executed);
    let second = tokio::spawn({
        let (tools, run, calls) = (tools.clone(), run.clone(), calls.clone());
        async move { tools.answer(&run, 0, &calls).await }
    });
    begun.acquire().await.unwrap().forget();
    gate.add_permits(2);
    let second = second.await.unwrap();
    let third = tools.answer(&run, 0, &calls).await;
    assert_eq!(second[0].message(), third[0].message());
}
