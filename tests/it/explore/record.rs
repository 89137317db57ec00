//! One record, no callers: every event in any order, with the world keeping its own count of what happened.
//!
//! [`Kind::Any`] sends every event the table could ever see, whether it makes sense or not. The other kinds send only
//! what a guard and a truthful world would, and then count effects.

use std::time::Duration;

use toolonce::key::{Digest, Fingerprint};
use toolonce::protocol::apply::{Answer, End, Event, NewClaim, Over, window_holds};
use toolonce::protocol::record::{
    Asker, Base, Body, Failure, FailureClass, Fence, Liveness, OwnerId, Record, Strictness, ToldBy, View,
};
use toolonce::{KeyWindow, Millis};

use super::search::{Checked, Model, Steps, ensure, must_hold};
use super::table::invariant::*;
use super::table::{Real, Table, judge};

const LIMIT: Duration = Duration::from_millis(20);
const WINDOW: Millis = 100;
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Any,
    Write,
    Keyed(KeyWindow),
}

pub(super) struct OneRecord<'a> {
    pub(super) table: &'a dyn Table,
    pub(super) kind: Kind,
    pub(super) attempts: usize,
    /// How many different argument texts are claimed with.
    pub(super) texts: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    base: Base,
    clock: usize,
    is_silent: bool,
    tries: Vec<Try>,
    /// Highest fence that failed without effect, and whether for good.
    failed: Option<(Fence, bool)>,
    /// A question that was put, and its answer as of then.
    asked: Option<(Fence, bool)>,
    /// Generation and when it first had an effect.
    effects: Vec<(u32, Millis)>,
}

/// What the world knows of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Try {
    generation: u32,
    executed: Digest,
    deadline: Millis,
    is_over: bool,
    has_landed: bool,
    /// Its end is known to the record.
    is_closed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Tick,
    OwnerFallsSilent,
    OwnerWakes,
    Lands(Fence),
    Put,
    Event(Event),
}

fn record(base: &Base) -> Record {
    base.occurrences.first().cloned().unwrap_or_default()
}

fn claim(over: Over, bytes: u8, at: Millis, window: Option<KeyWindow>) -> Event {
    Event::Claim(Box::new(NewClaim {
        owner: OwnerId([1; 16]),
        at,
        attempt_deadline: LIMIT,
        window,
        over,
        asker: Asker { run: String::new(), fingerprint: Fingerprint::from_bytes([bytes; 32]) },
        turn: None,
        permitted: false,
        settle_delay: Duration::ZERO,
        strictness: if window.is_some() { Strictness::Keyed } else { Strictness::Write },
        executed: Digest([bytes; 32]),
        kept_arguments: None,
        leaves: Vec::new(),
    }))
}

fn happened(fence: Fence, at: Millis) -> Event {
    Event::Answered {
        fence,
        answer: Answer::Happened {
            body: Body::Inline(vec![0]),
            fingerprint: Fingerprint::from_bytes([1; 32]),
            told_by: ToldBy::Human,
            order: 0,
        },
        at,
    }
}

fn did_not_happen(fence: Fence, at: Millis) -> Event {
    Event::Answered { fence, answer: Answer::DidNotHappen, at }
}

fn ended(fence: Fence, end: End, at: Millis) -> Event {
    Event::Ended { fence, end, at }
}

fn success(fence: Fence) -> End {
    End::Success { body: Body::Inline(vec![fence.0 as u8]), fingerprint: Fingerprint::from_bytes([1; 32]), order: 0 }
}

fn no_effect(class: FailureClass) -> End {
    End::NoEffect { failure: Failure { class, message: String::new() }, not_before: 0 }
}

fn unknown() -> End {
    End::Unknown { error: String::new() }
}

