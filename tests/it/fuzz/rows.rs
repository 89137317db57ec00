//! Every row of a store, damaged: whoever reads it tells so or knows as much as before; no write runs again.

use std::collections::HashSet;
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
    run.step("think long", &1, || async { Ok::<_, toolonce::Error>(json!("x".repeat(70_000))) }).await.unwrap();
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
    for name in ["think", "think long"] {
        let _ = run.step(name, &1, || async { Ok::<_, toolonce::Error>(json!("another")) }).await;
    }
    let _ = program.guard.inbox().await;
    let replies = program.tools.answer(&run, 0, &message()).await;
    assert_eq!(program.effects.load(Ordering::SeqCst), 0, "executed again: {replies:?}");
    Some(replies)
}

/// What came of damage.
#[derive(Debug, Default)]
struct Came {
    refused: usize,
    same: usize,
}

/// The rows and what is told of the calls as long as they are whole.
struct Whole {
    rows: Vec<(Key, Vec<u8>)>,
    before: Vec<Reply>,
}

impl Whole {
    async fn new() -> Self {
        let rows = rows().await;
        let before = make_again(filled(&rows).await).await.unwrap();
        let kinds: Vec<ReplyKind> = before.iter().map(Reply::kind).collect();
        assert_eq!(kinds, [ReplyKind::Replayed, ReplyKind::Replayed, ReplyKind::Replayed, ReplyKind::InDoubt]);
        Self { rows, before }
    }

    /// With another value in the row `at`.
    async fn damaged(&self, at: usize, value: Vec<u8>, came: &mut Came) {
        let mut damaged = self.rows.clone();
        damaged[at].1 = value;
        let Some(replies) = make_again(filled(&damaged).await).await else {
            came.refused += 1;
            return;
        };
        for (reply, before) in replies.iter().zip(&self.before) {
            let told = reply.outcome().filter(|outcome| outcome.is_kept());
            let known = before.outcome().map(|outcome| outcome.text());
            assert!(told.is_none_or(|told| Some(told.text()) == known), "{:?}: {reply:?}", damaged[at].0);
        }
        came.same += 1;
    }
}

#[tokio::test]
async fn a_damaged_row_executes_nothing_again() {
    let (whole, mut came) = (Whole::new().await, Came::default());
    for mut random in super::rounds(1_500) {
        // Each kind of row as often, however long.
        let at = random.usize(..whole.rows.len());
        let mut value = whole.rows[at].1.clone();
        if value.is_empty() {
            continue;
        }
        let place = random.usize(..value.len());
        match random.u8(..4) {
            0 | 1 => value[place] ^= 1 << random.u8(..8),
            2 => value.truncate(place),
            _ => value.insert(place, random.u8(..)),
        }
        whole.damaged(at, value, &mut came).await;
    }
    assert!(came.refused > 0 && came.same > 0, "damage was always seen at once, or never: {came:?}");
}

/// Every bit of the short rows; of a long one those of its first and last bytes, where its counts and checksums are, and
/// some between. Of a row like one before it, one bit in eleven.
fn bits(rows: &[(Key, Vec<u8>)]) -> Vec<(usize, usize)> {
    let (mut all, mut kinds) = (Vec::new(), HashSet::new());
    for (at, (key, value)) in rows.iter().enumerate() {
        // A piece has nothing at its ends but its form.
        let (ends, step) = if value.len() > 4096 { (8 * 8, 9973) } else { (64 * 8, 97) };
        let bits = value.len() * 8;
        let one_in = if kinds.insert((key.as_bytes()[8], value.len())) { 1 } else { 11 };
        let is_at_an_end = |bit: usize| bit < ends || bit + ends >= bits;
        let flipped = (0..bits).filter(|bit| value.len() <= 200 || is_at_an_end(*bit) || bit % step == 0);
        all.extend(flipped.step_by(one_in).map(|bit| (at, bit)));
    }
    all
}

#[test]
fn a_flipped_bit_executes_nothing_again() {
    const AT_A_TIME: usize = 2;
    let flip = async |nth: usize| {
        let (whole, mut came) = (Whole::new().await, Came::default());
        for (at, bit) in bits(&whole.rows).into_iter().skip(nth).step_by(AT_A_TIME) {
            let mut value = whole.rows[at].1.clone();
            value[bit / 8] ^= 1 << (bit % 8);
            whole.damaged(at, value, &mut came).await;
        }
        assert!(came.refused > 0 && came.same > 0, "damage was always seen at once, or never: {came:?}");
    };
    let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    std::thread::scope(|scope| {
        let flipping: Vec<_> = (0..AT_A_TIME).map(|nth| scope.spawn(move || runtime().block_on(flip(nth)))).collect();
        flipping.into_iter().for_each(|half| half.join().unwrap());
    });
}
