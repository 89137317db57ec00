//! Mutants of what the guard owes the protocol.

use toolonce::Millis;
use toolonce::protocol::history::History;

use crate::explore::repeat::LIMITS;
use crate::explore::table::{Real, Stale, Table};

/// The real protocol with one obligation neglected.
pub(super) struct Guard {
    stale: Stale,
    neglects: Neglects,
}

#[derive(PartialEq, Eq)]
enum Neglects {
    Nothing,
    SettleDelay,
    Deadline,
    TakenAsCondition,
    MarkAtOnce,
    Cuts,
    Bodies,
}

const fn neglecting(neglects: Neglects) -> Guard {
    Guard { stale: Stale::DecideAgain, neglects }
}

const fn committing(stale: Stale) -> Guard {
    Guard { stale, neglects: Neglects::Nothing }
}

/// The claim is put without checking the version that was decided on.
pub(super) const OVERWRITES: Guard = committing(Stale::Overwrite);
/// HOLES 9: the occurrence was chosen before, the claim takes what is free by then.
pub(super) const NEXT_OCCURRENCE: Guard = committing(Stale::NextOccurrence);
/// HOLES 19: a *no* right after the deadline counts.
pub(super) const NO_SETTLE_DELAY: Guard = neglecting(Neglects::SettleDelay);
/// HOLES 20.
pub(super) const STARTS_LATE: Guard = neglecting(Neglects::Deadline);
/// HOLES 11.
pub(super) const MARKS_AT_COMPLETION: Guard = neglecting(Neglects::TakenAsCondition);
/// HOLES 12.
pub(super) const MARKS_LATER: Guard = neglecting(Neglects::MarkAtOnce);
/// HOLES 13: only the newest resume is remembered.
pub(super) const ONE_CUT: Guard = neglecting(Neglects::Cuts);
/// A body past its deadline is taken for gone.
pub(super) const BODIES_UNKNOWN: Guard = neglecting(Neglects::Bodies);

impl Table for Guard {
    fn history(&self, history: &History) -> History {
        let newest = history.cuts.last().filter(|_| self.neglects == Neglects::Cuts);
        newest.map_or_else(|| history.clone(), |cut| History { cuts: vec![*cut; history.cuts.len()] })
    }

    fn may_send(&self, now: Millis, deadline: Millis) -> bool {
        self.neglects == Neglects::Deadline || Real.may_send(now, deadline)
    }

    fn no_counts(&self, begun: Millis, from: Option<Millis>) -> bool {
        let settle = LIMITS.settle_delay.as_millis() as Millis;
        let begun = if self.neglects == Neglects::SettleDelay { begun + settle } else { begun };
        Real.no_counts(begun, from)
    }

    fn on_stale(&self) -> Stale {
        self.stale
    }

    fn marks_at_completion(&self) -> bool {
        self.neglects == Neglects::TakenAsCondition
    }

    fn marks_when_taken(&self) -> bool {
        self.neglects != Neglects::MarkAtOnce
    }

    fn knows_bodies(&self) -> bool {
        self.neglects != Neglects::Bodies
    }
}
