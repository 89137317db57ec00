//! The way of one call: decide, then wait, claim and execute, or ask; until there is an answer.

use toolonce::InDoubt;
use toolonce::protocol::apply::NewClaim;
use toolonce::protocol::decide::Act;
use toolonce::protocol::record::FailureClass;

use super::*;

/// What one round of the path came to.
enum Step {
    Again,
    Blocked,
    Done(Told),
}

impl Model {
    /// Lets all drives go as far as they get.
    pub(super) fn pump(&mut self) {
        loop {
            let waiting = (0..self.drives.len()).find(|&at| self.may_enter(at));
            if let Some(at) = waiting {
                self.run(at);
                continue;
            }
            let looking = self.drives.iter().position(|drive| matches!(drive.state, State::Looks { .. }));
            match looking {
                Some(at) => self.look_up(at),
                None => return,
            }
        }
    }

    fn may_enter(&self, at: usize) -> bool {
        let State::Waits(before) = self.drives[at].state else { return false };
        let before = self.drives.get(before);
        before.is_none_or(|before| before.has_entered || matches!(before.state, State::Done(_)))
    }

    /// Who slept goes on: the real one was seen to.
    pub(in super::super) fn wake(&mut self, reference: Option<&String>) -> bool {
        let about = |at: usize| {
            let unit = (self.drives[at].ask.record(), self.drives[at].spot.occurrence);
            self.drives[at].state == State::Sleeps
                && reference.is_none_or(|reference| self.reference(unit) == *reference)
        };
        let found = (0..self.drives.len()).find(|&at| about(at));
        let Some(at) = found else { return false };
        self.run(at);
        self.pump();
        true
    }

    pub(super) fn run(&mut self, at: usize) {
        loop {
            match self.round(at) {
                Step::Again => {}
                Step::Blocked => return,
                Step::Done(told) => return self.land(at, told),
            }
        }
    }

    /// The call has its answer; its followers hear of it.
    pub(super) fn land(&mut self, at: usize, told: Told) {
        let flight = match &told {
            Told::Outcome { .. } => Flight::Success,
            Told::Failed(failure) => Flight::Failed(failure.clone()),
            Told::InDoubt => Flight::InDoubt,
            _ => Flight::Nothing,
        };
        self.drives[at].state = State::Done(told);
        self.give_up_lead(at, &flight);
    }

    fn give_up_lead(&mut self, at: usize, flight: &Flight) {
        let Some(unit) = self.drives[at].leads.take() else { return };
        for follower in 0..self.drives.len() {
            match self.drives[follower].state {
                State::Follows(followed) if followed == unit => self.followed(follower, unit, flight),
                State::Stands(stood) if stood == unit => self.run(follower),
                _ => {}
            }
        }
    }

    fn followed(&mut self, at: usize, unit: Unit, flight: &Flight) {
        let told = match flight {
            Flight::Success => match self.record(unit).filter(|record| record.outcome.is_some()) {
                Some(record) => {
                    let mark = self.drives[at].mark.unwrap_or(Mark::Own);
                    let (replays, text) = (record.replays, text_of(record));
                    Told::Outcome { kind: ReplyKind::Joined, mark, replays, text }
                }
                None => return self.run(at),
            },
            Flight::Failed(failure) => Told::Failed(failure.clone()),
            Flight::InDoubt => Told::InDoubt,
            Flight::Nothing => return self.run(at),
        };
        self.land(at, told);
    }

    fn round(&mut self, at: usize) -> Step {
        let decision = self.decide(&self.drives[at]);
        let unit = (self.drives[at].ask.record(), decision.occurrence);
        let found = self.record(unit).cloned();
        let drive = &mut self.drives[at];
        drive.spot = Spot {
            occurrence: decision.occurrence,
            nth: decision.place.map(|place| place.nth),
            is_found: found.is_some(),
            is_doubt: matches!(decision.act, Act::LookUp { .. } | Act::Hold),
        };
        match decision.act.clone() {
            Act::Give(mark) => {
                let mark = self.take_place(at, mark);
                Step::Done(self.outcome(at, unit, mark))
            }
            Act::GiveFailure(failure) => Step::Done(Told::Failed(failure)),
            Act::GiveAgain(given) => {
                let text = found.as_ref().map(text_of).filter(|_| matches!(given, Given::Outcome { .. }));
                Step::Done(Told::Again(given, text))
            }
            Act::Conflict => {
                self.drives[at].has_entered = true;
                Step::Done(Told::Conflict(found.filter(|record| record.outcome.is_some()).as_ref().map(text_of)))
            }
            Act::Hold => {
                if self.drives[at].leads.is_none() && self.leader(unit).is_some() {
                    return self.follow(at, unit, decision.mark);
                }
                self.take_place(at, decision.mark);
                Step::Done(Told::InDoubt)
            }
            Act::Join { .. } => self.follow(at, unit, decision.mark),
            Act::Attempt { .. } if self.drives[at].ask.kind().is_read() => self.read(at),
            Act::Attempt { .. } | Act::LookUp { .. } => self.lead(at, unit, &decision),
            Act::Await { .. } | Act::Denied { .. } => {
                self.wrong.push(format!("nobody asked for permissions: {decision:?}"));
                Step::Done(Told::InDoubt)
            }
        }
    }

