//! The caller may go away at any moment; the effect and its outcome stay.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinHandle;
use toolonce::{Error, Reply, ReplyKind, Run, Shutdown};

use crate::bench::{Shop, call, shop};

struct Quiet;
impl Wake for Quiet {
    fn wake(self: Arc<Self>) {}
}

/// Polls a future `times` times, letting the guard's tasks go on in between; `None` if it wasn't through by then.
async fn poll_times<F: Future>(future: F, times: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Quiet));
    for _ in 0..times {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    None
}

#[tokio::test]
async fn a_call_dropped_at_any_await_point_has_at_most_one_effect_and_keeps_its_outcome() {
    let mut cut_off = 0;
    for times in 0..40 {
        let shop = shop().await;
        let run = shop.run("r").await;
        let first = poll_times(shop.tools.call(&run, call("charge", &json!({"cents": 1})).turn(0)), times).await;
        cut_off += usize::from(first.is_none());
        shop.settle().await;
        let again = shop.tools.call(&run, call("charge", &json!({"cents": 1})).turn(1)).await;
        assert_eq!(shop.ledger.count("charge"), 1, "dropped after {times} polls");
        assert_eq!(again.outcome().unwrap().text(), r#"{"charged":1}"#);
        assert!(matches!(again.kind(), ReplyKind::Executed | ReplyKind::Replayed), "{again:?}");
        // What nobody took is not delivered: the repeat was its retry.
        let expected = if times == 0 { ReplyKind::Executed } else { ReplyKind::Replayed };
        assert_eq!(again.kind(), expected, "dropped after {times} polls");
    }
    assert!(cut_off > 1, "only {cut_off} of the calls were cut off in mid-call");
}

#[tokio::test]
async fn an_answer_dropped_at_any_await_point_delivers_nothing() {
    for times in 0..40 {
        let shop = shop().await;
        let run = shop.run("r").await;
        let calls = [call("each", &json!({"n": 1})), call("slow", &json!({"n": 2}))];
        // One of the two can't end, so the answer as a whole is never taken.
        assert!(poll_times(shop.tools.answer(&run, 0, &calls), times).await.is_none());
        shop.settle().await;
        let again = shop.tools.call(&run, call("each", &json!({"n": 1})).turn(1)).await;
        assert_eq!(shop.ledger.count("each"), 1, "an undelivered outcome was taken for a delivered one ({times})");
        let expected = if times == 0 { ReplyKind::Executed } else { ReplyKind::Replayed };
        if again.kind() != expected {
            assert_eq!(times, 1, "{again:?}"); // the manifest is read before anything begins
        }
    }
}

#[tokio::test]
async fn a_dropped_waiter_leaves_the_leader_and_the_others_alone() {
    let shop = shop().await;
    let run = shop.run("r").await;
    let go = |turn| shop.tools.call(&run, call("slow", &json!({"n": 1})).turn(turn));
    let leader = tokio::spawn({
        let (tools, run) = (shop.tools.clone(), run.clone());
        async move { tools.call(&run, call("slow", &json!({"n": 1})).turn(0)).await }
    });
    shop.begun().await;
    assert!(poll_times(go(1), 20).await.is_none());
    let mut stays = pin!(go(2));
    assert!(poll_times(stays.as_mut(), 20).await.is_none());
    shop.gate.add_permits(1);
    assert_eq!(stays.await.kind(), ReplyKind::Joined);
    assert_eq!(leader.await.unwrap().kind(), ReplyKind::Executed);
    assert_eq!(go(3).await.kind(), ReplyKind::Replayed);
    assert_eq!(shop.ledger.count("slow"), 1);
}

#[tokio::test]
async fn patience_ends_and_the_late_result_is_kept() {
    let shop = shop().await;
    let run = shop.run("r").await;
    let patient = |turn: u32| call("slow", &json!({"n": 1})).id("c").turn(turn).patience(Duration::from_millis(50));
    let first = tokio::spawn({
        let (tools, run) = (shop.tools.clone(), run.clone());
        async move { tools.call(&run, patient(0)).await }
    });
    shop.begun().await;
    shop.pass(Duration::from_millis(60)).await;
    let first = first.await.unwrap();
    assert_eq!(first.kind(), ReplyKind::Running);
    assert!(first.message().contains("Calling again with the same arguments is safe"));
    shop.gate.add_permits(1);
    shop.settle().await;
    let second = shop.tools.call(&run, patient(1)).await;
    assert_eq!((second.kind(), second.is_marked()), (ReplyKind::Replayed, true));
    let redelivered = shop.tools.call(&run, patient(0)).await;
    assert_eq!(redelivered.kind(), ReplyKind::Running, "a later turn was answered: the first answer stands as given");
    assert_eq!(shop.ledger.count("slow"), 1);
}

#[tokio::test]
async fn a_panic_of_a_tool_is_in_doubt_and_its_joiners_are_told() {
    let shop = shop().await;
    let run = shop.run("r").await;
    let calls = [call("panics", &json!({"n": 1})).id("a"), call("panics", &json!({"n": 1})).id("b")];
    let replies = shop.tools.answer(&run, 0, &calls).await;
    assert!(replies.iter().all(|reply| reply.kind() == ReplyKind::InDoubt), "{replies:?}");
    assert_eq!(replies.iter().map(|reply| reply.id()).collect::<Vec<_>>(), ["a", "b"]);
    let again = shop.tools.call(&run, call("panics", &json!({"n": 1})).turn(1)).await;
    assert_eq!(again.kind(), ReplyKind::InDoubt);
    assert_eq!(shop.ledger.count("panics"), 1);
    let inbox = shop.guard.inbox().await.unwrap();
    assert_eq!(inbox.len(), 1);
    assert!(inbox[0].errors[0].contains("on purpose"), "{inbox:?}");
}

#[tokio::test]
async fn a_joiner_at_the_moment_of_publishing_gets_the_outcome() {
    // The joiner enters after every possible number of steps of the leader's end.
    for steps in 0..60 {
        let shop = shop().await;
        let run = shop.run("r").await;
        let spawn = |turn: u32| {
            let (tools, run) = (shop.tools.clone(), run.clone());
            tokio::spawn(async move { tools.call(&run, call("slow", &json!({"n": 1})).turn(turn)).await })
        };
        let leader = spawn(0);
        shop.begun().await;
        shop.gate.add_permits(1);
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
        let joiner = spawn(1);
        let (leader, joiner) = (leader.await.unwrap(), joiner.await.unwrap());
        assert_eq!(leader.kind(), ReplyKind::Executed);
        assert!(matches!(joiner.kind(), ReplyKind::Joined | ReplyKind::Replayed), "{steps}: {joiner:?}");
        assert_eq!(leader.outcome(), joiner.outcome());
        assert_eq!(shop.ledger.count("slow"), 1);
    }
}

#[tokio::test]
async fn a_thousand_equal_calls_are_one_effect() {
    let shop = shop().await;
    let run = shop.run("r").await;
    let calls: Vec<_> = (0..1000).map(|n| call("charge", &json!({"cents": 5})).id(format!("c{n}"))).collect();
    let replies = shop.tools.answer(&run, 0, &calls).await;
    assert_eq!(replies.len(), 1000);
    for reply in &replies {
        assert_eq!(reply.outcome().map(|outcome| outcome.text()), Some(r#"{"charged":5}"#), "{reply:?}");
    }
    assert_eq!(replies.iter().filter(|reply| !reply.is_marked()).count(), 1);
    assert_eq!(shop.ledger.count("charge"), 1);
}

/// A call that runs, and a shutdown with a deadline of 5 s that has begun since.
async fn shut_down_in_mid_call(shop: &Shop, run: &Run) -> (JoinHandle<Reply>, JoinHandle<Result<Shutdown, Error>>) {
    let running = tokio::spawn({
        let (tools, run) = (shop.tools.clone(), run.clone());
        async move { tools.call(&run, call("slow", &json!({"n": 1})).turn(0)).await }
    });
    shop.begun().await;
    let closing = tokio::spawn({
        let guard = shop.guard.clone();
        async move { guard.shutdown(Duration::from_secs(5)).await }
    });
    (running, closing)
}

#[tokio::test]
async fn shutdown_waits_for_what_runs_and_takes_nothing_new() {
    let shop = shop().await;
    let run = shop.run("r").await;
    let (running, closing) = shut_down_in_mid_call(&shop, &run).await;
    shop.settle().await;
    let late = shop.tools.call(&run, call("charge", &json!({"cents": 1})).turn(1)).await;
    assert_eq!(late.kind(), ReplyKind::Refused);
    shop.gate.add_permits(1);
    assert_eq!(closing.await.unwrap().unwrap().unfinished, 0);
    assert_eq!(running.await.unwrap().kind(), ReplyKind::Executed);
    assert_eq!(shop.ledger.count("charge"), 0);
}

#[tokio::test]
async fn shutdown_ends_at_its_deadline_and_says_what_was_left() {
    let shop = shop().await;
    let run = shop.run("r").await;
    let (running, closing) = shut_down_in_mid_call(&shop, &run).await;
    shop.pass(Duration::from_secs(6)).await;
    assert_eq!(closing.await.unwrap().unwrap().unfinished, 1);
    assert_eq!(running.await.unwrap().kind(), ReplyKind::InDoubt);
    assert_eq!(shop.ledger.count("slow"), 0);
}

#[tokio::test]
async fn a_tool_that_makes_its_own_call_inside_itself_is_told_so() {
    use std::sync::OnceLock;
    use toolonce::{Attempt, Policy, Registry, value_tool};

    let shop = shop().await;
    let inside: Arc<OnceLock<(Registry, Run)>> = Arc::default();
    let mut tools = Registry::new(&shop.guard);
    let nested = Arc::clone(&inside);
    tools
        .add(value_tool("nested", "", json!({"type": "object"}), Policy::write(), move |args, _: Attempt| {
            let nested = Arc::clone(&nested);
            async move {
                let (tools, run) = nested.get().unwrap();
                Ok(json!(tools.call(run, call("nested", &args)).await.message()))
            }
        }))
        .unwrap();
    let run = shop.run("r").await;
    inside.set((tools.clone(), run.clone())).unwrap();
    let reply = tools.call(&run, call("nested", &json!({"n": 1}))).await;
    assert_eq!(reply.kind(), ReplyKind::Executed);
    assert!(reply.message().contains("inside itself"), "{reply:?}");
}
