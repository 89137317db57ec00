//! The repeat rule: one process, several turns, siblings, redeliveries, resumes, replies that nobody takes.
//!
//! The explorer knows what the caller really saw (which replies it took, in the history it stands on) and judges every
//! answer by that, never by the record's own marks.

mod answers;

use std::collections::HashSet;
use std::time::Duration;

use toolonce::key::{Digest, Fingerprint};
use toolonce::protocol::apply::{Answer, End, Event, NewClaim};
use toolonce::protocol::decide::{Act, Asked, Decision, Facts, Here, Limits, Mark};
use toolonce::protocol::history::{History, Seen};
use toolonce::protocol::notes::{Note, NotedPlace};
use toolonce::protocol::record::{Base, Body, Failure, FailureClass, Fence, Given, Liveness, OwnerId, ToldBy, Turn};
use toolonce::{Effect, Policy, Repeat};

use super::parts::{asked, new_claim};
use super::search::{Checked, Model, Steps, ensure, must_hold};
use super::table::invariant::*;
use super::table::{Real, Table, judge, must_apply};

pub(super) const LIMITS: Limits =
    Limits { attempt_deadline: Duration::from_millis(20), settle_delay: Duration::from_millis(20) };

/// How the calls of a message reach the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// All together, by position.
    Answer,
    /// One by one, each with an id.
    Alone,
    /// One by one, without ids.
    Bare,
}

pub(super) struct Conversation<'a> {
    pub(super) table: &'a dyn Table,
    pub(super) policy: Policy,
    pub(super) each: bool,
    pub(super) form: Form,
    pub(super) calls: u8,
    pub(super) turns: Turn,
    /// Equal calls of one message.
    pub(super) siblings: u32,
    pub(super) faults: u8,
    pub(super) resumes: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    base: Base,
    history: History,
    last_turn: Option<Turn>,
    turn: Turn,
    places: Vec<Place>,
    running: Vec<(usize, Fence)>,
    /// Effects by occurrence.
    effects: Vec<u8>,
    calls: u8,
    faults: u8,
    crashes: u8,
    resumes: u8,
    redelivered: bool,
    is_down: bool,
}

/// A place of the present history, as the caller knows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Place {
    turn: Turn,
    nth: u32,
    told: Told,
    was_taken: bool,
    /// The epoch of its newest delivery.
    epoch: u32,
    /// Occurrences whose outcome an earlier turn of this history had seen when the place was first asked.
    knew: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Told {
    Outcome {
        occurrence: usize,
        is_marked: bool,
    },
    Failure(FailureClass),
    Status,
    /// A crash came first.
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Call { turn: Turn, nth: u32, run: Run, taken: bool },
    Finish(usize),
    Human { happened: bool },
    Resume(Seen),
}

/// How an execution goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Run {
    Succeeds,
    Fails(FailureClass),
    OutlivesPatience,
    CrashesBefore,
    CrashesAfter,
}

const RUNS: [Run; 6] = [
    Run::Succeeds,
    Run::Fails(FailureClass::Retryable),
    Run::Fails(FailureClass::Permanent),
    Run::OutlivesPatience,
    Run::CrashesBefore,
    Run::CrashesAfter,
];

fn bytes() -> (Fingerprint, Digest) {
    (Fingerprint::default(), Digest::default())
}

fn success(fence: Fence) -> End {
    End::Success { body: Body::Inline(vec![fence.0 as u8]), fingerprint: bytes().0, order: 0 }
}

fn failure(class: FailureClass) -> Failure {
    Failure { class, message: String::new() }
}

