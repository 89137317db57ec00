//! The rules under test as one trait, so that a mutant can replace a single clause; and the invariants of one event.

use toolonce::protocol::apply::{Answer, End, Event, Refused, apply};
use toolonce::protocol::approval::{ask, is_expired};
use toolonce::protocol::decide::{Asked, Before, Decision, Facts, Limits, before, decide};
use toolonce::protocol::history::History;
use toolonce::protocol::look_alike::{Alike, stands};
use toolonce::protocol::notes::{Note, note};
use toolonce::protocol::record::{Approval, Base, Fence, Owners, Record, View, view};
use toolonce::{Millis, Policy};

use super::reads::Moment;
use super::search::{Broken, Checked, ensure};

/// The names of the invariants, as failures tell them.
pub(super) mod invariant {
    pub(crate) const WRITE_ONCE: &str = "a write never has two executions that may have had an effect";
    pub(crate) const KEYED_ONCE: &str = "a keyed call never has two effects while its window holds";
    pub(crate) const OUTCOME_STAYS: &str = "a recorded outcome never changes";
    pub(crate) const SUCCESS_COUNTS: &str = "a success is never refused unless an outcome is recorded";
    pub(crate) const NO_CLAIM_AFTER_SUCCESS: &str = "nothing is claimed while a success is recorded";
    pub(crate) const DOUBT_STAYS: &str = "only its own end or an answer closes an open attempt";
    pub(crate) const DOUBT_BLOCKS: &str = "a claim over nothing finds nothing open";
    pub(crate) const ENDS_CLOSE: &str = "a definite end closes its attempt";
    pub(crate) const ANSWER_NAMES: &str = "a no speaks of the newest attempt";
    pub(crate) const FENCES_GROW: &str = "fences only grow";
    pub(crate) const SAME_BYTES: &str = "a key is never sent with other bytes while an attempt is open";
    pub(crate) const VIEW_FOLLOWS: &str = "the view follows from what is known";
    pub(crate) const WAY_OUT: &str = "every view has a way out given one truthful answer";
    pub(crate) const ONE_EFFECT_PER_INTENT: &str = "one intent never has two effects";
    pub(crate) const INTENT_RUNS: &str = "without faults effects = intents";
    pub(crate) const WISH_RUNS: &str = "a new wish is never answered with an old outcome";
    pub(crate) const MARKED: &str = "two intents never get one outcome unmarked";
    pub(crate) const ANSWERED: &str = "every slot is answered";
    pub(crate) const FROZEN: &str = "a slot's answer is redelivered as given";
    pub(crate) const BODY_ALONE: &str = "no re-run while the body lives in this process";
    pub(crate) const PERMITTED: &str = "what needs a permission runs with one of its run and arguments, each used once";
    pub(crate) const DENIAL_HOLDS: &str = "a denial holds for its run";
    pub(crate) const QUESTION_STANDS: &str = "only a question that waits is waited for or answered";
    pub(crate) const ADDS_NOTHING: &str = "a question adds no place and no occurrence";
    pub(crate) const APPROVED_RUNS: &str = "what was approved runs";
    pub(crate) const TRIED_AGAIN: &str = "what was permitted, or needed no permission, may be tried again";
    pub(crate) const AGAIN_SETTLED: &str = "asking for more runs only when the call before is known to be over";
    pub(crate) const AGAIN_NO_GAP: &str = "asking for more leaves no number out";
    pub(crate) const AGAIN_RUNS: &str = "asking for more runs when the call before is over";
    pub(crate) const UNDONE_ONCE: &str = "what is undone once is done once more";
    pub(crate) const UNDONE_RUNS: &str = "what was undone is done again when asked for";
    pub(crate) const ALIKE_APART: &str = "look-alikes of two messages are never both open without a permission";
    pub(crate) const ASKED_FOR_REASON: &str = "only a look-alike of another message that isn't finished is asked about";
    pub(crate) const READS_RUN: &str = "a read runs each time";
    pub(crate) const READS_FRESH: &str = "a read never gets what an earlier turn saw, or what was there before a write";
}
use invariant::*;

/// What a guard does when the record moved between its decision and its commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stale {
    /// Decide again: what a conditional commit enforces.
    DecideAgain,
    /// Write what was decided over what came since.
    Overwrite,
    /// Claim the next occurrence, whatever it is now.
    NextOccurrence,
}

/// The protocol's functions and the guard's obligations. The defaults are the real ones.
pub(super) trait Table {
    fn apply(&self, base: &Base, occurrence: usize, event: &Event) -> Result<Base, Refused> {
        apply(base, occurrence, event)
    }

    fn view(&self, record: &Record, owners: &dyn Owners, now: Millis) -> View {
        view(record, owners, now)
    }

    fn decide(&self, facts: &Facts<'_>, asked: &Asked, policy: &Policy, limits: Limits) -> Decision {
        decide(facts, asked, policy, limits)
    }

    fn note(&self, base: &mut Base, history: &History, noted: &Note) {
        note(base, history, noted);
    }

    /// The history as the rules see it.
    fn history(&self, history: &History) -> History {
        history.clone()
    }

    /// Whether a body may begin its send.
    fn may_send(&self, now: Millis, deadline: Millis) -> bool {
        now <= deadline
    }

