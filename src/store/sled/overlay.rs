//! What was committed and isn't in sled yet: in memory, in front of it.
//!
//! A change goes from the active map to the sealed one, from there into sled, and leaves the sealed map only after that.
//! So who looks here first and into sled afterwards misses nothing.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::super::{Key, Version, Versioned};

/// What the newest commit left under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    /// The commit's number, which is the version of what it put.
    pub(super) sequence: u64,
    /// What it put; `None` if it removed the key.
    pub(super) value: Option<Vec<u8>>,
}

impl Change {
    /// The version under the key from now on, if there is one.
    pub(super) fn version(&self) -> Option<Version> {
        self.value.as_ref().map(|_| Version(self.sequence))
    }

    /// What a reader finds.
    pub(super) fn into_versioned(self) -> Option<Versioned> {
        self.value.map(|value| Versioned { version: Version(self.sequence), value })
    }
}

/// Changes by key.
pub(super) type Changes = BTreeMap<Key, Change>;

/// The changes that aren't in sled yet.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    maps: RwLock<Maps>,
}

#[derive(Debug, Default)]
struct Maps {
    active: Changes,
    /// Those that are on their way into sled.
    sealed: Arc<Changes>,
}

impl Maps {
    fn get(&self, key: &Key) -> Option<&Change> {
        self.active.get(key).or_else(|| self.sealed.get(key))
    }
}

impl Overlay {
    /// The newest change of `key`; `None` if sled knows better.
    pub(super) fn get(&self, key: &Key) -> Option<Change> {
        self.read().get(key).cloned()
    }

    /// The newest changes of all `keys`; `None` if sled must be asked about one of them.
    pub(super) fn get_all(&self, keys: &[Key]) -> Option<Vec<Change>> {
        let maps = self.read();
        keys.iter().map(|key| maps.get(key).cloned()).collect()
    }

    /// The version that `key` has now: inside `None` if it is absent, outside if sled must be asked.
    pub(super) fn version(&self, key: &Key) -> Option<Option<Version>> {
        self.read().get(key).map(Change::version)
    }

    /// The changes of keys with `prefix` from `from` on: of the first `limit` keys that are there and of those removed
    /// among them.
    pub(super) fn range(&self, prefix: &[u8], from: &Key, limit: usize) -> Changes {
        let maps = self.read();
        let start = (Bound::Included(from), Bound::Unbounded);
        let within = |(key, _): &(&Key, &Change)| key.as_bytes().starts_with(prefix);
        let (mut active, mut sealed) = (
            maps.active.range::<Key, _>(start).take_while(within).peekable(),
            maps.sealed.range::<Key, _>(start).take_while(within).peekable(),
        );
        let (mut found, mut there) = (Changes::new(), 0);
        while there < limit {
            let newer = match (active.peek(), sealed.peek()) {
                (None, None) => break,
                (Some((one, _)), Some((other, _))) => one.cmp(other).is_le(),
                (one, _) => one.is_some(),
            };
            let Some((key, change)) = (if newer { active.next() } else { sealed.next() }) else { break };
            sealed.next_if(|(older, _)| *older == key);
            there += usize::from(change.value.is_some());
            found.insert(key.clone(), change.clone());
        }
        found
    }

    /// Takes the changes of one commit in.
    pub(super) fn extend(&self, changes: impl IntoIterator<Item = (Key, Change)>) {
        self.write().active.extend(changes);
    }

    /// Sets all changes so far apart for sled. Not before the last sealed ones are [in it](Self::drop_sealed).
    pub(super) fn seal(&self) {
        let mut maps = self.write();
        debug_assert!(maps.sealed.is_empty(), "sealed before sled has the last ones");
        maps.sealed = Arc::new(std::mem::take(&mut maps.active));
    }

    /// What is set apart.
    pub(super) fn sealed(&self) -> Arc<Changes> {
        Arc::clone(&self.read().sealed)
    }

    /// Forgets the sealed changes: sled has them.
    pub(super) fn drop_sealed(&self) {
        let sealed = std::mem::take(&mut self.write().sealed);
        drop(sealed); // Thousands of rows: nobody waits for the lock meanwhile.
    }

    fn read(&self) -> RwLockReadGuard<'_, Maps> {
        self.maps.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Maps> {
        self.maps.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(sequence: u64) -> Change {
        Change { sequence, value: Some(vec![1]) }
    }

    fn key(name: &str) -> Key {
        Key::new(name.as_bytes())
    }

    /// "a1" sealed, "a2" sealed and removed since, "a3" in both, "a4" active, "b" elsewhere.
    fn overlay() -> Overlay {
        let overlay = Overlay::default();
        overlay.extend(["a1", "a2", "a3"].map(|name| (key(name), put(1))));
        overlay.seal();
        overlay.extend([(key("a2"), Change { sequence: 2, value: None })]);
        overlay.extend(["a3", "a4", "b"].map(|name| (key(name), put(3))));
        overlay
    }

    #[test]
    fn the_newer_change_counts() {
        let overlay = overlay();
        let versions = ["a1", "a2", "a3", "c"].map(|name| overlay.version(&key(name)));
        assert_eq!(versions, [Some(Some(Version(1))), Some(None), Some(Some(Version(3))), None]);
        assert_eq!(overlay.get_all(&[key("a1"), key("c")]), None);
        overlay.drop_sealed();
        assert_eq!(overlay.version(&key("a1")), None);
        assert_eq!(overlay.version(&key("a2")), Some(None));
    }

    #[test]
    fn a_range_ends_with_its_prefix_or_with_enough_that_are_there() {
        let overlay = overlay();
        let range = |from: &str, limit| {
            let found = overlay.range(b"a", &key(from), limit);
            found
                .into_iter()
                .map(|(key, change)| (String::from_utf8_lossy(key.as_bytes()).into(), change.sequence))
                .collect::<Vec<(String, u64)>>()
        };
        let all = [("a1", 1), ("a2", 2), ("a3", 3), ("a4", 3)].map(|(name, at)| (name.to_owned(), at));
        assert_eq!(range("a", 10), all);
        assert_eq!(range("a2", 10), all[1..]);
        assert_eq!(range("a", 2), all[..3]);
    }
}
