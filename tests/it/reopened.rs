//! What is done again because another tool undid it.

use serde_json::{Value, json};
use toolonce::{InDoubt, Policy, Reopener, ReplyKind, Resolution, Run, Seen, ToolError};

use crate::bench::call;
use crate::desk::Desk;

fn room(n: u32) -> Value {
    json!({"room": n})
}

fn by_room() -> Value {
    json!({"type": "object", "properties": {"room": {"type": "integer", "x-toolonce": "identity"}}})
}

fn book() -> Policy {
    Policy::write().reopened_by(["cancel"])
}

/// Each call in a turn of its own; what it got.
async fn talk(desk: &Desk, run: &Run, calls: &[(&str, Value)]) -> Vec<ReplyKind> {
    let mut kinds = Vec::new();
    for (tool, args) in calls {
        let turn = u32::try_from(desk.count("book") + desk.count("cancel") + kinds.len()).unwrap();
        kinds.push(desk.ask(run, call(tool, args).turn(turn * 2)).await.kind());
    }
    kinds
}

use ReplyKind::{Executed, Replayed};

#[tokio::test]
async fn one_cancel_reopens_once() {
    let desk = Desk::new().await.with("book", book()).with("cancel", Policy::write());
    let run = desk.run("r").await;
    let calls = [
        ("cancel", room(9)), // before there was anything to cancel
        ("book", room(1)),
        ("book", room(1)),
        ("cancel", room(1)),
        ("book", room(1)),
        ("book", room(1)),
        ("cancel", room(1)), // a replay is no completion
        ("book", room(1)),
        ("cancel", room(2)), // with nothing to compare any later completion counts
        ("book", room(1)),
    ];
    let kinds = talk(&desk, &run, &calls).await;
    let wanted = [Executed, Executed, Replayed, Executed, Executed, Replayed, Replayed, Replayed, Executed, Executed];
    assert_eq!(kinds, wanted);
    assert_eq!(desk.count("book"), 3);
}

#[tokio::test]
async fn a_common_identity_must_be_equal() {
    let desk = Desk::new().await.with_schema("book", book(), by_room());
    let desk = desk.with_schema("cancel", Policy::write(), by_room());
    let run = desk.run("r").await;
    let calls = [
        ("book", room(1)),
        ("cancel", room(2)),
        ("book", room(1)),
        ("cancel", room(1)),
        ("cancel", room(3)),
        ("book", room(1)),
        ("book", room(1)),
    ];
    let kinds = talk(&desk, &run, &calls).await;
    assert_eq!(kinds, [Executed, Executed, Replayed, Executed, Executed, Executed, Replayed]);
}

#[tokio::test]
async fn an_argument_may_point_at_the_result() {
    let policy = Policy::write().reopened_by([Reopener::new("cancel").when("/booking", "/n")]);
    let desk = Desk::new().await.with("book", policy).with("cancel", Policy::write());
    let run = desk.run("r").await;
    let kinds = talk(
        &desk,
        &run,
        &[
            ("book", room(1)), // returns {"n": 0}
            ("cancel", json!({"booking": 7})),
            ("cancel", json!({"other": 0})),
            ("book", room(1)),
            ("cancel", json!({"booking": 0})),
            ("book", room(1)), // returns {"n": 4}
            ("cancel", json!({"booking": 0, "again": true})),
            ("book", room(1)),
        ],
    )
    .await;
    assert_eq!(kinds, [Executed, Executed, Executed, Replayed, Executed, Executed, Executed, Replayed]);
    assert_eq!(desk.count("book"), 2);
}

#[tokio::test]
async fn a_cancel_that_failed_reopens_nothing_and_one_in_doubt_when_a_human_says_it_happened() {
    let desk = Desk::new().await.with("book", book()).with("cancel", Policy::write().in_doubt(InDoubt::Hold));
    let run = desk.run("r").await;
    assert_eq!(talk(&desk, &run, &[("book", room(1))]).await, [Executed]);
    desk.fails_with(ToolError::permanent("too late"));
    assert_eq!(talk(&desk, &run, &[("cancel", room(1)), ("book", room(1))]).await, [ReplyKind::Failed, Replayed]);
    desk.fails_with(ToolError::unknown("lost"));
    assert_eq!(talk(&desk, &run, &[("cancel", room(1)), ("book", room(1))]).await, [ReplyKind::InDoubt, Replayed]);
    let doubt = desk.guard.inbox().await.unwrap().remove(0);
    desk.guard.resolve(&doubt.reference, Resolution::Happened(json!("cancelled")), "asked").await.unwrap();
    let run = Run::attach(&desk.guard, "r").await.unwrap();
    let late = desk.ask(&run, call("book", &room(1)).turn(50)).await;
    let again = desk.ask(&run, call("book", &room(1)).turn(51)).await;
    assert_eq!((late.kind(), again.kind(), desk.count("book")), (Executed, Replayed, 2));
}

/// A booking that a human found to have happened stands after the cancel that came before that word.
#[tokio::test]
async fn a_cancel_from_before_a_humans_word_reopens_nothing() {
    let desk = Desk::new().await.with("book", book()).with("cancel", Policy::write());
    let run = desk.run("r").await;
    desk.fails_with(ToolError::unknown("lost"));
    let calls = [("book", room(1)), ("cancel", room(2))];
    assert_eq!(talk(&desk, &run, &calls).await, [ReplyKind::InDoubt, Executed]);
    let doubt = desk.guard.inbox().await.unwrap().remove(0);
    desk.guard.resolve(&doubt.reference, Resolution::Happened(json!("booked")), "asked").await.unwrap();
    let late = desk.ask(&run, call("book", &room(1)).turn(50)).await;
    assert_eq!((late.kind(), desk.count("book")), (Replayed, 0));
}

/// A record forgets the places of old turns, but not that they are old.
#[tokio::test]
async fn a_turn_that_was_left_behind_is_not_reopened() {
    let desk = Desk::new().await.with("book", book()).with("cancel", Policy::write());
    let run = desk.run("r").await;
    for turn in 0..300 {
        desk.ask(&run, call("book", &room(1)).turn(turn)).await;
    }
    desk.ask(&run, call("cancel", &room(1)).turn(300)).await;
    desk.settle().await;
    let run = Run::resume(&desk.guard, "r", Seen::Through(300)).await.unwrap();
    for turn in [0, 1, 150, 299] {
        let old = desk.ask(&run, call("book", &room(1)).turn(turn)).await;
        assert!(matches!(old.kind(), ReplyKind::Replayed | ReplyKind::Stopped), "{turn}: {old:?}");
    }
    assert_eq!(desk.count("book"), 1);
    assert_eq!(desk.ask(&run, call("book", &room(1)).turn(301)).await.kind(), ReplyKind::Executed);
}
