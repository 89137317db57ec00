//! The repeat rule: what a call gets, given what is known. Pure; it never writes.
//!
//! Equal arguments in one run can mean a retry or a new wish, and call ids can't tell: models reuse, omit and
//! regenerate them. So the rule goes by where a call stands and by what its caller has seen.
//!
//! # Which record the call is about
//!
//! 1. *The slot.* A second delivery of a turn is matched with the first by position among equal calls, ids ignored. A
//!    place that an abandoned history left matches only while its record isn't settled for the call.
//! 2. *Siblings.* Equal calls of one message that are handed over together have places of their own. Handed over one
//!    by one, an equal call of the same turn and id is a redelivery, one with another or no id merges with the first.
//! 3. *Otherwise* the lowest occurrence that isn't settled for the call (and, under [`Repeat::Each`], has no slot of its
//!    turn). If there is none: a new occurrence for a sibling under `Each`, else the highest.
//!
//! *Settled for a call* means completed, and delivered to an earlier turn of the history that its run stands on.
//!
//! # What it gets
//!
//! | the record is | the call gets |
//! |---|---|
//! | running, same fingerprint | the outcome of that execution |
//! | in doubt | the ladder: re-run if harmless, the tool's look-up, a re-send inside the key's window, or it is held |
//! | free or failed | a new attempt |
//! | done, redelivery | what its place got, else the outcome, unmarked |
//! | done, sibling under `Once` | the outcome, marked |
//! | done, not delivered for the call | the outcome, marked: it is a retry |
//! | done and delivered, later turn | under `Once` the outcome, marked; under `Each` and for `Idempotent` a new occurrence; under `Ask` the same once a human approved it |
//! | other fingerprint | running or in doubt: a conflict; free or failed: a new attempt; done: as above where that runs, else a conflict |
//!
//! # What needs permission
//!
//! A first execution under [`Approval::First`], a repeat under [`Repeat::Ask`], and a call that looks like another one
//! that isn't finished. The permission is for one run and one fingerprint and used up by a claim; what it was given for
//! may then be tried again until it happens. It adds no place and no occurrence: once given, the call is judged as new.
//!
//! A place of the present history that got an answer keeps it word for word once a later turn was answered.

use std::time::Duration;

use super::apply::{Over, window_holds};
use super::approval::{Standing, standing};
use super::history::History;
use super::record::{
    Asker, Base, Failure, FailureClass, Fence, Given, Owners, Reason, Record, Slot, Strictness, Turn, View, view,
};
use crate::Millis;
use crate::key::{Digest, Fingerprint};
use crate::policy::{Approval, Effect, InDoubt, KeyWindow, Mismatch, Policy, Repeat};

/// All that a decision may look at.
pub struct Facts<'a> {
    /// The base record; empty if the store has none.
    pub base: &'a Base,
    /// The run's history.
    pub history: &'a History,
    /// The last turn of the present history of which a call was answered.
    pub last_turn: Option<Turn>,
    /// The same without what a step says: one in the middle of a turn has seen answers of it, and the turn goes on.
    pub answered: Option<Turn>,
    /// Who lives.
    pub owners: &'a dyn Owners,
    /// What only this process knows.
    pub here: &'a Here,
    /// Place in the run's order of completions of the newest completion of a tool that reopens this one; 0 if none.
    pub reopened: u64,
    /// The reference of a call that looks like this one and isn't finished, if the tool's policy asks about those.
    pub look_alike: Option<&'a str>,
    /// The later of the clock and the newest time seen in the store.
    pub now: Millis,
    /// The clock alone: one that stands before a key was first sent can't tell how old the key is.
    pub wall: Millis,
}

/// What only this process knows of a base record.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Here {
    /// Attempts whose body lives in this process.
    pub bodies: Vec<(usize, Fence)>,
    /// Occurrences whose outcome a caller took in this incarnation.
    pub taken: Vec<usize>,
}

