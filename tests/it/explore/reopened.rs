//! What another tool's completion reopens: one call, one that undoes it, and their order.

use toolonce::Policy;
use toolonce::protocol::apply::Event;
use toolonce::protocol::decide::{Act, Facts};
use toolonce::protocol::history::History;
use toolonce::protocol::notes::Note;
use toolonce::protocol::record::{Base, Fence, Turn};

use super::parts::{ENDS, How, about, asked, happened, new_claim, no_effect, place, success, unknown};
use super::repeat::LIMITS;
use super::search::{Checked, Model, Steps, ensure, must_hold};
use super::table::invariant::*;
use super::table::{Real, Table, must_apply};

pub(super) struct Undo<'a> {
    pub(super) table: &'a dyn Table,
    calls: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    base: Base,
    turn: Turn,
    calls: u8,
    /// The run's completions, and the newest of the tool that undoes.
    completions: u64,
    undone: u64,
    /// What the world knows: whether something was undone after the newest completion.
    is_undone: bool,
    /// The attempt whose end is yet to come, and whether it will be told.
    open: Option<(Fence, bool)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Call { how: How, taken: bool },
    Undo,
    Finishes,
    Human,
}

impl Undo<'_> {
    fn call(&self, state: &State, how: How, taken: bool) -> Checked<Option<State>> {
        let newest = state.base.occurrences.last().and_then(|record| record.outcome.as_ref());
        let reopened = newest.filter(|outcome| state.undone > outcome.order).map_or(0, |_| state.undone);
        let (asked, policy) = (asked(state.turn), Policy::write());
        let decide = |facts: Facts<'_>| self.table.decide(&Facts { reopened, ..facts }, &asked, &policy, LIMITS);
        let decision = about(&state.base, decide);
        let is_new = decision.occurrence == state.base.occurrences.len();
        let is_wish = newest.is_some() && state.is_undone;
        let detail = || format!("{decision:?} of {state:?}");
        ensure(!is_new || state.base == Base::default() || is_wish, UNDONE_ONCE, detail)?;
        ensure(is_new || !is_wish, UNDONE_RUNS, detail)?;
        let mut next = State { turn: state.turn + 1, calls: state.calls - 1, ..state.clone() };
        match decision.act {
            Act::Attempt { over, .. } => {
                let claim = Box::new(new_claim(&asked, policy.effect(), over));
                self.apply(&mut next, &Event::Claim(claim))?;
                self.note(&mut next, state.turn, false);
                self.runs(&mut next, how)?;
                self.note(&mut next, state.turn, taken && how == How::Succeeds);
            }
            _ if how != How::Succeeds => return Ok(None),
            act => self.note(&mut next, state.turn, taken && matches!(act, Act::Give(_))),
        }
        Ok(Some(next))
    }

    fn runs(&self, next: &mut State, how: How) -> Checked<()> {
        let fence = next.base.occurrences.last().map_or(Fence::default(), |record| record.fence);
        let end = match how {
            How::Succeeds => return self.completes(next, fence),
            How::OutlivesPatience => {
                next.open = Some((fence, true));
                return Ok(());
            }
            How::IsUnknown => {
                next.open = Some((fence, false));
                unknown()
            }
            How::Fails(class) => no_effect(class),
        };
        self.apply(next, &Event::Ended { fence, end, at: 0 })
    }

    fn completes(&self, next: &mut State, fence: Fence) -> Checked<()> {
        next.completions += 1;
        let order = self.table.order(next.completions);
        let end = success(order);
        next.is_undone = false;
        self.apply(next, &Event::Ended { fence, end, at: 0 })
    }

    /// A human says of a call in doubt that it happened: that word is its completion.
    fn human(&self, state: &State, fence: Fence) -> Checked<State> {
        let mut next = State { open: None, is_undone: false, completions: state.completions + 1, ..state.clone() };
        let order = self.table.order_of_a_word(next.completions);
        self.apply(&mut next, &Event::Answered { fence, answer: happened(order), at: 0 })?;
        Ok(next)
    }

    fn apply(&self, next: &mut State, event: &Event) -> Checked<()> {
        let last = next.base.occurrences.len().saturating_sub(1);
        let is_new = next.base.occurrences.last().is_none_or(|record| record.outcome.is_some());
        let at = if matches!(event, Event::Claim(_)) && is_new { next.base.occurrences.len() } else { last };
        must_apply(self.table, &mut next.base, at, event)
    }

    fn note(&self, next: &mut State, turn: Turn, taken: bool) {
        let occurrence = next.base.occurrences.len().saturating_sub(1);
        let place = Some(place(turn, 0));
        let delivered = taken.then_some(true);
        let note = Note { occurrence, place, given: None, delivered, replay: false };
        self.table.note(&mut next.base, &History::default(), &note);
    }
}

impl Model for Undo<'_> {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        State {
            base: Base::default(),
            turn: 0,
            calls: self.calls,
            completions: 0,
            undone: 0,
            is_undone: false,
            open: None,
        }
    }

    fn steps(&self, state: &State, out: &mut Steps<Self>) {
        match state.open {
            Some((fence, true)) => {
                let mut next = State { open: None, ..state.clone() };
                out.push((Step::Finishes, self.completes(&mut next, fence).map(|()| next)));
            }
            Some((fence, false)) => out.push((Step::Human, self.human(state, fence))),
            None => {}
        }
        if state.calls == 0 {
            return;
        }
        let completions = state.completions + 1;
        let undone =
            State { calls: state.calls - 1, completions, undone: completions, is_undone: true, ..state.clone() };
        out.push((Step::Undo, Ok(undone)));
        for how in ENDS {
            for taken in [true, false] {
                let next = self.call(state, how, taken).transpose();
                out.extend(next.map(|next| (Step::Call { how, taken }, next)));
            }
        }
    }
}

pub(super) fn undo(table: &dyn Table) -> Undo<'_> {
    Undo { table, calls: if super::is_long() { 9 } else { 7 } }
}

#[test]
fn every_order_of_doing_and_undoing() {
    must_hold("reopened", &undo(&Real));
}
