//! Keys, fingerprints and what is derived from them.
