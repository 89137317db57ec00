//! Bad input gets one clear answer, and nothing is claimed or lost for it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use toolonce::store::{MemoryStore, Store};
use toolonce::{
    Attempt, Call, ErrorKind, Guard, InDoubt, KeyWindow, Policy, Registry, Repeat, ReplyKind, Run, ToolError, tool,
    value_tool,
};

use crate::bench::{call, shop};

fn nothing(_: Value, _: toolonce::Attempt) -> std::future::Ready<Result<Value, ToolError>> {
    std::future::ready(Ok(json!(null)))
}

#[tokio::test]
async fn a_second_guard_on_a_store_for_one_is_refused_until_the_first_is_gone() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let first = Guard::builder_on(Arc::clone(&store), "n").build().await.unwrap();
    let second = Guard::builder_on(Arc::clone(&store), "other").build().await.unwrap_err();
    assert_eq!(second.kind(), ErrorKind::Invalid);
    assert!(second.to_string().contains("with_namespace"), "{second}");
    drop(first);
    for _ in 0..100 {
        tokio::task::yield_now().await; // the guard's tasks let go of it
    }
    Guard::builder_on(store, "n").build().await.unwrap();
    let shared = MemoryStore::shared();
    let _one = Guard::builder(shared.clone(), "n").build().await.unwrap();
    let _two = Guard::builder(shared, "n").build().await.unwrap();
}

#[tokio::test]
async fn malformed_arguments_claim_nothing_and_say_what_to_do() {
    let shop = shop().await;
    let run = shop.run("r").await;
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(200), "]".repeat(200));
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(2 << 20));
    let bad = [
        "{\"cents\": 1",
        "{\"cents\": 1}{\"cents\": 2}",
        "{\"cents\": 1, \"cents\": 2}",
        "{\"cents\": NaN}",
        "{\"cents\": 1e999}",
        "{\"cents\": 18446744073709551617}",
        "{\"to\": \"\\ud800\"}",
        "\u{feff}{\"cents\": 1}",
        "[1]",
        "\"charge\"",
        "{'cents': 1}",
        "{\"cents\": 1,}",
        "{}",
        "null",
        "",
        &deep,
        &large,
    ];
    for text in bad {
        let shown: String = text.chars().take(40).collect();
        let reply = shop.tools.call(&run, Call::new("charge", text).id("c").turn(0)).await;
        assert_eq!(reply.kind(), ReplyKind::Refused, "{shown}");
        assert_eq!((reply.id(), reply.reference()), ("c", None), "{shown}");
        assert!(
            reply.message().contains("Nothing was done for this call: ") && reply.message().len() < 500,
            "{}",
            reply.message()
        );
    }
    let unknown = shop.tools.call(&run, Call::new("chrage", "{}")).await;
    assert!(unknown.message().contains("charge"), "{unknown:?}");
    assert!(shop.ledger.lines().is_empty());
    assert!(shop.guard.inbox().await.unwrap().is_empty());
}

#[tokio::test]
async fn what_can_not_be_guarded_is_not_registered() {
    let shop = shop().await;
    let open = || json!({"type": "object"});
    let closed = || json!({"type": "object", "additionalProperties": false});
    let try_one = |name: &str, schema: Value, policy: Policy| {
        let mut tools = Registry::new(&shop.guard);
        tools.add(value_tool(name, "", schema, policy, nothing)).map(|_| ()).map_err(|error| error.to_string())
    };
    let refused = |name: &str, schema: Value, policy: Policy, why: &str| {
        let error = try_one(name, schema, policy).unwrap_err();
        assert!(error.contains(why), "{error}");
    };
    refused("", open(), Policy::write(), "a name has");
    refused("t", closed(), Policy::write(), "Policy::repeat");
    refused("t", json!({"type": "banana"}), Policy::write(), "no type");
    refused("t", json!({"type": "object", "x-toolnce": "set"}), Policy::write(), "x-toolonce");
    refused("t", json!({"properties": {"a": {"x-toolonce": "secret"}}}), Policy::write(), "secret");
    refused("t", open(), Policy::write().in_doubt(InDoubt::Reconcile), "reconcile");
    refused("t", open(), Policy::write().in_doubt(InDoubt::Resend), "keyed");
    refused("t", open(), Policy::keyed(KeyWindow::For(Duration::ZERO)), "window is zero");
    refused("t", open(), Policy::write().advanced(|a| a.attempt_deadline(Duration::ZERO)), "deadline is zero");
    refused("t", open(), Policy::write().reopened_by(["t"]), "itself");
    try_one("t", closed(), Policy::write().repeat(Repeat::Once)).unwrap();
    let mut tools = Registry::new(&shop.guard);
    tools.add(value_tool("t", "", open(), Policy::write(), nothing)).unwrap();
    assert!(tools.add(value_tool("t", "", open(), Policy::write(), nothing)).is_err());
}

