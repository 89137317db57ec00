//! A suite that every store passes.
//!
//! It says nothing about what survives a crash: that takes a process to kill and a disk to cut off, and each store has
//! tests of its own for it.

/// A table of checks: what is promised, and the function that looks.
macro_rules! checks {
    ($($name:literal => $run:path,)*) => {
        &[$(Check { name: $name, run: |store| Box::pin($run(store)) }),*]
    };
}

mod basics;
mod races;
mod scans;

use std::fmt;
use std::sync::Arc;

use super::{Batch, BoxFuture, Committed, Durability, Key, Store, StoreError, Version, Versioned};

/// What a store does otherwise than it must.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{check}: {message}")]
pub struct Failure {
    check: &'static str,
    message: String,
}

impl Failure {
    /// The name of the check.
    pub fn check(&self) -> &'static str {
        self.check
    }

    /// What was expected and what happened.
    pub fn message(&self) -> &str {
        &self.message
    }
}

type Outcome = Result<(), String>;

/// A named check of a fresh store.
struct Check {
    name: &'static str,
    run: fn(Arc<dyn Store>) -> BoxFuture<'static, Outcome>,
}

/// Runs every check, each on an empty store that `open` gives. Needs a tokio runtime. Closes the stores it is given.
///
/// # Example
///
/// ```
/// use std::sync::Arc;
/// use toolonce::store::{MemoryStore, Store, conformance};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// conformance::check(async || Ok(Arc::new(MemoryStore::new()) as Arc<dyn Store>)).await
/// # })?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The first check that fails, with what was expected and what happened.
pub async fn check(open: impl AsyncFn() -> Result<Arc<dyn Store>, StoreError>) -> Result<(), Failure> {
    for Check { name, run } in basics::CHECKS.iter().chain(scans::CHECKS).chain(races::CHECKS) {
        let failure = |message| Failure { check: name, message };
        let store = open().await.map_err(|error| failure(format!("opening a fresh store failed: {error}")))?;
        run(Arc::clone(&store)).await.map_err(failure)?;
        store.close().await.map_err(|error| failure(format!("closing failed: {error}")))?;
    }
    Ok(())
}

fn key(name: impl AsRef<[u8]>) -> Key {
    Key::new([b"conformance/", name.as_ref()].concat())
}

fn put(name: &str, value: &[u8]) -> Batch {
    Batch { puts: vec![(key(name), value.to_vec())], ..Batch::default() }
}

fn put_if(name: &str, version: Option<Version>, value: &[u8]) -> Batch {
    Batch { checks: vec![(key(name), version)], ..put(name, value) }
}

fn delete(name: &str) -> Batch {
    Batch { deletes: vec![key(name)], ..Batch::default() }
}

fn text(error: StoreError) -> String {
    format!("the store failed: {error}")
}

fn same<T: PartialEq + fmt::Debug>(what: impl fmt::Display, found: T, expected: T) -> Outcome {
    ensure(found == expected, || format!("{what}: expected {expected:?}, found {found:?}"))
}

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(message()) }
}

/// Commits what must be applied.
async fn applied(store: &dyn Store, batch: Batch) -> Result<Version, String> {
    match store.commit(batch.clone(), Durability::Synced).await.map_err(text)? {
        Committed::Applied(version) => Ok(version),
        Committed::Conflict(found) => Err(format!("{batch:?} must be applied, but conflicts with {found:?}")),
    }
}

/// Commits what must conflict.
async fn conflict(store: &dyn Store, batch: Batch) -> Result<Vec<Option<Versioned>>, String> {
    match store.commit(batch.clone(), Durability::Synced).await.map_err(text)? {
        Committed::Conflict(found) => Ok(found),
        Committed::Applied(version) => Err(format!("{batch:?} must conflict, but was applied as {version:?}")),
    }
}

async fn get(store: &dyn Store, name: impl AsRef<[u8]>) -> Result<Option<Versioned>, String> {
    let found = store.get(&[key(name)]).await.map_err(text)?;
    ensure(found.len() == 1, || format!("one key was read, but {} answers came", found.len()))?;
    Ok(found.into_iter().next().flatten())
}