    /// Whether a *no* of a look-up that was begun at `begun` counts.
    fn no_counts(&self, begun: Millis, from: Option<Millis>) -> bool {
        from.is_some_and(|from| begun >= from)
    }

    fn on_stale(&self) -> Stale {
        Stale::DecideAgain
    }

    fn before(&self, facts: &Facts<'_>, asked: &Asked, policy: &Policy, limits: Limits) -> Before {
        before(facts, asked, policy, limits)
    }

    /// Whether a claim that asks for more stands only on the call before as it was judged.
    fn checks_before(&self) -> bool {
        true
    }

    fn ask(&self, base: &Base, question: Approval) -> Base {
        ask(base, question).expect("few questions")
    }

    /// Whether a human may still answer a question that waits.
    fn may_answer(&self, question: &Approval, now: Millis) -> bool {
        !is_expired(question, now)
    }

    fn stands(&self, other: &Record, asked: &Asked, history: &History, owners: &dyn Owners, now: Millis) -> Alike {
        stands(other, asked, history, owners, now)
    }

    /// Whether a claim checks the row of its look-alikes.
    fn checks_row(&self) -> bool {
        true
    }

    /// The place that a completion gets in its run's order.
    fn order(&self, completions: u64) -> u64 {
        completions
    }

    /// The same for one that a human told.
    fn order_of_a_word(&self, completions: u64) -> u64 {
        completions
    }

    /// Whether a read gets the result of one that began then.
    fn may_join_read(&self, begun: Moment, now: Moment) -> bool {
        begun == now
    }

    /// Whether a place counts as delivered before its reply is taken.
    fn marks_at_completion(&self) -> bool {
        false
    }

    /// Whether the mark of a taken reply is visible to the next decision.
    fn marks_when_taken(&self) -> bool {
        true
    }

    /// Whether a decision knows of the bodies of its own process.
    fn knows_bodies(&self) -> bool {
        true
    }
}

/// The real table.
pub(super) struct Real;

impl Table for Real {}

/// Applies `event` and checks what must hold of any single event. `None`: it was refused.
pub(super) fn judge(table: &dyn Table, base: &Base, occurrence: usize, event: &Event) -> Checked<Option<Base>> {
    let none = Record::default();
    let before = base.occurrences.get(occurrence).unwrap_or(&none);
    let result = table.apply(base, occurrence, event);
    let after = result.as_ref().ok().and_then(|next| next.occurrences.get(occurrence));
    check_success(before, after, event)?;
    let Some(after) = after else { return Ok(result.ok()) };
    let detail = || format!("{event:?} on {before:?} gave {after:?}");
    ensure(before.outcome.is_none() || before.outcome == after.outcome, OUTCOME_STAYS, detail)?;
    ensure(after.fence >= before.fence, FENCES_GROW, detail)?;
    check_fences(before, after, event).map_err(|name| Broken { invariant: name, detail: detail() })?;
    Ok(result.ok())
}

/// Applies `event`, which must not be refused.
pub(super) fn must_apply(table: &dyn Table, base: &mut Base, occurrence: usize, event: &Event) -> Checked<()> {
    let next = judge(table, base, occurrence, event)?;
    ensure(next.is_some(), ANSWERED, || format!("{event:?} was refused: {base:?}"))?;
    *base = next.unwrap_or_default();
    Ok(())
}

fn check_success(before: &Record, after: Option<&Record>, event: &Event) -> Checked<()> {
    let fence = match event {
        Event::Ended { fence, end: End::Success { .. }, .. }
        | Event::Answered { fence, answer: Answer::Happened { .. }, .. } => *fence,
        _ => return Ok(()),
    };
    let begun = fence > Fence::default() && fence <= before.fence;
    let counts = before.outcome.is_some() || after.is_some_and(|record| record.outcome.is_some());
    ensure(!begun || counts, SUCCESS_COUNTS, || format!("{event:?} on {before:?}"))
}

fn check_fences(before: &Record, after: &Record, event: &Event) -> Result<(), &'static str> {
    let open = |record: &Record| record.unknown_ends().collect::<Vec<_>>();
    let was = open(before);
    let is = open(after);
    let keeps_all_but =
        |but: Option<Fence>| after.outcome.is_some() || was.iter().all(|f| Some(*f) == but || is.contains(f));
    let require = |holds: bool, name: &'static str| if holds { Ok(()) } else { Err(name) };
    match event {
        Event::Claim(claim) => {
            require(before.outcome.is_none(), NO_CLAIM_AFTER_SUCCESS)?;
            require(after.fence > before.fence, FENCES_GROW)?;
            require(was.is_empty() || claim.over != toolonce::protocol::apply::Over::Nothing, DOUBT_BLOCKS)?;
            require(was.is_empty() || before.executed == after.executed, SAME_BYTES)?;
            require(keeps_all_but(None), DOUBT_STAYS)
        }
        Event::Ended { fence, end, .. } => match end {
            End::Success { .. } => Ok(()),
            End::NoEffect { .. } => {
                require(keeps_all_but(Some(*fence)), DOUBT_STAYS)?;
                require(!is.contains(fence), ENDS_CLOSE)
            }
            End::Unknown { .. } => require(keeps_all_but(None), DOUBT_STAYS),
        },
        Event::Answered { fence, answer: Answer::DidNotHappen, .. } => require(*fence == before.fence, ANSWER_NAMES),
        _ => Ok(()),
    }
}
