//! After a crash: every chore is asked for once more, and what is answered compared with what the ledger knows.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::sync::Arc;

use toolonce::{ErrorKind, Reply, ReplyKind, Run, Seen};

use super::{Chore, Desk, IN_OLD_RUN, LATER, OF_ALL_RUNS, PARTS, fork_id, old_id, unit};
use crate::judge::allowed;
use crate::ledger::{Journal, Ledger, Trail};
use crate::points::{Point, Points};
use crate::summary::{Findings, Kind};
use crate::workload::Plan;

/// Chores of earlier turns that are looked for in a fork.
const LOOKED_FOR: usize = 6;
/// Answers that a person may have to give to one call.
const ROUNDS: usize = 4;

/// Which answers the call of a chore may get first, from what its trail tells; `at` is the point of the answer's own
/// commit at which the process died, if it was that.
fn first(kind: Chore, trail: &Trail, at: Option<Point>) -> &'static [ReplyKind] {
    use ReplyKind::{AwaitingApproval, Denied, Executed, InDoubt, Replayed};
    if trail.acknowledged {
        return &[Replayed];
    }
    let holds = trail.answered || at == Some(Point::AfterCommit);
    let is_open = !trail.answering || at == Some(Point::BeforeCommit);
    match kind {
        Chore::Happened if holds => &[Replayed],
        Chore::Happened | Chore::DidNotHappen if is_open => &[InDoubt],
        Chore::Happened => &[InDoubt, Replayed],
        Chore::Approve | Chore::Deny if is_open => &[AwaitingApproval],
        Chore::Deny if holds => &[Denied],
        Chore::Deny => &[AwaitingApproval, Denied],
        // The call that was made again may have left a doubt of its own.
        Chore::DidNotHappen | Chore::Approve if trail.returned => &[Replayed, InDoubt],
        Chore::Approve if trail.body => &[InDoubt],
        Chore::DidNotHappen | Chore::Approve if trail.again => &[Executed, InDoubt],
        Chore::DidNotHappen if holds => &[Executed],
        Chore::DidNotHappen => &[InDoubt, Executed],
        // Whoever asked first may still have been there, and have claimed it once it was approved.
        Chore::Approve if holds => &[Executed, InDoubt],
        Chore::Approve => &[AwaitingApproval, Executed, InDoubt],
        _ => allowed(true, trail, None),
    }
}

/// Checks the chores of `directory` that `wanted` names, and leaves none of them open. `died` is the chore and the point
/// of its own first commit at which the process died.
///
/// # Errors
/// Only what has nothing to do with the store: its own failures are findings.
pub async fn judge(
    directory: &Path,
    plan: Plan,
    died: Option<(u64, Point)>,
    wanted: impl Fn(u64) -> bool,
) -> anyhow::Result<Findings> {
    let journal = Journal::read(directory)?;
    let ledger = Arc::new(Ledger::open(directory)?);
    let mut findings = Findings::default();
    let chores = journal.calls.keys().map(|unit| unit / PARTS).collect::<BTreeSet<_>>();
    let Some(&newest) = chores.last() else { return Ok(findings) };
    let at = (newest, LATER + LATER / 4);
    let opened = Desk::open(directory, plan, ledger, Points::none(), at, Seen::Nothing).await;
    let desk = match opened {
        Ok(desk) => desk,
        Err(error) => {
            findings.add(Kind::Unexplained, format!("the store doesn't open: {error:#}"));
            for (unit, _) in journal.calls.iter().filter(|(_, trail)| trail.acknowledged || trail.answered) {
                findings.acknowledged += 1;
                findings.add(Kind::Lost, format!("call {unit}: the store doesn't open"));
            }
            return Ok(findings);
        }
    };
    let listed = listed(&desk, &mut findings).await;
    let mut judge = Judge { directory, desk, journal: journal.calls, listed, findings };
    for chore in chores.into_iter().filter(|chore| wanted(*chore)) {
        let at = died.filter(|(dead, _)| *dead == chore).map(|(_, point)| point);
        judge.chore(chore, at).await?;
    }
    let Judge { desk, mut findings, .. } = judge;
    if desk.guard.incidents() != 0 {
        findings.add(Kind::Twice, format!("the guard counted {} incidents", desk.guard.incidents()));
    }
    if let Err(error) = desk.close().await {
        findings.add(Kind::Unexplained, format!("the store can't be closed: {error:#}"));
    }
    for (unit, trail) in Journal::read(directory)?.calls {
        let most = u64::from(Chore::of(plan, unit / PARTS) != Chore::Deny || unit % PARTS != 0);
        if trail.count() > most {
            findings.add(Kind::Twice, format!("call {unit} has {} effects, not {most}", trail.count()));
        }
    }
    Ok(findings)
}

