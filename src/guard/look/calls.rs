//! What is said of a call.

use crate::Millis;
use crate::guard::ApprovalRequest;
use crate::key::{DownstreamKey, Fingerprint};
use crate::protocol::approval::is_expired;
use crate::protocol::record::{
    Approval, ApprovalState, Last, Record, Signature, Slot, Statement, Strictness, ToldBy, View,
};
use crate::reply::Outcome;
use crate::store::Key;

/// Where a call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CallStatus {
    /// It isn't known whether it happened; [`Guard::resolve`](crate::Guard::resolve) settles it.
    InDoubt,
    /// It waits for [`Guard::approve`](crate::Guard::approve) or [`Guard::deny`](crate::Guard::deny).
    AwaitingApproval,
    /// A person permitted it, and it wasn't begun since: the next equal call of the run executes it.
    Approved,
    /// A person refused it, for the rest of the run.
    Denied,
    /// It asked for approval and nobody answered in time: the next equal call asks anew.
    Expired,
    /// A living process executes it.
    Running,
    /// It did not happen, and the tool called that final.
    Failed,
    /// It did not happen, or was never tried: a retry executes it.
    Free,
    /// It happened; the outcome is recorded.
    Done,
}

impl CallStatus {
    /// All of them, those that may need a person first.
    pub const ALL: [Self; 9] = [
        Self::InDoubt,
        Self::AwaitingApproval,
        Self::Approved,
        Self::Denied,
        Self::Expired,
        Self::Running,
        Self::Failed,
        Self::Free,
        Self::Done,
    ];

    /// The status in one word, for programs: `in_doubt`, `awaiting_approval`, `approved`, `denied`, `expired`,
    /// `running`, `failed`, `free`, `done`.
    pub fn name(self) -> &'static str {
        match self {
            Self::InDoubt => "in_doubt",
            Self::AwaitingApproval => "awaiting_approval",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Running => "running",
            Self::Failed => "failed",
            Self::Free => "free",
            Self::Done => "done",
        }
    }

    /// Where a call stands that only asked for approval.
    pub(super) fn of_question(approval: &Approval, now: Millis) -> Self {
        match approval.state {
            ApprovalState::Pending if is_expired(approval, now) => Self::Expired,
            ApprovalState::Pending => Self::AwaitingApproval,
            ApprovalState::Approved => Self::Approved,
            ApprovalState::Denied { .. } => Self::Denied,
        }
    }

    /// Whether a person may have to answer before it goes on; of a call in doubt [`CallSummary::next_call`] says more.
    pub fn needs_a_person(self) -> bool {
        matches!(self, Self::InDoubt | Self::AwaitingApproval)
    }
}

impl From<View> for CallStatus {
    fn from(view: View) -> Self {
        match view {
            View::Done => Self::Done,
            View::Running => Self::Running,
            View::InDoubt => Self::InDoubt,
            View::Failed => Self::Failed,
            View::Free => Self::Free,
        }
    }
}

/// A call in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallSummary {
    /// What [`Guard::show`](crate::Guard::show) takes, and [`Guard::resolve`](crate::Guard::resolve) or
    /// [`Guard::approve`](crate::Guard::approve) where it needs a person.
    pub reference: String,
    /// Where it stands.
    pub status: CallStatus,
    /// The tool's name.
    pub tool: String,
    /// The run that asked first.
    pub run: String,
    /// Which of the equal calls it is, from 0; 0 as well for one that only asked for approval.
    pub occurrence: usize,
    /// When the newest thing that is known of it happened, in milliseconds since the Unix epoch; `None` if no time is.
    pub at: Option<Millis>,
    /// How often its execution was begun. Goes on from the highest before, where a gc removed the record of equal calls.
    pub attempts: u64,
    /// While it is in doubt: what becomes of it if nobody answers and the agent makes the call again.
    pub next_call: Option<NextCall>,
}

/// What the next equal call does about a call in doubt, as far as the record tells: it doesn't know the tool's policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NextCall {
    /// It executes it again, which is harmless.
    Runs,
    /// It sends it again under the same downstream key, while the tool's [window](crate::KeyWindow) for that holds. A
    /// tool with a look-up asks that first.
    SendsAgain,
    /// It asks the tool's look-up whether it happened.
    LooksUp,
    /// Nothing: it waits for [`Guard::resolve`](crate::Guard::resolve), unless the tool has a look-up and its arguments
    /// were too long or too secret to keep.
    Waits,
}

