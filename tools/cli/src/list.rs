//! `toolonce ls`.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::{Value, json};
use toolonce::{CallStatus, CallSummary, NextCall};

use crate::Answer;
use crate::arguments::Filter;
use crate::desk::Desk;
use crate::json;
use crate::problem::{Exit, Problem};
use crate::style::{count, cut, relative, utc, words};

/// How many calls are told of only by their number.
type Others = BTreeMap<CallStatus, usize>;

/// So many characters of a tool's name are shown in a line; `show` has all of them.
const TOOL: usize = 32;

/// And so many of a run's id.
const RUN: usize = 64;

const TITLES: [&str; 6] = ["REFERENCE", "STATUS", "TOOL", "TRIES", "SINCE", "RUN"];

pub(crate) async fn list(desk: &Desk, filter: &Filter) -> Result<Answer, Problem> {
    let (mut listed, mut others, mut any) = (Vec::new(), Others::new(), false);
    let mut from = None;
    loop {
        let page = desk.guard.calls(from).await?;
        for call in page.calls {
            any = true;
            if filter.run.as_ref().is_some_and(|run| *run != call.run) {
                continue;
            }
            if filter.tool.as_ref().is_some_and(|tool| *tool != call.tool) {
                continue;
            }
            match filter.wants(call.status) {
                true => listed.push(call),
                false => *others.entry(call.status).or_default() += 1,
            }
        }
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    if listed.is_empty() && others.is_empty() {
        return Err(none_at_all(desk, filter, any));
    }
    listed.sort_by(|a, b| (Reverse(a.at), &a.reference).cmp(&(Reverse(b.at), &b.reference)));
    let text = if desk.json { as_json(desk, &listed, &others) } else { as_text(desk, filter, &listed, &others) };
    Ok(Answer { text, exit: Exit::Done })
}

/// An empty list can be a typing error, which must not look like "nothing waits".
fn none_at_all(desk: &Desk, filter: &Filter, any: bool) -> Problem {
    let namespace = &desk.namespace;
    if !any {
        return Problem::nothing(format!(
            "no call of the namespace {namespace:?} is in this store: check the name against the one that the agent's \
             guard is given, or no call was made yet"
        ));
    }
    let run = filter.run.iter().map(|run| format!("of the run {run:?}"));
    let tool = filter.tool.iter().map(|tool| format!("of the tool {tool:?}"));
    let which: Vec<String> = run.chain(tool).collect();
    let all = desk.command("ls --all");
    Problem::nothing(format!("no call {} is in the namespace {namespace:?}: `{all}` lists all", which.join(" ")))
}

fn as_json(desk: &Desk, listed: &[CallSummary], others: &Others) -> String {
    let others: serde_json::Map<String, Value> =
        others.iter().map(|(status, number)| (status.name().to_owned(), (*number).into())).collect();
    let calls: Vec<Value> = listed.iter().map(json::summary).collect();
    json::line(&json!({"namespace": desk.namespace, "calls": calls, "others": others}))
}

fn as_text(desk: &Desk, filter: &Filter, listed: &[CallSummary], others: &Others) -> String {
    let mut text = String::new();
    if listed.is_empty() {
        let what = if filter.status.is_empty() { "Nothing waits for a person" } else { "No call has that status" };
        text.push_str(&format!("{what}.\n"));
    } else {
        text.push_str(&table(desk, listed));
        text.push('\n');
        text.push_str(&footer(desk, listed));
    }
    if !others.is_empty() {
        let others: Vec<String> =
            others.iter().map(|(status, number)| format!("{number} {}", words(*status))).collect();
        text.push_str(&format!("Not listed: {} (see --all).\n", others.join(", ")));
    }
    text
}

/// References come first and runs, which may be long, last: so a narrow terminal wraps no reference.
fn table(desk: &Desk, listed: &[CallSummary]) -> String {
    let rows: Vec<[String; 6]> = listed.iter().map(|call| row(desk, call)).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([TITLES[column].len()]).max().unwrap_or(0)
    };
    let widths: [usize; 6] = std::array::from_fn(width);
    let pad = |column: usize, cell: &str| match column {
        3 => format!("{cell:>width$}", width = widths[column]),
        5 => cell.to_owned(),
        _ => format!("{cell:<width$}", width = widths[column]),
    };
    let line = |cells: [String; 6]| format!("{}\n", cells.join("  "));
    let mut text = line(std::array::from_fn(|n| desk.style.dim(&pad(n, TITLES[n]))));
    for (row, call) in rows.iter().zip(listed) {
        text.push_str(&line(std::array::from_fn(|n| match n {
            0 => desk.style.bold(&pad(n, &row[n])),
            1 => desk.style.status(call.status, &pad(n, &row[n])),
            _ => pad(n, &row[n]),
        })));
    }
    text
}

fn row(desk: &Desk, call: &CallSummary) -> [String; 6] {
    let since = call.at.map_or_else(|| "-".to_owned(), |at| format!("{}, {}", utc(at), relative(at, desk.now)));
    let tries = if call.attempts == 0 { "-".to_owned() } else { call.attempts.to_string() };
    [call.reference.clone(), words(call.status), cut(&call.tool, TOOL), tries, since, cut(&call.run, RUN)]
}

/// What becomes of the listed calls, and where to read on.
fn footer(desk: &Desk, listed: &[CallSummary]) -> String {
    let goes_on = |call: &&CallSummary| call.next_call.is_some_and(|next| next != NextCall::Waits);
    let going = listed.iter().filter(goes_on).count();
    let waiting = listed.iter().filter(|call| call.status.needs_a_person()).count() - going;
    let mut text = String::new();
    if waiting > 0 {
        let wait = if waiting == 1 { "waits" } else { "wait" };
        text.push_str(&format!("{} {wait} for a person. ", count(waiting, "call")));
    }
    if going > 0 {
        let may = if going == 1 { "may go on by itself" } else { "may go on by themselves" };
        text.push_str(&format!("{} {may} when the agent makes the call again. ", count(going, "call")));
    }
    let to_do = if waiting + going > 0 { ", and what to do" } else { "" };
    text + &format!("What is known of one{to_do}: {}\n", desk.command("show REFERENCE"))
}
