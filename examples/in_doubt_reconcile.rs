//! A tool that can be asked "did this happen?": what is in doubt is looked up before anybody is bothered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use toolonce::store::MemoryStore;
use toolonce::{Attempt, Call, Guard, InDoubt, LookUp, Policy, Reconciled, Registry, Run, ToolError, value_tool};

/// The system downstream: parcels by the reference that we gave them.
type Parcels = Arc<Mutex<HashMap<String, String>>>;

/// Sends a parcel; then the connection breaks, and nobody knows whether it was sent.
async fn send(parcels: Parcels, args: Value, at: Attempt) -> Result<Value, ToolError> {
    at.check().await?; // right before the send: a tool with a look-up promises this
    let (reference, to) = (at.downstream_key().hex32(), args["to"].to_string());
    parcels.lock().unwrap_or_else(PoisonError::into_inner).insert(reference, to);
    Err(ToolError::unknown("the connection was lost"))
}

/// Asks the system downstream.
async fn find(parcels: Parcels, about: LookUp) -> Result<Reconciled<Value>, ToolError> {
    let parcels = parcels.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(match parcels.get(&about.downstream_key().hex32()) {
        Some(to) => Reconciled::Happened(json!({"sent_to": to.trim_matches('"')})),
        None => Reconciled::DidNotHappen, // counts once no send can be under way any more
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let parcels = Parcels::default();
    let guard = Guard::builder(MemoryStore::new(), "shop").build().await?;
    let mut tools = Registry::new(&guard);
    let schema = json!({"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]});
    let policy = Policy::write().in_doubt(InDoubt::Reconcile);
    let (there, here) = (Arc::clone(&parcels), Arc::clone(&parcels));
    let tool =
        value_tool("send_parcel", "Sends a parcel", schema, policy, move |args, at| send(there.clone(), args, at));
    tools.add(tool.reconcile(move |_arguments, about| find(here.clone(), about)))?;

    let run = Run::start(&guard, "order-17").await?;
    for turn in 0..2 {
        let reply = tools.call(&run, Call::new("send_parcel", r#"{"to": "Ada"}"#).turn(turn)).await;
        println!("{}: {}", reply.kind(), reply.outcome().map_or("nothing", |outcome| outcome.text()));
    }
    println!("parcels sent: {}", parcels.lock().unwrap_or_else(PoisonError::into_inner).len());
    println!("calls for a person to settle: {}", guard.inbox().await?.len());
    guard.shutdown(Duration::from_secs(10)).await?;
    Ok(())
}