#[tokio::test]
async fn the_model_sees_no_hints_and_every_property() {
    let shop = shop().await;
    let mut tools = Registry::new(&shop.guard);
    let schema = json!({
        "type": "object",
        "properties": {
            "x-toolonce-id": {"type": "string"},
            "why": {"type": "string", "x-toolonce": "ignore"},
            "kind": {"enum": [{"x-toolonce": 1}]}
        },
        "required": ["x-toolonce-id"]
    });
    tools.add(value_tool("t", "", schema, Policy::write(), nothing)).unwrap();
    let seen = &tools.specs().next().unwrap().parameters;
    assert_eq!(seen["properties"]["x-toolonce-id"]["type"], "string");
    assert_eq!(seen["properties"]["why"], json!({"type": "string"}));
    assert_eq!(seen["properties"]["kind"]["enum"][0]["x-toolonce"], 1);
}

#[tokio::test]
async fn a_run_of_another_guard_is_refused_and_endless_names_are_not() {
    let (one, other) = (shop().await, shop().await);
    let run = other.run("r").await;
    for tool in ["charge", "look"] {
        let reply = one.tools.call(&run, call(tool, &json!({"n": 1}))).await;
        assert_eq!(reply.kind(), ReplyKind::Refused);
        assert!(reply.message().contains("another guard"), "{reply:?}");
    }
    let run = one.run("r").await;
    // An endless id and an endless name of an argument are odd, and no reason to refuse.
    let id = "x".repeat(70_000);
    let reply = one.tools.call(&run, call("charge", &json!({"n": 1})).id(id.clone()).turn(0)).await;
    assert_eq!((reply.kind(), reply.id()), (ReplyKind::Executed, id.as_str()));
    let reply = one.tools.call(&run, call("charge", &json!({"k".repeat(70_000): 1})).turn(1)).await;
    assert_eq!(reply.kind(), ReplyKind::Executed);
    assert_eq!((one.ledger.lines().len(), other.ledger.lines().len()), (2, 0));
}

#[tokio::test]
async fn endless_durations_harm_nothing() {
    let shop = shop().await;
    let mut tools = Registry::new(&shop.guard);
    let policy = Policy::write().advanced(|a| a.attempt_deadline(Duration::MAX).settle_delay(Duration::MAX));
    let busy = |_: Value, _| std::future::ready(Err(ToolError::retryable("busy").retry_after(Duration::MAX)));
    tools.add(value_tool("busy", "", json!({"type": "object"}), policy, busy)).unwrap();
    let run = shop.run("r").await;
    for turn in 0..2 {
        let call = call("busy", &json!({"n": 1})).turn(turn).patience(Duration::MAX);
        let reply = tokio::spawn({
            let (tools, run) = (tools.clone(), run.clone());
            async move { tools.call(&run, call).await }
        });
        shop.pass(Duration::from_secs(60)).await;
        reply.abort();
    }
    assert!(shop.guard.inbox().await.unwrap().is_empty());
}

#[tokio::test]
async fn patience_zero_starts_the_tool_and_does_not_wait() {
    let shop = shop().await;
    let run = shop.run("r").await;
    let impatient = || call("charge", &json!({"cents": 1})).id("c").turn(0).patience(Duration::ZERO);
    let first = shop.tools.call(&run, impatient()).await;
    assert!(matches!(first.kind(), ReplyKind::Running | ReplyKind::Executed), "{first:?}");
    shop.settle().await;
    let again = shop.tools.call(&run, impatient()).await;
    assert_eq!((again.kind(), shop.ledger.count("charge")), (ReplyKind::Replayed, 1));
}

#[tokio::test]
async fn a_step_whose_value_can_not_be_read_back_is_an_error_at_once() {
    let shop = shop().await;
    let run: Run = shop.run("r").await;
    let error = run.step("nan", "", || async { Ok(f64::NAN) }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert_eq!(run.step("nan", "", || async { Ok(1.5) }).await.unwrap(), 1.5);
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct NoArguments {}

#[tokio::test]
async fn a_typed_write_tool_without_arguments_says_what_a_repeat_means() {
    let mut shop = shop().await;
    let reboot = |policy| tool("reboot", "", policy, async |_: NoArguments, _: Attempt| Ok("done".to_owned()));
    let refused = shop.tools.add(reboot(Policy::write())).unwrap_err();
    assert!(refused.to_string().contains("Policy::repeat"), "{refused}");
    shop.tools.add(reboot(Policy::write().repeat(Repeat::Once))).unwrap();
    let run = shop.run("r").await;
    assert_eq!(shop.tools.call(&run, call("reboot", &json!({}))).await.kind(), ReplyKind::Executed);
}
