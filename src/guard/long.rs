//! Rows that may be longer than one value of the store: cut into pieces beside a head.
//!
//! ```text
//! head   0 ‖ the row                                       a short row
//!        1 ‖ number of pieces (4, big endian)              a long one
//! piece  under the head's key ‖ n (4, big endian)         0 ‖ its bytes
//! ```
//!
//! Pieces of results have the same form. The leading byte tells them from sealed values.

use crate::codec::{BytesError, SEALED};
use crate::error::unreadable;
use crate::store::{Key, Store, StoreError, StoreErrorKind, Version};

/// Length of one piece.
pub(crate) const PIECE: usize = 60 * 1024;
/// How many pieces are read at a time: their number may be damaged, and must not be allocated for.
const AT_A_TIME: usize = 1024;

/// Adds what has to be put for `row` under `key`.
pub(crate) fn put(key: &Key, row: &[u8], puts: &mut Vec<(Key, Vec<u8>)>) {
    if row.len() <= PIECE {
        puts.push((key.clone(), [&[0], row].concat()));
        return;
    }
    let pieces = row.chunks(PIECE).zip(0u32..);
    puts.extend(pieces.map(|(bytes, n)| (key_of_piece(key, n), piece(bytes))));
    let count = u32::try_from(row.len().div_ceil(PIECE)).unwrap_or(u32::MAX);
    puts.push((key.clone(), [&[1][..], &count.to_be_bytes()].concat()));
}

/// The row under `key` and the version of its head.
pub(crate) async fn get(store: &dyn Store, key: &Key) -> Result<Option<(Version, Vec<u8>)>, StoreError> {
    let Some(head) = store.get(std::slice::from_ref(key)).await?.pop().flatten() else { return Ok(None) };
    let row = match head.value.split_first() {
        Some((0, row)) => row.to_vec(),
        Some((1, count)) => whole(store, key, count).await?,
        Some((&SEALED, _)) => return Err(sealed()),
        _ => return Err(damaged("a row has no known form")),
    };
    Ok(Some((head.version, row)))
}

async fn whole(store: &dyn Store, key: &Key, count: &[u8]) -> Result<Vec<u8>, StoreError> {
    let count = count.try_into().map_err(|_| damaged("a row doesn't say how long it is"))?;
    let count = u32::from_be_bytes(count);
    let pieces = pieces(store, count, |n| key_of_piece(key, n)).await?;
    if pieces.len() != count as usize {
        return Err(damaged("a piece of a row is lost"));
    }
    join(pieces.iter().map(|piece| &piece[..]))
}

/// The values of so many pieces, or of those before the first that is lost.
pub(crate) async fn pieces(
    store: &dyn Store,
    count: u32,
    key: impl Fn(u32) -> Key,
) -> Result<Vec<Vec<u8>>, StoreError> {
    let (mut pieces, mut numbers) = (Vec::new(), 0..count);
    loop {
        let keys: Vec<Key> = numbers.by_ref().take(AT_A_TIME).map(&key).collect();
        if keys.is_empty() {
            return Ok(pieces);
        }
        for piece in store.get(&keys).await? {
            let Some(piece) = piece else { return Ok(pieces) };
            pieces.push(piece.value);
        }
    }
}

/// One piece as it is stored.
pub(crate) fn piece(bytes: &[u8]) -> Vec<u8> {
    [&[0], bytes].concat()
}

/// What the pieces hold.
pub(crate) fn join<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<Vec<u8>, StoreError> {
    let mut whole = Vec::new();
    for piece in pieces {
        match piece.split_first() {
            Some((0, bytes)) => whole.extend_from_slice(bytes),
            Some((&SEALED, _)) => return Err(sealed()),
            _ => return Err(damaged("a piece has no known form")),
        }
    }
    Ok(whole)
}

fn sealed() -> StoreError {
    StoreError::new(unreadable(&BytesError::Sealed), BytesError::Sealed.to_string())
}

fn key_of_piece(key: &Key, n: u32) -> Key {
    Key::new([key.as_bytes(), &n.to_be_bytes()].concat())
}

fn damaged(what: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, format!("{what}: the store is damaged"))
}
