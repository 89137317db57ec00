//! Results: the same bytes first and later, whatever their size; and what is told when they can't be kept.

use serde_json::json;
use toolonce::store::{Batch, Durability, MemoryStore, Store};
use toolonce::{Policy, ReplyKind, text_tool, value_tool};

use crate::bench::{Shop, call, shop};

#[tokio::test]
async fn results_of_every_size_are_replayed_byte_for_byte() {
    for n in [0, 1, 100, 2_000, 2_100, 30_000, 31_000, 200_000, 500_000] {
        let store = MemoryStore::new();
        let shop = Shop::open(store.clone()).await;
        let run = shop.run("r").await;
        let first = shop.tools.call(&run, call("big", &json!({"n": n})).turn(0)).await;
        assert_eq!(first.kind(), ReplyKind::Executed);
        assert_eq!(first.message(), "é".repeat(n));
        shop.settle().await;
        let shop = Shop::open_on(store.crash().into_store(), shop.ledger.clone(), shop.clock.clone()).await;
        let run = toolonce::Run::resume(&shop.guard, "r", toolonce::Seen::Nothing).await.unwrap();
        let again = shop.tools.call(&run, call("big", &json!({"n": n})).turn(0)).await;
        assert_eq!((again.kind(), again.message()), (ReplyKind::Replayed, first.message()), "{n}");
        assert_eq!(again.outcome(), first.outcome());
        assert_eq!(shop.ledger.count("big"), 1);
    }
}

trait IntoStore {
    fn into_store(self) -> std::sync::Arc<dyn Store>;
}
impl IntoStore for MemoryStore {
    fn into_store(self) -> std::sync::Arc<dyn Store> {
        std::sync::Arc::new(self)
    }
}

#[tokio::test]
async fn a_result_over_the_limit_is_given_whole_once_and_told_alike_both_times() {
    let shop = shop().await;
    let run = shop.run("r").await;
    let first = shop.tools.call(&run, call("big", &json!({"n": 600_000})).turn(0)).await;
    let again = shop.tools.call(&run, call("big", &json!({"n": 600_000})).id("x").turn(1)).await;
    assert_eq!((first.kind(), again.kind()), (ReplyKind::Executed, ReplyKind::Replayed));
    let (first_outcome, again_outcome) = (first.outcome().unwrap(), again.outcome().unwrap());
    assert_eq!(first_outcome.text().len(), 1_200_002);
    assert!(!first_outcome.is_kept() && !again_outcome.is_kept());
    assert!(first.message().len() < 4000 && first.message().contains("1200002 bytes"), "{}", first.message());
    assert!(again.message().starts_with(first.message()));
    assert_eq!(shop.ledger.count("big"), 1);
}

#[tokio::test]
async fn a_result_that_is_no_json_counts_as_done_without_a_result() {
    let mut shop = shop().await;
    let ledger = shop.ledger.clone();
    let tool = text_tool("odd", "", json!({"type": "object"}), Policy::write(), move |_, _| {
        ledger.write("odd");
        std::future::ready(Ok("{not json".to_owned()))
    });
    shop.tools.add(tool).unwrap();
    let run = shop.run("r").await;
    let first = shop.tools.call(&run, call("odd", &json!({"n": 1})).turn(0)).await;
    let again = shop.tools.call(&run, call("odd", &json!({"n": 1})).turn(1)).await;
    assert_eq!((first.kind(), again.kind()), (ReplyKind::Executed, ReplyKind::Replayed));
    assert!(!first.outcome().unwrap().is_kept());
    assert!(again.message().starts_with(first.message()), "{}\n{}", first.message(), again.message());
    assert_eq!(shop.ledger.count("odd"), 1);
}

/// Letters that don't compress, always the same ones.
fn noise(length: usize) -> String {
    let mut state = 1u64;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'0' + u8::try_from(state >> 58).unwrap())
    };
    (0..length).map(|_| letter()).collect()
}

#[tokio::test]
async fn a_lost_piece_is_said_to_be_lost() {
    let store = MemoryStore::new();
    let mut shop = Shop::open(store.clone()).await;
    let noise = noise(300_000);
    let (ledger, result) = (shop.ledger.clone(), noise.clone());
    let tool = value_tool("noise", "", json!({"type": "object"}), Policy::write(), move |_, _| {
        ledger.write("noise");
        std::future::ready(Ok(json!(result)))
    });
    shop.tools.add(tool).unwrap();
    let run = shop.run("r").await;
    shop.tools.call(&run, call("noise", &json!({"n": 1})).id("a").turn(0)).await;
    let whole = shop.tools.call(&run, call("noise", &json!({"n": 1})).id("a").turn(0)).await;
    assert_eq!((whole.kind(), whole.message()), (ReplyKind::Replayed, noise.as_str()));
    let all = store.scan(b"", None, 1000).await.unwrap();
    let pieces: Vec<_> = all.items.into_iter().map(|(key, _)| key).filter(|key| key.as_bytes()[8] == b'c').collect();
    assert!(pieces.len() > 2);
    store.commit(Batch { deletes: vec![pieces[1].clone()], ..Batch::default() }, Durability::Synced).await.unwrap();
    let again = shop.tools.call(&run, call("noise", &json!({"n": 1})).turn(1)).await;
    assert_eq!(again.kind(), ReplyKind::Replayed);
    assert!(again.message().contains("damaged or lost") && !again.outcome().unwrap().is_kept(), "{again:?}");
    assert_eq!(shop.ledger.count("noise"), 1);
}

#[tokio::test]
async fn a_damaged_record_is_an_error_and_never_absent() {
    let store = MemoryStore::new();
    let shop = Shop::open(store.clone()).await;
    let run = shop.run("r").await;
    shop.tools.call(&run, call("charge", &json!({"cents": 1})).turn(0)).await;
    shop.settle().await;
    let all = store.scan(b"", None, 1000).await.unwrap();
    let (key, stored) = all.items.into_iter().find(|(key, _)| key.as_bytes()[8] == b'b').unwrap();
    let mut value = stored.value;
    value[10] ^= 1;
    store.commit(Batch { puts: vec![(key, value)], ..Batch::default() }, Durability::Synced).await.unwrap();
    let store = store.reopen();
    let shop = Shop::open_on(store.into_store(), shop.ledger.clone(), shop.clock.clone()).await;
    let run = toolonce::Run::attach(&shop.guard, "r").await.unwrap();
    let reply = shop.tools.call(&run, call("charge", &json!({"cents": 1})).turn(0)).await;
    assert_eq!(reply.kind(), ReplyKind::Refused);
    assert_eq!(shop.ledger.count("charge"), 1);
}
