//! `toolonce resolve`, `approve` and `deny`.

use serde_json::Value;
use toolonce::protocol::record::ToldBy;
use toolonce::{CallDetail, CallStatus, ErrorKind, Resolution};

use crate::Answer;
use crate::arguments::{By, Resolve};
use crate::desk::Desk;
use crate::json;
use crate::problem::{Exit, Problem};
use crate::style::{clean, head, moment};

/// So much of a result is repeated.
const RESULT: usize = 200;

pub(crate) async fn resolve(desk: &Desk, asked: &Resolve) -> Result<Answer, Problem> {
    let call = desk.find(&asked.reference).await?;
    let verdict = if asked.happened { "happened" } else { "did_not_happen" };
    if call.summary.status != CallStatus::InDoubt {
        return match said_so_before(&call, asked) {
            true => Ok(already(desk, &call, verdict)),
            false => Err(not_waiting(desk, &call, "in doubt")),
        };
    }
    let resolution = match (asked.happened, asked.force) {
        (true, _) => Resolution::Happened(asked.value.clone()),
        (false, false) => Resolution::DidNotHappen,
        (false, true) => Resolution::DidNotHappenForSure,
    };
    let reason = asked.reason.as_deref().unwrap_or_default();
    match desk.guard.answering_as(&asked.by.by).resolve(&call.summary.reference, resolution, reason).await {
        Err(error) if error.kind() == ErrorKind::TooEarly => return Err(too_early(desk, &call)),
        settled => settled?,
    }
    let mut answer = answer_json(&call, verdict);
    answer["reason"] = reason.into();
    let text = if asked.happened {
        answer["result"] = asked.value.clone();
        let result = head(&asked.value.to_string(), RESULT);
        format!("{} happened. Nothing runs again.\nEvery retry gets this result: {result}\n", subject(&call))
    } else {
        format!("{} did not happen. The next retry executes it.\n", subject(&call))
    };
    let because = if reason.is_empty() { String::new() } else { format!("Reason: {}\n", clean(reason)) };
    Ok(said(desk, &format!("Settled: {text}{because}"), &answer))
}

pub(crate) async fn approve(desk: &Desk, reference: &str, by: &By) -> Result<Answer, Problem> {
    let call = desk.find(reference).await?;
    match call.summary.status {
        CallStatus::AwaitingApproval => {}
        CallStatus::Approved => return Ok(already(desk, &call, "approved")),
        _ => return Err(not_waiting(desk, &call, "waiting for approval")),
    }
    desk.guard.answering_as(&by.by).approve(&call.summary.reference).await?;
    let text = format!(
        "Approved: {} may run once, with these arguments. It runs when the agent makes the call again.\n",
        subject(&call)
    );
    Ok(said(desk, &text, &answer_json(&call, "approved")))
}

pub(crate) async fn deny(desk: &Desk, reference: &str, reason: &str, by: &By) -> Result<Answer, Problem> {
    let call = desk.find(reference).await?;
    match call.summary.status {
        CallStatus::AwaitingApproval => {}
        CallStatus::Denied => return Ok(already(desk, &call, "denied")),
        _ => return Err(not_waiting(desk, &call, "waiting for approval")),
    }
    desk.guard.answering_as(&by.by).deny(&call.summary.reference, reason).await?;
    let told = if reason.is_empty() { "" } else { " The model is told why." };
    let text = format!("Denied: {} is refused for the rest of its run.{told}\n", subject(&call));
    let mut answer = answer_json(&call, "denied");
    answer["reason"] = reason.into();
    Ok(said(desk, &text, &answer))
}

/// Whether a person gave the same answer already: to say it twice is no error, and changes nothing.
fn said_so_before(call: &CallDetail, asked: &Resolve) -> bool {
    let Some(execution) = &call.execution else { return false };
    match (&execution.outcome, &execution.statement) {
        (Some(outcome), _) => {
            let same = || serde_json::from_str::<Value>(outcome.result.text()).is_ok_and(|it| it == asked.value);
            asked.happened && outcome.told_by == ToldBy::Human && same()
        }
        (None, Some(statement)) => !asked.happened && !statement.happened && statement.fence.0 == call.summary.attempts,
        (None, None) => false,
    }
}

fn already(desk: &Desk, call: &CallDetail, verdict: &str) -> Answer {
    let mut answer = answer_json(call, verdict);
    answer["already"] = true.into();
    let verdict = verdict.replace('_', " ");
    said(desk, &format!("Nothing to do: {} was settled so before ({verdict}).\n", subject(call)), &answer)
}

fn said(desk: &Desk, text: &str, answer: &Value) -> Answer {
    let text = if desk.json { json::line(answer) } else { text.to_owned() };
    Answer { text, exit: Exit::Done }
}

fn answer_json(call: &CallDetail, settled: &str) -> Value {
    let summary = &call.summary;
    serde_json::json!({
        "reference": summary.reference,
        "tool": summary.tool,
        "run": summary.run,
        "settled": settled,
        "already": false,
    })
}

fn subject(call: &CallDetail) -> String {
    let summary = &call.summary;
    format!("{} {} of the run {}", clean(&summary.tool), summary.reference, clean(&summary.run))
}

/// The call is there, but it doesn't wait for this answer.
fn not_waiting(desk: &Desk, call: &CallDetail, expected: &str) -> Problem {
    let reference = &call.summary.reference;
    let stands = match call.summary.status {
        CallStatus::InDoubt => format!("it is in doubt: see `{}`", desk.command(&format!("show {reference}"))),
        CallStatus::AwaitingApproval => {
            let [approve, deny] = ["approve", "deny"].map(|verb| desk.command(&format!("{verb} {reference}")));
            format!("it waits for approval: `{approve}`, or `{deny}`")
        }
        CallStatus::Running => "it is running: wait for its end".to_owned(),
        CallStatus::Approved => "it is approved, and runs when the agent makes the call again".to_owned(),
        CallStatus::Denied => "it was denied, which holds for the rest of its run".to_owned(),
        CallStatus::Expired => "nobody answered in time, and the next such call asks anew".to_owned(),
        CallStatus::Done => "it happened, and that is recorded for good".to_owned(),
        _ => "it did not happen, and a retry executes it".to_owned(),
    };
    Problem::nothing(format!("{reference} is not {expected}; {stands}. Nothing was changed"))
}

fn too_early(desk: &Desk, call: &CallDetail) -> Problem {
    let from = call.execution.as_ref().and_then(|execution| execution.takes_no_from).unwrap_or(desk.now);
    Problem::nothing(format!(
        "{} was not settled: its effect could still show until {}; say it again then, or with --force if you know that \
         nothing is under way",
        call.summary.reference,
        moment(from, desk.now)
    ))
}
