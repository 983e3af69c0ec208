//! Locks of several clients on one file.

use std::time::Duration;

use portcullis_core::{Handle, Status};
use portcullis_transport::{Connection, Role};
use portcullis_wire::message::{Lock, LockKind, LockOwner, LockSort};
use portcullis_wire::{Reply, Request};

use crate::support::{TestBrick, connect, on_each_kind, status_of};

const LONG: Duration = Duration::from_secs(60);

fn lock(client: u128, sort: LockSort, kind: LockKind) -> Lock {
    let owner = LockOwner { client, owner: 5 };
    Lock { sort, kind, start_bytes: 0, end_bytes: i64::MAX as u64, owner, pid: 9 }
}

/// A connection with the file open on it.
async fn opened(brick: &TestBrick, handle: Handle) -> (Connection, u64) {
    let connection = connect(&brick.identities, Role::Gateway, brick.address).await;
    match connection.call(&Request::Open { handle, flags: 2 }).await {
        Ok(Reply::Opened { file, .. }) => (connection, file),
        other => panic!("{other:?}"),
    }
}

async fn file(brick: &TestBrick) -> Handle {
    std::fs::write(brick.path("file"), b"").expect("written");
    brick.walk("file").await.expect("there").handle
}

on_each_kind! {
    async fn a_lock_is_waited_for_and_released_with_its_file(brick: TestBrick) {
        let handle = file(&brick).await;
        for sort in [LockSort::Posix, LockSort::Flock] {
            let (a, file_a) = opened(&brick, handle).await;
            let (b, file_b) = opened(&brick, handle).await;
            let wanted = lock(1, sort, LockKind::Write);
            let set = Request::Setlk { file: file_a, lock: wanted, wait: false };
            assert_eq!(a.call(&set).await.expect("locked"), Reply::Done);
            let other = lock(2, sort, LockKind::Read);
            let set = Request::Setlk { file: file_b, lock: other, wait: false };
            assert_eq!(status_of(b.call(&set).await), Err(Status::Busy));
            let test = Request::Getlk { file: file_b, lock: other };
            assert_eq!(b.call(&test).await.expect("tested"), Reply::Lock(Some(wanted)));
            let wait = Request::Setlk { file: file_b, lock: other, wait: true };
            let waiting = tokio::spawn({
                let b = b.clone();
                async move { b.call(&wait).await }
            });
            let owner = wanted.owner;
            let release = match sort {
                LockSort::Posix => Request::Flush { file: file_a, owner },
                LockSort::Flock => Request::Release { file: file_a, unlock: Some(owner) },
            };
            assert_eq!(a.call(&release).await.expect("released"), Reply::Done);
            let waited = tokio::time::timeout(LONG, waiting).await.expect("in time");
            assert_eq!(waited.expect("it ends").expect("locked"), Reply::Done);
            let test = Request::Getlk { file: file_b, lock: lock(3, sort, LockKind::Write) };
            assert_eq!(b.call(&test).await.expect("tested"), Reply::Lock(Some(other)));
            let unlock = Lock { kind: LockKind::Unlock, ..other };
            let unlock = Request::Setlk { file: file_b, lock: unlock, wait: false };
            assert_eq!(b.call(&unlock).await.expect("released"), Reply::Done);
        }
    }

    async fn a_wait_that_is_given_up_takes_nothing(brick: TestBrick) {
        let handle = file(&brick).await;
        let (a, file_a) = opened(&brick, handle).await;
        let (b, file_b) = opened(&brick, handle).await;
        let held = lock(1, LockSort::Posix, LockKind::Write);
        let set = Request::Setlk { file: file_a, lock: held, wait: false };
        a.call(&set).await.expect("locked");
        let wanted = lock(2, LockSort::Posix, LockKind::Write);
        let wait = Request::Setlk { file: file_b, lock: wanted, wait: true };
        let given_up = b.stream(&wait).await.expect("a stream");
        // The brick has it once a later request was answered that came on the same connection.
        let test = Request::Getlk { file: file_b, lock: wanted };
        b.call(&test).await.expect("tested");
        drop(given_up);
        b.call(&test).await.expect("tested");
        let unlock = Lock { kind: LockKind::Unlock, ..held };
        let unlock = Request::Setlk { file: file_a, lock: unlock, wait: false };
        // Should it have waited still when the lock was released, it gives the lock back.
        a.call(&unlock).await.expect("released");
        let third = lock(3, LockSort::Posix, LockKind::Write);
        let set = Request::Setlk { file: file_a, lock: third, wait: true };
        let taken = tokio::time::timeout(LONG, a.call(&set)).await.expect("in time");
        assert_eq!(taken.expect("locked"), Reply::Done);
    }
}
