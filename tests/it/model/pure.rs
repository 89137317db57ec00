//! The protocol with the least around it: its records, who calls, which bodies live, and what time it is.

use std::collections::{BTreeMap, VecDeque};

use toolonce::key::{Digest, Fingerprint};
use toolonce::protocol::apply::{Answer, End as Ended, Event, apply};
use toolonce::protocol::approval::is_expired;
use toolonce::protocol::growth::{self, KEPT_SLOTS};
use toolonce::protocol::history::{History, Seen};
use toolonce::protocol::record::{
    Approval, ApprovalState, Asker, Base, Body, Failure, FailureClass, Fence, Liveness, OwnerId, Record, ToldBy, Turn,
    View, view,
};
use toolonce::{Effect, Millis};

use super::attempt::Ending;
use super::drive::{Caller, Drive, Waits};
use super::story::{Calling, Comes, End, SETTLE, SOON, Step, Story, Unit};
use super::{Heard, Name, Settled};

/// A body that lives.
#[derive(Debug, Clone)]
pub(super) struct Living {
    pub(super) unit: Unit,
    pub(super) occurrence: usize,
    pub(super) fence: Fence,
    pub(super) fingerprint: Fingerprint,
    pub(super) deadline: Millis,
    pub(super) end: End,
    /// The call that waits for it, until its deadline.
    pub(super) of: Option<usize>,
    pub(super) place: u64,
}

/// A unit of work that somebody leads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flight {
    pub(super) unit: Unit,
    pub(super) occurrence: usize,
    pub(super) leader: usize,
    pub(super) fingerprint: Fingerprint,
}

#[derive(Debug)]
pub(super) struct Pure<'a> {
    story: &'a Story,
    pub(super) now: Millis,
    /// When this process began, and which it is.
    since: Millis,
    pub(super) me: OwnerId,
    pub(super) history: History,
    pub(super) last_turn: Option<Turn>,
    /// The turns whose message was recorded, and in which epoch.
    pub(super) recorded: BTreeMap<Turn, u32>,
    pub(super) bases: BTreeMap<Unit, Base>,
    pub(super) taken: BTreeMap<Unit, Vec<usize>>,
    pub(super) bodies: Vec<Living>,
    pub(super) flights: Vec<Flight>,
    pub(super) drives: Vec<Drive>,
    pub(super) callers: Vec<Caller>,
    pub(super) ends: BTreeMap<Unit, VecDeque<End>>,
    pub(super) blind: BTreeMap<Unit, u32>,
    /// What had an effect, in its order.
    pub(super) effects: BTreeMap<Unit, Vec<Name>>,
    /// What was begun: the occurrence, its generation, the attempt, and the arguments that were sent.
    pub(super) begun: BTreeMap<Unit, Vec<(Name, u64, u8)>>,
    pub(super) places: u64,
}

/// The fingerprint of a note.
pub(super) fn fingerprint(note: u8) -> Fingerprint {
    Fingerprint::from_bytes([note + 1; 32])
}

pub(super) fn executed(note: u8) -> Digest {
    Digest([note + 1; 32])
}

pub(super) fn millis(duration: std::time::Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap()
}

impl<'a> Pure<'a> {
    pub(super) fn new(story: &'a Story, now: Millis) -> Self {
        Self {
            story,
            now,
            since: now,
            me: OwnerId([0; 16]),
            history: History::default(),
            last_turn: None,
            recorded: BTreeMap::new(),
            bases: BTreeMap::new(),
            taken: BTreeMap::new(),
            bodies: Vec::new(),
            flights: Vec::new(),
            drives: Vec::new(),
            callers: Vec::new(),
            ends: BTreeMap::new(),
            blind: BTreeMap::new(),
            effects: BTreeMap::new(),
            begun: BTreeMap::new(),
            places: 0,
        }
    }

    /// What the step's callers hear, and how a person's word is taken.
    pub(super) fn tell(&mut self, step: &Step) -> (Vec<Option<Heard>>, Option<Settled>) {
        let mut settled = None;
        match step {
            Step::Together(calls) => self.hand_over(calls, false),
            Step::Message(turn) => {
                let story = self.story;
                self.hand_over(&story.messages[*turn as usize], true);
            }
            Step::Release(nth, end) => {
                let mut all: Vec<usize> = (0..self.bodies.len()).collect();
                all.sort_by_key(|at| self.bodies[*at].unit);
                if !all.is_empty() {
                    self.bodies[all[nth % all.len()]].end = *end;
                }
            }
            Step::Hours(hours) => self.pass(hours * 3_600_000),
            Step::Dies(comes) => self.die(*comes),
            Step::Settle(nth, sure) => settled = Some(self.settle(*nth, *sure)),
            Step::Permit(nth, yes) => settled = Some(self.permit(*nth, *yes)),
        }
        self.rest();
        self.ends.clear();
        self.blind.clear();
        let callers = std::mem::take(&mut self.callers);
        (callers.into_iter().map(|caller| caller.heard).collect(), settled)
    }

