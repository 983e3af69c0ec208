//! Where blocking happens: at most `BRICK_WORKERS_MAX` system-call threads at once.
//!
//! A worker is held for one short piece of work only, never while a peer is waited for; so a peer
//! that does not read its answers keeps nobody else from theirs. What finds no free worker waits.

use std::sync::Arc;

use portcullis_core::Status;
use portcullis_core::limits::BRICK_WORKERS_MAX;
use portcullis_wire::message::Failure;
use tokio::sync::Semaphore;
use tracing::error;

use crate::direct::own;

/// The workers of one brick.
#[derive(Clone)]
pub(crate) struct Workers {
    free: Arc<Semaphore>,
}

impl Default for Workers {
    fn default() -> Self {
        Self { free: Arc::new(Semaphore::new(BRICK_WORKERS_MAX)) }
    }
}

impl Workers {
    /// Does `work` on a thread that may block.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let stopping = || Failure::new(Status::Unavailable, "the brick is stopping");
        let worker = self.free.clone().acquire_owned().await.map_err(|_| stopping())?;
        let done = tokio::task::spawn_blocking(move || {
            let _worker = worker;
            own::enter();
            work()
        });
        done.await.unwrap_or_else(|failed| {
            if failed.is_cancelled() {
                return Err(stopping());
            }
            error!(%failed, "a request ended in a panic; please report it");
            Err(Failure::new(Status::Io, "internal error of the brick"))
        })
    }
}
