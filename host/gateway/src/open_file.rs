//! A file that a client has open, and how the brick knows it.
//!
//! The brick's id of it is good on one session only. When that is lost the file is opened again by
//! its handle, and the locks held through it are taken again before anything else is done with it.
//! A lock that cannot be had again may have been somebody else's meanwhile: from then on everything
//! that is asked of the file fails, and says so.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use portcullis_core::{Handle, Status};
use portcullis_wire::message::{Failure, Lock, LockOwner, Verb};
use portcullis_wire::{Reply, Request};
use tokio::time::Instant;
use tracing::warn;

use crate::brick_call::Fault;
use crate::brick_link::BrickLink;
use crate::brick_session::BrickSession;
use crate::held_locks::HeldLocks;
use crate::volume::Volume;

/// Of the flags of open(2), those that mean something afterwards: the access mode and `O_APPEND`
/// (asm-generic).
const LASTING_FLAGS: u32 = 0o2003;

/// See the module.
pub(crate) struct OpenFile {
    pub(crate) handle: Handle,
    flags: u32,
    at_brick: tokio::sync::Mutex<AtBrick>,
    pub(crate) held: Mutex<HeldLocks>,
    /// Held while a lock is taken or released without waiting for others.
    pub(crate) lock_turn: tokio::sync::Mutex<()>,
    /// Who waits for a lock.
    pub(crate) waiting: Mutex<Vec<LockOwner>>,
    /// Why nothing can be done with it any more.
    broken: OnceLock<Failure>,
}

/// How the brick knows an open file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct AtBrick {
    /// The session with the brick that the id is of.
    pub(crate) epoch: u64,
    pub(crate) file: u64,
}

impl OpenFile {
    /// A file that was opened with `flags`, as open(2) has them.
    pub(crate) fn new(handle: Handle, flags: u32, at_brick: AtBrick) -> Self {
        Self {
            handle,
            flags: flags & LASTING_FLAGS,
            at_brick: tokio::sync::Mutex::new(at_brick),
            held: Mutex::default(),
            lock_turn: tokio::sync::Mutex::default(),
            waiting: Mutex::default(),
            broken: OnceLock::new(),
        }
    }

    /// Whether both are of one file, and opened with the same flags.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.handle == other.handle && self.flags == other.flags
    }

    /// The file's id over a session with an epoch above `lost`; opened again where that session
    /// does not know it yet.
    pub(crate) async fn at_brick(
        &self,
        volume: &Volume,
        mut lost: u64,
        deadline: Instant,
    ) -> Result<(Arc<BrickSession>, u64), Failure> {
        let brick = volume.bricks.of(&self.handle);
        let mut at_brick = self.at_brick.lock().await;
        loop {
            if let Some(failure) = self.broken.get() {
                return Err(failure.clone());
            }
            let session = brick.session(lost, deadline).await?;
            if session.epoch == at_brick.epoch {
                return Ok((session, at_brick.file));
            }
            match self.open_again(volume, &session, deadline).await {
                Ok(file) => {
                    *at_brick = AtBrick { epoch: session.epoch, file };
                    return Ok((session, file));
                }
                Err(Fault::Lost) => lost = session.epoch,
                Err(Fault::Failed(failure)) => return Err(failure),
            }
        }
    }

    async fn open_again(
        &self,
        volume: &Volume,
        session: &BrickSession,
        deadline: Instant,
    ) -> Result<u64, Fault> {
        let brick = volume.bricks.of(&self.handle);
        let request = Request::Open { handle: self.handle, flags: self.flags };
        let file = match brick.call_on(session, &request, deadline).await {
            Ok(Reply::Opened { file, .. }) => file,
            Ok(_) => return Err(Fault::Failed(brick.nonsense(Verb::Open))),
            Err(Fault::Failed(failure)) => {
                volume.note(&request, &failure);
                // A handle that is gone never comes back.
                if matches!(failure.status, Status::Stale | Status::BadHandle) {
                    self.break_off(failure.clone());
                }
                return Err(Fault::Failed(failure));
            }
            Err(Fault::Lost) => return Err(Fault::Lost),
        };
        let held = self.held.lock().all().to_vec();
        for lock in held {
            self.lock_again(brick, session, file, lock, deadline).await?;
        }
        Ok(file)
    }

    async fn lock_again(
        &self,
        brick: &Arc<BrickLink>,
        session: &BrickSession,
        file: u64,
        lock: Lock,
        deadline: Instant,
    ) -> Result<(), Fault> {
        let request = Request::Setlk { file, lock, wait: false };
        match brick.call_on(session, &request, deadline).await {
            Ok(_) => Ok(()),
            Err(Fault::Failed(failure)) if failure.status != Status::Unavailable => {
                let detail = format!(
                    "a lock on this file was lost along with the connection to {}, and \
                     could not be taken again ({failure}): close the file and open it again",
                    brick.name
                );
                warn!(handle = ?self.handle, %failure, "a lock is lost");
                let failure = Failure::new(Status::Io, detail);
                self.break_off(failure.clone());
                Err(Fault::Failed(failure))
            }
            Err(fault) => Err(fault),
        }
    }

    fn break_off(&self, failure: Failure) {
        // The first reason stays.
        let _ = self.broken.set(failure);
    }

    /// The id of the file, unless somebody is opening it again.
    pub(crate) fn at_brick_now(&self) -> Option<AtBrick> {
        self.at_brick.try_lock().ok().map(|at_brick| *at_brick)
    }

    /// The id of the file, once nobody opens it again any more.
    pub(crate) async fn last_at_brick(&self) -> AtBrick {
        *self.at_brick.lock().await
    }
}
