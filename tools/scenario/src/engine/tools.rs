//! A case's tools: their policies, and bodies that follow the fate of each execution.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use toolonce::testing::ManualClock;
use toolonce::{
    Approval, Attempt, Clock, InDoubt, KeyWindow, LookAlike, Mismatch, Policy, RawTool, Reconciled, Repeat, Scope,
    ToolError, text_tool,
};

use super::ledger::Ledger;
use super::process::Life;
use crate::file::{self, FateKind, LookUp, Window};

/// What a body acts on.
#[derive(Clone)]
pub(super) struct World {
    pub(super) ledger: Arc<Ledger>,
    pub(super) clock: ManualClock,
    pub(super) life: Arc<Life>,
}

/// The tool `name` as the case describes it.
pub(super) fn tool(name: &str, tool: &file::Tool, world: &World) -> RawTool {
    let window = match tool.effect {
        file::Effect::Keyed => Some(match tool.key_window_ms {
            Some(Window::Millis(ms)) => Some(Duration::from_millis(ms)),
            Some(Window::Permanent) | None => None,
        }),
        _ => None,
    };
    let body = Body { name: name.to_owned(), checks: tool.check, window, world: world.clone() };
    let run = move |_arguments: String, attempt: Attempt| {
        let body = body.clone();
        async move { body.run(&attempt).await }
    };
    let made = text_tool(name, "a tool of the case", tool.schema.clone(), policy(tool), run);
    match &tool.in_doubt {
        Some(file::InDoubt::Reconcile(answers)) => with_look_up(made, name, answers, world),
        _ => made,
    }
}

fn with_look_up(tool: RawTool, name: &str, answers: &[LookUp], world: &World) -> RawTool {
    let (name, answers, ledger) = (name.to_owned(), answers.to_vec(), Arc::clone(&world.ledger));
    tool.reconcile(move |_arguments, _about| {
        let (answer, effects) = ledger.look_up(&name, &answers);
        let found = match answer {
            LookUp::CannotTell => Reconciled::CannotTell,
            LookUp::Happened => Reconciled::Happened(json!({"n": effects, "tool": name})),
            LookUp::DidNotHappen => Reconciled::DidNotHappen,
        };
        async move { Ok(found) }
    })
}

fn policy(tool: &file::Tool) -> Policy {
    let mut policy = match tool.effect {
        file::Effect::ReadOnly => Policy::read_only(),
        file::Effect::Idempotent => Policy::idempotent(),
        file::Effect::Write => Policy::write(),
        file::Effect::Keyed => Policy::keyed(match tool.key_window_ms {
            Some(Window::Millis(ms)) => KeyWindow::For(Duration::from_millis(ms)),
            Some(Window::Permanent) => KeyWindow::Permanent,
            None => KeyWindow::Unknown,
        }),
    };
    match tool.repeat {
        Some(file::Repeat::Once) => policy = policy.repeat(Repeat::Once),
        Some(file::Repeat::Each) => policy = policy.repeat(Repeat::Each),
        Some(file::Repeat::Ask) => policy = policy.repeat(Repeat::Ask),
        None => {}
    }
    if let Some(file::Approval::First) = tool.approval {
        policy = policy.approval(Approval::First);
    }
    policy = policy.again(tool.again);
    match tool.scope {
        Some(file::Scope::Global) => policy = policy.scope(Scope::Global),
        Some(file::Scope::Run) => policy = policy.scope(Scope::Run),
        None => {}
    }
    match tool.in_doubt {
        Some(file::InDoubt::Hold) => policy = policy.in_doubt(InDoubt::Hold),
        Some(file::InDoubt::Resend) => policy = policy.in_doubt(InDoubt::Resend),
        Some(file::InDoubt::Reconcile(_)) => policy = policy.in_doubt(InDoubt::Reconcile),
        None => {}
    }
    if !tool.reopened_by.is_empty() {
        policy = policy.reopened_by(tool.reopened_by.iter().cloned());
    }
    policy.advanced(|mut advanced| {
        advanced = advanced.attempts(tool.attempts).context(tool.context.iter().cloned());
        match tool.mismatch {
            Some(file::Mismatch::Conflict) => advanced = advanced.mismatch(Mismatch::Conflict),
            Some(file::Mismatch::Replay) => advanced = advanced.mismatch(Mismatch::Replay),
            None => {}
        }
        if let Some(look_alike) = tool.look_alike {
            advanced = advanced.look_alike(match look_alike {
                file::LookAlike::Ask => LookAlike::Ask,
                file::LookAlike::Run => LookAlike::Run,
                file::LookAlike::Off => LookAlike::Off,
            });
        }
        if let (Some(ms), Some(file::Scope::Global)) = (tool.retention_ms, tool.scope) {
            advanced = advanced.retention(Duration::from_millis(ms));
        }
        if let Some(ms) = tool.settle_ms {
            advanced = advanced.settle_delay(Duration::from_millis(ms));
        }
        if let Some(bytes) = tool.max_result_bytes {
            advanced = advanced.max_result(usize::try_from(bytes).unwrap_or(usize::MAX));
        }
        advanced
    })
}

