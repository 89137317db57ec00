//! Runs that survive a crash: steps, histories, manifests.

use serde_json::json;
use toolonce::store::MemoryStore;
use toolonce::{Error, ErrorKind, ReplyKind, Run, Seen};

use crate::bench::{Shop, call, shop};

async fn reopened(shop: &Shop, store: MemoryStore) -> Shop {
    Shop::open_on(std::sync::Arc::new(store), shop.ledger.clone(), shop.clock.clone()).await
}

/// The value of a step that must not be computed.
async fn never<T>() -> Result<T, Error> {
    panic!("computed again")
}

#[tokio::test]
async fn a_step_is_computed_once_and_survives_a_power_cut() {
    let store = MemoryStore::new();
    let shop = Shop::open(store.clone()).await;
    let run = shop.run("r").await;
    let long = "x".repeat(200_000);
    let value: String = run.step("model", "q0", || async { Ok(long.clone()) }).await.unwrap();
    assert_eq!(value, long);
    let second: u32 = run.step("model", "q1", || async { Ok(7) }).await.unwrap();
    assert_eq!(second, 7);
    shop.guard.crash();

    let shop = reopened(&shop, store.crash()).await;
    let run = Run::resume(&shop.guard, "r", Seen::Steps).await.unwrap();
    assert_eq!(run.step("model", "q0", never::<String>).await.unwrap(), long);
    assert_eq!(run.step("model", "q1", never::<u32>).await.unwrap(), 7);
    assert_eq!(run.step("model", "q2", || async { Ok(8) }).await.unwrap(), 8);
}

#[tokio::test]
async fn other_input_is_a_divergence_and_never_served() {
    let shop = shop().await;
    let run = shop.run("r").await;
    let _: u32 = run.step("model", "hello", || async { Ok(1) }).await.unwrap();
    let run = Run::resume(&shop.guard, "r", Seen::Nothing).await.unwrap();
    let error = run.step("model", "good bye", || async { Ok(2) }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Diverged, "{error}");
    // The place in the log isn't used up by the error.
    assert_eq!(run.step("model", "hello", || async { Ok(3) }).await.unwrap(), 1);
}

#[tokio::test]
async fn two_steps_of_one_name_in_flight_are_an_error_and_two_names_are_not() {
    let shop = shop().await;
    let run = shop.run("r").await;
    let inner = run.clone();
    let outer: Result<u32, Error> = run
        .step("a", "", || async move {
            let error = inner.step("a", "", || async { Ok(1) }).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StepInFlight, "{error}");
            inner.step("b", "", || async { Ok(2) }).await
        })
        .await;
    assert_eq!(outer.unwrap(), 2);
}

/// Whoever else works in the run meanwhile moves its log, or records the same step: neither is damage.
#[tokio::test]
async fn a_step_is_recorded_beside_other_work_in_its_run() {
    let store = MemoryStore::shared();
    let shop = Shop::open(store.clone()).await;
    let other = reopened(&shop, store).await;
    let run = Run::start(&shop.guard, "r").await.unwrap();
    let joined = Run::attach(&other.guard, "r").await.unwrap();
    let value: u32 = run
        .step("clock", "", || async {
            let reply = other.tools.call(&joined, call("charge", &json!({"amount": 1})).turn(3)).await;
            assert_eq!(reply.kind(), ReplyKind::Executed, "{reply:?}");
            Ok(7)
        })
        .await
        .unwrap();
    assert_eq!(value, 7);
    // The first to record it decides.
    let value: u32 = run
        .step("model", "", || async {
            assert_eq!(joined.step("model", "", || async { Ok(1) }).await.unwrap(), 1);
            Ok(2)
        })
        .await
        .unwrap();
    assert_eq!(value, 1);
    let again = Run::attach(&other.guard, "r").await.unwrap();
    assert_eq!(again.step("clock", "", never::<u32>).await.unwrap(), 7);
    assert_eq!(again.step("model", "", never::<u32>).await.unwrap(), 1);
}

#[tokio::test]
async fn an_error_of_a_step_is_not_recorded() {
    let shop = shop().await;
    let run = shop.run("r").await;
    let failed: Result<u32, Error> =
        run.step("s", "", || async { Run::attach(&shop.guard, "no such run").await.map(|_| 0) }).await;
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::NoSuchRun);
    assert_eq!(run.step("s", "", || async { Ok(5) }).await.unwrap(), 5);
}

