//! Scans that are longer than one page.

use super::Inner;
use crate::store::{Key, StoreError, Versioned};

/// How many rows are read at a time: of the longest they take some four megabytes.
const LENGTH: usize = 64;

/// The pages of a scan. What changes meanwhile may be in it or not.
pub(super) struct Pages {
    start: Vec<u8>,
    from: Option<Key>,
    ended: bool,
}

impl Pages {
    /// All rows whose keys start so.
    pub(super) fn of(start: Vec<u8>) -> Self {
        Self { start, from: None, ended: false }
    }

    /// Those of them from a key on.
    pub(super) fn from(start: Vec<u8>, from: Key) -> Self {
        Self { from: Some(from), ..Self::of(start) }
    }

    /// The next page; `None` after the last.
    pub(super) async fn next(&mut self, inner: &Inner) -> Result<Option<Vec<(Key, Versioned)>>, StoreError> {
        if self.ended {
            return Ok(None);
        }
        let page = inner.records.store().scan(&self.start, self.from.take(), LENGTH).await?;
        self.ended = page.next.is_none();
        self.from = page.next;
        Ok(Some(page.items))
    }
}
