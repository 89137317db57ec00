//! Three processes, each with a call of its own words, and the one row of the run in which look-alikes meet. The first
//! and the last call are of one message.

use toolonce::Policy;
use toolonce::protocol::apply::{Event, NewClaim, Over};
use toolonce::protocol::decide::{Act, Asked, Decision, Facts};
use toolonce::protocol::history::History;
use toolonce::protocol::look_alike::Alike;
use toolonce::protocol::notes::Note;
use toolonce::protocol::record::{Approval, ApprovalState, Base, FailureClass, Fence, Reason, Turn};

use super::parts::{self, about, happened, new_claim, no_effect, place, success, unknown};
use super::repeat::LIMITS;
use super::search::{Checked, Model, Steps, ensure, must_hold};
use super::table::invariant::*;
use super::table::{Real, Table, must_apply};

const TURNS: [Turn; 3] = [0, 1, 0];

pub(super) struct Crowd<'a> {
    pub(super) table: &'a dyn Table,
    faults: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    callers: [Caller; TURNS.len()],
    /// Who left its key in the row, and how often that was written.
    row: Vec<usize>,
    version: u8,
    faults: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Caller {
    base: Base,
    truth: Truth,
    phase: Phase,
    permitted: bool,
}

/// What the world knows of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Truth {
    Never,
    Running(Fence),
    Doubt(Fence),
    Failed,
    Done { seen: bool },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    Asks,
    /// It will claim with the row as it was found.
    Claims {
        version: u8,
        open: Vec<usize>,
        permitted: bool,
    },
    Waits,
    Through,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Looks(usize),
    Claims(usize),
    Ends(usize, How),
    Approved(usize),
    Human(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Seen,
    Unseen,
    Fails,
    IsUnknown,
}

fn asked(at: usize) -> Asked {
    parts::asked(TURNS[at])
}

impl Crowd<'_> {
    fn is_open(state: &State, at: usize) -> bool {
        matches!(state.callers[at].truth, Truth::Running(_) | Truth::Doubt(_) | Truth::Done { seen: false })
    }

    /// Who may be mistaken for this call's first try.
    fn rivals(state: &State, at: usize) -> impl Iterator<Item = usize> {
        (0..TURNS.len()).filter(move |&other| TURNS[other] != TURNS[at] && Self::is_open(state, other))
    }

    /// Who else in the row isn't finished, and what that leads to.
    fn decide(&self, state: &State, at: usize) -> (Vec<usize>, Decision) {
        about(&state.callers[at].base, |facts| {
            let stands = |other: usize| {
                let record = state.callers[other].base.occurrences.first();
                let stands = |record| self.table.stands(record, &asked(at), facts.history, facts.owners, facts.now);
                record.map_or(Alike::Finished, stands)
            };
            let others = state.row.iter().copied().filter(|&other| other != at);
            let open: Vec<usize> = others.filter(|&other| stands(other) != Alike::Finished).collect();
            let look_alike = open.iter().any(|&other| stands(other) == Alike::Open).then_some("other");
            let facts = Facts { look_alike, ..facts };
            (open, self.table.decide(&facts, &asked(at), &Policy::write(), LIMITS))
        })
    }

    fn looks(&self, state: &State, at: usize) -> Checked<State> {
        let (open, decision) = self.decide(state, at);
        let mut next = state.clone();
        let caller = &mut next.callers[at];
        match decision.act {
            Act::Attempt { permitted, .. } => {
                caller.phase = Phase::Claims { version: state.version, open, permitted };
            }
            Act::Await { question } => {
                let rival = Self::rivals(state, at).next();
                ensure(rival.is_some(), ASKED_FOR_REASON, || format!("{at} asks in {state:?}"))?;
                if question.is_some() {
                    let question = Approval {
                        asker: asked(at).asker(),
                        asked_at: 0,
                        reason: Reason::LookAlike { of: "other".into() },
                        arguments: None,
                        state: ApprovalState::Pending,
                        signed: None,
                        turn: None,
                    };
                    caller.base = self.table.ask(&caller.base, question);
                }
                caller.phase = Phase::Waits;
            }
            _ => caller.phase = Phase::Through,
        }
        Ok(next)
    }

    fn claims(&self, state: &State, at: usize) -> Checked<State> {
        let mut next = state.clone();
        let phase = std::mem::replace(&mut next.callers[at].phase, Phase::Asks);
        let Phase::Claims { version, open, permitted } = phase else { return Ok(next) };
        if version != state.version && self.table.checks_row() {
            return Ok(next);
        }
        let rivals: Vec<usize> = Self::rivals(state, at).collect();
        let detail = || format!("{at} runs beside {rivals:?}");
        ensure(rivals.is_empty() || state.callers[at].permitted, ALIKE_APART, detail)?;
        let claim = NewClaim { permitted, ..new_claim(&asked(at), Policy::write().effect(), Over::Nothing) };
        self.apply(&mut next.callers[at], &Event::Claim(Box::new(claim)))?;
        self.note(&mut next.callers[at], at, false);
        let fence = next.callers[at].base.occurrences[0].fence;
        next.callers[at].truth = Truth::Running(fence);
        next.row = open;
        next.row.push(at);
        next.version += 1;
        Ok(next)
    }

    fn ends(&self, state: &State, at: usize, fence: Fence, how: How) -> Checked<State> {
        let mut next = state.clone();
        next.faults -= u8::from(how != How::Seen);
        let caller = &mut next.callers[at];
        let (end, truth) = match how {
            How::Seen | How::Unseen => (success(0), Truth::Done { seen: how == How::Seen }),
            How::Fails => (no_effect(FailureClass::Permanent), Truth::Failed),
            How::IsUnknown => (unknown(), Truth::Doubt(fence)),
        };
        self.apply(caller, &Event::Ended { fence, end, at: 0 })?;
        caller.truth = truth;
        caller.phase = Phase::Through;
        self.note(caller, at, how == How::Seen);
        Ok(next)
    }

    fn approved(&self, state: &State, at: usize) -> Checked<State> {
        let mut next = state.clone();
        let caller = &mut next.callers[at];
        self.apply(caller, &Event::Approve(asked(at).asker()))?;
        caller.permitted = true;
        caller.phase = Phase::Asks;
        Ok(next)
    }

    /// A human finds that it happened; nobody has been told.
    fn human(&self, state: &State, at: usize, fence: Fence) -> Checked<State> {
        let mut next = state.clone();
        self.apply(&mut next.callers[at], &Event::Answered { fence, answer: happened(0), at: 0 })?;
        next.callers[at].truth = Truth::Done { seen: false };
        Ok(next)
    }

    fn apply(&self, caller: &mut Caller, event: &Event) -> Checked<()> {
        must_apply(self.table, &mut caller.base, 0, event)
    }

    fn note(&self, caller: &mut Caller, at: usize, taken: bool) {
        let place = Some(place(TURNS[at], 0));
        let delivered = taken.then_some(true);
        let note = Note { occurrence: 0, place, given: None, delivered, replay: false };
        self.table.note(&mut caller.base, &History::default(), &note);
    }
}

