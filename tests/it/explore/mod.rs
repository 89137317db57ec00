//! Exhaustive explorers of the protocol: every order of events within bounds, each state visited once.
//!
//! - [`record`]: one record, every event in any order;
//! - [`repeat`]: the repeat rule, one process, turns, siblings, redeliveries, resumes;
//! - [`scenes`]: two processes with time, faults, look-ups and humans, on the model in [`world`];
//! - [`mutants`]: tables with one clause broken; each must make a named invariant fail;
//! - [`holes`]: short stories of single interleavings that once went wrong.
//!
//! `TOOLONCE_EXPLORE=long` widens the bounds.

mod holes;
mod mutants;
mod record;
mod repeat;
mod scenes;
mod search;
mod table;
mod world;

/// Whether the wider bounds are asked for.
fn is_long() -> bool {
    std::env::var("TOOLONCE_EXPLORE").is_ok_and(|value| value == "long")
}
