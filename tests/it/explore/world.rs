//! A few processes, one record base, one world: what the guard does around the protocol, and what can go wrong there.
//!
//! The model keeps the guard's obligations: commits are conditional, bodies begin before their deadline, a look-up's
//! *no* counts only if it was begun late enough, a delivered mark is set when the reply is taken. The world counts
//! effects by itself and merges what a downstream system would merge.

mod bodies;
mod callers;
mod faults;

use toolonce::key::Fingerprint;
use toolonce::protocol::apply::{Answer, End, Event, NewClaim, Over};
use toolonce::protocol::decide::{Act, Asked, Decision, Facts, Here, Limits, Mark};
use toolonce::protocol::history::History;
use toolonce::protocol::notes::{Note, NotedPlace};
use toolonce::protocol::record::{
    Base, Body, Failure, FailureClass, Fence, Given, Liveness, OwnerId, Record, ToldBy, Turn, View,
};
use toolonce::{Effect, KeyWindow, Millis, Policy};

use super::parts::{self, asked, new_claim};
use super::search::{Checked, Model, Steps, ensure};
use super::table::invariant::*;
use super::table::{Stale, Table, judge};

/// How often each fault may still strike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Faults {
    pub(super) crash: u8,
    pub(super) silent: u8,
    pub(super) failure: u8,
    pub(super) late: u8,
    pub(super) lost_reply: u8,
    pub(super) human: u8,
    pub(super) patience: u8,
    pub(super) not_taken: u8,
}

