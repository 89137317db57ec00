//! What a record forgets so that it stays small, and what it must not forget.

use serde_json::{Value, json};
use toolonce::key::{Digest, Fingerprint, digest};
use toolonce::protocol::bytes::{decode, encode};
use toolonce::protocol::growth::{Dropped, KEPT_OUTCOMES, KEPT_SLOTS, bound, cut_texts};
use toolonce::protocol::record::{
    Base, Body, Failure, FailureClass, Fence, Given, Last, Open, Outcome, Record, Slot, ToldBy,
};
use toolonce::store::MAX_VALUE;
use toolonce::{Call, KeyWindow, Policy, Repeat, ReplyKind, Run, Seen, ToolError, value_tool};

use crate::bench::{Shop, call, shop};

fn done(fence: u64, body: Body) -> Record {
    Record {
        fence: Fence(fence),
        outcome: Some(Outcome {
            fence: Fence(fence),
            fingerprint: Default::default(),
            at: 0,
            order: 0,
            told_by: ToldBy::Attempt,
            body,
        }),
        slots: vec![slot(0)],
        ..Record::default()
    }
}

fn slot(turn: u32) -> Slot {
    Slot {
        run: "r".into(),
        turn,
        nth: 0,
        id: String::new(),
        epoch: 0,
        fingerprint: Fingerprint::default(),
        given: Some(Given::Outcome { mark: None, stop: false }),
        delivered: true,
    }
}

/// An outcome that nobody took.
fn undelivered(body: Body) -> Record {
    let mut record = done(1, body);
    record.slots[0].delivered = false;
    record
}

fn inline() -> Body {
    Body::Inline(vec![1])
}

fn pieces() -> Body {
    Body::Pieces { count: 3, length: 9, digest: Digest::default() }
}

fn base(occurrences: Vec<Record>) -> Base {
    Base { occurrences, ..Base::default() }
}

fn is_dropped(record: &Record) -> bool {
    record.outcome.as_ref().is_some_and(|outcome| outcome.body == Body::Dropped)
}

#[test]
fn the_newest_outcomes_are_kept() {
    let mut base = base((0..KEPT_OUTCOMES + 2).map(|_| done(1, inline())).collect());
    assert_eq!(bound(&mut base, KEPT_OUTCOMES, KEPT_SLOTS), []);
    let dropped: Vec<_> = base.occurrences.iter().map(is_dropped).collect();
    assert_eq!(dropped[..3], [true, true, false]);
    assert_eq!(dropped.iter().filter(|dropped| **dropped).count(), 2);
}

#[test]
fn an_old_occurrence_keeps_its_places_and_stays_done() {
    let mut base = base(vec![done(1, inline()), done(1, inline())]);
    bound(&mut base, 1, KEPT_SLOTS);
    let old = &base.occurrences[0];
    assert!(is_dropped(old));
    let [slot] = &old.slots[..] else { panic!("{:?}", old.slots) };
    assert!(slot.delivered && slot.given.is_none());
}

#[test]
fn an_outcome_that_nobody_took_is_never_dropped() {
    let mut base = base(vec![undelivered(inline()), done(1, inline()), undelivered(pieces()), done(1, inline())]);
    assert_eq!(bound(&mut base, 1, 1), []);
    let dropped: Vec<_> = base.occurrences.iter().map(is_dropped).collect();
    assert_eq!(dropped, [false, true, false, false]);
}

#[test]
fn an_old_occurrence_is_about_the_same_arguments_as_before() {
    let fingerprint = |byte: u8| Fingerprint::from_bytes([byte; 32]);
    let mut old = done(3, inline());
    old.outcome.as_mut().unwrap().fingerprint = fingerprint(7);
    let mut base = base(vec![old, done(1, inline())]);
    bound(&mut base, 1, KEPT_SLOTS);
    let old = &base.occurrences[0];
    assert!(old.is_about(fingerprint(7)) && !old.is_about(fingerprint(8)));
    assert_eq!(old.fence, Fence(3), "fences only grow");
}

#[test]
fn two_thousand_old_occurrences_fit_into_one_value() {
    let id = "0123456789abcdef".repeat(4);
    let old = |n: u32| {
        let mut record = done(1, inline());
        record.slots = vec![Slot { run: id.clone(), id: format!("call_{n}"), ..slot(n) }];
        record.outcome.as_mut().unwrap().at = 1_700_000_000_000 + u64::from(n) * 61_234;
        record
    };
    let mut base = base((0..2200).map(old).collect());
    base.about.run.clone_from(&id);
    bound(&mut base, 1, KEPT_SLOTS);
    let bytes = encode(&base);
    assert!(bytes.len() <= MAX_VALUE - 8 * 1024, "{} bytes", bytes.len());
    assert_eq!(decode(&bytes), Ok(base));
}

