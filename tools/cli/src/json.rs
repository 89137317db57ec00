//! A call for programs. `README.md` beside `Cargo.toml` says what each field means.

use serde_json::{Value, json};
use toolonce::protocol::approval::EXPIRES_AFTER;
use toolonce::protocol::record::{Given, Reason, Signature, Slot, Statement, Strictness, ToldBy};
use toolonce::{CallDetail, CallStatus, CallSummary, Execution, NextCall, OpenAttempt, Question};

use crate::style::{fingerprint, sentence, stamp, steers};

/// One line of JSON. What could steer a terminal and JSON lets stand is escaped; it can only be inside of a text.
pub(crate) fn line(value: &Value) -> String {
    let mut line = String::new();
    let mut units = [0; 2];
    for c in value.to_string().chars() {
        match steers(c) {
            true => c.encode_utf16(&mut units).iter().for_each(|unit| line.push_str(&format!("\\u{unit:04x}"))),
            false => line.push(c),
        }
    }
    line + "\n"
}

/// A call in one line, for programs.
pub(crate) fn summary(call: &CallSummary) -> Value {
    json!({
        "reference": call.reference,
        "status": call.status.name(),
        "tool": call.tool,
        "run": call.run,
        "occurrence": call.occurrence,
        "at": stamp(call.at),
        "attempts": call.attempts,
        "next_call": call.next_call.map(NextCall::name),
    })
}

/// All that is known of a call.
pub(crate) fn call(call: &CallDetail) -> Value {
    let mut all = summary(&call.summary);
    all["questions"] = call.questions.iter().map(question).collect();
    if let Some(execution) = &call.execution {
        all["execution"] = execution_of(execution);
    }
    all
}

fn question(question: &Question) -> Value {
    let request = &question.request;
    let (reason, of) = match &request.reason {
        Reason::First => ("first", None),
        Reason::Repeat => ("repeat", None),
        Reason::LookAlike { of } => ("look_alike", Some(of)),
        _ => ("other", None),
    };
    let is_open = matches!(question.status, CallStatus::AwaitingApproval | CallStatus::Expired);
    let expires = is_open.then(|| request.asked_at.saturating_add(EXPIRES_AFTER));
    let denied = question.status == CallStatus::Denied;
    json!({
        "reference": request.reference,
        "run": request.run,
        "reason": reason,
        "looks_like": of,
        "asked_at": stamp(Some(request.asked_at)),
        "expires_at": stamp(expires),
        "arguments": request.arguments,
        "status": question.status.name(),
        "why": denied.then_some(&question.why),
        "answered": question.signed.as_ref().map(signature),
    })
}

fn signature(signature: &Signature) -> Value {
    json!({"by": signature.who, "at": stamp(Some(signature.at))})
}

fn statement(statement: &Statement) -> Value {
    json!({
        "attempt": statement.fence.0,
        "happened": statement.happened,
        "reason": statement.why,
        "by": statement.signed.who,
        "at": stamp(Some(statement.signed.at)),
    })
}

fn execution_of(execution: &Execution) -> Value {
    let key = &execution.downstream_key;
    let open = |attempt: &OpenAttempt| {
        json!({
            "attempt": attempt.number,
            "began": stamp(attempt.began),
            "quiet_from": stamp(Some(attempt.quiet_from)),
            "error": attempt.error,
        })
    };
    let place = |slot: &Slot| {
        json!({
            "run": slot.run,
            "turn": slot.turn,
            "nth": slot.nth,
            "id": slot.id,
            "epoch": slot.epoch,
            "told": slot.given.as_ref().map(told_json),
            "delivered": slot.delivered,
        })
    };
    json!({
        "effect": effect(execution.effect),
        "downstream_key": {"hex32": key.hex32(), "uuid": key.uuid(), "hex64": key.hex64()},
        "fingerprint": fingerprint(execution),
        "arguments": execution.arguments,
        "first_sent": stamp(execution.first_sent),
        "open": execution.open.iter().map(open).collect::<Value>(),
        "did_not_happen_accepted_from": stamp(execution.takes_no_from),
        "approved": execution.approved,
        "permit": execution.permit.as_ref().map(signature),
        "statement": execution.statement.as_ref().map(statement),
        "failure": execution.failure.as_ref().map(|last| json!({
            "attempt": last.fence.0,
            "message": last.failure.message,
        })),
        "outcome": execution.outcome.as_ref().map(|outcome| json!({
            "at": stamp(Some(outcome.at)),
            "attempt": outcome.attempt,
            "told_by": match outcome.told_by {
                ToldBy::Attempt => "tool",
                ToldBy::LookUp => "look_up",
                ToldBy::Human => "person",
            },
            "result": outcome.result.text(),
            "kept": outcome.result.is_kept(),
        })),
        "places": execution.places.iter().map(place).collect::<Value>(),
    })
}

fn effect(effect: Strictness) -> &'static str {
    match effect {
        Strictness::ReadOnly => "read_only",
        Strictness::Idempotent => "idempotent",
        Strictness::Keyed => "keyed",
        Strictness::Write => "write",
    }
}

/// What a place was answered with.
fn told_json(given: &Given) -> Value {
    let (kind, text) = match given {
        Given::Outcome { mark: None, .. } => ("outcome", None),
        Given::Outcome { stop: true, .. } => ("stop", None),
        Given::Outcome { .. } => ("replay", None),
        Given::Failure(failure) => ("failure", Some(failure.message.clone())),
        Given::Status { text, .. } => ("status", Some(sentence(text))),
    };
    json!({"kind": kind, "text": text})
}
