//! For tests of programs built on the guard.
