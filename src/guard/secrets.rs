//! Keys and digests taken with the guard's secrets, and the row that says which ones a namespace was written with.
//!
//! A lost or rotated secret would make every key new, and everything would run again. So a namespace remembers check
//! values: a guard that doesn't know every secret it was written with, or has one where it was written without, is
//! refused before anything is claimed. The row remembers seal keys in the same way.
//!
//! # Rotation
//!
//! The first secret of a guard is for writing, the older ones are for finding. A record stays under the secret that it
//! was claimed with. On a store with several processes two of them may write with different secrets for a while; then
//! - a claim checks, in its own commit, that no other known secret has a record of the same unit of work;
//! - a claim checks that the row is still the one its process was admitted by: whoever doesn't know a secret that
//!   another process has begun to write with claims nothing any more.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use super::rows::{Prefix, Row, SecretRow};
use super::work::Work;
use crate::error::{Error, ErrorKind};
use crate::key::{self, BaseKey, Digest, Fingerprint, KeyParts, LeafDigest, Secret};
use crate::store::{Batch, Committed, Durability, Key, Store, StoreError, StoreErrorKind, Version, Versioned};

/// What check values are for.
const CHECK: &str = "toolonce secret check v1";

/// How keys and digests are taken: with a secret, or plainly where a guard has none.
#[derive(Clone, Copy)]
pub(crate) struct Keying<'a>(Option<&'a Secret>);

impl Keying<'_> {
    pub(crate) fn base_key(self, parts: &KeyParts<'_>) -> BaseKey {
        self.0.map_or_else(|| key::base_key(parts), |secret| secret.base_key(parts))
    }

    pub(crate) fn fingerprint(self, plain: Fingerprint) -> Fingerprint {
        self.0.map_or(plain, |secret| secret.fingerprint(plain))
    }

    pub(crate) fn leaf(self, key: &BaseKey, pointer: &str, value: &[u8]) -> LeafDigest {
        self.0.map_or_else(|| key.leaf(pointer, value), |secret| secret.leaf(key, pointer, value))
    }

    pub(crate) fn digest(self, domain: &str, bytes: &[u8]) -> Digest {
        self.0.map_or_else(|| key::digest(domain, bytes), |secret| secret.digest(domain, bytes))
    }
}

/// What a guard does with a secret or a seal key that its namespace wasn't written with so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unwritten {
    /// Writes it down: from then on it is needed.
    Begin,
    /// Refuses it.
    Refuse,
}

/// What a guard wants to be admitted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum For {
    Looking,
    Work,
}

/// What a guard keeps its namespaces' contents secret with.
pub(crate) struct Secrets {
    /// The first one is for writing.
    list: Vec<Secret>,
    /// Ids of the seal keys; the first one is for writing.
    seals: Vec<u64>,
    /// Whether other processes write to the store.
    shared: bool,
    unwritten: Unwritten,
    /// The row by which this guard may work in a namespace.
    admitted: Mutex<HashMap<Prefix, Option<Version>>>,
}

impl Secrets {
    pub(crate) fn new(
        mut list: Vec<Secret>,
        seals: Vec<u64>,
        shared: bool,
        unwritten: Unwritten,
    ) -> Result<Self, Error> {
        if list.iter().any(Secret::is_empty) {
            return Err(Error::new(ErrorKind::Invalid, "a secret is empty: anybody could guess it"));
        }
        // One that is given twice would be in its own way: a claim checks that no other secret has the record.
        let mut known = HashSet::new();
        list.retain(|secret| known.insert(secret.digest(CHECK, b"").0));
        Ok(Self { list, seals, shared, unwritten, admitted: Mutex::default() })
    }

    pub(crate) fn is_set(&self) -> bool {
        !self.list.is_empty()
    }

