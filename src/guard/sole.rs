//! One guard on a store that a single process writes: it takes every other owner of a claim for dead.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, ErrorKind};
use crate::store::Store;

/// An opened store: its id and incarnation.
type Opened = ([u8; 16], u64);

/// The opened stores of this process that have a guard.
static GUARDED: Mutex<BTreeSet<Opened>> = Mutex::new(BTreeSet::new());

/// The right to be the only guard on an opened store; given up when it is dropped.
#[derive(Debug)]
pub(crate) struct Sole {
    opened: Mutex<Option<Opened>>,
}

impl Sole {
    /// Takes the right. A store that is made for several guards needs none.
    pub(crate) fn of(store: &dyn Store) -> Result<Self, Error> {
        if !store.is_exclusive() {
            return Ok(Self { opened: Mutex::new(None) });
        }
        let identity = store.identity();
        let opened = (identity.store, identity.incarnation);
        if GUARDED.lock().unwrap_or_else(PoisonError::into_inner).insert(opened) {
            return Ok(Self { opened: Mutex::new(Some(opened)) });
        }
        Err(Error::new(
            ErrorKind::Invalid,
            "this store has a guard already, and a second one would take its claims for those of a dead process: clone \
             the first, or use Guard::with_namespace",
        ))
    }

    /// Gives the right up.
    pub(crate) fn release(&self) {
        // Once: by now it may be another guard's.
        if let Some(opened) = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take() {
            GUARDED.lock().unwrap_or_else(PoisonError::into_inner).remove(&opened);
        }
    }
}

impl Drop for Sole {
    fn drop(&mut self) {
        self.release();
    }
}