    fn hand_over(&mut self, calls: &[Calling], whole: bool) {
        for call in calls {
            self.ends.entry(call.unit()).or_default().extend(&call.ends);
            *self.blind.entry(call.unit()).or_default() += call.blind;
        }
        let mut last: BTreeMap<Unit, usize> = BTreeMap::new();
        for call in calls {
            let nth = calls[..self.callers.len()].iter().filter(|other| other.unit() == call.unit()).count();
            let before = if whole { last.get(&call.unit()).copied() } else { None };
            let drive = self.begin(call, whole.then(|| u32::try_from(nth).unwrap()), before);
            last.insert(call.unit(), drive);
            self.callers.push(Caller::of(drive, call, whole));
            if whole && self.callers.len() < calls.len() {
                continue;
            }
            self.go_on();
            if !call.stays && self.callers.last().is_some_and(|caller| caller.heard.is_none()) {
                self.callers.last_mut().unwrap().has_left = true;
            }
        }
    }

    /// Lets the bodies go on that may, and soon what is due soon, until nobody has anything to do.
    fn rest(&mut self) {
        loop {
            self.go_on();
            if self.release_one() {
                continue;
            }
            match self.next_due() {
                Some(due) if due <= self.now + SOON => self.until(due),
                _ => return,
            }
        }
    }

    fn pass(&mut self, time: Millis) {
        let until = self.now + time;
        loop {
            self.go_on();
            if self.release_one() {
                continue;
            }
            match self.next_due() {
                Some(due) if due <= until => self.until(due),
                _ => break,
            }
        }
        self.now = until;
    }

    fn next_due(&self) -> Option<Millis> {
        let naps = self.drives.iter().filter_map(|drive| match drive.waits {
            Waits::Until(at, _) | Waits::Change(at, _) => Some(at),
            _ => None,
        });
        let deadlines = self.bodies.iter().filter(|body| body.of.is_some()).map(|body| body.deadline);
        let patience = self.callers.iter().filter(|caller| caller.is_waiting()).map(|caller| caller.patience_until);
        naps.chain(deadlines).chain(patience).min()
    }

    /// Time comes to `due`: callers lose their patience first, since they began to wait first.
    fn until(&mut self, due: Millis) {
        self.now = self.now.max(due);
        for at in 0..self.callers.len() {
            if self.callers[at].is_waiting() && self.callers[at].patience_until <= self.now {
                self.lose_patience(at);
            }
        }
        let mut woken: Vec<(u64, usize)> = Vec::new();
        for (at, drive) in self.drives.iter().enumerate() {
            if let Waits::Until(until, place) | Waits::Change(until, place) = drive.waits
                && until <= self.now
            {
                woken.push((place, at));
            }
        }
        let (now, mut late) = (self.now, Vec::new());
        for body in self.bodies.iter_mut().filter(|body| body.deadline <= now) {
            late.extend(body.of.take().map(|drive| (body.place, drive)));
        }
        woken.sort_unstable();
        for (_, drive) in woken {
            self.drives[drive].waits = Waits::Nothing;
        }
        late.sort_unstable();
        for (_, drive) in late {
            self.ended(drive, Ending::Unknown);
        }
    }

    pub(super) fn place(&mut self) -> u64 {
        self.places += 1;
        self.places
    }

    /// Whether a body that doesn't hang was let go on: the one that began first.
    fn release_one(&mut self) -> bool {
        let Some(at) = self.bodies.iter().position(|body| body.end != End::Hangs) else { return false };
        let body = self.bodies.remove(at);
        let fails = |class, delay: Millis, now: Millis| {
            let not_before = if delay == 0 { 0 } else { now + delay };
            Ended::NoEffect { failure: Failure { class, message: String::new() }, not_before }
        };
        let record = &self.bases[&body.unit].occurrences[body.occurrence];
        let stands = record.claim.as_ref().is_some_and(|claim| claim.fence == body.fence);
        let (now, name) = (self.now, (body.occurrence, record.generation));
        // What a tool does right before it sends.
        let end = if stands && now < body.deadline { body.end } else { End::Fails(0) };
        if matches!(end, End::Succeeds | End::Lost(true)) {
            self.effects.entry(body.unit).or_default().push(name);
        }
        let (end, ending) = match end {
            End::Succeeds => {
                let text = result(self.effects[&body.unit].len());
                let result = Body::Inline(text.into_bytes());
                let end = Ended::Success { body: result.clone(), fingerprint: body.fingerprint, order: 0 };
                (end, Ending::Success(result))
            }
            End::Lost(_) | End::Hangs => (Ended::Unknown { error: String::new() }, Ending::Unknown),
            End::Permanent => {
                let end = fails(FailureClass::Permanent, 0, now);
                (end, Ending::Failed(FailureClass::Permanent))
            }
            End::Fails(delay) => (fails(FailureClass::Retryable, delay, now), Ending::Failed(FailureClass::Retryable)),
        };
        self.happen(body.unit, body.occurrence, &Event::Ended { fence: body.fence, end, at: now });
        if let Some(drive) = body.of {
            self.ended(drive, ending);
        }
        true
    }