    /// How what is written is keyed.
    pub(crate) fn current(&self) -> Keying<'_> {
        Keying(self.list.first())
    }

    /// How what was written before may be keyed.
    pub(crate) fn older(&self) -> impl Iterator<Item = Keying<'_>> {
        self.list.iter().skip(1).map(|secret| Keying(Some(secret)))
    }

    /// Both.
    pub(crate) fn all(&self) -> impl Iterator<Item = Keying<'_>> {
        std::iter::once(self.current()).chain(self.older())
    }

    /// Whether `digest` is that of these bytes, under any of the secrets.
    pub(crate) fn is_digest(&self, digest: Digest, domain: &str, bytes: &[u8]) -> bool {
        self.all().any(|keying| keying.digest(domain, bytes) == digest)
    }

    /// Whether this guard may work in a namespace.
    ///
    /// # Errors
    /// [`ErrorKind::Secret`], and [`StoreErrorKind::Sealed`] if a seal key is missing.
    pub(crate) async fn admit(&self, store: &dyn Store, namespace: &str) -> Result<(), Error> {
        if self.admitted_by(Prefix::new(namespace)).is_some() {
            return Ok(());
        }
        self.verify(store, namespace, For::Work).await
    }

    /// Whether this guard may look at a namespace; one that may begin a secret or seal key begins it.
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub(crate) async fn admit_to_look(&self, store: &dyn Store, namespace: &str) -> Result<(), Error> {
        self.verify(store, namespace, For::Looking).await
    }

    /// The row by which the guard was admitted to a namespace; the inner `None` means that there was none.
    fn admitted_by(&self, prefix: Prefix) -> Option<Option<Version>> {
        self.admitted.lock().unwrap_or_else(PoisonError::into_inner).get(&prefix).copied()
    }

    async fn verify(&self, store: &dyn Store, namespace: &str, purpose: For) -> Result<(), Error> {
        let prefix = Prefix::new(namespace);
        let key = prefix.secrets();
        loop {
            let stored = store.get(std::slice::from_ref(&key)).await?.pop().flatten();
            let version = stored.as_ref().map(|stored| stored.version);
            let old = stored.map(|stored| SecretRow::read(&stored.value)).transpose()?;
            let row = match &old {
                Some(old) => self.next(old, namespace)?,
                None => self.first(store, namespace).await?,
            };
            let version = match row {
                None => version,
                Some(row) if self.unwritten == Unwritten::Refuse && row != SecretRow::default() => {
                    let unused = version.is_none() && is_empty(store, prefix).await?;
                    return match purpose {
                        // There is nothing to see. It isn't admitted: what it wrote would be under a secret unheard of.
                        For::Looking if unused => Ok(()),
                        _ => Err(not_in_use(namespace, &old.unwrap_or_default(), &row)),
                    };
                }
                Some(_) if self.unwritten == Unwritten::Refuse => version,
                Some(row) => {
                    let batch = Batch {
                        checks: vec![(key.clone(), version)],
                        puts: vec![(key.clone(), row.to_bytes())],
                        ..Batch::default()
                    };
                    match store.commit(batch, Durability::Synced).await? {
                        Committed::Applied(version) => Some(version),
                        Committed::Conflict(_) => continue,
                    }
                }
            };
            self.admitted.lock().unwrap_or_else(PoisonError::into_inner).insert(prefix, version);
            return Ok(());
        }
    }

    /// The row for a namespace that has none, if it needs one. Where nobody else writes, no row means no secret and no
    /// seal; elsewhere a row says so too, for a guard that comes with a secret at the same moment.
    async fn first(&self, store: &dyn Store, namespace: &str) -> Result<Option<SecretRow>, Error> {
        if self.is_set() && !is_empty(store, Prefix::new(namespace)).await? {
            return Err(self.written_without(namespace));
        }
        let row = SecretRow { checks: self.check(namespace).take(1).collect(), seals: self.seal().collect() };
        Ok((self.shared || row != SecretRow::default()).then_some(row))
    }

    /// What becomes of the row of a namespace, if anything does.
    fn next(&self, row: &SecretRow, namespace: &str) -> Result<Option<SecretRow>, Error> {
        let known: Vec<Digest> = self.check(namespace).collect();
        match (row.checks.is_empty(), known.is_empty()) {
            (true, false) => return Err(self.written_without(namespace)),
            (false, true) => return Err(written_with(namespace, "and the guard has none: give it that secret")),
            _ => {}
        }
        if row.checks.iter().any(|check| !known.contains(check)) {
            let what = "that the guard doesn't have: give it, with GuardBuilder::older_secret if a newer one is in use";
            return Err(written_with(namespace, what));
        }
        if row.seals.iter().any(|seal| !self.seals.contains(seal)) {
            let message = format!("namespace {namespace:?} has rows under a seal key that the guard doesn't have");
            return Err(StoreError::new(StoreErrorKind::Sealed, message).into());
        }
        let mut next = row.clone();
        next.checks.extend(known.first().filter(|check| !row.checks.contains(check)));
        next.seals.extend(self.seal().filter(|seal| !row.seals.contains(seal)));
        Ok((next != *row).then_some(next))
    }

    fn written_without(&self, namespace: &str) -> Error {
        let message = match self.unwritten {
            Unwritten::Refuse => format!("namespace {namespace:?} was written without a secret: leave the secret out"),
            Unwritten::Begin => format!(
                "namespace {namespace:?} was written without a secret, so with one nothing that was done would be \
                 found, and all of it would run again: go on without, or begin a new namespace"
            ),
        };
        Error::new(ErrorKind::Secret, message)
    }

    /// The check values of the secrets, in their order.
    fn check(&self, namespace: &str) -> impl Iterator<Item = Digest> {
        self.list.iter().map(move |secret| secret.digest(CHECK, namespace.as_bytes()))
    }

    /// The id of the seal key for writing, if there is one.
    fn seal(&self) -> impl Iterator<Item = u64> {
        self.seals.first().copied().into_iter()
    }

    /// What a claim checks beside its record.
    pub(crate) fn claim_checks(&self, work: &Work) -> Vec<(Key, Option<Version>)> {
        let prefix = work.run.prefix;
        let row = if self.shared { self.admitted_by(prefix) } else { None };
        let others = work.others.iter().map(|other| (prefix.base(&other.key), None));
        row.map(|version| (prefix.secrets(), version)).into_iter().chain(others).collect()
    }

    /// Whether the guard may go on after a claim was refused. `found` is what the store has under
    /// [`claim_checks`](Self::claim_checks).
    ///
    /// # Errors
    /// [`ErrorKind::Secret`] if another secret has the record by now, and as [`admit`](Self::admit).
    pub(crate) async fn claim_refused(
        &self,
        store: &dyn Store,
        work: &Work,
        found: &[Option<Versioned>],
    ) -> Result<(), Error> {
        let others = found.len().saturating_sub(work.others.len());
        if found[others..].iter().any(Option::is_some) {
            return Err(Error::new(
                ErrorKind::Secret,
                "an equal call was begun under another secret at this moment, so nothing was started for this one. \
                 Calling again with the same arguments is safe.",
            ));
        }
        let seen = self.admitted_by(work.run.prefix);
        match found[..others].first() {
            Some(row) if seen != Some(row.as_ref().map(|row| row.version)) => {
                self.verify(store, &work.run.namespace, For::Work).await
            }
            _ => Ok(()),
        }
    }

    /// Goes on under the secret that the record of a call was claimed with.
    pub(crate) async fn find(&self, store: &dyn Store, work: &mut Work) -> Result<(), StoreError> {
        if work.others.is_empty() {
            return Ok(());
        }
        let prefix = work.run.prefix;
        let keys: Vec<Key> = std::iter::once(work.key)
            .chain(work.others.iter().map(|other| other.key))
            .map(|key| prefix.base(&key))
            .collect();
        let found = store.get(&keys).await?;
        match found.iter().position(Option::is_some) {
            None | Some(0) => {}
            Some(n) => work.go_on_under(n - 1),
        }
        Ok(())
    }
}

async fn is_empty(store: &dyn Store, prefix: Prefix) -> Result<bool, StoreError> {
    Ok(store.scan(&prefix.all(), None, 1).await?.items.is_empty())
}

/// The error for a guard that would begin what `new` has and `old` hasn't.
fn not_in_use(namespace: &str, old: &SecretRow, new: &SecretRow) -> Error {
    let message = if new.seals == old.seals {
        format!("namespace {namespace:?} isn't written with the secret that is given first: give the one in use first")
    } else if old.seals.is_empty() {
        format!("namespace {namespace:?} isn't sealed: leave the seal key out")
    } else {
        format!("namespace {namespace:?} isn't sealed with the key that is given first: give the one in use first")
    };
    Error::new(ErrorKind::Secret, message)
}

fn written_with(namespace: &str, what: &str) -> Error {
    let message = format!(
        "namespace {namespace:?} was written with a secret {what}. Without it nothing that was done would be found, \
         and all of it would run again"
    );
    Error::new(ErrorKind::Secret, message)
}
