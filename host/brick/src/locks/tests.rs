//! Locks of several owners on real files, and of other programs beside them.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::testing::{each_file_system, handles_of};
use crate::workers::Workers;

const LONG: Duration = Duration::from_secs(60);
/// Owners of locks that there may be.
const DESCRIPTORS: usize = 40;

fn owner(owner: u64) -> LockOwner {
    LockOwner { client: 1, owner }
}

fn posix(by: u64, kind: LockKind, start_bytes: u64, end_bytes: u64) -> Lock {
    Lock { sort: LockSort::Posix, kind, start_bytes, end_bytes, owner: owner(by), pid: by as u32 }
}

fn flock(by: u64, kind: LockKind) -> Lock {
    Lock { sort: LockSort::Flock, ..posix(by, kind, 0, END) }
}

fn export(path: &Path, choice: crate::HandleChoice) -> (Arc<Locks>, Handle, Handle) {
    let handles = handles_of(path, choice);
    let root = handles.directory(handles.root()).expect("the root");
    let [a, b] = ["a", "b"].map(|name| {
        std::fs::write(path.join(name), b"content").expect("written");
        handles.entry(&root, name.as_bytes()).expect("there").handle
    });
    (Arc::new(Locks::new(handles, Descriptors::up_to(DESCRIPTORS))), a, b)
}

fn status(result: Result<(), Failure>) -> Result<(), Status> {
    result.map_err(|failure| failure.status)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime")
}

