//! Single interleavings that an earlier wording of the rules got wrong, told as stories. "f1" is the attempt under
//! fence 1.

use std::time::Duration;

use toolonce::key::{Digest, Fingerprint};
use toolonce::protocol::apply::{Answer, End, Event, NewClaim, Over, Refused, apply};
use toolonce::protocol::decide::{Act, Asked, Decision, Facts, Here, Mark, decide};
use toolonce::protocol::history::{History, Seen};
use toolonce::protocol::notes::{Note, note};
use toolonce::protocol::record::{
    Base, Body, FailureClass, Fence, Given, Liveness, OwnerId, Record, ToldBy, Turn, View, view,
};
use toolonce::{InDoubt, KeyWindow, Millis, Policy, Repeat};

use super::parts::{asked, new_claim, no_effect, place, unknown};
use super::repeat::LIMITS;

const WINDOW: KeyWindow = KeyWindow::For(Duration::from_millis(100));

/// A base and what is known beside it.
struct Story {
    policy: Policy,
    base: Base,
    history: History,
    last_turn: Option<Turn>,
    owner: Liveness,
    now: Millis,
    bytes: u8,
}

impl Story {
    fn of(policy: Policy) -> Self {
        Self {
            policy,
            base: Base::default(),
            history: History::default(),
            last_turn: None,
            owner: Liveness::Alive,
            now: 0,
            bytes: 1,
        }
    }

    fn record(&self, occurrence: usize) -> &Record {
        &self.base.occurrences[occurrence]
    }

    fn view(&self, occurrence: usize) -> View {
        view(self.record(occurrence), &|_: OwnerId| self.owner, self.now)
    }

    /// What the `nth` equal call of `turn` gets; all of a message are handed over together.
    fn ask(&self, turn: Turn, nth: u32) -> Decision {
        self.decide(Some(turn), Some(nth), "")
    }

    fn decide(&self, turn: Option<Turn>, nth: Option<u32>, id: &str) -> Decision {
        let asked = Asked { turn, nth, id: id.into(), executed: Digest([self.bytes; 32]), ..asked(0) };
        let facts = Facts {
            base: &self.base,
            history: &self.history,
            last_turn: self.last_turn,
            answered: self.last_turn,
            owners: &|_: OwnerId| self.owner,
            here: &Here::default(),
            reopened: 0,
            look_alike: None,
            now: self.now,
            wall: self.now,
        };
        decide(&facts, &asked, &self.policy, LIMITS)
    }

    fn apply(&mut self, occurrence: usize, event: &Event) -> Result<(), Refused> {
        self.base = apply(&self.base, occurrence, event)?;
        Ok(())
    }

    fn claim(&mut self, occurrence: usize, over: Over) -> Result<Fence, Refused> {
        let window = match self.policy.effect() {
            toolonce::Effect::Keyed(window) => Some(window),
            _ => None,
        };
        let asked = Asked { executed: Digest([self.bytes; 32]), ..asked(0) };
        let claim = NewClaim { at: self.now, window, ..new_claim(&asked, self.policy.effect(), over) };
        self.apply(occurrence, &Event::Claim(Box::new(claim)))?;
        Ok(self.record(occurrence).fence)
    }

    /// Asks, and claims what must be executed.
    fn begin(&mut self, turn: Turn, nth: u32) -> (usize, Fence) {
        let decision = self.ask(turn, nth);
        let Act::Attempt { over, .. } = decision.act else { panic!("{decision:?}") };
        let fence = self.claim(decision.occurrence, over).unwrap();
        self.note(decision.occurrence, turn, nth, None, false);
        (decision.occurrence, fence)
    }

    fn note(&mut self, occurrence: usize, turn: Turn, nth: u32, given: Option<Given>, is_taken: bool) {
        let noted = Note {
            occurrence,
            place: Some(place(turn, nth)),
            given,
            delivered: is_taken.then_some(true),
            replay: false,
        };
        note(&mut self.base, &self.history, &noted);
    }

    fn end(&mut self, occurrence: usize, fence: Fence, end: End) -> Result<(), Refused> {
        let at = self.now;
        self.apply(occurrence, &Event::Ended { fence, end, at })
    }

