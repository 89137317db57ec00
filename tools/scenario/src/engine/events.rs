//! The steps that aren't calls: crashes, faults, a human's answers, steps of a run.

use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use toolonce::store::StoreErrorKind;
use toolonce::testing::{FaultKind, FaultOn};
use toolonce::{ErrorKind, Guard, Reply, Resolution, Seen};

use super::case::{Case, Got, as_expected, lock, run_name};
use super::process::Process;
use crate::file;

/// A call that a human answers for.
struct Sought {
    guard: Guard,
    tool: String,
    run: String,
    /// As its reply has it; none if it has no reply.
    reference: Option<String>,
}

impl Case<'_> {
    /// Kills the process and starts the next one on what the store kept.
    pub(super) async fn restart(&mut self, restart: &file::Restart) -> anyhow::Result<()> {
        self.first.life.kill();
        // The tasks go away when they are next due.
        self.settle().await;
        self.incidents += self.first.guard.incidents();
        let runs: Vec<_> = self.first.runs().cloned().collect();
        self.ground.crash().await?;
        self.counted.replace(self.ground.store());
        let started = Process::start(&self.common).await.and_then(|made| made.map_err(anyhow::Error::msg));
        match started {
            Ok(process) => self.first = process,
            Err(error) => return as_expected(Err(error), restart.expect),
        }
        let answered = self.answered();
        for run in runs {
            let seen = match restart.seen {
                Some(file::Seen::Through(turn)) => Seen::Through(turn),
                Some(file::Seen::Nothing) => Seen::Nothing,
                None => {
                    let copied = self.forks.get(&run).and_then(|before| before.checked_sub(1));
                    answered.get(&run).copied().max(copied).map_or(Seen::Nothing, Seen::Through)
                }
            };
            self.first.resume(&run, seen).await;
        }
        as_expected(Ok(()), restart.expect)
    }

    pub(super) async fn open_second(&mut self) -> anyhow::Result<()> {
        ensure!(self.second.is_none(), "there is a second process already");
        self.second = Some(Process::start(&self.common).await?.map_err(anyhow::Error::msg)?);
        Ok(())
    }

    pub(super) async fn pause(&mut self, pause: &file::Pause) -> anyhow::Result<()> {
        self.settle().await;
        let door = Arc::clone(&self.process(pause.guard)?.door);
        match pause.at {
            Some(file::PauseAt::BeforeBody) => door.shut_after_claim(),
            None => door.shut(),
        }
        Ok(())
    }

    /// Programs begin their runs before the store fails them: those that the steps from `at` on need.
    pub(super) async fn begin_runs(&mut self, at: usize) {
        for step in &self.file.steps[at..] {
            let calls: Vec<(&file::Call, Option<&str>)> = match step {
                file::Step::Call(call) => vec![(call, call.run.as_deref())],
                file::Step::Answer(answer) => answer.calls.iter().map(|call| (call, answer.run.as_deref())).collect(),
                _ => continue,
            };
            for (call, run) in calls {
                if let Ok(process) = self.process(call.guard) {
                    // A run that can't begin fails its calls.
                    let _ = process.run(&run_name(call.namespace.as_deref(), run)).await;
                }
            }
        }
    }

    /// Ends the process and starts it on another store in the place of its own, which must be refused.
    pub(super) async fn swap_store(&mut self, for_backup: bool) -> anyhow::Result<()> {
        self.first.life.kill();
        self.settle().await;
        match self.ground.swap(for_backup).await? {
            Err(error) if error.kind() == StoreErrorKind::NotAsWitnessed => Ok(()),
            Err(error) => Err(error).context("opening: expected to be refused as not witnessed, came another error"),
            Ok(()) => bail!("opening: expected to be refused, came a store"),
        }
    }

    pub(super) fn fault(&self, fault: &file::StoreFault) -> anyhow::Result<()> {
        let on = match fault.on {
            file::FaultOn::Claim => FaultOn::Claim,
            file::FaultOn::Complete => FaultOn::Complete,
            file::FaultOn::Read => FaultOn::Read,
            file::FaultOn::All => FaultOn::All,
        };
        let kind = match fault.kind {
            file::FaultKind::Unavailable => FaultKind::Unavailable,
            file::FaultKind::Full => FaultKind::Full,
            file::FaultKind::SyncError => FaultKind::SyncError { applied: self.syncs_applied },
            file::FaultKind::Corrupt => FaultKind::Corrupt,
        };
        let times = match fault.times {
            file::Times::Count(times) => Some(times),
            file::Times::UntilCleared => None,
        };
        self.faults.fault(on, kind, times);
        Ok(())
    }

    /// The call that a human answers for.
    fn sought(&mut self, name: &str) -> anyhow::Result<Sought> {
        let number = self.number(name)?;
        let delivery = &self.calls[number];
        let (tool, guard) = (delivery.call.tool.clone(), delivery.call.guard);
        let (namespace, run) = delivery.run.clone();
        let guard = self.process(guard)?.guard_of(&namespace)?;
        let reference = self.reply(number, |reply| reply.reference().map(str::to_owned)).flatten();
        Ok(Sought { guard, tool, run, reference })
    }

    /// A human says whether the call happened.
    pub(super) async fn resolve(&mut self, resolve: &file::Resolve) -> anyhow::Result<()> {
        let Sought { guard, tool, run, reference } = self.sought(&resolve.call)?;
        let reference = match reference {
            Some(reference) => reference,
            None => {
                let inbox = guard.inbox().await?;
                let found = inbox.into_iter().find(|call| call.tool == tool && call.run == run);
                found.with_context(|| format!("{} is not in the inbox", resolve.call))?.reference
            }
        };
        let resolution = if resolve.happened {
            let so_far = self.common.ledger.tally(&tool, |tally| tally.effects);
            Resolution::Happened(resolve.result.clone().unwrap_or_else(|| json!({"n": so_far, "tool": tool})))
        } else {
            Resolution::DidNotHappen
        };
        Ok(guard.resolve(&reference, resolution, "scenario").await?)
    }

    /// A human permits or refuses the call.
    pub(super) async fn approve(&mut self, name: &str, permits: bool) -> anyhow::Result<()> {
        let Sought { guard, tool, run, reference } = self.sought(name)?;
        let reference = match reference {
            Some(reference) => reference,
            None => {
                let asked = guard.approvals().await?.into_iter().find(|asked| asked.tool == tool && asked.run == run);
                asked.with_context(|| format!("{name} waits for nobody"))?.reference
            }
        };
        let answered = if permits { guard.approve(&reference).await } else { guard.deny(&reference, "").await };
        Ok(answered?)
    }

    /// The processes go on with another table of tools.
    pub(super) fn deploy(&mut self, deploy: &file::Deploy) -> anyhow::Result<()> {
        self.common.tools.clone_from(&deploy.tools);
        for process in std::iter::once(&mut self.first).chain(&mut self.second) {
            process.deploy(&self.common).map_err(anyhow::Error::msg)?;
        }
        Ok(())
    }

    pub(super) fn shown(&self, name: &str, say: impl Fn(&Reply)) -> anyhow::Result<()> {
        let number = self.number(name)?;
        self.reply(number, say).with_context(|| format!("{name} has no reply"))
    }

    fn reply<T>(&self, number: usize, read: impl FnOnce(&Reply) -> T) -> Option<T> {
        match lock(&self.answers).get(&number) {
            Some(Got::Reply(reply)) => Some(read(reply)),
            _ => None,
        }
    }

    /// A run that begins where another one stood.
    pub(super) async fn fork(&mut self, fork: &file::Fork) -> anyhow::Result<()> {
        let parent = self.first.run(&run_name(None, fork.run.as_deref())).await?;
        let name = run_name(None, Some(&fork.as_run));
        let run = parent.fork(&name.1, fork.before_turn).await?;
        self.forks.insert(name.clone(), fork.before_turn);
        self.first.adopt(name, run);
        Ok(())
    }

    /// A memoised step of a run.
    pub(super) async fn run_step(&mut self, step: &file::RunStep) -> anyhow::Result<()> {
        self.settle().await;
        let run = self.first.run(&run_name(None, step.run.as_deref())).await?;
        let input = step.input.clone().unwrap_or_default();
        let value = step.value.clone().unwrap_or_default();
        let came = run.step::<_, Value, _, _>(&step.name, &input, || async move { Ok(value) }).await;
        match (&step.expect, came) {
            (None, came) => Ok(came.map(drop)?),
            (Some(file::ValueExpect::Value(expected)), Ok(came)) if came == *expected => Ok(()),
            (Some(file::ValueExpect::Diverged(_)), Err(error)) if error.kind() == ErrorKind::Diverged => Ok(()),
            (Some(file::ValueExpect::Error(_)), Err(_)) => Ok(()),
            (Some(expected), came) => {
                let came = came.map_or_else(|error| format!("the error {error}"), |value| value.to_string());
                bail!("the step {}: expected {expected:?}, came {came}", step.name)
            }
        }
    }
}
