//! The memory store.

/// A store in memory.
#[derive(Debug)]
pub struct MemoryStore;
