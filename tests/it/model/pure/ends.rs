//! How executions end, and what their callers hear of it.

use toolonce::protocol::apply::{End as Ended, NewClaim, Over};
use toolonce::protocol::record::{FailureClass, Slot, Strictness};

use super::super::tools::End;
use super::*;

impl Model {
    /// The real execution `id` is the one that the model expected there.
    pub(in super::super) fn is(&mut self, id: usize, expected: &Expected) {
        self.by_id.insert(id, expected.body);
    }

    pub(in super::super) fn end(&mut self, id: usize, end: End) {
        let Some(body) = self.by_id.get(&id).and_then(|at| self.bodies[*at].take()) else { return };
        match body.ask.kind().is_read() {
            true => self.read_ended(id, &body, end),
            false => self.body_ended(id, &body, end),
        }
        self.pump();
    }

    fn body_ended(&mut self, id: usize, body: &Body, end: End) {
        let text = serde_json::json!({"execution": id}).to_string();
        let ended = match end {
            End::Succeeds => Ended::Success {
                body: Stored::Inline(text.clone().into_bytes()),
                fingerprint: fingerprint(&body.ask),
                order: 0,
            },
            End::Retryable | End::Permanent => Ended::NoEffect { failure: failure(end), not_before: 0 },
            End::Unknown | End::Panics | End::Hangs => Ended::Unknown { error: String::new() },
        };
        let event = Event::Ended { fence: body.fence, end: ended, at: self.now() };
        let recorded = self.record(body.unit).and_then(|record| record.outcome.as_ref()).map(|outcome| outcome.fence);
        let refused = self.apply(body.unit, &event).is_err();
        let is_write = body.ask.kind().effect == Effect::Write;
        if refused && end == End::Succeeds && is_write && recorded.is_some_and(|fence| fence != body.fence) {
            self.incidents += 1;
        }
        let Some(at) = body.drive else { return };
        match end {
            End::Succeeds => {
                let text = self.record(body.unit).map_or(text, text_of);
                let told = Told::Outcome { kind: ReplyKind::Executed, mark: Mark::Own, replays: 0, text };
                self.land(at, told);
            }
            End::Retryable | End::Permanent => self.failed(at, body.unit, failure(end)),
            End::Unknown | End::Panics | End::Hangs => self.after_doubt(at),
        }
    }

    fn failed(&mut self, at: usize, unit: Unit, failure: Failure) {
        let left = self.drives[at].started < self.drives[at].ask.kind().attempts;
        if self.record(unit).is_some_and(Record::is_tainted) {
            self.after_doubt(at);
        } else if failure.class == FailureClass::Retryable && left {
            self.drives[at].state = State::Sleeps;
        } else {
            self.land(at, Told::Failed(failure));
        }
    }

    fn read_ended(&mut self, id: usize, body: &Body, end: End) {
        let Some(at) = body.drive else { return };
        let told = match end {
            End::Succeeds => {
                let text = serde_json::json!({"execution": id}).to_string();
                let text = self.record_read(at, &text);
                Told::Outcome { kind: ReplyKind::Executed, mark: Mark::Own, replays: 0, text }
            }
            End::Permanent => Told::Failed(failure(end)),
            _ => Told::Failed(failure(End::Retryable)),
        };
        self.land(at, told);
    }

    /// A read is kept for redeliveries of its place; what was kept there first counts.
    fn record_read(&mut self, at: usize, text: &str) -> String {
        let drive = self.drives[at].clone();
        let (Some(turn), Some(nth)) = (drive.asked.turn, drive.spot.nth) else { return text.to_owned() };
        let mut base = self.base(drive.ask.record());
        let is_it = |slot: &Slot| slot.turn == turn && slot.nth == nth && slot.epoch == drive.epoch;
        let same = |record: &&Record| record.outcome.is_some() && record.is_about(drive.asked.fingerprint);
        if let Some(there) = base.occurrences.iter().find(|record| same(record) && record.slots.iter().any(is_it)) {
            return text_of(there);
        }
        let mut occurrence = drive.spot.occurrence;
        if base.occurrences.get(occurrence).is_none_or(|record| record.outcome.is_some()) {
            (occurrence, _) = growth::room_for_read(&mut base, growth::KEPT_OUTCOMES);
        }
        self.bases.insert(drive.ask.record(), base);
        let unit = (drive.ask.record(), occurrence);
        let claim = NewClaim {
            owner: self.me(),
            at: self.now(),
            attempt_deadline: ATTEMPT_DEADLINE,
            window: None,
            over: Over::Nothing,
            asker: drive.asked.asker(),
            permitted: false,
            settle_delay: LIMITS.settle_delay,
            strictness: Strictness::ReadOnly,
            executed: drive.asked.executed,
            kept_arguments: None,
            leaves: Vec::new(),
        };
        let body = Stored::Inline(text.as_bytes().to_vec());
        let claimed = self.apply(unit, &Event::Claim(Box::new(claim)));
        let fence = self.record(unit).map_or(Fence::default(), |record| record.fence);
        let end = Ended::Success { body, fingerprint: drive.asked.fingerprint, order: 0 };
        let ended = self.apply(unit, &Event::Ended { fence, end, at: self.now() });
        if claimed.is_err() || ended.is_err() {
            self.wrong.push(format!("a read could not be recorded: {claimed:?} {ended:?}"));
        }
        let there = Drive { spot: Spot { occurrence, ..drive.spot.clone() }, ..drive };
        self.note(&there, Some(nth), None, None, false);
        text.to_owned()
    }
}

fn failure(end: End) -> Failure {
    match end {
        End::Permanent => Failure { class: FailureClass::Permanent, message: "declined".to_owned() },
        _ => Failure { class: FailureClass::Retryable, message: "not now".to_owned() },
    }
}