/// A call as the repeat rule sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Asked {
    /// The run.
    pub run: String,
    /// The assistant message, if the host counts them.
    pub turn: Option<Turn>,
    /// Its position among the equal calls of that message if all of them were handed over together.
    pub nth: Option<u32>,
    /// The call id; empty if none.
    pub id: String,
    /// Fingerprint of its arguments.
    pub fingerprint: Fingerprint,
    /// Digest of its arguments as executed.
    pub executed: Digest,
    /// Whether it asks, by an argument of its own, to have the same done once more.
    pub again: bool,
    /// Whether the tool's look-up was asked for this call and could not tell.
    pub looked_up: bool,
}

impl Asked {
    /// What a permission for this call is bound to.
    pub fn asker(&self) -> Asker {
        Asker { run: self.run.clone(), fingerprint: self.fingerprint }
    }
}

/// The durations a decision depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How long an attempt may take.
    pub attempt_deadline: Duration,
    /// How long after its end an effect may still show downstream.
    pub settle_delay: Duration,
}

/// What to do with a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The occurrence it is about; the number of occurrences if it is a new one.
    pub occurrence: usize,
    /// The place it is answered in; `None` for a call without a turn.
    pub place: Option<Place>,
    /// How an outcome that it doesn't execute itself is marked.
    pub mark: Mark,
    /// What to do.
    pub act: Act,
}

/// Where in its turn a call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Position among the equal calls of the turn.
    pub nth: u32,
    /// The slot that this delivery repeats: its index in the record.
    pub slot: Option<usize>,
}

/// The act of a [`Decision`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Answer with the recorded outcome, marked so.
    Give(Mark),
    /// Answer with the failure that this slot got.
    GiveFailure(Failure),
    /// Answer with what this slot got, whatever became of the record since.
    GiveAgain(Given),
    /// Wait for the running attempt.
    Join {
        /// The attempt.
        fence: Fence,
    },
    /// Claim and execute.
    Attempt {
        /// The doubt that is accepted.
        over: Over,
        /// Execute the arguments that the record kept, not the call's.
        kept: bool,
        /// Not before this.
        not_before: Millis,
        /// Whether the claim consumes a permission.
        permitted: bool,
    },
    /// It needs a permission that nobody has given yet.
    Await {
        /// Why, if the question has to be put first; `None` if it waits for an answer.
        question: Option<Reason>,
    },
    /// It needed a permission, and a human refused it.
    Denied {
        /// In the human's words; may be empty.
        why: String,
    },
    /// Ask the tool whether it happened.
    LookUp {
        /// The newest attempt.
        fence: Fence,
        /// A *no* counts if the question was put at this time or later; `None`: never.
        no_counts_from: Option<Millis>,
    },
    /// It stays in doubt until a human, a later look-up or the attempt itself settles it.
    Hold,
    /// The record is about other arguments.
    Conflict,
}

/// Whether, and why, an outcome is marked as not this call's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mark {
    /// Untouched: the place the outcome belongs to.
    Own,
    /// Of an equal call of the same assistant message.
    Sibling,
    /// Of an earlier call.
    Earlier,
    /// Of an earlier call with other content.
    Drifted,
    /// Of an equal read that was made for another call.
    Read,
}

/// What `asked` gets.
pub fn decide(facts: &Facts<'_>, asked: &Asked, policy: &Policy, limits: Limits) -> Decision {
    let rule = Rule { facts, asked, policy, limits };
    let found = rule.find();
    let act = match (found.slot, rule.reads()) {
        (Some(_), true) if !rule.is_same(&facts.base.occurrences[found.occurrence]) => Err(Anew::Wish),
        (Some(at), _) => rule.redelivered(found.occurrence, at),
        (None, true) => Err(Anew::Wish),
        (None, false) => match facts.base.occurrences.get(found.occurrence) {
            Some(record) => rule.table(record, found.occurrence, &found),
            None => Ok(rule.permit(None, found.occurrence, fresh(0))),
        },
    };
    match act {
        Ok(act) => Decision { occurrence: found.occurrence, place: found.place(asked), mark: found.mark(), act },
        Err(why) => rule.anew(&found, why),
    }
}

