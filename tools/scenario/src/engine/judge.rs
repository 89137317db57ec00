//! Whether what came is what was expected.

use std::collections::BTreeSet;

use serde_json::Value;
use toolonce::Reply;

use super::case::{Case, Got};
use crate::file::{Count, Expect, ReplyKind};

/// A line for each thing about the case that is not as expected.
pub(super) fn judge(case: &Case<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (call, expect) in case.expectations() {
        let label = case.label(call);
        let against = Judge { case, call, expect };
        found.extend(against.verdicts().into_iter().map(|(expected, came)| sentence(&label, &expected, &came)));
    }
    totals(case, &mut found);
    found
}

fn sentence(what: &str, expected: &str, came: &str) -> String {
    format!("{what}: expected {expected}, came {came}")
}

fn totals(case: &Case<'_>, found: &mut Vec<String>) {
    let file = case.file();
    let mut count = |what: &str, tool: &str, expected: Count, came: u64| {
        if !expected.holds(came) {
            let Count { min, max } = expected;
            let expected = if min == max { min.to_string() } else { format!("{min} to {max}") };
            found.push(sentence(&format!("{what} of {tool}"), &expected, &came.to_string()));
        }
    };
    for (tool, expected) in &file.effects {
        count("effects", tool, *expected, case.ledger().tally(tool, |tally| tally.effects));
    }
    for (tool, expected) in &file.executions {
        count("executions", tool, *expected, case.ledger().tally(tool, |tally| tally.executions));
    }
    for (tool, expected) in &file.downstream_keys {
        let keys = case.ledger().tally(tool, |tally| tally.keys.len() as u64);
        count("downstream keys", tool, Count { min: *expected, max: *expected }, keys);
    }
    if let Some(expected) = file.incidents {
        count("incidents", "the guard", Count { min: expected, max: expected }, case.incidents());
    }
    if let Some(expected) = &file.warnings {
        let (expected, came) = (expected.iter().cloned().collect::<BTreeSet<_>>(), case.warnings());
        if expected != came {
            found.push(sentence("tools that the lint names", &format!("{expected:?}"), &format!("{came:?}")));
        }
    }
}

/// One expectation against the reply of one call.
struct Judge<'a> {
    case: &'a Case<'a>,
    call: usize,
    expect: &'a Expect,
}

/// What was expected and what came instead.
type Verdict = (String, String);

