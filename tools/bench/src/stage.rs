//! What is called: four tools of the same kind, one for each effect, and calls of them.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::task::yield_now;
use toolonce::store::{SledStore, Store};
use toolonce::{Call, Guard, KeyWindow, Policy, Registry, Reply, ReplyKind, Run, tool};

use crate::counted::{Counted, Counts};

/// Whose calls these are.
const NAMESPACE: &str = "shop";

/// What the tools take.
#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "nothing is really charged")]
struct Charge {
    customer: String,
    cents: u64,
    order: String,
}

/// 80 bytes of arguments, other ones for each `n`.
pub fn arguments(n: u64) -> String {
    let cents = 1_000_000 + n % 9_000_000;
    format!(r#"{{"customer":"cus_{n:016x}","cents":{cents},"order":"ord_{n:014}"}}"#)
}

/// A text of 200 bytes in JSON, quotes included, which is what each tool returns.
pub fn result() -> String {
    "a result of two hundred bytes; ".chars().cycle().take(198).collect()
}

/// The tool with this effect, its name, and its policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A plain write.
    Write,
    /// Harmless to repeat.
    Idempotent,
    /// Repeats are dropped downstream, for ever.
    Keyed,
    /// Changes nothing.
    ReadOnly,
}

/// All of them.
pub const KINDS: [Kind; 4] = [Kind::Write, Kind::Idempotent, Kind::Keyed, Kind::ReadOnly];

impl Kind {
    /// The tool's name.
    pub fn tool(self) -> &'static str {
        match self {
            Self::Write => "charge",
            Self::Idempotent => "set_limit",
            Self::Keyed => "order",
            Self::ReadOnly => "look_up",
        }
    }

    fn policy(self) -> Policy {
        match self {
            Self::Write => Policy::write(),
            Self::Idempotent => Policy::idempotent(),
            Self::Keyed => Policy::keyed(KeyWindow::Permanent),
            Self::ReadOnly => Policy::read_only(),
        }
    }

    /// The `n`-th call of the tool, in turn `turn`.
    pub fn call(self, n: u64, turn: u32) -> Call {
        Call::new(self.tool(), arguments(n)).id(format!("call_{n:016x}")).turn(turn)
    }
}

/// A guard with the four tools.
#[derive(Clone)]
pub struct Stage {
    /// The guard.
    pub guard: Guard,
    /// Its tools. Shared: a program has one.
    pub tools: Arc<Registry>,
}

impl Stage {
    /// On `store`, with the defaults.
    ///
    /// # Errors
    /// If the store can't be used.
    pub async fn on(store: impl Store) -> anyhow::Result<Self> {
        let guard = Guard::builder(store, NAMESPACE).build().await?;
        let mut tools = Registry::new(&guard);
        for kind in KINDS {
            tools
                .add(tool(kind.tool(), "Does what it says", kind.policy(), async |_: Charge, _attempt| Ok(result())))?;
        }
        Ok(Self { guard, tools: Arc::new(tools) })
    }

    /// On the sled store in `directory`, with the defaults, commits counted.
    ///
    /// # Errors
    /// If the store can't be used.
    pub async fn counted(directory: &Path) -> anyhow::Result<(Self, Arc<Counts>)> {
        let (store, counts) = Counted::new(Arc::new(SledStore::open(directory).await?));
        Ok((Self::on(store).await?, counts))
    }

    /// A run that is there to be called in.
    ///
    /// # Errors
    /// If it can't be started.
    pub async fn run(&self, id: impl AsRef<str>) -> anyhow::Result<Run> {
        Ok(Run::start(&self.guard, id).await?)
    }

    /// Makes the call, which must be executed, and measures it from outside.
    ///
    /// # Errors
    /// If it is answered in any other way.
    pub async fn first(&self, run: &Run, call: Call) -> anyhow::Result<Duration> {
        self.timed(run, call, ReplyKind::Executed).await
    }

    /// Makes the call, which must be answered from the record.
    ///
    /// # Errors
    /// If it is answered in any other way.
    pub async fn replay(&self, run: &Run, call: Call) -> anyhow::Result<Duration> {
        self.timed(run, call, ReplyKind::Replayed).await
    }

    async fn timed(&self, run: &Run, call: Call, kind: ReplyKind) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        let reply = self.tools.call(run, call).await;
        let took = begun.elapsed();
        expect(&reply, kind)?;
        Ok(took)
    }

    /// Closes the store.
    ///
    /// # Errors
    /// If that fails, or something was still under way.
    pub async fn close(self) -> anyhow::Result<()> {
        let left = self.guard.shutdown(Duration::from_secs(10)).await?;
        ensure!(left.unfinished == 0, "{} calls hadn't ended", left.unfinished);
        Ok(())
    }
}

/// Whether it was answered so, with the tool's result.
///
/// # Errors
/// If not.
pub fn expect(reply: &Reply, kind: ReplyKind) -> anyhow::Result<()> {
    ensure!(reply.kind() == kind, "{} instead of {kind}: {}", reply.kind(), reply.message());
    ensure!(reply.outcome().is_some_and(|outcome| outcome.text().len() == 200), "another result: {reply:?}");
    Ok(())
}

/// How long the guard must have had nothing to write.
const QUIET: Duration = Duration::from_micros(300);

/// Waits until the guard writes nothing any more: what it leaves for later must not disturb the plain append.
pub async fn quiet(counts: &Counts) {
    let (mut since, mut commits) = (Instant::now(), counts.commits());
    while since.elapsed() < QUIET {
        yield_now().await;
        if counts.is_busy() || counts.commits() != commits {
            (since, commits) = (Instant::now(), counts.commits());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_80_bytes_and_each_their_own() {
        for n in [0, 1, 9_000_000, 99_999_999_999_999] {
            assert_eq!(arguments(n).len(), 80, "{}", arguments(n));
        }
        assert_ne!(arguments(0), arguments(9_000_000));
    }
}
