//! Exhaustive explorers of the protocol: every order of events within bounds, each state visited once.
//!
//! - [`record`]: one record, every event in any order;
//! - [`repeat`]: the repeat rule, one process, turns, siblings, redeliveries, resumes;
//! - [`scenes`]: two and three processes with time, faults, look-ups and humans, on the model in [`world`];
//! - [`permissions`], [`again`], [`reopened`], [`look_alikes`], [`reads`]: what the rest of the contract adds;
//! - [`parts`]: what a call, its claim and its end are where nothing else is said;
//! - [`mutants`]: tables with one clause broken; each must make a named invariant fail;
//! - [`holes`]: short stories of single interleavings that once went wrong.
//!
//! `TOOLONCE_EXPLORE=long` widens the bounds.

mod again;
mod holes;
mod look_alikes;
mod mutants;
mod parts;
mod permissions;
mod reads;
mod record;
mod reopened;
mod repeat;
mod scenes;
mod search;
mod table;
mod world;

/// Whether the wider bounds are asked for.
fn is_long() -> bool {
    std::env::var("TOOLONCE_EXPLORE").is_ok_and(|value| value == "long")
}
