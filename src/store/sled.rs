//! The sled store.

/// A store in a directory.
#[derive(Debug)]
pub struct SledStore;
/// Options.
#[derive(Debug)]
pub struct SledOptions;
