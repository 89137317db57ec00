//! Stores with calls in every state, and the command to look at them.

use std::env;
use std::io::Write as _;
use std::path::Path;
use std::process::{self, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use toolonce::store::{SledStore, Store};
use toolonce::testing::ManualClock;
use toolonce::{
    Approval, Attempt, Call, Clock, Guard, KeyWindow, Policy, Registry, Reply, ReplyKind, Run, SealKeys, Secret, Seen,
    SystemClock, ToolError, value_tool,
};

/// The command with these arguments, and nothing from this process's environment.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolonce"));
    command.args(arguments).stdin(Stdio::null());
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TOOLONCE_")) {
        command.env_remove(name);
    }
    command
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    Output(command(arguments).output().unwrap())
}

/// What the command did.
pub(crate) struct Output(pub(crate) process::Output);

impl Output {
    fn text(&self) -> (String, String) {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (text(&self.0.stdout), text(&self.0.stderr))
    }

    /// What it printed; it must have succeeded without a word on standard error.
    pub(crate) fn ok(&self) -> String {
        let (out, error) = self.text();
        assert_eq!((self.0.status.code(), &*error), (Some(0), ""), "{out}");
        out
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.ok()).unwrap()
    }

    /// Its error; it must have printed nothing else.
    pub(crate) fn failed(&self, exit: i32) -> String {
        let (out, error) = self.text();
        assert_eq!((self.0.status.code(), &*out), (Some(exit), ""), "{error}");
        // Those of the command line are clap's and longer.
        assert!(exit == 2 || error.lines().count() == 1, "{error}");
        error
    }
}

/// A store with calls of the tools `charge`, `wire` (asks first) and `note`; effects are counted outside.
pub(crate) struct Bench {
    directory: tempfile::TempDir,
    store: String,
    charges: Arc<AtomicUsize>,
    /// How `charge` is guarded.
    charge: Policy,
    /// What the agent's guard keeps the store secret with.
    kept: Kept,
}

/// How a store is kept.
#[derive(Clone, Copy)]
pub(crate) enum Kept {
    Plainly,
    WithSecret(&'static str),
    Sealed([u8; 32]),
}

/// An agent on the store.
pub(crate) struct Agent {
    store: Arc<SledStore>,
    guard: Guard,
    tools: Registry,
}

/// What a charge does.
#[derive(Clone)]
enum Charge {
    Works,
    Hangs,
    Says(String),
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::kept(Kept::Plainly)
    }

    /// One whose tool `charge` is guarded so.
    pub(crate) fn charging(charge: Policy) -> Self {
        Self { charge, ..Self::new() }
    }

