//! `resolve`, `approve` and `deny`.

use std::fs;

use serde_json::json;
use toolonce::ReplyKind;

use crate::bench::{Bench, run};

#[tokio::test]
async fn a_call_that_happened_is_given_to_the_next_retry() {
    let bench = Bench::new();
    let reference = bench.in_doubt("order-17").await;
    let settled = bench.run(&["resolve", &reference, "--happened", "--result", r#"{"id": "ch_1"}"#]).ok();
    assert!(settled.starts_with(&format!("Settled: charge {reference} of the run order-17 happened. ")), "{settled}");
    let retry = bench.retry("order-17").await;
    assert_eq!((retry.kind(), retry.message()), (ReplyKind::Replayed, r#"{"id":"ch_1"}"#));
    assert_eq!(bench.charges(), 1);
    let again = bench.run(&["resolve", &reference, "--happened"]).failed(1);
    assert!(again.contains("is not in doubt; it happened, and that is recorded for good"), "{again}");
}

#[tokio::test]
async fn a_call_that_did_not_happen_is_executed_by_the_next_retry() {
    let bench = Bench::new();
    let reference = bench.in_doubt("order-17").await;
    let no = ["resolve", &reference, "--did-not-happen", "--reason", "not in the ledger"];
    let early = bench.run(&no).failed(1);
    assert!(early.contains("was not settled: its effect could still show until 20"), "{early}");
    let forced = bench.run(&[&no[..], &["--force", "--json"]].concat()).json();
    let told = json!({
        "reference": reference, "tool": "charge", "run": "order-17", "settled": "did_not_happen", "already": false,
        "reason": "not in the ledger",
    });
    assert_eq!(forced, told);
    assert_eq!(bench.retry("order-17").await.kind(), ReplyKind::Executed);
    assert_eq!(bench.charges(), 2);
}

#[tokio::test]
async fn a_result_may_come_from_a_file_or_from_standard_input() {
    let bench = Bench::new();
    let (first, second) = (bench.in_doubt("order-17").await, bench.in_doubt("order-18").await);
    let file = bench.file("result.json", "[1]\n");
    let printed = bench.run(&["resolve", &first, "--json", "--happened", "--result", &format!("@{file}")]).json();
    assert_eq!((&printed["settled"], &printed["result"]), (&json!("happened"), &json!([1])));
    let printed = bench.run_with(&["resolve", &second, "--json", "--happened", "--result", "@-"], "\"sent\"").json();
    assert_eq!(printed["result"], "sent");
}

#[tokio::test]
async fn an_approved_call_runs_once_and_a_denied_one_does_not() {
    let bench = Bench::new();
    let (first, second) = (bench.awaiting("order-17").await, bench.awaiting("order-18").await);
    let page = bench.run(&["show", &first]).ok();
    assert!(page.contains("asks before each first execution") && page.contains(r#"{"cents":9}"#), "{page}");
    assert!(page.contains(&format!("toolonce approve {first} --store ")), "{page}");
    let approved = bench.run(&["approve", &first]).ok();
    assert!(approved.starts_with(&format!("Approved: wire {first} of the run order-17 may run once")), "{approved}");
    let denied = bench.run(&["deny", &second, "--reason", "too much", "--json"]).json();
    assert_eq!((&denied["settled"], &denied["reason"]), (&json!("denied"), &json!("too much")));
    assert_eq!(bench.wire("order-17").await.kind(), ReplyKind::Executed);
    let told = bench.wire("order-18").await;
    assert!(told.kind() == ReplyKind::Denied && told.message().contains("too much"), "{told:?}");
    bench.run(&["approve", &second]).failed(1);
}

#[tokio::test]
async fn an_answer_of_the_wrong_kind_is_told_the_right_verb() {
    let bench = Bench::new();
    let (doubt, approval) = (bench.in_doubt("order-17").await, bench.awaiting("order-18").await);
    let error = bench.run(&["resolve", &approval, "--happened"]).failed(1);
    assert!(error.contains(&format!("it waits for approval: `toolonce approve {approval} --store ")), "{error}");
    let error = bench.run(&["approve", &doubt]).failed(1);
    assert!(error.contains("is not waiting for approval; it is in doubt"), "{error}");
    for verb in [&["show", "aaaaaaaaaaaa"][..], &["approve", "aaaaaaaaaaaa"], &["deny", "aaaaaaaaaaaa"]] {
        let error = bench.run(verb).failed(1);
        assert!(error.contains("no call of the namespace \"shop\" has the reference aaaaaaaaaaaa"), "{error}");
    }
}

#[tokio::test]
async fn bad_input_is_refused_before_the_store_is_touched() {
    let bench = Bench::new();
    let reference = bench.in_doubt("order-17").await;
    let held = bench.open().await;
    let missing = bench.file("missing.json", "");
    fs::remove_file(&missing).unwrap();
    let cases: [(&[&str], &str); 14] = [
        (&["resolve", &reference], "--happened|--did-not-happen"),
        (&["resolve", &reference, "--happened", "--did-not-happen", "--reason", "x"], "cannot be used with"),
        (&["resolve", &reference, "--did-not-happen"], "--reason"),
        (&["resolve", &reference, "--did-not-happen", "--reason", " "], "say how you know"),
        (&["resolve", &reference, "--happened", "--force"], "--force goes only with --did-not-happen"),
        (&["resolve", &reference[..6], "--happened"], "all of them are needed"),
        (&["resolve", &reference, "--happened", "--result", "{"], "--result can't be taken: the text ends too early"),
        (&["resolve", &reference, "--happened", "--result", r#"{"a": 1, "a": 2}"#], "appears twice in one object"),
        (&["resolve", &reference, "--happened", "--result", "18446744073709551617"], "more digits than can be kept"),
        (&["resolve", &reference, "--happened", "--result", "sent"], "a text needs quotes"),
        (&["resolve", &reference, "--happened", "--result", &format!("@{missing}")], "can't be read"),
        (&["show", "abc"], "the first 6 are enough"),
        (&["show", "not-hex-at-all"], "12 digits from 0-9 and a-f"),
        (&["ls", "--all", "--status", "done"], "cannot be used with"),
    ];
    for (arguments, why) in cases {
        let error = bench.run(arguments).failed(2);
        assert!(error.contains(why), "{arguments:?}: {error}");
    }
    for (arguments, why) in [
        (["ls", "--namespace", "shop"], "no store is named: give --store PATH, or set TOOLONCE_STORE"),
        (["ls", "--store", "x"], "no namespace is named: give --namespace NAME, or set TOOLONCE_NAMESPACE"),
    ] {
        assert!(run(&arguments).failed(2).contains(why));
    }
    drop(held);
}

#[tokio::test]
async fn the_same_answer_twice_changes_nothing_and_another_one_is_refused() {
    let bench = Bench::new();
    let (first, second) = (bench.in_doubt("order-17").await, bench.in_doubt("order-18").await);
    let happened = ["resolve", &first, "--happened", "--result", r#"{"id": 1.0}"#];
    bench.run(&happened).ok();
    let did_not = ["resolve", &second, "--did-not-happen", "--reason", "not in the ledger", "--force"];
    bench.run(&did_not).ok();
    let (third, fourth) = (bench.awaiting("order-19").await, bench.awaiting("order-20").await);
    let (approve, deny) = (["approve", &*third], ["deny", &*fourth]);
    bench.run(&approve).ok();
    bench.run(&deny).ok();
    for answer in [&happened[..], &did_not, &approve, &deny] {
        let again = bench.run(answer).ok();
        assert!(again.starts_with("Nothing to do: "), "{again}");
        assert_eq!(bench.run(&[answer, &["--json"]].concat()).json()["already"], true);
    }
    for other in [
        &["resolve", &*first, "--happened"][..],
        &["resolve", &first, "--did-not-happen", "--reason", "x", "--force"],
        &["resolve", &second, "--happened"],
        &["deny", &third],
        &["approve", &fourth],
    ] {
        let refused = bench.run(other).failed(1);
        assert!(refused.ends_with("Nothing was changed\n"), "{refused}");
    }
}

#[tokio::test]
async fn who_answered_and_why_is_shown_later() {
    let bench = Bench::new();
    let reference = bench.in_doubt("order-17").await;
    let why = ["--reason", "in the\nledger", "--by", "ada\x1b[2J"];
    bench.run(&[&["resolve", &*reference, "--happened"][..], &why].concat()).ok();
    let page = bench.run(&["show", &reference]).ok();
    assert!(page.contains("a person said    it happened (try 1): in the\\nledger\n"), "{page}");
    assert!(page.contains("                   ada\\u{1b}[2J, 20"), "{page}");
    let statement = bench.run(&["show", &reference, "--json"]).json()["execution"]["statement"].clone();
    assert_eq!((&statement["reason"], &statement["by"]), (&json!("in the\nledger"), &json!("ada\x1b[2J")));
}