/// Waits until so many requests wait.
async fn until_waiting(locks: &Locks, count: usize) {
    let waiting = async {
        while locks.waiting.count() != count {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, waiting).await.expect("they wait");
}

#[test]
fn owners_exclude_each_other_by_range_and_the_two_sorts_do_not() {
    each_file_system(|path, choice| {
        let (locks, file, other) = export(path, choice);
        locks.set(&file, &posix(1, LockKind::Write, 0, 9)).expect("locked");
        let second = |kind, start, end| status(locks.set(&file, &posix(2, kind, start, end)));
        assert_eq!(second(LockKind::Read, 9, 20), Err(Status::Busy));
        assert_eq!(second(LockKind::Read, 10, END), Ok(()));
        locks.set(&other, &posix(2, LockKind::Write, 0, END)).expect("another file");
        locks.set(&file, &flock(2, LockKind::Write)).expect("the other sort");
        assert_eq!(status(locks.set(&file, &flock(1, LockKind::Read))), Err(Status::Busy));
        let found = locks.test(&file, &posix(2, LockKind::Write, 5, 6)).expect("tested");
        assert_eq!(found, Some(posix(1, LockKind::Write, 0, 9)));
        let own = locks.test(&file, &posix(1, LockKind::Write, 5, 6)).expect("tested");
        assert_eq!(own, None, "one's own lock is in nobody's way");
        locks.set(&file, &posix(1, LockKind::Read, 0, 4)).expect("a part is shared now");
        assert_eq!(second(LockKind::Read, 0, 4), Ok(()));
        assert_eq!(second(LockKind::Read, 5, 5), Err(Status::Busy));
    });
}

#[test]
fn a_descriptor_is_kept_as_long_as_it_holds_a_lock() {
    each_file_system(|path, choice| {
        let (locks, file, other) = export(path, choice);
        let count = || locks.descriptors.taken();
        locks.set(&file, &posix(1, LockKind::Unlock, 0, END)).expect("nothing to release");
        assert_eq!(count(), 0);
        locks.set(&file, &posix(1, LockKind::Write, 0, 9)).expect("locked");
        locks.set(&file, &posix(1, LockKind::Write, 20, 29)).expect("locked");
        locks.set(&other, &flock(1, LockKind::Read)).expect("locked");
        assert_eq!(count(), 2);
        assert!(status(locks.set(&file, &posix(2, LockKind::Read, 0, 0))).is_err());
        assert_eq!(count(), 2, "a lock that was not had keeps nothing");
        locks.set(&file, &posix(1, LockKind::Unlock, 0, 9)).expect("released");
        assert_eq!(count(), 2);
        locks.drop_owner(&file, LockSort::Posix, owner(1));
        assert_eq!(count(), 1);
        locks.set(&file, &posix(2, LockKind::Write, 0, END)).expect("all was released");
        locks.drop_owner(&file, LockSort::Posix, owner(2));
        locks.drop_owner(&other, LockSort::Flock, owner(1));
        assert_eq!((count(), locks.files.lock().len()), (0, 0));
        let mut owners = 1..;
        let mut lock = || {
            let by = owners.next().unwrap_or_default();
            status(locks.set(&file, &posix(by, LockKind::Read, 0, END)))
        };
        assert!((0..DESCRIPTORS).all(|_| lock().is_ok()));
        assert_eq!(lock(), Err(Status::NoLocks));
        locks.drop_owner(&file, LockSort::Posix, owner(1));
        assert_eq!(lock(), Ok(()), "there is room");
    });
}

#[test]
fn programs_on_the_host_and_clients_exclude_each_other() {
    each_file_system(|path, choice| {
        let (locks, file, _) = export(path, choice);
        let local = std::fs::File::options().write(true).open(path.join("a")).expect("opened");
        // Not a lock of a process: closing any descriptor of the file would release that.
        let try_local = |kind: i32| {
            let lock = libc::flock {
                l_type: kind as libc::c_short,
                l_whence: 0,
                l_start: 0,
                l_len: 5,
                l_pid: 0,
            };
            // SAFETY: the descriptor is open, and the pointer is to a whole `struct flock`.
            unsafe { libc::fcntl(local.as_raw_fd(), libc::F_OFD_SETLK, &lock) == 0 }
        };
        assert!(try_local(libc::F_WRLCK));
        let lock = posix(1, LockKind::Read, 0, 0);
        assert_eq!(status(locks.set(&file, &lock)), Err(Status::Busy));
        let found = locks.test(&file, &lock).expect("tested").expect("it is locked");
        assert_eq!((found.kind, found.start_bytes, found.end_bytes), (LockKind::Write, 0, 4));
        assert_eq!(found.owner.client, 0, "no client's");
        assert!(try_local(libc::F_UNLCK));
        locks.set(&file, &lock).expect("locked");
        assert!(!try_local(libc::F_WRLCK));
    });
}

#[test]
fn a_waiter_gets_the_lock_when_it_is_released() {
    each_file_system(|path, choice| {
        let (locks, file, _) = export(path, choice);
        runtime().block_on(async {
            let workers = Arc::new(Workers::default());
            locks.set(&file, &posix(1, LockKind::Write, 0, 9)).expect("locked");
            let waiters: Vec<_> = (2..6)
                .map(|by| {
                    let (locks, workers) = (locks.clone(), workers.clone());
                    tokio::spawn(async move {
                        let lock = posix(by, LockKind::Write, 0, 9);
                        let never = std::future::pending();
                        locks.set_waiting(&workers, file, lock, never).await.expect("locked");
                        locks.set(&file, &posix(by, LockKind::Unlock, 0, 9)).expect("released");
                    })
                })
                .collect();
            until_waiting(&locks, 4).await;
            locks.drop_owner(&file, LockSort::Posix, owner(1));
            for waiter in waiters {
                tokio::time::timeout(LONG, waiter).await.expect("in time").expect("it ends");
            }
            assert_eq!(locks.waiting.count(), 0);
            assert_eq!(locks.descriptors.taken(), 0);
        });
    });
}

#[test]
fn a_waiter_notices_that_another_program_released_its_lock() {
    each_file_system(|path, choice| {
        let (locks, file, _) = export(path, choice);
        runtime().block_on(async {
            let local = std::fs::File::open(path.join("a")).expect("opened");
            local.lock().expect("locked");
            let lock = flock(1, LockKind::Read);
            let waiting = {
                let locks = locks.clone();
                tokio::spawn(async move {
                    let workers = Workers::default();
                    locks.set_waiting(&workers, file, lock, std::future::pending()).await
                })
            };
            until_waiting(&locks, 1).await;
            local.unlock().expect("released");
            let waited = tokio::time::timeout(LONG, waiting).await.expect("in time");
            waited.expect("it ends").expect("locked");
        });
    });
}

#[test]
fn a_waiter_that_gives_up_holds_nothing() {
    each_file_system(|path, choice| {
        let (locks, file, _) = export(path, choice);
        runtime().block_on(async {
            locks.set(&file, &flock(1, LockKind::Write)).expect("locked");
            let (gives_up, given_up) = tokio::sync::oneshot::channel::<()>();
            let waiting = {
                let locks = locks.clone();
                tokio::spawn(async move {
                    let workers = Workers::default();
                    let given_up = async { given_up.await.unwrap_or_default() };
                    let lock = flock(2, LockKind::Write);
                    locks.set_waiting(&workers, file, lock, given_up).await
                })
            };
            until_waiting(&locks, 1).await;
            gives_up.send(()).expect("it waits");
            let waited = tokio::time::timeout(LONG, waiting).await.expect("in time");
            assert_eq!(status(waited.expect("it ends")), Err(Status::Interrupted));
            assert_eq!(locks.descriptors.taken(), 1);
        });
    });
}

#[test]
fn owners_who_wait_for_each_other_are_told_of_the_deadlock() {
    each_file_system(|path, choice| {
        let (locks, a, b) = export(path, choice);
        runtime().block_on(async {
            locks.set(&a, &posix(1, LockKind::Write, 0, 9)).expect("locked");
            locks.set(&b, &posix(2, LockKind::Write, 0, 9)).expect("locked");
            locks.set(&b, &posix(3, LockKind::Write, 50, 59)).expect("locked");
            let never = std::future::pending::<()>;
            let waiting = {
                let locks = locks.clone();
                tokio::spawn(async move {
                    let workers = Workers::default();
                    let lock = posix(1, LockKind::Read, 5, 5);
                    locks.set_waiting(&workers, b, lock, never()).await
                })
            };
            until_waiting(&locks, 1).await;
            let workers = Workers::default();
            let lock = posix(2, LockKind::Write, 9, 20);
            let refused = locks.set_waiting(&workers, a, lock, never());
            let refused = tokio::time::timeout(LONG, refused).await.expect("in time");
            assert_eq!(status(refused), Err(Status::Deadlock));
            locks.drop_owner(&b, LockSort::Posix, owner(2));
            let waited = tokio::time::timeout(LONG, waiting).await.expect("in time");
            waited.expect("it ends").expect("locked");
        });
    });
}

#[test]
fn locks_of_a_lost_session_are_kept_for_a_while_and_reclaimed_ones_for_good() {
    each_file_system(|path, choice| {
        let (locks, file, other) = export(path, choice);
        let grace = Duration::from_millis(LOCK_GRACE_MS);
        for (file, session) in [(&file, 7), (&other, 8)] {
            let lock = posix(1, LockKind::Write, 0, 9);
            locks.set(file, &lock).expect("locked");
            locks.taken_by(file, &lock, session);
        }
        locks.lose(7);
        locks.sweep(Instant::now());
        let wanted = posix(2, LockKind::Read, 0, 0);
        assert_eq!(status(locks.set(&file, &wanted)), Err(Status::Busy));
        let again = posix(1, LockKind::Write, 0, 9);
        locks.set(&file, &again).expect("it is reclaimed");
        locks.taken_by(&file, &again, 9);
        locks.sweep(Instant::now() + grace);
        assert_eq!(status(locks.set(&file, &wanted)), Err(Status::Busy));
        locks.lose(9);
        locks.sweep(Instant::now() + grace);
        assert_eq!(status(locks.set(&file, &wanted)), Ok(()));
        assert_eq!(status(locks.set(&other, &wanted)), Err(Status::Busy));
    });
}
