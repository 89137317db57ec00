//! `toolonce show`.

use std::fmt::Write as _;

use toolonce::protocol::approval::EXPIRES_AFTER;
use toolonce::protocol::record::{Given, Reason, Signature, Slot, Strictness, ToldBy};
use toolonce::{CallDetail, CallStatus, Execution, NextCall, OpenAttempt, Question};

use crate::Answer;
use crate::desk::Desk;
use crate::json;
use crate::problem::{Exit, Problem};
use crate::style::{clean, fingerprint, head, meaning, moment, sentence, words};

/// So many characters of arguments and results are shown as text.
const TEXT: usize = 2000;

/// So many characters of what a place was told.
const TOLD: usize = 120;

pub(crate) async fn show(desk: &Desk, reference: &str) -> Result<Answer, Problem> {
    let call = desk.find(reference).await?;
    let text = if desk.json { json::line(&json::call(&call)) } else { Page::of(desk, &call, reference) };
    Ok(Answer { text, exit: Exit::Done })
}

/// A call on a page for a person.
struct Page<'a> {
    desk: &'a Desk,
    call: &'a CallDetail,
    /// The reference that was given: the call's, or that of the question which permitted it.
    asked: &'a str,
    text: String,
}

impl<'a> Page<'a> {
    fn of(desk: &'a Desk, call: &'a CallDetail, asked: &'a str) -> String {
        let mut page = Self { desk, call, asked, text: String::new() };
        page.heading();
        if let Some(execution) = &call.execution {
            page.execution(execution);
        }
        for question in &call.questions {
            page.question(question);
        }
        if let (CallStatus::InDoubt, Some(execution)) = (call.summary.status, &call.execution) {
            page.how_to_resolve(execution);
        }
        page.text
    }

    fn line(&mut self, text: &str) {
        let _ = writeln!(self.text, "{text}");
    }

    fn title(&mut self, title: &str) {
        let title = self.desk.style.bold(title);
        self.line(&format!("\n{title}"));
    }

    fn field(&mut self, name: &str, value: &str) {
        let name = self.desk.style.dim(&format!("{name:<15}"));
        self.line(&format!("  {name}  {value}"));
    }

    fn heading(&mut self) {
        let summary = &self.call.summary;
        let style = self.desk.style;
        let status = style.status(summary.status, &words(summary.status));
        self.line(&format!("{}  {}  {status}", style.bold(&summary.reference), clean(&summary.tool)));
        self.line(&format!("{}\n", self.in_a_sentence()));
        self.field("run", &clean(&summary.run));
        if !summary.reference.starts_with(self.asked) {
            self.field("permitted as", &format!("the question {}, which it used up", self.asked));
        }
        if summary.occurrence > 0 {
            self.field("occurrence", &format!("{} equal calls came before it", summary.occurrence));
        }
    }

