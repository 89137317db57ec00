//! What a caller of the pure model hears, and what is noted when it takes that; and reads, which claim nothing.

use toolonce::ReplyKind;
use toolonce::protocol::apply::{End as Ended, Event, NewClaim, Over, apply};
use toolonce::protocol::decide::{Decision, Mark};
use toolonce::protocol::growth::{KEPT_OUTCOMES, room_for_read};
use toolonce::protocol::notes::{Note, NotedPlace, note};
use toolonce::protocol::record::{Body, Failure, FailureClass, Given, Strictness};

use super::Heard;
use super::drive::{STOP, Spot, Told};
use super::pure::{Pure, result};
use super::story::{DEADLINE, End, SETTLE, Tool, Unit};

/// A reply in the making.
struct Draft {
    kind: ReplyKind,
    is_marked: bool,
    body: Option<Body>,
    given: Option<Given>,
    /// Whether it is a repeat by the model.
    is_repeat: bool,
}

fn draft(told: Told) -> Draft {
    let bare = |kind| Draft { kind, is_marked: false, body: None, given: None, is_repeat: false };
    let status = |kind: ReplyKind| {
        let given = Given::Status { kind: kind as u8, text: String::new() };
        Draft { given: Some(given), ..bare(kind) }
    };
    match told {
        Told::Outcome { kind, mark, replays, body } => {
            let stop = kind == ReplyKind::Replayed && mark != Mark::Own && replays + 1 >= STOP;
            let kind = if stop { ReplyKind::Stopped } else { kind };
            outcome(kind, (mark != Mark::Own).then(|| "marked".to_owned()), stop, body)
        }
        Told::Again(Given::Outcome { mark, stop }, body) => {
            let kind = if stop { ReplyKind::Stopped } else { ReplyKind::Replayed };
            Draft { is_repeat: false, ..outcome(kind, mark, stop, body.unwrap_or(Body::Dropped)) }
        }
        Told::Again(given @ Given::Failure(_), _) => Draft { given: Some(given), ..bare(ReplyKind::Failed) },
        Told::Again(Given::Status { kind, text }, _) => {
            let all = [ReplyKind::Running, ReplyKind::InDoubt];
            let of_code = all.into_iter().find(|known| *known as u8 == kind).expect("only these are noted");
            Draft { given: Some(Given::Status { kind, text }), ..bare(of_code) }
        }
        Told::Failed(class) => {
            let given = Given::Failure(Failure { class, message: String::new() });
            Draft { given: Some(given), ..bare(ReplyKind::Failed) }
        }
        Told::Running => status(ReplyKind::Running),
        Told::InDoubt => status(ReplyKind::InDoubt),
        Told::Awaiting => bare(ReplyKind::AwaitingApproval),
        Told::Denied => bare(ReplyKind::Denied),
        Told::Conflict(body) => Draft { body, ..bare(ReplyKind::Conflict) },
        Told::Diverged => bare(ReplyKind::Diverged),
    }
}

fn outcome(kind: ReplyKind, mark: Option<String>, stop: bool, body: Body) -> Draft {
    let is_marked = mark.is_some();
    let is_repeat = is_marked && matches!(kind, ReplyKind::Replayed | ReplyKind::Stopped);
    Draft { kind, is_marked, body: Some(body), given: Some(Given::Outcome { mark, stop }), is_repeat }
}

