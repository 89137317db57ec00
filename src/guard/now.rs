//! The guard's idea of now: the later of the wall clock and what the monotonic clock proves.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::{Clock, Millis};

/// Elapsed time is the larger of monotonic and wall (a suspended machine counts), and time never runs back.
#[derive(Debug)]
pub(crate) struct Now {
    clock: Arc<dyn Clock>,
    anchor: Mutex<(Millis, Duration)>,
}

impl Now {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let anchor = Mutex::new((clock.wall(), clock.monotonic()));
        Self { clock, anchor }
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The wall clock alone.
    pub(crate) fn wall(&self) -> Millis {
        self.clock.wall()
    }

    /// The later of the wall clock and what the monotonic clock says has passed since the latest time seen.
    pub(crate) fn get(&self) -> Millis {
        let (wall, monotonic) = (self.clock.wall(), self.clock.monotonic());
        let mut anchor = self.anchor.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = Millis::try_from(monotonic.saturating_sub(anchor.1).as_millis()).unwrap_or(Millis::MAX);
        let now = anchor.0.saturating_add(passed);
        if wall > now {
            *anchor = (wall, monotonic);
        }
        wall.max(now)
    }

    pub(crate) fn until(&self, at: Millis) -> Duration {
        Duration::from_millis(at.saturating_sub(self.get()))
    }
}
