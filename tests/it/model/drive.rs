//! One call in the pure model: what the guard does around a decision.

use toolonce::protocol::approval::ask;
use toolonce::protocol::decide::{Act, Asked, Decision, Facts, Here, Limits, Mark, Place, decide};
use toolonce::protocol::notes::{Note, NotedPlace, note};
use toolonce::protocol::record::{Approval, ApprovalState, Body, FailureClass, Fence, Given, Reason};
use toolonce::{Millis, Policy, ReplyKind};

use super::pure::{Flight, Pure, executed, fingerprint, millis};
use super::story::{Calling, DEADLINE, PATIENCE, SETTLE, Tool, Unit};
use super::{Heard, Name, RUN};

const LIMITS: Limits = Limits { attempt_deadline: DEADLINE, settle_delay: SETTLE };
/// So often in a row is a marked outcome given before the model is told to stop.
pub(super) const STOP: u32 = 5;

#[derive(Debug)]
pub(super) enum Told {
    Outcome { kind: ReplyKind, mark: Mark, replays: u32, body: Body },
    Again(Given, Option<Body>),
    Failed(FailureClass),
    Running,
    InDoubt,
    Awaiting,
    Denied,
    Conflict(Option<Body>),
    Diverged,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Waits {
    Nothing,
    Entry,
    Body,
    /// For the answer of a look-up; a *no* counts if it was asked at this time or later.
    LookUp(usize, Fence, Option<Millis>),
    /// For the end of the flight of this occurrence, with the mark of its outcome; without, to look again.
    Flight(usize, Option<Mark>),
    /// In the order in which it fell asleep.
    Until(Millis, u64),
    /// For a change of the record, and no longer than that.
    Change(Millis, u64),
    Never,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Spot {
    pub(super) occurrence: usize,
    pub(super) place: Option<Place>,
    pub(super) downstream: Option<Name>,
    pub(super) is_doubt: bool,
    pub(super) is_found: bool,
    is_awaited: bool,
}

#[derive(Debug)]
pub(super) struct Drive {
    pub(super) unit: Unit,
    pub(super) note: u8,
    pub(super) asked: Asked,
    pub(super) policy: Policy,
    pub(super) is_of_message: bool,
    pub(super) before: Option<usize>,
    pub(super) has_entered: bool,
    pub(super) patience_until: Millis,
    /// Which occurrence it leads.
    pub(super) leads: Option<usize>,
    pub(super) started: u32,
    pub(super) looked_up: bool,
    pub(super) look_ups: u32,
    pub(super) mark: Option<Mark>,
    pub(super) stands_at: Option<u32>,
    pub(super) spot: Spot,
    pub(super) waits: Waits,
    pub(super) told: Option<(Told, Spot)>,
}

/// Who waits for a call.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) drive: usize,
    pub(super) shown: bool,
    pub(super) patience_until: Millis,
    pub(super) has_left: bool,
    /// Whether its message is answered as a whole.
    is_of_message: bool,
    answer: Option<(Told, Spot)>,
    pub(super) heard: Option<Heard>,
}

impl Caller {
    pub(super) fn of(drive: usize, call: &Calling, is_of_message: bool) -> Self {
        Self { drive, shown: call.shown, patience_until: 0, has_left: false, is_of_message, answer: None, heard: None }
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.has_left && self.answer.is_none() && self.heard.is_none()
    }
}

impl Pure<'_> {
    pub(super) fn begin(&mut self, call: &Calling, nth: Option<u32>, before: Option<usize>) -> usize {
        let asked = Asked {
            run: RUN.to_owned(),
            turn: call.turn,
            nth,
            id: call.id(),
            fingerprint: fingerprint(call.note),
            executed: executed(call.note),
            again: false,
            looked_up: false,
        };
        self.drives.push(Drive {
            unit: call.unit(),
            note: call.note,
            asked,
            policy: call.tool.policy(),
            is_of_message: nth.is_some(),
            before,
            has_entered: false,
            patience_until: self.now + millis(PATIENCE),
            leads: None,
            started: 0,
            looked_up: false,
            look_ups: 0,
            mark: None,
            stands_at: None,
            spot: Spot::default(),
            waits: if before.is_some() { Waits::Entry } else { Waits::Nothing },
            told: None,
        });
        self.drives.len() - 1
    }

