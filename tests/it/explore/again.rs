//! Asking for the same again by an argument: a key for each number, and what the lower one owes the higher.

use toolonce::Policy;
use toolonce::protocol::apply::{Event, Over};
use toolonce::protocol::decide::{Act, Before, Decision, Facts};
use toolonce::protocol::history::History;
use toolonce::protocol::notes::Note;
use toolonce::protocol::record::{Base, Fence, Turn};

use super::parts::{ENDS, How, about, asked, happened, new_claim, no_effect, place, success, unknown};
use super::repeat::LIMITS;
use super::search::{Checked, Model, Steps, ensure, must_hold};
use super::table::invariant::*;
use super::table::{Real, Table, must_apply};

/// The plain call, and two numbers.
const KEYS: usize = 3;

pub(super) struct Wishes<'a> {
    pub(super) table: &'a dyn Table,
    calls: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    bases: [Base; KEYS],
    /// What the world knows of each.
    truth: [Truth; KEYS],
    turn: Turn,
    calls: u8,
    /// What another process has decided to claim, and the call before it as it was then.
    decided: Option<(usize, Base)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Truth {
    Never,
    Running(Fence),
    Doubt(Fence),
    Failed,
    /// The turn in which the outcome was first taken, if it was.
    Done(Option<Turn>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Call { times: usize, end: How, taken: bool },
    Decides(usize),
    Commits(usize),
    Finishes(usize),
    Human(usize),
    NextTurn,
}

impl Wishes<'_> {
    fn policy() -> Policy {
        Policy::write().again(true)
    }

    /// Which call is judged: the one that was made, or the one before it, whose state is the answer. `None`: refused.
    fn judged(&self, state: &State, times: usize) -> Option<usize> {
        if times == 0 || !state.bases[times].occurrences.is_empty() {
            return Some(times);
        }
        let before = |facts: Facts<'_>| self.table.before(&facts, &asked(state.turn), &Self::policy(), LIMITS);
        match about(&state.bases[times - 1], before) {
            Before::Missing => None,
            Before::Open => Some(times - 1),
            Before::Settled => Some(times),
        }
    }

    fn decide(&self, state: &State, times: usize) -> Decision {
        let decide = |facts: Facts<'_>| self.table.decide(&facts, &asked(state.turn), &Self::policy(), LIMITS);
        about(&state.bases[times], decide)
    }

    /// Whether the call before `times` is known to be over, for the turn that the conversation is in.
    fn is_settled(state: &State, times: usize) -> bool {
        match times.checked_sub(1).map(|before| state.truth[before]) {
            None | Some(Truth::Failed) => true,
            Some(Truth::Done(seen)) => seen.is_some_and(|turn| turn < state.turn),
            Some(Truth::Never | Truth::Running(_) | Truth::Doubt(_)) => false,
        }
    }

    fn call(&self, state: &State, times: usize, end: How, taken: bool) -> Checked<Option<State>> {
        let mut next = State { calls: state.calls - 1, ..state.clone() };
        let fresh = state.truth[times] == Truth::Never && Self::is_settled(state, times);
        let Some(at) = self.judged(state, times) else {
            return ensure(!fresh, AGAIN_RUNS, || format!("{times} was refused: {state:?}")).map(|()| None);
        };
        let decision = self.decide(state, at);
        let is_attempt = matches!(decision.act, Act::Attempt { .. });
        ensure(!fresh || at == times && is_attempt, AGAIN_RUNS, || format!("{times} got {decision:?} of {at}"))?;
        if is_attempt {
            return self.begin(next, at, end, taken).map(Some);
        }
        if end != How::Succeeds {
            return Ok(None);
        }
        if matches!(decision.act, Act::Give(_)) {
            self.take(&mut next, at, taken);
        }
        Ok(Some(next))
    }

    fn begin(&self, mut next: State, times: usize, how: How, taken: bool) -> Checked<State> {
        let before = times.checked_sub(1).map(|before| next.truth[before]);
        let begins = || format!("{times} begins while the one before is {before:?}");
        ensure(before != Some(Truth::Never), AGAIN_NO_GAP, begins)?;
        let is_first = next.truth[times] == Truth::Never;
        ensure(!is_first || Self::is_settled(&next, times), AGAIN_SETTLED, begins)?;
        let claim = new_claim(&asked(next.turn), Self::policy().effect(), Over::Nothing);
        self.apply(&mut next, times, &Event::Claim(Box::new(claim)))?;
        self.note(&mut next, times, None);
        let fence = next.bases[times].occurrences[0].fence;
        next.truth[times] = Truth::Running(fence);
        let (end, truth) = match how {
            How::OutlivesPatience => return Ok(next),
            How::Succeeds => (success(0), Truth::Done(None)),
            How::IsUnknown => (unknown(), Truth::Doubt(fence)),
            How::Fails(class) => (no_effect(class), Truth::Failed),
        };
        self.apply(&mut next, times, &Event::Ended { fence, end, at: 0 })?;
        next.truth[times] = truth;
        if how == How::Succeeds {
            self.take(&mut next, times, taken);
        }
        Ok(next)
    }

    fn apply(&self, next: &mut State, times: usize, event: &Event) -> Checked<()> {
        must_apply(self.table, &mut next.bases[times], 0, event)
    }

    fn take(&self, next: &mut State, times: usize, taken: bool) {
        self.note(next, times, Some(taken));
        if let (Truth::Done(seen), true) = (&mut next.truth[times], taken) {
            seen.get_or_insert(next.turn);
        }
    }

    fn note(&self, next: &mut State, times: usize, taken: Option<bool>) {
        let place = Some(place(next.turn, 0));
        let delivered = taken.filter(|taken| *taken);
        let note = Note { occurrence: 0, place, given: None, delivered, replay: false };
        self.table.note(&mut next.bases[times], &History::default(), &note);
    }

    /// Another process decides; other steps may come before its commit.
    fn decides(&self, state: &State, times: usize) -> Option<State> {
        let at = self.judged(state, times)?;
        let begins = at == times && matches!(self.decide(state, at).act, Act::Attempt { .. });
        (begins && times > 0 && state.bases[times].occurrences.is_empty()).then(|| State {
            calls: state.calls - 1,
            decided: Some((times, state.bases[times - 1].clone())),
            ..state.clone()
        })
    }

    /// The claim stands only on what was decided on.
    fn commits(&self, state: &State, times: usize, before: &Base) -> Checked<State> {
        let next = State { decided: None, ..state.clone() };
        let own = !state.bases[times].occurrences.is_empty();
        let moved = self.table.checks_before() && state.bases[times - 1] != *before;
        if own || moved { Ok(next) } else { self.begin(next, times, How::OutlivesPatience, false) }
    }

    fn settle(&self, state: &State, times: usize) -> Option<(Step, Checked<State>)> {
        let mut next = state.clone();
        let (step, event) = match state.truth[times] {
            Truth::Running(fence) => (Step::Finishes(times), Event::Ended { fence, end: success(0), at: 0 }),
            Truth::Doubt(fence) => (Step::Human(times), Event::Answered { fence, answer: happened(0), at: 0 }),
            _ => return None,
        };
        next.truth[times] = Truth::Done(None);
        let settled = self.apply(&mut next, times, &event).map(|()| next);
        Some((step, settled))
    }
}

