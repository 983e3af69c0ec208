//! Space and inodes of the brick's file system: told once a second at most, and never waited for
//! long. While the brick does not answer, the last that it told is repeated, so that `df` ends.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use portcullis_core::{Handle, Status};
use portcullis_wire::message::{Failure, Statfs};
use portcullis_wire::{Reply, Request};
use tokio::time::Instant;

use crate::volume::Volume;

/// How long an answer is repeated without asking.
const FRESH_MS: u64 = 1_000;
/// How long the brick may take.
const STATFS_MS_MAX: u64 = 2_000;

/// What the brick told last. An export is one file system, so it is true of every file.
#[derive(Debug, Default)]
pub(crate) struct LastStatfs(Mutex<Option<(Instant, Statfs)>>);

impl Volume {
    /// Space and inodes.
    pub(crate) async fn statfs(self: &Arc<Self>, handle: Handle) -> Result<Reply, Failure> {
        let last = *self.last_statfs.0.lock();
        if let Some((told, statfs)) = last
            && told.elapsed() < Duration::from_millis(FRESH_MS)
        {
            return Ok(Reply::Statfs(statfs));
        }
        let limit = Instant::now() + Duration::from_millis(STATFS_MS_MAX);
        let deadline = self.brick.deadline().min(limit);
        match (self.ask_until(&Request::Statfs { handle }, deadline).await, last) {
            (Ok(Reply::Statfs(statfs)), _) => {
                *self.last_statfs.0.lock() = Some((Instant::now(), statfs));
                Ok(Reply::Statfs(statfs))
            }
            (Err(Failure { status: Status::Unavailable, .. }), Some((_, statfs))) => {
                Ok(Reply::Statfs(statfs))
            }
            (other, _) => other,
        }
    }
}