    fn in_a_sentence(&self) -> &'static str {
        match (self.call.summary.status, self.call.summary.attempts) {
            (CallStatus::Free, 0) => "It was never tried.",
            (status, _) => meaning(status),
        }
    }

    fn execution(&mut self, execution: &Execution) {
        let now = self.desk.now;
        let about = match execution.effect {
            Strictness::ReadOnly => "read only",
            Strictness::Idempotent => "idempotent: doing it again is harmless",
            Strictness::Keyed => {
                "keyed: the system downstream drops a repeat of its key, for as long as it remembers the key"
            }
            Strictness::Write => "write: running it again would do it again",
        };
        self.field("effect", about);
        let open = match execution.open.len() {
            0 => String::new(),
            open => format!(", outcome of {open} unknown"),
        };
        self.field("tries", &format!("{}{open}", self.call.summary.attempts));
        if let Some(at) = execution.first_sent {
            self.field("first sent", &moment(at, now));
        }
        for attempt in &execution.open {
            self.attempt(attempt);
        }
        if let Some(last) = &execution.failure {
            self.field("failure", &format!("try {}: {}", last.fence.0, head(&last.failure.message, TEXT)));
        }
        if let Some(outcome) = &execution.outcome {
            self.field("happened", &format!("{}, says {}", moment(outcome.at, now), told_by(outcome.told_by)));
            self.field("result", &head(outcome.result.text(), TEXT));
        }
        if let Some(arguments) = &execution.arguments {
            self.field("arguments", &head(arguments, TEXT));
        } else if !execution.open.is_empty() {
            self.field("arguments", "not kept for this tool: look into the agent's log of the run");
        }
        self.people(execution);
        self.field("fingerprint", &fingerprint(execution));
        let key = &execution.downstream_key;
        self.field("downstream key", &key.hex32());
        self.field("", &key.uuid());
        self.field("", &key.hex64());
        self.places(&execution.places);
    }

    fn attempt(&mut self, attempt: &OpenAttempt) {
        let now = self.desk.now;
        let quiet = moment(attempt.quiet_from, now);
        let when = match attempt.began {
            Some(began) => format!("began {}, to send nothing after {quiet}", moment(began, now)),
            None => format!("over by {quiet}"),
        };
        self.field(&format!("try {}", attempt.number), &when);
        match &attempt.error {
            Some(error) => self.field("", &format!("the tool said: {}", head(error, TEXT))),
            None => self.field("", "no end was recorded: its process died or was stopped"),
        }
    }

    /// What people answered.
    fn people(&mut self, execution: &Execution) {
        if execution.approved {
            let permit = execution.permit.as_ref().map_or_else(String::new, |permit| self.signed(permit));
            self.field("permitted", &format!("by a person{permit}"));
        }
        let Some(statement) = &execution.statement else { return };
        let what = if statement.happened { "it happened" } else { "it did not happen" };
        let tries = match statement.fence.0 {
            1 => "try 1".to_owned(),
            newest => format!("tries 1 to {newest}"),
        };
        let why = if statement.why.is_empty() { String::new() } else { format!(": {}", head(&statement.why, TEXT)) };
        self.field("a person said", &format!("{what} ({tries}){why}"));
        self.field("", self.signed(&statement.signed).trim_start_matches(", "));
        let wrong = |attempt: u64, by: ToldBy| by == ToldBy::Attempt && attempt <= statement.fence.0;
        if !statement.happened && execution.outcome.as_ref().is_some_and(|it| wrong(it.attempt, it.told_by)) {
            self.field("", "that was wrong: the try ended later and had its effect; see if another did too");
        }
    }

    fn signed(&self, signature: &Signature) -> String {
        let who = if signature.who.is_empty() { String::new() } else { format!(", {}", clean(&signature.who)) };
        format!("{who}, {}", moment(signature.at, self.desk.now))
    }

    fn places(&mut self, places: &[Slot]) {
        if places.is_empty() {
            return;
        }
        self.title("What the model was told");
        for slot in places {
            let id = if slot.id.is_empty() { String::new() } else { format!(", call id {}", clean(&slot.id)) };
            let nth = if slot.nth == 0 { String::new() } else { format!(", equal call {} of it", slot.nth + 1) };
            let told = match &slot.given {
                None => "nothing yet".to_owned(),
                Some(given) => head(&told(given), TOLD),
            };
            let lost = matches!(slot.given, Some(Given::Outcome { .. })) && !slot.delivered;
            let taken = if lost { " (not known to have arrived)" } else { "" };
            self.line(&format!("  turn {}{nth}{id}: {told}{taken}", slot.turn));
        }
    }

    fn question(&mut self, question: &Question) {
        let (request, now) = (&question.request, self.desk.now);
        let own = request.reference == self.call.summary.reference;
        if !own {
            let state = words(question.status);
            self.title(&format!("A question about an equal call: {}, {state}", request.reference));
            self.field("run", &clean(&request.run));
        }
        let why = match &request.reason {
            Reason::First => "the tool's policy asks before each first execution".to_owned(),
            Reason::Repeat => "it was done before, and the tool's policy asks before it is done again".to_owned(),
            Reason::LookAlike { of } => format!("it looks like the call {}, which isn't finished", clean(of)),
            _ => "the tool's policy asks".to_owned(),
        };
        self.field("why", &why);
        self.field("asked", &moment(request.asked_at, now));
        let signed = question.signed.as_ref().map_or_else(String::new, |signature| self.signed(signature));
        match question.status {
            CallStatus::Approved => self.field("approved", &format!("by a person{signed}")),
            CallStatus::Denied => {
                self.field("denied", &format!("by a person{signed}"));
                let why = if question.why.is_empty() { "no reason was given" } else { &head(&question.why, TEXT) };
                self.field("", why);
            }
            _ => self.unanswered(question),
        }
        if own && question.status == CallStatus::AwaitingApproval {
            self.how_to_decide(&request.reference);
        }
    }

    fn unanswered(&mut self, question: &Question) {
        let (request, now) = (&question.request, self.desk.now);
        self.field("answer until", &moment(request.asked_at.saturating_add(EXPIRES_AFTER), now));
        let unkept = "too long or too secret to keep: ask whoever runs the agent";
        let arguments = request.arguments.as_ref().map_or_else(|| unkept.to_owned(), |text| head(text, TEXT));
        self.field("arguments", &arguments);
    }

    fn how_to_decide(&mut self, reference: &str) {
        self.title("What to do");
        self.line("  Permit one execution with these arguments, or refuse it for the rest of the run:\n");
        self.line(&format!("    {}", self.desk.command(&format!("approve {reference}"))));
        self.line(&format!("    {}", self.desk.command(&format!("deny {reference} --reason '…'"))));
    }

    fn how_to_resolve(&mut self, execution: &Execution) {
        let (reference, now) = (&self.call.summary.reference, self.desk.now);
        self.title("What to do");
        if let Some(goes_on) = self.call.summary.next_call.and_then(goes_on) {
            self.line(&format!("  {goes_on}\n"));
        }
        let by = match (execution.effect, &execution.arguments) {
            (Strictness::Keyed, _) => "by the downstream key or by its arguments",
            (_, Some(_)) => "by its arguments, or by the downstream key if the tool sends it",
            (_, None) => "by what the agent's log has of it, or by the downstream key if the tool sends it",
        };
        self.line(&format!("  Look where its effect would be, {by}.\n  Then say one of:\n"));
        let happened = format!("resolve {reference} --happened --result '…'");
        self.line(&format!("    {}", self.desk.command(&happened)));
        let did_not = format!("resolve {reference} --did-not-happen --reason '…'");
        self.line(&format!("    {}", self.desk.command(&did_not)));
        let Some(from) = execution.takes_no_from.filter(|from| *from > now) else { return };
        let from = moment(from, now);
        self.line(&format!("\n  Its effect could still show until {from}: \"did not happen\" is taken from then on."));
        self.line("  You may start the agent meanwhile. If its host is down for sure, --force takes the answer now.");
    }
}