impl Conversation<'_> {
    /// Turns between may have been about other tools; it takes two resumes to tell.
    fn skips_turns(&self) -> bool {
        self.resumes > 1
    }

    fn again(&self) -> bool {
        self.each || self.policy.effect() == Effect::Idempotent
    }

    fn asked(&self, state: &State, turn: Turn, nth: u32) -> Asked {
        let id = match self.form {
            Form::Alone => format!("{}.{nth}", state.history.epoch()),
            Form::Answer | Form::Bare => String::new(),
        };
        Asked {
            run: "r".into(),
            turn: Some(turn),
            nth: (self.form == Form::Answer).then_some(nth),
            id,
            fingerprint: bytes().0,
            executed: bytes().1,
            again: false,
            looked_up: false,
        }
    }

    fn decide(&self, state: &State, asked: &Asked) -> Decision {
        let owners = |owner: OwnerId| match owner.0[0] {
            dead if dead < state.crashes => Liveness::Dead(0),
            _ => Liveness::Alive,
        };
        let here = Here { bodies: state.running.clone(), taken: Vec::new() };
        let facts = Facts {
            base: &state.base,
            history: &self.table.history(&state.history),
            last_turn: state.last_turn,
            answered: state.last_turn,
            owners: &owners,
            here: &here,
            reopened: 0,
            look_alike: None,
            now: 0,
            wall: 0,
        };
        self.table.decide(&facts, asked, &self.policy, LIMITS)
    }

    fn fresh_places(&self, state: &State) -> Vec<(Turn, u32)> {
        let turns = state.turn..self.turns.min(if self.skips_turns() { self.turns } else { state.turn + 2 });
        let free = |turn: Turn, nth: u32| !state.places.iter().any(|p| p.turn == turn && p.nth == nth);
        let nths = |turn: Turn| match self.form {
            Form::Answer => (0..self.siblings).collect(),
            Form::Alone | Form::Bare => vec![state.places.iter().filter(|p| p.turn == turn).count() as u32],
        };
        let all = turns.flat_map(|turn| nths(turn).into_iter().map(move |nth| (turn, nth)));
        all.filter(|&(turn, nth)| nth < self.siblings && free(turn, nth)).collect()
    }

    fn knew(&self, state: &State, turn: Turn) -> Vec<usize> {
        let seen = state.places.iter().filter(|p| p.turn < turn && p.was_taken);
        let occurrences = seen.filter_map(|p| match p.told {
            Told::Outcome { occurrence, .. } => Some(occurrence),
            _ => None,
        });
        let mut known: Vec<_> = occurrences.collect::<HashSet<_>>().into_iter().collect();
        known.sort_unstable();
        known
    }

    fn finish(&self, state: &State, at: usize) -> Checked<State> {
        let mut next = state.clone();
        let (occurrence, fence) = next.running.remove(at);
        let event = Event::Ended { fence, end: success(fence), at: 0 };
        next.base = judge(self.table, &next.base, occurrence, &event)?.unwrap_or(next.base);
        Ok(next)
    }

    /// A human settles the call that a crash left in doubt.
    fn human(&self, state: &State) -> Option<(bool, Checked<State>)> {
        let doubtful = |owner: OwnerId| owner.0[0] < state.crashes;
        let records = &state.base.occurrences;
        let at = records.iter().position(|r| r.claim.as_ref().is_some_and(|c| doubtful(c.owner)))?;
        let fence = records[at].fence;
        let happened = state.effects.get(at).is_some_and(|&count| count > 0);
        let answer = if happened {
            Answer::Happened { body: Body::Inline(vec![0]), fingerprint: bytes().0, told_by: ToldBy::Human, order: 0 }
        } else {
            Answer::DidNotHappen
        };
        let event = Event::Answered { fence, answer, at: 0 };
        let next = judge(self.table, &state.base, at, &event).and_then(|base| {
            ensure(base.is_some(), WAY_OUT, || format!("{event:?} was refused"))?;
            Ok(State { base: base.unwrap_or_default(), ..state.clone() })
        });
        Some((happened, next))
    }

    fn resume(&self, state: &State, seen: Seen) -> State {
        let mut next = state.clone();
        next.history.cuts.push(seen);
        next.is_down = false;
        next.resumes -= 1;
        let keeps = |turn: Turn| match seen {
            Seen::Through(last) => turn <= last,
            Seen::Nothing => false,
        };
        next.places.retain(|place| keeps(place.turn));
        next.last_turn = next.places.iter().filter(|p| p.told != Told::Nothing).map(|p| p.turn).max();
        next.turn = match seen {
            Seen::Through(last) => last,
            Seen::Nothing => 0,
        };
        next
    }

    /// How many effects a conversation without faults has.
    fn intents(&self, state: &State) -> usize {
        let turns: HashSet<_> = state.places.iter().map(|p| p.turn).collect();
        match (self.each, self.form) {
            (true, Form::Answer) => state.places.len(),
            _ if self.again() => turns.len(),
            _ => usize::from(!state.places.is_empty()),
        }
    }
}

