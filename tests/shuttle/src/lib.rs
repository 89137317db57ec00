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

/// The names of the mutants.
pub const MUTANTS: [&str; 5] =
    ["wakes_first", "looks_then_enters", "tells_nobody_of_its_end", "leaves_its_place_taken", "lets_two_lead"];

/// Tries so many orders of three races: at random and by priorities, the same ones each time from a seed, or others.
#[macro_export]
macro_rules! try_orders {
    ($flight:ident, $orders:expr, $seed:expr) => {{
        use $crate::$flight::Leads::{Dies, Leaves, Records};
        let scenes: [&'static [_]; 3] = [
            &[Records, Records, Records, Records],
            &[Leaves, Records, Leaves, Records],
            &[Dies, Records, Dies, Leaves],
        ];
        let seed: Option<u64> = $seed;
        for ways in scenes {
            match seed {
                None => {
                    shuttle::check_random(move || $crate::$flight::race(ways), $orders);
                    shuttle::check_pct(move || $crate::$flight::race(ways), $orders, 3);
                }
                Some(seed) => {
                    use shuttle::scheduler::{PctScheduler, RandomScheduler};
                    let random = RandomScheduler::new_from_seed(seed, $orders);
                    shuttle::Runner::new(random, Default::default()).run(move || $crate::$flight::race(ways));
                    let pct = PctScheduler::new_from_seed(seed, 3, $orders);
                    shuttle::Runner::new(pct, Default::default()).run(move || $crate::$flight::race(ways));
                }
            }
        }
    }};
}
