//! Permissions: one key, several askers, and a human who answers or doesn't. The explorer keeps its own account of what
//! was asked, permitted and refused.

use toolonce::key::{Digest, Fingerprint};
use toolonce::protocol::apply::{End, Event, NewClaim};
use toolonce::protocol::approval::EXPIRES_AFTER;
use toolonce::protocol::decide::{Act, Asked, Decision, Facts};
use toolonce::protocol::history::History;
use toolonce::protocol::notes::{Note, NotedPlace};
use toolonce::protocol::record::{Approval, ApprovalState, Asker, Base, Body, FailureClass, Given, Reason, Turn};
use toolonce::{Approval as Asks, Millis, Policy, Repeat};

use super::parts::{about, asked, new_claim, no_effect, place};
use super::repeat::LIMITS;
use super::search::{Checked, Model, Steps, ensure, must_hold};
use super::table::invariant::*;
use super::table::{Real, Table, judge, must_apply};

/// Run and arguments of each asker.
const ASKERS: [(&str, u8); 3] = [("r", 1), ("r", 2), ("s", 1)];

pub(super) struct Desk<'a> {
    pub(super) table: &'a dyn Table,
    policy: Policy,
    /// Whether a look-alike may be open at first.
    alike: bool,
    calls: u8,
    answers: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    base: Base,
    turn: Turn,
    is_late: bool,
    alike: bool,
    calls: u8,
    answers: u8,
    accounts: [Account; ASKERS.len()],
    /// Whose the newest attempt of each occurrence was.
    begun: Vec<usize>,
}

/// What the world knows of an asker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Account {
    /// Whether a question waits, and whether it was put before the time that makes it void.
    question: Option<bool>,
    permits: u8,
    is_denied: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Call(usize, Run),
    Approve(usize),
    Deny(usize),
    DayPasses,
    LookAlikeEnds,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Run {
    Succeeds,
    Fails,
}

fn asker(at: usize) -> Asker {
    Asker { run: ASKERS[at].0.into(), fingerprint: Fingerprint::from_bytes([ASKERS[at].1; 32]) }
}

impl Desk<'_> {
    fn now(state: &State) -> Millis {
        if state.is_late { EXPIRES_AFTER } else { 0 }
    }

    fn asked(state: &State, at: usize) -> Asked {
        let Asker { run, fingerprint } = asker(at);
        Asked { run, fingerprint, executed: Digest([ASKERS[at].1; 32]), ..asked(state.turn) }
    }

    fn decide(&self, state: &State, at: usize) -> Decision {
        about(&state.base, |facts| {
            let (now, look_alike) = (Self::now(state), state.alike.then_some("other"));
            let facts = Facts { look_alike, now, wall: now, ..facts };
            self.table.decide(&facts, &Self::asked(state, at), &self.policy, LIMITS)
        })
    }

    /// Whether what is begun now needs a permission.
    fn needs_one(&self, state: &State, at: usize, occurrence: usize) -> bool {
        let may_be_tried_again = state.begun.get(occurrence) == Some(&at);
        let is_repeat = self.policy == repeats_ask() && occurrence > 0;
        !may_be_tried_again && (self.policy == first() || is_repeat || state.alike)
    }

    fn call(&self, state: &State, at: usize, run: Run) -> Checked<Option<State>> {
        let decision = self.decide(state, at);
        let mut next = state.clone();
        next.calls -= 1;
        next.turn += 1;
        let account = state.accounts[at];
        let detail = || format!("{:?} got {decision:?} with {account:?}", ASKERS[at]);
        match &decision.act {
            Act::Attempt { .. } => return self.attempt(next, at, &decision, run).map(Some),
            _ if run == Run::Fails => return Ok(None),
            Act::Await { question } => {
                ensure(!account.is_denied, DENIAL_HOLDS, detail)?;
                ensure(self.needs_one(state, at, decision.occurrence), TRIED_AGAIN, detail)?;
                match question {
                    Some(reason) => self.ask(&mut next, at, reason)?,
                    None => ensure(account.question == Some(state.is_late), QUESTION_STANDS, detail)?,
                }
            }
            Act::Denied { .. } => ensure(account.is_denied, DENIAL_HOLDS, detail)?,
            Act::Give(_) => self.note(&mut next, at, &decision, state.turn),
            _ => {}
        }
        Ok(Some(next))
    }

    fn ask(&self, next: &mut State, at: usize, reason: &Reason) -> Checked<()> {
        let question = Approval {
            asker: asker(at),
            asked_at: Self::now(next),
            reason: reason.clone(),
            arguments: None,
            state: ApprovalState::Pending,
            signed: None,
            turn: None,
        };
        let base = self.table.ask(&next.base, question);
        ensure(base.occurrences == next.base.occurrences, ADDS_NOTHING, || format!("{base:?}"))?;
        next.base = base;
        next.accounts[at].question = Some(next.is_late);
        Ok(())
    }

    fn attempt(&self, mut next: State, at: usize, decision: &Decision, run: Run) -> Checked<State> {
        let Act::Attempt { over, permitted, .. } = decision.act else { return Ok(next) };
        let occurrence = decision.occurrence;
        let account = next.accounts[at];
        let detail = || format!("{:?} begins {decision:?} with {account:?}", ASKERS[at]);
        ensure(!account.is_denied, DENIAL_HOLDS, detail)?;
        let allowed = account.permits > 0 || !self.needs_one(&next, at, occurrence);
        ensure(allowed, PERMITTED, detail)?;
        next.accounts[at].permits -= account.permits.min(1);
        next.accounts[at].question = None;
        let claim = NewClaim { permitted, ..new_claim(&Self::asked(&next, at), self.policy.effect(), over) };
        must_apply(self.table, &mut next.base, occurrence, &Event::Claim(Box::new(claim)))?;
        next.begun.resize(next.base.occurrences.len(), at);
        next.begun[occurrence] = at;
        let fence = next.base.occurrences[occurrence].fence;
        let end = match run {
            Run::Succeeds => {
                End::Success { body: Body::Inline(Vec::new()), fingerprint: asker(at).fingerprint, order: 0 }
            }
            Run::Fails => no_effect(FailureClass::Retryable),
        };
        let ended = Event::Ended { fence, end, at: 0 };
        must_apply(self.table, &mut next.base, occurrence, &ended)?;
        if run == Run::Succeeds {
            let turn = next.turn - 1;
            self.note(&mut next, at, decision, turn);
        }
        Ok(next)
    }

    /// The caller takes the outcome.
    fn note(&self, next: &mut State, at: usize, decision: &Decision, turn: Turn) {
        let Asker { run, fingerprint } = asker(at);
        let place = NotedPlace { run, fingerprint, ..place(turn, 0) };
        let given = Some(Given::Outcome { mark: None, stop: false });
        let taken =
            Note { occurrence: decision.occurrence, place: Some(place), given, delivered: Some(true), replay: false };
        self.table.note(&mut next.base, &History::default(), &taken);
    }

    /// A human answers what the guard still lists. `None`: it lists no such question.
    fn answer(&self, state: &State, at: usize, event: Event) -> Option<Checked<State>> {
        let is_it = |approval: &&Approval| approval.asker == asker(at) && approval.state == ApprovalState::Pending;
        let question = state.base.approvals.iter().find(is_it)?;
        if !self.table.may_answer(question, Self::now(state)) {
            return None;
        }
        let stands = state.accounts[at].question;
        let answered = judge(self.table, &state.base, 0, &event).and_then(|base| {
            ensure(stands == Some(state.is_late), QUESTION_STANDS, || format!("{event:?} answers {stands:?}"))?;
            ensure(base.is_some(), WAY_OUT, || format!("{event:?} was refused"))?;
            let mut next = State { base: base.unwrap_or_default(), answers: state.answers - 1, ..state.clone() };
            let account = &mut next.accounts[at];
            account.question = None;
            match event {
                Event::Approve(_) => account.permits += 1,
                _ => account.is_denied = true,
            }
            Ok(next)
        });
        Some(answered)
    }
}

