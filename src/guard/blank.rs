//! Rows beside a record that a claim needn't look for: of a run that was begun in this process, on a store to which nobody
//! else writes, what no claim has put isn't there.
//!
//! It is a hint. Whatever is done because of it is a commit that checks that the row is absent, so that a wrong one costs a
//! round and nothing else. The record itself is always looked for: nothing begins while the store can't be read.

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::sync::{Mutex, PoisonError};

use crate::store::Key;

/// Of so many rows of one run it is remembered that they may be there; beyond that the store is asked.
const MOST: usize = 65_536;

/// What is known of the rows of a run that was begun here.
#[derive(Debug)]
pub(crate) struct Blank {
    /// Hashes of the keys of all such rows that may be there; `None` once there were too many.
    put: Mutex<Option<HashSet<u64>>>,
}

impl Blank {
    /// Nothing is known.
    pub(crate) fn unknown() -> Self {
        Self { put: Mutex::new(None) }
    }

    /// There is no such row of the run yet.
    pub(crate) fn all() -> Self {
        Self { put: Mutex::new(Some(HashSet::new())) }
    }

    /// Whether the row is known not to be there.
    pub(crate) fn is_absent(&self, key: &Key) -> bool {
        let put = self.put.lock().unwrap_or_else(PoisonError::into_inner);
        put.as_ref().is_some_and(|put| !put.contains(&put.hasher().hash_one(key)))
    }

    /// These rows are about to be put.
    pub(crate) fn put<'a>(&self, keys: impl Iterator<Item = &'a Key>) {
        let mut put = self.put.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = put.as_mut() else { return };
        let hasher = known.hasher().clone();
        known.extend(keys.map(|key| hasher.hash_one(key)));
        if known.len() > MOST {
            *put = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> Key {
        Key::new(n.to_be_bytes())
    }

    #[test]
    fn what_was_put_or_may_have_been_is_looked_for() {
        let blank = Blank::all();
        assert!(blank.is_absent(&key(1)));
        blank.put([key(1)].iter());
        assert!(!blank.is_absent(&key(1)) && blank.is_absent(&key(2)));
        let many: Vec<Key> = (0..=MOST).map(key).collect();
        blank.put(many.iter());
        assert!(!blank.is_absent(&key(MOST + 1)), "what is beyond the bound isn't known");
        assert!(!Blank::unknown().is_absent(&key(1)));
    }
}