impl OneRecord<'_> {
    /// The moments that matter: within and past a deadline, past the safe part of the window, past the window.
    fn instants(&self) -> &'static [Millis] {
        match self.kind {
            Kind::Any => &[0, 120],
            Kind::Write => &[0, 20, 50],
            Kind::Keyed(KeyWindow::For(_)) => &[0, 70, 120],
            Kind::Keyed(_) => &[0, 50],
        }
    }

    fn now(&self, state: &State) -> Millis {
        self.instants()[state.clock]
    }

    fn window(&self) -> Option<KeyWindow> {
        match self.kind {
            Kind::Keyed(window) => Some(window),
            Kind::Any | Kind::Write => None,
        }
    }

    fn view(&self, state: &State) -> View {
        let liveness = if state.is_silent { Liveness::Silent } else { Liveness::Alive };
        let owners = move |_: OwnerId| liveness;
        self.table.view(&record(&state.base), &owners, self.now(state))
    }

    fn claims(&self, state: &State) -> Vec<Event> {
        let record = record(&state.base);
        let now = self.now(state);
        let window = self.window();
        let mut overs = vec![Over::Nothing];
        match self.kind {
            Kind::Any => {
                overs.push(Over::Doubt { silent: None });
                let fences = (1..=record.fence.0).map(Fence);
                overs.extend(fences.map(|fence| Over::Doubt { silent: Some((fence, now)) }));
            }
            Kind::Keyed(window) => {
                let held = record.first_sent.is_some_and(|first| window_holds(now, LIMIT, window, first));
                if held && self.view(state) == View::InDoubt {
                    let silent = record.claim.as_ref().map(|claim| (claim.fence, claim.deadline));
                    overs.push(Over::Doubt { silent });
                }
            }
            Kind::Write => {}
        }
        let pairs = overs.into_iter().flat_map(|over| (1..=self.texts).map(move |bytes| (over, bytes)));
        pairs.map(|(over, bytes)| claim(over, bytes, now, window)).collect()
    }

    /// What may be said of the attempts: anything, or what is true.
    fn ends(&self, state: &State) -> Vec<Event> {
        let now = self.now(state);
        let mut events = Vec::new();
        for (i, attempt) in state.tries.iter().enumerate() {
            let fence = Fence(i as u64 + 1);
            let any = self.kind == Kind::Any;
            if any || attempt.has_landed {
                events.push(ended(fence, success(fence), now));
            }
            if any || !attempt.has_landed {
                events.push(ended(fence, no_effect(FailureClass::Retryable), now));
                events.push(ended(fence, no_effect(FailureClass::Permanent), now));
            }
            events.push(ended(fence, unknown(), now));
            if any {
                events.push(happened(fence, now));
                events.push(did_not_happen(fence, now));
            }
        }
        if let Some((fence, yes)) = state.asked {
            events.push(if yes { happened(fence, now) } else { did_not_happen(fence, now) });
        }
        events
    }

    /// The answer that a look-up begun now finds; none while an attempt could still send.
    fn truth(&self, state: &State) -> Option<(Fence, bool)> {
        let now = self.now(state);
        let is_quiet = state.tries.iter().all(|t| t.has_landed || t.is_over || now > t.deadline);
        let has_landed = state.tries.iter().any(|t| t.has_landed);
        let doubtful = self.view(state) == View::InDoubt;
        (self.kind != Kind::Any && doubtful && (has_landed || is_quiet))
            .then(|| (record(&state.base).fence, has_landed))
    }

    fn happen(&self, state: &State, event: &Event) -> Checked<Option<State>> {
        let Some(base) = judge(self.table, &state.base, 0, event)? else {
            return Ok(None);
        };
        let mut next = State { base, ..state.clone() };
        match event {
            Event::Claim(claim) => self.begun(&mut next, claim)?,
            Event::Ended { fence, end, .. } => {
                let attempt = &mut next.tries[fence.0 as usize - 1];
                if let End::NoEffect { failure, .. } = end {
                    attempt.is_over = true;
                    attempt.is_closed = true;
                    let newest = next.failed.is_none_or(|(earlier, _)| earlier <= *fence);
                    if newest {
                        next.failed = Some((*fence, failure.class == FailureClass::Permanent));
                    }
                }
            }
            Event::Answered { answer, .. } => {
                next.asked = None;
                if *answer == Answer::DidNotHappen {
                    next.tries.iter_mut().for_each(|t| t.is_closed = true);
                }
            }
            Event::Approve(_) | Event::Deny { .. } | Event::Expire(_) => {}
        }
        Ok(Some(next))
    }

    fn begun(&self, next: &mut State, claim: &NewClaim) -> Checked<()> {
        let record = record(&next.base);
        let same = next.tries.iter().filter(|t| t.generation == record.generation);
        let one_body = same.map(|t| t.executed).all(|executed| executed == claim.executed);
        ensure(one_body, SAME_BYTES, || format!("generation {} sent twice", record.generation))?;
        next.tries.push(Try {
            generation: record.generation,
            executed: claim.executed,
            deadline: record.claim.as_ref().map_or(0, |claim| claim.deadline),
            is_over: false,
            has_landed: false,
            is_closed: false,
        });
        Ok(())
    }

    fn lands(&self, state: &State, at: usize) -> Checked<State> {
        let now = self.now(state);
        let mut next = state.clone();
        next.tries[at].has_landed = true;
        let generation = next.tries[at].generation;
        let merges = |&(of, first): &(u32, Millis)| match self.kind {
            Kind::Keyed(KeyWindow::Permanent) => of == generation,
            Kind::Keyed(KeyWindow::For(_)) => of == generation && now < first + WINDOW,
            _ => false,
        };
        if !next.effects.iter().any(merges) {
            next.effects.push((generation, now));
        }
        let name = if self.kind == Kind::Write { WRITE_ONCE } else { KEYED_ONCE };
        ensure(next.effects.len() <= 1, name, || format!("{:?}", next.effects))?;
        Ok(next)
    }

    fn world(&self, state: &State, out: &mut Steps<Self>) {
        if state.clock + 1 < self.instants().len() {
            let mut next = state.clone();
            next.clock += 1;
            out.push((Step::Tick, Ok(next)));
        }
        let mut next = state.clone();
        next.is_silent = !state.is_silent;
        let step = if next.is_silent { Step::OwnerFallsSilent } else { Step::OwnerWakes };
        out.push((step, Ok(next)));
        if self.kind == Kind::Any {
            return;
        }
        for (i, attempt) in state.tries.iter().enumerate() {
            if !attempt.has_landed && !attempt.is_over && self.now(state) <= attempt.deadline {
                out.push((Step::Lands(Fence(i as u64 + 1)), self.lands(state, i)));
            }
        }
        let asked = self.truth(state);
        if asked.is_some() && asked != state.asked {
            out.push((Step::Put, Ok(State { asked, ..state.clone() })));
        }
    }

    fn expected_view(&self, state: &State) -> Option<View> {
        let record = record(&state.base);
        if record.outcome.is_some() {
            return Some(View::Done);
        }
        let newest = state.tries.last()?;
        let runs = !newest.is_closed && record.claim.is_some() && !state.is_silent;
        Some(if runs && self.now(state) < newest.deadline {
            View::Running
        } else if state.tries.iter().any(|t| !t.is_closed) {
            View::InDoubt
        } else if state.failed.is_some_and(|(_, permanent)| permanent) {
            View::Failed
        } else {
            View::Free
        })
    }

    fn has_way_out(&self, state: &State) -> bool {
        let now = *self.instants().last().unwrap_or(&0);
        let owners = |_: OwnerId| Liveness::Silent;
        let record = record(&state.base);
        let view = |base: &Base| self.table.view(&base.occurrences[0], &owners, now);
        let claims = |base: &Base| {
            let event = claim(Over::Nothing, 1, now, self.window());
            self.table.apply(base, 0, &event).is_ok()
        };
        if record.outcome.is_some() {
            return view(&state.base) == View::Done;
        }
        if view(&state.base) != View::InDoubt {
            return claims(&state.base);
        }
        let yes = self.table.apply(&state.base, 0, &happened(record.fence, now));
        let no = self.table.apply(&state.base, 0, &did_not_happen(record.fence, now));
        yes.is_ok_and(|base| view(&base) == View::Done)
            && no.is_ok_and(|base| view(&base) != View::InDoubt && claims(&base))
    }
}

