//! Mutants of permissions, asking again, reopening, look-alikes and reads.

use toolonce::protocol::apply::{Event, Over, Refused, apply};
use toolonce::protocol::decide::{Act, Asked, Before, Decision, Facts, Limits, before, decide};
use toolonce::protocol::history::History;
use toolonce::protocol::look_alike::{Alike, stands};
use toolonce::protocol::record::{Approval, ApprovalState, Base, Owners, Record, Strictness, View, view};
use toolonce::{Millis, Policy, Repeat};

use crate::explore::reads::Moment;
use crate::explore::table::{Real, Table};

/// Decides on a base that was changed before.
fn after_change(
    facts: &Facts<'_>,
    (asked, policy, limits): (&Asked, &Policy, Limits),
    change: impl FnOnce(&mut Base),
) -> Decision {
    let mut base = facts.base.clone();
    change(&mut base);
    decide(&Facts { base: &base, ..*facts }, asked, policy, limits)
}

/// Nobody is asked.
pub(super) fn not_asked(facts: &Facts<'_>, asked: &Asked, policy: &Policy, limits: Limits) -> Decision {
    let mut decision = decide(facts, asked, policy, limits);
    if matches!(decision.act, Act::Await { .. }) {
        let free = Policy::write().repeat(Repeat::Each);
        decision = decide(&Facts { look_alike: None, ..*facts }, asked, &free, limits);
    }
    decision
}

/// Whoever asks goes by another one's permission.
pub(super) fn permission_of_another(facts: &Facts<'_>, asked: &Asked, policy: &Policy, limits: Limits) -> Decision {
    let any = facts.base.approvals.iter().any(|approval| approval.state == ApprovalState::Approved);
    let decision = decide(facts, asked, policy, limits);
    if any && matches!(decision.act, Act::Await { .. }) {
        return not_asked(facts, asked, policy, limits);
    }
    decision
}

pub(super) fn permission_kept(base: &Base, n: usize, event: &Event) -> Result<Base, Refused> {
    keeping(ApprovalState::Approved, base, n, event)
}

pub(super) fn question_kept(base: &Base, n: usize, event: &Event) -> Result<Base, Refused> {
    keeping(ApprovalState::Pending, base, n, event)
}

/// Claims don't take away what stands at `state`.
fn keeping(state: ApprovalState, base: &Base, n: usize, event: &Event) -> Result<Base, Refused> {
    let mut next = apply(base, n, event)?;
    if matches!(event, Event::Claim(_)) {
        let kept = base.approvals.iter().filter(|approval| approval.state == state);
        next.approvals.retain(|approval| approval.state != state);
        next.approvals.extend(kept.cloned());
    }
    Ok(next)
}

pub(super) fn approval_lost(base: &Base, n: usize, event: &Event) -> Result<Base, Refused> {
    match event {
        Event::Approve(asker) => apply(base, n, &Event::Expire(asker.clone())),
        _ => apply(base, n, event),
    }
}

pub(super) fn denial_forgotten(facts: &Facts<'_>, asked: &Asked, policy: &Policy, limits: Limits) -> Decision {
    after_change(facts, (asked, policy, limits), |base| {
        base.approvals.retain(|approval| !matches!(approval.state, ApprovalState::Denied { .. }));
    })
}

/// A permission is for one attempt, whatever came of it.
pub(super) fn permission_for_one_attempt(
    facts: &Facts<'_>,
    asked: &Asked,
    policy: &Policy,
    limits: Limits,
) -> Decision {
    after_change(facts, (asked, policy, limits), |base| {
        base.occurrences.iter_mut().for_each(|record| record.approved = None);
    })
}

/// What is open is treated as what the tool is declared to do now.
pub(super) fn present_effect_only(facts: &Facts<'_>, asked: &Asked, policy: &Policy, limits: Limits) -> Decision {
    after_change(facts, (asked, policy, limits), |base| {
        base.occurrences.iter_mut().for_each(|record| record.strictness = Strictness::ReadOnly);
    })
}

pub(super) fn reopened_unseen(facts: &Facts<'_>, asked: &Asked, policy: &Policy, limits: Limits) -> Decision {
    decide(&Facts { reopened: 0, ..*facts }, asked, policy, limits)
}

/// A place that was told of a failure for good gets what the record is by now.
pub(super) fn failure_not_kept(facts: &Facts<'_>, asked: &Asked, policy: &Policy, limits: Limits) -> Decision {
    let mut decision = decide(facts, asked, policy, limits);
    if matches!(decision.act, Act::GiveFailure(_)) {
        decision.act = Act::Attempt { over: Over::Nothing, kept: false, not_before: 0, permitted: false };
    }
    decision
}

