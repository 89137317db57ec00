//! The sentences for the model. Each says what happened, whether calling again is safe, and what to change.

use serde_json::{Value, json};

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

fn status(kind: ReplyKind, message: &str) -> String {
    json!({"status": kind.name(), "message": message}).to_string()
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
}

impl Ask<'_> {
    fn sentence(self) -> String {
        match self {
            Self::Argument(name, n) => {
                format!("If it is really wanted once more, call again with the argument {name:?} set to {n}.")
            }
            Self::Human => {
                "If it is really wanted once more, call again in a later message: a person will be asked.".to_owned()
            }
            Self::Words => {
                "If it is really wanted a second time, change the arguments so that they say what is different \
                            about it, or ask the user."
                    .to_owned()
            }
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
    let ago = ago(done_at, now);
    match mark {
        Mark::Own => None,
        Mark::Sibling => Some(format!(
            "This is the result of an equal call in the same message, done {ago}. It was done once for both calls, \
             not twice. {}",
            ask.sentence()
        )),
        Mark::Earlier => Some(format!(
            "This is the stored result of an equal call, done {ago}. It was not done again.{since} {}",
            ask.sentence()
        )),
        Mark::Read => Some(format!(
            "This is the result of an equal call, read {ago}. It was not read again for this one. Calling again later \
             reads it anew."
        )),
        Mark::Drifted => Some(format!(
            "This is the stored result of an earlier call for the same target, done {ago}, whose other arguments were \
             different. Nothing was done for this call. If that result isn't what is wanted, ask the user."
        )),
    }
}

/// Output and sentence in one text.
pub(crate) fn marked(output: &str, mark: &str) -> String {
    format!("{output}\n\n[{mark}]")
}

/// The model repeats itself: the plain word, with the outcome in it.
pub(crate) fn stopped(output: &str, mark: &str) -> String {
    let result = serde_json::from_str(output).unwrap_or_else(|_| Value::String(output.to_owned()));
    let message = format!(
        "This same call was made several times in a row and always got the stored result that is below. Don't repeat \
         it: go on, or tell the user what is missing. {mark}"
    );
    json!({"status": ReplyKind::Stopped.name(), "message": message, "result": result}).to_string()
}

pub(crate) fn running(since: Option<Millis>, now: Millis) -> String {
    let started = since.map_or_else(String::new, |at| format!(" It was started {}.", ago(at, now)));
    let message = format!(
        "This is still running, and its result isn't known yet.{started} Calling again with the same arguments is safe: it \
         waits for the running execution and never starts a second one. Don't try to reach the same by other means \
         meanwhile."
    );
    status(ReplyKind::Running, &message)
}

pub(crate) fn in_doubt(reference: &str) -> String {
    let message = "It is not known whether this happened: it was begun and may have taken effect, but no answer came. Don't \
                   try to reach the same by other means. Tell the user: a person can settle it by the reference. Calling \
                   again with the same arguments is safe: it gets the result once that is known, and nothing is done twice \
                   on a guess.";
    json!({"status": ReplyKind::InDoubt.name(), "message": message, "reference": reference}).to_string()
}

pub(crate) fn failed(failure: &Failure) -> String {
    let message = match failure.class {
        FailureClass::Permanent => {
            "This failed and nothing was done. The same call will fail again unless something changes; change the \
             arguments or tell the user."
        }
        _ => {
            "This failed and nothing was done. Calling again with the same arguments is safe. If it goes on failing, tell \
             the user."
        }
    };
    json!({"status": ReplyKind::Failed.name(), "message": message, "error": failure.message}).to_string()
}

pub(crate) fn conflict(fields: &[String], stored: Option<&str>) -> String {
    let name = ReplyKind::Conflict.name();
    match stored {
        Some(output) => {
            let result = serde_json::from_str(output).unwrap_or_else(|_| Value::String(output.to_owned()));
            let message = "An earlier call for the same target was already carried out with other arguments; its \
                           result is below. Nothing was done for this call, and calling again gets the same answer. If \
                           the earlier one is what was wanted, go on with its result; otherwise correct it with the tool \
                           made for that, or ask the user.";
            json!({"status": name, "message": message, "differing_fields": fields, "stored_result": result}).to_string()
        }
        None => {
            let message = "An earlier call for the same target with other arguments is not finished yet, or it is not \
                           known whether it happened. Nothing was done for this call. Call again with the arguments of \
                           the earlier call to learn how it ended, before anything else is done about this target.";
            json!({"status": name, "message": message, "differing_fields": fields}).to_string()
        }
    }
}

/// Why a call is refused whose arguments a tool can't read.
pub(crate) fn misfit(error: &str) -> String {
    format!("the arguments don't fit the tool: {error}.")
}

pub(crate) fn refused(why: &str) -> String {
    status(ReplyKind::Refused, &format!("Nothing was done: {}", sentence(why)))
}

pub(crate) fn awaiting_approval(reference: &str, reason: &Reason) -> String {
    let why = match reason {
        Reason::First => String::new(),
        Reason::Repeat => " The same was done before in this run, and doing it again needs a person's word.".to_owned(),
        Reason::LookAlike { of } => format!(
            " It looks like another call that isn't finished or whose result was not seen (reference {of}). If it repeats \
             that one, make that call again with its own arguments instead."
        ),
    };
    let message = format!(
        "Nothing was done yet: a person has to approve this call.{why} Calling again with the same arguments is safe: it \
         is done once it is approved. With other arguments it needs an approval of its own. Tell the user that it waits \
         for approval, and don't try to reach the same by other means."
    );
    json!({"status": ReplyKind::AwaitingApproval.name(), "message": message, "reference": reference}).to_string()
}

pub(crate) fn denied(why: &str) -> String {
    let reason = if why.is_empty() { String::new() } else { format!(" Their reason: {}", sentence(why)) };
    let message = format!(
        "Nothing was done: a person refused this call.{reason} Calling again with the same arguments gets the same answer. \
         Go on without it and don't try to reach the same by other means, or ask the user."
    );
    status(ReplyKind::Denied, &message)
}

/// Why a write is refused whose tool's key rules changed since its run began.
pub(crate) fn changed_contract() -> String {
    "the program was changed since this run began, so that it can't tell any more whether this was done before in it. The \
     answers that are recorded stay. Tell the user: the work has to go on in a new run, or with the program as it was."
        .to_owned()
}

pub(crate) fn diverged() -> String {
    status(
        ReplyKind::Diverged,
        "Nothing was done: this message was answered before with other calls in it, and this call was not among them. If \
         it is still wanted after the answers that are there, make it in your next message.",
    )
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
    json!({"status": "done", "message": message, "result_beginning": head}).to_string()
}

/// What stands for a result that can't be written as JSON.
fn unwritable(why: &str) -> String {
    let message = "This was done, but its result could not be written down. Calling again doesn't bring it: go on without \
                   it, or look up what came of it.";
    json!({"status": "done", "message": message, "error": why}).to_string()
}

/// What stands for a result that newer ones took the place of.
pub(crate) fn dropped() -> String {
    let message = "This was done earlier; its result is no longer kept. Calling again doesn't bring it: go on without it, or \
                   look up what came of it.";
    json!({"status": "done", "message": message}).to_string()
}

/// What stands for a result whose bytes the store has lost.
pub(crate) fn lost() -> String {
    let message = "This was done earlier, but the stored result is damaged or lost. Calling again doesn't bring it: go on \
                   without it, or look up what came of it.";
    json!({"status": "done", "message": message}).to_string()
}

pub(crate) fn unrecorded_note() -> &'static str {
    "This was done and this is its result, but no record of it could be stored. Don't call it again: it might be done twice. \
     Go on with this result."
}
