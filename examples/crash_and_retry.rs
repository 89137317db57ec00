//! A process that dies in mid-charge, and the next one that goes on: what was done is replayed, what isn't known is
//! held, and a person settles it.

use std::time::Duration;

use serde_json::{Value, json};
use toolonce::store::SledStore;
use toolonce::{Call, Guard, Policy, Registry, Resolution, Run, Seen, ToolError, value_tool};

/// Charges a card. The process dies over the one of cus_2, after the money moved and before anybody knows.
async fn charge(args: Value, dies: bool) -> Result<Value, ToolError> {
    println!("  the money of {} moves", args["customer"]);
    if dies && args["customer"] == "cus_2" {
        std::process::exit(0); // as a power cut would, but for the exit code
    }
    Ok(json!({"charged": args["customer"]}))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dies = std::env::args().nth(1).as_deref() == Some("--die");
    if !dies {
        println!("the first process:");
        std::process::Command::new(std::env::current_exe()?).arg("--die").status()?;
        println!("it is dead. The next one:");
    }
    let guard = Guard::builder(SledStore::open("calls").await?, "shop").build().await?;
    let mut tools = Registry::new(&guard);
    let schema = json!({"type": "object", "properties": {"customer": {"type": "string"}}, "required": ["customer"]});
    tools.add(value_tool("charge", "Charges a card", schema, Policy::write(), move |args, _| charge(args, dies)))?;

    let run = Run::start_or_resume(&guard, "invoices-of-may", Seen::Nothing).await?;
    for customer in ["cus_1", "cus_2"] {
        let call = Call::new("charge", json!({ "customer": customer }).to_string()).id(customer).turn(0);
        println!("{customer}: {}", tools.call(&run, call).await.kind());
    }

    // The person on call asks the payment provider, finds the charge, and says so.
    for doubt in guard.inbox().await? {
        println!("in doubt: {} of {}, reference {}", doubt.tool, doubt.run, doubt.reference);
        let happened = Resolution::Happened(json!({"charged": "cus_2"}));
        guard.resolve(&doubt.reference, happened, "found in the provider's list of charges").await?;
    }
    let again = tools.call(&run, Call::new("charge", r#"{"customer": "cus_2"}"#).id("cus_2").turn(0)).await;
    println!("cus_2: {}, {}", again.kind(), again.message());
    guard.shutdown(Duration::from_secs(10)).await?;
    Ok(())
}
