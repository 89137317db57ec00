//! Doing the same thing again on purpose: three ways to say what a repeat means.

use std::time::Duration;

use serde_json::{Value, json};
use toolonce::store::MemoryStore;
use toolonce::{Call, Guard, Policy, RegisterError, Registry, Repeat, Run, value_tool};

fn add(tools: &mut Registry, name: &str, policy: Policy) -> Result<(), RegisterError> {
    let schema = json!({"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]});
    let done = name.to_owned();
    tools.add(value_tool(name, "Does it", schema, policy, move |args: Value, _at| {
        let done = done.clone();
        async move { Ok(json!({ done: args["what"] })) }
    }))?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let guard = Guard::builder(MemoryStore::new(), "shop").build().await?;
    let mut tools = Registry::new(&guard);
    add(&mut tools, "add_to_cart", Policy::write().repeat(Repeat::Each))?; // asking again means one more
    add(&mut tools, "send_email", Policy::write().again(true))?; // the model says when it means one more
    add(&mut tools, "book", Policy::write().reopened_by(["cancel"]))?; // what was cancelled may be booked again
    add(&mut tools, "cancel", Policy::write())?;

    let run = Run::start(&guard, "visit-1").await?;
    let calls = [
        ("add_to_cart", r#"{"what": "pen"}"#),
        ("add_to_cart", r#"{"what": "pen"}"#),
        ("send_email", r#"{"what": "hello"}"#),
        ("send_email", r#"{"what": "hello"}"#),
        ("send_email", r#"{"what": "hello", "again": 1}"#),
        ("book", r#"{"what": "table 4"}"#),
        ("book", r#"{"what": "table 4"}"#),
        ("cancel", r#"{"what": "table 4"}"#),
        ("book", r#"{"what": "table 4"}"#),
    ];
    for ((tool, arguments), turn) in calls.into_iter().zip(0..) {
        let reply = tools.call(&run, Call::new(tool, arguments).turn(turn)).await;
        println!("{tool:<12} {arguments:<32} {}", reply.kind());
    }
    guard.shutdown(Duration::from_secs(10)).await?;
    Ok(())
}
