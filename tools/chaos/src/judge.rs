//! After a crash: opens the store, goes on with the run, makes every call once more, and compares the answers with what
//! the ledger knows.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use toolonce::{Reply, ReplyKind, Resolution, Seen};

use crate::ledger::{Journal, Ledger, Trail};
use crate::points::{Point, Points};
use crate::summary::{Findings, Kind};
use crate::workload::{Plan, Workload};

/// Which answers a call may get, from what its journal tells.
///
/// A mark is written before what it is about, so a missing one proves that this part wasn't reached, and one that is
/// there that everything before it was: a body is entered only once the claim is durable.
pub(crate) fn allowed(is_write: bool, trail: &Trail, at: Option<Point>) -> &'static [ReplyKind] {
    use ReplyKind::{Executed, InDoubt, Replayed};
    match at {
        _ if trail.acknowledged => &[Replayed],
        // What a keyed tool sent may be sent again under the same key, and is.
        Some(Point::RecordBeforeReply) => &[Replayed],
        Some(Point::BeforeClaim) => &[Executed],
        Some(_) if is_write => &[InDoubt],
        Some(_) => &[Executed],
        None if trail.returned && is_write => &[InDoubt, Replayed],
        None if trail.returned => &[Executed, Replayed],
        None if trail.body && is_write => &[InDoubt],
        None if is_write => &[Executed, InDoubt],
        None => &[Executed],
    }
}

/// Checks the calls of `directory` that `wanted` names; leaves none of them in doubt. If the process died at a named
/// point, `at`, only the newest call was under way.
///
/// # Errors
/// Only what has nothing to do with the store: its own failures are findings.
pub async fn judge(
    directory: &Path,
    plan: Plan,
    at: Option<Point>,
    wanted: impl Fn(u64, &Trail) -> bool,
) -> anyhow::Result<Findings> {
    let journal = Journal::read(directory)?;
    let ledger = Arc::new(Ledger::open(directory)?);
    let mut findings = Findings::default();
    let opened = Workload::open(directory, plan, Arc::clone(&ledger), Points::none(), Seen::Nothing).await;
    let workload = match opened {
        Ok(workload) => workload,
        Err(error) => {
            findings.add(Kind::Unexplained, format!("the store doesn't open: {error:#}"));
            for (call, _) in journal.calls.iter().filter(|(_, trail)| trail.acknowledged) {
                findings.acknowledged += 1;
                findings.add(Kind::Lost, format!("call {call}: the store doesn't open"));
            }
            return Ok(findings);
        }
    };
    let judge = Judge { plan, ledger, workload };
    let doubts = judge.workload.guard.inbox().await;
    let doubts = doubts.map(|calls| calls.into_iter().map(|call| call.reference).collect::<HashSet<_>>());
    let doubts = match doubts {
        Ok(doubts) => doubts,
        Err(error) => {
            findings.add(Kind::Unexplained, format!("the inbox can't be read: {error}"));
            HashSet::new()
        }
    };
    let newest = journal.calls.keys().next_back().copied();
    for (&call, trail) in journal.calls.iter().filter(|(call, trail)| wanted(**call, trail)) {
        let at = at.filter(|_| Some(call) == newest);
        judge.check(call, trail, at, &doubts, &mut findings).await?;
    }
    let incidents = judge.workload.guard.incidents();
    if incidents != 0 {
        findings.add(Kind::Twice, format!("the guard counted {incidents} incidents"));
    }
    if let Err(error) = judge.workload.close().await {
        findings.add(Kind::Unexplained, format!("the store can't be closed: {error:#}"));
    }
    judge_effects(directory, plan, &mut findings)?;
    Ok(findings)
}

/// No call may have had a second effect, whatever was answered.
fn judge_effects(directory: &Path, plan: Plan, findings: &mut Findings) -> anyhow::Result<()> {
    for (call, trail) in Journal::read(directory)?.calls {
        // A keyed effect that is sent again under the same key is dropped downstream.
        let effects = if plan.is_write(call) { trail.count() } else { trail.effects.len() as u64 };
        if effects > 1 {
            findings.add(Kind::Twice, format!("call {call} has {effects} effects"));
        }
    }
    Ok(())
}

