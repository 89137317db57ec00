//! What the models wanted: counted from the recording and the table of policies, without asking the guard.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::corpus::Recorded;
use crate::policies::{Again, Policies};
use crate::reading::Meaning;
use crate::world::World;

/// The intended effects of one run.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    intended: HashMap<Meaning, usize>,
}

impl Wishes {
    /// Takes note of the calls of a turn before they are made. Gives the number of new intended effects.
    pub(crate) fn note(&mut self, run: &str, calls: &[Recorded], policies: &Policies, world: &World) -> usize {
        let mut of_turn = HashSet::new();
        let mut new = 0;
        for call in calls.iter().filter(|call| call.kind.is_effect() && !call.fails) {
            let Some(meaning) = &call.meaning else { continue };
            let intended = self.intended.entry(meaning.clone()).or_default();
            let again = *intended == 0
                || policies.of(&call.tool, call.kind).repeat == Again::Each
                || !of_turn.contains(meaning) && is_reopened(run, call, policies, world);
            if again {
                *intended += 1;
                new += 1;
                of_turn.insert(meaning);
            }
        }
        new
    }

    /// Takes what happened for what was wanted: a difference is counted in the turn that made it, not again later.
    pub(crate) fn settle(&mut self, meaning: &Meaning, happened: usize) {
        self.intended.insert(meaning.clone(), happened);
    }

    /// The meanings of these calls with the number of effects that must be there.
    pub(crate) fn of<'a>(&self, calls: &'a [Recorded]) -> BTreeMap<&'a Meaning, usize> {
        let effects = calls.iter().filter(|call| call.kind.is_effect());
        let meanings = effects.filter_map(|call| call.meaning.as_ref());
        meanings.map(|meaning| (meaning, self.intended.get(meaning).copied().unwrap_or(0))).collect()
    }
}

/// Whether a tool that reopens this one had an effect in an earlier turn, after the latest of this meaning.
pub(crate) fn is_reopened(run: &str, call: &Recorded, policies: &Policies, world: &World) -> bool {
    let by = &policies.of(&call.tool, call.kind).reopened_by;
    if by.is_empty() {
        return false;
    }
    let latest = world.latest(run, |entry| Some(&entry.meaning) == call.meaning.as_ref());
    let reopening = world.latest(run, |entry| by.contains(&entry.tool));
    reopening > latest
}
