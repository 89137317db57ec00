//! The pure protocol.
