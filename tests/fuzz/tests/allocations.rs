//! Counts and lengths that are stored and damaged: nobody allocates for them before the bytes are there.

use allocation_counter::measure;
use serde_json::{Value, json};
use toolonce::protocol::bytes::{decode, encode};
use toolonce::protocol::record::Body;
use toolonce::store::{Batch, Durability, Key, MemoryStore, Store};
use toolonce::testing::ManualClock;
use toolonce::{Call, Guard, Policy, Registry, Reply, ReplyKind, Run, Secret, Seen, value_tool};

/// What the rows of this store and reading them take, with room to spare; the damaged counts would take 100 times this.
const MOST: u64 = 4 << 20;

/// Numbers that don't compress.
fn long() -> Value {
    json!((0..30_000_u32).map(|n| n.wrapping_mul(2_654_435_761)).collect::<Vec<_>>())
}

async fn begin(store: &MemoryStore) -> (Guard, Registry) {
    let guard = Guard::builder(store.clone(), "n")
        .clock(ManualClock::new())
        .secret(Secret::new([7; 32]))
        .build()
        .await
        .unwrap();
    let mut tools = Registry::new(&guard);
    let body = |_: Value, _| std::future::ready(Ok(long()));
    tools.add(value_tool("big", "", json!({"type": "object"}), Policy::write(), body)).unwrap();
    (guard, tools)
}

async fn step(run: &Run) -> Result<Value, toolonce::Error> {
    run.step("think", &1, || async { Ok::<_, toolonce::Error>(long()) }).await
}

async fn answer(run: &Run, tools: &Registry) -> Reply {
    tools.answer(run, 0, &[Call::new("big", r#"{"order": 17}"#)]).await.remove(0)
}

/// Changes the values of a store with a long step and a long result, and reads both again.
async fn read_damaged(damage: impl Fn(&[u8]) -> Option<Vec<u8>>) -> (Result<Value, toolonce::Error>, Reply) {
    let store = MemoryStore::shared();
    let (guard, tools) = begin(&store).await;
    let run = Run::start(&guard, "r").await.unwrap();
    assert_eq!(step(&run).await.unwrap(), long());
    let reply = answer(&run, &tools).await;
    assert_eq!(reply.kind(), ReplyKind::Executed, "{reply:?}");
    let page = store.scan(b"", None, 1_000).await.unwrap();
    let damaged: Vec<(Key, Vec<u8>)> =
        page.items.into_iter().filter_map(|(key, row)| Some((key, damage(&row.value)?))).collect();
    assert_eq!(damaged.len(), 1);
    store.commit(Batch { puts: damaged, ..Batch::default() }, Durability::Ordered).await.unwrap();
    // Another guard, which has nothing of it in memory.
    let (guard, tools) = begin(&store).await;
    let run = Run::resume(&guard, "r", Seen::Through(0)).await.unwrap();
    (step(&run).await, answer(&run, &tools).await)
}

fn measured<T>(work: impl Future<Output = T>) -> T {
    let mut value = None;
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let peak = measure(|| value = Some(runtime.block_on(work))).bytes_max;
    assert!(peak < MOST, "{peak} bytes at a time");
    value.unwrap()
}

#[test]
fn the_head_of_a_long_row_that_names_a_million_pieces() {
    let head = |row: &[u8]| (row.len() == 5 && row[0] == 1).then(|| [1, 0, 16, 0, 0].to_vec());
    let (step, reply) = measured(read_damaged(head));
    assert!(step.unwrap_err().to_string().contains("a piece of a row is lost"));
    assert_eq!(reply.kind(), ReplyKind::Replayed);
}

/// The record whose result is in pieces, with another number of them or another length.
fn in_pieces(row: &[u8], change: impl Fn(&mut u32, &mut u64)) -> Option<Vec<u8>> {
    let mut base = decode(row).ok()?;
    match &mut base.occurrences.first_mut()?.outcome.as_mut()?.body {
        Body::Pieces { count, length, .. } => change(count, length),
        _ => return None,
    }
    Some(encode(&base))
}

#[test]
fn a_result_of_a_million_pieces() {
    let (step, reply) = measured(read_damaged(|row| in_pieces(row, |count, _| *count = 1 << 20)));
    assert_eq!(step.unwrap(), long());
    assert!(reply.outcome().is_none_or(|outcome| !outcome.is_kept()), "{reply:?}");
}

#[test]
fn a_result_that_is_said_to_be_long() {
    for length in [1 << 40, u64::MAX] {
        let (_, reply) = measured(read_damaged(|row| in_pieces(row, |_, it| *it = length)));
        assert!(reply.outcome().is_none_or(|outcome| !outcome.is_kept()), "{reply:?}");
    }
}
