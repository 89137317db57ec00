//! Sealing: everything a guard stores is encrypted and authenticated, row by row.
//!
//! ```text
//! marker    1 byte    0x53
//! key id    8 bytes   of the key's digest, big endian
//! nonce     24 bytes  random
//! sealed    n bytes   XChaCha20-Poly1305 of the row, with its 16 bytes of tag
//! ```
//!
//! The associated data is the marker, the key id and the row's whole key in the store, which names the kind of row, the
//! base key and, of a piece of a result, occurrence, fence and number: a row that was put in another one's place
//! doesn't open. Results are compressed before they are cut and sealed. Keys of rows and their order are not hidden, nor
//! is the length of values; and who can write to the store can put back what a row was before. Empty values, which say
//! all by being there, stay empty.
//!
//! Sealing is a layer between guard and store, so whatever rows the guard learns to write are sealed as well.

use std::fmt;
use std::sync::Arc;

use chacha20poly1305::aead::{Aead as _, Generate as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

use crate::codec::SEALED;
use crate::key::digest;
use crate::store::{
    Batch, BoxFuture, Committed, Durability, Identity, Key, Page, Store, StoreError, StoreErrorKind, Versioned,
};

const ID: usize = 8;
const NONCE: usize = 24;

/// The keys that rows are sealed with: one for writing, and older ones for reading. See
/// [`GuardBuilder::seal`](crate::GuardBuilder::seal).
///
/// ```
/// use toolonce::{Guard, SealKeys};
/// use toolonce::store::MemoryStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), toolonce::Error> {
/// let key = [7; 32]; // 32 random bytes from the program's vault
/// let guard = Guard::builder(MemoryStore::new(), "shop").seal(SealKeys::new(key)).build().await?;
/// # let _ = guard;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct SealKeys {
    keys: Vec<SealKey>,
    only_sealed: bool,
}

#[derive(Clone)]
struct SealKey {
    id: u64,
    cipher: XChaCha20Poly1305,
}

impl SealKeys {
    /// Seals with this key: 32 random bytes, not a password.
    pub fn new(key: [u8; 32]) -> Self {
        Self { keys: vec![SealKey::new(key)], only_sealed: false }
    }

    /// Also opens what was sealed with this key. An older key must stay as long as there is a row that was sealed with
    /// it: rows aren't sealed anew.
    pub fn older(mut self, key: [u8; 32]) -> Self {
        self.keys.push(SealKey::new(key));
        self
    }

    /// Refuses rows that aren't sealed. Without this they are read as they are, so that a store can be given a key
    /// later; but then who can write to the store can put forged rows into it.
    pub fn only_sealed(mut self) -> Self {
        self.only_sealed = true;
        self
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = u64> {
        self.keys.iter().map(|key| key.id)
    }

    fn seal(&self, key: &Key, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        let Some(seal) = self.keys.first().filter(|_| !value.is_empty()) else { return Ok(Vec::new()) };
        let nonce = XNonce::try_generate().map_err(|error| {
            StoreError::new(StoreErrorKind::Unavailable, format!("the system gives no random numbers: {error}"))
        })?;
        let mut out = Vec::with_capacity(1 + ID + NONCE + value.len() + 16);
        out.push(SEALED);
        out.extend_from_slice(&seal.id.to_be_bytes());
        let aad = [&out[..], key.as_bytes()].concat();
        let sealed = seal.cipher.encrypt(&nonce, Payload { msg: value, aad: &aad });
        let sealed = sealed
            .map_err(|_| StoreError::new(StoreErrorKind::Unavailable, "a row is too long to be sealed".to_owned()))?;
        out.extend_from_slice(&nonce);
        out.extend_from_slice(&sealed);
        Ok(out)
    }

    fn open(&self, key: &Key, value: Vec<u8>) -> Result<Vec<u8>, StoreError> {
        match value.first() {
            Some(&SEALED) => {}
            Some(_) if self.only_sealed => {
                let message = "a row isn't sealed, and only sealed ones may be read: SealKeys::only_sealed";
                return Err(StoreError::new(StoreErrorKind::Sealed, message));
            }
            _ => return Ok(value),
        }
        let damaged = || StoreError::new(StoreErrorKind::Corrupt, "a sealed row was changed after it was written");
        let (head, rest) = value.split_at_checked(1 + ID).ok_or_else(damaged)?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE>().ok_or_else(damaged)?;
        let seal = self.keys.iter().find(|seal| seal.id.to_be_bytes() == head[1..]).ok_or_else(|| {
            StoreError::new(StoreErrorKind::Sealed, "a row was sealed with a key that the guard doesn't have")
        })?;
        let aad = [head, key.as_bytes()].concat();
        seal.cipher.decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad: &aad }).map_err(|_| damaged())
    }

    fn open_row(&self, key: &Key, row: Versioned) -> Result<Versioned, StoreError> {
        Ok(Versioned { version: row.version, value: self.open(key, row.value)? })
    }

    fn open_rows(
        &self,
        keys: impl Iterator<Item = Key>,
        rows: Vec<Option<Versioned>>,
    ) -> Result<Vec<Option<Versioned>>, StoreError> {
        keys.zip(rows).map(|(key, row)| row.map(|row| self.open_row(&key, row)).transpose()).collect()
    }
}

