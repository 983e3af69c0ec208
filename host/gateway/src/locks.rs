//! Taking and releasing locks: passed through to the brick, and remembered here.
//!
//! What is remembered is taken again when the session with the brick was lost (`open_file`). So a
//! lock is remembered once the brick has granted it, and a release is taken in before the brick is
//! asked for it: otherwise it might be taken again after its release.
//!
//! A client that no longer waits for a lock may have been granted it at the same moment. So after a
//! wait that was given up the gateway puts back what it remembers: nobody is left with a lock that
//! nobody knows of.

use std::sync::Arc;
use std::time::Duration;

use portcullis_core::Status;
use portcullis_transport::ReplySink;
use portcullis_transport::serve::PeerGone;
use portcullis_wire::message::{Failure, Lock, LockKind, LockOwner, LockSort, Verb};
use portcullis_wire::{Reply, ReplyFrame, Request};
use tokio::time::timeout;

use crate::brick_call::Fault;
use crate::held_locks::uncovered;
use crate::open_file::{AtBrick, OpenFile};
use crate::session::Session;
use crate::session_files::release_at_brick;
use crate::volume::Volume;

/// open(2).
const O_RDWR: u32 = 2;
/// How long a brick that stops may take to close its connection after its last word.
const STOP_MS_MAX: u64 = 15_000;
/// When locks are put back that may have been granted to nobody: at once, and after these pauses.
const PUT_BACK_PAUSES_MS: [u64; 4] = [0, 200, 1_000, 5_000];

/// An owner that waits for a lock on a file, until it is dropped.
struct Waiting<'a> {
    open: &'a OpenFile,
    owner: LockOwner,
}

impl<'a> Waiting<'a> {
    fn new(open: &'a OpenFile, owner: LockOwner) -> Self {
        open.waiting.lock().push(owner);
        Self { open, owner }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = self.open.waiting.lock();
        if let Some(at) = waiting.iter().position(|owner| *owner == self.owner) {
            waiting.swap_remove(at);
        }
    }
}

impl Session {
    /// Takes or releases a lock; waits for it where the client wants to. The status of a failure is
    /// told to `count`.
    pub(crate) async fn setlk(
        &self,
        file: u64,
        lock: Lock,
        wait: bool,
        mut reply: ReplySink,
        count: impl Fn(Status),
    ) -> Result<(), PeerGone> {
        let volume = &self.volume;
        let open = match self.file(file) {
            Ok(open) => open,
            Err(failure) => {
                count(failure.status);
                return reply.fail(failure).await;
            }
        };
        volume.lockers.enter(&open);
        let before = open.held.lock().overlapping(&lock);
        let mut result = volume.set_at_once(&open, &lock).await;
        if let Err(Failure { status: Status::Busy, .. }) = result
            && wait
        {
            result = match volume.wait_for(&open, &lock, &mut reply).await {
                Some(result) => result,
                None => {
                    put_back(volume, open, lock);
                    return Err(PeerGone);
                }
            };
        }
        if let Err(failure) = &result {
            count(failure.status);
            if failure.status == Status::Unavailable {
                // It may have been granted.
                put_back(volume, open.clone(), lock);
            }
        }
        let granted = result.is_ok() && lock.kind != LockKind::Unlock;
        let answered = reply.result(result).await;
        let is_closed = self.file(file).is_err();
        if granted && (is_closed || wait && answered.is_err()) {
            // The client gave up at the last moment: it has what it had before, unless it closed
            // the file, which ends all of it.
            let release = Lock { kind: LockKind::Unlock, ..lock };
            let before = if is_closed { &[] } else { &before[..] };
            let mut held = open.held.lock();
            [release].iter().chain(before).for_each(|lock| held.set(lock));
            drop(held);
            put_back(volume, open.clone(), lock);
        }
        if is_closed {
            volume.lockers.leave(&open);
        }
        answered
    }
}

impl Volume {
    /// Takes or releases a lock without waiting for others.
    async fn set_at_once(&self, open: &Arc<OpenFile>, lock: &Lock) -> Result<Reply, Failure> {
        let _turn = open.lock_turn.lock().await;
        if lock.kind == LockKind::Unlock {
            open.held.lock().set(lock);
        } else if open.held.lock().is_full() {
            return Err(Failure::new(Status::NoLocks, "too many locks on this file; release some"));
        }
        let setlk = |file| Request::Setlk { file, lock: *lock, wait: false };
        loop {
            let (reply, epoch) = self
                .file_call_at(open, self.bricks.deadline(), setlk)
                .await
                // A flock that cannot be changed is released (flock(2)).
                .inspect_err(|failure| {
                    if failure.status == Status::Busy && lock.sort == LockSort::Flock {
                        open.held.lock().release(LockSort::Flock, lock.owner);
                    }
                })?;
            open.held.lock().set(lock);
            // Else the file was opened again before this lock was remembered.
            if open.last_at_brick().await.epoch == epoch {
                return Ok(reply);
            }
        }
    }

