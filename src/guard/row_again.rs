//! For `tests/fuzz`: the rows that aren't base records.

use super::rows::{
    ContractRow, GlobalUnit, LookAlikes, Manifest, Reopening, RunLog, RunRow, RunUnit, SecretRow, StepRow,
};
use crate::codec::Field;

type Again = fn(&[u8]) -> Option<Vec<u8>>;

fn again<T: Field>(mut payload: &[u8]) -> Option<Vec<u8>> {
    let row = T::take(&mut payload).ok().filter(|_| payload.is_empty())?;
    let mut written = Vec::new();
    row.put(&mut written);
    Some(written)
}

/// What the payload of a row of the `kind` is when it was read and written again; `None` if it can't be read.
pub fn row_again(kind: u8, payload: &[u8]) -> Option<Vec<u8>> {
    const KINDS: [Again; 10] = [
        again::<SecretRow>,
        again::<RunRow>,
        again::<RunLog>,
        again::<Manifest>,
        again::<ContractRow>,
        again::<LookAlikes>,
        again::<Reopening>,
        again::<StepRow>,
        again::<RunUnit>,
        again::<GlobalUnit>,
    ];
    KINDS[usize::from(kind) % KINDS.len()](payload)
}