impl Judge<'_> {
    fn verdicts(&self) -> Vec<Verdict> {
        let got = self.case.got(self.call);
        match got {
            Some(Got::Reply(reply)) => self.of_reply(reply),
            Some(Got::Failed(error)) => self.of_error(error),
            Some(Got::Gone) => vec![(self.kinds(), "nothing: its caller was dropped".to_owned())],
            None => vec![(self.kinds(), "no reply: its process ended".to_owned())],
        }
    }

    fn kinds(&self) -> String {
        match self.expect.reply.as_slice() {
            [] => "a reply".to_owned(),
            kinds => kinds.iter().map(|kind| name(*kind)).collect::<Vec<_>>().join(" or "),
        }
    }

    /// Without a guard or a run for the call there is nobody to answer it: it is refused, and nothing else.
    fn of_error(&self, error: &str) -> Vec<Verdict> {
        let refused = Expect { reply: vec![ReplyKind::Refused], ..Expect::default() };
        let bare = Expect { reply: refused.reply.clone(), marked: None, ..self.expect.clone() } == refused;
        let fits = bare && self.expect.marked != Some(true) && self.expect.reply.contains(&ReplyKind::Refused);
        let wrong = self.expect.error.is_none() && !fits;
        wrong.then(|| (self.kinds(), format!("the error {error}"))).into_iter().collect()
    }

    fn of_reply(&self, reply: &Reply) -> Vec<Verdict> {
        let expect = self.expect;
        if expect.error.is_some() {
            return vec![("an error".to_owned(), shown(reply))];
        }
        let mut found = Vec::new();
        if !expect.reply.is_empty() && !expect.reply.iter().any(|kind| name(*kind) == reply.kind().name()) {
            found.push((self.kinds(), shown(reply)));
        }
        if expect.marked.is_some_and(|marked| marked != reply.is_marked()) {
            let not = if reply.is_marked() { ("unmarked", "marked") } else { ("marked", "unmarked") };
            found.push((not.0.to_owned(), format!("{} ({})", not.1, reply.kind())));
        }
        found.extend(self.outcome(reply));
        found.extend(self.texts(reply));
        found.extend(self.keys(reply));
        found
    }

    fn outcome(&self, reply: &Reply) -> Vec<Verdict> {
        let expect = self.expect;
        let mut found = Vec::new();
        if let Some(expected) = &expect.result {
            let came = reply.outcome().and_then(|outcome| outcome.json::<Value>().ok());
            if came.as_ref() != Some(expected) {
                found.push((format!("the result {expected}"), shown(reply)));
            }
        }
        if expect.kept.is_some() && reply.outcome().is_none_or(toolonce::Outcome::is_kept) {
            found.push(("an outcome that is not kept".to_owned(), shown(reply)));
        }
        if let Some(other) = &expect.same_as {
            match self.case.reply_of(other) {
                Some(first) if told(first) == told(reply) => {}
                Some(first) => found.push((format!("the outcome of {other}, {}", told(first)), told(reply))),
                None => found.push((format!("the outcome of {other}"), "no reply to compare with".to_owned())),
            }
        }
        found
    }

    fn texts(&self, reply: &Reply) -> Vec<Verdict> {
        let message = reply.message();
        let missing = self.expect.says.iter().filter(|text| !message.contains(text.as_str()));
        let wrong = self.expect.not_says.iter().filter(|text| message.contains(text.as_str()));
        let missing = missing.map(|text| (format!("a message with {text:?}"), format!("{message:?}")));
        let wrong = wrong.map(|text| (format!("a message without {text:?}"), format!("{message:?}")));
        let fields = reply.differing_fields();
        let unnamed = self.expect.fields.iter().filter(|field| !fields.contains(field));
        let unnamed = unnamed.map(|field| (format!("the field {field} among the differing"), format!("{fields:?}")));
        missing.chain(wrong).chain(unnamed).collect()
    }

    fn keys(&self, reply: &Reply) -> Option<Verdict> {
        let expect = self.expect;
        let (other, same) = match (&expect.downstream_same_as, &expect.downstream_differs_from) {
            (Some(other), _) => (other, true),
            (None, Some(other)) => (other, false),
            (None, None) => return None,
        };
        let mine = reply.downstream_key().map(toolonce::key::DownstreamKey::hex64);
        let theirs = self.case.key_of(other);
        let right = mine.is_some() && theirs.is_some() && (mine == theirs) == same;
        let wanted = if same { "the" } else { "another than the" };
        let short = |key: Option<String>| key.map_or("none".to_owned(), |key| key[..12].to_owned());
        (!right).then(|| {
            let expected = format!("{wanted} downstream key of {other}, {}", short(theirs));
            (expected, short(mine))
        })
    }
}

fn shown(reply: &Reply) -> String {
    let message: String = reply.message().chars().take(200).collect();
    format!("{} {message:?}", reply.kind())
}

/// The outcome as the model is told it, without the sentence that marks it. A status is told as it is.
fn told(reply: &Reply) -> String {
    match reply.outcome() {
        Some(outcome) if outcome.is_kept() => outcome.text().to_owned(),
        _ => {
            let message = reply.message();
            let unmarked = if reply.is_marked() { message.rsplit_once("\n\n[") } else { None };
            unmarked.map_or(message, |(output, _)| output).to_owned()
        }
    }
}

/// A kind's name, as the library calls it.
pub(super) fn name(kind: ReplyKind) -> &'static str {
    match kind {
        ReplyKind::Executed => "executed",
        ReplyKind::Replayed => "replayed",
        ReplyKind::Joined => "joined",
        ReplyKind::Running => "running",
        ReplyKind::Failed => "failed",
        ReplyKind::InDoubt => "in_doubt",
        ReplyKind::Conflict => "conflict",
        ReplyKind::AwaitingApproval => "awaiting_approval",
        ReplyKind::Denied => "denied",
        ReplyKind::Refused => "refused",
        ReplyKind::Stopped => "stopped",
        ReplyKind::Unrecorded => "unrecorded",
        ReplyKind::Diverged => "diverged",
    }
}