    fn answered(&mut self, fence: Fence, answer: Answer) -> Result<(), Refused> {
        let at = self.now;
        self.apply(0, &Event::Answered { fence, answer, at })
    }

    /// Executes for the place, and the caller takes the outcome.
    fn run(&mut self, turn: Turn, nth: u32) -> usize {
        let (occurrence, fence) = self.begin(turn, nth);
        self.end(occurrence, fence, success(fence)).unwrap();
        self.take(occurrence, turn, nth, None);
        occurrence
    }

    fn take(&mut self, occurrence: usize, turn: Turn, nth: u32, mark: Option<String>) {
        self.note(occurrence, turn, nth, Some(Given::Outcome { mark, stop: false }), true);
        self.last_turn = self.last_turn.max(Some(turn));
    }

    fn resume(&mut self, seen: Seen) {
        self.history.cuts.push(seen);
        self.last_turn = None;
    }
}

fn success(fence: Fence) -> End {
    End::Success { body: Body::Inline(vec![fence.0 as u8]), fingerprint: Fingerprint::default(), order: 0 }
}

fn each() -> Policy {
    Policy::write().repeat(Repeat::Each)
}

fn is_attempt(decision: &Decision) -> bool {
    matches!(decision.act, Act::Attempt { .. })
}

fn doubt(fence: Fence) -> Over {
    Over::Doubt { silent: Some((fence, 0)) }
}

/// Two pens are asked for in one message under `Each`; the second must not join the first, which is still running.
#[test]
fn hole_5_siblings_come_before_joining() {
    let mut story = Story::of(each());
    story.begin(1, 0);
    let second = story.ask(1, 1);
    assert_eq!((second.occurrence, is_attempt(&second)), (1, true));
}

/// Turn 1 charges, crash, and the model is sampled again for turn 1: the same call with another id. It is the first
/// one's second delivery, not a sibling.
#[test]
fn hole_6_redeliveries_match_by_position_not_by_id() {
    for nth in [None, Some(0)] {
        let mut story = Story::of(each());
        story.run(1, 0);
        story.resume(Seen::Through(0));
        let again = story.decide(Some(1), nth, "c7");
        assert_eq!((again.occurrence, again.act), (0, Act::Give(Mark::Own)));
    }
}

/// Sibling 0 is in doubt, sibling 1 done and delivered; turn 2 repeats. The highest occurrence is done, but it is the
/// one in doubt that is meant.
#[test]
fn hole_7_the_lowest_that_is_not_settled() {
    let mut story = Story::of(each());
    let (first, fence) = story.begin(1, 0);
    story.run(1, 1);
    story.end(first, fence, unknown()).unwrap();
    let repeat = story.ask(2, 0);
    assert_eq!((repeat.occurrence, repeat.act), (0, Act::Hold));
}

/// Two siblings are both told "running"; turn 2 repeats both. The second repeat must find the second sibling, not a
/// third unit of work, although the first repeat already has a place in turn 2.
#[test]
fn hole_8_repeated_siblings_find_one_each() {
    let mut story = Story::of(each());
    story.begin(1, 0);
    story.begin(1, 1);
    let first = story.ask(2, 0);
    story.note(first.occurrence, 2, 0, None, false);
    let second = story.ask(2, 1);
    assert_eq!((first.occurrence, second.occurrence), (0, 1));
    assert!(matches!(second.act, Act::Join { .. }));
}

/// Two callers each decide "the next occurrence". Only a claim makes one, on the base it was decided on: on the base
/// that the other's claim made, the same claim finds a running attempt.
#[test]
fn hole_9_and_10_only_a_claim_makes_the_next_occurrence() {
    let mut story = Story::of(each());
    story.claim(0, Over::Nothing).unwrap();
    assert_eq!(story.claim(0, Over::Nothing), Err(Refused::Running));
    assert_eq!(story.claim(2, Over::Nothing), Err(Refused::NoOccurrence));
}

/// The outcome came after the caller's patience ended: nobody took it. The next equal call is a retry under `Each`.
#[test]
fn hole_11_completed_is_not_delivered() {
    let mut story = Story::of(each());
    let (occurrence, fence) = story.begin(1, 0);
    story.end(occurrence, fence, success(fence)).unwrap();
    assert_eq!(story.ask(2, 0).act, Act::Give(Mark::Earlier));
}