fn told(decision: &Decision) -> Told {
    let occurrence = decision.occurrence;
    match &decision.act {
        Act::Give(mark) => Told::Outcome { occurrence, is_marked: *mark != Mark::Own },
        Act::GiveFailure(failure) => Told::Failure(failure.class),
        Act::GiveAgain(Given::Outcome { mark, .. }) => Told::Outcome { occurrence, is_marked: mark.is_some() },
        Act::GiveAgain(Given::Failure(failure)) => Told::Failure(failure.class),
        _ => Told::Status,
    }
}

fn given(told: &Told) -> Given {
    match told {
        Told::Outcome { is_marked, .. } => Given::Outcome { mark: is_marked.then(|| "earlier".into()), stop: false },
        Told::Failure(class) => Given::Failure(failure(*class)),
        Told::Status | Told::Nothing => Given::Status { kind: 0, text: String::new() },
    }
}

impl Model for Conversation<'_> {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        State {
            base: Base::default(),
            history: History::default(),
            last_turn: None,
            turn: 0,
            places: Vec::new(),
            running: Vec::new(),
            effects: Vec::new(),
            calls: self.calls,
            faults: self.faults,
            crashes: 0,
            resumes: self.resumes,
            redelivered: false,
            is_down: false,
        }
    }

    fn steps(&self, state: &State, out: &mut Steps<Self>) {
        if state.resumes > 0 && !state.base.occurrences.is_empty() {
            let last = if self.skips_turns() { self.turns - 1 } else { state.turn };
            let through = (0..=last).map(Seen::Through);
            for seen in through.chain([Seen::Nothing]) {
                out.push((Step::Resume(seen), Ok(self.resume(state, seen))));
            }
        }
        if state.is_down {
            return;
        }
        for at in 0..state.running.len() {
            out.push((Step::Finish(at), self.finish(state, at)));
        }
        if let Some((happened, next)) = self.human(state) {
            out.push((Step::Human { happened }, next));
        }
        if state.calls == 0 {
            return;
        }
        let mut places = self.fresh_places(state);
        // Without ids a second delivery within an epoch can't be told from another call.
        let told_apart = |p: &&Place| self.form != Form::Bare || p.epoch < state.history.epoch();
        places.extend(state.places.iter().filter(told_apart).map(|p| (p.turn, p.nth)));
        for (turn, nth) in places {
            for run in RUNS {
                let crashes = matches!(run, Run::CrashesBefore | Run::CrashesAfter);
                if crashes && (state.crashes > 0 || state.resumes == 0) {
                    continue;
                }
                for taken in [true, false] {
                    let cost = u8::from(run != Run::Succeeds) + u8::from(!taken);
                    if cost > state.faults || crashes && !taken {
                        continue;
                    }
                    let next = self.call(state, turn, nth, run, taken).transpose();
                    let step = Step::Call { turn, nth, run, taken };
                    out.extend(next.map(|next| (step, next)));
                }
            }
        }
    }

    fn check(&self, state: &State, _is_last: bool) -> Checked<()> {
        let quiet = state.faults == self.faults && state.resumes == self.resumes && !state.redelivered;
        let effects: u8 = state.effects.iter().sum();
        let intents = self.intents(state);
        ensure(!quiet || usize::from(effects) == intents, INTENT_RUNS, || {
            format!("{effects} effects for {intents} intents: {state:?}")
        })
    }
}

pub(super) fn conversations(table: &dyn Table) -> Vec<(String, Conversation<'_>)> {
    let mut all = Vec::new();
    let policies = [
        ("Once", Policy::write(), false),
        ("Each", Policy::write().repeat(Repeat::Each), true),
        ("Idempotent", Policy::idempotent(), false),
    ];
    let more = u8::from(super::is_long());
    // A resumed turn whose calls come one by one is matched by position alone: two of them can't be told apart.
    let forms = [
        (Form::Answer, 2, 1),
        (Form::Answer, 1, 2),
        (Form::Alone, 2, 0),
        (Form::Alone, 1, 2),
        (Form::Bare, 2, 0),
        (Form::Bare, 1, 2),
    ];
    for (name, policy, each) in policies {
        for (form, siblings, resumes) in forms {
            let conversation = Conversation {
                table,
                policy: policy.clone(),
                each,
                form,
                calls: if each && siblings == 2 { 5 } else { 4 } + more,
                turns: 3,
                siblings,
                faults: 1 + more,
                resumes,
            };
            all.push((format!("repeat {name} {form:?}, {siblings} a turn"), conversation));
        }
    }
    all
}

#[test]
fn every_conversation() {
    for (name, conversation) in conversations(&Real) {
        must_hold(&name, &conversation);
    }
}