impl Model for Desk<'_> {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        State {
            base: Base::default(),
            turn: 0,
            is_late: false,
            alike: self.alike,
            calls: self.calls,
            answers: self.answers,
            accounts: Default::default(),
            begun: Vec::new(),
        }
    }

    fn steps(&self, state: &State, out: &mut Steps<Self>) {
        for at in 0..ASKERS.len() {
            for run in [Run::Succeeds, Run::Fails] {
                let next = if state.calls > 0 { self.call(state, at, run).transpose() } else { None };
                out.extend(next.map(|next| (Step::Call(at, run), next)));
            }
            if state.answers > 0 {
                let approved = self.answer(state, at, Event::Approve(asker(at)));
                out.extend(approved.map(|next| (Step::Approve(at), next)));
                let denied = self.answer(state, at, Event::Deny { asker: asker(at), why: String::new() });
                out.extend(denied.map(|next| (Step::Deny(at), next)));
            }
        }
        if !state.is_late {
            out.push((Step::DayPasses, Ok(State { is_late: true, ..state.clone() })));
        }
        if state.alike {
            out.push((Step::LookAlikeEnds, Ok(State { alike: false, ..state.clone() })));
        }
    }

    fn check(&self, state: &State, _is_last: bool) -> Checked<()> {
        (0..ASKERS.len()).filter(|&at| state.accounts[at].permits > 0).try_for_each(|at| {
            let act = self.decide(state, at).act;
            let waits = matches!(act, Act::Await { .. } | Act::Denied { .. });
            ensure(!waits, APPROVED_RUNS, || format!("{:?} gets {act:?}", ASKERS[at]))
        })
    }
}

fn first() -> Policy {
    Policy::write().approval(Asks::First)
}

fn repeats_ask() -> Policy {
    Policy::write().repeat(Repeat::Ask)
}

pub(super) fn desks(table: &dyn Table) -> Vec<(&'static str, Desk<'_>)> {
    let more = u8::from(super::is_long());
    let desk = |policy, alike| Desk { table, policy, alike, calls: 5 + more, answers: 3 };
    vec![
        ("permission first", desk(first(), false)),
        ("permission to repeat", desk(repeats_ask(), false)),
        ("permission to run beside a look-alike", desk(repeats_ask(), true)),
    ]
}

#[test]
fn every_desk() {
    for (name, desk) in desks(&Real) {
        must_hold(name, &desk);
    }
}