/// Three intended repeats, each after the outcome of the one before was taken: three effects.
#[test]
fn hole_12_taken_outcomes_count_for_the_very_next_decision() {
    let mut story = Story::of(each());
    assert_eq!([0, 1, 2].map(|turn| story.run(turn, 0)), [0, 1, 2]);
}

/// Turn 1 is delivered; resumed with nothing seen; resumed "through 3". This history never saw the outcome, though its
/// newest cut would keep turn 1.
#[test]
fn hole_13_every_cut_since_counts() {
    let mut story = Story::of(each());
    story.run(1, 0);
    story.resume(Seen::Nothing);
    story.resume(Seen::Through(3));
    assert_eq!(story.ask(4, 0).act, Act::Give(Mark::Earlier));
}

/// Turns 1 and 3 got the outcome; resumed with nothing seen. Turn 3 of the new history comes after its turn 1 took the
/// outcome again: it is another call, and the old place must not give it the outcome unmarked.
#[test]
fn hole_14_an_abandoned_place_matches_only_while_unsettled() {
    let mut story = Story::of(Policy::write());
    story.run(1, 0);
    story.take(0, 3, 0, Some("done in an earlier turn".into()));
    story.resume(Seen::Nothing);
    assert_eq!(story.ask(1, 0).act, Act::Give(Mark::Own));
    story.take(0, 1, 0, None);
    assert_eq!(story.ask(3, 0).act, Act::Give(Mark::Earlier));
}

/// A call was told "running", and later turns were answered. After a resume it must be told the same, or the next
/// model step has another input than recorded.
#[test]
fn hole_15_answers_freeze_when_a_later_turn_is_recorded() {
    let mut story = Story::of(Policy::write());
    let (occurrence, fence) = story.begin(1, 0);
    let told = Given::Status { kind: 1, text: "still running".into() };
    story.note(occurrence, 1, 0, Some(told.clone()), false);
    story.end(occurrence, fence, success(fence)).unwrap();
    assert_eq!(story.ask(1, 0).act, Act::Give(Mark::Own));
    story.last_turn = Some(2);
    assert_eq!(story.ask(1, 0).act, Act::GiveAgain(told));
}

/// A sibling got the outcome marked as the other's. Its redelivery must not turn it into its own.
#[test]
fn a_marked_outcome_is_redelivered_marked() {
    let mut story = Story::of(Policy::write());
    story.run(1, 0);
    assert_eq!(story.ask(1, 1).act, Act::Give(Mark::Sibling));
    story.take(0, 1, 1, Some("the same call of this message".into()));
    let again = story.ask(1, 1).act;
    assert!(matches!(again, Act::GiveAgain(Given::Outcome { mark: Some(_), .. })), "{again:?}");
}

/// f1 timed out after it charged; the re-send is refused. That speaks of f2 only.
#[test]
fn hole_18_an_end_speaks_of_its_own_attempt() {
    let mut story = Story::of(Policy::keyed(WINDOW));
    let f1 = story.claim(0, Over::Nothing).unwrap();
    let f2 = story.claim(0, doubt(f1)).unwrap();
    story.end(0, f2, no_effect(FailureClass::Permanent)).unwrap();
    assert_eq!(story.view(0), View::InDoubt);
    assert_eq!(story.claim(0, Over::Nothing), Err(Refused::InDoubt));
}

/// f1's owner was stopped between claim and send. A look-up's no counts only from the deadline and the settle delay
/// on, however long the owner has been silent.
#[test]
fn hole_19_and_20_a_no_counts_after_deadline_and_settle_delay() {
    let mut story = Story::of(Policy::write().in_doubt(InDoubt::Reconcile));
    let (_, fence) = story.begin(1, 0);
    story.owner = Liveness::Silent;
    let no_counts_from = Some(40);
    assert_eq!(story.ask(2, 0).act, Act::LookUp { fence, no_counts_from });
    story.owner = Liveness::Dead(5);
    let no_counts_from = Some(25);
    assert_eq!(story.ask(2, 0).act, Act::LookUp { fence, no_counts_from });
}

