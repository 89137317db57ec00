//! What is said elsewhere about the command is what it does.

use std::collections::BTreeSet;

use serde_json::Value;
use toolonce::{CallStatus, Policy};

use crate::bench::{Bench, Output, command, run};

const README: &str = include_str!("../../../../README.md");
const OWN: &str = include_str!("../../README.md");

#[test]
fn help_has_the_exit_codes_and_says_where_to_start() {
    let help = run(&["--help"]).ok();
    for part in ["start with `toolonce ls`", "Exit codes:", "  3  another process holds the store", "TOOLONCE_STORE"] {
        assert!(help.contains(part), "{part}\n{help}");
    }
    for verb in ["ls", "show", "resolve", "approve", "deny"] {
        let help = run(&[verb, "--help"]).ok();
        assert!(help.contains("toolonce --help") && help.contains(&format!("\n  toolonce {verb} ")), "{help}");
        assert!(!help.contains("TOOLONCE_STORE=") && !help.contains("--secret-file"), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    }
    let statuses = run(&["ls", "--help"]).ok();
    for status in CallStatus::ALL {
        assert!(statuses.contains(&format!("- {}:", status.name().replace('_', "-"))), "{statuses}");
    }
    assert!(run(&["--version"]).ok().starts_with("toolonce 0."));
}

#[tokio::test]
async fn the_readmes_show_what_is_printed() {
    for (readme, commands) in [(README, 3), (OWN, 6)] {
        prints(readme, commands).await;
    }
}

/// The commands of the section are run on such a store, one after the other, and print what it says.
async fn prints(readme: &str, number: usize) {
    let bench = Bench::charging(Policy::write());
    bench.in_doubt("order-17").await;
    bench.awaiting("order-18").await;
    bench.done("order-19").await;
    let section = readme.split("\n## On call\n").nth(1).unwrap();
    let transcript = section.split("```console\n").nth(1).unwrap().split("```").next().unwrap();
    let commands: Vec<&str> = transcript.split("$ ").filter(|part| !part.is_empty()).collect();
    assert_eq!(commands.len(), number, "{transcript}");
    for part in commands {
        let (line, shown) = part.split_once('\n').unwrap();
        let words = words(line);
        let Some((program, arguments)) = words.split_first() else { panic!("{line}") };
        if program == "export" {
            assert_eq!(arguments, ["TOOLONCE_STORE=calls", "TOOLONCE_NAMESPACE=shop"]);
            continue;
        }
        assert_eq!(program, "toolonce");
        let mut command = command(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        command.env("TOOLONCE_STORE", "calls").env("TOOLONCE_NAMESPACE", "shop").current_dir(bench.directory());
        let printed = Output(command.output().unwrap()).ok();
        assert_eq!(timeless(&printed), timeless(shown), "{line}\n{printed}");
    }
}

#[tokio::test]
async fn every_field_of_the_json_is_documented() {
    let bench = Bench::new();
    let (doubt, waiting) = (bench.in_doubt("order-17").await, bench.awaiting("order-18").await);
    let done = bench.done("order-19").await;
    let mut fields = BTreeSet::new();
    for arguments in [
        &["ls", "--json"][..],
        &["show", &doubt, "--json"],
        &["show", &waiting, "--json"],
        &["resolve", &doubt, "--happened", "--json", "--reason", "seen", "--by", "ada"],
        &["show", &doubt, "--json"],
        &["show", &done, "--json"],
        &["deny", &waiting, "--reason", "no", "--json"],
        &["show", &waiting, "--json"],
    ] {
        collect(&bench.run(arguments).json(), &mut fields);
    }
    let held = bench.open().await;
    let error = bench.run(&["ls", "--json"]).failed(3);
    collect(&serde_json::from_str(&error).unwrap(), &mut fields);
    drop(held);
    for field in fields {
        assert!(OWN.contains(&format!("`{field}`")), "{field} isn't in tools/cli/README.md");
    }
}

fn collect(value: &Value, fields: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                fields.insert(name.clone());
                collect(member, fields);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, fields)),
        _ => {}
    }
}

/// The words of a command line with single quotes.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut quoted) = (vec![String::new()], false);
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().unwrap().push(c),
        }
    }
    words
}

/// What is printed, without moments and the width of columns.
fn timeless(text: &str) -> Vec<String> {
    text.trim_end().lines().map(timeless_line).collect()
}

fn timeless_line(line: &str) -> String {
    let (mut left, mut words) = (Vec::new(), line.split_whitespace());
    while let Some(word) = words.next() {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let is_date = bare.len() == 10 && bare.chars().all(|c| c.is_ascii_digit() || c == '-');
        if !is_date {
            left.push(word);
            continue;
        }
        left.push("MOMENT");
        // The time, and then "just now", "3 s ago" or "in 3 s".
        words.next();
        let first = words.next().unwrap_or_default();
        let more = if first.ends_with("just") { 1 } else { 2 };
        words.by_ref().take(more).for_each(drop);
    }
    left.join(" ")
}
