//! JSON to one canonical byte string.