    /// Lets every call go as far as it gets, and its caller hear what came of it.
    pub(super) fn go_on(&mut self) {
        loop {
            let through = |at: usize| self.drives[at].has_entered || self.drives[at].waits == Waits::Never;
            let enters = |drive: &Drive| drive.waits == Waits::Entry && drive.before.is_none_or(through);
            if let Some(at) = self.drives.iter().position(enters) {
                self.drives[at].waits = Waits::Nothing;
            }
            if let Some(at) = self.drives.iter().position(|drive| drive.waits == Waits::Nothing) {
                self.round(at);
                continue;
            }
            // Meanwhile everybody else has gone on.
            let asks = |(at, drive): (usize, &Drive)| match drive.waits {
                Waits::LookUp(occurrence, fence, from) => Some((at, occurrence, fence, from)),
                _ => None,
            };
            let Some((at, occurrence, fence, from)) = self.drives.iter().enumerate().find_map(asks) else { break };
            self.drives[at].waits = Waits::Nothing;
            self.look_up(at, occurrence, fence, from);
        }
        self.listen();
    }

    /// Callers take their answers: of a message all at once.
    fn listen(&mut self) {
        for at in 0..self.callers.len() {
            let caller = &mut self.callers[at];
            if caller.patience_until == 0 {
                caller.patience_until = self.drives[caller.drive].patience_until;
            }
            if caller.is_waiting()
                && let Some(told) = self.drives[caller.drive].told.take()
            {
                caller.answer = Some(told);
            }
        }
        let incomplete = self.callers.iter().any(|caller| caller.is_of_message && caller.is_waiting());
        for at in 0..self.callers.len() {
            if self.callers[at].is_of_message && incomplete {
                continue;
            }
            if let Some((told, spot)) = self.callers[at].answer.take() {
                self.callers[at].heard = Some(self.finish(at, told, &spot));
            }
        }
    }

    pub(super) fn lose_patience(&mut self, at: usize) {
        let spot = self.drives[self.callers[at].drive].spot.clone();
        let told = match (spot.is_awaited, spot.is_doubt) {
            (true, _) => Told::Awaiting,
            (false, true) => Told::InDoubt,
            (false, false) => Told::Running,
        };
        self.callers[at].answer = Some((told, spot));
    }

    fn decide(&self, at: usize) -> Decision {
        let drive = &self.drives[at];
        let base = self.bases.get(&drive.unit).cloned().unwrap_or_default();
        let living = self.bodies.iter().filter(|body| body.unit == drive.unit);
        let here = Here {
            bodies: living.map(|body| (body.occurrence, body.fence)).collect(),
            taken: self.taken.get(&drive.unit).cloned().unwrap_or_default(),
        };
        let facts = Facts {
            base: &base,
            history: &self.history,
            last_turn: self.last_turn,
            answered: self.last_turn,
            owners: &self.owners(),
            here: &here,
            reopened: 0,
            look_alike: None,
            now: self.now,
            wall: self.now,
        };
        let nth = drive.asked.nth.or(drive.stands_at);
        let asked = Asked { nth, looked_up: drive.looked_up, ..drive.asked.clone() };
        decide(&facts, &asked, &drive.policy, LIMITS)
    }

    pub(super) fn name(&self, unit: Unit, occurrence: usize) -> Option<Name> {
        self.record(unit, occurrence).map(|record| (occurrence, record.generation))
    }

