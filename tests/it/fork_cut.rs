//! Where a fork is cut: it has what the turns before began, all of it, and nothing of what came later.

use std::time::Duration;

use serde_json::json;
use toolonce::{
    Approval, Call, Error, ErrorKind, KeyWindow, Policy, Repeat, Reply, ReplyKind, Resolution, Run, Scope, Seen,
    ToolError,
};

use crate::bench::call;
use crate::desk::Desk;

pub(crate) fn write() -> Policy {
    Policy::write().advanced(|a| a.attempts(1))
}

fn first() -> Policy {
    write().approval(Approval::First)
}

fn global() -> Policy {
    write().scope(Scope::Global)
}

pub(crate) fn pay() -> Call {
    call("pay", &json!({"to": "ann"}))
}

/// The only call of a turn; its caller waits until its patience ends, if it must.
pub(crate) async fn one(desk: &Desk, run: &Run, turn: u32, call: Call) -> Reply {
    let (tools, run) = (desk.tools.clone(), run.clone());
    let waits = tokio::spawn(async move { tools.answer(&run, turn, &[call]).await.remove(0) });
    desk.settle().await;
    if !waits.is_finished() {
        desk.pass(Duration::from_secs(61)).await;
    }
    waits.await.unwrap()
}

pub(crate) async fn kind(desk: &Desk, run: &Run, turn: u32, call: Call) -> ReplyKind {
    one(desk, run, turn, call).await.kind()
}

async fn never() -> Result<u32, Error> {
    panic!("computed again")
}

use ReplyKind::{AwaitingApproval, Denied, Executed, Failed, InDoubt, Replayed};

#[tokio::test]
async fn what_a_later_turn_did_is_done_anew() {
    let desk = Desk::new().await.with("pay", write());
    let run = desk.run("r").await;
    desk.fails_with(ToolError::retryable("refused connection"));
    let failed = one(&desk, &run, 0, pay()).await;
    assert_eq!(failed.kind(), Failed);
    assert_eq!(kind(&desk, &run, 1, call("pay", &json!({"to": "bob"}))).await, Executed);
    assert_eq!(kind(&desk, &run, 2, pay()).await, Executed);
    let fork = run.fork("f", 2).await.unwrap();
    // The place of the earlier turn keeps what it was given.
    let again = one(&desk, &fork, 0, pay()).await;
    assert_eq!((again.kind(), again.message()), (Failed, failed.message()));
    let own = one(&desk, &fork, 2, pay()).await;
    assert_eq!((own.kind(), own.is_marked(), desk.count("pay")), (Executed, false, 3), "{own:?}");
}

#[tokio::test]
async fn an_earlier_turn_is_never_told_what_a_later_one_did() {
    let desk = Desk::new().await.with("pay", write());
    let run = desk.run("r").await;
    desk.fails_with(ToolError::permanent("declined"));
    let failed = one(&desk, &run, 0, pay()).await;
    assert_eq!(kind(&desk, &run, 1, pay()).await, Executed);
    let fork = run.fork("f", 1).await.unwrap();
    let again = one(&desk, &fork, 0, pay()).await;
    assert_eq!((again.kind(), again.message(), desk.count("pay")), (Failed, failed.message(), 1), "{again:?}");
    assert_eq!((kind(&desk, &fork, 1, pay()).await, desk.count("pay")), (Executed, 2));
}

#[tokio::test]
async fn a_doubt_of_a_later_turn_refuses_no_fork_before_it() {
    let desk = Desk::new().await.with("pay", write());
    let run = desk.run("r").await;
    desk.fails_with(ToolError::retryable("refused connection"));
    one(&desk, &run, 0, pay()).await;
    desk.fails_with(ToolError::unknown("lost"));
    assert_eq!(kind(&desk, &run, 1, pay()).await, InDoubt);
    assert_eq!(run.fork("f", 2).await.unwrap_err().kind(), ErrorKind::Unresolved);
    let fork = run.fork("f", 1).await.unwrap();
    assert_eq!((kind(&desk, &fork, 1, pay()).await, desk.count("pay")), (Executed, 1));
}

