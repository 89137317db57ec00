//! The argument by which a model asks for the same thing once more.

use serde_json::{Value, json};
use toolonce::{Policy, Registry, Repeat, ReplyKind, ToolError};

use crate::bench::call;
use crate::desk::Desk;

fn again() -> Policy {
    Policy::write().again(true)
}

fn closed() -> Value {
    json!({
        "type": "object", "additionalProperties": false, "required": ["cents"],
        "properties": {"cents": {"type": "integer"}},
    })
}

fn taken() -> Value {
    json!({"type": "object", "properties": {"again": {"type": "boolean"}}})
}

async fn desk() -> Desk {
    Desk::new().await.with_schema("pay", again(), closed())
}

fn offered(tools: &Registry) -> Value {
    tools.specs().next().unwrap().parameters["properties"].clone()
}

#[tokio::test]
async fn it_is_offered_under_a_name_that_the_tool_has_no_use_for() {
    let desk = desk().await;
    let shown = offered(&desk.tools);
    assert_eq!((&shown["again"]["type"], &shown["again"]["maximum"]), (&json!("integer"), &json!(20)));
    let shown = offered(&Desk::new().await.with_schema("pay", again(), taken()).tools);
    assert_eq!((&shown["again"]["type"], &shown["toolonce_again"]["type"]), (&json!("boolean"), &json!("integer")));
    let shown = offered(&Desk::new().await.with_schema("pay", Policy::write(), closed()).tools);
    assert_eq!(shown.get("again"), None);
}

#[cfg(feature = "openai")]
#[tokio::test]
async fn a_strict_schema_has_it_nullable() {
    let desk = desk().await;
    let tool = serde_json::to_value(&toolonce::adapter::openai::chat_tools(&desk.tools)[0]).unwrap();
    let (function, parameters) = (&tool["function"], &tool["function"]["parameters"]);
    assert_eq!(function["strict"], json!(true));
    assert_eq!(parameters["additionalProperties"], json!(false));
    let required = parameters["required"].as_array().unwrap();
    assert!(required.contains(&json!("again")) && required.contains(&json!("cents")), "{required:?}");
    assert_eq!(parameters["properties"]["again"]["type"], json!(["integer", "null"]));
    let run = desk.run("r").await;
    let reply = desk.ask(&run, call("pay", &json!({"cents": 1, "again": null})).turn(0)).await;
    assert_eq!((reply.kind(), desk.effects("pay")), (ReplyKind::Executed, vec![json!({"cents": 1})]));
}

#[tokio::test]
async fn the_tool_never_sees_it() {
    let desk = Desk::new().await.with_schema("pay", again(), taken());
    let run = desk.run("r").await;
    let one = desk.ask(&run, call("pay", &json!({"again": true})).turn(0)).await;
    let two = desk.ask(&run, call("pay", &json!({"again": true, "toolonce_again": 1})).turn(1)).await;
    assert_eq!((one.kind(), two.kind()), (ReplyKind::Executed, ReplyKind::Executed));
    assert_eq!(desk.effects("pay"), [json!({"again": true}), json!({"again": true})]);
}