impl Pure<'_> {
    /// The caller takes its answer.
    pub(super) fn finish(&mut self, at: usize, told: Told, spot: &Spot) -> Heard {
        let (drive, shown) = (self.callers[at].drive, self.callers[at].shown);
        let (unit, asked) = (self.drives[drive].unit, self.drives[drive].asked.clone());
        let draft = draft(told);
        let place = spot.place.and_then(|place| self.place_of(drive, place.nth));
        let carries = draft.body.is_some() && draft.kind != ReplyKind::Conflict;
        if spot.is_found {
            let (occurrence, given) = (spot.occurrence, draft.given.clone());
            if carries && place.is_none() {
                self.take(unit, occurrence, true);
            }
            if (place.is_some() && given.is_some()) || draft.is_repeat {
                let (place, delivered, replay) = (place.clone(), carries.then_some(true), draft.is_repeat);
                self.note(unit, &Note { occurrence, place, given, delivered, replay });
            }
            if carries && !shown {
                self.not_shown(unit, occurrence, place);
            }
        }
        self.last_turn = self.last_turn.max(asked.turn);
        let text = match draft.body {
            Some(Body::Inline(bytes)) => Some(String::from_utf8(bytes).unwrap()),
            _ => None,
        };
        Heard { kind: draft.kind, is_marked: draft.is_marked, text, name: spot.downstream }
    }

    fn not_shown(&mut self, unit: Unit, occurrence: usize, place: Option<NotedPlace>) {
        match place {
            None => self.take(unit, occurrence, false),
            place => {
                self.note(unit, &Note { occurrence, place, given: None, delivered: Some(false), replay: false });
            }
        }
    }

    /// Only a tool that can be asked for the same again goes by what was taken without a turn.
    fn take(&mut self, unit: Unit, occurrence: usize, taken: bool) {
        if unit.0 != Tool::Each {
            return;
        }
        let known = self.taken.entry(unit).or_default();
        known.retain(|other| *other != occurrence);
        known.extend(taken.then_some(occurrence));
    }

    /// A read claims nothing: it runs at once, and is kept for redeliveries of its place.
    pub(super) fn read(&mut self, at: usize, decision: &Decision) {
        let (unit, note) = (self.drives[at].unit, self.drives[at].note);
        let begun = self.begun.entry(unit).or_default();
        begun.push(((0, 0), 0, note));
        let body = Body::Inline(result(begun.len()).into_bytes());
        let end = self.ends.get_mut(&unit).and_then(std::collections::VecDeque::pop_front).unwrap_or(End::Succeeds);
        let told = match end {
            End::Succeeds => {
                let body = self.record_read(at, decision, body);
                Told::Outcome { kind: ReplyKind::Executed, mark: Mark::Own, replays: 0, body }
            }
            End::Permanent => Told::Failed(FailureClass::Permanent),
            _ => Told::Failed(FailureClass::Retryable),
        };
        self.done(at, told);
    }

    /// What its place has from now on.
    fn record_read(&mut self, at: usize, decision: &Decision, body: Body) -> Body {
        let Some(place) = decision.place.and_then(|place| self.place_of(at, place.nth)) else { return body };
        let (unit, asked) = (self.drives[at].unit, self.drives[at].asked.clone());
        let mut base = self.bases.get(&unit).cloned().unwrap_or_default();
        let epoch = self.history.epoch();
        for record in &base.occurrences {
            let mut slots = record.slots.iter();
            let is_there = slots.any(|slot| (slot.turn, slot.nth, slot.epoch) == (place.turn, place.nth, epoch));
            let outcome = record.outcome.as_ref().filter(|_| is_there && record.is_about(asked.fingerprint));
            if let Some(outcome) = outcome {
                return outcome.body.clone();
            }
        }
        let mut occurrence = decision.occurrence;
        if base.occurrences.get(occurrence).is_none_or(|record| record.outcome.is_some()) {
            (occurrence, _) = room_for_read(&mut base, KEPT_OUTCOMES);
        }
        let claim = NewClaim {
            owner: self.me,
            at: self.now,
            attempt_deadline: DEADLINE,
            window: None,
            over: Over::Nothing,
            asker: asked.asker(),
            turn: asked.turn,
            permitted: false,
            settle_delay: SETTLE,
            strictness: Strictness::ReadOnly,
            executed: asked.executed,
            kept_arguments: None,
            leaves: Vec::new(),
        };
        let claimed = apply(&base, occurrence, &Event::Claim(Box::new(claim))).expect("there is room");
        let fence = claimed.occurrences[occurrence].fence;
        let end = Ended::Success { body: body.clone(), fingerprint: asked.fingerprint, order: 0 };
        let mut next = apply(&claimed, occurrence, &Event::Ended { fence, end, at: self.now }).expect("it ran");
        note(
            &mut next,
            &self.history,
            &Note { occurrence, place: Some(place), given: None, delivered: None, replay: false },
        );
        self.bases.insert(unit, next);
        body
    }
}