#[test]
fn dropped_pieces_are_named_once() {
    let mut base = base(vec![done(7, pieces()), done(1, inline())]);
    let expected = Dropped { occurrence: 0, fence: Fence(7), count: 3 };
    assert_eq!(bound(&mut base, 1, KEPT_SLOTS), [expected]);
    assert_eq!(bound(&mut base, 1, KEPT_SLOTS), []);
}

#[test]
fn what_is_open_is_never_dropped() {
    let open = Record {
        open: vec![Open { fence: Fence(1), quiet_from: 0, error: None }],
        slots: vec![slot(0)],
        ..Record::default()
    };
    let mut base = base(vec![open.clone(), done(1, inline())]);
    bound(&mut base, 0, KEPT_SLOTS);
    assert_eq!(base.occurrences[0], open);
}

#[test]
fn texts_are_cut_between_characters() {
    let failure = Failure { class: FailureClass::Permanent, message: "é".repeat(100) };
    let mut failed = done(1, Body::NotKept { length: 9, digest: digest("d", b""), head: vec![b'x'; 1024] });
    failed.last = Some(Last { fence: Fence(1), failure: failure.clone(), attempts: 1, not_before: 0 });
    failed.slots[0].given = Some(Given::Failure(failure));
    let mut base = base(vec![failed]);
    cut_texts(&mut base, 65);
    let record = &base.occurrences[0];
    assert_eq!(record.last.as_ref().unwrap().failure.message, "é".repeat(32));
    assert!(matches!(&record.slots[0].given, Some(Given::Failure(failure)) if failure.message.len() == 64));
    assert!(matches!(&record.outcome.as_ref().unwrap().body, Body::NotKept { head, .. } if head.len() == 65));
}

#[test]
fn the_only_sign_of_a_delivery_is_kept() {
    let mut record = done(1, inline());
    record.slots = (0..5).map(|turn| Slot { delivered: turn == 1, ..slot(turn) }).collect();
    let mut base = base(vec![record]);
    bound(&mut base, 1, 2);
    let turns: Vec<_> = base.occurrences[0].slots.iter().map(|slot| slot.turn).collect();
    assert_eq!(turns, [0, 1, 4]);
}

#[test]
fn the_newest_slots_are_kept() {
    let mut record = done(1, inline());
    record.slots = (0..5).map(slot).collect();
    let mut base = base(vec![record]);
    bound(&mut base, 1, 3);
    let turns: Vec<_> = base.occurrences[0].slots.iter().map(|slot| slot.turn).collect();
    assert_eq!(turns, [0, 3, 4], "and the first, which says when it was done");
}

/// One equal call in each of `turns`, each of them a wish of its own.
async fn wish(shop: &Shop, run: &Run, turns: std::ops::Range<u32>) {
    for turn in turns {
        let reply = shop.tools.call(run, call("each", &json!({"n": 1})).turn(turn)).await;
        assert_eq!(reply.kind(), ReplyKind::Executed, "turn {turn}: {reply:?}");
    }
}