    fn round(&mut self, at: usize) {
        let decision = self.decide(at);
        let (unit, occurrence) = (self.drives[at].unit, decision.occurrence);
        let downstream = self.name(unit, occurrence);
        let spot = &mut self.drives[at].spot;
        (spot.occurrence, spot.place, spot.downstream) = (occurrence, decision.place, downstream);
        spot.is_found = downstream.is_some();
        spot.is_doubt = matches!(decision.act, Act::LookUp { .. } | Act::Hold);
        spot.is_awaited &= matches!(decision.act, Act::Await { .. });
        match decision.act.clone() {
            Act::Give(mark) => {
                let mark = self.take_place(at, &decision, mark);
                let own = self.drives[at].started > 0 && mark == Mark::Own;
                let kind = if own { ReplyKind::Executed } else { ReplyKind::Replayed };
                let told = self.outcome(unit, occurrence, kind, mark);
                self.done(at, told);
            }
            Act::GiveFailure(failure) => self.done(at, Told::Failed(failure.class)),
            Act::GiveAgain(given) => {
                let body = match given {
                    Given::Outcome { .. } => self.body(unit, occurrence),
                    _ => None,
                };
                self.done(at, Told::Again(given, body));
            }
            Act::Await { question } => self.wait_for_permission(at, question),
            Act::Denied { .. } => self.done(at, Told::Denied),
            Act::Conflict => {
                self.drives[at].has_entered = true;
                let stored = self.body(unit, occurrence);
                self.done(at, Told::Conflict(stored));
            }
            Act::Hold => {
                if self.drives[at].leads.is_none() && self.flight(unit, occurrence).is_some() {
                    return self.follow(at, &decision);
                }
                self.take_place(at, &decision, decision.mark);
                self.done(at, Told::InDoubt);
            }
            Act::Join { .. } => {
                self.give_up_lead(at, &Told::Running);
                assert!(self.flight(unit, occurrence).is_some(), "what runs is led by a call of this process");
                self.follow(at, &decision);
            }
            Act::Attempt { .. } if unit.0 == Tool::Read => self.read(at, &decision),
            Act::Attempt { .. } | Act::LookUp { .. } => self.lead(at, &decision),
        }
    }

    pub(super) fn body(&self, unit: Unit, occurrence: usize) -> Option<Body> {
        self.record(unit, occurrence)?.outcome.as_ref().map(|outcome| outcome.body.clone())
    }

    fn outcome(&self, unit: Unit, occurrence: usize, kind: ReplyKind, mark: Mark) -> Told {
        let replays = self.record(unit, occurrence).map_or(0, |record| record.replays);
        Told::Outcome { kind, mark, replays, body: self.body(unit, occurrence).unwrap_or(Body::Dropped) }
    }

    pub(super) fn place_of(&self, at: usize, nth: u32) -> Option<NotedPlace> {
        let asked = &self.drives[at].asked;
        asked.turn.map(|turn| NotedPlace {
            run: asked.run.clone(),
            turn,
            nth,
            id: asked.id.clone(),
            fingerprint: asked.fingerprint,
        })
    }

    pub(super) fn note(&mut self, unit: Unit, noted: &Note) {
        if let Some(base) = self.bases.get_mut(&unit) {
            note(base, &self.history, noted);
        }
    }

    pub(super) fn take_place(&mut self, at: usize, decision: &Decision, mark: Mark) -> Mark {
        if let Some(mark) = self.drives[at].mark {
            return mark;
        }
        self.drives[at].mark = Some(mark);
        self.drives[at].has_entered = true;
        if let Some(place) = decision.place {
            let (unit, place) = (self.drives[at].unit, self.place_of(at, place.nth));
            let occurrence = decision.occurrence;
            self.note(unit, &Note { occurrence, place, given: None, delivered: None, replay: false });
        }
        mark
    }

    pub(super) fn flight(&self, unit: Unit, occurrence: usize) -> Option<Flight> {
        self.flights.iter().find(|flight| flight.unit == unit && flight.occurrence == occurrence).copied()
    }

