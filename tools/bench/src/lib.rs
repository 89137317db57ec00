//! `cargo measure`: what the guard costs, in units of what the disk can do.
//!
//! Absolute times of durable calls mean little: on one machine a sync may take 60 µs now and 3.5 ms a minute later. So
//! every durable figure is a ratio to a plain append + `fdatasync` ([`disk`]) in the same directory, done by turns with
//! it. [`figures`] has what is measured, [`table`] and [`chart`] how it is shown.

pub mod chart;
pub mod counted;
pub mod disk;
pub mod figures;
pub mod fill;
pub mod machine;
pub mod stage;
pub mod stats;
pub mod table;