/// What a call that asks for the `n`-th time by an argument of its own depends on: the call before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// It was never made.
    Missing,
    /// Its end isn't known or wasn't seen: its state is the answer.
    Open,
    /// It is done and its outcome was seen, or it failed without effect.
    Settled,
}

/// How the call stands that comes before `asked`; `facts` are about that one's record.
pub fn before(facts: &Facts<'_>, asked: &Asked, policy: &Policy, limits: Limits) -> Before {
    let rule = Rule { facts, asked, policy, limits };
    let Some(record) = facts.base.occurrences.last() else { return Before::Missing };
    let failed = match view(record, facts.owners, facts.now) {
        View::Failed => true,
        View::Free => record.last.is_some(),
        View::Done | View::Running | View::InDoubt => false,
    };
    let settled = failed || rule.is_settled(facts.base.occurrences.len() - 1);
    if settled { Before::Settled } else { Before::Open }
}

/// Why a call is a new unit of work although its key is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Anew {
    /// It is a wish of its own.
    Wish,
    /// It is one if a human says so.
    Asked,
}

struct Rule<'a> {
    facts: &'a Facts<'a>,
    asked: &'a Asked,
    policy: &'a Policy,
    limits: Limits,
}

struct Found {
    occurrence: usize,
    nth: u32,
    slot: Option<usize>,
    sibling: bool,
}

impl Found {
    fn place(&self, asked: &Asked) -> Option<Place> {
        asked.turn.map(|_| Place { nth: self.nth, slot: self.slot })
    }

    fn mark(&self) -> Mark {
        match (self.slot, self.sibling) {
            (Some(_), _) => Mark::Own,
            (None, true) => Mark::Sibling,
            (None, false) => Mark::Earlier,
        }
    }
}

fn fresh(not_before: Millis) -> Act {
    Act::Attempt { over: Over::Nothing, kept: false, not_before, permitted: false }
}

