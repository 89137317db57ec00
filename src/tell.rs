//! The sentences for the model. Each says what happened, whether calling again is safe, and what to change.

use serde::de::IgnoredAny;
use serde_json::Value;

use crate::Millis;
use crate::protocol::decide::Mark;
use crate::protocol::record::{Failure, FailureClass, Reason};

/// How an answer came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum ReplyKind {
    /// The tool ran for this call.
    Executed = 0,
    /// The stored outcome of this or an earlier call.
    Replayed = 1,
    /// The outcome of an execution that was running when the call came.
    Joined = 2,
    /// It is running; the caller's patience ended.
    Running = 3,
    /// It did not happen: the tool failed without effect.
    Failed = 4,
    /// It is not known whether it happened.
    InDoubt = 5,
    /// Other content under the identity of an earlier call.
    Conflict = 6,
    /// Nothing was done: the call is malformed, the tool unknown, or the guard can't work safely.
    Refused = 7,
    /// The stored outcome, marked so often in a row (five times, by default) that the model is told to stop.
    Stopped = 8,
    /// The tool ran and this is its outcome, but the store could not record it.
    Unrecorded = 9,
    /// The turn was recorded with other calls.
    Diverged = 10,
    /// Nothing was done: a human has to permit it.
    AwaitingApproval = 11,
    /// Nothing was done: a human refused it.
    Denied = 12,
}

impl ReplyKind {
    /// The kind's name in answers to the model, logs and scenario files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Executed => "executed",
            Self::Replayed => "replayed",
            Self::Joined => "joined",
            Self::Running => "running",
            Self::Failed => "failed",
            Self::InDoubt => "in_doubt",
            Self::Conflict => "conflict",
            Self::Refused => "refused",
            Self::Stopped => "stopped",
            Self::Unrecorded => "unrecorded",
            Self::Diverged => "diverged",
            Self::AwaitingApproval => "awaiting_approval",
            Self::Denied => "denied",
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        let all = [
            Self::Executed,
            Self::Replayed,
            Self::Joined,
            Self::Running,
            Self::Failed,
            Self::InDoubt,
            Self::Conflict,
            Self::Refused,
            Self::Stopped,
            Self::Unrecorded,
            Self::Diverged,
            Self::AwaitingApproval,
            Self::Denied,
        ];
        all.into_iter().find(|kind| *kind as u8 == code)
    }
}

impl std::fmt::Display for ReplyKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// An answer that is no result. What happened and what to do come first, whatever else is in it, so that a reader who
/// stops early has read the right part; and so the bytes don't depend on the features of `serde_json`.
struct Answer(String);

impl Answer {
    fn new(status: &str, message: &str) -> Self {
        Self(format!("{{\"status\":{},\"message\":{}", quoted(status), quoted(message)))
    }

    fn of(kind: ReplyKind, message: &str) -> Self {
        Self::new(kind.name(), message)
    }

    fn text(self, name: &str, text: &str) -> Self {
        self.json(name, &quoted(text))
    }

    /// A result, digit for digit.
    fn result(self, name: &str, output: &str) -> Self {
        let is_json = serde_json::from_str::<IgnoredAny>(output).is_ok();
        if is_json { self.json(name, output) } else { self.text(name, output) }
    }

    fn json(mut self, name: &str, json: &str) -> Self {
        self.0.push_str(&format!(",{}:{json}", quoted(name)));
        self
    }

    fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// With a full stop, if it has no end of its own.
fn sentence(text: &str) -> String {
    let stop = if text.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{text}{stop}")
}

/// How long ago, in words.
fn ago(at: Millis, now: Millis) -> String {
    let seconds = now.saturating_sub(at) / 1000;
    let (count, unit) = match seconds {
        0..60 => return "less than a minute ago".to_owned(),
        60..120 => return "a minute ago".to_owned(),
        120..7200 => (seconds / 60, "minutes"),
        7200..172_800 => (seconds / 3600, "hours"),
        _ => (seconds / 86_400, "days"),
    };
    format!("{count} {unit} ago")
}

/// How the model can ask for the same thing once more.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ask<'a> {
    /// By an argument of this name and value.
    Argument(&'a str, u32),
    /// By calling again: a human decides.
    Human,
    /// By saying what is different.
    Words,
    /// It has asked too often, or is to get something else than it would think.
    Nothing,
}

impl Ask<'_> {
    fn sentence(self) -> String {
        match self {
            Self::Argument(name, n) => format!(
                " Go on with it. Only if the user wants it done once more, call again with the argument {name:?} set to {n}."
            ),
            Self::Human => " Go on with it. Only if the user wants it done once more, make the same call in your next \
                            message: a person is asked first."
                .to_owned(),
            Self::Words => {
                " Go on with it, and don't change arguments only to get past this. If a second one is wanted, \
                            put in what tells the two apart, or ask the user."
                    .to_owned()
            }
            Self::Nothing => String::new(),
        }
    }
}