#[tokio::test]
async fn start_attach_and_resume_say_what_is_wrong() {
    let shop = shop().await;
    let run = shop.run("r").await;
    assert_eq!(Run::start(&shop.guard, "r").await.unwrap_err().kind(), ErrorKind::RunExists);
    assert_eq!(Run::start(&shop.guard, "").await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(Run::attach(&shop.guard, "other").await.unwrap_err().kind(), ErrorKind::NoSuchRun);
    let attached = Run::attach(&shop.guard, "r").await.unwrap();
    assert_eq!((attached.epoch(), run.epoch()), (0, 0));
    let resumed = Run::resume(&shop.guard, "r", Seen::Nothing).await.unwrap();
    assert_eq!(resumed.epoch(), 1);
    // Whoever goes on with the older history is refused, in calls and in steps.
    let reply = shop.tools.call(&run, call("charge", &json!({"cents": 1})).turn(0)).await;
    assert_eq!(reply.kind(), ReplyKind::Refused);
    assert!(reply.message().contains("resumed since"), "{reply:?}");
    assert_eq!(run.step("s", "", || async { Ok(1) }).await.unwrap_err().kind(), ErrorKind::StaleRun);
    assert_eq!(shop.ledger.count("charge"), 0);
    let reply = shop.tools.call(&resumed, call("charge", &json!({"cents": 1})).turn(0)).await;
    assert_eq!(reply.kind(), ReplyKind::Executed);
}

#[tokio::test]
async fn a_turn_that_is_sampled_again_replays_equal_calls_and_holds_other_writes() {
    let store = MemoryStore::new();
    let shop = Shop::open(store.clone()).await;
    let run = shop.run("r").await;
    let calls = [call("charge", &json!({"cents": 1})).id("a"), call("charge", &json!({"cents": 2})).id("b")];
    shop.tools.answer(&run, 0, &calls).await;
    shop.tools.answer(&run, 1, &[call("charge", &json!({"cents": 3})).id("c")]).await;
    shop.guard.crash();

    let shop = reopened(&shop, store.crash()).await;
    // Through turn 1 was seen: its manifest holds.
    let run = Run::resume(&shop.guard, "r", Seen::Through(1)).await.unwrap();
    let calls = [call("charge", &json!({"cents": 9})).id("x"), call("charge", &json!({"cents": 2})).id("y")];
    let replies = shop.tools.answer(&run, 0, &calls).await;
    assert_eq!(replies[0].kind(), ReplyKind::Diverged, "{replies:?}");
    assert_eq!((replies[1].kind(), replies[1].is_marked()), (ReplyKind::Replayed, false));
    assert_eq!(replies.iter().map(|reply| reply.id()).collect::<Vec<_>>(), ["x", "y"]);
    // Turn 2 is new.
    let reply = &shop.tools.answer(&run, 2, &[call("charge", &json!({"cents": 9}))]).await[0];
    assert_eq!(reply.kind(), ReplyKind::Executed);
    assert_eq!(shop.ledger.count("charge"), 4);
}

#[tokio::test]
async fn what_a_resume_cut_off_may_be_sampled_anew() {
    let store = MemoryStore::new();
    let shop = Shop::open(store.clone()).await;
    let run = shop.run("r").await;
    shop.tools.answer(&run, 0, &[call("charge", &json!({"cents": 1}))]).await;
    shop.tools.answer(&run, 1, &[call("charge", &json!({"cents": 2}))]).await;
    shop.guard.crash();
    let shop = reopened(&shop, store.crash()).await;
    let run = Run::resume(&shop.guard, "r", Seen::Through(0)).await.unwrap();
    let calls = [call("charge", &json!({"cents": 3})), call("charge", &json!({"cents": 2}))];
    let replies = shop.tools.answer(&run, 1, &calls).await;
    assert_eq!(replies[0].kind(), ReplyKind::Executed);
    // The abandoned history's charge was never seen: this is its retry, and it is answered as such.
    assert_eq!((replies[1].kind(), replies[1].is_marked()), (ReplyKind::Replayed, false));
    assert_eq!(shop.ledger.count("charge"), 3);
}

#[tokio::test]
async fn a_crash_before_the_effect_is_recorded_is_in_doubt_and_a_human_settles_it() {
    let store = MemoryStore::new();
    let shop = Shop::open(store.clone()).await;
    let run = shop.run("r").await;
    let tools = shop.tools.clone();
    tokio::spawn(async move { tools.call(&run, call("slow", &json!({"n": 1})).turn(0)).await });
    shop.begun().await;
    shop.guard.crash();

    let shop = reopened(&shop, store.crash()).await;
    let run = Run::resume(&shop.guard, "r", Seen::Nothing).await.unwrap();
    let again = shop.tools.call(&run, call("slow", &json!({"n": 1})).turn(0)).await;
    assert_eq!(again.kind(), ReplyKind::InDoubt);
    assert!(again.message().contains("not known whether this happened"), "{again:?}");
    let inbox = shop.guard.inbox().await.unwrap();
    assert_eq!((inbox.len(), inbox[0].tool.as_str(), inbox[0].run.as_str()), (1, "slow", "r"));
    assert_eq!(Some(inbox[0].reference.as_str()), again.reference());

    use toolonce::Resolution::{DidNotHappen, DidNotHappenForSure, Happened};
    let early = shop.guard.resolve(&inbox[0].reference, DidNotHappen, "looked").await.unwrap_err();
    assert_eq!(early.kind(), ErrorKind::TooEarly, "{early}");
    let nobody = shop.guard.resolve("000000000000", DidNotHappenForSure, "typo").await.unwrap_err();
    assert_eq!(nobody.kind(), ErrorKind::NoSuchCall, "{nobody}");
    shop.guard.resolve(&inbox[0].reference, Happened(json!({"by": "hand"})), "looked").await.unwrap();
    let settled = shop.tools.call(&run, call("slow", &json!({"n": 1})).turn(0)).await;
    assert_eq!((settled.kind(), settled.outcome().unwrap().text()), (ReplyKind::Replayed, r#"{"by":"hand"}"#));
    assert!(shop.guard.inbox().await.unwrap().is_empty());
    assert_eq!(shop.ledger.count("slow"), 0);
}

#[derive(Debug)]
struct Refused(std::io::Error);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the model did not answer")
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[tokio::test]
async fn a_failed_step_says_what_failed_and_knows_what_is_below() {
    let shop = shop().await;
    let run = shop.run("r").await;
    let fails = || async { Err::<u32, _>(toolonce::Error::step(Refused(std::io::Error::other("no route")))) };
    let error = run.step("model", "", fails).await.unwrap_err();
    assert_eq!((error.kind(), error.to_string()), (ErrorKind::Step, "the model did not answer".to_owned()));
    let below = std::error::Error::source(&error).map(ToString::to_string);
    assert_eq!(below.as_deref(), Some("no route"));
}

#[tokio::test]
async fn a_lone_write_that_its_recorded_turn_did_not_make_is_held() {
    let shop = shop().await;
    let run = shop.run("r").await;
    let lone = |tool: &str, cents: u32, turn: u32| call(tool, &json!({"cents": cents})).turn(turn).id("c");
    shop.tools.answer(&run, 0, &[lone("charge", 1, 0)]).await;
    for (tool, cents, turn, kind) in [
        ("charge", 2, 0, ReplyKind::Diverged),
        ("charge", 1, 0, ReplyKind::Replayed),
        ("look", 2, 0, ReplyKind::Executed),
        ("charge", 3, 1, ReplyKind::Executed),
        ("charge", 4, 1, ReplyKind::Executed), // alone as well: nothing says that the turn has no more calls
    ] {
        let reply = shop.tools.call(&run, lone(tool, cents, turn)).await;
        assert_eq!(reply.kind(), kind, "{reply:?}");
    }
    assert_eq!(shop.ledger.count("charge"), 3);
    let run = Run::resume(&shop.guard, "r", Seen::Nothing).await.unwrap();
    let reply = shop.tools.call(&run, lone("charge", 2, 0)).await;
    assert_eq!(reply.kind(), ReplyKind::Executed, "the turn is another one: {reply:?}");
}
