//! The pure side: what the protocol says of the same calls. Records, notes and decisions are those of
//! `toolonce::protocol`; what the guard adds (who leads, who follows, when a caller's patience ends, how often a call
//! tries) is written down here a second time, as plainly as can be, one drive after the other.

mod drive;
mod ends;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use toolonce::key::{Digest, Fingerprint};
use toolonce::protocol::apply::{Answer as Said, Event, Refused, apply};
use toolonce::protocol::decide::{Asked, Decision, Facts, Here, Limits, Mark, decide};
use toolonce::protocol::growth;
use toolonce::protocol::history::{History, Seen};
use toolonce::protocol::notes::{Note, NotedPlace, note};
use toolonce::protocol::record::{
    Base, Body as Stored, Failure, Fence, Given, Liveness, OwnerId, Record, ToldBy, Turn, View, view,
};
use toolonce::{Effect, ErrorKind, Repeat, ReplyKind};

use super::tools::{ATTEMPT_DEADLINE, Answer, Ask, Look, PATIENCE, RUN, SETTLE_DELAY, Said as Word};

const LIMITS: Limits = Limits { attempt_deadline: ATTEMPT_DEADLINE, settle_delay: SETTLE_DELAY };

/// A record: tool and key.
pub(super) type Key = (usize, u8);
/// An intended call: a record and its occurrence.
pub(super) type Unit = (Key, usize);

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap()
}

fn fingerprint(ask: &Ask) -> Fingerprint {
    Fingerprint::from_bytes([ask.content; 32])
}

/// What a call is told.
#[derive(Debug, Clone, PartialEq)]
enum Told {
    Outcome { kind: ReplyKind, mark: Mark, replays: u32, text: String },
    Again(Given, Option<String>),
    Failed(Failure),
    Running,
    InDoubt,
    Conflict(Option<String>),
}

/// What followers hear of a leader.
#[derive(Debug, Clone)]
enum Flight {
    Success,
    Failed(Failure),
    InDoubt,
    Nothing,
}

#[derive(Debug, Clone, PartialEq)]
enum State {
    /// Behind an equal call of its message.
    Waits(usize),
    /// An execution of its own runs.
    Executes(Fence),
    Reads,
    /// Its look-up is about to be made.
    Looks {
        fence: Fence,
        counts_from: Option<u64>,
    },
    Follows(Unit),
    /// Behind a leader with other content.
    Stands(Unit),
    Sleeps,
    Done(Told),
}

/// One call on its way.
#[derive(Debug, Clone)]
struct Drive {
    ask: Ask,
    asked: Asked,
    epoch: u32,
    state: State,
    /// Whether its caller still waits.
    is_heard: bool,
    patience_until: u64,
    leads: Option<Unit>,
    started: u32,
    looked_up: bool,
    look_ups: u32,
    mark: Option<Mark>,
    has_entered: bool,
    spot: Spot,
}

/// Where a call stands when its caller's patience ends.
#[derive(Debug, Clone, Default)]
struct Spot {
    occurrence: usize,
    nth: Option<u32>,
    is_found: bool,
    is_doubt: bool,
}

/// An execution that lives.
#[derive(Debug, Clone)]
struct Body {
    ask: Ask,
    unit: Unit,
    fence: Fence,
    /// Who waits for it; nobody once it is past its deadline.
    drive: Option<usize>,
    /// When that is, by the monotonic clock.
    deadline: u64,
}

/// An execution that must have begun by now.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Expected {
    pub(super) ask: Ask,
    /// Of its downstream key; `None` for a read, which has no claim.
    pub(super) reference: Option<String>,
    body: usize,
}

pub(super) struct Model {
    bases: BTreeMap<Key, Base>,
    history: History,
    last_turn: Option<Turn>,
    taken: Vec<Unit>,
    drives: Vec<Drive>,
    bodies: Vec<Option<Body>>,
    /// By execution of the real side.
    by_id: HashMap<usize, usize>,
    pub(super) expected: Vec<Expected>,
    pub(super) look: Look,
    /// Which units of work were asked about.
    pub(super) look_ups: Vec<String>,
    pub(super) incidents: u64,
    wall: u64,
    monotonic: u64,
    /// How far the wall clock was ahead of the monotonic one at most.
    offset: i128,
    incarnation: u8,
    alone_since: u64,
    /// What the transition table refused though the model thought it possible.
    pub(super) wrong: Vec<String>,
    human: u32,
}

