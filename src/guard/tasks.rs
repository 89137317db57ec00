//! The guard's own tasks: what runs on when a caller is gone, and what can be waited for or stopped as a whole.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinHandle};

#[derive(Debug, Default)]
pub(crate) struct Tasks {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    running: Mutex<Running>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Running {
    next: u64,
    stopped: bool,
    handles: HashMap<u64, Option<AbortHandle>>,
}

impl Shared {
    fn running(&self) -> std::sync::MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes its task off the list, however the task ends.
struct Listed {
    shared: Arc<Shared>,
    id: u64,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.shared.running().handles.remove(&self.id);
        self.shared.changed.notify_waiters();
    }
}

impl Tasks {
    /// Spawns a task that the guard waits for when it shuts down.
    pub(crate) fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let id = {
            let mut running = self.shared.running();
            running.next += 1;
            let id = running.next;
            running.handles.insert(id, None);
            id
        };
        let listed = Listed { shared: Arc::clone(&self.shared), id };
        let handle = tokio::spawn(async move {
            let _listed = listed;
            future.await
        });
        let mut running = self.shared.running();
        if running.stopped {
            handle.abort();
        } else if let Some(entry) = running.handles.get_mut(&id) {
            *entry = Some(handle.abort_handle());
        }
        handle
    }

    pub(crate) fn count(&self) -> usize {
        self.shared.running().handles.len()
    }

    /// Waits until none is left.
    pub(crate) async fn idle(&self) {
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.count() == 0 {
                return;
            }
            changed.await;
        }
    }

    /// Stops all of them where they are, and every later one.
    pub(crate) fn stop(&self) {
        let mut running = self.shared.running();
        running.stopped = true;
        running.handles.values().flatten().for_each(AbortHandle::abort);
    }
}