/// Executions of one tool.
#[derive(Clone)]
struct Body {
    name: String,
    checks: bool,
    /// For a keyed tool, how long its provider remembers a key; `Some(None)` is for ever.
    window: Option<Option<Duration>>,
    world: World,
}

impl Body {
    async fn run(&self, attempt: &Attempt) -> Result<String, ToolError> {
        let fate = self.world.ledger.next_fate(attempt.tag(), &attempt.downstream_key().hex64());
        self.sleep(fate.wait_ms).await;
        match fate.kind {
            FateKind::Ok => Ok(self.answer(self.effect(attempt).await?)),
            FateKind::Slow(ms) => {
                self.sleep(ms).await;
                Ok(self.answer(self.effect(attempt).await?))
            }
            FateKind::SlowAfter(ms) => {
                let answer = self.answer(self.effect(attempt).await?);
                self.sleep(ms).await;
                Ok(answer)
            }
            FateKind::FailBefore => Err(ToolError::retryable("the service was busy")),
            FateKind::FailFinal => Err(ToolError::permanent("the service declined")),
            FateKind::Unknown => {
                self.effect(attempt).await?;
                Err(ToolError::unknown("the connection was lost"))
            }
            FateKind::UnknownNoEffect => {
                self.reach(attempt).await?;
                Err(ToolError::unknown("the connection was lost"))
            }
            FateKind::Panic => {
                self.effect(attempt).await?;
                // Without the hook that prints panics: this one is no surprise.
                std::panic::resume_unwind(Box::new("the case wants it"))
            }
            FateKind::CrashBefore => self.die().await,
            FateKind::CrashAfter => {
                self.effect(attempt).await?;
                self.die().await
            }
            FateKind::Unserialisable => {
                self.effect(attempt).await?;
                Ok("this is no JSON".to_owned())
            }
            FateKind::Big(bytes) => {
                self.effect(attempt).await?;
                Ok(big(bytes))
            }
        }
    }

    async fn sleep(&self, ms: u64) {
        if ms > 0 {
            self.world.clock.sleep(Duration::from_millis(ms)).await;
        }
    }

    /// The point right before the effect.
    async fn reach(&self, attempt: &Attempt) -> Result<String, ToolError> {
        if self.checks {
            attempt.check().await?;
        }
        let key = attempt.downstream_key().hex64();
        self.world.ledger.reached(&self.name, &key);
        Ok(key)
    }

    async fn effect(&self, attempt: &Attempt) -> Result<u64, ToolError> {
        let key = self.reach(attempt).await?;
        Ok(match self.window {
            None => self.world.ledger.happen(&self.name),
            Some(window) => self.world.ledger.happen_keyed(&self.name, &key, self.world.clock.monotonic(), window),
        })
    }

    fn answer(&self, n: u64) -> String {
        json!({"n": n, "tool": self.name}).to_string()
    }

    /// The process ends here.
    async fn die(&self) -> Result<String, ToolError> {
        self.world.life.kill();
        std::future::pending().await
    }
}

/// A JSON text of so many bytes.
fn big(bytes: u64) -> String {
    let inner = usize::try_from(bytes).unwrap_or(usize::MAX).saturating_sub(2);
    format!("\"{}\"", "x".repeat(inner))
}
