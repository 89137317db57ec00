//! The program of the README: one write, asked for again and again, done once.

use std::time::Duration;
use toolonce::store::SledStore;
use toolonce::{Call, Guard, Policy, Registry, Run, Seen, tool};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Charge {
    customer: String,
    cents: u64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let guard = Guard::builder(SledStore::open("calls").await?, "shop").build().await?;
    let mut tools = Registry::new(&guard);
    tools.add(tool("charge_card", "Charges a card", Policy::write(), async |args: Charge, _attempt| {
        Ok(format!("charged {} cents to {}", args.cents, args.customer)) // here the money moves
    }))?;

    let run = Run::start_or_resume(&guard, "order-17", Seen::Nothing).await?;
    for turn in 0..2 {
        let call = Call::new("charge_card", r#"{"customer": "cus_1", "cents": 4200}"#).turn(turn);
        let reply = tools.call(&run, call).await;
        println!("{}: {}", reply.kind(), reply.message());
    }
    guard.shutdown(Duration::from_secs(10)).await?;
    Ok(())
}
