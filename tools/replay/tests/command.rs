//! The command: what it prints, and what it says to bad input.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_toolonce-replay")).args(arguments).output().unwrap()
}

fn file(directory: &tempfile::TempDir, text: impl AsRef<[u8]>) -> String {
    let path: PathBuf = directory.path().join("calls.jsonl");
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn call(changes: Value) -> Value {
    let mut call = json!({
        "src": "s", "traj": "1", "i": 0, "turn": 2, "by": "assistant", "kind": "WRITE", "tool": "unheard_of",
        "args": {"n": 1}, "err": false, "result": "done"
    });
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::String(text) if text == "-" => drop(call.as_object_mut().unwrap().remove(name)),
            value => call[name] = value.clone(),
        }
    }
    call
}

#[test]
fn without_arguments_it_replays_the_committed_part() {
    let output = run(&["--limit", "5"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(text.starts_with("5 recorded agent runs with "), "{text}");
    assert!(text.lines().last().unwrap().starts_with("  twice 0 · lost 0 · false merges 0 · ok in "), "{text}");
    assert!(output.stderr.is_empty());
    let text = String::from_utf8(run(&["--limit", "1"]).stdout).unwrap();
    assert!(text.starts_with("1 recorded agent run with "), "{text}");
    let help = String::from_utf8(run(&["--help"]).stdout).unwrap();
    assert!(help.contains("Usage: cargo replay "), "{help}");
}

#[cfg(target_os = "linux")]
#[test]
fn an_output_that_takes_nothing_is_one_sentence() {
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolonce-replay"));
    command.args(["--limit", "1"]).stdout(full).stderr(Stdio::piped());
    let output = command.spawn().unwrap().wait_with_output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("can't be printed") && error.lines().count() == 1, "{error}");
}

#[test]
fn json_is_one_object_with_the_nine_counts() {
    let output = run(&["--json", "--limit", "5", "--seeds", "2"]);
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> = printed.as_object().unwrap().keys().map(String::as_str).collect();
    let mut all =
        ["trajectories", "calls", "intended_effects", "effects", "twice", "lost", "false_merges", "held", "seconds"];
    all.sort_unstable();
    let mut sorted = names;
    sorted.sort_unstable();
    assert_eq!(sorted, all);
    assert_eq!(printed["trajectories"], 10);
}

#[test]
fn a_tool_that_the_table_does_not_know_goes_by_its_kind() {
    let directory = tempfile::tempdir().unwrap();
    let lines = [
        call(json!({})),
        call(json!({"turn": 4, "i": 1})),
        call(json!({"turn": 6, "i": 2, "args": {"n": 2}, "err": true})),
        call(json!({"turn": 8, "i": 3, "kind": "READ", "tool": "look", "args_raw": "{\"broken\":"})),
    ];
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let output = run(&["--json", "--faults", "none", &file(&directory, text)]);
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(printed["calls"], 4);
    assert_eq!(printed["intended_effects"], 1);
    assert_eq!(printed["effects"], 1);
    assert_eq!((&printed["twice"], &printed["lost"], &printed["false_merges"]), (&json!(0), &json!(0), &json!(0)));
}

#[test]
fn writes_that_run_twice_make_it_fail() {
    let directory = tempfile::tempdir().unwrap();
    let table = directory.path().join("policies.json");
    let read = json!({"effect": "read_only", "why": "a lie"});
    let lies = json!({"by_kind": {"READ": read, "WRITE": read, "HANDOFF": read}, "tools": {}});
    fs::write(&table, lies.to_string()).unwrap();
    let output = run(&["--policies", table.to_str().unwrap(), "--limit", "20"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(" · failed in "), "{text}");
}

#[test]
fn bad_lines_get_one_sentence_with_their_number() {
    let good = call(json!({})).to_string();
    let bad = [
        ("not json".to_owned(), "this is not JSON"),
        (good[..good.len() - 1].to_owned(), "this is not JSON"),
        ("[]".to_owned(), "this is not a JSON object"),
        (call(json!({"kind": "MAYBE"})).to_string(), "\"kind\" is \"MAYBE\""),
        (call(json!({"tool": "-"})).to_string(), "\"tool\" is missing"),
        (call(json!({"args": "-"})).to_string(), "\"args\" is missing"),
        (call(json!({"args": []})).to_string(), "\"args\" is not an object"),
        (call(json!({"args_raw": 1})).to_string(), "\"args_raw\" is neither"),
        (call(json!({"turn": -1})).to_string(), "\"turn\" is not a whole number"),
        (call(json!({"turn": 4_000_000_000u32})).to_string(), "are too many"),
        (call(json!({"err": "no"})).to_string(), "\"err\" is neither"),
        (call(json!({"by": "nobody"})).to_string(), "\"by\" is \"nobody\""),
        (call(json!({"result": null})).to_string(), "\"result\" is not a string"),
    ];
    let directory = tempfile::tempdir().unwrap();
    for (line, why) in bad {
        let output = run(&[&file(&directory, format!("{good}\n\n{line}\n"))]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(error.contains("calls.jsonl, line 3: ") && error.contains(why), "{line}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn other_bad_input_gets_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let (empty, binary) = (file(&directory, ""), directory.path().join("binary"));
    let marked = directory.path().join("marked");
    fs::write(&marked, "\u{feff}{}").unwrap();
    fs::write(&binary, b"{}\n\xff\xfe").unwrap();
    let cases: [(&[&str], &str); 9] = [
        (&[&empty], "there are no calls in this file"),
        (&[binary.to_str().unwrap()], "line 2: this is not UTF-8 text"),
        (&["no/such/file.jsonl"], "no/such/file.jsonl can't be read"),
        (&[marked.to_str().unwrap()], "byte order mark"),
        (&["--policies", marked.to_str().unwrap()], "byte order mark"),
        (&["--limit", "0"], "--limit 0 leaves nothing to replay"),
        (&["--faults", "none,all"], "\"none\" can't stand in a list"),
        (&["--faults", "earthquake"], "there is no fault \"earthquake\""),
        (&["--policies", &empty], "this is no table of policies"),
    ];
    for (arguments, why) in cases {
        let output = run(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(error.contains(why), "{arguments:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