#[tokio::test]
async fn hundreds_of_equal_calls_in_one_run_go_on_and_old_ones_say_that_their_result_is_gone() {
    let shop = shop().await;
    let run = shop.run("r").await;
    wish(&shop, &run, 0..500).await;
    assert_eq!(shop.ledger.count("each"), 500);
    let again = async |turn| shop.tools.call(&run, call("each", &json!({"n": 1})).turn(turn).id("again")).await;
    let old = again(0).await;
    assert!(old.message().contains("no longer kept"), "{old:?}");
    assert!(!old.outcome().unwrap().is_kept());
    assert_eq!(again(499).await.outcome().unwrap().text(), r#""done""#);
    // The whole turn, delivered again: its place is known, so it isn't even marked.
    let turn = &shop.tools.answer(&run, 3, &[call("each", &json!({"n": 1}))]).await[0];
    assert_eq!((turn.kind(), turn.is_marked()), (ReplyKind::Replayed, false));
    assert!(turn.message().contains("no longer kept"), "{turn:?}");
    assert_eq!(shop.ledger.count("each"), 500);
}

#[tokio::test]
async fn numbers_of_occurrences_and_so_downstream_keys_stay() {
    let shop = shop().await;
    let run = shop.run("r").await;
    let first = shop.tools.call(&run, call("each", &json!({"n": 1})).turn(0)).await;
    wish(&shop, &run, 1..80).await;
    let run = Run::resume(&shop.guard, "r", Seen::Through(79)).await.unwrap();
    let again = shop.tools.call(&run, call("each", &json!({"n": 1})).turn(0)).await;
    assert_eq!(again.downstream_key(), first.downstream_key());
    assert_eq!(shop.ledger.count("each"), 80);
}

/// A service that never says whether it did what was asked, and then does.
#[tokio::test]
async fn attempts_that_end_unknown_find_room_for_each_other() {
    let mut shop = shop().await;
    let (ledger, tries) = (shop.ledger.clone(), std::sync::atomic::AtomicU32::new(0));
    let body = move |_: Value, _| {
        let works = tries.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 300;
        if works {
            ledger.write("keyed");
        }
        std::future::ready(if works { Ok(json!("done")) } else { Err(ToolError::unknown("e".repeat(500))) })
    };
    let policy = Policy::keyed(KeyWindow::Permanent).advanced(|a| a.attempts(1));
    shop.tools.add(value_tool("keyed", "", json!({"type": "object"}), policy, body)).unwrap();
    let run = shop.run("r").await;
    for turn in 0..300 {
        let reply = shop.tools.call(&run, call("keyed", &json!({"n": 1})).turn(turn)).await;
        assert_eq!(reply.kind(), ReplyKind::InDoubt, "{turn}: {reply:?}");
    }
    let reply = shop.tools.call(&run, call("keyed", &json!({"n": 1})).turn(300)).await;
    assert_eq!((reply.kind(), shop.ledger.count("keyed")), (ReplyKind::Executed, 1));
}

#[test]
fn a_place_that_was_marked_stays_marked() {
    let mut old = done(1, inline());
    old.slots.push(Slot { given: Some(Given::Outcome { mark: Some("of turn 0".into()), stop: false }), ..slot(1) });
    let mut base = base(vec![old, done(1, inline())]);
    bound(&mut base, 1, KEPT_SLOTS);
    let marked = |slot: &Slot| matches!(&slot.given, Some(Given::Outcome { mark: Some(_), .. }));
    assert_eq!(base.occurrences[0].slots.iter().map(marked).collect::<Vec<_>>(), [false, true]);
    assert_eq!(decode(&encode(&base)), Ok(base));
}

/// Hundreds of equal calls in one message: what finds no room is refused before it runs, and what runs is recorded, whatever
/// comes of it.
#[tokio::test]
async fn what_runs_at_one_time_finds_room_for_its_end() {
    type Ends = fn() -> Result<Value, ToolError>;
    let ways: [(&str, Ends); 5] = [
        ("short", || Ok(json!("y".repeat(100)))),
        ("pieces", || Ok(json!("y".repeat(5000)))),
        ("too long", || Ok(json!("y".repeat(20_000)))),
        ("failed", || Err(ToolError::permanent("é".repeat(500)))),
        ("unknown", || Err(ToolError::unknown("é".repeat(500)))),
    ];
    for (name, ends) in ways {
        let mut shop = shop().await;
        let ledger = shop.ledger.clone();
        let body = move |_: Value, _| {
            ledger.write("ran");
            std::future::ready(ends())
        };
        let policy = Policy::write().repeat(Repeat::Each).advanced(|a| a.attempts(1).max_result(10_000));
        shop.tools.add(value_tool("many", "", json!({"type": "object"}), policy, body)).unwrap();
        let run = shop.run("r").await;
        let calls: Vec<Call> = (0..400).map(|_| call("many", &json!({"n": 1}))).collect();
        let replies = shop.tools.answer(&run, 0, &calls).await;
        let expected = match name {
            "failed" => ReplyKind::Failed,
            "unknown" => ReplyKind::InDoubt,
            _ => ReplyKind::Executed,
        };
        let ended = replies.iter().filter(|reply| reply.kind() == expected).count();
        let refused = replies.iter().filter(|reply| reply.kind() == ReplyKind::Refused).count();
        assert_eq!((ended + refused, shop.ledger.count("ran")), (400, ended), "{name}");
        assert!(ended >= 100, "{name}: only {ended} found room");
        let open = if name == "unknown" { ended } else { 0 };
        assert_eq!(shop.guard.inbox().await.unwrap().len(), open, "{name}");
    }
}
