//! An attempt of a call in the pure model, from the lead to what its end allows.

use std::collections::VecDeque;

use toolonce::protocol::apply::{Answer, Event, NewClaim, Over, apply};
use toolonce::protocol::decide::{Act, Asked, Decision, Mark};
use toolonce::protocol::notes::Note;
use toolonce::protocol::record::{Body, FailureClass, Fence, Record, ToldBy};
use toolonce::{Effect, KeyWindow, Millis, ReplyKind};

use super::Name;
use super::drive::{Told, Waits};
use super::pure::{Flight, Living, Pure, result};
use super::story::{DEADLINE, End, SETTLE, Tool, Unit};

/// How an attempt ended for the call that made it.
#[derive(Debug)]
pub(super) enum Ending {
    Success(Body),
    Failed(FailureClass),
    Unknown,
}

impl Pure<'_> {
    pub(super) fn lead(&mut self, at: usize, decision: &Decision) {
        let (unit, occurrence) = (self.drives[at].unit, decision.occurrence);
        if self.drives[at].leads.is_some_and(|leads| leads != occurrence) {
            self.give_up_lead(at, &Told::Running);
        }
        if self.drives[at].leads.is_none() {
            if self.flight(unit, occurrence).is_some() {
                return self.follow(at, decision);
            }
            let fingerprint = self.drives[at].asked.fingerprint;
            self.flights.push(Flight { unit, occurrence, leader: at, fingerprint });
            self.drives[at].leads = Some(occurrence);
            return;
        }
        match decision.act {
            Act::Attempt { over, not_before, permitted, .. } => {
                self.attempt(at, decision, (over, permitted), not_before);
            }
            Act::LookUp { fence, no_counts_from } => {
                self.take_place(at, decision, decision.mark);
                self.drives[at].waits = Waits::LookUp(occurrence, fence, no_counts_from);
            }
            _ => {}
        }
    }

    fn attempt(&mut self, at: usize, decision: &Decision, how: (Over, bool), not_before: Millis) {
        let (unit, occurrence) = (self.drives[at].unit, decision.occurrence);
        let drive = &self.drives[at];
        let is_late = drive.look_ups > 0 && drive.started == 0 && self.patience_left(at) == 0;
        if drive.started >= unit.0.attempts() || is_late {
            let told = self.given_up(unit, occurrence);
            return self.done(at, told);
        }
        if not_before > self.now {
            if not_before > self.drives[at].patience_until {
                if self.record(unit, occurrence).is_some() {
                    self.take_place(at, decision, decision.mark);
                }
                let told = self.given_up(unit, occurrence);
                return self.done(at, told);
            }
            return self.sleep(at, not_before - self.now);
        }
        let drive = &self.drives[at];
        let alone = !drive.is_of_message && drive.policy.effect().is_write();
        if let Some(turn) = drive.asked.turn.filter(|_| alone)
            && !self.admits(turn, unit)
        {
            return self.done(at, Told::Diverged);
        }
        self.claim(at, decision, how);
    }

    fn claim(&mut self, at: usize, decision: &Decision, (over, permitted): (Over, bool)) {
        let (unit, occurrence) = (self.drives[at].unit, decision.occurrence);
        let (asked, policy) = (self.drives[at].asked.clone(), &self.drives[at].policy);
        let window = match policy.effect() {
            Effect::Keyed(window) => Some(window),
            _ => None,
        };
        let effect = policy.effect();
        let claim = self.new_claim(&asked, effect, window, (over, permitted));
        let base = self.bases.get(&unit).cloned().unwrap_or_default();
        let next = apply(&base, occurrence, &Event::Claim(Box::new(claim))).expect("what was decided may be claimed");
        self.bases.insert(unit, next);
        self.changed(unit);
        let place = decision.place.and_then(|place| self.place_of(at, place.nth));
        self.note(unit, &Note { occurrence, place, given: None, delivered: None, replay: false });
        self.message_is_recorded(at);
        let record = self.record(unit, occurrence).unwrap();
        let (fence, generation) = (record.fence, record.generation);
        let deadline = record.claim.as_ref().unwrap().deadline;
        let name = (occurrence, generation);
        self.begun.entry(unit).or_default().push((name, fence.0, self.drives[at].note));
        let drive = &mut self.drives[at];
        drive.mark.get_or_insert(Mark::Own);
        drive.has_entered = true;
        (drive.spot.is_found, drive.spot.downstream, drive.spot.place) = (true, Some(name), decision.place);
        drive.stands_at = decision.place.map(|place| place.nth);
        drive.started += 1;
        drive.waits = Waits::Body;
        let end = self.ends.get_mut(&unit).and_then(VecDeque::pop_front).unwrap_or(End::Succeeds);
        let place = self.place();
        let fingerprint = asked.fingerprint;
        self.bodies.push(Living { unit, occurrence, fence, fingerprint, deadline, end, of: Some(at), place });
    }

    fn new_claim(
        &self,
        asked: &Asked,
        effect: Effect,
        window: Option<KeyWindow>,
        (over, permitted): (Over, bool),
    ) -> NewClaim {
        NewClaim {
            owner: self.me,
            at: self.now,
            attempt_deadline: DEADLINE,
            window,
            over,
            asker: asked.asker(),
            turn: asked.turn,
            permitted,
            settle_delay: SETTLE,
            strictness: effect.into(),
            executed: asked.executed,
            kept_arguments: None,
            leaves: Vec::new(),
        }
    }

    /// The attempt that the call made has ended, or is past its deadline.
    pub(super) fn ended(&mut self, at: usize, ending: Ending) {
        let (unit, occurrence) = (self.drives[at].unit, self.drives[at].leads.expect("it leads what it began"));
        let left = self.drives[at].started < unit.0.attempts();
        self.drives[at].waits = Waits::Nothing;
        let is_tainted = self.record(unit, occurrence).is_some_and(Record::is_tainted);
        match ending {
            Ending::Success(body) => {
                // Whoever said first how it ended has said it.
                let stored = self.body(unit, occurrence).unwrap_or(body);
                let told = Told::Outcome { kind: ReplyKind::Executed, mark: Mark::Own, replays: 0, body: stored };
                self.done(at, told);
            }
            Ending::Failed(_) if is_tainted => self.after_doubt(at, left),
            Ending::Failed(FailureClass::Retryable) if left => {
                let started = self.drives[at].started;
                self.back_off(at, started);
            }
            Ending::Failed(class) => self.done(at, Told::Failed(class)),
            Ending::Unknown => self.after_doubt(at, left),
        }
    }

    fn after_doubt(&mut self, at: usize, left: bool) {
        self.drives[at].spot.is_doubt = true;
        let (tool, started) = (self.drives[at].unit.0, self.drives[at].started);
        let resends = matches!(tool, Tool::Idempotent | Tool::Window | Tool::Forever | Tool::Unstated);
        if left && resends {
            self.back_off(at, started);
        } else if !tool.looks_up() {
            self.done(at, Told::InDoubt);
        }
    }

    fn given_up(&self, unit: Unit, occurrence: usize) -> Told {
        let Some(record) = self.record(unit, occurrence) else { return Told::Running };
        match &record.last {
            _ if record.is_tainted() => Told::InDoubt,
            Some(last) => Told::Failed(last.failure.class),
            None => Told::Failed(FailureClass::Retryable),
        }
    }

    pub(super) fn look_up(&mut self, at: usize, occurrence: usize, fence: Fence, no_counts_from: Option<Millis>) {
        let unit = self.drives[at].unit;
        let name = self.name(unit, occurrence).unwrap();
        let blind = self.blind.entry(unit).or_default();
        let is_blind = *blind > 0;
        *blind = blind.saturating_sub(1);
        let counts = no_counts_from.is_some_and(|from| self.now >= from);
        let answer = if is_blind {
            None
        } else if self.happened(unit, name) {
            let record = self.record(unit, occurrence).unwrap();
            let body = Body::Inline(result(self.first_effect(unit, name)).into_bytes());
            let fingerprint = record.fingerprint;
            Some(Answer::Happened { body, fingerprint, told_by: ToldBy::LookUp, order: 0 })
        } else {
            counts.then_some(Answer::DidNotHappen)
        };
        if let Some(answer) = answer {
            let at = self.now;
            self.happen(unit, occurrence, &Event::Answered { fence, answer, at });
            return;
        }
        self.drives[at].look_ups += 1;
        let look_ups = self.drives[at].look_ups;
        let resends = matches!(self.drives[at].policy.effect(), Effect::Keyed(_));
        let patience = self.patience_left(at);
        let later = no_counts_from.filter(|from| *from > self.now && from - self.now < patience);
        match (look_ups >= if resends { 3 } else { 5 }, later) {
            (true, Some(from)) if !resends => self.sleep(at, from - self.now),
            (true, _) => self.drives[at].looked_up = true,
            (false, _) if patience == 0 => self.drives[at].looked_up = true,
            (false, _) => self.back_off(at, look_ups),
        }
    }

    /// The number of the first effect under this name.
    fn first_effect(&self, unit: Unit, name: Name) -> usize {
        1 + self.effects[&unit].iter().position(|effect| *effect == name).unwrap()
    }
}
