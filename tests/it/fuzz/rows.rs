//! Every row of a store, damaged: whoever reads it tells so or knows as much as before; no write runs again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use toolonce::store::{Batch, Committed, Durability, Key, MemoryStore, Store, Versioned};
use toolonce::testing::ManualClock;
use toolonce::{
    Call, Guard, GuardBuilder, Policy, Registry, Reply, ReplyKind, Run, Secret, Seen, ToolError, value_tool,
};

struct Program {
    guard: Guard,
    tools: Registry,
    effects: Arc<AtomicU64>,
}

fn builder(store: MemoryStore) -> GuardBuilder {
    Guard::builder(store, "n").clock(ManualClock::new()).secret(Secret::new([7; 32]))
}

async fn begin(store: MemoryStore) -> Result<Program, toolonce::Error> {
    let guard = builder(store).build().await?;
    let (mut tools, effects) = (Registry::new(&guard), Arc::<AtomicU64>::default());
    for name in ["pay", "big", "unsure", "back"] {
        let count = Arc::clone(&effects);
        let body = move |_: Value, _| {
            count.fetch_add(1, Ordering::SeqCst);
            std::future::ready(match name {
                "big" => Ok(json!((0..3_000_u32).map(|n| n.wrapping_mul(2_654_435_761)).collect::<Vec<_>>())),
                "unsure" => Err(ToolError::unknown("lost")),
                _ => Ok(json!({"done": name})),
            })
        };
        let policy = if name == "pay" { Policy::write().reopened_by(["back"]) } else { Policy::write() };
        tools.add(value_tool(name, "", json!({"type": "object"}), policy, body)).unwrap();
    }
    Ok(Program { guard, tools, effects })
}

fn message() -> Vec<Call> {
    ["pay", "pay", "big", "unsure"].into_iter().map(|name| Call::new(name, r#"{"order": 17}"#)).collect()
}

/// A store with one row of every kind that a run leaves.
async fn rows() -> Vec<(Key, Vec<u8>)> {
    let store = MemoryStore::shared();
    let program = begin(store.clone()).await.unwrap();
    let run = Run::start(&program.guard, "r").await.unwrap();
    run.step("think", &1, || async { Ok::<_, toolonce::Error>(json!("a thought")) }).await.unwrap();
    program.tools.answer(&run, 0, &message()).await;
    program.tools.answer(&run, 1, &[Call::new("back", r#"{"order": 17}"#)]).await;
    program.guard.shutdown(Duration::from_secs(1)).await.unwrap();
    let page = store.clone().scan(b"", None, 1_000).await.unwrap();
    page.items.into_iter().map(|(key, Versioned { value, .. })| (key, value)).collect()
}

async fn filled(rows: &[(Key, Vec<u8>)]) -> MemoryStore {
    let store = MemoryStore::new();
    for row in rows {
        let batch = Batch { puts: vec![row.clone()], ..Batch::default() };
        assert!(matches!(store.commit(batch, Durability::Synced).await.unwrap(), Committed::Applied(_)));
    }
    store
}

/// The run goes on and makes its calls again, on what is left; nothing may be executed.
async fn make_again(store: MemoryStore) -> Option<Vec<Reply>> {
    let program = begin(store).await.ok()?;
    let run = Run::resume(&program.guard, "r", Seen::Through(1)).await.ok()?;
    let _ = run.step("think", &1, || async { Ok::<_, toolonce::Error>(json!("another")) }).await;
    let _ = program.guard.inbox().await;
    let replies = program.tools.answer(&run, 0, &message()).await;
    assert_eq!(program.effects.load(Ordering::SeqCst), 0, "executed again: {replies:?}");
    Some(replies)
}

#[tokio::test]
async fn a_damaged_row_executes_nothing_again() {
    let rows = rows().await;
    let before = make_again(filled(&rows).await).await.unwrap();
    let kinds: Vec<ReplyKind> = before.iter().map(Reply::kind).collect();
    assert_eq!(kinds, [ReplyKind::Replayed, ReplyKind::Replayed, ReplyKind::Replayed, ReplyKind::InDoubt]);
    let (mut refused, mut same) = (0, 0);
    for mut random in super::rounds(1_500) {
        let mut damaged = rows.clone();
        // Each kind of row as often, however long.
        let at = random.usize(..damaged.len());
        let value = &mut damaged[at].1;
        if value.is_empty() {
            continue;
        }
        let place = random.usize(..value.len());
        match random.u8(..4) {
            0 | 1 => value[place] ^= 1 << random.u8(..8),
            2 => value.truncate(place),
            _ => value.insert(place, random.u8(..)),
        }
        let Some(replies) = make_again(filled(&damaged).await).await else {
            refused += 1;
            continue;
        };
        for (reply, before) in replies.iter().zip(&before) {
            let told = reply.outcome().filter(|outcome| outcome.is_kept());
            let known = before.outcome().map(|outcome| outcome.text());
            assert!(told.is_none_or(|told| Some(told.text()) == known), "{:?}: {reply:?}", damaged[at].0);
        }
        same += 1;
    }
    assert!(refused > 0 && same > 0, "damage was always seen at once, or never: {refused} and {same}");
}
