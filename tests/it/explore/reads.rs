//! Reads: each runs, a redelivered place gets what it got, and who joins one under way gets nothing that is out of date.

use toolonce::key::Fingerprint;
use toolonce::protocol::apply::{End, Event, Over};
use toolonce::protocol::decide::{Act, Asked};
use toolonce::protocol::history::History;
use toolonce::protocol::notes::Note;
use toolonce::protocol::record::{Base, Body, Turn};
use toolonce::{Effect, Policy};

use super::parts::{about, asked, new_claim, place};
use super::repeat::LIMITS;
use super::search::{Checked, Model, Steps, ensure, must_hold};
use super::table::invariant::*;
use super::table::{Real, Table, must_apply};

pub(super) struct Readers<'a> {
    pub(super) table: &'a dyn Table,
    calls: u8,
}

/// When an execution began, or a call was made: in which turn, and after how many completed writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Moment {
    pub(super) turn: Turn,
    pub(super) writes: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    base: Base,
    now: Moment,
    calls: u8,
    /// Under way: since when, and whose places get the result.
    running: Vec<(Moment, Vec<u32>)>,
    /// Places of all turns: what each saw, once it is answered.
    places: Vec<(Moment, Option<Moment>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Reads,
    Ends(usize),
    Redelivered(usize),
    Writes,
    NextTurn,
}

impl Readers<'_> {
    fn act(&self, state: &State, at: usize) -> Act {
        let asked = Asked { nth: Some(Self::nth(state, at)), ..asked(state.places[at].0.turn) };
        about(&state.base, |facts| self.table.decide(&facts, &asked, &Policy::read_only(), LIMITS)).act
    }

    fn nth(state: &State, at: usize) -> u32 {
        let turn = state.places[at].0.turn;
        state.places[..at].iter().filter(|(asked, _)| asked.turn == turn).count() as u32
    }

    fn reads(&self, state: &State) -> Checked<State> {
        let mut next = State { calls: state.calls - 1, ..state.clone() };
        let at = next.places.len();
        next.places.push((state.now, None));
        let act = self.act(&next, at);
        ensure(matches!(act, Act::Attempt { .. }), READS_RUN, || format!("{act:?}"))?;
        let joins = next.running.iter_mut().find(|(begun, _)| self.table.may_join_read(*begun, state.now));
        match joins {
            Some((_, places)) => places.push(at as u32),
            None => next.running.push((state.now, vec![at as u32])),
        }
        Ok(next)
    }

    /// It saw what was there when it began, if it is slow: the worst that can be.
    fn ends(&self, state: &State, running: usize) -> Checked<State> {
        let mut next = state.clone();
        let (begun, places) = next.running.remove(running);
        for at in places.into_iter().map(|at| at as usize) {
            let asked = next.places[at].0;
            let fresh = begun.turn == asked.turn && begun.writes >= asked.writes;
            ensure(fresh, READS_FRESH, || format!("{asked:?} got what was there at {begun:?}"))?;
            next.places[at].1 = Some(begun);
            self.record(&mut next, at, begun)?;
        }
        Ok(next)
    }

    fn record(&self, next: &mut State, at: usize, saw: Moment) -> Checked<()> {
        let occurrence = next.base.occurrences.len();
        let (turn, nth) = (next.places[at].0.turn, Self::nth(next, at));
        let claim = new_claim(&asked(turn), Effect::ReadOnly, Over::Nothing);
        must_apply(self.table, &mut next.base, occurrence, &Event::Claim(Box::new(claim)))?;
        let fence = next.base.occurrences[occurrence].fence;
        let body = Body::Inline(vec![saw.turn as u8, saw.writes]);
        let end = End::Success { body, fingerprint: Fingerprint::default(), order: 0 };
        must_apply(self.table, &mut next.base, occurrence, &Event::Ended { fence, end, at: 0 })?;
        let note =
            Note { occurrence, place: Some(place(turn, nth)), given: None, delivered: Some(true), replay: false };
        self.table.note(&mut next.base, &History::default(), &note);
        Ok(())
    }

    fn redelivered(&self, state: &State, at: usize, saw: Moment) -> Checked<State> {
        let act = self.act(state, at);
        let body = Body::Inline(vec![saw.turn as u8, saw.writes]);
        let mut outcomes = state.base.occurrences.iter().filter_map(|record| record.outcome.as_ref());
        let kept = matches!(act, Act::Give(_)) && outcomes.any(|outcome| outcome.body == body);
        ensure(kept, FROZEN, || format!("{:?} now gets {act:?}", state.places[at]))?;
        Ok(State { calls: state.calls - 1, ..state.clone() })
    }
}

impl Model for Readers<'_> {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        let now = Moment { turn: 0, writes: 0 };
        State { base: Base::default(), now, calls: self.calls, running: Vec::new(), places: Vec::new() }
    }

    fn steps(&self, state: &State, out: &mut Steps<Self>) {
        out.extend((0..state.running.len()).map(|at| (Step::Ends(at), self.ends(state, at))));
        if state.calls == 0 {
            return;
        }
        out.push((Step::Reads, self.reads(state)));
        let answered = state.places.iter().enumerate().filter_map(|(at, (_, saw))| saw.map(|saw| (at, saw)));
        out.extend(answered.map(|(at, saw)| (Step::Redelivered(at), self.redelivered(state, at, saw))));
        let after = |now| State { now, calls: state.calls - 1, ..state.clone() };
        out.push((Step::Writes, Ok(after(Moment { writes: state.now.writes + 1, ..state.now }))));
        out.push((Step::NextTurn, Ok(after(Moment { turn: state.now.turn + 1, ..state.now }))));
    }
}

pub(super) fn readers(table: &dyn Table) -> Readers<'_> {
    Readers { table, calls: if super::is_long() { 8 } else { 6 } }
}

#[test]
fn every_order_of_reads_and_writes() {
    must_hold("reads", &readers(&Real));
}
