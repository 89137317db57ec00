//! A suite that every store passes.
