//! Locks of fcntl(2) and flock(2), which hold between all clients of the brick.

use std::sync::Arc;
use std::time::Duration;

use portcullis_fuse::request::{Lock, LockKind, LockRange};
use portcullis_fuse::{Caller, Errno, Reply, reply};
use portcullis_wire::message;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::attr::errno_of_handle;
use super::open::File;
use super::volume::Volume;

/// How long whoever gave up waiting for a lock waits until it surely does not hold it.
const UNDO_MS: u64 = 500;

impl Volume {
    pub(super) fn getlk(
        self: &Arc<Self>,
        caller: Caller,
        file: u64,
        lock: Lock,
        reply: Reply<reply::LockFound>,
    ) {
        let us = self.client.id();
        let ask = |volume: Arc<Volume>, file: Arc<File>| async move {
            let found = file.open(&volume.client).await?.getlk(to_wire(&lock)).await;
            found.map_err(|error| errno_of_handle(&error))
        };
        self.ask_of_file(caller, file, reply, ask, move |reply, found| {
            reply.lock(found.map(|found: message::Lock| from_wire(&found, us)));
        });
    }

    pub(super) fn setlk(
        self: &Arc<Self>,
        caller: Caller,
        file: u64,
        lock: Lock,
        reply: Reply<reply::Done>,
    ) {
        let ask = |volume: Arc<Volume>, file: Arc<File>| async move {
            let set = file.open(&volume.client).await?.setlk(to_wire(&lock), false).await;
            set.map_err(|error| errno_of_handle(&error))
        };
        self.ask_of_file(caller, file, reply, ask, |reply, ()| reply.done());
    }

    /// Any signal ends the wait, as the kernel would.
    pub(super) fn setlkw(
        self: &Arc<Self>,
        _caller: Caller,
        file: u64,
        lock: Lock,
        mut reply: Reply<reply::Done>,
    ) {
        let file = match self.file(file) {
            Ok(file) => file,
            Err(errno) => return reply.error(errno),
        };
        let (interrupt, interrupted) = oneshot::channel();
        reply.on_interrupt(move || _ = interrupt.send(()));
        let volume = self.clone();
        self.runtime.spawn(async move {
            let lock = to_wire(&lock);
            let file = match file.open(&volume.client).await {
                Ok(file) => file,
                Err(errno) => return reply.error(errno),
            };
            let interrupted = async {
                if interrupted.await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            let set = tokio::select! {
                biased;
                set = file.setlk(lock, true) => Some(set),
                () = interrupted => None,
            };
            match set {
                Some(Ok(())) => reply.done(),
                Some(Err(error)) => reply.error(errno_of_handle(&error)),
                None => {
                    // It may have been granted just now.
                    let undo = file.undo_setlk(lock);
                    let _ = timeout(Duration::from_millis(UNDO_MS), undo).await;
                    reply.error(Errno::INTR);
                }
            }
        });
    }
}

/// Its client is filled in by the client itself.
fn to_wire(lock: &Lock) -> message::Lock {
    message::Lock {
        sort: if lock.flock { message::LockSort::Flock } else { message::LockSort::Posix },
        kind: match lock.range.kind {
            LockKind::Read => message::LockKind::Read,
            LockKind::Write => message::LockKind::Write,
            LockKind::Unlock => message::LockKind::Unlock,
        },
        start_bytes: lock.range.start,
        end_bytes: lock.range.end,
        owner: message::LockOwner { client: 0, owner: lock.owner },
        pid: lock.range.pid,
    }
}

/// A process of another machine has no number here.
fn from_wire(lock: &message::Lock, us: u128) -> LockRange {
    LockRange {
        start: lock.start_bytes,
        end: lock.end_bytes,
        kind: match lock.kind {
            message::LockKind::Read => LockKind::Read,
            message::LockKind::Write => LockKind::Write,
            message::LockKind::Unlock => LockKind::Unlock,
        },
        pid: if lock.owner.client == us { lock.pid } else { 0 },
    }
}