/// The sentence that marks an outcome as another call's; `None` for the place that it belongs to. `since` is how often the
/// tool did something else after that, and when last.
pub(crate) fn mark(
    mark: Mark,
    done_at: Millis,
    now: Millis,
    ask: Ask<'_>,
    since: Option<(usize, Millis)>,
) -> Option<String> {
    let since = since.map_or_else(String::new, |(count, at)| {
        let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
        format!(" Since then this tool did something else {times}, last {}.", self::ago(at, now))
    });
    let (ago, ask) = (ago(done_at, now), ask.sentence());
    match mark {
        Mark::Own => None,
        Mark::Sibling => Some(format!(
            "This is the result of the same call in the same message, done {ago}. It was done once for both calls, not \
             twice.{ask}"
        )),
        Mark::Earlier => {
            Some(format!("This is the stored result of the same call, done {ago}. It was not done again.{since}{ask}"))
        }
        Mark::Read => Some(format!(
            "This is the result of the same call, read {ago}. It was not read again for this one. Calling again later \
             reads it anew."
        )),
        Mark::Drifted => Some(format!(
            "This is not the result of this call, for which nothing was done. It is the stored result of an earlier call \
             for the same target, done {ago}, that had other arguments. Don't report this call as done. If the difference \
             matters, ask the user."
        )),
    }
}

/// Output and sentence in one text.
pub(crate) fn marked(output: &str, mark: &str) -> String {
    format!("{output}\n\n[{mark}]")
}

/// The model repeats itself: the plain word, with the outcome in it.
pub(crate) fn stopped(output: &str, mark: &str) -> String {
    let message = format!(
        "The same call was made several times, and each time got the stored result that is below. Don't make it again: go \
         on with the result, or tell the user what is missing. {mark}"
    );
    Answer::of(ReplyKind::Stopped, &message).result("result", output).end()
}

pub(crate) fn running(since: Option<Millis>, now: Millis) -> String {
    let started = since.map_or_else(String::new, |at| format!(" It was started {}.", ago(at, now)));
    let message = format!(
        "This is still running, and its result isn't known yet.{started} Calling again with the same arguments is safe: it \
         waits for the running execution and never starts a second one. Don't try to reach the same by other means \
         meanwhile."
    );
    Answer::of(ReplyKind::Running, &message).end()
}

pub(crate) fn in_doubt(reference: &str) -> String {
    let message = "It is not known whether this happened: it was begun and may have taken effect, but no answer came. Don't \
                   try to reach the same by other means or with other arguments; a look-up that changes nothing does no \
                   harm. Tell the user the reference: a person can settle it. Calling again with the same arguments is \
                   safe: it gets the result once that is known, and is never done twice on a guess.";
    Answer::of(ReplyKind::InDoubt, message).text("reference", reference).end()
}

pub(crate) fn failed(failure: &Failure) -> String {
    let message = match failure.class {
        FailureClass::Permanent => {
            "This failed and nothing was done. The same call would fail again. If an argument was a mistake, correct it; \
             otherwise tell the user."
        }
        _ => {
            "This failed and nothing was done. Calling again with the same arguments is safe. If it goes on failing, tell \
             the user."
        }
    };
    Answer::of(ReplyKind::Failed, message).text("error", &failure.message).end()
}

