//! Locks of fcntl(2) and flock(2): kept apart, waited for, given back.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::memory::{MemoryTree, Quirk};
use crate::{Mounted, mount_writable, require_mount, wait_until};

const WAITER_VARIABLE: &str = "PORTCULLIS_TEST_LOCK";

fn mounted_with_a_file() -> (MemoryTree, Mounted) {
    let tree = MemoryTree::new();
    tree.file(b"file", &[0; 100], Quirk::None);
    let mounted = mount_writable(&tree);
    (tree, mounted)
}

fn open(mounted: &Mounted) -> File {
    open_at(&mounted.path().join("file"))
}

fn open_at(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// A lock of an open file description; what the kernel made of the struct.
fn lock(
    file: &File,
    command: libc::c_int,
    kind: libc::c_int,
    start: i64,
    len: i64,
) -> Result<libc::flock, Errno> {
    let mut lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: len,
        l_pid: 0,
    };
    // SAFETY: these commands of fcntl(2) take a pointer to a struct flock, which `lock` is; it lives
    // until fcntl returns.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    if done == 0 {
        Ok(lock)
    } else {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or_default();
        Err(Errno::from_raw_os_error(errno))
    }
}

#[test]
fn ranges_exclude_where_they_overlap_and_one_of_them_writes() {
    require_mount!("ranges_exclude_where_they_overlap_and_one_of_them_writes");
    let (tree, mounted) = mounted_with_a_file();
    let (one, other) = (open(&mounted), open(&mounted));
    let set =
        |file: &File, kind, start, len| lock(file, libc::F_OFD_SETLK, kind, start, len).map(drop);
    set(&one, libc::F_WRLCK, 10, 10).unwrap();
    assert_eq!(set(&other, libc::F_RDLCK, 19, 1), Err(Errno::AGAIN));
    set(&other, libc::F_WRLCK, 20, 0).unwrap();
    set(&other, libc::F_RDLCK, 0, 10).unwrap();
    set(&one, libc::F_RDLCK, 5, 3).unwrap();
    // What is in the way, to the byte and by how it locks.
    let found = lock(&one, libc::F_OFD_GETLK, libc::F_WRLCK, 30, 5).unwrap();
    assert_eq!((found.l_type as libc::c_int, found.l_start, found.l_len), (libc::F_WRLCK, 20, 0));
    let found = lock(&one, libc::F_OFD_GETLK, libc::F_WRLCK, 10, 5).unwrap();
    assert_eq!(found.l_type as libc::c_int, libc::F_UNLCK);
    // Unlocking the middle leaves both ends.
    set(&one, libc::F_UNLCK, 14, 2).unwrap();
    set(&other, libc::F_WRLCK, 14, 2).unwrap();
    assert_eq!(set(&other, libc::F_WRLCK, 13, 1), Err(Errno::AGAIN));
    assert_eq!(set(&other, libc::F_WRLCK, 16, 1), Err(Errno::AGAIN));
    drop(one);
    wait_until("closing gives back", || set(&other, libc::F_WRLCK, 0, 0).is_ok());
    drop(other);
    wait_until("closing gives back", || tree.locks() == (0, 0));
}

#[test]
fn flock_and_fcntl_do_not_see_each_other() {
    require_mount!("flock_and_fcntl_do_not_see_each_other");
    let (tree, mounted) = mounted_with_a_file();
    let (one, other) = (open(&mounted), open(&mounted));
    rustix::fs::flock(&one, FlockOperation::NonBlockingLockExclusive).unwrap();
    lock(&other, libc::F_OFD_SETLK, libc::F_WRLCK, 0, 0).unwrap();
    let shared = FlockOperation::NonBlockingLockShared;
    assert_eq!(rustix::fs::flock(&other, shared), Err(Errno::AGAIN));
    rustix::fs::flock(&one, shared).unwrap();
    rustix::fs::flock(&other, shared).unwrap();
    assert_eq!(tree.locks(), (3, 0));
    // A duplicate is the same open file: only the last close gives back.
    let duplicate = one.try_clone().unwrap();
    drop(one);
    let exclusive = FlockOperation::NonBlockingLockExclusive;
    assert_eq!(rustix::fs::flock(&other, exclusive), Err(Errno::AGAIN));
    drop(duplicate);
    wait_until("the last close gives back", || rustix::fs::flock(&other, exclusive).is_ok());
}

