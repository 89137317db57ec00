//! A chore, done for the first time.

use std::time::Duration;

use anyhow::ensure;
use toolonce::{Clock as _, ErrorKind, GcOptions, Reply, ReplyKind, Resolution, Run};

use super::{Chore, Desk, IN_OLD_RUN, LATER, OF_ALL_RUNS, fork_id, old_id, turn, unit};
use crate::ledger::Mark;
use crate::points::Commits;
use crate::workload::PATIENCE;

impl Desk {
    /// Does a chore that nobody did before; if it is armed, the commits of what it is about are points.
    ///
    /// # Errors
    /// If it goes otherwise than a new one can, or the ledger can't be written.
    pub(super) async fn work(&self, chore: u64, is_armed: bool) -> anyhow::Result<()> {
        let kind = Chore::of(self.plan, chore);
        let own = unit(chore, 0);
        let arm = || {
            if is_armed {
                self.points.arm(kind.commits());
            }
        };
        self.clock.set(chore, 0);
        self.ledger.mark(own, Mark::Begun)?;
        match kind {
            Chore::Step => {
                self.ledger.mark(own, Mark::Answering)?;
                arm();
                let (value, is_computed) = self.step(&self.run, chore).await?;
                self.points.arm(Commits::None);
                ensure!(is_computed && value == self.plan.result(own), "a new step has another value");
                self.ledger.acknowledge(own)?;
            }
            Chore::Call => self.call_new(&self.run, chore, 0).await?,
            Chore::Happened | Chore::DidNotHappen | Chore::Approve | Chore::Deny => {
                let asks = if kind.tool() == "ask" { ReplyKind::AwaitingApproval } else { ReplyKind::InDoubt };
                let (_, reply) = self.ask(&self.run, chore, 0).await;
                expect(&reply, asks)?;
                self.ledger.mark(own, Mark::Asked)?;
                self.ledger.mark(own, Mark::Answering)?;
                arm();
                self.answer(kind, own, reply.reference().unwrap_or_default()).await?;
                self.points.arm(Commits::None);
                self.ledger.answered(own)?;
                self.ledger.mark(own, Mark::Again)?;
                let reply = self.call(&self.run, chore, 0).await;
                // Who asked first may still be there, and go on.
                let goes_on = matches!(reply.kind(), ReplyKind::Joined | ReplyKind::Replayed);
                if kind != Chore::Approve || !goes_on {
                    expect(&reply, after(kind))?;
                }
                if kind != Chore::Deny {
                    ensure!(self.plan.is_result(own, &reply), "after the answer there is another outcome");
                    self.ledger.acknowledge(own)?;
                }
            }
            Chore::Fork => {
                self.ledger.mark(own, Mark::Answering)?;
                arm();
                self.fork(chore).await?;
                self.points.arm(Commits::None);
                self.ledger.answered(own)?;
            }
            Chore::Collect => self.collect(chore, arm).await?,
        }
        Ok(())
    }

    /// Lets a run grow old, keeps the main run young, and removes what is old.
    async fn collect(&self, chore: u64, arm: impl Fn()) -> anyhow::Result<()> {
        let old = Run::start(&self.guard, old_id(chore)).await?;
        for part in IN_OLD_RUN.into_iter().chain([OF_ALL_RUNS]) {
            self.ledger.mark(unit(chore, part), Mark::Begun)?;
            self.call_new(&old, chore, part).await?;
        }
        self.clock.set(chore, LATER);
        self.call_new(&self.run, chore, 0).await?;
        let known = self.call(&self.run, chore, OF_ALL_RUNS).await;
        expect(&known, ReplyKind::Replayed)?;
        self.ledger.mark(unit(chore, 0), Mark::Answering)?;
        arm();
        let report = self.guard.gc(GcOptions::new()).await?;
        self.points.arm(Commits::None);
        ensure!(report.runs > 0, "nothing was removed: {report:?}");
        let gone = Run::attach(&self.guard, old_id(chore)).await;
        ensure!(gone.is_err_and(|error| error.kind() == ErrorKind::RunPurged), "the old run wasn't removed");
        Ok(self.ledger.answered(unit(chore, 0))?)
    }

    async fn call_new(&self, run: &Run, chore: u64, part: u64) -> anyhow::Result<()> {
        let reply = self.call(run, chore, part).await;
        expect(&reply, ReplyKind::Executed)?;
        Ok(self.ledger.acknowledge(unit(chore, part))?)
    }

    /// Forks the run at a chore's turn. Who asked for a call that was settled since may still be there, a moment.
    pub(super) async fn fork(&self, chore: u64) -> Result<Run, toolonce::Error> {
        let until = self.clock.monotonic() + PATIENCE;
        loop {
            match self.run.fork(fork_id(chore), turn(chore)).await {
                Err(error) if error.kind() == ErrorKind::Unresolved && self.clock.monotonic() < until => {
                    self.clock.sleep(Duration::from_millis(1)).await;
                }
                forked => return forked,
            }
        }
    }

    /// Does what the person on call does.
    pub(super) async fn answer(&self, kind: Chore, unit: u64, reference: &str) -> Result<(), toolonce::Error> {
        let why = "asked the system behind it";
        match kind {
            Chore::Approve => self.guard.approve(reference).await,
            Chore::Deny => self.guard.deny(reference, why).await,
            Chore::DidNotHappen => self.guard.resolve(reference, Resolution::DidNotHappenForSure, why).await,
            _ => self.guard.resolve(reference, Resolution::Happened(self.plan.result(unit)), why).await,
        }
    }
}

/// What a call is answered once a person has answered.
pub(super) fn after(kind: Chore) -> ReplyKind {
    match kind {
        Chore::Happened => ReplyKind::Replayed,
        Chore::Deny => ReplyKind::Denied,
        _ => ReplyKind::Executed,
    }
}

fn expect(reply: &Reply, kind: ReplyKind) -> anyhow::Result<()> {
    ensure!(reply.kind() == kind, "answered {}, not {kind}: {}", reply.kind(), reply.message());
    Ok(())
}