#[tokio::test]
async fn it_runs_once_for_each_number_and_leaves_no_gap() {
    let desk = desk().await;
    let run = desk.run("r").await;
    let times = |n: u32| json!({"cents": 1, "again": n});
    let early = desk.ask(&run, call("pay", &times(1)).turn(0)).await;
    assert_eq!(early.kind(), ReplyKind::Refused, "the first was not made");
    let first = desk.ask(&run, call("pay", &json!({"cents": 1})).turn(1)).await;
    assert_eq!(first.kind(), ReplyKind::Executed);
    let gap = desk.ask(&run, call("pay", &times(2)).turn(2)).await;
    assert!(gap.kind() == ReplyKind::Refused && gap.message().contains(r#"\"again\": 1"#), "{gap:?}");
    for (turn, n, effects) in [(3, 1, 2), (4, 1, 2), (5, 2, 3)] {
        let reply = desk.ask(&run, call("pay", &times(n)).turn(turn)).await;
        assert_eq!((desk.count("pay"), reply.is_marked()), (effects, turn == 4), "{reply:?}");
    }
    for bad in [json!({"cents": 1, "again": 21}), json!({"cents": 1, "again": -1}), json!({"cents": 1, "again": "1"})] {
        assert_eq!(desk.ask(&run, call("pay", &bad).turn(6)).await.kind(), ReplyKind::Refused);
    }
    assert_eq!(desk.count("pay"), 3);
}

#[tokio::test]
async fn the_call_before_answers_while_its_end_is_not_known_or_not_seen() {
    let desk = Desk::new().await.slow("pay", again());
    let run = desk.run("r").await;
    let (plain, more) = (json!({"cents": 1}), json!({"cents": 1, "again": 1}));
    let runs = desk.begin(&run, call("pay", &plain).turn(0)).await;
    let waits = desk.begin(&run, call("pay", &more).turn(1)).await;
    assert!(!waits.is_finished(), "it waits for the one that runs");
    runs.abort();
    desk.gate.add_permits(100);
    let joined = waits.await.unwrap();
    assert_eq!((joined.is_marked(), desk.count("pay")), (true, 1), "{joined:?}");
    // Now its outcome was seen.
    assert_eq!(desk.ask(&run, call("pay", &more).turn(2)).await.kind(), ReplyKind::Executed);

    desk.fails_with(ToolError::unknown("lost"));
    let (plain, more) = (json!({"cents": 2}), json!({"cents": 2, "again": 1}));
    let doubt = desk.ask(&run, call("pay", &plain).turn(3)).await;
    let held = desk.ask(&run, call("pay", &more).turn(4)).await;
    assert_eq!((doubt.kind(), held.kind()), (ReplyKind::InDoubt, ReplyKind::InDoubt));
    assert_eq!(doubt.reference(), held.reference());
    assert!(!held.message().contains("again\\\""), "it isn't offered there: {held:?}");

    desk.fails_with(ToolError::permanent("declined"));
    let (plain, more) = (json!({"cents": 3}), json!({"cents": 3, "again": 1}));
    assert_eq!(desk.ask(&run, call("pay", &plain).turn(5)).await.kind(), ReplyKind::Failed);
    assert_eq!(desk.ask(&run, call("pay", &more).turn(6)).await.kind(), ReplyKind::Executed);
}

/// Nobody has seen the first one's outcome when the message asks for the second.
#[tokio::test]
async fn beside_its_plain_sibling_it_is_that_one() {
    let desk = desk().await;
    let run = desk.run("r").await;
    let calls = [call("pay", &json!({"cents": 1, "again": 1})), call("pay", &json!({"cents": 1}))];
    for _ in 0..2 {
        let replies = desk.tools.answer(&run, 0, &calls).await;
        assert_eq!(desk.count("pay"), 1, "{replies:?}");
    }
    assert_eq!(desk.ask(&run, call("pay", &json!({"cents": 1, "again": 1})).turn(1)).await.kind(), ReplyKind::Executed);
    assert_eq!(desk.count("pay"), 2);
}

#[tokio::test]
async fn asking_again_asks_a_person_where_repeats_do() {
    let desk = Desk::new().await.with("pay", again().repeat(Repeat::Ask));
    let run = desk.run("r").await;
    desk.ask(&run, call("pay", &json!({"cents": 1})).turn(0)).await;
    let once_more = |turn| call("pay", &json!({"cents": 1, "again": 1})).turn(turn);
    assert_eq!(desk.ask(&run, once_more(1)).await.kind(), ReplyKind::AwaitingApproval);
    desk.guard.approve(&desk.question().await).await.unwrap();
    assert_eq!(desk.ask(&run, once_more(2)).await.kind(), ReplyKind::Executed);
    assert_eq!(desk.ask(&run, once_more(2)).await.kind(), ReplyKind::Replayed);
    assert_eq!(desk.count("pay"), 2);
}