#[test]
fn closing_any_descriptor_ends_the_locks_of_a_process() {
    require_mount!("closing_any_descriptor_ends_the_locks_of_a_process");
    let (tree, mounted) = mounted_with_a_file();
    let (one, other) = (open(&mounted), open(&mounted));
    lock(&one, libc::F_SETLK, libc::F_WRLCK, 0, 0).unwrap();
    assert_eq!(tree.locks(), (1, 0));
    // close(2) waits for FLUSH.
    drop(other);
    assert_eq!(tree.locks(), (0, 0));
}

#[test]
fn who_waits_gets_the_lock_when_it_is_given_back() {
    require_mount!("who_waits_gets_the_lock_when_it_is_given_back");
    let (tree, mounted) = mounted_with_a_file();
    let (one, other) = (open(&mounted), open(&mounted));
    lock(&one, libc::F_OFD_SETLK, libc::F_WRLCK, 0, 0).unwrap();
    let waiting = std::thread::spawn(move || {
        lock(&other, libc::F_OFD_SETLKW, libc::F_WRLCK, 0, 0).map(|_| other)
    });
    wait_until("it waits", || tree.locks() == (1, 1));
    lock(&one, libc::F_OFD_SETLK, libc::F_UNLCK, 0, 0).unwrap();
    let other = waiting.join().unwrap().unwrap();
    assert_eq!(lock(&one, libc::F_OFD_SETLK, libc::F_RDLCK, 0, 1).unwrap_err(), Errno::AGAIN);
    drop(other);
}

/// Not a test of its own: the process that waits for a lock, of the kind that is asked for.
#[test]
fn child_that_waits() {
    let Some(asked) = std::env::var_os(WAITER_VARIABLE) else { return };
    let asked = asked.into_string().unwrap();
    let (kind, path) = asked.split_once(':').unwrap();
    let file = open_at(path.as_ref());
    println!("\nwaiting");
    match kind {
        "flock" => rustix::fs::flock(&file, FlockOperation::LockExclusive).unwrap(),
        _ => rustix::fs::fcntl_lock(&file, FlockOperation::LockExclusive).unwrap(),
    }
    println!("locked");
}

fn spawn_waiter(mounted: &Mounted, kind: &str) -> Child {
    let path = mounted.path().join("file");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "locks::child_that_waits", "--nocapture"])
        .env(WAITER_VARIABLE, format!("{kind}:{}", path.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "waiting"));
    child
}

#[test]
fn a_signal_ends_the_wait_and_nothing_stays_behind() {
    require_mount!("a_signal_ends_the_wait_and_nothing_stays_behind");
    let (tree, mounted) = mounted_with_a_file();
    let file = open(&mounted);
    // Not SIGINT, which may be ignored by whatever started the tests, and so by their children.
    for (kind, signal) in [
        ("fcntl", Signal::KILL),
        ("flock", Signal::KILL),
        ("fcntl", Signal::TERM),
        ("flock", Signal::USR1),
    ] {
        lock(&file, libc::F_OFD_SETLK, libc::F_WRLCK, 0, 0).unwrap();
        rustix::fs::flock(&file, FlockOperation::LockExclusive).unwrap();
        let mut waiter = spawn_waiter(&mounted, kind);
        wait_until("it waits", || tree.locks() == (2, 1));
        kill_process(Pid::from_child(&waiter), signal).unwrap();
        wait_until("it has ended", || waiter.try_wait().unwrap().is_some());
        wait_until("nobody waits", || tree.locks() == (2, 0));
        // Given back, it is free: the dead waiter did not get it.
        lock(&file, libc::F_OFD_SETLK, libc::F_UNLCK, 0, 0).unwrap();
        rustix::fs::flock(&file, FlockOperation::Unlock).unwrap();
        assert_eq!(tree.locks(), (0, 0), "{kind} {signal:?}");
    }
}

#[test]
fn a_process_waits_for_another_and_its_end_gives_back() {
    require_mount!("a_process_waits_for_another_and_its_end_gives_back");
    let (tree, mounted) = mounted_with_a_file();
    let file = open(&mounted);
    lock(&file, libc::F_OFD_SETLK, libc::F_RDLCK, 0, 1).unwrap();
    let mut waiter = spawn_waiter(&mounted, "fcntl");
    wait_until("it waits", || tree.locks() == (1, 1));
    lock(&file, libc::F_OFD_SETLK, libc::F_UNLCK, 0, 0).unwrap();
    assert!(waiter.wait().unwrap().success());
    wait_until("its locks ended with it", || tree.locks() == (0, 0));
}