/// The references of all that waits for a person.
async fn listed(desk: &Desk, findings: &mut Findings) -> HashSet<String> {
    let mut listed = HashSet::new();
    match desk.guard.inbox().await {
        Ok(calls) => listed.extend(calls.into_iter().map(|call| call.reference)),
        Err(error) => findings.add(Kind::Unexplained, format!("the inbox can't be read: {error}")),
    }
    match desk.guard.approvals().await {
        Ok(questions) => listed.extend(questions.into_iter().map(|question| question.reference)),
        Err(error) => findings.add(Kind::Unexplained, format!("the questions can't be read: {error}")),
    }
    listed
}

struct Judge<'a> {
    directory: &'a Path,
    desk: Desk,
    /// As it was when the process had died.
    journal: BTreeMap<u64, Trail>,
    listed: HashSet<String>,
    findings: Findings,
}

impl Judge<'_> {
    fn trail(&self, unit: u64) -> Trail {
        self.journal.get(&unit).cloned().unwrap_or_default()
    }

    fn lost_or(&mut self, was_acknowledged: bool, kind: Kind, text: String) {
        self.findings.add(if was_acknowledged { Kind::Lost } else { kind }, text);
    }

    async fn chore(&mut self, chore: u64, at: Option<Point>) -> anyhow::Result<()> {
        let run = self.desk.run.clone();
        match Chore::of(self.desk.plan, chore) {
            Chore::Step => self.step(&run, chore, at).await,
            Chore::Fork => {
                self.fork(chore).await;
                Ok(())
            }
            Chore::Collect => {
                self.old_run(chore).await?;
                self.call(&run, chore, 0, None).await?;
                // Whichever run asked first: it happened for all of them.
                self.call(&run, chore, OF_ALL_RUNS, None).await
            }
            _ => self.call(&run, chore, 0, at).await,
        }
    }

    async fn step(&mut self, run: &Run, chore: u64, at: Option<Point>) -> anyhow::Result<()> {
        let own = unit(chore, 0);
        let trail = self.trail(own);
        self.findings.acknowledged += u64::from(trail.acknowledged);
        let told = match self.desk.step(run, chore).await {
            Ok((value, _)) if value != self.desk.plan.result(own) => "has another value".to_owned(),
            Ok((_, true)) if trail.acknowledged || at == Some(Point::AfterCommit) => "was computed again".to_owned(),
            Ok((_, false)) if at == Some(Point::BeforeCommit) => "has a value that wasn't recorded".to_owned(),
            Ok(_) => {
                if !trail.acknowledged {
                    self.desk.ledger.acknowledge(own)?;
                }
                return Ok(());
            }
            Err(error) => format!("can't be had: {error}"),
        };
        self.lost_or(trail.acknowledged, Kind::Unexplained, format!("step {chore} {told}"));
        Ok(())
    }

    /// Asks for a call, and settles it as the ledger and the plan say.
    async fn call(&mut self, run: &Run, chore: u64, part: u64, at: Option<Point>) -> anyhow::Result<()> {
        let unit = unit(chore, part);
        let kind = if part == 0 { Chore::of(self.desk.plan, chore) } else { Chore::Call };
        let trail = self.trail(unit);
        let is_known = trail.acknowledged || trail.answered && part == 0;
        self.findings.acknowledged += u64::from(is_known);
        for round in 0..ROUNDS {
            let (answered, reply) = self.desk.ask(run, chore, part).await;
            let told =
                || format!("call {unit} ({}) was answered {}: {:.200}", kind.name(), reply.kind(), reply.message());
            let allowed = first(kind, &trail, at);
            // Whoever had no patience was told that it runs, whether it was executed or looked up.
            let is_explained = allowed.contains(&answered) || allowed.contains(&reply.kind());
            if round == 0 && !is_explained {
                self.lost_or(is_known, Kind::Unexplained, format!("{} after {trail:?} and {at:?}", told()));
                return Ok(());
            }
            match answered {
                ReplyKind::Denied if kind == Chore::Deny => return Ok(()),
                ReplyKind::Executed | ReplyKind::Replayed if self.desk.plan.is_result(unit, &reply) => {
                    if !trail.acknowledged {
                        self.desk.ledger.acknowledge(unit)?;
                    }
                    return Ok(());
                }
                ReplyKind::InDoubt | ReplyKind::AwaitingApproval => {
                    let reference = reply.reference().unwrap_or_default();
                    let was_open = trail.body && !trail.again || trail.asked && !trail.answering;
                    if round == 0 && was_open && !self.listed.contains(reference) {
                        self.findings.add(Kind::Unexplained, format!("{}: and wasn't listed", told()));
                    }
                    if let Err(error) = self.settle(kind, unit, &reply).await? {
                        self.findings.add(Kind::Unexplained, format!("{}: and can't be settled: {error}", told()));
                        return Ok(());
                    }
                }
                _ => {
                    self.lost_or(is_known, Kind::Unexplained, told());
                    return Ok(());
                }
            }
        }
        self.findings.add(Kind::Unexplained, format!("call {unit} ({}) is never settled", kind.name()));
        Ok(())
    }

    async fn settle(&self, kind: Chore, unit: u64, reply: &Reply) -> anyhow::Result<Result<(), toolonce::Error>> {
        let happened =
            || anyhow::Ok(Journal::read(self.directory)?.calls.get(&unit).is_some_and(|now| now.count() > 0));
        let answer = match reply.kind() {
            ReplyKind::AwaitingApproval => kind,
            _ if happened()? => Chore::Happened,
            _ => Chore::DidNotHappen,
        };
        Ok(self.desk.answer(answer, unit, reply.reference().unwrap_or_default()).await)
    }

    /// A fork is whole, or not there and can be made.
    async fn fork(&mut self, chore: u64) {
        let trail = self.trail(unit(chore, 0));
        self.findings.acknowledged += u64::from(trail.answered);
        let found = match Run::attach(&self.desk.guard, fork_id(chore)).await {
            Err(error) if error.kind() == ErrorKind::RunPurged && self.was_collected_after(chore) => return,
            Err(error) if error.kind() == ErrorKind::NoSuchRun && !trail.answered => self.desk.fork(chore).await,
            found => found,
        };
        let fork = match found {
            Ok(fork) => fork,
            Err(error) => {
                return self.lost_or(trail.answered, Kind::Unexplained, format!("fork {chore} isn't there: {error}"));
            }
        };
        // What was settled when the fork was made: everything before it.
        let settled = |n: &u64| {
            let trail = self.trail(unit(*n, 0));
            let is_call = !matches!(Chore::of(self.desk.plan, *n), Chore::Fork | Chore::Deny);
            is_call && trail.acknowledged || Chore::of(self.desk.plan, *n) == Chore::Deny && trail.answered
        };
        let mut earlier = (0..chore).filter(settled).collect::<Vec<_>>();
        let mut random = self.desk.plan.random(chore, 5);
        random.shuffle(&mut earlier);
        for n in earlier.into_iter().take(LOOKED_FOR) {
            if let Some(wrong) = self.missing_in(&fork, n).await {
                self.findings.add(Kind::Lost, format!("fork {chore} isn't whole: {wrong}"));
            }
        }
    }

    /// What is wrong with a chore of an earlier turn in a fork.
    async fn missing_in(&self, fork: &Run, chore: u64) -> Option<String> {
        let (plan, own) = (self.desk.plan, unit(chore, 0));
        let kind = Chore::of(plan, chore);
        if kind == Chore::Step {
            return match self.desk.step(fork, chore).await {
                Ok((value, false)) if value == plan.result(own) => None,
                Ok((_, is_computed)) => Some(format!("step {chore}, computed {is_computed}")),
                Err(error) => Some(format!("step {chore}: {error}")),
            };
        }
        let reply = self.desk.call(fork, chore, 0).await;
        let is_right = match kind {
            Chore::Deny => reply.kind() == ReplyKind::Denied,
            _ => reply.kind() == ReplyKind::Replayed && plan.is_result(own, &reply),
        };
        (!is_right).then(|| format!("call {own} ({}) is {}: {:.200}", kind.name(), reply.kind(), reply.message()))
    }

    /// Whether a removal began that this chore's run was old enough for.
    fn was_collected_after(&self, chore: u64) -> bool {
        let later = self.journal.range(unit(chore, 0)..);
        later.into_iter().any(|(unit, trail)| {
            let of = unit / PARTS;
            unit % PARTS == 0 && trail.answering && Chore::of(self.desk.plan, of) == Chore::Collect
        })
    }

    /// A run that was to be removed is whole, or gone for good.
    async fn old_run(&mut self, chore: u64) -> anyhow::Result<()> {
        let is_gone = self.trail(unit(chore, 0)).answered;
        self.findings.acknowledged += u64::from(is_gone);
        match Run::attach(&self.desk.guard, old_id(chore)).await {
            Ok(_) if is_gone => self.findings.add(Kind::Lost, format!("old run {chore} was removed and is there")),
            Ok(run) => {
                for part in IN_OLD_RUN {
                    self.call(&run, chore, part, None).await?;
                }
            }
            Err(error) if error.kind() == ErrorKind::RunPurged && self.was_collected_after(chore) => {
                // Its keys are free, so nobody may work in a run of that id any more.
                let again = Run::start(&self.desk.guard, old_id(chore)).await;
                if !again.as_ref().is_err_and(|error| error.kind() == ErrorKind::RunPurged) {
                    self.findings.add(Kind::Unexplained, format!("old run {chore} is gone and begins anew: {again:?}"));
                }
            }
            Err(error) => {
                let nothing_began = !self.journal.contains_key(&unit(chore, IN_OLD_RUN[0]));
                if error.kind() != ErrorKind::NoSuchRun || !nothing_began {
                    self.findings.add(Kind::Lost, format!("old run {chore}: {error}"));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_was_taken_holds() {
        use ReplyKind::{AwaitingApproval, Denied, Executed, InDoubt, Replayed};
        let asked = Trail { asked: true, body: true, ..Trail::default() };
        let answering = Trail { answering: true, ..asked.clone() };
        let answered = Trail { answered: true, ..answering.clone() };
        assert_eq!(first(Chore::Happened, &asked, None), [InDoubt]);
        assert_eq!(first(Chore::Happened, &answering, None), [InDoubt, Replayed]);
        assert_eq!(first(Chore::Happened, &answering, Some(Point::AfterCommit)), [Replayed]);
        assert_eq!(first(Chore::Happened, &answering, Some(Point::BeforeCommit)), [InDoubt]);
        assert_eq!(first(Chore::Happened, &answered, None), [Replayed]);
        assert_eq!(first(Chore::Deny, &answered, None), [Denied]);
        assert_eq!(first(Chore::Deny, &Trail::default(), None), [AwaitingApproval]);
        assert_eq!(first(Chore::Approve, &answered, None), [InDoubt]);
        let not_entered = Trail { body: false, ..answered.clone() };
        assert_eq!(first(Chore::Approve, &not_entered, None), [Executed, InDoubt]);
        assert_eq!(first(Chore::DidNotHappen, &answered, None), [Executed]);
        assert_eq!(first(Chore::DidNotHappen, &answering, None), [InDoubt, Executed]);
    }
}