#[tokio::test]
async fn what_an_earlier_turn_began_is_the_fork_s_however_late_it_is_known() {
    let desk = Desk::new()
        .await
        .with("pay", write())
        .with("keyed", Policy::keyed(KeyWindow::Permanent).advanced(|a| a.attempts(1)));
    let run = desk.run("r").await;
    desk.fails_with(ToolError::unknown("lost"));
    let doubt = one(&desk, &run, 0, pay()).await;
    desk.fails_with(ToolError::unknown("lost"));
    let keyed = || call("keyed", &json!({"n": 1}));
    assert_eq!(kind(&desk, &run, 1, keyed()).await, InDoubt);
    // A later turn sends it once more under the same key: that is the earlier one's effect.
    assert_eq!(kind(&desk, &run, 2, keyed()).await, Executed);
    assert_eq!(run.fork("f", 1).await.unwrap_err().kind(), ErrorKind::Unresolved);
    desk.guard.resolve(doubt.reference().unwrap(), Resolution::Happened(json!("found")), "").await.unwrap();
    let fork = run.fork("f", 2).await.unwrap();
    assert_eq!(kind(&desk, &fork, 2, pay()).await, Replayed);
    assert_eq!((kind(&desk, &fork, 3, keyed()).await, desk.count("keyed")), (Replayed, 1));
    let earlier = run.fork("g", 1).await.unwrap();
    assert_eq!((kind(&desk, &earlier, 1, keyed()).await, desk.count("keyed")), (Executed, 2));
}

#[tokio::test]
async fn a_call_without_a_turn_is_an_earlier_one_whoever_repeats_it() {
    let desk = Desk::new().await.with("pay", write());
    let run = desk.run("r").await;
    assert_eq!(desk.ask(&run, pay()).await.kind(), Executed);
    assert_eq!(kind(&desk, &run, 3, pay()).await, Replayed);
    desk.settle().await;
    let fork = run.fork("f", 1).await.unwrap();
    assert_eq!((kind(&desk, &fork, 1, pay()).await, desk.count("pay")), (Replayed, 1));
}

#[tokio::test]
async fn what_an_earlier_place_was_given_is_the_fork_s_whoever_began_it() {
    let desk = Desk::new().await.with("pay", write());
    let run = desk.run("r").await;
    desk.fails_with(ToolError::retryable("refused connection"));
    one(&desk, &run, 0, pay()).await;
    assert_eq!(kind(&desk, &run, 1, pay()).await, Executed);
    // Turn 1 is cut off, and turn 0, not answered by then, is told what it did.
    let run = Run::resume(&desk.guard, "r", Seen::Nothing).await.unwrap();
    let told = one(&desk, &run, 0, pay()).await;
    assert_eq!(told.kind(), Replayed);
    desk.settle().await;
    let fork = run.fork("f", 1).await.unwrap();
    let again = one(&desk, &fork, 0, pay()).await;
    assert_eq!((again.kind(), again.message(), desk.count("pay")), (Replayed, told.message(), 1));
}

#[tokio::test]
async fn a_later_outcome_that_is_forgotten_is_later_all_the_same() {
    let desk = Desk::new().await.with("each", write().repeat(Repeat::Each));
    let run = desk.run("r").await;
    let each = || call("each", &json!({"n": 1}));
    for turn in 0..80 {
        assert_eq!(kind(&desk, &run, turn, each()).await, Executed);
    }
    desk.settle().await;
    let fork = run.fork("f", 3).await.unwrap();
    for turn in 0..3 {
        assert_eq!(kind(&desk, &fork, turn, each()).await, Replayed);
    }
    for turn in 3..5 {
        assert_eq!(kind(&desk, &fork, turn, each()).await, Executed);
    }
    assert_eq!(desk.count("each"), 82);
}

