//! The flight of equal calls, as it is and with single lines changed, on shuttle's primitives.

/// What the flight needs to know of keys.
pub mod key {
    /// Stands for a base key.
    pub type BaseKey = u8;
    /// Stands for a fingerprint.
    pub type Fingerprint = u8;
}

/// What the flight needs to know of the protocol.
pub mod protocol {
    /// What the flight needs to know of records.
    pub mod record {
        /// Stands for a failure.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Failure;
    }
}

/// The primitives in the place of the standard library's.
mod sync {
    pub(crate) use shuttle::sync::{Arc, Mutex, MutexGuard};
    pub(crate) use std::sync::PoisonError;
}

/// The flight from `build.rs`, and what must hold of it.
macro_rules! flights {
    ($($name:ident),*) => {$(
        /// See `build.rs`.
        pub mod $name {
            use super::sync;

            mod flight {
                include!(concat!(env!("OUT_DIR"), "/", stringify!($name), ".rs"));
            }

            include!("checks.rs");
        }
    )*};
}
flights!(as_it_is, wakes_first, looks_then_enters, tells_nobody_of_its_end, leaves_its_place_taken, lets_two_lead);
