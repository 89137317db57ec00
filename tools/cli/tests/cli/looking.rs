//! `ls` and `show`.

use std::fs;
use std::process::Stdio;

use serde_json::json;
use toolonce::Policy;

use crate::bench::{Bench, Output, command, run};

#[tokio::test]
async fn ls_lists_what_needs_a_person_and_counts_the_rest() {
    let bench = Bench::new();
    let charge = bench.in_doubt("order-17").await;
    let approval = bench.awaiting("order-18").await;
    bench.done("order-19").await;

    let listed = bench.run(&["ls"]).ok();
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[0].starts_with("REFERENCE     STATUS             TOOL    TRIES  SINCE "), "{listed}");
    let line = |reference: &str| *lines.iter().find(|line| line.starts_with(reference)).unwrap();
    assert!(line(&charge).contains("  in doubt           charge      1  20"), "{listed}");
    assert!(line(&charge).ends_with("  order-17"), "{listed}");
    assert!(line(&approval).contains("  awaiting approval  wire        -  20"), "{listed}");
    assert!(
        listed.contains("\n1 call waits for a person. 1 call may go on by itself when the agent makes"),
        "{listed}"
    );
    assert!(listed.ends_with("Not listed: 1 done (see --all).\n"), "{listed}");
    assert!(!listed.contains('\x1b'), "no colours in a pipe");

    let all = bench.run(&["ls", "--all", "--json"]).json();
    let status =
        |run: &str| all["calls"].as_array().unwrap().iter().find(|call| call["run"] == run).unwrap()["status"].clone();
    assert_eq!(
        (status("order-17"), status("order-18"), status("order-19")),
        (json!("in_doubt"), json!("awaiting_approval"), json!("done"))
    );
    assert_eq!((&all["namespace"], &all["others"]), (&json!("shop"), &json!({})));
}

#[tokio::test]
async fn ls_filters_by_run_tool_and_status() {
    let bench = Bench::new();
    bench.in_doubt("order-17").await;
    bench.in_doubt("order-18").await;
    bench.done("order-18").await;
    let runs = |output: Output| -> Vec<String> {
        let printed = output.json();
        let calls = printed["calls"].as_array().unwrap().iter();
        calls.map(|call| format!("{} {}", call["run"].as_str().unwrap(), call["status"].as_str().unwrap())).collect()
    };
    assert_eq!(runs(bench.run(&["ls", "--json", "--run", "order-18"])), ["order-18 in_doubt"]);
    assert_eq!(runs(bench.run(&["ls", "--json", "--tool", "note"])), [""; 0]);
    assert_eq!(runs(bench.run(&["ls", "--json", "--tool", "note", "--status", "done,failed"])), ["order-18 done"]);
    let none = bench.run(&["ls", "--tool", "note"]).ok();
    assert_eq!(none, "Nothing waits for a person.\nNot listed: 1 done (see --all).\n");
    let unknown = bench.run(&["ls", "--run", "order-99"]).failed(1);
    assert!(unknown.contains("no call of the run \"order-99\" is in the namespace \"shop\""), "{unknown}");
}

#[tokio::test]
async fn a_wrong_namespace_is_not_taken_for_nothing_to_do() {
    let bench = Bench::new();
    bench.in_doubt("order-17").await;
    let error = run(&["ls", "--store", bench.path(), "--namespace", "shopp"]).failed(1);
    assert!(error.contains("no call of the namespace \"shopp\" is in this store: check the name"), "{error}");
}

