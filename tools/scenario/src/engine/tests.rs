//! The runner notices what is not as expected.

use super::{Job, StoreKind};
use crate::file::parse;

/// What is found wrong with a case of these steps on a write tool `t`, on the memory store.
fn found(steps: &str, rest: &str) -> String {
    let line = format!(r#"{{"id":"x","tools":{{"t":{{}}}},"steps":[{steps}]{rest}}}"#);
    let cases = parse(&line.replace('\n', " ")).unwrap_or_else(|problems| panic!("{}\n{line}", problems[0]));
    Job { case: &cases[0], store: StoreKind::Memory }.run().join("\n")
}

/// A call of `t` named `name` in `turn`, with more fields.
fn call(name: &str, turn: u32, more: &str) -> String {
    format!(r#"{{"op":"call","as":"{name}","turn":{turn},"tool":"t","args":{{"x":1}}{more}}}"#)
}

#[test]
fn a_case_that_holds_says_nothing() {
    let steps = [call("A", 0, r#","expect":{"reply":"executed"}"#), call("B", 1, r#","expect":{"same_as":"A"}"#)];
    assert_eq!(found(&steps.join(","), r#","effects":{"t":1},"executions":{"t":1},"incidents":0"#), "");
}

#[test]
fn every_expectation_can_fail() {
    let executed = call("A", 0, "");
    for (expect, says) in [
        (r#"{"reply":"running"}"#, "B: expected running, came replayed"),
        (r#"{"reply":["running","failed"]}"#, "B: expected running or failed, came replayed"),
        (r#"{"marked":false}"#, "B: expected unmarked, came marked (replayed)"),
        (r#"{"result":{"n":2,"tool":"t"}}"#, r#"B: expected the result {"n":2,"tool":"t"}, came replayed"#),
        (r#"{"says":"no such text"}"#, r#"B: expected a message with "no such text""#),
        (r#"{"not_says":"stored result"}"#, r#"B: expected a message without "stored result""#),
        (r#"{"downstream_differs_from":"A"}"#, "B: expected another than the downstream key of A"),
        (r#"{"fields":"/x"}"#, "B: expected the field /x among the differing, came []"),
        (r#"{"kept":false}"#, "B: expected an outcome that is not kept"),
        (r#"{"error":true}"#, "B: expected an error, came replayed"),
    ] {
        let repeated = call("B", 1, &format!(r#","expect":{expect}"#));
        let found = found(&format!("{executed},{repeated}"), "");
        assert!(found.starts_with(&format!("x [memory]: {says}")), "{found}\n{expect}");
    }
}

#[test]
fn other_outcomes_and_keys_are_told_apart() {
    let other = r#"{"op":"call","as":"B","turn":0,"tool":"t","args":{"x":2},"expect":"#;
    let same = found(&format!(r#"{},{other}{{"same_as":"A"}}}}"#, call("A", 0, "")), "");
    assert!(same.contains(r#"B: expected the outcome of A, {"n":1,"tool":"t"}, came {"n":2,"tool":"t"}"#), "{same}");
    let key = found(&format!(r#"{},{other}{{"downstream_same_as":"A"}}}}"#, call("A", 0, "")), "");
    assert!(key.contains("B: expected the downstream key of A"), "{key}");
}

#[test]
fn every_total_can_fail() {
    for (total, says) in [
        (r#""effects":{"t":2}"#, "effects of t: expected 2, came 1"),
        (r#""executions":{"t":[2,3]}"#, "executions of t: expected 2 to 3, came 1"),
        (r#""downstream_keys":{"t":2}"#, "downstream keys of t: expected 2, came 1"),
        (r#""warnings":["t"]"#, r#"tools that the lint names: expected {"t"}, came {}"#),
        (r#""incidents":1"#, "incidents of the guard: expected 1, came 0"),
    ] {
        assert_eq!(found(&call("A", 0, ""), &format!(",{total}")), format!("x [memory]: {says}"));
    }
}

#[test]
fn steps_that_fail_name_their_number() {
    let (a, crash) = (call("A", 0, ""), call("B", 0, r#","fate":"crash_before""#));
    for (step, says) in [
        (r#"{"op":"resolve","call":"A","happened":false}"#.to_owned(), "step 2: no call in doubt has the reference"),
        (
            r#"{"op":"answer_shown","call":"A","expect":{"error":true}}"#.to_owned(),
            "step 2: expected an error, came none",
        ),
        (format!(r#"{crash},{{"op":"restart"}}"#), "step 2: B: expected the process to die, came an answer"),
        (r#"{"op":"step","name":"s","value":1,"expect":{"value":2}}"#.to_owned(), "step 2: the step s: expected"),
        (r#"{"op":"fork","as_run":"r1","before_turn":1}"#.to_owned(), "step 2: run \"r1\" exists"),
    ] {
        let found = found(&format!("{a},{step}"), "");
        assert!(found.starts_with(&format!("x [memory]: {says}")), "{found}");
    }
}

#[test]
fn calls_of_a_process_that_ended_have_no_reply() {
    let slow = call("A", 0, r#","fate":"slow:100","parallel":true,"expect":{"reply":"executed"}"#);
    let found = found(&format!(r#"{slow},{{"op":"advance","ms":10}},{{"op":"restart"}}"#), r#","effects":{"t":0}"#);
    assert_eq!(found, "x [memory]: A: expected executed, came no reply: its process ended");
}

#[test]
fn a_refusal_for_want_of_a_run_is_nothing_else() {
    let call = |expect: &str| format!(r#"{{"op":"call","as":"A","run":"","tool":"t","expect":{expect}}}"#);
    assert_eq!(found(&call(r#"{"reply":"refused","marked":false}"#), ""), "");
    assert_eq!(found(&call(r#"{"error":true}"#), ""), "");
    for expect in [r#"{"reply":"failed"}"#, r#"{"reply":"refused","says":"x"}"#, r#"{"marked":false}"#] {
        assert!(found(&call(expect), "").contains("came the error the run id is empty"), "{expect}");
    }
}
