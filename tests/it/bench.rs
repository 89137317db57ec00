//! What the tests share: a shop whose effects are counted in a ledger that the guard knows nothing of.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use toolonce::store::{MemoryStore, Store};
use toolonce::testing::ManualClock;
use toolonce::{Attempt, Call, Guard, InDoubt, Policy, Reconciled, Registry, Repeat, Run, ToolError, value_tool};

/// An append-only file of effects.
#[derive(Clone)]
pub(crate) struct Ledger {
    file: Arc<tempfile::NamedTempFile>,
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.lines())
    }
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self { file: Arc::new(tempfile::NamedTempFile::new().unwrap()) }
    }

    pub(crate) fn write(&self, line: &str) {
        let mut file = OpenOptions::new().append(true).open(self.file.path()).unwrap();
        writeln!(file, "{line}").unwrap();
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let mut text = String::new();
        File::open(self.file.path()).unwrap().read_to_string(&mut text).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn count(&self, start: &str) -> usize {
        self.lines().iter().filter(|line| line.starts_with(start)).count()
    }
}

/// A guard with tools over one ledger.
pub(crate) struct Shop {
    pub(crate) guard: Guard,
    pub(crate) tools: Registry,
    pub(crate) ledger: Ledger,
    pub(crate) clock: ManualClock,
    /// `slow` and `slow_keyed` wait for a permit before their effect.
    pub(crate) gate: Arc<Semaphore>,
    /// One permit for each body of a slow tool that has begun.
    pub(crate) begun: Arc<Semaphore>,
}

impl Shop {
    pub(crate) async fn open(store: impl Store) -> Self {
        Self::open_on(Arc::new(store), Ledger::new(), ManualClock::new()).await
    }

    pub(crate) async fn open_on(store: Arc<dyn Store>, ledger: Ledger, clock: ManualClock) -> Self {
        let guard = Guard::builder_on(store, "shop").clock(clock.clone()).build().await.unwrap();
        let (gate, begun) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let mut shop = Self { tools: Registry::new(&guard), guard, ledger, clock, gate, begun };
        shop.stock();
        shop
    }

    fn stock(&mut self) {
        let write = || Policy::write().advanced(|a| a.attempts(1));
        self.add("charge", write(), |args, ledger| {
            ledger.write(&format!("charge {args}"));
            Ok(json!({"charged": args["cents"]}))
        });
        self.add("each", write().repeat(Repeat::Each), |args, ledger| {
            ledger.write(&format!("each {args}"));
            Ok(json!("done"))
        });
        self.add("look", Policy::read_only(), |args, ledger| {
            ledger.write(&format!("look {args}"));
            Ok(json!({"found": args}))
        });
        self.add("panics", write(), |args, ledger| {
            ledger.write(&format!("panics {args}"));
            panic!("on purpose")
        });
        self.add("refuses", write(), |_, _| Err(ToolError::permanent("declined")));
        self.add("unsure", write(), |args, ledger| {
            ledger.write(&format!("unsure {args}"));
            Err(ToolError::unknown("the connection was lost"))
        });
        self.add("big", write(), |args, ledger| {
            ledger.write("big");
            Ok(json!("é".repeat(usize::try_from(args["n"].as_u64().unwrap()).unwrap())))
        });
        self.add("again", write().reopened_by(["big"]), |args, ledger| {
            ledger.write(&format!("again {args}"));
            Ok(json!("done"))
        });
        let asks = Policy::write().in_doubt(InDoubt::Reconcile).advanced(|a| a.attempts(1));
        self.slow("slow", write());
        self.slow("slow_asks", asks);
    }

    fn add(
        &mut self,
        name: &'static str,
        policy: Policy,
        run: impl Fn(&Value, &Ledger) -> Result<Value, ToolError> + Send + Sync + 'static,
    ) {
        let ledger = self.ledger.clone();
        let body = move |args: Value, _: Attempt| std::future::ready(run(&args, &ledger));
        let result = self.tools.add(value_tool(name, "", json!({"type": "object"}), policy, body));
        result.unwrap();
    }

    /// A tool that waits at the gate, then has its effect; its look-up reads the ledger.
    fn slow(&mut self, name: &'static str, policy: Policy) {
        let (ledger, gate, begun) = (self.ledger.clone(), Arc::clone(&self.gate), Arc::clone(&self.begun));
        let body = move |args: Value, _: Attempt| {
            let (ledger, gate, begun) = (ledger.clone(), Arc::clone(&gate), Arc::clone(&begun));
            async move {
                begun.add_permits(1);
                gate.acquire().await.unwrap().forget();
                ledger.write(&format!("{name} {args}"));
                Ok(json!({"slow": args}))
            }
        };
        let ledger = self.ledger.clone();
        let look = move |args: String, _| {
            let happened = ledger.lines().contains(&format!("{name} {args}"));
            let found = if happened { Reconciled::Happened(json!("found")) } else { Reconciled::DidNotHappen };
            std::future::ready(Ok(found))
        };
        let tool = value_tool(name, "", json!({"type": "object"}), policy, body).reconcile(look);
        self.tools.add(tool).unwrap();
    }

    pub(crate) async fn run(&self, id: &str) -> Run {
        Run::start(&self.guard, id).await.unwrap()
    }

    /// Waits until a body of a slow tool has begun.
    pub(crate) async fn begun(&self) {
        self.begun.acquire().await.unwrap().forget();
    }

    /// Lets the tasks of the guard go as far as they get without time passing.
    pub(crate) async fn settle(&self) {
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    }

    /// Lets time pass, as far as the tasks get with it.
    pub(crate) async fn pass(&self, time: Duration) {
        self.settle().await;
        self.clock.advance(time);
        self.settle().await;
    }
}

pub(crate) fn call(tool: &str, args: &Value) -> Call {
    Call::with_value(tool, args)
}

/// A shop on a fresh store in memory.
pub(crate) async fn shop() -> Shop {
    Shop::open(MemoryStore::new()).await
}
