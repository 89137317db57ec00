//! Makes AI agents' tool calls safe to retry.
#![forbid(unsafe_code)]

pub mod canonical;
mod clock;
pub mod key;
pub mod protocol;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;

pub use self::clock::{Clock, Millis, SystemClock};
