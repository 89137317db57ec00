//! Calls that need a human's permission.

use std::time::Duration;

use serde_json::{Value, json};
use toolonce::protocol::record::Reason;
use toolonce::store::MemoryStore;
use toolonce::{Approval, Clock, ErrorKind, Policy, Repeat, Reply, ReplyKind, Resolution, Run, Scope, Seen, ToolError};

use crate::bench::call;
use crate::desk::{Desk, World};
use crate::stops::Stops;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn first() -> Policy {
    Policy::write().approval(Approval::First)
}

fn args() -> Value {
    json!({"to": "ann"})
}

async fn desk() -> Desk {
    Desk::new().await.with("pay", first())
}

#[tokio::test]
async fn an_approval_wakes_a_waiting_caller_at_once() {
    let desk = desk().await;
    let run = desk.run("r").await;
    let waits = desk.begin(&run, call("pay", &args()).turn(0)).await;
    assert_eq!((desk.count("pay"), waits.is_finished()), (0, false));
    let asked = desk.guard.approvals().await.unwrap().remove(0);
    assert_eq!((asked.tool.as_str(), asked.run.as_str(), asked.reason), ("pay", "r", Reason::First));
    assert_eq!((asked.asked_at, asked.arguments.as_deref()), (desk.world.clock.wall(), Some(r#"{"to":"ann"}"#)));

    desk.guard.approve(&asked.reference).await.unwrap();
    desk.settle().await;
    assert!(waits.is_finished(), "no time has passed");
    assert_eq!(waits.await.unwrap().kind(), ReplyKind::Executed);
    assert_eq!(desk.count("pay"), 1);
    assert!(desk.guard.approvals().await.unwrap().is_empty());
}

#[tokio::test]
async fn an_approval_in_another_process_wakes_it_too() {
    let (store, world) = (MemoryStore::shared(), World::default());
    let desk = Desk::on(store.clone(), world.clone()).await.with("pay", first());
    let other = Desk::on(store, world).await;
    let run = desk.run("r").await;
    let waits = desk.begin(&run, call("pay", &args()).turn(0)).await;
    other.guard.approve(&other.question().await).await.unwrap();
    desk.settle().await;
    assert!(waits.is_finished(), "no time has passed");
    assert_eq!((waits.await.unwrap().kind(), desk.count("pay")), (ReplyKind::Executed, 1));
}

#[tokio::test]
async fn a_caller_without_patience_is_told_and_the_next_equal_call_runs() {
    let desk = desk().await;
    let run = desk.run("r").await;
    let told = desk.ask(&run, call("pay", &args()).turn(0)).await;
    assert_eq!(told.kind(), ReplyKind::AwaitingApproval);
    assert_eq!(told.reference(), Some(desk.question().await.as_str()));
    assert!(told.message().contains("has to approve"), "{told:?}");
    desk.guard.approve(told.reference().unwrap()).await.unwrap();
    desk.settle().await;
    assert_eq!(desk.count("pay"), 0, "nobody asks for it any more");
    // Another call id doesn't void the permission, other arguments do.
    let other = desk.ask(&run, call("pay", &json!({"to": "bob"})).turn(1)).await;
    assert_eq!(other.kind(), ReplyKind::AwaitingApproval);
    let runs = desk.ask(&run, call("pay", &args()).id("other").turn(1)).await;
    assert_eq!((runs.kind(), runs.is_marked()), (ReplyKind::Executed, false));
    let replayed = desk.ask(&run, call("pay", &args()).turn(2)).await;
    assert_eq!(replayed.kind(), ReplyKind::Replayed);
    assert_eq!(desk.effects("pay"), [args()]);
}

/// A reference that a caller is told can be answered: its question is in the store by then.
#[tokio::test]
async fn who_is_told_to_wait_for_a_person_waits_for_a_question_that_is_there() {
    for n in 0.. {
        let stops = Stops::new(MemoryStore::new());
        let desk = Desk::on(stops.clone(), World::default()).await.with("pay", first());
        let run = desk.run("r").await;
        stops.stop_after(n);
        let waits = desk.begin(&run, call("pay", &args()).turn(0)).await;
        let was_stopped = stops.stopped(&desk).await;
        desk.pass(Duration::from_secs(61)).await;
        let told = waits.await.unwrap();
        let listed = desk.guard.approvals().await.unwrap();
        let is_listed = |reference| listed.iter().any(|question| question.reference == reference);
        match told.kind() {
            ReplyKind::AwaitingApproval => assert!(is_listed(told.reference().unwrap()), "operation {n}: {told:?}"),
            kind => assert_eq!((kind, told.reference()), (ReplyKind::Running, None), "operation {n}: {told:?}"),
        }
        stops.go();
        if !was_stopped {
            assert_eq!(told.kind(), ReplyKind::AwaitingApproval);
            return;
        }
    }
}

#[tokio::test]
async fn two_that_wait_share_one_approval() {
    let desk = desk().await;
    let run = desk.run("r").await;
    let one = desk.begin(&run, call("pay", &args()).turn(0)).await;
    let other = desk.begin(&run, call("pay", &args()).turn(1)).await;
    desk.guard.approve(&desk.question().await).await.unwrap();
    desk.settle().await;
    let (one, other) = (one.await.unwrap(), other.await.unwrap());
    assert_eq!(desk.count("pay"), 1, "{one:?} {other:?}");
    assert_eq!([&one, &other].iter().filter(|reply| reply.kind() == ReplyKind::Executed).count(), 1);
    assert_eq!(one.outcome(), other.outcome());
    assert!(one.is_marked() != other.is_marked(), "{one:?} {other:?}");
}

#[tokio::test]
async fn siblings_under_each_need_one_permission_each() {
    let desk = Desk::new().await.with("pay", first().repeat(Repeat::Each));
    let run = desk.run("r").await;
    let calls = [call("pay", &args()).id("a"), call("pay", &args()).id("b")];
    let tools = desk.tools.clone();
    let waits = tokio::spawn(async move { tools.answer(&run, 0, &calls).await });
    for permitted in 1..=2 {
        desk.settle().await;
        desk.guard.approve(&desk.question().await).await.unwrap();
        desk.settle().await;
        assert_eq!(desk.count("pay"), permitted);
    }
    let replies = waits.await.unwrap();
    assert!(replies.iter().all(|reply| reply.kind() == ReplyKind::Executed), "{replies:?}");
}

#[tokio::test]
async fn a_denial_reaches_the_model_and_holds_for_the_run() {
    let desk = desk().await;
    let run = desk.run("r").await;
    let waits = desk.begin(&run, call("pay", &args()).turn(0)).await;
    desk.guard.deny(&desk.question().await, "not this month").await.unwrap();
    desk.settle().await;
    let told = waits.await.unwrap();
    assert_eq!(told.kind(), ReplyKind::Denied);
    assert!(told.message().contains("not this month"), "{told:?}");
    desk.pass(2 * DAY).await;
    for turn in 0..3 {
        assert_eq!(desk.ask(&run, call("pay", &args()).turn(turn)).await.kind(), ReplyKind::Denied);
    }
    let resumed = Run::resume(&desk.guard, "r", Seen::Nothing).await.unwrap();
    assert_eq!(desk.ask(&resumed, call("pay", &args()).turn(0)).await.kind(), ReplyKind::Denied);
    // It says nothing of other runs and other arguments.
    let other = desk.run("s").await;
    assert_eq!(desk.ask(&other, call("pay", &args()).turn(0)).await.kind(), ReplyKind::AwaitingApproval);
    let bob = call("pay", &json!({"to": "bob"})).turn(4);
    assert_eq!(desk.ask(&resumed, bob).await.kind(), ReplyKind::AwaitingApproval);
    assert_eq!(desk.count("pay"), 0);
}

#[tokio::test]
async fn a_question_and_its_answer_survive_a_restart() {
    let (mut store, world) = (MemoryStore::new(), World::default());
    let desk = Desk::on(store.clone(), world.clone()).await.with("pay", first());
    let run = desk.run("r").await;
    assert_eq!(desk.ask(&run, call("pay", &args()).turn(0)).await.kind(), ReplyKind::AwaitingApproval);
    desk.guard.crash();

    store = store.crash();
    let desk = Desk::on(store.clone(), world.clone()).await.with("pay", first());
    desk.guard.approve(&desk.question().await).await.unwrap();
    desk.guard.crash();

    let desk = Desk::on(store.crash(), world).await.with("pay", first());
    let run = Run::resume(&desk.guard, "r", Seen::Nothing).await.unwrap();
    let runs = desk.ask(&run, call("pay", &args()).turn(0)).await;
    assert_eq!((runs.kind(), desk.count("pay")), (ReplyKind::Executed, 1));
}

#[tokio::test]
async fn only_a_question_that_waits_can_be_answered() {
    let desk = desk().await;
    let run = desk.run("r").await;
    let refused = async |reference: &str| {
        let approved = desk.guard.approve(reference).await.unwrap_err();
        let denied = desk.guard.deny(reference, "").await.unwrap_err();
        assert_eq!((approved.kind(), denied.kind()), (ErrorKind::NoSuchCall, ErrorKind::NoSuchCall), "{approved}");
    };
    refused("000000000000").await;
    let asked = desk.ask(&run, call("pay", &args()).turn(0)).await.reference().unwrap().to_owned();
    desk.pass(DAY).await;
    refused(&asked).await;
    assert!(desk.guard.approvals().await.unwrap().is_empty(), "it is void");
    // Asked again, it waits again.
    assert_eq!(desk.ask(&run, call("pay", &args()).turn(1)).await.kind(), ReplyKind::AwaitingApproval);
    desk.guard.approve(&asked).await.unwrap();
    refused(&asked).await;
    assert_eq!(desk.ask(&run, call("pay", &args()).turn(2)).await.kind(), ReplyKind::Executed);
    refused(&asked).await;
    assert_eq!(desk.count("pay"), 1);
}

#[tokio::test]
async fn an_approved_execution_that_failed_may_be_tried_again() {
    let desk = Desk::new().await.with("pay", first().advanced(|a| a.attempts(1)));
    let run = desk.run("r").await;
    desk.fails_with(ToolError::retryable("busy"));
    desk.ask(&run, call("pay", &args()).turn(0)).await;
    desk.guard.approve(&desk.question().await).await.unwrap();
    assert_eq!(desk.ask(&run, call("pay", &args()).turn(1)).await.kind(), ReplyKind::Failed);
    assert_eq!(desk.ask(&run, call("pay", &args()).turn(2)).await.kind(), ReplyKind::Executed);
    assert_eq!(desk.count("pay"), 1);
}

#[tokio::test]
async fn each_repeat_needs_a_permission_of_its_own_and_a_question_leaves_what_is_done_alone() {
    let desk = Desk::new().await.with("pay", Policy::write().repeat(Repeat::Ask));
    let run = desk.run("r").await;
    let done = desk.ask(&run, call("pay", &args()).id("a").turn(0)).await;
    assert_eq!(done.kind(), ReplyKind::Executed);
    for turn in 1..=2 {
        let told = desk.ask(&run, call("pay", &args()).turn(turn)).await;
        assert_eq!((told.kind(), desk.count("pay")), (ReplyKind::AwaitingApproval, turn as usize), "{told:?}");
        assert!(told.message().contains("was done before"), "{told:?}");
        let before = desk.ask(&run, call("pay", &args()).id("a").turn(0)).await;
        assert_eq!((before.is_marked(), before.message()), (false, done.message()));
        desk.guard.approve(told.reference().unwrap()).await.unwrap();
        let again = desk.ask(&run, call("pay", &args()).turn(turn)).await;
        assert_eq!((again.kind(), again.is_marked()), (ReplyKind::Executed, false), "{again:?}");
    }
    assert_eq!(desk.count("pay"), 3);
}

/// Two runs ask for one thing: the permission of one is no way around the refusal of the other.
#[tokio::test]
async fn a_denial_holds_while_another_run_may_try_again() {
    let desk = Desk::new().await.with("pay", first().scope(Scope::Global).advanced(|a| a.attempts(1)));
    let (run, other) = (desk.run("r").await, desk.run("s").await);
    desk.ask(&other, call("pay", &args()).turn(0)).await;
    desk.guard.deny(&desk.question().await, "").await.unwrap();
    desk.ask(&run, call("pay", &args()).turn(0)).await;
    desk.guard.approve(&desk.question().await).await.unwrap();
    desk.fails_with(ToolError::retryable("busy"));
    assert_eq!(desk.ask(&run, call("pay", &args()).turn(1)).await.kind(), ReplyKind::Failed);
    assert_eq!(desk.ask(&other, call("pay", &args()).turn(1)).await.kind(), ReplyKind::Denied);
    assert_eq!(desk.ask(&run, call("pay", &args()).turn(2)).await.kind(), ReplyKind::Executed);
    assert_eq!(desk.count("pay"), 1);
}

/// What needed no permission when it was begun needs none to be tried again.
#[tokio::test]
async fn a_reopened_call_that_failed_is_no_repeat() {
    let policy = Policy::write().repeat(Repeat::Ask).reopened_by(["cancel"]).advanced(|a| a.attempts(1));
    let desk = Desk::new().await.with("book", policy).with("cancel", Policy::write());
    let run = desk.run("r").await;
    for (turn, tool) in ["book", "cancel"].into_iter().enumerate() {
        let reply = desk.ask(&run, call(tool, &args()).turn(turn as u32)).await;
        assert_eq!(reply.kind(), ReplyKind::Executed);
    }
    desk.fails_with(ToolError::retryable("busy"));
    assert_eq!(desk.ask(&run, call("book", &args()).turn(2)).await.kind(), ReplyKind::Failed);
    assert_eq!(desk.ask(&run, call("book", &args()).turn(3)).await.kind(), ReplyKind::Executed);
    assert_eq!(desk.ask(&run, call("book", &args()).turn(4)).await.kind(), ReplyKind::AwaitingApproval);
    assert_eq!(desk.count("book"), 2);
}

/// A call that asks because one that looks like it runs; that one then ends and is seen.
async fn asks_beside_a_look_alike(answer_at_once: bool) -> (Desk, Run, Reply) {
    let desk = Desk::new().await.slow("pay", Policy::write().repeat(Repeat::Ask));
    let run = desk.run("r").await;
    let alike = || call("pay", &json!({"to": "Ann"}));
    let runs = desk.begin(&run, alike().turn(0)).await;
    let told = desk.ask(&run, call("pay", &args()).turn(1).patience(Duration::from_secs(1))).await;
    assert_eq!(told.kind(), ReplyKind::AwaitingApproval);
    if answer_at_once {
        desk.guard.approve(told.reference().unwrap()).await.unwrap();
    }
    desk.gate.add_permits(100);
    desk.settle().await;
    desk.ask(&run, alike().turn(2)).await;
    drop(runs);
    (desk, run, told)
}

/// The question was about running beside a call that wasn't finished. It ran when that one was; the late answer must
/// not permit a repeat that nobody was asked about.
#[tokio::test]
async fn a_question_is_void_once_its_call_has_run_without_it() {
    let (desk, run, told) = asks_beside_a_look_alike(false).await;
    assert_eq!(desk.ask(&run, call("pay", &args()).turn(3)).await.kind(), ReplyKind::Executed);
    let late = desk.guard.approve(told.reference().unwrap()).await;
    assert_eq!(late.unwrap_err().kind(), ErrorKind::NoSuchCall);
    assert_eq!(desk.ask(&run, call("pay", &args()).turn(4)).await.kind(), ReplyKind::AwaitingApproval);
    assert_eq!(desk.effects("pay"), [json!({"to": "Ann"}), args()]);
}

/// The same if the answer came before the call ran, and the call needed none by then.
#[tokio::test]
async fn a_permission_that_its_call_did_not_need_is_void() {
    let (desk, run, _) = asks_beside_a_look_alike(true).await;
    assert_eq!(desk.ask(&run, call("pay", &args()).turn(3)).await.kind(), ReplyKind::Executed);
    assert_eq!(desk.ask(&run, call("pay", &args()).turn(4)).await.kind(), ReplyKind::AwaitingApproval);
    assert_eq!(desk.count("pay"), 2);
}

#[tokio::test]
async fn a_refusal_is_never_forgotten_for_newer_questions() {
    let schema = json!({"type": "object", "properties": {
        "to": {"type": "string"}, "memo": {"type": "string", "x-toolonce": "content"}}});
    let desk = Desk::new().await.with_schema("mail", Policy::write().advanced(|a| a.attempts(1)), schema);
    let run = desk.run("r").await;
    let original = || call("mail", &json!({"to": "Ann Lee", "memo": "m"}));
    desk.fails_with(ToolError::unknown("lost"));
    let doubt = desk.ask(&run, original().turn(0)).await;
    assert_eq!(doubt.kind(), ReplyKind::InDoubt);
    let reworded = |n: u32| call("mail", &json!({"to": "ann lee", "memo": format!("memo {n}")}));
    let told = desk.ask(&run, reworded(0).turn(1)).await;
    assert_eq!(told.kind(), ReplyKind::AwaitingApproval);
    desk.guard.deny(told.reference().unwrap(), "that would be the second").await.unwrap();
    for n in 1..16 {
        assert_eq!(desk.ask(&run, reworded(n).turn(1 + n)).await.kind(), ReplyKind::AwaitingApproval, "{n}");
    }
    let full = desk.ask(&run, reworded(16).turn(17)).await;
    assert_eq!(full.kind(), ReplyKind::Refused);
    assert!(full.message().contains("no room for another question"), "{full:?}");
    desk.guard.resolve(doubt.reference().unwrap(), Resolution::Happened(json!("sent")), "seen").await.unwrap();
    assert_eq!(desk.ask(&run, original().turn(30)).await.kind(), ReplyKind::Replayed);
    assert_eq!(desk.ask(&run, reworded(0).turn(31)).await.kind(), ReplyKind::Denied);
    assert_eq!(desk.count("mail"), 0);
    // Questions that nobody answered make room once they expired.
    desk.pass(DAY).await;
    let after = desk.ask(&run, reworded(16).turn(32)).await;
    assert_eq!((after.kind(), desk.count("mail")), (ReplyKind::Executed, 1), "{after:?}");
    let refused = desk.ask(&run, reworded(0).turn(33)).await;
    assert_eq!((refused.kind(), desk.count("mail")), (ReplyKind::Conflict, 1), "{refused:?}");
}

#[tokio::test]
async fn what_one_run_is_permitted_another_is_not() {
    let desk = Desk::new().await.with("pay", first().scope(Scope::Global).advanced(|a| a.attempts(1)));
    let (one, other) = (desk.run("r1").await, desk.run("r2").await);
    desk.ask(&one, call("pay", &args()).turn(0)).await;
    desk.guard.approve(&desk.question().await).await.unwrap();
    desk.fails_with(ToolError::retryable("refused connection"));
    assert_eq!(desk.ask(&one, call("pay", &args()).turn(1)).await.kind(), ReplyKind::Failed);
    let told = desk.ask(&other, call("pay", &args()).turn(0)).await;
    assert_eq!((told.kind(), desk.count("pay")), (ReplyKind::AwaitingApproval, 0));
    assert_eq!(desk.ask(&one, call("pay", &args()).turn(2)).await.kind(), ReplyKind::Executed);
}

#[tokio::test]
async fn a_turn_that_was_left_behind_goes_on_waiting() {
    let desk = desk().await.with("note", Policy::write());
    let run = desk.run("r").await;
    let first = desk.ask(&run, call("pay", &args()).turn(0)).await;
    let _: u32 = run.step("model", first.message(), || async { Ok(7) }).await.unwrap();
    desk.ask(&run, call("note", &args()).turn(1)).await;
    desk.guard.approve(&desk.question().await).await.unwrap();
    desk.settle().await;
    let run = Run::resume(&desk.guard, "r", Seen::Through(1)).await.unwrap();
    // It doesn't wait either: what the model said next is recorded.
    let again = desk.begin(&run, call("pay", &args()).turn(0)).await;
    assert!(again.is_finished());
    let again = again.await.unwrap();
    assert_eq!((again.message(), desk.count("pay")), (first.message(), 0));
    let said: u32 = run.step("model", again.message(), || async { Ok(8) }).await.unwrap();
    assert_eq!(said, 7);
    assert_eq!(desk.ask(&run, call("pay", &args()).turn(2)).await.kind(), ReplyKind::Executed);
}

#[tokio::test]
async fn a_question_that_finds_no_room_is_refused_as_that() {
    let schema = json!({"type": "object", "properties": {
        "to": {"type": "string", "x-toolonce": "identity"}, "body": {"type": "string"}}});
    let desk = Desk::new().await.with_schema("mail", first(), schema);
    let run = desk.run("r").await;
    let mut kinds = Vec::new();
    for n in 0..5 {
        let long = json!({"to": "ann", "body": format!("{n} {}", "x".repeat(20_000))});
        let told = desk.ask(&run, call("mail", &long).turn(n)).await;
        assert!(!told.message().contains("store"), "at {n}: {told:?}");
        kinds.push(told.kind());
    }
    assert_eq!((kinds[0], kinds[4]), (ReplyKind::AwaitingApproval, ReplyKind::Refused));
}

/// The reason for a question may pass; who was told to wait by then goes on waiting.
#[tokio::test]
async fn a_turn_that_was_left_behind_begins_nothing_once_its_question_has_no_reason_any_more() {
    let desk =
        Desk::new().await.with("mail", Policy::write().advanced(|a| a.attempts(1))).with("note", Policy::write());
    let run = desk.run("r").await;
    desk.fails_with(ToolError::unknown("lost"));
    let doubt = desk.ask(&run, call("mail", &json!({"to": "Ann Lee"})).turn(0)).await;
    let reworded = || call("mail", &json!({"to": "ann lee"})).turn(1);
    let told = desk.ask(&run, reworded()).await;
    assert_eq!(told.kind(), ReplyKind::AwaitingApproval);
    desk.guard.resolve(doubt.reference().unwrap(), Resolution::Happened(json!("sent")), "seen").await.unwrap();
    desk.ask(&run, call("mail", &json!({"to": "Ann Lee"})).turn(2)).await;
    desk.ask(&run, call("note", &args()).turn(3)).await;
    desk.settle().await;
    let run = Run::resume(&desk.guard, "r", Seen::Through(3)).await.unwrap();
    let again = desk.ask(&run, reworded()).await;
    assert_eq!((again.message(), desk.count("mail")), (told.message(), 0));
}

#[tokio::test]
async fn a_repeat_that_waited_in_a_turn_that_was_left_behind_goes_on_waiting() {
    let desk = Desk::new().await.with("pay", Policy::write().repeat(Repeat::Ask)).with("note", Policy::write());
    let run = desk.run("r").await;
    desk.ask(&run, call("pay", &args()).turn(0)).await;
    let told = desk.ask(&run, call("pay", &args()).turn(1)).await;
    assert_eq!(told.kind(), ReplyKind::AwaitingApproval);
    desk.ask(&run, call("note", &args()).turn(2)).await;
    desk.settle().await;
    let run = Run::resume(&desk.guard, "r", Seen::Through(2)).await.unwrap();
    let again = desk.ask(&run, call("pay", &args()).turn(1)).await;
    assert_eq!(again.message(), told.message());
}

/// A step in the middle of a turn has seen answers of that turn, and the turn goes on.
#[tokio::test]
async fn a_turn_that_a_step_was_taken_in_is_not_left_behind() {
    let desk = Desk::new().await.with("pay", first()).with("each", Policy::write().repeat(Repeat::Each));
    let desk = desk.with("note", Policy::write());
    let run = desk.run("r").await;
    desk.ask(&run, call("each", &args()).turn(0)).await;
    desk.ask(&run, call("note", &args()).turn(1)).await;
    let told = desk.ask(&run, call("pay", &args()).turn(1)).await;
    let _: u32 = run.step("clock", "now", || async { Ok(1) }).await.unwrap();
    assert_eq!(desk.ask(&run, call("each", &args()).turn(1)).await.kind(), ReplyKind::Executed);
    desk.guard.approve(told.reference().unwrap()).await.unwrap();
    assert_eq!(desk.ask(&run, call("pay", &args()).turn(1)).await.kind(), ReplyKind::Executed);
    assert_eq!((desk.count("each"), desk.count("pay")), (2, 1));
}

#[tokio::test]
async fn who_was_refused_does_not_try_again_what_another_was_permitted() {
    let desk = Desk::new()
        .await
        .with("set", Policy::idempotent().scope(Scope::Global).approval(Approval::First).advanced(|a| a.attempts(1)));
    let (permitted, refused) = (desk.run("r1").await, desk.run("r2").await);
    let told = desk.ask(&refused, call("set", &args()).turn(0)).await;
    desk.guard.deny(told.reference().unwrap(), "not you").await.unwrap();
    let told = desk.ask(&permitted, call("set", &args()).turn(0)).await;
    desk.guard.approve(told.reference().unwrap()).await.unwrap();
    desk.fails_with(ToolError::unknown("lost"));
    assert_eq!(desk.ask(&permitted, call("set", &args()).turn(1)).await.kind(), ReplyKind::InDoubt);
    assert_eq!(desk.ask(&refused, call("set", &args()).turn(1)).await.kind(), ReplyKind::Denied);
    assert_eq!(desk.count("set"), 0);
}
