//! Looking at calls: all of them, page by page, and one by the beginning of its reference.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use toolonce::key::Fingerprint;
use toolonce::protocol::growth::cut_texts;
use toolonce::protocol::record::{Approval, ApprovalState, Asker, Base, Fence, Reason, Record, Signature, Statement};
use toolonce::store::MemoryStore;
use toolonce::testing::ManualClock;
use toolonce::{
    Attempt, CallDetail, CallStatus, CallSummary, ErrorKind, Guard, InDoubt, KeyWindow, NextCall, Policy, Reconciled,
    Registry, Resolution, Run, ToolError, value_tool,
};

use crate::bench::call;

async fn guard() -> (Guard, Registry, Run) {
    let guard = Guard::builder(MemoryStore::new(), "look").build().await.unwrap();
    let mut tools = Registry::new(&guard);
    let body = async |args: Value, _: Attempt| match args["n"].as_u64() {
        Some(n) => Ok(json!(n)),
        None if args["n"] == "wait" => std::future::pending().await,
        None if args["n"] == "lost" => Err(ToolError::unknown("the connection was lost")),
        None => Err(ToolError::permanent("there is no such number")),
    };
    tools.add(value_tool("t", "", json!({"type": "object"}), Policy::write(), body)).unwrap();
    let asks = Policy::write().approval(toolonce::Approval::First);
    tools.add(value_tool("asks", "", json!({"type": "object"}), asks, body)).unwrap();
    let run = Run::start(&guard, "r").await.unwrap();
    (guard, tools, run)
}

async fn all(guard: &Guard) -> Vec<CallSummary> {
    let (mut calls, mut from) = (Vec::new(), None);
    loop {
        let page = guard.calls(from).await.unwrap();
        calls.extend(page.calls);
        from = page.next;
        if from.is_none() {
            return calls;
        }
    }
}

