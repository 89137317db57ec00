//! The command: its figures, and the control that must fail.

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_toolonce-chaos")).args(arguments).output().unwrap()
}

/// The figures of the one line on standard output, by name.
fn figures(output: &Output) -> Vec<(String, u64)> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let line = text.strip_suffix('\n').unwrap();
    let figure = |part: &str| {
        let (name, n) = part.split_once(' ').unwrap();
        (name.to_owned(), n.parse().unwrap())
    };
    line.split(" · ").map(figure).collect()
}

fn must_be_clean(arguments: &[&str], what: &str, count: u64) {
    let output = run(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    let figures = figures(&output);
    assert_eq!(figures[0], (what.to_owned(), count), "{said}");
    assert!(figures[1].1 > 0, "nothing was acknowledged: {said}");
    let zero = |name: &str| (name.to_owned(), 0);
    assert_eq!(figures[2..], [zero("lost"), zero("twice"), zero("unexplained")], "{said}");
    assert_eq!(output.status.code(), Some(0), "{said}");
}

#[test]
fn kills_lose_nothing() {
    must_be_clean(&["kill", "--cases", "40", "--seed", "2"], "kills", 40);
}

#[test]
fn power_cuts_lose_nothing() {
    must_be_clean(&["power", "--cases", "20", "--seed", "2"], "cuts", 20);
}

#[test]
fn damaged_files_execute_nothing_again() {
    must_be_clean(&["corrupt", "--cases", "60", "--seed", "2"], "mutations", 60);
}

#[test]
fn stopped_owners_execute_nothing_twice() {
    must_be_clean(&["owners", "--cases", "24", "--seed", "2"], "scenes", 25);
}

#[test]
fn a_store_that_fails_loses_nothing() {
    let output = run(&["store", "--cases", "1", "--seed", "2"]);
    let said = String::from_utf8_lossy(&output.stderr);
    for fault in ["unavailable", "full", "sync failed, applied", "sync failed, not applied", "corrupt"] {
        assert!(said.contains(fault), "{said}");
    }
    assert_eq!(output.status.code(), Some(0), "{said}");
}

#[test]
fn jumping_clocks_change_nothing() {
    let output = run(&["time", "--cases", "20", "--seed", "2"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn races_have_one_effect() {
    must_be_clean(&["race", "--cases", "11", "--seed", "2"], "races", 11);
}

/// Without the store's own `fdatasync` a power cut takes what was acknowledged: the model sees what it is for. And a
/// failure says how to repeat it.
#[test]
fn without_syncs_of_the_log_power_cuts_lose() {
    let output = run(&["power", "--cases", "10", "--seed", "2", "--without-log-syncs"]);
    let figures = figures(&output);
    assert_eq!(figures[2].0, "lost");
    assert!(figures[2].1 > 0, "{figures:?}");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("cargo chaos power --cases 10 --seed 2 --only 0"), "{said}");
}

#[test]
fn help_explains_each_mode() {
    let modes = [
        ("kill", "acknowledged"),
        ("power", "Not modelled"),
        ("corrupt", "Allowed"),
        ("owners", "continued"),
        ("store", "full"),
        ("time", "monotonic"),
        ("race", "scheduler"),
    ];
    for (mode, word) in modes {
        let output = run(&[mode, "--help"]);
        assert!(String::from_utf8_lossy(&output.stdout).contains(word), "{mode}");
    }
    let output = run(&["kill", "--short", "--long"]);
    assert_eq!(output.status.code(), Some(2));
    let output = run(&["race", "--short", "--only", "999"]);
    assert_eq!(output.status.code(), Some(2), "a group that isn't there was done");
}