/// f1 landed, a human said no, f2 is claimed; then f1's success arrives. It completes the record, and f2's clean
/// failure changes nothing.
#[test]
fn hole_21_a_late_success_completes_after_a_humans_no() {
    let mut story = Story::of(Policy::write());
    let f1 = story.claim(0, Over::Nothing).unwrap();
    story.answered(f1, Answer::DidNotHappen).unwrap();
    let f2 = story.claim(0, Over::Nothing).unwrap();
    story.end(0, f1, success(f1)).unwrap();
    assert_eq!(story.view(0), View::Done);
    assert_eq!(story.end(0, f2, no_effect(FailureClass::Retryable)), Err(Refused::OutcomeRecorded));
    assert_eq!(story.claim(0, Over::Nothing), Err(Refused::OutcomeRecorded));
}

/// f1 is in doubt when its honest success arrives: nobody has to settle what is known.
#[test]
fn hole_22_a_success_settles_a_doubt() {
    let mut story = Story::of(Policy::write());
    let f1 = story.claim(0, Over::Nothing).unwrap();
    story.end(0, f1, unknown()).unwrap();
    story.end(0, f1, success(f1)).unwrap();
    assert_eq!(story.view(0), View::Done);
}

/// A look-up asked about f1 answers no when f2 is in doubt.
#[test]
fn hole_23_answers_name_a_fence() {
    let mut story = Story::of(Policy::keyed(WINDOW));
    let f1 = story.claim(0, Over::Nothing).unwrap();
    let f2 = story.claim(0, doubt(f1)).unwrap();
    assert_eq!(story.answered(f1, Answer::DidNotHappen), Err(Refused::OldAttempt));
    story.answered(f2, Answer::DidNotHappen).unwrap();
    assert_eq!(story.view(0), View::Free);
}

/// An answer about an attempt that was never begun is a mistake, whatever it says.
#[test]
fn an_answer_about_no_attempt_is_refused() {
    let mut story = Story::of(Policy::write());
    let f1 = story.claim(0, Over::Nothing).unwrap();
    let happened = Answer::Happened {
        body: Body::Inline(Vec::new()),
        fingerprint: Fingerprint::default(),
        told_by: ToldBy::Human,
        order: 0,
    };
    assert_eq!(story.answered(Fence(f1.0 + 1), happened.clone()), Err(Refused::NotOpen));
    assert_eq!(story.answered(Fence(0), happened), Err(Refused::NotOpen));
}

/// f1 silent, f2 refused cleanly, then f1's clean failure arrives: now all is known, and the record is free.
#[test]
fn hole_24_the_taint_is_a_set_of_fences() {
    let mut story = Story::of(Policy::keyed(WINDOW));
    let f1 = story.claim(0, Over::Nothing).unwrap();
    let f2 = story.claim(0, doubt(f1)).unwrap();
    story.end(0, f2, no_effect(FailureClass::Retryable)).unwrap();
    story.end(0, f1, no_effect(FailureClass::Retryable)).unwrap();
    assert_eq!(story.view(0), View::Free);
}

/// Claimed inside the provider's window, sent after it: the deadline of every attempt ends with its safe part.
#[test]
fn hole_25_a_deadline_never_outlasts_the_window() {
    let mut story = Story::of(Policy::keyed(WINDOW));
    let f1 = story.claim(0, Over::Nothing).unwrap();
    story.now = 70;
    story.claim(0, doubt(f1)).unwrap();
    assert_eq!(story.record(0).claim.as_ref().unwrap().deadline, 80);
}

/// Sent, crash, resumed when the provider has forgotten the key. It must not look like a first call.
#[test]
fn hole_26_first_sent_outlives_the_attempt() {
    let mut story = Story::of(Policy::keyed(WINDOW));
    story.begin(1, 0);
    story.owner = Liveness::Dead(1);
    story.now = 70;
    assert!(is_attempt(&story.ask(1, 0)));
    story.now = 90;
    assert_eq!(story.ask(1, 0).act, Act::Hold);
}

