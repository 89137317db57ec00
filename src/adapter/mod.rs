//! The guard in the types of other people's crates: thin, and the only places that know them.

#[cfg(feature = "openai")]
pub mod openai;
