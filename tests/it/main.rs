//! The integration tests, one program, a module for each promise.

mod bench;
mod bytes;
mod calls;
mod cancel;
mod explore;
mod growth;
mod house;
mod keys;
mod keys_hostile;
mod keys_jcs;
mod keys_meaning;
mod keys_shape;
mod lint;
#[cfg(feature = "openai")]
mod openai;
mod pressed;
mod providers;
mod refusals;
mod replayed;
mod results;
mod runs;
mod secrets;
mod store_down;
mod stores;
