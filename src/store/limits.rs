//! What every store of this library refuses to take, so that a batch fits one store exactly if it fits all of them.

use std::collections::HashSet;

use super::{Batch, Key, StoreError, StoreErrorKind};

/// The longest value a store must take, in bytes: a piece of 60 KiB and 1 KiB for the header in front of it.
///
/// The guard cuts longer values up. Larger ones would leave sled's log for files of their own, which it never syncs.
pub const MAX_VALUE: usize = 64 * 1024 + 1024;

/// Refuses a batch that some store couldn't take.
pub(super) fn check(batch: &Batch) -> Result<(), StoreError> {
    let checked = batch.checks.iter().map(|(key, _)| key);
    let written = || batch.puts.iter().map(|(key, _)| key).chain(&batch.deletes);
    if let Some(key) = checked.chain(written()).find(|key| key.as_bytes().len() > Key::MAX) {
        let length = key.as_bytes().len();
        return Err(refused(format!("a key of {length} bytes is longer than the store's {} bytes", Key::MAX)));
    }
    if let Some((key, value)) = batch.puts.iter().find(|(_, value)| value.len() > MAX_VALUE) {
        let length = value.len();
        return Err(refused(format!("a value of {length} bytes is longer than {MAX_VALUE}: cut it up ({key:?})")));
    }
    let mut seen = HashSet::new();
    match written().find(|key| !seen.insert(*key)) {
        Some(key) => Err(refused(format!("a batch may change a key only once, but names one twice ({key:?})"))),
        None => Ok(()),
    }
}

fn refused(message: String) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, message)
}