/// Finding the record that the call is about.
impl Rule<'_> {
    fn find(&self) -> Found {
        let Some(turn) = self.asked.turn else {
            return Found { occurrence: self.unsettled(None), nth: 0, slot: None, sibling: false };
        };
        let nth = self.asked.nth.unwrap_or_else(|| self.position_alone(turn));
        if let Some((occurrence, slot)) = self.same_id(turn).or_else(|| self.same_place(turn, nth)) {
            let nth = self.facts.base.occurrences[occurrence].slots[slot].nth;
            return Found { occurrence, nth, slot: Some(slot), sibling: false };
        }
        let merged = if self.asked.nth.is_none() { self.first_of_turn(turn) } else { None };
        let occurrence = merged.unwrap_or_else(|| self.unsettled(Some(turn)));
        let sibling = self.slots().any(|(n, _, slot)| n == occurrence && self.is_of(slot, turn) && self.present(slot));
        Found { occurrence, nth, slot: None, sibling }
    }

    fn slots(&self) -> impl Iterator<Item = (usize, usize, &Slot)> {
        let records = self.facts.base.occurrences.iter().enumerate();
        records.flat_map(|(n, record)| record.slots.iter().enumerate().map(move |(at, slot)| (n, at, slot)))
    }

    fn is_of(&self, slot: &Slot, turn: Turn) -> bool {
        slot.turn == turn && slot.run == self.asked.run
    }

    /// Whether the slot was answered in this very epoch.
    fn present(&self, slot: &Slot) -> bool {
        slot.epoch == self.facts.history.epoch()
    }

    /// A call that was handed over alone stands after those of its turn that this epoch has already answered.
    fn position_alone(&self, turn: Turn) -> u32 {
        let before = self.slots().filter(|(_, _, slot)| self.is_of(slot, turn) && self.present(slot));
        before.map(|(_, _, slot)| slot.nth.saturating_add(1)).max().unwrap_or(0)
    }

    /// Within one epoch an equal call of one turn and id, handed over alone, is a second delivery.
    fn same_id(&self, turn: Turn) -> Option<(usize, usize)> {
        if self.asked.nth.is_some() || self.asked.id.is_empty() {
            return None;
        }
        let mut slots = self.slots();
        let is_it = |slot: &Slot| self.is_of(slot, turn) && self.present(slot) && slot.id == self.asked.id;
        slots.find(|(_, _, slot)| is_it(slot)).map(|(n, at, _)| (n, at))
    }

    /// Across deliveries a turn's calls are matched by position, ids ignored. A place of an abandoned history matches
    /// only while its record isn't settled: afterwards the same position may be a new wish.
    fn same_place(&self, turn: Turn, nth: u32) -> Option<(usize, usize)> {
        let mut slots: Vec<_> = self.slots().filter(|(_, _, s)| self.is_of(s, turn) && s.nth == nth).collect();
        slots.sort_by_key(|(_, _, slot)| std::cmp::Reverse(slot.epoch));
        let matches = |n: usize, slot: &Slot| self.facts.history.holds_slot(slot) || !self.is_settled(n);
        slots.into_iter().find(|(n, _, slot)| matches(*n, slot)).map(|(n, at, _)| (n, at))
    }

    /// Outside one `answer` equal calls of a turn are one.
    fn first_of_turn(&self, turn: Turn) -> Option<usize> {
        self.slots().find(|(_, _, slot)| self.is_of(slot, turn) && self.present(slot)).map(|(n, _, _)| n)
    }

    /// The lowest occurrence that isn't settled for the call; else a new one for a sibling, else the highest.
    fn unsettled(&self, turn: Option<Turn>) -> usize {
        let count = self.facts.base.occurrences.len();
        let each = self.policy.repeats() == Repeat::Each;
        // Slots of any history count: two calls of one turn never retry the same unit of work.
        let of_turn = |n: usize| {
            turn.is_some_and(|turn| self.facts.base.occurrences[n].slots.iter().any(|slot| self.is_of(slot, turn)))
        };
        let is_left = |&n: &usize| !self.is_settled(n) && (!each || !of_turn(n));
        let lowest = (0..count).find(is_left);
        let is_sibling = each && self.asked.nth.is_some() && (0..count).any(of_turn);
        lowest.unwrap_or(if is_sibling { count } else { count.saturating_sub(1) })
    }

    /// Completed, and delivered for this call: its run saw the outcome in an earlier turn of its present history.
    fn is_settled(&self, occurrence: usize) -> bool {
        let record = &self.facts.base.occurrences[occurrence];
        let delivered = match self.asked.turn {
            Some(turn) => record.slots.iter().any(|slot| {
                slot.delivered && slot.run == self.asked.run && slot.turn < turn && self.facts.history.holds_slot(slot)
            }),
            // Without turns only what was taken in this incarnation is known, and only a tool that can be asked for the
            // same again goes by it.
            None => self.policy.counts_taken() && self.facts.here.taken.contains(&occurrence),
        };
        record.outcome.is_some() && delivered
    }
}

