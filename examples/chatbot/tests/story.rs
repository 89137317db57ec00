//! The story and a resumed conversation, seen from outside: by their output and by the ledger's lines.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

fn chatbot(store: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chatbot"));
    for name in ["OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"] {
        command.env_remove(name);
    }
    command.arg("--store").arg(store).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// How often each effect is in the ledger: read from the file, by meaning.
fn ledger(store: &Path) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in std::fs::read_to_string(store.join("ledger.jsonl")).unwrap().lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        let what = match entry["kind"].as_str().unwrap() {
            "charge" => format!("charge {} {}", entry["order"].as_str().unwrap(), entry["cents"]),
            "email" => format!("email {}", entry["subject"].as_str().unwrap()),
            other => other.to_owned(),
        };
        *counts.entry(what).or_default() += 1;
    }
    counts
}

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_story_ends_well() {
    let store = tempfile::tempdir().unwrap();
    let output = chatbot(store.path()).arg("--demo").output().unwrap();
    let (told, errors) = text(&output);
    assert!(output.status.success(), "{told}\n{errors}");
    assert_eq!(told.trim_end().lines().last().unwrap().trim(), "asked 10 · happened 7 · twice 0 · lost 0");
    for mark in ["executed", "still running", "joined", "replayed", "in doubt", "The process dies here"] {
        assert!(told.contains(mark), "{mark} in {told}");
    }
    for resumed in ["8 answers of the model were read from the run's log", "11 answers of the model were read"] {
        assert!(told.contains(resumed), "{resumed} in {told}");
    }
    assert!(told.contains("none of them was paid for twice"), "{told}");
    assert!(!told.contains('\x1b'), "colours without a terminal");
    let expected = [
        ("charge A-1042 4200", 1),
        ("charge B-7 1999", 1),
        ("charge C-300 2450", 1),
        ("email Receipt for A-1042", 1),
        ("email Receipt for A-1042 (second copy)", 1),
        ("reboot", 2),
    ];
    assert_eq!(ledger(store.path()), expected.map(|(what, count)| (what.to_owned(), count)).into());
}

/// Reads what a conversation shows until a line contains `what`.
fn until(child: &mut Child, what: &str) {
    let shown = BufReader::new(child.stdout.take().unwrap());
    assert!(shown.lines().map_while(Result::ok).any(|line| line.contains(what)), "it never showed {what:?}");
}

#[test]
fn a_killed_conversation_goes_on_without_paying_again() {
    let store = tempfile::tempdir().unwrap();
    let mut first = chatbot(store.path()).args(["--run", "ana"]).spawn().unwrap();
    let mut typing = first.stdin.take().unwrap();
    typing.write_all(b"charge order A-1042\n").unwrap();
    until(&mut first, "Done: 42.00");
    first.kill().unwrap();
    first.wait().unwrap();

    let mut second = chatbot(store.path()).args(["--resume", "ana"]).spawn().unwrap();
    second.stdin.take().unwrap().write_all(b"did that really go through?\n").unwrap();
    let output = second.wait_with_output().unwrap();
    let (shown, errors) = text(&output);
    assert!(output.status.success(), "{shown}\n{errors}");
    assert!(shown.contains("answers of the model were read from the run's log, none was paid for again"), "{shown}");
    assert!(shown.contains("is paid, once"), "{shown}");
    assert_eq!(ledger(store.path()), BTreeMap::from([("charge A-1042 4200".to_owned(), 1)]));

    let output = chatbot(store.path()).args(["--run", "ana"]).output().unwrap();
    assert!(!output.status.success());
    assert!(text(&output).1.contains("go on with it with --resume"), "{}", text(&output).1);
}

#[cfg(not(feature = "tls"))]
#[test]
fn an_endpoint_that_needs_tls_is_refused_in_one_sentence() {
    let store = tempfile::tempdir().unwrap();
    let output = chatbot(store.path()).args(["--run", "x"]).env("OPENAI_API_KEY", "k").output().unwrap();
    assert!(!output.status.success());
    let (_, errors) = text(&output);
    assert!(errors.contains("--features tls"), "{errors}");
    assert_eq!(errors.trim_end().lines().count(), 1, "{errors}");
}

/// Asserts that a conversation ends at once, with one sentence that holds `says`.
fn refused(mut command: Command, says: &str) {
    let output = command.output().unwrap();
    let (_, errors) = text(&output);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains(says) && errors.lines().count() == 1, "{errors}");
}

#[test]
fn what_was_meant_is_said_in_one_sentence() {
    let store = tempfile::tempdir().unwrap();
    let with = |arguments: [&str; 2]| {
        let mut command = chatbot(store.path());
        command.args(arguments);
        command
    };
    refused(with(["--resume", "nobody"]), "begin it with --run");
    for nonsense in ["nonsense", "localhost:8080/v1", "ftp://127.0.0.1/"] {
        let mut command = with(["--run", "x"]);
        command.env("OPENAI_BASE_URL", nonsense);
        refused(command, "OPENAI_BASE_URL is");
    }
    #[cfg(target_os = "linux")]
    {
        let mut command = with(["--run", "full"]);
        command.stdout(std::fs::File::options().write(true).open("/dev/full").unwrap());
        refused(command, "can't write to standard output");
    }
}

#[test]
fn a_line_that_is_no_text_is_left_out() {
    let store = tempfile::tempdir().unwrap();
    let mut child = chatbot(store.path()).args(["--run", "two words"]).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"\xff\xfe\nlook at order A-1042\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let (shown, errors) = text(&output);
    assert!(output.status.success(), "{shown}\n{errors}");
    assert!(shown.contains("not UTF-8 text") && shown.contains("Order A-1042 is"), "{shown}");
    assert!(shown.contains("--resume 'two words'"), "{shown}");
}
