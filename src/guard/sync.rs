//! The primitives of what `tests/shuttle` tries in every order, which puts its own in their place.

pub(super) use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