#[tokio::test]
async fn a_permission_is_for_one_execution() {
    let desk = Desk::new().await.with("pay", first());
    let run = desk.run("r").await;
    let told = one(&desk, &run, 0, pay()).await;
    desk.guard.approve(told.reference().unwrap()).await.unwrap();
    // Neither one that nobody has used yet …
    let unused = run.fork("unused", 1).await.unwrap();
    desk.fails_with(ToolError::retryable("refused connection"));
    assert_eq!(kind(&desk, &run, 0, pay()).await, Failed);
    // … nor one that was used without effect.
    let fork = run.fork("f", 1).await.unwrap();
    assert_eq!(kind(&desk, &run, 1, pay()).await, Executed);
    assert_eq!(kind(&desk, &fork, 1, pay()).await, AwaitingApproval);
    assert_eq!(kind(&desk, &unused, 1, pay()).await, AwaitingApproval);
    assert_eq!(desk.count("pay"), 1);
    // One that was used with effect is as good there as here.
    let late = run.fork("late", 2).await.unwrap();
    assert_eq!((kind(&desk, &late, 2, pay()).await, desk.count("pay")), (Replayed, 1));
}

#[tokio::test]
async fn a_refusal_of_an_earlier_turn_holds() {
    let desk = Desk::new().await.with("pay", first());
    let run = desk.run("r").await;
    let told = one(&desk, &run, 1, pay()).await;
    desk.guard.deny(told.reference().unwrap(), "no").await.unwrap();
    assert_eq!(kind(&desk, &run, 1, pay()).await, Denied);
    let fork = run.fork("f", 2).await.unwrap();
    assert_eq!(kind(&desk, &fork, 1, pay()).await, Denied);
    assert_eq!(kind(&desk, &fork, 2, pay()).await, Denied);
    let grandchild = fork.fork("g", 2).await.unwrap();
    assert_eq!(kind(&desk, &grandchild, 2, pay()).await, Denied);
    // Before it was asked nobody had refused it.
    let before = run.fork("before", 1).await.unwrap();
    assert_eq!((kind(&desk, &before, 1, pay()).await, desk.count("pay")), (AwaitingApproval, 0));
}

#[tokio::test]
async fn a_refused_look_alike_stays_refused_after_its_reason_is_gone() {
    let desk = Desk::new().await.with("mail", write());
    let run = desk.run("r").await;
    let (same, worded) = (json!({"to": "Ann Lee"}), json!({"to": "ann lee"}));
    desk.fails_with(ToolError::unknown("lost"));
    let doubt = one(&desk, &run, 0, call("mail", &same)).await;
    let told = one(&desk, &run, 1, call("mail", &worded)).await;
    assert_eq!(told.kind(), AwaitingApproval);
    desk.guard.deny(told.reference().unwrap(), "it is the same").await.unwrap();
    desk.guard.resolve(doubt.reference().unwrap(), Resolution::Happened(json!("sent")), "").await.unwrap();
    assert_eq!(kind(&desk, &run, 2, call("mail", &same)).await, Replayed);
    let fork = run.fork("f", 3).await.unwrap();
    for run in [&run, &fork] {
        assert_eq!((kind(&desk, run, 3, call("mail", &worded)).await, desk.count("mail")), (Denied, 0));
    }
}

#[tokio::test]
async fn a_copied_turn_finds_its_place_in_a_record_of_all_runs() {
    let desk = Desk::new().await.with("pay", global()).with("note", global().repeat(Repeat::Each));
    let run = desk.run("r").await;
    let answer = async |run: &Run, turn| desk.tools.answer(run, turn, &[pay(), call("note", &json!({}))]).await;
    let told = answer(&run, 0).await;
    let messages: Vec<&str> = told.iter().map(|reply| reply.message()).collect();
    assert_eq!(run.step("model", &messages, || async { Ok(7) }).await.unwrap(), 7);
    answer(&run, 1).await;
    desk.settle().await;
    let fork = run.fork("f", 2).await.unwrap();
    let grandchild = fork.fork("g", 2).await.unwrap();
    // And once more when they have places of their own.
    for run in [&fork, &grandchild, &fork, &grandchild] {
        let again = answer(run, 0).await;
        assert!(again.iter().all(|reply| reply.kind() == Replayed && !reply.is_marked()), "{again:?}");
        assert_eq!(again.iter().map(|reply| reply.message()).collect::<Vec<_>>(), messages);
        desk.settle().await;
    }
    for run in [fork, grandchild] {
        let run = Run::resume(&desk.guard, run.id(), Seen::Steps).await.unwrap();
        let again = answer(&run, 0).await;
        let messages: Vec<&str> = again.iter().map(|reply| reply.message()).collect();
        assert_eq!(run.step("model", &messages, never).await.unwrap(), 7);
    }
    assert_eq!((desk.count("pay"), desk.count("note")), (1, 2));
}