impl NextCall {
    /// For programs: `runs`, `sends_again`, `looks_up`, `waits`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::SendsAgain => "sends_again",
            Self::LooksUp => "looks_up",
            Self::Waits => "waits",
        }
    }

    /// For a record in doubt. Arguments are kept for a re-send and for a look-up only.
    pub(super) fn about(record: &Record) -> Self {
        match record.strictness {
            Strictness::ReadOnly | Strictness::Idempotent => Self::Runs,
            Strictness::Keyed => Self::SendsAgain,
            Strictness::Write if record.kept_arguments.is_some() => Self::LooksUp,
            Strictness::Write => Self::Waits,
        }
    }
}

/// Calls, and where the next ones are. A page is what up to 256 records hold, which may be more or fewer calls.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CallsPage {
    /// In no order that means anything. May be empty although more follow.
    pub calls: Vec<CallSummary>,
    /// What [`Guard::calls`](crate::Guard::calls) takes for the next page; `None` after the last.
    pub next: Option<CallsFrom>,
}

/// Where a page of calls begins.
#[derive(Debug, Clone)]
pub struct CallsFrom(pub(super) Key);

/// All that is known of a call.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CallDetail {
    /// In one line.
    pub summary: CallSummary,
    /// Its execution; `None` for a call that only asked for approval.
    pub execution: Option<Execution>,
    /// The questions about equal calls and their answers, as far as they aren't used up. For a call that only asked for
    /// approval it is its own.
    pub questions: Vec<Question>,
}

/// A question put to a person, and the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Question {
    /// What was asked. The arguments are dropped with the answer.
    pub request: ApprovalRequest,
    /// What came of it: [`AwaitingApproval`](CallStatus::AwaitingApproval), [`Expired`](CallStatus::Expired),
    /// [`Approved`](CallStatus::Approved) or [`Denied`](CallStatus::Denied).
    pub status: CallStatus,
    /// Why it was denied, in the person's words; may be empty, and is for what wasn't denied.
    pub why: String,
    /// Who answered.
    pub signed: Option<Signature>,
}

/// What a record says of a call that was executed, or may have been.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Execution {
    /// What the tool was declared to do when the newest attempt began.
    pub effect: Strictness,
    /// What the systems downstream know it by.
    pub downstream_key: DownstreamKey,
    /// Of the newest attempt's arguments.
    pub fingerprint: Fingerprint,
    /// The arguments as executed, if they are kept: only while it is in doubt, and only for some tools.
    pub arguments: Option<String>,
    /// When something may first have been sent under this downstream key, in milliseconds since the Unix epoch.
    pub first_sent: Option<Millis>,
    /// The attempts whose end isn't known, the running one last.
    pub open: Vec<OpenAttempt>,
    /// While attempts are open: from when on [`Guard::resolve`](crate::Guard::resolve) takes a plain "did not happen", in
    /// milliseconds since the Unix epoch. A guard that has known for the settle delay that the executing process is dead
    /// takes it earlier.
    pub takes_no_from: Option<Millis>,
    /// The newest failure that is known to have had no effect.
    pub failure: Option<Last>,
    /// Whether a person permitted the newest attempt.
    pub approved: bool,
    /// Who did, where it is known.
    pub permit: Option<Signature>,
    /// What a person said last when it was in doubt.
    pub statement: Option<Statement>,
    /// The outcome, once there is one.
    pub outcome: Option<RecordedOutcome>,
    /// The places in assistant messages that it answered or must answer.
    pub places: Vec<Slot>,
}

/// An attempt that may have had an effect.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenAttempt {
    /// Which attempt of the call, from 1.
    pub number: u64,
    /// When it began, in milliseconds since the Unix epoch; known while nobody has noted that it is over.
    pub began: Option<Millis>,
    /// From when on it sends nothing any more, in milliseconds since the Unix epoch: its deadline, or when it ended.
    pub quiet_from: Millis,
    /// What the tool said, if it said anything.
    pub error: Option<String>,
}

/// A recorded outcome.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RecordedOutcome {
    /// The attempt that is known to have succeeded; the newest one where somebody else says so.
    pub attempt: u64,
    /// When it was recorded, in milliseconds since the Unix epoch.
    pub at: Millis,
    /// Who says so.
    pub told_by: ToldBy,
    /// The result, or what is left of it.
    pub result: Outcome,
}