/// What becomes of a call in doubt that nobody answers for.
fn goes_on(next: NextCall) -> Option<&'static str> {
    match next {
        NextCall::Runs => Some(
            "Nobody need answer: when the agent makes the call again it is executed again, which is harmless. Answer only \
             if\n  the run won't go on.",
        ),
        NextCall::SendsAgain => Some(
            "Nobody need answer while the system downstream remembers the key: when the agent makes the call again, it is\n  \
             sent again under the same key, for as long as the tool's policy allows. Answer if it stays in doubt, or if the\n  \
             run won't go on.",
        ),
        NextCall::LooksUp => Some(
            "Nobody need answer: the tool looks it up when the agent makes the call again. Answer if it stays in doubt, or \
             if\n  the run won't go on.",
        ),
        _ => None,
    }
}

fn told_by(who: ToldBy) -> &'static str {
    match who {
        ToldBy::Attempt => "the tool",
        ToldBy::LookUp => "the tool's look-up",
        ToldBy::Human => "a person",
    }
}

/// What a place was answered with.
fn told(given: &Given) -> String {
    match given {
        Given::Outcome { mark: None, .. } => "the outcome".to_owned(),
        Given::Outcome { stop: true, .. } => "the outcome, and to stop repeating the call".to_owned(),
        Given::Outcome { .. } => "the outcome, marked as an earlier call's".to_owned(),
        Given::Failure(failure) => format!("failed: {}", failure.message),
        Given::Status { text, .. } => sentence(text),
    }
}