/// A stored 402 would be replayed for ever under the same downstream key: a permanent failure raises the generation of
/// the next attempt, a retryable one doesn't, and an open attempt forbids it.
#[test]
fn hole_27_generations() {
    let mut story = Story::of(Policy::keyed(WINDOW));
    let f1 = story.claim(0, Over::Nothing).unwrap();
    story.end(0, f1, no_effect(FailureClass::Retryable)).unwrap();
    let f2 = story.claim(0, Over::Nothing).unwrap();
    assert_eq!(story.record(0).generation, 0);
    story.end(0, f2, no_effect(FailureClass::Permanent)).unwrap();
    let f3 = story.claim(0, Over::Nothing).unwrap();
    assert_eq!(story.record(0).generation, 1);
    let f4 = story.claim(0, doubt(f3)).unwrap();
    story.end(0, f4, no_effect(FailureClass::Permanent)).unwrap();
    let nothing_known = Over::Doubt { silent: None };
    story.claim(0, nothing_known).unwrap();
    assert_eq!(story.record(0).generation, 1);
    story.bytes = 2;
    assert_eq!(story.claim(0, doubt(Fence(5))), Err(Refused::OtherBytes));
}

/// A permanent failure ends its own generation and no later one: an attempt after it that was in doubt until a human
/// said no is followed under the same key.
#[test]
fn a_no_keeps_the_generation_that_a_failure_began() {
    let mut story = Story::of(Policy::keyed(WINDOW));
    let f1 = story.claim(0, Over::Nothing).unwrap();
    story.end(0, f1, no_effect(FailureClass::Permanent)).unwrap();
    let f2 = story.claim(0, Over::Nothing).unwrap();
    story.end(0, f2, unknown()).unwrap();
    story.answered(f2, Answer::DidNotHappen).unwrap();
    story.claim(0, Over::Nothing).unwrap();
    assert_eq!(story.record(0).generation, 1);
}

/// What is known not to have happened may be tried under a new key once the provider has forgotten the old one, and a
/// clock that stands before the first send can't tell that it hasn't; an unknown window is no reason for another key.
#[test]
fn a_generation_ends_with_its_window() {
    for (policy, at, generation) in [
        (Policy::keyed(WINDOW), 1_060, 0),
        (Policy::keyed(WINDOW), 1_090, 1),
        (Policy::keyed(WINDOW), 990, 1),
        (Policy::keyed(KeyWindow::Permanent), 990, 0),
        (Policy::keyed(KeyWindow::Permanent), 9_999_999, 0),
        (Policy::keyed(KeyWindow::Unknown), 9_999_999, 0),
    ] {
        let mut story = Story::of(policy.clone());
        story.now = 1_000;
        let f1 = story.claim(0, Over::Nothing).unwrap();
        story.end(0, f1, no_effect(FailureClass::Retryable)).unwrap();
        story.now = at;
        story.claim(0, Over::Nothing).unwrap();
        let record = story.record(0);
        assert_eq!(record.generation, generation, "{policy:?} at {at}");
        assert_eq!(record.first_sent, Some(if generation == 0 { 1_000 } else { at }), "{policy:?} at {at}");
    }
}

/// A zombie's end must never meet a newer claim under its own fence.
#[test]
fn hole_28_fences_only_grow() {
    let mut story = Story::of(Policy::write());
    let f1 = story.claim(0, Over::Nothing).unwrap();
    story.end(0, f1, no_effect(FailureClass::Permanent)).unwrap();
    let f2 = story.claim(0, Over::Nothing).unwrap();
    assert!(f2 > f1);
    assert_eq!(story.end(0, f1, no_effect(FailureClass::Retryable)), Err(Refused::NotOpen));
    assert_eq!(story.view(0), View::Running);
}

/// Set 20, set 25, set 20: the third is a new wish, or the thermostat stays at 25. Each value is a key of its own, so
/// here it is the second "set 20" after the first one's outcome was taken.
#[test]
fn hole_38_an_idempotent_call_runs_again_once_its_outcome_was_taken() {
    let mut story = Story::of(Policy::idempotent());
    story.run(0, 0);
    let third = story.ask(2, 0);
    assert_eq!((third.occurrence, is_attempt(&third)), (1, true));
}