pub(crate) fn conflict(fields: &[String], stored: Option<&str>) -> String {
    let message = match stored {
        Some(_) => {
            "Nothing was done for this call, and calling again gets the same answer. An earlier call for the same target \
             was carried out with other arguments; its result is below. If that is what was wanted, go on with it. \
             Otherwise tell the user what differs, and ask."
        }
        None => {
            "Nothing was done for this call. An earlier call for the same target with other arguments is not finished yet, \
             or it is not known whether it happened. Make that earlier call again, with exactly its arguments: that is safe \
             and tells how it ended. If you don't have them, tell the user."
        }
    };
    let fields = Value::from(fields).to_string();
    let answer = Answer::of(ReplyKind::Conflict, message).json("differing_fields", &fields);
    match stored {
        Some(output) => answer.result("stored_result", output).end(),
        None => answer.end(),
    }
}

/// Why a call is refused whose arguments a tool can't read.
pub(crate) fn misfit(error: &str) -> String {
    format!("the arguments don't fit the tool: {error}.")
}

pub(crate) fn refused(why: &str) -> String {
    Answer::of(ReplyKind::Refused, &format!("Nothing was done for this call: {}", sentence(why))).end()
}

pub(crate) fn awaiting_approval(reference: &str, reason: &Reason) -> String {
    let why = match reason {
        Reason::First => String::new(),
        Reason::Repeat => " The same was done before in this run, and doing it again needs a person's word.".to_owned(),
        Reason::LookAlike { of } => format!(
            " It looks like another call that isn't finished or whose result was not seen (reference {of}). If it repeats \
             that one, make that call again with exactly its own arguments, and tell the user not to approve this one."
        ),
    };
    let message = format!(
        "Nothing was done yet: a person has to approve this call.{why} Tell the user, with the reference. Calling again with \
         the same arguments is safe: after the approval that does it. Don't send it with other arguments or try to reach \
         the same by other means meanwhile."
    );
    Answer::of(ReplyKind::AwaitingApproval, &message).text("reference", reference).end()
}

pub(crate) fn denied(why: &str) -> String {
    let reason =
        if why.is_empty() { String::new() } else { format!(" Their reason: \"{}\".", why.trim_end_matches('.')) };
    let message = format!(
        "Nothing was done: a person refused this call.{reason} Calling again with the same arguments gets the same answer. \
         Don't try to reach the same by other means. Go on without it, or ask the user."
    );
    Answer::of(ReplyKind::Denied, &message).end()
}

/// Why a write is refused whose tool's key rules changed since its run began.
pub(crate) fn changed_contract() -> String {
    "the program was changed since this work began, so that it can't tell any more whether this was done before. Don't try \
     to reach the same by other means. Tell the user: somebody has to check that before the work goes on in a new run, or \
     it can go on with the program as it was."
        .to_owned()
}

pub(crate) fn diverged() -> String {
    let message = "Nothing was done for this call: this message was answered before with other calls in it, which may have \
                   been carried out. Read their results first. If this call is still wanted then, make it in your next \
                   message.";
    Answer::of(ReplyKind::Diverged, message).end()
}

/// What stands for a result of which the store has the beginning only.
pub(crate) fn not_kept(length: u64, head: &str) -> String {
    if length == 0 {
        return unwritable(head);
    }
    let message = format!(
        "This was done, but its result ({length} bytes) is too long to be kept; its beginning is below. Calling again gets \
         no more of it: go on with what is there."
    );
    done(&message).text("result_beginning", head).end()
}

/// What stands for a result that can't be written as JSON.
fn unwritable(why: &str) -> String {
    done("This was done; only its result could not be written down. Calling again doesn't bring it: go on without it, or look \
          up what came of it.")
    .text("result_problem", why)
    .end()
}

/// What stands for a result that newer ones took the place of.
pub(crate) fn dropped() -> String {
    done("This was done earlier; its result is no longer kept. Calling again doesn't bring it: go on without it, or look up \
          what came of it.")
    .end()
}

/// What stands for a result whose bytes the store has lost.
pub(crate) fn lost() -> String {
    done("This was done earlier, but the stored result is damaged or lost. Calling again doesn't bring it: go on without it, \
          or look up what came of it.")
    .end()
}

fn done(message: &str) -> Answer {
    Answer::new("done", message)
}

pub(crate) fn unrecorded_note() -> &'static str {
    "This was done and this is its result, but no record of it could be stored. Don't call it again: it might be done twice. \
     Go on with this result."
}
