//! What a fork has of a record, after any course of attempts in turns.

use proptest::prelude::*;
use toolonce::key::{Digest, Fingerprint};
use toolonce::protocol::apply::{Answer, End, Event, NewClaim, Over, apply};
use toolonce::protocol::fork::part_of;
use toolonce::protocol::history::History;
use toolonce::protocol::notes::{Note, NotedPlace, note};
use toolonce::protocol::record::{
    Asker, Base, Body, Failure, FailureClass, Fence, Given, OwnerId, Record, Strictness, Turn,
};

/// How an attempt ends.
#[derive(Debug, Clone, Copy)]
enum Course {
    Success,
    Fails(FailureClass),
    /// It stays in doubt, and the next attempt is over it.
    Unknown,
    /// It is in doubt until a human says that it did not happen.
    Denied,
}

#[derive(Debug, Clone, Copy)]
struct Step {
    turn: Turn,
    course: Course,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let course = prop_oneof![
        1 => Just(Course::Success),
        2 => Just(Course::Fails(FailureClass::Retryable)),
        2 => Just(Course::Fails(FailureClass::Permanent)),
        3 => Just(Course::Unknown),
        2 => Just(Course::Denied),
    ];
    let steps = prop::collection::vec((0_u32..3, course), 1..8);
    steps.prop_map(|steps| {
        let mut turn = 0;
        let mut next = |(later, course)| {
            turn += later;
            Step { turn, course }
        };
        steps.into_iter().map(&mut next).collect()
    })
}

fn claim(turn: Turn, base: &Base) -> Event {
    let in_doubt = base.occurrences.first().is_some_and(Record::is_tainted);
    Event::Claim(Box::new(NewClaim {
        owner: OwnerId([1; 16]),
        at: 0,
        attempt_deadline: std::time::Duration::from_secs(1),
        window: None,
        over: if in_doubt { Over::Doubt { silent: None } } else { Over::Nothing },
        asker: Asker { run: "r".into(), fingerprint: Fingerprint::default() },
        turn: Some(turn),
        permitted: false,
        settle_delay: std::time::Duration::ZERO,
        strictness: Strictness::Write,
        executed: Digest::default(),
        kept_arguments: None,
        leaves: Vec::new(),
    }))
}

fn answered(base: &mut Base, turn: Turn, given: Given) {
    let place = NotedPlace { run: "r".into(), turn, nth: 0, id: String::new(), fingerprint: Fingerprint::default() };
    let delivered = matches!(given, Given::Outcome { .. }).then_some(true);
    note(
        base,
        &History::default(),
        &Note { occurrence: 0, place: Some(place), given: Some(given), delivered, replay: false },
    );
}

/// The record after one more attempt.
fn attempted(base: &Base, step: Step) -> Base {
    let mut base = apply(base, 0, &claim(step.turn, base)).unwrap();
    let fence = base.occurrences[0].fence;
    let failure = |class| Failure { class, message: format!("in turn {}", step.turn) };
    let (end, given) = match step.course {
        Course::Success => (
            End::Success { body: Body::Inline(vec![1]), fingerprint: Fingerprint::default(), order: 0 },
            Given::Outcome { mark: None, stop: false },
        ),
        Course::Fails(class) => {
            (End::NoEffect { failure: failure(class), not_before: 0 }, Given::Failure(failure(class)))
        }
        Course::Unknown | Course::Denied => {
            (End::Unknown { error: String::new() }, Given::Status { kind: 0, text: "unknown".into() })
        }
    };
    base = apply(&base, 0, &Event::Ended { fence, end, at: 0 }).unwrap();
    answered(&mut base, step.turn, given);
    if let Course::Denied = step.course {
        base = apply(&base, 0, &Event::Answered { fence, answer: Answer::DidNotHappen, at: 0 }).unwrap();
    }
    base
}

proptest! {
    #[test]
    fn attempts_are_of_the_turn_that_began_them(steps in steps(), before in 0_u32..16) {
        let mut base = Base::default();
        // The turn that began what is in doubt, and who it turns out to be that made it happen.
        let (mut doubt, mut happened) = (None, None);
        for step in steps {
            base = attempted(&base, step);
            let began = doubt.unwrap_or(step.turn);
            match step.course {
                Course::Success => {
                    happened = Some(began);
                    break;
                }
                Course::Fails(_) => {}
                Course::Unknown => doubt = Some(began),
                Course::Denied => doubt = None,
            }
        }
        let part = part_of(&base, before, "f");
        if happened.is_none() && doubt.is_some_and(|turn| turn < before) {
            prop_assert_eq!(part, Err(0));
            return Ok(());
        }
        let record = part.unwrap().map(|mut part| part.base.occurrences.remove(0)).unwrap_or_default();
        prop_assert_eq!(record.outcome.is_some(), happened.is_some_and(|turn| turn < before));
        prop_assert!(record.outcome.is_some() || !record.is_tainted());
        prop_assert!(record.fence <= base.occurrences[0].fence);
        let places = |record: &Record| {
            let earlier = record.slots.iter().filter(|slot| slot.turn < before);
            earlier.map(|slot| (slot.turn, slot.given.clone())).collect::<Vec<_>>()
        };
        prop_assert_eq!(places(&record), places(&base.occurrences[0]));
        prop_assert!(record.slots.iter().all(|slot| slot.turn < before && slot.run == "f"));
        // A failure that it knows of is one that an earlier turn was told of, or had.
        if let Some(last) = record.last.filter(|_| record.outcome.is_none()) {
            prop_assert!(record.begun.fence == Fence::default() || record.begun.turn.is_some_and(|turn| turn < before));
            let told = (0..before).map(|turn| format!("in turn {turn}")).any(|text| last.failure.message == text);
            // Or one of a later send of what an earlier turn began.
            let sent_again = record.begun.fence != Fence::default() && last.fence >= record.begun.fence;
            prop_assert!(told || sent_again, "{:?}", last);
        }
    }
}
