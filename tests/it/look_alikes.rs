//! Models word a retry anew: a call that looks like one that isn't finished.

use serde_json::{Value, json};
use toolonce::protocol::record::Reason;
use toolonce::store::MemoryStore;
use toolonce::{Policy, Repeat, ReplyKind, Run, Seen, ToolError};

use crate::bench::call;
use crate::desk::{Desk, World};

fn ann(spelt: &str) -> Value {
    json!({"to": spelt, "cents": 500})
}

#[tokio::test]
async fn of_two_processes_one_runs_and_the_other_asks() {
    let (store, world) = (MemoryStore::shared(), World::default());
    let one = Desk::on(store.clone(), world.clone()).await.slow("pay", Policy::write());
    let other = Desk::on(store, world).await.slow("pay", Policy::write());
    let run = one.run("r").await;
    let same = Run::attach(&other.guard, "r").await.unwrap();
    // Both at the same time: neither has seen the other's claim when it looks.
    let (tools, there) = (one.tools.clone(), other.tools.clone());
    let first = tokio::spawn(async move { tools.call(&run, call("pay", &ann("Ann")).turn(0)).await });
    let second = tokio::spawn(async move { there.call(&same, call("pay", &ann("ANN ")).turn(1)).await });
    one.settle().await;
    let asked = one.guard.approvals().await.unwrap();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert!(matches!(asked[0].reason, Reason::LookAlike { .. }), "{asked:?}");
    one.gate.add_permits(1);
    other.gate.add_permits(1);
    one.settle().await;
    assert_eq!(one.count("pay"), 1);
    one.guard.deny(&asked[0].reference, "it is the same").await.unwrap();
    one.settle().await;
    let mut kinds = [first.await.unwrap().kind(), second.await.unwrap().kind()];
    kinds.sort_by_key(|kind| *kind as u8);
    assert_eq!(kinds, [ReplyKind::Executed, ReplyKind::Denied]);
    assert_eq!(one.count("pay"), 1);
}

#[tokio::test]
async fn calls_of_one_message_are_both_meant() {
    let desk = Desk::new().await.with("pay", Policy::write());
    let run = desk.run("r").await;
    let replies = desk.tools.answer(&run, 0, &[call("pay", &ann("Ann")), call("pay", &ann("ann"))]).await;
    assert!(replies.iter().all(|reply| reply.kind() == ReplyKind::Executed), "{replies:?}");
    assert_eq!(desk.count("pay"), 2);
}

#[tokio::test]
async fn what_was_seen_or_failed_is_finished() {
    let desk = Desk::new().await.with("pay", Policy::write());
    let run = desk.run("r").await;
    desk.fails_with(ToolError::permanent("no such card"));
    assert_eq!(desk.ask(&run, call("pay", &ann("Ann")).turn(0)).await.kind(), ReplyKind::Failed);
    let reply = desk.ask(&run, call("pay", &ann("ann")).turn(1)).await;
    assert_eq!(reply.kind(), ReplyKind::Executed);
    let seen = desk.ask(&run, call("pay", &ann("ANN")).turn(2)).await;
    assert_eq!(seen.kind(), ReplyKind::Executed);
    // Said not to have been shown, it isn't.
    seen.not_shown();
    let asks = desk.ask(&run, call("pay", &ann(" ann")).turn(3)).await;
    assert_eq!(asks.kind(), ReplyKind::AwaitingApproval);
    assert!(asks.message().contains("looks like another call"), "{asks:?}");
    assert_eq!(desk.count("pay"), 2);
}

#[tokio::test]
async fn what_is_in_doubt_is_not() {
    let desk = Desk::new().await.with("pay", Policy::write());
    let run = desk.run("r").await;
    desk.fails_with(ToolError::unknown("lost"));
    let doubt = desk.ask(&run, call("pay", &ann("Ann")).turn(0)).await;
    let asks = desk.ask(&run, call("pay", &ann("ann")).turn(1)).await;
    assert_eq!((doubt.kind(), asks.kind()), (ReplyKind::InDoubt, ReplyKind::AwaitingApproval));
    assert!(asks.message().contains(doubt.reference().unwrap()), "{asks:?} names {doubt:?}");
    // Other runs, other targets and tools that name their target are none of its business.
    let other = desk.run("s").await;
    assert_eq!(desk.ask(&other, call("pay", &ann("ann")).turn(0)).await.kind(), ReplyKind::Executed);
    assert_eq!(desk.ask(&run, call("pay", &ann("bob")).turn(2)).await.kind(), ReplyKind::Executed);
    desk.guard.approve(&desk.question().await).await.unwrap();
    assert_eq!(desk.ask(&run, call("pay", &ann("ann")).turn(3)).await.kind(), ReplyKind::Executed);
}

/// Of one key several occurrences may be open: the claim of the second must not make the first forgotten.
#[tokio::test]
async fn an_open_occurrence_is_remembered_beside_a_later_one_of_its_key() {
    let desk = Desk::new().await.with("pay", Policy::write().repeat(Repeat::Each));
    let run = desk.run("r").await;
    desk.fails_with(ToolError::unknown("lost"));
    let replies = desk.tools.answer(&run, 0, &[call("pay", &ann("Ann")), call("pay", &ann("Ann"))]).await;
    let kinds: Vec<_> = replies.iter().map(|reply| reply.kind()).collect();
    assert_eq!(kinds, [ReplyKind::InDoubt, ReplyKind::Executed]);
    let asks = desk.ask(&run, call("pay", &ann("ann")).turn(1)).await;
    assert_eq!((asks.kind(), desk.count("pay")), (ReplyKind::AwaitingApproval, 1));
}

/// After a resume that kept the message its calls are still of one message.
#[tokio::test]
async fn calls_of_a_message_that_a_resume_kept_are_siblings() {
    let desk = Desk::new().await.with("pay", Policy::write().advanced(|a| a.attempts(1)));
    let run = desk.run("r").await;
    desk.fails_with(ToolError::unknown("lost"));
    desk.fails_with(ToolError::retryable("busy"));
    let calls = [call("pay", &ann("Ann")), call("pay", &ann("ann"))];
    let replies = desk.tools.answer(&run, 0, &calls).await;
    let kinds: Vec<_> = replies.iter().map(|reply| reply.kind()).collect();
    assert_eq!(kinds, [ReplyKind::InDoubt, ReplyKind::Failed]);
    let run = Run::resume(&desk.guard, "r", Seen::Through(0)).await.unwrap();
    let again = desk.ask(&run, call("pay", &ann("ann")).turn(0)).await;
    assert_eq!(again.kind(), ReplyKind::Executed, "{again:?}");
}

/// A message that a resume cut off was sampled anew: what it says in other words may be its retry.
#[tokio::test]
async fn calls_of_a_message_that_a_resume_cut_off_are_not() {
    let desk = Desk::new().await.with("pay", Policy::write());
    let run = desk.run("r").await;
    desk.fails_with(ToolError::unknown("lost"));
    desk.ask(&run, call("pay", &ann("Ann")).turn(0)).await;
    let run = Run::resume(&desk.guard, "r", Seen::Nothing).await.unwrap();
    let again = desk.ask(&run, call("pay", &ann("ann")).turn(0)).await;
    assert_eq!((again.kind(), desk.count("pay")), (ReplyKind::AwaitingApproval, 0));
}
