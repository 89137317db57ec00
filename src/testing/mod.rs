//! For tests of programs built on the guard: a clock moved by hand and a store that fails on demand.
//!
//! [`MemoryStore::crash`](crate::store::MemoryStore::crash), `reopen`, and `SledStore::abandon` and `fail_syncs` come
//! with this feature too.

mod clock;
mod faulty;

pub use self::clock::ManualClock;
pub use self::faulty::{FaultKind, FaultOn, FaultyStore};
