//! The world of a real guard: tools whose bodies go on when they are let, a ledger of what had an effect, and a store
//! that is known to be at rest.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};
use toolonce::store::{Batch, BoxFuture, Committed, Durability, Identity, Key, Page, Store, StoreError, Versioned};
use toolonce::{Attempt, RawTool, Reconciled, ToolError};

use super::story::{End, Tool, Unit};

#[derive(Clone, Default)]
pub(super) struct World {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
pub(super) struct Inner {
    pub(super) ends: BTreeMap<Unit, VecDeque<End>>,
    pub(super) blind: BTreeMap<Unit, u32>,
    /// The ledger: under which key each effect was.
    pub(super) effects: BTreeMap<Unit, Vec<String>>,
    /// The key, the attempt and the note of each body.
    pub(super) begun: BTreeMap<Unit, Vec<(String, u64, u8)>>,
    /// Bodies that aren't let go on yet, in the order in which they began.
    pub(super) gates: Vec<(Unit, End, oneshot::Sender<End>)>,
    count: usize,
}

impl World {
    pub(super) fn with<T>(&self, look: impl FnOnce(&mut Inner) -> T) -> T {
        look(&mut self.inner.lock().unwrap())
    }

    pub(super) fn count(&self) -> usize {
        self.with(|inner| inner.count)
    }

    /// Lets the first body go on that doesn't hang; whether there is one.
    pub(super) fn release_one(&self) -> bool {
        self.with(|inner| {
            let at = inner.gates.iter().position(|(_, end, _)| *end != End::Hangs);
            at.is_some_and(|at| {
                let (_, end, gate) = inner.gates.remove(at);
                gate.send(end).is_ok()
            })
        })
    }

    pub(super) fn tool(&self, tool: Tool) -> RawTool {
        let world = self.clone();
        let body = move |args: Value, attempt: Attempt| {
            let world = world.clone();
            async move { world.run((tool, number(&args["to"])), number(&args["note"]), attempt).await }
        };
        let world = self.clone();
        let look = move |args: String, about: toolonce::LookUp| {
            let args: Value = serde_json::from_str(&args).unwrap();
            let unit = (tool, number(&args["to"]));
            std::future::ready(Ok(world.look(unit, &about.downstream_key().reference())))
        };
        let plain = tool.with(body);
        if tool.looks_up() { plain.reconcile(look) } else { plain }
    }

    async fn run(&self, unit: Unit, note: u8, attempt: Attempt) -> Result<Value, ToolError> {
        let key = attempt.downstream_key().reference();
        let (begun, end) = self.with(|inner| {
            inner.count += 1;
            let begun = inner.begun.entry(unit).or_default();
            begun.push((key.clone(), attempt.number(), note));
            let end = inner.ends.get_mut(&unit).and_then(VecDeque::pop_front);
            (begun.len(), end.unwrap_or(End::Succeeds))
        });
        if unit.0 == Tool::Read {
            return self.ends(end, || json!({"n": begun}));
        }
        let (gate, end_of) = oneshot::channel();
        self.with(|inner| inner.gates.push((unit, end, gate)));
        let end = end_of.await?;
        // Right before what can't be taken back.
        attempt.check().await?;
        self.ends(end, || {
            self.with(|inner| {
                let effects = inner.effects.entry(unit).or_default();
                effects.push(key);
                json!({"n": effects.len()})
            })
        })
    }

    fn ends(&self, end: End, effect: impl FnOnce() -> Value) -> Result<Value, ToolError> {
        self.with(|inner| inner.count += 1);
        match end {
            End::Succeeds => Ok(effect()),
            End::Fails(0) => Err(ToolError::retryable("not now")),
            End::Fails(delay) => {
                Err(ToolError::retryable("later").retry_after(std::time::Duration::from_millis(delay)))
            }
            End::Permanent => Err(ToolError::permanent("no")),
            End::Lost(happened) => {
                if happened {
                    effect();
                }
                Err(ToolError::unknown("lost"))
            }
            End::Hangs => unreachable!("what hangs isn't let go on"),
        }
    }

    fn look(&self, unit: Unit, key: &str) -> Reconciled<Value> {
        self.with(|inner| {
            inner.count += 1;
            let blind = inner.blind.entry(unit).or_default();
            if *blind > 0 {
                *blind -= 1;
                return Reconciled::CannotTell;
            }
            let at = inner.effects.get(&unit).and_then(|effects| effects.iter().position(|effect| effect == key));
            at.map_or(Reconciled::DidNotHappen, |at| Reconciled::Happened(json!({"n": at + 1})))
        })
    }
}

fn number(value: &Value) -> u8 {
    value.as_u64().and_then(|number| u8::try_from(number).ok()).unwrap()
}

/// A store that tells whether anybody is in it.
pub(super) struct Watched {
    pub(super) store: Arc<dyn Store>,
    begun: AtomicUsize,
    ended: AtomicUsize,
    /// Told of each end.
    pub(super) left: Notify,
}

impl Watched {
    pub(super) fn new(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { store, begun: AtomicUsize::new(0), ended: AtomicUsize::new(0), left: Notify::new() })
    }

    /// How many operations there were; `None` while one goes on.
    pub(super) fn at_rest(&self) -> Option<usize> {
        let ended = self.ended.load(Ordering::SeqCst);
        (self.begun.load(Ordering::SeqCst) == ended).then_some(ended)
    }

    async fn watch<T>(&self, operation: impl Future<Output = T>) -> T {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let _ended = Ended(self);
        operation.await
    }
}

/// Counted when its caller is gone, too.
struct Ended<'a>(&'a Watched);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::SeqCst);
        self.0.left.notify_one();
    }
}

impl Store for Watched {
    fn get<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Versioned>>, StoreError>> {
        Box::pin(self.watch(self.store.get(keys)))
    }

    fn commit(&self, batch: Batch, durability: Durability) -> BoxFuture<'_, Result<Committed, StoreError>> {
        Box::pin(self.watch(self.store.commit(batch, durability)))
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a [u8],
        from: Option<Key>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page, StoreError>> {
        Box::pin(self.watch(self.store.scan(prefix, from, limit)))
    }

    fn identity(&self) -> Identity {
        self.store.identity()
    }

    fn is_exclusive(&self) -> bool {
        self.store.is_exclusive()
    }

    fn changed<'a>(&'a self, keys: &'a [Key]) -> Option<BoxFuture<'a, ()>> {
        self.store.changed(keys)
    }

    fn now(&self) -> Option<BoxFuture<'_, Result<u64, StoreError>>> {
        self.store.now()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.store.close()
    }
}
