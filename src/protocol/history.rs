//! Which history a run stands on: its epoch and the cuts of its resumes.

use super::record::{Slot, Turn};

/// How much of a run's turns the caller has seen when it resumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Seen {
    /// Turns up to and including this one.
    Through(Turn),
    /// No turn: the run begins anew, on the same records.
    Nothing,
}

impl Seen {
    fn keeps(self, turn: Turn) -> bool {
        match self {
            Self::Through(last) => turn <= last,
            Self::Nothing => false,
        }
    }
}

/// The epoch of a run and what each resume kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct History {
    /// One cut per resume; the number of cuts is the epoch.
    pub cuts: Vec<Seen>,
}

impl History {
    /// How often the run was resumed.
    pub fn epoch(&self) -> u32 {
        u32::try_from(self.cuts.len()).unwrap_or(u32::MAX)
    }

    /// Whether what was done in `turn` under `epoch` belongs to the present history: no later resume cut it off. One
    /// cut is not enough to know, since a resume may keep a turn number that an earlier one abandoned.
    pub fn holds(&self, epoch: u32, turn: Turn) -> bool {
        self.cuts.iter().skip(epoch as usize).all(|cut| cut.keeps(turn))
    }

    /// Whether a slot belongs to the present history.
    pub fn holds_slot(&self, slot: &Slot) -> bool {
        self.holds(slot.epoch, slot.turn)
    }
}