    pub(crate) fn kept(kept: Kept) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("calls").to_str().unwrap().to_owned();
        let charge = Policy::keyed(KeyWindow::Unknown);
        Self { directory, store, charges: Arc::default(), charge, kept }
    }

    pub(crate) fn path(&self) -> &str {
        &self.store
    }

    pub(crate) fn charges(&self) -> usize {
        self.charges.load(Ordering::SeqCst)
    }

    /// Where the store is.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        command.args(["--store", &self.store, "--namespace", "shop"]);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        Output(self.command(arguments).output().unwrap())
    }

    pub(crate) fn run_with(&self, arguments: &[&str], input: &str) -> Output {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        Output(child.wait_with_output().unwrap())
    }

    /// An agent that holds the store.
    pub(crate) async fn open(&self) -> Agent {
        self.agent(Charge::Works, SystemClock::new()).await
    }

    async fn agent(&self, charge: Charge, clock: impl Clock) -> Agent {
        let store = Arc::new(SledStore::open(&self.store).await.unwrap());
        let guard = Guard::builder_on(Arc::clone(&store) as Arc<dyn Store>, "shop").clock(clock);
        let guard = match self.kept {
            Kept::Plainly => guard,
            Kept::WithSecret(secret) => guard.secret(Secret::new(secret)),
            Kept::Sealed(key) => guard.seal(SealKeys::new(key)),
        };
        let guard = guard.build().await.unwrap();
        let mut tools = Registry::new(&guard);
        let schema = json!({"type": "object", "properties": {"cents": {"type": "integer"}}});
        let charges = Arc::clone(&self.charges);
        let body = move |_: Value, _: Attempt| {
            charges.fetch_add(1, Ordering::SeqCst);
            let charge = charge.clone();
            async move {
                match charge {
                    Charge::Works => Ok(json!("charged")),
                    Charge::Hangs => std::future::pending().await,
                    Charge::Says(error) => Err(ToolError::unknown(error)),
                }
            }
        };
        tools.add(value_tool("charge", "", schema.clone(), self.charge.clone(), body)).unwrap();
        let asks = Policy::write().approval(Approval::First);
        tools.add(value_tool("wire", "", schema.clone(), asks, async |_: Value, _| Ok(json!("wired")))).unwrap();
        tools.add(value_tool("note", "", schema, Policy::write(), async |_: Value, _| Ok(json!("noted")))).unwrap();
        Agent { store, guard, tools }
    }

    /// A charge whose process dies in the middle of it.
    pub(crate) async fn in_doubt(&self, run: &str) -> String {
        let (agent, before) = (self.agent(Charge::Hangs, SystemClock::new()).await, self.charges());
        let begun = async {
            // The claim is durable before the body starts.
            while self.charges() == before {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            reply = agent.call(run, "charge", 4200, Duration::from_secs(60)) => panic!("{reply:?}"),
            () = begun => {}
        }
        let reference = agent.reference(run, "charge").await;
        agent.guard.crash();
        agent.store.close().await.unwrap();
        reference
    }

    /// A charge whose tool doesn't know how it ended.
    pub(crate) async fn in_doubt_saying(&self, run: &str, error: &str) -> String {
        let agent = self.agent(Charge::Says(error.to_owned()), SystemClock::new()).await;
        let reply = agent.call(run, "charge", 4200, Duration::from_secs(60)).await;
        assert_eq!(reply.kind(), ReplyKind::InDoubt);
        let reference = agent.reference(run, "charge").await;
        agent.end().await;
        reference
    }

    /// A call that waits for approval.
    pub(crate) async fn awaiting(&self, run: &str) -> String {
        self.awaiting_at(run, SystemClock::new()).await
    }

    /// One that waited for approval in 2023.
    pub(crate) async fn expired(&self, run: &str) -> String {
        self.awaiting_at(run, ManualClock::new()).await
    }

    async fn awaiting_at(&self, run: &str, clock: impl Clock) -> String {
        let agent = self.agent(Charge::Works, clock).await;
        agent.call(run, "wire", 9, Duration::ZERO).await;
        // Nobody waits for it, and the question is written all the same.
        while !agent.guard.approvals().await.unwrap().iter().any(|asked| asked.run == run) {
            tokio::task::yield_now().await;
        }
        let reference = agent.reference(run, "wire").await;
        agent.end().await;
        reference
    }

    /// A call that happened.
    pub(crate) async fn done(&self, run: &str) -> String {
        let agent = self.open().await;
        let reply = agent.call(run, "note", 1, Duration::from_secs(60)).await;
        assert_eq!(reply.kind(), ReplyKind::Executed);
        let reference = agent.reference(run, "note").await;
        agent.end().await;
        reference
    }

    /// The charge once more, by a process that starts anew.
    pub(crate) async fn retry(&self, run: &str) -> Reply {
        let agent = self.open().await;
        let reply = agent.call(run, "charge", 4200, Duration::from_secs(60)).await;
        agent.end().await;
        reply
    }

    /// The wire once more.
    pub(crate) async fn wire(&self, run: &str) -> Reply {
        let agent = self.open().await;
        let reply = agent.call(run, "wire", 9, Duration::from_secs(60)).await;
        agent.end().await;
        reply
    }
}

impl Agent {
    async fn call(&self, run: &str, tool: &str, cents: u32, patience: Duration) -> Reply {
        let run = Run::start_or_resume(&self.guard, run, Seen::Nothing).await.unwrap();
        let arguments = json!({"cents": cents}).to_string();
        self.tools.call(&run, Call::new(tool, &arguments).id("call_1").turn(0).patience(patience)).await
    }

    async fn reference(&self, run: &str, tool: &str) -> String {
        let calls = self.guard.calls(None).await.unwrap().calls;
        calls.into_iter().find(|call| call.run == run && call.tool == tool).unwrap().reference
    }

    async fn end(self) {
        self.guard.shutdown(Duration::from_secs(10)).await.unwrap();
    }
}
