//! The command, run as a person would, on stores that the library made.

mod bench;
mod documented;
mod looking;
mod opening;
mod settling;
