//! A refund that a person has to approve: the question outlives the process that asked it.

use std::time::Duration;

use serde_json::{Value, json};
use toolonce::store::SledStore;
use toolonce::{Approval, Call, Guard, Policy, Registry, Run, Seen, value_tool};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let guard = Guard::builder(SledStore::open("calls").await?, "shop").build().await?;
    let mut tools = Registry::new(&guard);
    let schema = json!({"type": "object", "properties": {"cents": {"type": "integer"}}, "required": ["cents"]});
    let policy = Policy::write().approval(Approval::First);
    tools.add(value_tool("refund", "Pays money back", schema, policy, async |args: Value, _at| {
        Ok(json!({"refunded": args["cents"]}))
    }))?;

    let run = Run::start_or_resume(&guard, "complaint-4", Seen::Nothing).await?;
    for turn in 0..3 {
        // By default a caller waits a minute for the person.
        let call = Call::new("refund", r#"{"cents": 4200}"#).turn(turn).patience(Duration::from_secs(1));
        let reply = tools.call(&run, call).await;
        println!("{}", reply.outcome().map_or(reply.kind().name(), |outcome| outcome.text()));

        // Elsewhere: a person looks at what waits, and decides.
        for asked in guard.approvals().await? {
            println!("  {} of {} with {}", asked.tool, asked.run, asked.arguments.unwrap_or_default());
            guard.approve(&asked.reference).await?;
        }
    }
    guard.shutdown(Duration::from_secs(10)).await?;
    Ok(())
}