impl Model {
    pub(super) fn new(time: (u64, u64)) -> Self {
        let mut model = Self {
            bases: BTreeMap::new(),
            history: History::default(),
            last_turn: None,
            taken: Vec::new(),
            drives: Vec::new(),
            bodies: Vec::new(),
            by_id: HashMap::new(),
            expected: Vec::new(),
            look: Look::CannotTell,
            look_ups: Vec::new(),
            incidents: 0,
            wall: 0,
            monotonic: 0,
            offset: i128::MIN,
            incarnation: 0,
            alone_since: 0,
            wrong: Vec::new(),
            human: 0,
        };
        model.clock(time);
        model.alone_since = model.now();
        model
    }

    /// What the clocks say from now on.
    pub(super) fn clock(&mut self, (wall, monotonic): (u64, u64)) {
        (self.wall, self.monotonic) = (wall, monotonic);
        self.offset = self.offset.max(i128::from(wall) - i128::from(monotonic));
    }

    fn now(&self) -> u64 {
        u64::try_from(i128::from(self.monotonic) + self.offset).unwrap()
    }

    pub(super) fn history(&self) -> &History {
        &self.history
    }

    fn me(&self) -> OwnerId {
        OwnerId([self.incarnation; 16])
    }

    fn liveness(&self, owner: OwnerId) -> Liveness {
        if owner == self.me() { Liveness::Alive } else { Liveness::Dead(self.alone_since) }
    }

    fn base(&self, key: Key) -> Base {
        self.bases.get(&key).cloned().unwrap_or_default()
    }

    fn record(&self, unit: Unit) -> Option<&Record> {
        self.bases.get(&unit.0)?.occurrences.get(unit.1)
    }

    fn decide(&self, drive: &Drive) -> Decision {
        let base = self.base(drive.ask.record());
        let newest = base.occurrences.iter().map(newest_time).max().unwrap_or(0);
        let of = |unit: &Unit| (unit.0 == drive.ask.record()).then_some(unit.1);
        let bodies = self.bodies.iter().flatten().filter(|body| !body.ask.kind().is_read());
        let here = Here {
            bodies: bodies.filter_map(|body| Some((of(&body.unit)?, body.fence))).collect(),
            taken: self.taken.iter().filter_map(of).collect(),
        };
        let owners = |owner: OwnerId| self.liveness(owner);
        let facts = Facts {
            base: &base,
            history: &self.history,
            last_turn: self.last_turn,
            owners: &owners,
            here: &here,
            reopened: 0,
            look_alike: None,
            now: self.now().max(newest),
            wall: self.wall,
        };
        let asked = Asked { looked_up: drive.looked_up, ..drive.asked.clone() };
        decide(&facts, &asked, &drive.ask.kind().policy(), LIMITS)
    }

    fn apply(&mut self, unit: Unit, event: &Event) -> Result<(), Refused> {
        let mut next = apply(&self.base(unit.0), unit.1, event)?;
        if super::tools::KINDS[unit.0.0].effect == Effect::Idempotent && !matches!(event, Event::Claim(_)) {
            growth::bound(&mut next, 1, growth::KEPT_SLOTS);
        }
        growth::bound(&mut next, growth::KEPT_OUTCOMES, growth::KEPT_SLOTS);
        self.bases.insert(unit.0, next);
        Ok(())
    }

    /// Notes something at the place of a call.
    fn note(&mut self, drive: &Drive, nth: Option<u32>, given: Option<Given>, delivered: Option<bool>, replay: bool) {
        if drive.epoch != self.history.epoch() {
            return;
        }
        let place = nth.zip(drive.asked.turn).map(|(nth, turn)| NotedPlace {
            run: RUN.to_owned(),
            turn,
            nth,
            id: drive.asked.id.clone(),
            fingerprint: drive.asked.fingerprint,
        });
        let occurrence = drive.spot.occurrence;
        if let Some(base) = self.bases.get_mut(&drive.ask.record()) {
            note(base, &self.history, &Note { occurrence, place, given, delivered, replay });
        }
    }

