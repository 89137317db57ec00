//! Time as the guard sees it: wall clock, monotonic clock and sleeping, all from one [`Clock`].

use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::store::BoxFuture;

/// Milliseconds since the Unix epoch.
pub type Millis = u64;

/// Where the guard gets its time from. [`SystemClock`] unless a test gives another.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Wall-clock time in milliseconds since the Unix epoch. May jump.
    fn wall(&self) -> Millis;

    /// Time since an arbitrary fixed moment. Never goes backwards.
    fn monotonic(&self) -> Duration;

    /// Completes after `duration` of this clock's time.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

/// The operating system's clocks and tokio's timer.
#[derive(Debug, Clone)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock that starts now.
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn wall(&self) -> Millis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}