    /// Waits for a lock for as long as it takes. After a session with the brick was lost it is asked
    /// for again. `None` where the client no longer waits.
    async fn wait_for(
        &self,
        open: &OpenFile,
        lock: &Lock,
        reply: &mut ReplySink,
    ) -> Option<Result<Reply, Failure>> {
        let Ok(_place) = self.lockers.waits.try_acquire() else {
            let detail = "too many requests wait for locks; try again later";
            return Some(Err(Failure::new(Status::NoLocks, detail)));
        };
        let _waiting = Waiting::new(open, lock.owner);
        let brick = self.bricks.of(&open.handle);
        let mut lost = 0;
        loop {
            let at_brick = open.at_brick(self, lost, brick.deadline()).await;
            let (session, file) = match at_brick {
                Ok(at_brick) => at_brick,
                Err(failure) => return Some(Err(failure)),
            };
            let request = Request::Setlk { file, lock: *lock, wait: true };
            let answer = async {
                let mut stream = brick.ask(&session, &request).await?;
                stream.receive().await
            };
            let frame = tokio::select! {
                biased;
                () = reply.gone() => return None,
                frame = answer => frame,
            };
            return Some(match frame {
                Err(Fault::Lost) => {
                    lost = session.epoch;
                    continue;
                }
                // A brick that stops ends the wait without a word, and its connection next.
                Err(Fault::Failed(failure)) => {
                    let closed =
                        timeout(Duration::from_millis(STOP_MS_MAX), session.connection.closed());
                    if closed.await.is_err() {
                        return Some(Err(failure));
                    }
                    lost = session.epoch;
                    continue;
                }
                Ok(ReplyFrame::Reply(Reply::Done)) => {
                    open.held.lock().set(lock);
                    if open.last_at_brick().await.epoch != session.epoch {
                        continue;
                    }
                    Ok(Reply::Done)
                }
                Ok(ReplyFrame::Failure(failure)) => Err(failure),
                Ok(_) => Err(brick.nonsense(Verb::Setlk)),
            });
        }
    }
}

/// Makes the brick hold again what is remembered, in the range of a lock that may have been granted
/// to nobody. That may also happen a little later, where the word that nobody waits any more is
/// slower than this; so it is done again after each pause.
fn put_back(volume: &Arc<Volume>, open: Arc<OpenFile>, lock: Lock) {
    let volume = volume.clone();
    tokio::spawn(async move {
        for pause_ms in PUT_BACK_PAUSES_MS {
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            if let Err(failure) = volume.put_back_once(&open, &lock).await {
                tracing::debug!(%failure, "a lock that nobody waits for could not be put back");
            }
        }
    });
}

impl Volume {
    async fn put_back_once(&self, open: &OpenFile, lock: &Lock) -> Result<(), Failure> {
        let _turn = open.lock_turn.lock().await;
        let known = self.lockers.known(&open.handle, lock);
        if known.waits {
            // That may be granted at any moment, and must not be taken away again.
            return Ok(());
        }
        // Through an open file of its own: the client may have closed this one.
        let brick = self.bricks.of(&open.handle);
        let request = Request::Open { handle: open.handle, flags: O_RDWR };
        let (reply, session) = brick.call_any(&request, brick.deadline()).await?;
        let Reply::Opened { file, .. } = reply else {
            return Err(brick.nonsense(Verb::Open));
        };
        let at_brick = AtBrick { epoch: session.epoch, file };
        let own = OpenFile::new(open.handle, O_RDWR, at_brick);
        let released = uncovered(lock, &known.held);
        let released = released.into_iter().map(|part| Lock { kind: LockKind::Unlock, ..part });
        let kept = known.held.iter().copied().filter(|held| held.kind != lock.kind);
        for part in released.chain(kept) {
            let setlk = |file| Request::Setlk { file, lock: part, wait: false };
            self.file_call(&own, brick.deadline(), setlk).await?;
        }
        let AtBrick { epoch, file } = own.last_at_brick().await;
        release_at_brick(brick, epoch, &[file]).await;
        Ok(())
    }
}