impl Model for OneRecord<'_> {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        State {
            base: Base::default(),
            clock: 0,
            is_silent: false,
            tries: Vec::new(),
            failed: None,
            asked: None,
            effects: Vec::new(),
        }
    }

    fn steps(&self, state: &State, out: &mut Steps<Self>) {
        self.world(state, out);
        let mut events = self.ends(state);
        if state.tries.len() < self.attempts {
            events.extend(self.claims(state));
        }
        for event in events {
            let next = self.happen(state, &event).transpose();
            out.extend(next.map(|next| (Step::Event(event), next)));
        }
    }

    fn check(&self, state: &State, _is_last: bool) -> Checked<()> {
        let Some(expected) = self.expected_view(state) else {
            return Ok(());
        };
        let is = self.view(state);
        ensure(is == expected, VIEW_FOLLOWS, || format!("{is:?} instead of {expected:?}: {state:?}"))?;
        ensure(self.has_way_out(state), WAY_OUT, || format!("{state:?}"))
    }
}

const FOR: Kind = Kind::Keyed(KeyWindow::For(Duration::from_millis(WINDOW)));

/// Kind, attempts, texts.
pub(super) const BOUNDS: [(Kind, usize, u8); 7] = [
    (Kind::Any, 4, 1),
    (Kind::Any, 2, 2),
    (Kind::Write, 4, 1),
    (Kind::Keyed(KeyWindow::Permanent), 3, 1),
    (FOR, 3, 1),
    (FOR, 2, 2),
    (Kind::Keyed(KeyWindow::Unknown), 3, 1),
];

#[test]
fn every_order_of_events_on_one_record() {
    for (kind, attempts, texts) in BOUNDS {
        let model = OneRecord { table: &Real, kind, attempts: attempts + usize::from(super::is_long()), texts };
        must_hold(&format!("record {kind:?}, {attempts} attempts, {texts} texts"), &model);
    }
}