impl Model for Crowd<'_> {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        let caller = Caller { base: Base::default(), truth: Truth::Never, phase: Phase::Asks, permitted: false };
        State { callers: std::array::from_fn(|_| caller.clone()), row: Vec::new(), version: 0, faults: self.faults }
    }

    fn steps(&self, state: &State, out: &mut Steps<Self>) {
        for (at, caller) in state.callers.iter().enumerate() {
            match (&caller.phase, caller.truth) {
                (_, Truth::Running(fence)) => {
                    let ends = [How::Seen, How::Unseen, How::Fails, How::IsUnknown];
                    let possible = ends.into_iter().filter(|how| *how == How::Seen || state.faults > 0);
                    out.extend(possible.map(|how| (Step::Ends(at, how), self.ends(state, at, fence, how))));
                }
                (_, Truth::Doubt(fence)) => out.push((Step::Human(at), self.human(state, at, fence))),
                (Phase::Asks, _) => out.push((Step::Looks(at), self.looks(state, at))),
                (Phase::Claims { .. }, _) => out.push((Step::Claims(at), self.claims(state, at))),
                (Phase::Waits, _) => {
                    out.push((Step::Approved(at), self.approved(state, at)));
                    // What it waits for may be over: it asks again.
                    if Self::rivals(state, at).next().is_none() {
                        out.push((Step::Looks(at), self.looks(state, at)));
                    }
                }
                (Phase::Through, _) => {}
            }
        }
    }

    fn check(&self, state: &State, is_last: bool) -> Checked<()> {
        let all = state.callers.iter().all(|caller| caller.truth != Truth::Never);
        ensure(!is_last || all, INTENT_RUNS, || format!("{state:?}"))
    }
}

pub(super) fn crowd(table: &dyn Table) -> Crowd<'_> {
    Crowd { table, faults: if super::is_long() { 3 } else { 2 } }
}

#[test]
fn every_crowd_of_look_alikes() {
    must_hold("look-alikes, three processes", &crowd(&Real));
}
