//! The integration tests, one program, a module for each promise.

mod again;
mod approvals;
mod bench;
mod bytes;
mod calls;
mod cancel;
mod deploys;
mod desk;
mod explore;
mod fork;
mod gc;
mod growth;
mod house;
mod keys;
mod keys_hostile;
mod keys_jcs;
mod keys_meaning;
mod keys_shape;
mod lint;
mod look;
mod look_alikes;
mod messages;
mod noted;
#[cfg(feature = "openai")]
mod openai;
mod pressed;
mod providers;
mod reads;
mod refusals;
mod reopened;
mod replayed;
mod results;
mod runs;
mod secrets;
mod store_down;
mod stores;