#[tokio::test]
async fn in_a_record_of_all_runs_a_later_turn_of_the_parent_is_another_run_s() {
    let desk =
        Desk::new().await.with("note", global().repeat(Repeat::Each)).with("pay", global().approval(Approval::First));
    let run = desk.run("r").await;
    let note = || call("note", &json!({}));
    assert_eq!(kind(&desk, &run, 0, note()).await, Executed);
    let denied = one(&desk, &run, 1, pay()).await;
    desk.guard.deny(denied.reference().unwrap(), "no").await.unwrap();
    assert_eq!(kind(&desk, &run, 2, note()).await, Executed);
    desk.settle().await;
    let (before, after) = (run.fork("before", 1).await.unwrap(), run.fork("after", 3).await.unwrap());
    // What the parent's later turn did was not seen by the one, so its call is a retry there; the other has seen it.
    let told = one(&desk, &before, 1, note()).await;
    assert_eq!((told.kind(), told.is_marked()), (Replayed, true));
    assert_eq!((kind(&desk, &after, 3, note()).await, desk.count("note")), (Executed, 3));
    assert_eq!(kind(&desk, &before, 2, pay()).await, AwaitingApproval);
    assert_eq!((kind(&desk, &after, 1, pay()).await, desk.count("pay")), (Denied, 0));
}

#[tokio::test]
async fn what_a_tool_of_all_runs_reopened_is_open_in_the_fork() {
    let desk = Desk::new().await.with("book", write().reopened_by(["cancel"])).with("cancel", global());
    let run = desk.run("r").await;
    let (book, cancel) = (|| call("book", &json!({"room": 1})), |n: u32| call("cancel", &json!({"n": n})));
    one(&desk, &run, 0, book()).await;
    one(&desk, &run, 1, cancel(1)).await;
    let fork = run.fork("f", 2).await.unwrap();
    assert_eq!(kind(&desk, &run, 2, book()).await, Executed);
    one(&desk, &run, 3, cancel(2)).await;
    assert_eq!(kind(&desk, &fork, 2, book()).await, Executed);
    // The second one came after the cut, in either fork.
    assert_eq!(kind(&desk, &fork, 3, book()).await, Replayed);
    let other = run.fork("g", 3).await.unwrap();
    assert_eq!((kind(&desk, &other, 3, book()).await, desk.count("book")), (Replayed, 3));
}

#[tokio::test]
async fn a_conflict_in_a_fork_names_what_differs_and_no_more() {
    let schema = json!({"type": "object", "properties": {
        "to": {"type": "string", "x-toolonce": "identity"}, "body": {"type": "string"}, "cc": {"type": "string"}}});
    let desk = Desk::new().await.with_schema("mail", write(), schema);
    let run = desk.run("r").await;
    let mail = |body: &str| call("mail", &json!({"to": "ann", "body": body, "cc": "bob"}));
    assert_eq!(one(&desk, &run, 0, mail("hello")).await.kind(), ReplyKind::Executed);
    let fork = run.fork("f", 1).await.unwrap();
    let other = one(&desk, &fork, 1, mail("goodbye")).await;
    assert_eq!((other.kind(), other.differing_fields()), (ReplyKind::Conflict, &["/body".to_owned()][..]));
}

#[tokio::test]
async fn what_the_parent_does_in_a_later_epoch_is_its_own() {
    let desk = Desk::new().await.with("send", global().repeat(Repeat::Each)).with("note", write());
    let run = desk.run("r").await;
    for turn in 0..3 {
        one(&desk, &run, turn, call("note", &json!({"n": turn}))).await;
    }
    let fork = run.fork("f", 3).await.unwrap();
    let anew = Run::resume(&desk.guard, "r", Seen::Nothing).await.unwrap();
    assert_eq!(one(&desk, &anew, 1, call("send", &json!({"to": "ann"}))).await.kind(), ReplyKind::Executed);
    let told = one(&desk, &fork, 3, call("send", &json!({"to": "ann"}))).await;
    assert_eq!((told.kind(), told.is_marked(), desk.count("send")), (ReplyKind::Replayed, true, 1));
}