    /// Makes the calls of a message; the number of the first drive.
    pub(super) fn make(&mut self, asks: &[Ask], turn: Option<Turn>, id: &str, together: bool) -> usize {
        let first = self.drives.len();
        for (n, ask) in asks.iter().enumerate() {
            let equal = |other: &&Ask| other.record() == ask.record();
            let nth = u32::try_from(asks[..n].iter().filter(equal).count()).unwrap();
            let before = asks[..n].iter().rposition(|other| other.record() == ask.record());
            self.drives.push(Drive {
                ask: *ask,
                asked: Asked {
                    run: RUN.to_owned(),
                    turn,
                    nth: together.then_some(nth),
                    id: id.to_owned(),
                    fingerprint: fingerprint(ask),
                    executed: Digest([ask.content; 32]),
                    again: false,
                    looked_up: false,
                },
                epoch: self.history.epoch(),
                state: State::Waits(before.map_or(usize::MAX, |before| first + before)),
                is_heard: true,
                patience_until: self.monotonic + millis(PATIENCE),
                leads: None,
                started: 0,
                looked_up: false,
                look_ups: 0,
                mark: None,
                has_entered: false,
                spot: Spot::default(),
            });
        }
        self.pump();
        first
    }

    /// Time has come so far: executions pass their deadlines, callers lose patience.
    pub(super) fn pass(&mut self, time: (u64, u64)) {
        self.clock(time);
        for at in 0..self.bodies.len() {
            let Some(body) = self.bodies[at].as_mut() else { continue };
            if body.deadline > self.monotonic {
                continue;
            }
            if let Some(drive) = body.drive.take() {
                self.after_doubt(drive);
            }
        }
        self.pump();
    }

    /// What the calls of a message are answered with, if all have an answer by now; then it is taken.
    pub(super) fn answers(&mut self, first: usize, count: usize) -> Vec<Answer> {
        let mut answers = Vec::new();
        for at in first..first + count {
            let drive = self.drives[at].clone();
            let told = match drive.state {
                State::Done(told) => told,
                _ if drive.spot.is_doubt => Told::InDoubt,
                _ => Told::Running,
            };
            self.drives[at].is_heard = false;
            answers.push(self.finish(at, told));
        }
        answers
    }

    /// Whether the call has its answer or nobody waits for it any more.
    pub(super) fn is_answered(&self, at: usize) -> bool {
        matches!(self.drives[at].state, State::Done(_)) || self.drives[at].patience_until <= self.monotonic
    }

    fn finish(&mut self, at: usize, told: Told) -> Answer {
        let drive = self.drives[at].clone();
        let (answer, given, carries) = self.draft(told);
        let place = drive.spot.nth.filter(|_| drive.asked.turn.is_some());
        if drive.spot.is_found {
            if carries && place.is_none() && drive.ask.kind().repeat == Repeat::Each {
                let unit = (drive.ask.record(), drive.spot.occurrence);
                self.taken.retain(|taken| *taken != unit);
                self.taken.push(unit);
            }
            let replay = answer.is_marked && matches!(answer.kind, ReplyKind::Replayed | ReplyKind::Stopped);
            if replay || place.is_some() && given.is_some() {
                self.note(&drive, place, given, carries.then_some(true), replay);
            }
        }
        if drive.epoch == self.history.epoch() {
            self.last_turn = self.last_turn.max(drive.asked.turn);
        }
        answer
    }

