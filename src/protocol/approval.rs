//! Permissions: a question is put once, answered by a human, and consumed by one claim.

use super::apply::Refused;
use super::record::{Approval, ApprovalState, Asker, Base, Signature};
use crate::Millis;

/// After this long a question that nobody answered is void: one day.
pub const EXPIRES_AFTER: Millis = 24 * 60 * 60 * 1000;

/// Of one key so many questions and answers are kept.
const KEPT: usize = 16;

/// What is known about a permission at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Nobody asked for it, or too long ago.
    Unasked,
    /// A human has yet to answer.
    Pending,
    /// The next claim may consume it.
    Approved,
    /// It was refused.
    Denied {
        /// In the human's words; may be empty.
        why: String,
    },
}

/// What is known about `asker`'s permission at `now`.
pub fn standing(base: &Base, asker: &Asker, now: Millis) -> Standing {
    let Some(approval) = base.approvals.iter().find(|approval| approval.asker == *asker) else {
        return Standing::Unasked;
    };
    match &approval.state {
        ApprovalState::Pending if is_expired(approval, now) => Standing::Unasked,
        ApprovalState::Pending => Standing::Pending,
        ApprovalState::Approved => Standing::Approved,
        ApprovalState::Denied { why } => Standing::Denied { why: why.clone() },
    }
}

/// Whether nobody answered it in time.
pub fn is_expired(approval: &Approval, now: Millis) -> bool {
    approval.state == ApprovalState::Pending && now >= approval.asked_at.saturating_add(EXPIRES_AFTER)
}

/// Puts a question, over an older one of the same asker that expired. Adds no slot: nothing was done. `None` if there are
/// too many that must not be forgotten: a refusal holds, and a question that waits is on a human's list.
pub fn ask(base: &Base, question: Approval) -> Option<Base> {
    let mut next = base.clone();
    next.approvals.retain(|approval| approval.asker != question.asker);
    if next.approvals.len() >= KEPT {
        // A permission that is forgotten is asked for again.
        let may_go =
            |approval: &Approval| approval.state == ApprovalState::Approved || is_expired(approval, question.asked_at);
        let at = next.approvals.iter().position(may_go)?;
        next.approvals.remove(at);
    }
    next.approvals.push(question);
    Some(next)
}

/// Puts a name under the answer to `asker`'s question.
pub fn sign(base: &mut Base, asker: &Asker, signature: Signature) {
    if let Some(approval) = base.approvals.iter_mut().find(|approval| approval.asker == *asker) {
        approval.signed = Some(signature);
    }
}

/// Who answered the question of `asker`, where somebody did and is known.
pub(super) fn signature<'a>(base: &'a Base, asker: &Asker) -> Option<&'a Signature> {
    base.approvals.iter().find(|approval| approval.asker == *asker)?.signed.as_ref()
}

/// Whether a human permitted it and no claim used that up.
pub(super) fn is_approved(base: &Base, asker: &Asker) -> bool {
    base.approvals.iter().any(|approval| approval.asker == *asker && approval.state == ApprovalState::Approved)
}

/// The call of `asker` is claimed: its permission is used up, even if it turned out not to need one, and a question that
/// it still has open is void. What came of them later would be a repeat that nobody was asked about.
pub(super) fn withdraw(base: &mut Base, asker: &Asker) {
    let is_denied = |approval: &Approval| matches!(approval.state, ApprovalState::Denied { .. });
    base.approvals.retain(|approval| approval.asker != *asker || is_denied(approval));
}

/// A human answered, or nobody did.
pub(super) fn settle(base: &mut Base, asker: &Asker, answer: Option<ApprovalState>) -> Result<(), Refused> {
    let pending = |approval: &Approval| approval.asker == *asker && approval.state == ApprovalState::Pending;
    let at = base.approvals.iter().position(pending).ok_or(Refused::NoApproval)?;
    match answer {
        Some(state) => {
            let approval = &mut base.approvals[at];
            approval.arguments = None;
            approval.state = state;
        }
        None => drop(base.approvals.remove(at)),
    }
    Ok(())
}
