//! Space and inodes, for df(1): cached for a moment, and the last answer while the gateway is away,
//! so that df never hangs.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use portcullis_fuse::{Caller, Errno, Reply, reply};
use portcullis_wire::message::Statfs;
use tokio::time::{Instant, timeout};

use super::attr::{errno_of_handle, statfs_to_kernel};
use super::inodes::Inode;
use super::volume::Volume;

/// How long an answer is given again.
const FRESH_MS: u64 = 1_000;
/// How long a new answer is waited for where there is an old one.
const WAIT_MS: u64 = 1_000;

/// The last answer, and when it came.
#[derive(Default)]
pub(super) struct Space(Mutex<Option<(Statfs, Instant)>>);

impl Space {
    /// The last answer, and whether it is fresh.
    fn last(&self) -> Option<(Statfs, bool)> {
        let (statfs, told) = (*self.0.lock())?;
        Some((statfs, told.elapsed() < Duration::from_millis(FRESH_MS)))
    }
}

impl Volume {
    pub(super) fn statfs(
        self: &Arc<Self>,
        caller: Caller,
        nodeid: u64,
        reply: Reply<reply::Statfs>,
    ) {
        if let Some((statfs, true)) = self.space.last() {
            return reply.statfs(&statfs_to_kernel(&statfs));
        }
        let ask = |volume: Arc<Volume>, inode: Inode| async move {
            let asking = volume.ask_space(&inode);
            let Some((last, _)) = volume.space.last() else { return asking.await };
            Ok(timeout(Duration::from_millis(WAIT_MS), asking)
                .await
                .unwrap_or(Ok(last))
                .unwrap_or(last))
        };
        self.ask(caller, nodeid, reply, ask, |reply, statfs| {
            reply.statfs(&statfs_to_kernel(&statfs));
        });
    }

    /// Asks, and keeps the answer.
    pub(super) async fn ask_space(&self, inode: &Inode) -> Result<Statfs, Errno> {
        let statfs = self.client.statfs(&inode.handle).await;
        let statfs = statfs.map_err(|error| errno_of_handle(&error))?;
        *self.space.0.lock() = Some((statfs, Instant::now()));
        Ok(statfs)
    }
}