pub(super) struct Scene<'a> {
    pub(super) name: &'static str,
    pub(super) table: &'a dyn Table,
    pub(super) policy: Policy,
    /// By what all but the first process go, if they run a later version of the program.
    pub(super) redeclared: Option<Policy>,
    /// Whether a turn begins only when all calls of the turn before are answered.
    pub(super) in_order: bool,
    /// What each process is asked, one call after the other.
    pub(super) asks: &'static [&'static [(Turn, u32)]],
    pub(super) faults: Faults,
    /// The moments at which things happen.
    pub(super) instants: &'static [Millis],
    pub(super) limits: Limits,
    /// Whether other steps may come between a decision and its commit, and between an end and its caller's learning.
    pub(super) is_split: bool,
    /// Whether a crash is proven to the other process (an embedded store's lock) or only looks like silence.
    pub(super) proves_death: bool,
    /// Paths with more attempts aren't followed further.
    pub(super) most_attempts: usize,
    /// Effects without faults.
    pub(super) intents: usize,
    /// Effects whatever happens.
    pub(super) most_effects: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct World {
    clock: usize,
    base: Base,
    last_turn: Option<Turn>,
    lives: Vec<Life>,
    processes: Vec<Process>,
    attempts: Vec<Attempt>,
    /// Occurrence, generation, and when it first happened.
    effects: Vec<(usize, u32, Millis)>,
    left: Faults,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Life {
    Alive,
    Silent,
    Dead(Millis),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Process {
    /// Index into the lives: a new one after each crash.
    owner: usize,
    /// Index of the present call; all before it are answered.
    call: usize,
    phase: Phase,
    looked_up: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    Asked,
    Decided { occurrence: usize, event: Box<NewClaim>, next: Box<Base>, is_stale: bool },
    LooksUp { occurrence: usize, fence: Fence, found: bool, no_counts: bool },
    Executes { occurrence: usize, fence: Fence },
    Joined { occurrence: usize, fence: Fence, mark: Mark },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Attempt {
    occurrence: usize,
    fence: Fence,
    generation: u32,
    owner: usize,
    deadline: Millis,
    send: Send,
    /// The body ended or died.
    is_over: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Send {
    NotYet,
    InFlight(Millis),
    Landed,
    Refused(FailureClass),
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Clock(Millis),
    Decides(usize),
    Commits(usize),
    LookUpAnswers(usize),
    Learns(usize),
    LosesPatience(usize),
    Sends(Fence, Way),
    Lands(Fence),
    Ends(Fence, How),
    Crashes(usize),
    FallsSilent(usize),
    Wakes(usize),
    Human(bool),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Lands,
    IsLate,
    IsRefused(FailureClass),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Known,
    Unknown,
}

/// Told what, and whether the caller took it.
enum Reply {
    Outcome(Mark),
    Failure(FailureClass),
    Status,
}

impl World {
    fn owner_of(&self, process: usize) -> Life {
        self.lives[self.processes[process].owner]
    }

    /// Puts a changed base in the store: whoever decided on the old one is stale.
    fn store(&mut self, base: Base) {
        if self.base == base {
            return;
        }
        self.base = base;
        for process in &mut self.processes {
            if let Phase::Decided { is_stale, .. } = &mut process.phase {
                *is_stale = true;
            }
        }
    }
}

impl Scene<'_> {
    fn now(&self, world: &World) -> Millis {
        self.instants[world.clock]
    }

    fn owners(&self, world: &World) -> impl Fn(OwnerId) -> Liveness {
        let lives = world.lives.clone();
        let proves = self.proves_death;
        move |owner: OwnerId| match lives[usize::from(owner.0[0])] {
            Life::Alive => Liveness::Alive,
            Life::Dead(at) if proves => Liveness::Dead(at),
            Life::Silent | Life::Dead(_) => Liveness::Silent,
        }
    }

    fn settle(&self) -> Millis {
        self.limits.settle_delay.as_millis() as Millis
    }

    /// What `process` holds the tool to be.
    fn policy_of(&self, process: usize) -> &Policy {
        self.redeclared.as_ref().filter(|_| process > 0).unwrap_or(&self.policy)
    }

    fn window(&self) -> Option<KeyWindow> {
        match self.policy.effect() {
            Effect::Keyed(window) => Some(window),
            _ => None,
        }
    }

    fn is_asked(&self, world: &World, process: usize) -> bool {
        world.processes[process].call < self.asks[process].len()
    }

    fn is_next(&self, world: &World, process: usize) -> bool {
        let turn = |process: usize| self.asks[process].get(world.processes[process].call).map(|(turn, _)| *turn);
        let earliest = (0..self.asks.len()).filter_map(turn).min();
        !self.in_order || turn(process).is_none_or(|mine| earliest.is_none_or(|earliest| mine <= earliest))
    }

    fn place(&self, world: &World, process: usize) -> NotedPlace {
        let (turn, nth) = self.asks[process][world.processes[process].call];
        parts::place(turn, nth)
    }

    fn decide(&self, world: &World, process: usize) -> Decision {
        let place = self.place(world, process);
        let looked_up = world.processes[process].looked_up;
        let asked = Asked { nth: Some(place.nth), looked_up, ..asked(place.turn) };
        let mine = world.attempts.iter().filter(|a| self.body_lives_in(world, a, process));
        let here = Here {
            bodies: mine.map(|a| (a.occurrence, a.fence)).filter(|_| self.table.knows_bodies()).collect(),
            taken: Vec::new(),
        };
        let facts = Facts {
            base: &world.base,
            history: &self.table.history(&History::default()),
            last_turn: world.last_turn,
            answered: world.last_turn,
            owners: &self.owners(world),
            here: &here,
            reopened: 0,
            look_alike: None,
            now: self.now(world),
            wall: self.now(world),
        };
        self.table.decide(&facts, &asked, self.policy_of(process), self.limits)
    }

    fn body_lives_in(&self, world: &World, attempt: &Attempt, process: usize) -> bool {
        !attempt.is_over && attempt.owner == world.processes[process].owner
    }

    fn has_way_out(&self, world: &World, record: &Record) -> bool {
        let far = Millis::MAX / 2;
        let view = |record: &Record| self.table.view(record, &|_: OwnerId| Liveness::Silent, far);
        let alone = Base { occurrences: vec![record.clone()], ..Base::default() };
        if view(record) != View::InDoubt {
            return true;
        }
        let landed = world.attempts.iter().any(|a| a.fence == record.fence && a.send == Send::Landed);
        let event = answered(record.fence, landed, ToldBy::Human, far);
        let settled = self.table.apply(&alone, 0, &event);
        settled.is_ok_and(|base| view(&base.occurrences[0]) != View::InDoubt)
    }
}

fn answered(fence: Fence, happened: bool, told_by: ToldBy, at: Millis) -> Event {
    let answer = if happened {
        Answer::Happened { body: Body::Inline(vec![0]), fingerprint: Fingerprint::default(), told_by, order: 0 }
    } else {
        Answer::DidNotHappen
    };
    Event::Answered { fence, answer, at }
}

fn failure(class: FailureClass) -> Failure {
    Failure { class, message: String::new() }
}

fn no_effect(class: FailureClass) -> End {
    End::NoEffect { failure: failure(class), not_before: 0 }
}

impl Model for Scene<'_> {
    type State = World;
    type Step = Step;

    fn start(&self) -> World {
        let process = |owner| Process { owner, call: 0, phase: Phase::Asked, looked_up: false };
        World {
            clock: 0,
            base: Base::default(),
            last_turn: None,
            lives: vec![Life::Alive; self.asks.len()],
            processes: (0..self.asks.len()).map(process).collect(),
            attempts: Vec::new(),
            effects: Vec::new(),
            left: self.faults,
        }
    }

    fn steps(&self, world: &World, out: &mut Steps<Self>) {
        let now = self.now(world);
        let flies = |a: &Attempt| matches!(a.send, Send::InFlight(sent) if now < sent + self.settle());
        let is_quiet = world.attempts.iter().all(|a| a.is_over && !flies(a));
        if is_quiet && (0..self.asks.len()).all(|process| !self.is_asked(world, process)) {
            return;
        }
        for process in 0..self.asks.len() {
            let waits = matches!(world.processes[process].phase, Phase::Executes { .. } | Phase::Joined { .. });
            if !self.is_split && waits && self.is_asked(world, process) && world.owner_of(process) == Life::Alive {
                let learnt = self.learns(world, process);
                if !learnt.is_empty() {
                    out.extend(learnt.into_iter().map(|next| (Step::Learns(process), Ok(next))));
                    return;
                }
            }
        }
        for process in 0..self.asks.len() {
            let is_next = self.is_asked(world, process) && self.is_next(world, process);
            if is_next && world.owner_of(process) == Life::Alive {
                self.caller_steps(world, process, out);
            }
        }
        self.life_steps(world, 0, out);
        self.body_steps(world, out);
        self.human_steps(world, out);
        if world.clock + 1 < self.instants.len() {
            let mut next = world.clone();
            next.clock += 1;
            out.push((Step::Clock(self.now(&next)), Ok(next)));
        }
    }

    fn check(&self, world: &World, is_last: bool) -> Checked<()> {
        let mut records = world.base.occurrences.iter();
        ensure(records.all(|record| self.has_way_out(world, record)), WAY_OUT, || format!("{world:?}"))?;
        if !is_last {
            return Ok(());
        }
        let answered = (0..self.asks.len()).all(|process| !self.is_asked(world, process));
        let is_cut = world.attempts.len() == self.most_attempts;
        ensure(answered || is_cut, ANSWERED, || format!("{world:?}"))?;
        // Where no time passes no deadline does.
        let is_quiet = world.left == self.faults && world.clock == 0;
        ensure(!is_quiet || world.effects.len() == self.intents, INTENT_RUNS, || format!("{:?}", world.effects))
    }
}
