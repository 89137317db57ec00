//! The command: its exit codes, and what it says to bad input.

use std::process::{Command, Output, Stdio};

const HOLDS: &str =
    r#"{"id":"x","tools":{"t":{}},"steps":[{"op":"call","turn":0,"tool":"t","args":{"n":1}}],"effects":{"t":1}}"#;

/// Runs the command on a file of this text.
fn run(text: impl AsRef<[u8]>, out: Stdio) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cases.jsonl");
    std::fs::write(&path, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolonce-scenario"));
    command.args(["--store", "memory"]).arg(&path).stdout(out).stderr(Stdio::piped());
    command.spawn().unwrap().wait_with_output().unwrap()
}

#[test]
fn the_exit_code_tells_failed_cases_from_bad_input() {
    let output = run(HOLDS, Stdio::piped());
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"1 passed, 0 failed\n"[..]));
    let output = run(HOLDS.replace(r#"{"t":1}"#, r#"{"t":2}"#), Stdio::piped());
    assert_eq!(output.status.code(), Some(1));
    for (bad, why) in
        [("", "no cases in this file"), ("\n \n", "no cases in this file"), ("\u{feff}{}", "byte order mark")]
    {
        let output = run(bad, Stdio::piped());
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(why) && error.lines().count() == 1, "{error}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn the_usage_names_the_command_as_it_is_typed() {
    let output = Command::new(env!("CARGO_BIN_EXE_toolonce-scenario")).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(help.contains("Usage: cargo scenario "), "{help}");
}

#[cfg(target_os = "linux")]
#[test]
fn an_output_that_takes_nothing_is_one_sentence() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = run(HOLDS, full.into());
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("can't be printed") && error.lines().count() == 1, "{error}");
}