/// A read gives what was read before.
pub(super) fn reads_replay(facts: &Facts<'_>, asked: &Asked, _: &Policy, limits: Limits) -> Decision {
    decide(facts, asked, &Policy::write(), limits)
}

/// A redelivered read runs again.
pub(super) fn redelivered_read_runs(facts: &Facts<'_>, asked: &Asked, policy: &Policy, limits: Limits) -> Decision {
    decide(&Facts { base: &Base::default(), ..*facts }, asked, policy, limits)
}

type BeforeFn = fn(&Facts<'_>, &Asked, &Policy, Limits) -> Before;

/// The real rules but for `before`.
pub(super) struct Again(pub(super) BeforeFn);

impl Table for Again {
    fn before(&self, facts: &Facts<'_>, asked: &Asked, policy: &Policy, limits: Limits) -> Before {
        (self.0)(facts, asked, policy, limits)
    }
}

fn settled_if(facts: &Facts<'_>, call: (&Asked, &Policy, Limits), also: impl Fn(View) -> bool) -> Before {
    let record = facts.base.occurrences.last();
    match record.is_some_and(|record| also(view(record, facts.owners, facts.now))) {
        true => Before::Settled,
        false => before(facts, call.0, call.1, call.2),
    }
}

pub(super) fn more_while_in_doubt(facts: &Facts<'_>, asked: &Asked, policy: &Policy, limits: Limits) -> Before {
    settled_if(facts, (asked, policy, limits), |view| view == View::InDoubt)
}

pub(super) fn more_while_running(facts: &Facts<'_>, asked: &Asked, policy: &Policy, limits: Limits) -> Before {
    settled_if(facts, (asked, policy, limits), |view| view == View::Running)
}

pub(super) fn more_while_undelivered(facts: &Facts<'_>, asked: &Asked, policy: &Policy, limits: Limits) -> Before {
    settled_if(facts, (asked, policy, limits), |view| view == View::Done)
}

pub(super) fn more_after_a_gap(facts: &Facts<'_>, asked: &Asked, policy: &Policy, limits: Limits) -> Before {
    match before(facts, asked, policy, limits) {
        Before::Missing => Before::Settled,
        other => other,
    }
}

pub(super) fn never_more(facts: &Facts<'_>, asked: &Asked, policy: &Policy, limits: Limits) -> Before {
    match before(facts, asked, policy, limits) {
        Before::Settled => Before::Open,
        other => other,
    }
}

/// How look-alikes stand to each other.
pub(super) struct Alikes(pub(super) fn(Alike, View) -> Alike);

impl Table for Alikes {
    fn stands(&self, other: &Record, asked: &Asked, history: &History, owners: &dyn Owners, now: Millis) -> Alike {
        (self.0)(stands(other, asked, history, owners, now), view(other, owners, now))
    }
}

pub(super) fn finished_when_done(stands: Alike, view: View) -> Alike {
    if view == View::Done { Alike::Finished } else { stands }
}

pub(super) fn finished_when_not_running(stands: Alike, view: View) -> Alike {
    if view == View::InDoubt { Alike::Finished } else { stands }
}

pub(super) fn siblings_compared(stands: Alike, _: View) -> Alike {
    if stands == Alike::Sibling { Alike::Open } else { stands }
}

/// What the guard owes these rules, with one obligation neglected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Neglects {
    /// The claim doesn't check the call before.
    Before,
    /// The claim doesn't check the row of its look-alikes.
    Row,
    /// A question may be answered after a day.
    Expiry,
    /// Putting a question makes the occurrence that it is about.
    QuestionsAddNothing,
    /// Completions have no place in their run's order.
    Order,
    /// Those that a human tells have none.
    OrderOfAWord,
    /// A read joins one of an earlier turn.
    TurnOfReads,
    /// A read joins one from before a write.
    WritesBeforeReads,
}

impl Table for Neglects {
    fn checks_before(&self) -> bool {
        *self != Self::Before
    }

    fn checks_row(&self) -> bool {
        *self != Self::Row
    }

    fn may_answer(&self, question: &Approval, now: Millis) -> bool {
        *self == Self::Expiry || Real.may_answer(question, now)
    }

    fn ask(&self, base: &Base, question: Approval) -> Base {
        let mut next = Real.ask(base, question);
        if *self == Self::QuestionsAddNothing {
            next.occurrences.push(Record::default());
        }
        next
    }

    fn order(&self, completions: u64) -> u64 {
        if *self == Self::Order { 0 } else { completions }
    }

    fn order_of_a_word(&self, completions: u64) -> u64 {
        if *self == Self::OrderOfAWord { 0 } else { completions }
    }

    fn may_join_read(&self, begun: Moment, now: Moment) -> bool {
        (*self == Self::TurnOfReads || begun.turn == now.turn)
            && (*self == Self::WritesBeforeReads || begun.writes == now.writes)
    }
}