struct Judge {
    plan: Plan,
    ledger: Arc<Ledger>,
    workload: Workload,
}

impl Judge {
    async fn check(
        &self,
        call: u64,
        trail: &Trail,
        at: Option<Point>,
        doubts: &HashSet<String>,
        findings: &mut Findings,
    ) -> anyhow::Result<()> {
        let reply = self.workload.call(call).await;
        let is_whole = self.plan.is_result(call, &reply);
        let told = format!("call {call} was answered {}: {:.200}", reply.kind(), reply.message());
        if trail.acknowledged {
            findings.acknowledged += 1;
            if reply.kind() != ReplyKind::Replayed || !is_whole {
                findings.add(Kind::Lost, told);
                return Ok(());
            }
        } else if !allowed(self.plan.is_write(call), trail, at).contains(&reply.kind()) {
            findings.add(Kind::Unexplained, format!("{told} after {trail:?} and {at:?}"));
            return Ok(());
        }
        let was_listed = reply.reference().is_some_and(|reference| doubts.contains(reference));
        if reply.kind() == ReplyKind::InDoubt {
            if !was_listed {
                findings.add(Kind::Unexplained, format!("call {call} is in doubt and not in the inbox"));
            }
            return self.settle(call, trail, &reply, findings).await;
        }
        if was_listed && self.plan.is_write(call) {
            findings.add(Kind::Unexplained, format!("call {call} was in the inbox and was answered {}", reply.kind()));
        }
        if !is_whole {
            findings.add(Kind::Unexplained, format!("{told}: with another outcome"));
            return Ok(());
        }
        self.acknowledge(call, trail)
    }

    /// Does what the person on call does: looks into the ledger and says what it says.
    async fn settle(&self, call: u64, trail: &Trail, reply: &Reply, findings: &mut Findings) -> anyhow::Result<()> {
        let happened = trail.count() > 0;
        let resolution = match happened {
            true => Resolution::Happened(self.plan.result(call)),
            false => Resolution::DidNotHappenForSure,
        };
        let reference = reply.reference().unwrap_or_default();
        if let Err(error) = self.workload.guard.resolve(reference, resolution, "it is in the ledger or it isn't").await
        {
            findings.add(Kind::Unexplained, format!("call {call} in doubt can't be settled: {error}"));
            return Ok(());
        }
        let reply = self.workload.call(call).await;
        let expected = if happened { ReplyKind::Replayed } else { ReplyKind::Executed };
        let is_whole = self.plan.is_result(call, &reply);
        if reply.kind() != expected || !is_whole {
            let told = format!("call {call}, settled, was answered {}: {:.200}", reply.kind(), reply.message());
            findings.add(Kind::Unexplained, told);
            return Ok(());
        }
        self.acknowledge(call, trail)
    }

    fn acknowledge(&self, call: u64, trail: &Trail) -> anyhow::Result<()> {
        if !trail.acknowledged {
            self.ledger.acknowledge(call)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_decides_what_may_be_answered() {
        use ReplyKind::{Executed, InDoubt, Replayed};
        let entered = Trail { body: true, ..Trail::default() };
        let returned = Trail { returned: true, ..entered.clone() };
        let acknowledged = Trail { acknowledged: true, ..returned.clone() };
        assert_eq!(allowed(true, &Trail::default(), None), [Executed, InDoubt]);
        assert_eq!(allowed(true, &entered, None), [InDoubt]);
        assert_eq!(allowed(true, &returned, None), [InDoubt, Replayed]);
        assert_eq!(allowed(true, &returned, Some(Point::BeforeRecord)), [InDoubt]);
        assert_eq!(allowed(true, &returned, Some(Point::RecordBeforeReply)), [Replayed]);
        assert_eq!(allowed(true, &acknowledged, Some(Point::BeforeClaim)), [Replayed]);
        assert_eq!(allowed(true, &Trail::default(), Some(Point::BeforeClaim)), [Executed]);
        assert_eq!(allowed(false, &entered, None), [Executed]);
    }
}
