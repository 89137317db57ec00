//! A policy of your own: from a map of functions, a table of what they do, and hints in their schemas.

use std::time::Duration;

use serde_json::{Value, json};
use toolonce::store::MemoryStore;
use toolonce::{Call, Guard, KeyWindow, Policy, Registry, Repeat, Run, value_tool};

/// What each tool does to the world. Unknown ones are taken for the most dangerous.
fn policy(name: &str) -> Policy {
    match name {
        "search" | "read_order" => Policy::read_only(),
        "set_status" => Policy::idempotent(),
        "charge" => Policy::keyed(KeyWindow::For(Duration::from_secs(24 * 3600))),
        "add_note" => Policy::write().repeat(Repeat::Each),
        _ => Policy::write().advanced(|a| a.attempts(1).attempt_deadline(Duration::from_secs(30))),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let guard = Guard::builder(MemoryStore::new(), "shop").build().await?;
    let mut tools = Registry::new(&guard);
    // The order is what the refund is about; the memo is part of its content; the reason means nothing.
    let refund = json!({"type": "object", "required": ["order"], "properties": {
        "order": {"type": "string", "x-toolonce": ["identity", "trim", "casefold"]},
        "memo": {"type": "string"},
        "reason": {"type": "string", "x-toolonce": "ignore"},
    }});
    let anything = json!({"type": "object"});
    for (name, schema) in [("search", &anything), ("add_note", &anything), ("refund", &refund)] {
        tools.add(value_tool(name, "", schema.clone(), policy(name), async |args: Value, _at| Ok(args)))?;
    }
    for warning in tools.lint() {
        println!("to look at: {warning}");
    }

    let run = Run::start(&guard, "ticket-9").await?;
    let calls = [
        ("search", r#"{"q": "open orders"}"#),
        ("search", r#"{"q": "open orders"}"#),
        ("add_note", r#"{"text": "called back"}"#),
        ("add_note", r#"{"text": "called back"}"#),
        ("refund", r#"{"order": "A-7", "memo": "damaged", "reason": "the box was open"}"#),
        ("refund", r#"{"order": " a-7", "memo": "damaged", "reason": "customer says damaged"}"#),
        ("refund", r#"{"order": "A-7", "memo": "late"}"#),
    ];
    for ((tool, arguments), turn) in calls.into_iter().zip(0..) {
        let reply = tools.call(&run, Call::new(tool, arguments).turn(turn)).await;
        println!("{:<9} {tool} {arguments} {}", reply.kind().name(), reply.differing_fields().join(" "));
    }
    guard.shutdown(Duration::from_secs(10)).await?;
    Ok(())
}
