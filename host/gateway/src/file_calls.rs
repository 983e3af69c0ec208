//! Requests on open files that are answered by one message, passed through to the brick.

use portcullis_core::Handle;
use portcullis_wire::message::{Failure, Lock, LockOwner, LockSort};
use portcullis_wire::{Reply, Request};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::brick_call::Fault;
use crate::open_file::OpenFile;
use crate::session::Session;
use crate::volume::Volume;

impl Volume {
    /// Asks the brick about an open file, over a new session where one is lost. Everything asked
    /// this way means the same when it is asked twice.
    pub(crate) async fn file_call(
        &self,
        open: &OpenFile,
        deadline: Instant,
        request: impl Fn(u64) -> Request,
    ) -> Result<Reply, Failure> {
        Ok(self.file_call_at(open, deadline, request).await?.0)
    }

    /// As [`Volume::file_call`]; also tells the epoch of the session that it was answered on.
    pub(crate) async fn file_call_at(
        &self,
        open: &OpenFile,
        deadline: Instant,
        request: impl Fn(u64) -> Request,
    ) -> Result<(Reply, u64), Failure> {
        let brick = self.bricks.of(&open.handle);
        let mut lost = 0;
        loop {
            let (session, file) = open.at_brick(self, lost, deadline).await?;
            match brick.call_on(&session, &request(file), deadline).await {
                Ok(reply) => return Ok((reply, session.epoch)),
                Err(Fault::Lost) => lost = session.epoch,
                Err(Fault::Failed(failure)) => return Err(failure),
            }
        }
    }
}

impl Session {
    /// A program closes a descriptor: its record locks on the file end, through whichever open file
    /// it took them.
    pub(crate) async fn flush(&self, file: u64, owner: LockOwner) -> Result<Reply, Failure> {
        let open = self.file(file)?;
        let _turn = open.lock_turn.lock().await;
        let volume = &self.volume;
        if !volume.lockers.holds(&open.handle, LockSort::Posix, owner, None) {
            // There is nothing else to flush: what was written is at the brick.
            return Ok(Reply::Done);
        }
        volume.lockers.released(&open.handle, owner);
        let flush = |file| Request::Flush { file, owner };
        volume.file_call(&open, volume.bricks.deadline(), flush).await
    }

    /// Waits until what was written is on stable storage.
    pub(crate) async fn fsync(&self, file: u64, data_only: bool) -> Result<Reply, Failure> {
        let open = self.file(file)?;
        let deadline = self.volume.bricks.long_deadline();
        let fsync = |file| Request::Fsync { file, data_only };
        self.volume.file_call(&open, deadline, fsync).await
    }

    /// The same for the names of a directory, on all bricks that hold some of them.
    pub(crate) async fn fsyncdir(&self, dir: Handle) -> Result<Reply, Failure> {
        let volume = &self.volume;
        let deadline = volume.bricks.long_deadline();
        let request = Request::Fsyncdir { dir };
        let mut syncing = JoinSet::new();
        for brick in volume.bricks.holding(&dir) {
            let (brick, request) = (brick.clone(), request.clone());
            syncing.spawn(async move { brick.call(&request, deadline).await });
        }
        let mut result = Ok(Reply::Done);
        for synced in syncing.join_all().await {
            result = result.and(synced);
        }
        result.inspect_err(|failure| volume.note(&request, failure))
    }

    /// Where data or a hole begins.
    pub(crate) async fn lseek(
        &self,
        file: u64,
        offset_bytes: u64,
        hole: bool,
    ) -> Result<Reply, Failure> {
        let open = self.file(file)?;
        let lseek = |file| Request::Lseek { file, offset_bytes, hole };
        self.volume.file_call(&open, self.volume.bricks.deadline(), lseek).await
    }

    /// The lock that stands in the way of another.
    pub(crate) async fn getlk(&self, file: u64, lock: Lock) -> Result<Reply, Failure> {
        let open = self.file(file)?;
        let getlk = |file| Request::Getlk { file, lock };
        self.volume.file_call(&open, self.volume.bricks.deadline(), getlk).await
    }
}