#[tokio::test]
async fn each_call_is_listed_once_and_an_ambiguous_reference_names_those_it_could_be() {
    let (guard, tools, run) = guard().await;
    let mut known: HashMap<String, String> = HashMap::new();
    let (mut n, mut twins) = (0, None);
    // Six digits in common: after 20,000 calls there are such two but once in 150,000 times, and keys never change.
    while twins.is_none() && n < 20_000 {
        let reply = tools.call(&run, call("t", &json!({"n": n}))).await;
        let reference = reply.downstream_key().unwrap().reference();
        twins = known.insert(reference[..6].to_owned(), reference.clone()).map(|first| (first, reference));
        n += 1;
    }
    let (first, second) = twins.unwrap();
    let calls = all(&guard).await;
    assert_eq!(calls.len(), n);
    assert!(calls.iter().all(|call| call.status == CallStatus::Done && call.attempts == 1));

    let error = guard.show(&first[..6]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Ambiguous);
    assert!(error.to_string().contains(&first) && error.to_string().contains(&second), "{error}");
    assert_eq!(guard.show(&first).await.unwrap().unwrap().summary.reference, first);
    for bad in ["", "abcde", "ABCDEF", "0123456789abc", "xyzxyz"] {
        assert_eq!(guard.show(bad).await.unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
    }
}

#[tokio::test]
async fn a_running_and_a_failed_call_are_told_apart_and_other_namespaces_are_not_seen() {
    let (guard, tools, run) = guard().await;
    tools.call(&run, call("t", &json!({"n": "wait"})).patience(Duration::ZERO)).await;
    while all(&guard).await.is_empty() {
        tokio::task::yield_now().await;
    }
    let running = all(&guard).await.remove(0);
    assert_eq!((running.status, running.attempts), (CallStatus::Running, 1));
    tools.call(&run, call("t", &json!({"n": "two"}))).await;
    let failed = all(&guard).await.into_iter().find(|call| call.reference != running.reference).unwrap();
    let detail = guard.show(&failed.reference).await.unwrap().unwrap();
    assert_eq!((detail.summary, failed.status), (failed.clone(), CallStatus::Failed));
    assert_eq!(detail.execution.unwrap().failure.unwrap().failure.message, "there is no such number");

    let other = guard.with_namespace("elsewhere").unwrap();
    assert!(all(&other).await.is_empty());
    assert!(other.show(&failed.reference).await.unwrap().is_none());
}

#[tokio::test]
async fn what_a_person_said_of_a_doubt_stays_with_the_call() {
    let (guard, tools, run) = guard().await;
    let ask = async || tools.call(&run, call("t", &json!({"n": "lost"}))).await;
    let reference = ask().await.downstream_key().unwrap().reference();
    let of = async || guard.show(&reference).await.unwrap().unwrap();
    assert_eq!((of().await.summary.status, of().await.execution.unwrap().statement), (CallStatus::InDoubt, None));
    let long = "not in the ledger, ".repeat(50);
    guard.answering_as("ada").resolve(&reference, Resolution::DidNotHappenForSure, &long).await.unwrap();

    let statement = of().await.execution.unwrap().statement.unwrap();
    assert_eq!((statement.happened, statement.fence.0, &*statement.signed.who), (false, 1, "ada"));
    assert_eq!(statement.why, long.chars().take(500).collect::<String>());
    // A later attempt leaves it, and the next answer takes its place.
    ask().await;
    let later = of().await;
    assert_eq!((later.summary.status, later.execution.unwrap().statement), (CallStatus::InDoubt, Some(statement)));
    guard.resolve(&reference, Resolution::Happened(json!(7)), "").await.unwrap();
    let settled = of().await;
    let (status, statement) = (settled.summary.status, settled.execution.unwrap().statement.unwrap());
    assert_eq!(
        (status, statement.happened, statement.fence.0, &*statement.signed.who),
        (CallStatus::Done, true, 2, "")
    );
}

#[tokio::test]
async fn who_answered_a_question_is_known_until_and_after_its_answer_is_used() {
    let (guard, tools, run) = guard().await;
    let ask = async |n| tools.call(&run, call("asks", &json!({"n": n})).patience(Duration::ZERO)).await;
    ask(1).await;
    ask(2).await;
    let mut waiting = all(&guard).await;
    assert!(waiting.iter().all(|call| call.status == CallStatus::AwaitingApproval));
    let (refused, permitted) = (waiting.remove(0), waiting.remove(0));
    guard.answering_as("ada").deny(&refused.reference, "too much").await.unwrap();
    guard.answering_as("grace").approve(&permitted.reference).await.unwrap();

    let question = |detail: CallDetail| detail.questions.into_iter().next().unwrap();
    let denied = guard.show(&refused.reference).await.unwrap().unwrap();
    assert_eq!(denied.summary.status, CallStatus::Denied);
    let denied = question(denied);
    assert_eq!((&*denied.why, &*denied.signed.unwrap().who), ("too much", "ada"));
    let approved = guard.show(&permitted.reference).await.unwrap().unwrap();
    assert_eq!((approved.summary.status, &*question(approved).signed.unwrap().who), (CallStatus::Approved, "grace"));

    ask(1).await;
    ask(2).await;
    while all(&guard).await.iter().all(|call| call.status != CallStatus::Done) {
        tokio::task::yield_now().await;
    }
    let done = all(&guard).await.into_iter().find(|call| call.status == CallStatus::Done).unwrap();
    let execution = guard.show(&done.reference).await.unwrap().unwrap().execution.unwrap();
    assert_eq!((execution.approved, &*execution.permit.unwrap().who), (true, "grace"));
    let used = guard.show(&permitted.reference).await.unwrap().unwrap();
    assert_eq!(used.summary.reference, done.reference, "its answer is used up: what it permitted is found by it");
}

#[tokio::test]
async fn of_a_call_in_doubt_is_known_what_the_next_call_does_about_it() {
    let (guard, mut tools, run) = guard().await;
    let lost = async |_: Value, _: Attempt| Err::<Value, _>(ToolError::unknown("the connection was lost"));
    let schema = || json!({"type": "object"});
    tools.add(value_tool("set", "", schema(), Policy::idempotent(), lost)).unwrap();
    tools.add(value_tool("charge", "", schema(), Policy::keyed(KeyWindow::Unknown), lost)).unwrap();
    let looks = Policy::write().in_doubt(InDoubt::Reconcile);
    let send = value_tool("send", "", schema(), looks, lost).reconcile(async |_, _| Ok(Reconciled::CannotTell));
    tools.add(send).unwrap();
    for tool in ["t", "set", "charge", "send"] {
        let call = call(tool, &json!({"n": "lost"})).patience(Duration::from_millis(1));
        tools.call(&run, call).await;
    }
    let mut calls = all(&guard).await;
    while calls.len() < 4 || calls.iter().any(|call| call.status != CallStatus::InDoubt) {
        tokio::task::yield_now().await;
        calls = all(&guard).await;
    }
    let next: HashMap<&str, Option<NextCall>> = calls.iter().map(|call| (&*call.tool, call.next_call)).collect();
    let expected = [
        ("t", Some(NextCall::Waits)),
        ("set", Some(NextCall::Runs)),
        ("charge", Some(NextCall::SendsAgain)),
        ("send", Some(NextCall::LooksUp)),
    ];
    assert_eq!(next, HashMap::from(expected));
}

/// What a person says may be long, and a record has to fit into one value of the store.
#[test]
fn what_is_only_for_people_goes_before_the_end_of_an_attempt_does() {
    let signed = Signature { who: "ada".into(), at: 1 };
    let asker = Asker { run: "r".into(), fingerprint: Fingerprint::default() };
    let state = ApprovalState::Denied { why: "too much".into() };
    let approval = Approval {
        asker,
        asked_at: 0,
        reason: Reason::First,
        arguments: None,
        state,
        signed: Some(signed.clone()),
        turn: None,
    };
    let statement = Statement { fence: Fence(1), happened: false, why: "lost".into(), signed: signed.clone() };
    let record = Record { permit: Some(signed), statement: Some(statement), ..Record::default() };
    let mut base = Base { occurrences: vec![record], approvals: vec![approval], ..Base::default() };
    cut_texts(&mut base, 64);
    assert_eq!(base.occurrences, [Record::default()]);
    assert!(base.approvals[0].signed.is_none() && base.approvals[0].state != ApprovalState::Pending);
}

/// Who settles a call need not know its tool: how long an effect may go on showing is in the record.
#[tokio::test]
async fn a_no_is_too_early_while_the_tool_says_so_whoever_asks() {
    let (store, clock) = (MemoryStore::new(), ManualClock::new());
    let agent = Guard::builder(store.clone(), "look").clock(clock.clone()).build().await.unwrap();
    let mut tools = Registry::new(&agent);
    let policy = Policy::write().advanced(|a| a.attempts(1).settle_delay(Duration::from_secs(600)));
    let body = async |_: Value, _: Attempt| Err::<Value, _>(ToolError::unknown("lost"));
    tools.add(value_tool("t", "", json!({"type": "object"}), policy, body)).unwrap();
    let run = Run::start(&agent, "r").await.unwrap();
    let doubt = tools.call(&run, call("t", &json!({"n": 1}))).await;
    let reference = doubt.reference().unwrap();
    agent.shutdown(Duration::from_secs(1)).await.unwrap();

    let command = Guard::builder(store.reopen(), "look").clock(clock.clone()).build().await.unwrap();
    clock.advance(Duration::from_secs(120));
    let early = command.resolve(reference, Resolution::DidNotHappen, "looked").await.unwrap_err();
    assert_eq!(early.kind(), ErrorKind::TooEarly);
    clock.advance(Duration::from_secs(481));
    command.resolve(reference, Resolution::DidNotHappen, "looked").await.unwrap();
}