impl SealKey {
    fn new(key: [u8; 32]) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = digest("toolonce seal key", &key).0;
        Self { id: u64::from_be_bytes([a, b, c, d, e, f, g, h]), cipher: XChaCha20Poly1305::new(&key.into()) }
    }
}

impl fmt::Debug for SealKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealKeys").field("keys", &self.keys.len()).field("only_sealed", &self.only_sealed).finish()
    }
}

/// A store whose values are sealed.
pub(crate) struct SealedStore {
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) keys: SealKeys,
}

impl Store for SealedStore {
    fn get<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Versioned>>, StoreError>> {
        Box::pin(async move { self.keys.open_rows(keys.iter().cloned(), self.inner.get(keys).await?) })
    }

    fn commit(&self, mut batch: Batch, durability: Durability) -> BoxFuture<'_, Result<Committed, StoreError>> {
        Box::pin(async move {
            for (key, value) in &mut batch.puts {
                *value = self.keys.seal(key, value)?;
            }
            let checked: Vec<Key> = batch.checks.iter().map(|(key, _)| key.clone()).collect();
            Ok(match self.inner.commit(batch, durability).await? {
                Committed::Conflict(found) => Committed::Conflict(self.keys.open_rows(checked.into_iter(), found)?),
                applied => applied,
            })
        })
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a [u8],
        from: Option<Key>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page, StoreError>> {
        Box::pin(async move {
            let Page { items, next } = self.inner.scan(prefix, from, limit).await?;
            let open = |(key, row)| self.keys.open_row(&key, row).map(|row| (key, row));
            Ok(Page { items: items.into_iter().map(open).collect::<Result<_, _>>()?, next })
        })
    }

    fn identity(&self) -> Identity {
        self.inner.identity()
    }

    fn is_exclusive(&self) -> bool {
        self.inner.is_exclusive()
    }

    fn changed<'a>(&'a self, keys: &'a [Key]) -> Option<BoxFuture<'a, ()>> {
        self.inner.changed(keys)
    }

    fn now(&self) -> Option<BoxFuture<'_, Result<u64, StoreError>>> {
        self.inner.now()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = {
        let mut key = [0; 32];
        let mut at = 0;
        while at < 32 {
            key[at] = at as u8;
            at += 1;
        }
        key
    };

    /// Sealed by another program, from the layout above and RFC 8439. Append-only, as `tests/golden`.
    const GOLDEN: [u8; 54] = [
        0x53, 0xdc, 0xda, 0x39, 0x6c, 0x6c, 0x80, 0x7f, 0x91, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x6b, 0x6c,
        0x6d, 0x6e, 0x6f, 0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7a, 0x7b, 0x1d, 0x53, 0x8b,
        0xdf, 0x88, 0xfc, 0x88, 0x25, 0xa3, 0xdb, 0xbd, 0xd9, 0xbf, 0xca, 0xd6, 0x4c, 0x88, 0x7f, 0x68, 0x9d, 0xdc,
    ];

    fn place(name: &str) -> Key {
        Key::new(name.as_bytes())
    }

    #[test]
    fn the_sealed_form_is_a_storage_format() {
        let keys = SealKeys::new(KEY);
        assert_eq!(keys.open(&place("where it is"), GOLDEN.to_vec()).unwrap(), b"a row");
    }

    #[test]
    fn what_was_sealed_opens_in_its_place_only_and_only_as_it_was() {
        let (keys, here) = (SealKeys::new(KEY), place("here"));
        let sealed = keys.seal(&here, b"a row").unwrap();
        assert_ne!(sealed, keys.seal(&here, b"a row").unwrap(), "equal rows look different");
        assert_eq!(SealKeys::new([9; 32]).older(KEY).open(&here, sealed.clone()).unwrap(), b"a row");
        let kind = |keys: &SealKeys, key: &Key, value: &[u8]| keys.open(key, value.to_vec()).unwrap_err().kind();
        assert_eq!(kind(&keys, &place("there"), &sealed), StoreErrorKind::Corrupt);
        assert_eq!(kind(&SealKeys::new([9; 32]), &here, &sealed), StoreErrorKind::Sealed);
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            // Without its marker it is no sealed value: whoever seals from the start says so.
            let opened = keys.clone().only_sealed().open(&here, changed);
            assert!(opened.is_err(), "byte {at}");
            assert!(keys.open(&here, sealed[..at].to_vec()).is_err() || at == 0, "cut at {at}");
        }
    }

    #[test]
    fn plain_values_stay_readable_unless_that_is_ruled_out() {
        let (keys, here) = (SealKeys::new(KEY), place("here"));
        assert_eq!(keys.open(&here, b"\x01plain".to_vec()).unwrap(), b"\x01plain");
        assert!(keys.seal(&here, b"").unwrap().is_empty());
        let strict = keys.only_sealed();
        assert_eq!(strict.open(&here, b"\x01plain".to_vec()).unwrap_err().kind(), StoreErrorKind::Sealed);
        assert!(strict.open(&here, Vec::new()).unwrap().is_empty());
    }
}
