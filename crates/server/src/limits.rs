//! How many questions are worked on and how many wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A door that lets so many in, lets so many wait, and sends the others away.
#[derive(Debug)]
pub struct Gate {
    inside: Arc<Semaphore>,
    waiting: AtomicUsize,
    most_waiting: usize,
}

/// Leaves the queue, also when the client has gone.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Gate {
    /// A gate.
    pub fn new(inside: usize, most_waiting: usize) -> Self {
        Self { inside: Arc::new(Semaphore::new(inside.max(1))), waiting: AtomicUsize::new(0), most_waiting }
    }

    /// Waits for a turn; `None` if too many wait already.
    pub async fn enter(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(&self.inside).try_acquire_owned() {
            return Some(permit);
        }
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _place = Place(&self.waiting);
        if before >= self.most_waiting {
            return None;
        }
        Arc::clone(&self.inside).acquire_owned().await.ok()
    }
}