    /// Whether the event was taken.
    pub(super) fn happen(&mut self, unit: Unit, occurrence: usize, event: &Event) -> bool {
        let base = self.bases.entry(unit).or_default();
        let Ok(mut next) = apply(base, occurrence, event) else { return false };
        if unit.0.policy().effect() == Effect::Idempotent {
            growth::bound(&mut next, 1, KEPT_SLOTS);
        }
        *base = next;
        self.changed(unit);
        true
    }

    fn die(&mut self, comes: Comes) {
        self.bodies.clear();
        self.drives.clear();
        self.flights.clear();
        self.taken.clear();
        self.me.0[0] += 1;
        self.since = self.now;
        match comes {
            Comes::Attaches => {}
            Comes::ResumesFromNothing => {
                self.history.cuts.push(Seen::Nothing);
                self.last_turn = None;
            }
            Comes::ResumesThrough(turn) => {
                self.history.cuts.push(Seen::Through(turn));
                self.last_turn = Some(turn);
            }
        }
    }

    pub(super) fn owners(&self) -> impl Fn(OwnerId) -> Liveness + use<> {
        let (me, since) = (self.me, self.since);
        move |owner| if owner == me { Liveness::Alive } else { Liveness::Dead(since) }
    }

    pub(super) fn record(&self, unit: Unit, occurrence: usize) -> Option<&Record> {
        self.bases.get(&unit)?.occurrences.get(occurrence)
    }

    pub(super) fn view(&self, record: &Record) -> View {
        view(record, &self.owners(), self.now)
    }

    /// What is in doubt, in order.
    pub(super) fn doubts(&self) -> Vec<(Unit, Name)> {
        let mut doubts = Vec::new();
        for (unit, base) in &self.bases {
            let records = base.occurrences.iter().enumerate();
            let in_doubt = records.filter(|(_, record)| self.view(record) == View::InDoubt);
            doubts.extend(in_doubt.map(|(n, record)| (*unit, (n, record.generation))));
        }
        doubts
    }

    fn settle(&mut self, nth: usize, sure: bool) -> Settled {
        let doubts = self.doubts();
        if doubts.is_empty() {
            return Settled::Nothing;
        }
        let (unit, name) = doubts[nth % doubts.len()];
        let record = self.record(unit, name.0).unwrap();
        let fence = record.fence;
        let answer = if self.happened(unit, name) {
            let (body, fingerprint) = (Body::Inline(TOLD.into()), record.fingerprint);
            Answer::Happened { body, fingerprint, told_by: ToldBy::Human, order: 0 }
        } else if !sure && self.now < record.no_counts_from(&self.owners(), millis(SETTLE)) {
            return Settled::TooEarly;
        } else {
            Answer::DidNotHappen
        };
        let base = &self.bases[&unit];
        match apply(base, name.0, &Event::Answered { fence, answer, at: self.now }) {
            Ok(next) => {
                self.bases.insert(unit, next);
                self.changed(unit);
                Settled::Taken
            }
            Err(_) => Settled::Refused,
        }
    }

    pub(super) fn happened(&self, unit: Unit, name: Name) -> bool {
        self.effects.get(&unit).is_some_and(|effects| effects.contains(&name))
    }

    /// The questions that wait, in order.
    pub(super) fn questions(&self) -> Vec<(Unit, u8)> {
        let mut questions = Vec::new();
        let waits = |approval: &&Approval| approval.state == ApprovalState::Pending && !is_expired(approval, self.now);
        for (unit, base) in &self.bases {
            for approval in base.approvals.iter().filter(waits) {
                questions
                    .extend((0..2).filter(|note| fingerprint(*note) == approval.asker.fingerprint).map(|n| (*unit, n)));
            }
        }
        questions.sort_unstable();
        questions
    }

    fn permit(&mut self, nth: usize, yes: bool) -> Settled {
        let questions = self.questions();
        if questions.is_empty() {
            return Settled::Nothing;
        }
        let (unit, note) = questions[nth % questions.len()];
        let asker = Asker { run: super::RUN.to_owned(), fingerprint: fingerprint(note) };
        let event = if yes { Event::Approve(asker) } else { Event::Deny { asker, why: "no".to_owned() } };
        if self.happen(unit, 0, &event) { Settled::Taken } else { Settled::Refused }
    }

    /// Whether a write made alone is one of its turn's, as far as that was recorded.
    pub(super) fn admits(&self, turn: Turn, unit: Unit) -> bool {
        let Some(epoch) = self.recorded.get(&turn) else { return true };
        let message = &self.story.messages[turn as usize];
        !self.history.holds(*epoch, turn) || message.iter().any(|call| call.unit() == unit)
    }
}

/// What a person says that the tool would have returned.
pub(super) const TOLD: &str = r#""told""#;

/// The result of the `n`-th effect of a unit.
pub(super) fn result(n: usize) -> String {
    format!(r#"{{"n":{n}}}"#)
}