/// The table.
impl Rule<'_> {
    /// Whether it is a call that changes nothing, and nothing that changed something is open under its key.
    fn reads(&self) -> bool {
        self.policy.effect == Effect::ReadOnly
            && !self.facts.base.occurrences.iter().any(|record| self.is_stricter(record))
    }

    /// Whether what is open was declared to do more than the tool is declared to do now.
    fn is_stricter(&self, record: &Record) -> bool {
        record.is_tainted() && record.outcome.is_none() && record.strictness > Strictness::from(self.policy.effect)
    }

    /// The call is a new unit of work.
    fn anew(&self, found: &Found, why: Anew) -> Decision {
        let found = Found { occurrence: self.facts.base.occurrences.len(), slot: None, ..*found };
        let act = match why {
            Anew::Wish => self.permit(None, found.occurrence, fresh(0)),
            Anew::Asked => self.permission(Some(Reason::Repeat), fresh(0)),
        };
        Decision { occurrence: found.occurrence, place: found.place(self.asked), mark: Mark::Own, act }
    }

    /// `attempt`, if it needs no permission or has it.
    fn permit(&self, record: Option<&Record>, occurrence: usize, attempt: Act) -> Act {
        if self.policy.effect == Effect::ReadOnly {
            return attempt;
        }
        let other = record.is_some_and(|record| record.fingerprint != self.asked.fingerprint);
        let given = record.is_some_and(|record| record.is_permitted_to(&self.asked.asker()));
        // A repeat that was begun by somebody else's permission, or with other arguments.
        let begun_otherwise = other || record.is_some_and(|record| record.approved.is_some());
        let repeats = self.asked.again || (occurrence > 0 && begun_otherwise);
        let reason = match self.facts.look_alike {
            _ if given => None,
            _ if self.policy.approval == Approval::First => Some(Reason::First),
            Some(of) => Some(Reason::LookAlike { of: of.to_owned() }),
            None if repeats && self.policy.repeats() == Repeat::Ask => Some(Reason::Repeat),
            None => None,
        };
        self.permission(reason, attempt)
    }

    /// What was asked for before counts even if it needs no permission by now: a refusal holds, and what was given is used
    /// up by the execution that it was given for.
    fn permission(&self, reason: Option<Reason>, attempt: Act) -> Act {
        match (standing(self.facts.base, &self.asked.asker(), self.facts.now), reason) {
            // It was told to wait, and what came after stands on that: the next call does it.
            (Standing::Pending | Standing::Approved, _) if self.is_past() => Act::Await { question: None },
            (Standing::Unasked | Standing::Pending, None) => attempt,
            (Standing::Unasked, question) => Act::Await { question },
            (Standing::Pending, Some(_)) => Act::Await { question: None },
            (Standing::Denied { why }, _) => Act::Denied { why },
            (Standing::Approved, _) => match attempt {
                Act::Attempt { over, kept, not_before, .. } => Act::Attempt { over, kept, not_before, permitted: true },
                other => other,
            },
        }
    }

    fn redelivered(&self, occurrence: usize, at: usize) -> Result<Act, Anew> {
        let record = &self.facts.base.occurrences[occurrence];
        let slot = &record.slots[at];
        // What the place got is kept whatever became of the record since, if it is asked for the same again.
        // Of one whose outcome is forgotten the fingerprints of its places are, too.
        let same = slot.fingerprint == self.asked.fingerprint || (record.is_forgotten() && self.is_same(record));
        let frozen = self.facts.last_turn.is_some_and(|last| last > slot.turn);
        match &slot.given {
            Some(given) if same && frozen && self.facts.history.holds_slot(slot) => Ok(Act::GiveAgain(given.clone())),
            // What was marked as another call's outcome isn't this one's own the second time either.
            Some(given @ Given::Outcome { mark: Some(_), .. }) if same => Ok(Act::GiveAgain(given.clone())),
            Some(Given::Failure(failure)) if same && failure.class == FailureClass::Permanent => {
                Ok(Act::GiveFailure(failure.clone()))
            }
            // What the place was given may be lost with an unsynced note; the end of its attempt is not.
            None if self.is_same(record) && view(record, self.facts.owners, self.facts.now) == View::Failed => {
                record.last.as_ref().map(|last| Act::GiveFailure(last.failure.clone())).ok_or(Anew::Wish)
            }
            _ => self.table(record, occurrence, &Found { occurrence, nth: slot.nth, slot: Some(at), sibling: false }),
        }
    }

    /// An error: the call is a new unit of work.
    fn table(&self, record: &Record, occurrence: usize, found: &Found) -> Result<Act, Anew> {
        let same = self.is_same(record);
        let view = view(record, self.facts.owners, self.facts.now);
        if view == View::Done
            && let Some(why) = self.new_wish(occurrence, found)
        {
            return Err(why);
        }
        Ok(match view {
            View::Done if same => Act::Give(found.mark()),
            View::Done if self.policy.advanced.mismatch == Mismatch::Replay => Act::Give(Mark::Drifted),
            View::Running if same => Act::Join { fence: record.fence },
            View::InDoubt if same => self.ladder(record, occurrence),
            View::Done | View::Running | View::InDoubt => Act::Conflict,
            // Said to be over, yet its body lives here: nothing runs beside it.
            View::Free | View::Failed if self.lives_here(occurrence) => Act::Hold,
            View::Free | View::Failed => {
                let not_before = record.last.as_ref().map_or(0, |last| last.not_before);
                self.permit(Some(record), occurrence, fresh(not_before))
            }
        })
    }

    /// Whether a later turn of the run was answered.
    fn is_past(&self) -> bool {
        self.asked.turn.is_some_and(|turn| self.facts.answered.is_some_and(|last| last > turn))
    }

    fn is_same(&self, record: &Record) -> bool {
        record.is_about(self.asked.fingerprint)
    }

    /// Whether, and how surely, a call that meets a completed record means it again.
    fn new_wish(&self, occurrence: usize, found: &Found) -> Option<Anew> {
        if found.slot.is_some() || found.sibling {
            return None;
        }
        // A place of a turn that was left behind was forgotten, not asked for now; or it was told to wait for a human.
        if self.is_past() {
            let standing = standing(self.facts.base, &self.asked.asker(), self.facts.now);
            return (standing != Standing::Unasked && self.policy.repeats() == Repeat::Ask).then_some(Anew::Asked);
        }
        let newest = self.facts.base.occurrences.last().and_then(|record| record.outcome.as_ref());
        if newest.is_some_and(|outcome| self.facts.reopened > outcome.order) {
            return Some(Anew::Wish);
        }
        let means = match (self.policy.effect, self.policy.repeats()) {
            (Effect::Idempotent, _) | (_, Repeat::Each) => Anew::Wish,
            (_, Repeat::Ask) => Anew::Asked,
            (_, Repeat::Once) => return None,
        };
        self.is_settled(occurrence).then_some(means)
    }

    /// What may happen by itself to a record in doubt, the safest first.
    fn ladder(&self, record: &Record, occurrence: usize) -> Act {
        let body_here = self.lives_here(occurrence);
        let asks = self.policy.in_doubt == InDoubt::Reconcile && !self.asked.looked_up;
        if let Standing::Denied { why } = standing(self.facts.base, &self.asked.asker(), self.facts.now) {
            return Act::Denied { why };
        }
        // What was begun as more than the tool is declared to be now is treated as what it was begun as.
        let laxer = self.is_stricter(record);
        match self.policy.effect {
            Effect::ReadOnly | Effect::Idempotent if !body_here && !laxer => self.rerun(record),
            _ if asks => self.look_up(record, body_here),
            Effect::Keyed(window) if !body_here && !laxer && self.may_resend(record, window) => self.rerun(record),
            _ => Act::Hold,
        }
    }

    /// Whether a body of this occurrence lives in this process.
    fn lives_here(&self, occurrence: usize) -> bool {
        self.facts.here.bodies.iter().any(|(n, _)| *n == occurrence)
    }

    fn look_up(&self, record: &Record, body_here: bool) -> Act {
        let settle = Millis::try_from(self.limits.settle_delay.as_millis()).unwrap_or(Millis::MAX);
        let counts_from = record.no_counts_from(self.facts.owners, settle);
        Act::LookUp { fence: record.fence, no_counts_from: (!body_here).then_some(counts_from) }
    }

    fn may_resend(&self, record: &Record, window: KeyWindow) -> bool {
        let first_sent = record.first_sent.unwrap_or(Millis::MAX);
        self.policy.in_doubt != InDoubt::Hold
            && self.facts.wall >= first_sent
            && window_holds(self.facts.now, self.limits.attempt_deadline, window, first_sent)
    }

    /// Executes the bytes that were sent before, or nothing.
    fn rerun(&self, record: &Record) -> Act {
        let kept = record.kept_arguments.is_some();
        if !kept && record.executed != self.asked.executed {
            return Act::Hold;
        }
        let owners = self.facts.owners;
        let silent = record.claim.as_ref().map(|claim| (claim.fence, claim.quiet_from(owners)));
        Act::Attempt { over: Over::Doubt { silent }, kept, not_before: 0, permitted: false }
    }
}