#[tokio::test]
async fn show_says_what_is_known_of_a_call_in_doubt_and_what_to_do() {
    let bench = Bench::new();
    let reference = bench.in_doubt("order-17").await;
    let page = bench.run(&["show", &reference[..6]]).ok();
    for part in [
        &format!("{reference}  charge  in doubt\nIt may have happened"),
        "keyed: the system downstream drops a repeat of its key",
        "no end was recorded: its process died or was stopped",
        r#"{"cents":4200}"#,
        "turn 0, call id call_1: ",
        &format!("toolonce resolve {reference} --did-not-happen --reason '…' --store "),
        "\"did not happen\" is taken from then on",
        "Nobody need answer while the system downstream remembers the key",
        "tries            1, outcome of 1 unknown",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    let printed = bench.run(&["show", &reference, "--json"]).json();
    let key = &printed["execution"]["downstream_key"];
    assert!(key["hex64"].as_str().unwrap().starts_with(key["hex32"].as_str().unwrap()));
    assert!(key["hex32"].as_str().unwrap().starts_with(&reference));
    assert_eq!(key["uuid"].as_str().unwrap().len(), 36);
    assert_eq!(printed["execution"]["arguments"], r#"{"cents":4200}"#);
    assert_eq!(
        (&printed["execution"]["open"][0]["attempt"], &printed["next_call"]),
        (&json!(1), &json!("sends_again"))
    );
}

#[tokio::test]
async fn show_of_a_call_that_happened_has_its_result() {
    let bench = Bench::new();
    let reference = bench.done("order-17").await;
    let page = bench.run(&["show", &reference]).ok();
    assert!(page.contains("It happened, and its outcome is recorded.") && page.contains("\"noted\""), "{page}");
    assert!(page.contains("turn 0, call id call_1: the outcome\n"), "{page}");
    assert!(!page.contains("What to do"), "{page}");
    let printed = bench.run(&["show", &reference, "--json"]).json();
    assert_eq!(printed["execution"]["outcome"]["told_by"], "tool");
    assert_eq!(printed["execution"]["places"][0]["delivered"], true);
}

#[tokio::test]
async fn looking_changes_no_call() {
    let bench = Bench::new();
    let reference = bench.in_doubt("order-17").await;
    bench.awaiting("order-18").await;
    let mut before = Vec::new();
    for _ in 0..3 {
        let mut seen = bench.run(&["show", &reference, "--json"]).json();
        seen["listed"] = bench.run(&["ls", "--all", "--json"]).json();
        before.push(seen);
    }
    assert!(before[0] == before[1] && before[1] == before[2]);
}

#[tokio::test]
async fn what_a_tool_says_does_not_steer_the_terminal() {
    let bench = Bench::new();
    let reference = bench.in_doubt_saying("order-\x1b[2J17", "gone\n\x1b[31mred").await;
    let page = bench.run(&["show", &reference]).ok();
    assert!(page.contains("the tool said: gone\\n\\u{1b}[31mred") && !page.contains('\x1b'), "{page}");
    assert!(!bench.run(&["ls"]).ok().contains('\x1b'));
}

#[tokio::test]
async fn an_output_that_nobody_reads_is_no_error_and_one_that_takes_nothing_is() {
    let bench = Bench::new();
    bench.in_doubt("order-17").await;
    let mut ls = bench.command(&["ls"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Output(ls.stdout(writer).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap());
    assert_eq!((output.0.status.code(), output.0.stderr.len()), (Some(0), 0));
    let help = command(&["--help"]).stdout(Stdio::null()).status().unwrap();
    assert!(help.success());
    if let Ok(full) = fs::File::options().write(true).open("/dev/full") {
        let child = bench.command(&["ls"]).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
        let error = Output(child.wait_with_output().unwrap()).failed(5);
        assert!(error.contains("can't be printed"), "{error}");
    }
}

#[tokio::test]
async fn json_steers_no_terminal_and_says_the_same() {
    let bench = Bench::new();
    let reference = bench.in_doubt_saying("order-\u{9b}2J17", "gone\u{7f}\u{202e}\u{e0041}").await;
    let output = bench.run(&["show", &reference, "--json"]);
    assert!(output.ok().trim_end().chars().all(|c| (' '..='~').contains(&c)), "{}", output.ok());
    let printed = output.json();
    assert_eq!(printed["run"], "order-\u{9b}2J17");
    assert_eq!(printed["execution"]["open"][0]["error"], "gone\u{7f}\u{202e}\u{e0041}");
}

#[tokio::test]
async fn a_question_that_nobody_answered_is_not_forgotten() {
    let bench = Bench::new();
    let reference = bench.expired("order-17").await;
    assert_eq!(bench.run(&["ls"]).ok(), "Nothing waits for a person.\nNot listed: 1 expired (see --all).\n");
    let page = bench.run(&["show", &reference]).ok();
    assert!(
        page.contains("nobody answered in time. The next such call asks anew.") && !page.contains("approve"),
        "{page}"
    );
    let late = bench.run(&["approve", &reference]).failed(1);
    assert!(late.contains("nobody answered in time, and the next such call asks anew. Nothing was changed"), "{late}");
    assert_eq!(bench.run(&["show", &reference, "--json"]).json()["questions"][0]["status"], "expired");
}

#[tokio::test]
async fn a_plain_write_in_doubt_waits_for_a_person() {
    let bench = Bench::charging(Policy::write());
    let reference = bench.in_doubt("order-17").await;
    let listed = bench.run(&["ls"]).ok();
    assert!(listed.contains("\n1 call waits for a person. What is known"), "{listed}");
    let page = bench.run(&["show", &reference]).ok();
    assert!(page.contains("write: running it again would do it again") && !page.contains("Nobody need"), "{page}");
    assert!(page.contains("by what the agent's log has of it, or by the downstream key if"), "{page}");
    assert_eq!(bench.run(&["show", &reference, "--json"]).json()["next_call"], "waits");
}

#[tokio::test]
async fn the_reference_of_a_question_leads_to_the_call_that_it_permitted() {
    let bench = Bench::new();
    let question = bench.awaiting("order-17").await;
    bench.run(&["approve", &question]).ok();
    bench.wire("order-17").await;
    let page = bench.run(&["show", &question[..6]]).ok();
    assert!(page.contains("  wire  done\n") && !page.starts_with(&question), "{page}");
    assert!(page.contains(&format!("permitted as     the question {}, which it used up", &question[..6])), "{page}");
}
