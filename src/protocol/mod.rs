//! The protocol: who may execute, what a repeat gets, what stays in doubt. Pure functions over records; no I/O, no
//! clock, no async.
//!
//! Read it in this order:
//!
//! 1. [`record`]: what is stored for a key, and [`view`](record::view), the state that follows from it;
//! 2. [`apply`](mod@apply): the events and the transition table;
//! 3. [`history`]: which turns belong to the history that a run stands on;
//! 4. [`decide`](mod@decide): the repeat rule;
//! 5. [`approval`]: permissions that a human gives;
//! 6. [`look_alike`]: calls that say the same in other words;
//! 7. [`notes`]: which places a record answered;
//! 8. [`bytes`]: the record as bytes;
//! 9. [`growth`]: what is forgotten so that a record stays small;
//! 10. [`fork`](mod@fork): what a fork has of its parent's records.
//!
//! The explorers in `tests/it/explore` try every order of events on them, and every mutant there shows that an
//! invariant is guarded.

pub mod apply;
pub mod approval;
pub mod bytes;
pub mod decide;
pub mod fork;
pub mod growth;
pub mod history;
pub mod look_alike;
pub mod notes;
pub mod record;