    fn leader(&self, unit: Unit) -> Option<usize> {
        self.drives.iter().position(|drive| drive.leads == Some(unit))
    }

    fn take_place(&mut self, at: usize, mark: Mark) -> Mark {
        if self.drives[at].mark.is_none() {
            self.drives[at].mark = Some(mark);
            self.drives[at].has_entered = true;
            let drive = self.drives[at].clone();
            if drive.asked.turn.is_some() {
                self.note(&drive, drive.spot.nth, None, None, false);
            }
        }
        self.drives[at].mark.unwrap_or(mark)
    }

    fn follow(&mut self, at: usize, unit: Unit, mark: Mark) -> Step {
        let Some(leader) = self.leader(unit) else {
            self.wrong.push(format!("{unit:?} runs and nobody leads it"));
            return Step::Done(Told::InDoubt);
        };
        if self.drives[leader].asked.fingerprint != self.drives[at].asked.fingerprint {
            self.drives[at].state = State::Stands(unit);
            return Step::Blocked;
        }
        self.take_place(at, mark);
        self.drives[at].state = State::Follows(unit);
        Step::Blocked
    }

    fn lead(&mut self, at: usize, unit: Unit, decision: &Decision) -> Step {
        if self.drives[at].leads.is_some_and(|leads| leads != unit) {
            self.give_up_lead(at, &Flight::Nothing);
        }
        if self.drives[at].leads.is_none() {
            if self.leader(unit).is_some() {
                return self.follow(at, unit, decision.mark);
            }
            self.drives[at].leads = Some(unit);
        }
        match decision.act {
            Act::LookUp { fence, no_counts_from } => {
                self.take_place(at, decision.mark);
                self.drives[at].state = State::Looks { fence, counts_from: no_counts_from };
                Step::Blocked
            }
            _ => self.attempt(at, unit, decision),
        }
    }

    fn attempt(&mut self, at: usize, unit: Unit, decision: &Decision) -> Step {
        let Act::Attempt { over, kept, permitted, .. } = decision.act else { return Step::Again };
        let drive = self.drives[at].clone();
        let kind = drive.ask.kind();
        let is_late = drive.patience_until <= self.monotonic;
        if drive.started >= kind.attempts || drive.look_ups > 0 && drive.started == 0 && is_late {
            return Step::Done(self.given_up(unit));
        }
        let record = self.record(unit);
        let executed = record.filter(|_| kept).map_or(drive.asked.executed, |record| record.executed);
        let keeps = matches!(kind.effect, Effect::Keyed(_)) || kind.asks();
        let claim = NewClaim {
            owner: self.me(),
            at: self.now(),
            attempt_deadline: ATTEMPT_DEADLINE,
            window: match kind.effect {
                Effect::Keyed(window) => Some(window),
                _ => None,
            },
            over,
            asker: drive.asked.asker(),
            permitted,
            settle_delay: LIMITS.settle_delay,
            strictness: kind.effect.into(),
            executed,
            kept_arguments: keeps.then(String::new),
            leaves: Vec::new(),
        };
        if let Err(refused) = self.apply(unit, &Event::Claim(Box::new(claim))) {
            self.wrong.push(format!("a claim was refused: {refused}: {decision:?}"));
            return Step::Done(Told::InDoubt);
        }
        // It stands where it was put, with or without an id that says so.
        let place = decision.place.map(|place| place.nth);
        self.drives[at].asked.nth = self.drives[at].asked.nth.or(place);
        let claimed = self.record(unit).cloned().unwrap_or_default();
        let deadline = claimed.claim.as_ref().map_or(0, |claim| claim.deadline);
        let drive = &mut self.drives[at];
        drive.mark.get_or_insert(Mark::Own);
        drive.has_entered = true;
        drive.spot.is_found = true;
        drive.started += 1;
        let drive = drive.clone();
        if drive.asked.turn.is_some() {
            self.note(&drive, drive.spot.nth, None, None, false);
        }
        if self.now() >= deadline {
            self.wrong.push("an attempt was claimed past its deadline".to_owned());
        }
        let deadline = self.monotonic + deadline.saturating_sub(self.now());
        let body = Body { ask: drive.ask, unit, fence: claimed.fence, drive: Some(at), deadline };
        let reference = self.reference(unit);
        self.begin(body, Some(reference));
        self.drives[at].state = State::Executes(claimed.fence);
        Step::Blocked
    }

