//! The guards that are compared, behind one face: an argument text goes in, and it is told whether the tool ran.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agent_effects::{EffectFailure, EffectKind, EffectOutcome, Runtime};
use agent_effects_sqlite::SqliteStore;
use anyhow::{bail, ensure};
use effectfence::fence::{
    Admission, EffectFence, EffectRequest, FenceConfig, VectorClock, commit_effect_cert, prepare_effect_fence,
};
use serde_json::Value;
use toolonce::{ReplyKind, Run};
use toolonce_bench::stage::{Kind, Stage, arguments, result};

/// In the order in which they are measured.
pub const NAMES: [&str; 3] = ["toolonce", "agent-effects", "effectfence"];

/// What a power cut can't take, as the sources that are measured say, and how often a first call waits for the disk, as
/// the kernel saw it (`strace -f -c`, 110 calls less 10).
pub fn what_is_durable(name: &str) -> &'static str {
    match name {
        "agent-effects" => {
            "agent-effects 0.2.0, agent-effects-sqlite 0.2.0: SQLite in WAL mode with synchronous = FULL, as \
             SqliteStore::open sets it, so each transaction is synced when it commits. A first call makes 5, one after the \
             other. Keys are the caller's."
        }
        "effectfence" => {
            "effectfence 0.3.0, EffectFence::open on a file: a line of JSON for the domain's number, the claim and the \
             outcome, each followed by fdatasync: 3 for a first call. All outcomes are kept in memory, from which repeats are \
             answered, and forgotten after a day. Keys are the caller's."
        }
        _ => {
            "toolonce on sled: claim and outcome, each synced with fdatasync before anything goes on: 2 for a first call of \
             one caller, shared by those at once. What was delivered to whom follows unsynced. The key is worked out from \
             what the arguments mean."
        }
    }
}

/// Whether the tool ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ran {
    Executed,
    Replayed,
}

/// One of them, open.
pub enum System {
    Ours(Stage, Run),
    AgentEffects(Runtime<SqliteStore>),
    EffectFence(EffectFence),
}

impl System {
    /// On new files in `directory`.
    pub async fn open(name: &str, directory: &Path) -> anyhow::Result<Self> {
        let path = directory.join(name);
        Ok(match name {
            "toolonce" => {
                let (stage, _) = Stage::counted(&path).await?;
                let run = stage.run("run").await?;
                Self::Ours(stage, run)
            }
            "agent-effects" => Self::AgentEffects(Runtime::new(SqliteStore::open(path).await?)),
            "effectfence" => Self::EffectFence(EffectFence::open(path, FenceConfig::default())?),
            _ => bail!("no system {name}: {NAMES:?}"),
        })
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Ours(..) => NAMES[0],
            Self::AgentEffects(_) => NAMES[1],
            Self::EffectFence(_) => NAMES[2],
        }
    }

    /// The `n`-th call. Each begins with the text of its arguments; the tool returns 200 bytes of JSON.
    pub async fn call(&self, n: u64) -> anyhow::Result<Ran> {
        match self {
            Self::Ours(stage, run) => {
                let reply = stage.tools.call(run, Kind::Write.call(n, n as u32)).await;
                Ok(match reply.kind() {
                    ReplyKind::Executed => Ran::Executed,
                    ReplyKind::Replayed => Ran::Replayed,
                    other => bail!("{other}: {}", reply.message()),
                })
            }
            Self::AgentEffects(runtime) => agent_effects(runtime, n).await,
            Self::EffectFence(fence) => {
                // It blocks, so it can't run where other tasks do.
                let fence = fence.clone();
                tokio::task::spawn_blocking(move || effectfence(&fence, n)).await?
            }
        }
    }

    pub async fn close(&self) -> anyhow::Result<()> {
        match self {
            Self::Ours(stage, _) => stage.clone().close().await?,
            Self::AgentEffects(runtime) => runtime.store().pool().close().await,
            Self::EffectFence(_) => {}
        }
        Ok(())
    }
}

async fn agent_effects(runtime: &Runtime<SqliteStore>, n: u64) -> anyhow::Result<Ran> {
    let arguments: Value = serde_json::from_str(&arguments(n))?;
    let ran = Arc::new(AtomicBool::new(false));
    let body = {
        let ran = Arc::clone(&ran);
        move |_| {
            ran.store(true, Ordering::Relaxed);
            async { Ok::<_, EffectFailure>(result()) }
        }
    };
    let effect = runtime.effect("charge", format!("run:{n}")).kind(EffectKind::IrreversibleWrite).input(&arguments);
    match effect.run(body).await? {
        EffectOutcome::Committed(text) => ensure!(text.len() == 198, "another result: {text}"),
        other => bail!("not committed: {other:?}"),
    }
    Ok(if ran.load(Ordering::Relaxed) { Ran::Executed } else { Ran::Replayed })
}

fn effectfence(fence: &EffectFence, n: u64) -> anyhow::Result<Ran> {
    let request = EffectRequest {
        intent: format!("run:{n}"),
        parent: None,
        domain: "charge".to_owned(),
        tool: "charge".to_owned(),
        args: serde_json::from_str(&arguments(n))?,
        read_set: Vec::new(),
        agent: "agent".to_owned(),
        known_clock: VectorClock::new(),
    };
    match prepare_effect_fence(fence, request)? {
        Admission::Fresh(prepared) => {
            commit_effect_cert(fence, prepared, Value::String(result()))?;
            Ok(Ran::Executed)
        }
        Admission::Replay(_) => Ok(Ran::Replayed),
    }
}
