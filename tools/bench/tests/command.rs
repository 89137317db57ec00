//! The program itself, with too little of everything for a figure.

use std::process::{Command, Output};

fn measure(arguments: &[&str]) -> Output {
    let directory = env!("CARGO_TARGET_TMPDIR");
    Command::new(env!("CARGO_BIN_EXE_toolonce-bench"))
        .args(["--directory", directory])
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn all_figures_are_measured_and_shown_in_three_ways() {
    let directory = tempfile::tempdir().unwrap();
    let (json, svg) = (directory.path().join("figures.json"), directory.path().join("figures.svg"));
    let done = measure(&["--tiny", "--markdown", "--json", json.to_str().unwrap(), "--svg", svg.to_str().unwrap()]);
    assert!(done.status.success(), "{}", text(&done.stderr));

    let written: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let figures = written["figures"].as_array().unwrap();
    let with_goals = figures.iter().filter(|figure| figure["met"].is_boolean()).count();
    assert!(figures.len() >= 25 && with_goals >= 20, "{written:#}");
    // Name, line and head.
    assert_eq!(text(&done.stdout).lines().count(), figures.len() + 2, "{}", text(&done.stdout));
    assert_eq!(std::fs::read_to_string(svg).unwrap().matches("<rect").count(), with_goals);

    let of = |name: &str| {
        let figure = figures.iter().find(|figure| figure["name"] == name);
        figure.unwrap_or_else(|| panic!("no {name}"))["value"].as_f64().unwrap()
    };
    assert_eq!(of("1,000 joiners, effects of an execution"), 1.0);
    assert!(of("append + fdatasync beside it, p50") > 0.0);
}

#[test]
fn only_what_is_named_is_measured() {
    let done = measure(&["--tiny", "--only", "key"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let lines: Vec<_> = text(&done.stdout).lines().collect();
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines[0].starts_with("figure") && lines[1..].iter().all(|line| line.starts_with("key, ")), "{lines:?}");
}

#[test]
fn what_cannot_be_measured_is_an_error() {
    let done = measure(&["--tiny", "--only", "nothing"]);
    assert_eq!(done.status.code(), Some(2));
    let missing =
        Command::new(env!("CARGO_BIN_EXE_toolonce-bench")).args(["--tiny", "--directory", "/nowhere"]).output();
    assert_eq!(missing.unwrap().status.code(), Some(1));
}