    fn begin(&mut self, body: Body, reference: Option<String>) {
        self.expected.push(Expected { ask: body.ask, reference, body: self.bodies.len() });
        self.bodies.push(Some(body));
    }

    fn read(&mut self, at: usize) -> Step {
        let drive = &mut self.drives[at];
        drive.has_entered = true;
        drive.state = State::Reads;
        let unit = (drive.ask.record(), drive.spot.occurrence);
        let deadline = self.monotonic + millis(ATTEMPT_DEADLINE);
        let body = Body { ask: drive.ask, unit, fence: Fence::default(), drive: Some(at), deadline };
        self.begin(body, None);
        Step::Blocked
    }

    fn given_up(&self, unit: Unit) -> Told {
        let Some(record) = self.record(unit) else { return Told::Running };
        match &record.last {
            _ if record.is_tainted() => Told::InDoubt,
            Some(last) => Told::Failed(last.failure.clone()),
            None => {
                let message = "it is known by now that an earlier attempt did not happen".to_owned();
                Told::Failed(Failure { class: FailureClass::Retryable, message })
            }
        }
    }

    fn outcome(&self, at: usize, unit: Unit, mark: Mark) -> Told {
        let own = self.drives[at].started > 0 && mark == Mark::Own;
        let kind = if own { ReplyKind::Executed } else { ReplyKind::Replayed };
        let record = self.record(unit).cloned().unwrap_or_default();
        Told::Outcome { kind, mark, replays: record.replays, text: text_of(&record) }
    }

    fn look_up(&mut self, at: usize) {
        let State::Looks { fence, counts_from } = self.drives[at].state else { return };
        let unit = (self.drives[at].ask.record(), self.drives[at].spot.occurrence);
        let record = self.record(unit).cloned().unwrap_or_default();
        let n = self.look_ups.len();
        self.look_ups.push(self.reference(unit));
        let counts = counts_from.is_some_and(|from| self.now() >= from);
        let answer = match self.look {
            Look::Happened => Some(Said::Happened {
                body: Stored::Inline(serde_json::json!({"look_up": n}).to_string().into_bytes()),
                fingerprint: record.fingerprint,
                told_by: ToldBy::LookUp,
                order: 0,
            }),
            Look::DidNotHappen if counts => Some(Said::DidNotHappen),
            _ => None,
        };
        if let Some(answer) = answer {
            // Refused means that the record moved on.
            let _ = self.apply(unit, &Event::Answered { fence, answer, at: self.now() });
            return self.run(at);
        }
        let patience = self.drives[at].patience_until.saturating_sub(self.monotonic);
        let now = self.now();
        let drive = &mut self.drives[at];
        drive.look_ups += 1;
        let resends = matches!(drive.ask.kind().effect, Effect::Keyed(_));
        let counts_later = counts_from.is_some_and(|from| from > now && from - now < patience);
        let sleeps = match drive.look_ups >= if resends { 3 } else { 5 } {
            true => counts_later && !resends,
            false => patience > 0,
        };
        if sleeps {
            drive.state = State::Sleeps;
        } else {
            drive.looked_up = true;
            self.run(at);
        }
    }

    /// In doubt after an execution of this very call: the ladder, as far as it may still climb it.
    pub(super) fn after_doubt(&mut self, at: usize) {
        let drive = &mut self.drives[at];
        drive.spot.is_doubt = true;
        let kind = drive.ask.kind();
        let left = drive.started < kind.attempts;
        let reruns = left && (kind.effect == Effect::Idempotent || kind.in_doubt == InDoubt::Resend);
        if reruns {
            drive.state = State::Sleeps;
        } else if kind.asks() {
            self.run(at);
        } else {
            self.land(at, Told::InDoubt);
        }
    }
}