    pub(super) fn follow(&mut self, at: usize, decision: &Decision) {
        let flight = self.flight(self.drives[at].unit, decision.occurrence).unwrap();
        let mark = (flight.fingerprint == self.drives[at].asked.fingerprint)
            .then(|| self.take_place(at, decision, decision.mark));
        self.drives[at].waits = Waits::Flight(decision.occurrence, mark);
    }

    /// It leads no more: those that follow are told what it is told.
    pub(super) fn give_up_lead(&mut self, at: usize, told: &Told) {
        let Some(occurrence) = self.drives[at].leads.take() else { return };
        let unit = self.drives[at].unit;
        self.flights.retain(|flight| flight.leader != at);
        for n in 0..self.drives.len() {
            let drive = &self.drives[n];
            let Waits::Flight(of, mark) = drive.waits.clone() else { continue };
            if drive.unit != unit || of != occurrence {
                continue;
            }
            self.drives[n].waits = Waits::Nothing;
            let Some(mark) = mark else { continue };
            match told {
                Told::Outcome { .. } if self.body(unit, of).is_some() => {
                    let told = self.outcome(unit, of, ReplyKind::Joined, mark);
                    self.done(n, told);
                }
                Told::Failed(class) => self.done(n, Told::Failed(*class)),
                Told::InDoubt => self.done(n, Told::InDoubt),
                _ => {}
            }
        }
    }

    pub(super) fn done(&mut self, at: usize, told: Told) {
        self.drives[at].waits = Waits::Never;
        self.give_up_lead(at, &told);
        let spot = self.drives[at].spot.clone();
        self.drives[at].told = Some((told, spot));
    }

    pub(super) fn sleep(&mut self, at: usize, time: Millis) {
        let place = self.place();
        self.drives[at].waits = Waits::Until(self.now + time, place);
    }

    /// Without the jitter.
    pub(super) fn back_off(&mut self, at: usize, round: u32) {
        self.sleep(at, (200 << (round - 1).min(6)).min(10_000));
    }

    pub(super) fn patience_left(&self, at: usize) -> Millis {
        self.drives[at].patience_until.saturating_sub(self.now)
    }

    fn wait_for_permission(&mut self, at: usize, question: Option<Reason>) {
        self.give_up_lead(at, &Told::Running);
        self.drives[at].has_entered = true;
        self.drives[at].spot.is_awaited = true;
        let (unit, asked) = (self.drives[at].unit, self.drives[at].asked.clone());
        if let Some(reason) = question {
            let question = Approval {
                asker: asked.asker(),
                asked_at: self.now,
                reason,
                arguments: None,
                state: ApprovalState::Pending,
                signed: None,
                turn: asked.turn,
            };
            let base = self.bases.entry(unit).or_default();
            *base = ask(base, question).expect("few questions");
            self.message_is_recorded(at);
            self.changed(unit);
            return;
        }
        if asked.turn < self.last_turn || self.patience_left(at) == 0 {
            return self.done(at, Told::Awaiting);
        }
        let place = self.place();
        self.drives[at].waits = Waits::Change(self.now + 250, place);
    }

    /// Wakes those that wait for a change of the record.
    pub(super) fn changed(&mut self, unit: Unit) {
        for drive in self.drives.iter_mut().filter(|drive| drive.unit == unit) {
            if matches!(drive.waits, Waits::Change(..)) {
                drive.waits = Waits::Nothing;
            }
        }
    }

    pub(super) fn message_is_recorded(&mut self, at: usize) {
        if let Some(turn) = self.drives[at].asked.turn.filter(|_| self.drives[at].is_of_message) {
            let recorded = self.recorded.get(&turn).is_some_and(|epoch| self.history.holds(*epoch, turn));
            if !recorded {
                self.recorded.insert(turn, self.history.epoch());
            }
        }
    }
}