impl Model for Wishes<'_> {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        let truth = [Truth::Never; KEYS];
        State { bases: Default::default(), truth, turn: 0, calls: self.calls, decided: None }
    }

    fn steps(&self, state: &State, out: &mut Steps<Self>) {
        out.extend((0..KEYS).filter_map(|times| self.settle(state, times)));
        if let Some((times, before)) = &state.decided {
            out.push((Step::Commits(*times), self.commits(state, *times, before)));
        }
        if state.calls == 0 {
            return;
        }
        out.push((Step::NextTurn, Ok(State { turn: state.turn + 1, calls: state.calls - 1, ..state.clone() })));
        for times in 0..KEYS {
            for end in ENDS {
                for taken in [true, false] {
                    let next = self.call(state, times, end, taken).transpose();
                    out.extend(next.map(|next| (Step::Call { times, end, taken }, next)));
                }
            }
            if state.decided.is_none() {
                let next = self.decides(state, times);
                out.extend(next.map(|next| (Step::Decides(times), Ok(next))));
            }
        }
    }
}

pub(super) fn wishes(table: &dyn Table) -> Wishes<'_> {
    Wishes { table, calls: if super::is_long() { 7 } else { 5 } }
}

#[test]
fn every_wish_for_more() {
    must_hold("again", &wishes(&Real));
}
