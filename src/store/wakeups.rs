//! Who waits for which key: the signal behind [`Store::changed`](super::Store::changed).

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::Key;

/// Waiters by key. Interest is registered when the future is made, not when it is first polled: who subscribes and
/// then looks can't miss a change made in between.
#[derive(Debug, Default)]
pub(super) struct Wakeups {
    waiters: Mutex<HashMap<Key, Vec<Arc<Notify>>>>,
}

impl Wakeups {
    /// Completes when one of `keys` is woken after this call.
    pub(super) fn wait(self: &Arc<Self>, keys: &[Key]) -> impl Future<Output = ()> + Send + use<> {
        let signal = Arc::new(Notify::new());
        let mut waiters = self.lock();
        for key in keys {
            waiters.entry(key.clone()).or_default().push(Arc::clone(&signal));
        }
        drop(waiters);
        let waiter = Waiter { registry: Arc::clone(self), keys: keys.to_vec(), signal };
        async move { waiter.signal.notified().await }
    }

    /// Wakes everyone who waits for one of `keys`.
    pub(super) fn wake<'a>(&self, keys: impl IntoIterator<Item = &'a Key>) {
        let mut waiters = self.lock();
        if waiters.is_empty() {
            return;
        }
        let woken = keys.into_iter().filter_map(|key| waiters.remove(key)).flatten().collect::<Vec<_>>();
        drop(waiters);
        woken.iter().for_each(|signal| signal.notify_one());
    }

    /// Wakes everyone: the store is closed or failed, and waiting longer is of no use.
    pub(super) fn wake_all(&self) {
        let woken = std::mem::take(&mut *self.lock());
        woken.into_values().flatten().for_each(|signal| signal.notify_one());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Vec<Arc<Notify>>>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes its entries out of the registry when the future is dropped, woken or not.
struct Waiter {
    registry: Arc<Wakeups>,
    keys: Vec<Key>,
    signal: Arc<Notify>,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiters = self.registry.lock();
        for key in &self.keys {
            if let Some(signals) = waiters.get_mut(key) {
                signals.retain(|signal| !Arc::ptr_eq(signal, &self.signal));
                if signals.is_empty() {
                    waiters.remove(key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_change_between_subscribing_and_polling_is_not_missed() {
        let wakeups = Arc::new(Wakeups::default());
        let (a, b) = (Key::new(*b"a"), Key::new(*b"b"));
        let waiting = wakeups.wait(&[a, b.clone()]);
        wakeups.wake([&b]);
        waiting.await;
    }

    #[test]
    fn a_dropped_waiter_leaves_nothing_behind() {
        let wakeups = Arc::new(Wakeups::default());
        let (a, b) = (Key::new(*b"a"), Key::new(*b"b"));
        let waiting = wakeups.wait(&[a.clone(), b]);
        let other = wakeups.wait(std::slice::from_ref(&a));
        drop(waiting);
        assert_eq!(wakeups.lock().len(), 1);
        drop(other);
        assert!(wakeups.lock().is_empty());
    }
}
