//! A clock moved by hand.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::store::BoxFuture;
use crate::{Clock, Millis};

/// Where the wall clock of a [`ManualClock`] starts: 2023-11-14T22:13:20Z.
const START: Millis = 1_700_000_000_000;

/// A clock that stands still until it is moved. Clones are handles on the same clock.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use toolonce::Clock;
/// use toolonce::testing::ManualClock;
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let clock = ManualClock::new();
/// let nap = clock.sleep(Duration::from_secs(10));
/// assert_eq!(clock.next_deadline(), Some(Duration::from_secs(10)));
/// clock.advance(Duration::from_secs(10));
/// nap.await;
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct ManualClock {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    wall: Millis,
    /// What is left of a millisecond when the clocks move by less than one.
    rest: Duration,
    monotonic: Duration,
    /// By deadline, then in the order in which they went to sleep.
    sleepers: BTreeMap<(Duration, u64), oneshot::Sender<()>>,
    slept: u64,
}

impl ManualClock {
    /// A clock that stands at 2023-11-14T22:13:20Z.
    pub fn new() -> Self {
        let state =
            State { wall: START, rest: Duration::ZERO, monotonic: Duration::ZERO, sleepers: BTreeMap::new(), slept: 0 };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Moves both clocks and wakes the sleepers whose time has come, in the order of their deadlines. They run when
    /// they are polled next, and then see the clock where this call left it; to let each see its own deadline, advance
    /// by [`next_deadline`](Self::next_deadline) and yield in between.
    pub fn advance(&self, by: Duration) {
        let mut state = self.lock();
        state.monotonic = state.monotonic.saturating_add(by);
        state.rest = state.rest.saturating_add(by);
        let millis = state.rest.as_millis();
        state.rest -= Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
        state.wall = state.wall.saturating_add(u64::try_from(millis).unwrap_or(u64::MAX));
        let now = state.monotonic;
        while let Some(sleeper) = state.sleepers.first_entry()
            && sleeper.key().0 <= now
        {
            // Whoever stopped sleeping needs no waking.
            let _ = sleeper.remove().send(());
        }
    }

    /// Sets the wall clock forward or, with a negative number, back by this many milliseconds. The monotonic clock and
    /// the sleepers don't notice.
    pub fn set_wall_by(&self, millis: i64) {
        let mut state = self.lock();
        state.wall = state.wall.saturating_add_signed(millis);
    }

    /// How long it is until the next sleeper wakes; `None` if nobody sleeps.
    pub fn next_deadline(&self) -> Option<Duration> {
        let mut state = self.lock();
        state.sleepers.retain(|_, sleeper| !sleeper.is_closed());
        state.sleepers.first_key_value().map(|((deadline, _), _)| deadline.saturating_sub(state.monotonic))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn wall(&self) -> Millis {
        self.lock().wall
    }

    fn monotonic(&self) -> Duration {
        self.lock().monotonic
    }

    /// Falls asleep when called, not when first polled.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        if duration.is_zero() {
            return Box::pin(std::future::ready(()));
        }
        let (sender, woken) = oneshot::channel();
        let mut state = self.lock();
        state.slept += 1;
        let place = (state.monotonic.saturating_add(duration), state.slept);
        state.sleepers.insert(place, sender);
        let clock = self.clone();
        Box::pin(async move {
            // The sleeper's own handle keeps the clock, and so the sender, alive.
            drop(woken.await);
            drop(clock);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sleepers_wake_in_the_order_of_their_deadlines() {
        let clock = ManualClock::new();
        let order = Arc::new(Mutex::new(Vec::new()));
        let tasks = [3, 1, 2].map(|seconds| {
            let nap = clock.sleep(Duration::from_secs(seconds));
            let order = Arc::clone(&order);
            tokio::spawn(async move {
                nap.await;
                order.lock().unwrap().push(seconds);
            })
        });
        tokio::task::yield_now().await;
        clock.advance(Duration::from_secs(5));
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), [1, 2, 3]);
    }

    #[tokio::test]
    async fn the_next_deadline_skips_sleepers_that_gave_up() {
        let clock = ManualClock::new();
        drop(clock.sleep(Duration::from_secs(1)));
        let nap = clock.sleep(Duration::from_secs(2));
        assert_eq!(clock.next_deadline(), Some(Duration::from_secs(2)));
        clock.advance(Duration::from_secs(2));
        nap.await;
        assert_eq!(clock.next_deadline(), None);
    }

    #[test]
    fn the_wall_clock_moves_on_its_own_and_with_time() {
        let clock = ManualClock::new();
        clock.set_wall_by(-500);
        (0..4).for_each(|_| clock.advance(Duration::from_micros(250)));
        assert_eq!(clock.wall(), START - 499);
        assert_eq!(clock.monotonic(), Duration::from_millis(1));
    }
}