    /// The answer, what is noted of it, and whether it carries the outcome.
    fn draft(&self, told: Told) -> (Answer, Option<Given>, bool) {
        let status = |kind: ReplyKind| (Answer { kind, is_marked: false, outcome: None }, status_of(kind), false);
        match told {
            Told::Outcome { kind, mark, replays, text } => {
                let stop = kind == ReplyKind::Replayed && mark != Mark::Own && replays + 1 >= 5;
                let kind = if stop { ReplyKind::Stopped } else { kind };
                let is_marked = mark != Mark::Own;
                let given = Given::Outcome { mark: is_marked.then(String::new), stop };
                (Answer { kind, is_marked, outcome: Some(text) }, Some(given), true)
            }
            Told::Again(Given::Outcome { mark, stop }, text) => {
                let kind = if stop { ReplyKind::Stopped } else { ReplyKind::Replayed };
                let answer = Answer { kind, is_marked: mark.is_some(), outcome: text };
                (answer, Some(Given::Outcome { mark, stop }), true)
            }
            Told::Again(Given::Failure(failure), _) | Told::Failed(failure) => {
                (status(ReplyKind::Failed).0, Some(Given::Failure(failure)), false)
            }
            Told::Again(given @ Given::Status { kind, .. }, _) => {
                let kind = if kind == ReplyKind::Running as u8 { ReplyKind::Running } else { ReplyKind::InDoubt };
                (status(kind).0, Some(given), false)
            }
            Told::Running => status(ReplyKind::Running),
            Told::InDoubt => status(ReplyKind::InDoubt),
            Told::Conflict(outcome) => (Answer { kind: ReplyKind::Conflict, is_marked: false, outcome }, None, false),
        }
    }

    /// The intended calls that are in doubt now.
    pub(super) fn in_doubt(&self) -> Vec<(Unit, String)> {
        let owners = |owner: OwnerId| self.liveness(owner);
        let all = self.bases.iter().flat_map(|(key, base)| base.occurrences.iter().enumerate().map(move |r| (*key, r)));
        let doubtful = all.filter(|(_, (_, record))| view(record, &owners, self.now()) == View::InDoubt);
        doubtful.map(|(key, (occurrence, _))| ((key, occurrence), self.reference((key, occurrence)))).collect()
    }

    fn reference(&self, (key, occurrence): Unit) -> String {
        let ask = Ask { tool: key.0, key: key.1, content: 0, ends: [super::tools::End::Hangs; 2] };
        ask.reference(occurrence, self.record((key, occurrence)).map_or(0, |record| record.generation))
    }

    /// What a human says of a call in doubt; how it is taken.
    pub(super) fn resolve(&mut self, unit: Unit, word: Word) -> (Option<ErrorKind>, serde_json::Value) {
        self.human += 1;
        let result = serde_json::json!({"human": self.human});
        let record = self.record(unit).unwrap().clone();
        let quiet = record.quiet_from(&|owner: OwnerId| self.liveness(owner)) + millis(SETTLE_DELAY);
        let answer = match word {
            Word::DidNotHappen if self.now() < quiet => return (Some(ErrorKind::TooEarly), result),
            Word::DidNotHappen | Word::DidNotHappenForSure => Said::DidNotHappen,
            Word::Happened => Said::Happened {
                body: Stored::Inline(result.to_string().into_bytes()),
                fingerprint: record.fingerprint,
                told_by: ToldBy::Human,
                order: 0,
            },
        };
        let event = Event::Answered { fence: record.fence, answer, at: self.now() };
        (self.apply(unit, &event).err().map(|_| ErrorKind::NoSuchCall), result)
    }

    /// The process died, and another one goes on.
    pub(super) fn crash(&mut self, seen: Seen, (wall, monotonic): (u64, u64)) {
        self.incarnation += 1;
        (self.wall, self.monotonic) = (wall, monotonic);
        self.offset = i128::from(wall) - i128::from(monotonic);
        self.alone_since = self.now();
        self.history.cuts.push(seen);
        self.last_turn = match seen {
            Seen::Through(turn) => Some(turn),
            Seen::Nothing => None,
        };
        self.taken.clear();
        self.drives.clear();
        self.bodies.iter_mut().for_each(|body| *body = None);
    }
}

fn status_of(kind: ReplyKind) -> Option<Given> {
    Some(Given::Status { kind: kind as u8, text: String::new() })
}

/// The newest time that a record knows of.
fn newest_time(record: &Record) -> u64 {
    let claim = record.claim.as_ref().map_or(0, |claim| claim.claimed_at);
    let outcome = record.outcome.as_ref().map_or(0, |outcome| outcome.at);
    claim.max(outcome).max(record.first_sent.unwrap_or(0))
}

fn text_of(record: &Record) -> String {
    match record.outcome.as_ref().map(|outcome| &outcome.body) {
        Some(Stored::Inline(bytes)) => String::from_utf8(bytes.clone()).unwrap(),
        _ => String::new(),
    }
}
