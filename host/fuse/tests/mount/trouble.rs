//! Requests that are interrupted, dropped, or answered wrongly, and their neighbours.

use std::fs;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::memory::{MemoryTree, Quirk};
use crate::{DEADLINE, mount, require_mount, wait_until};

#[test]
fn a_killed_reader_returns_at_once() {
    require_mount!("a_killed_reader_returns_at_once");
    let tree = MemoryTree::new();
    tree.file(b"blocks", &[0; 100], Quirk::Blocks);
    tree.file(b"file", b"x", Quirk::None);
    let observed = tree.observed();
    let mounted = mount(tree);
    for (nth, signal) in [Signal::TERM, Signal::KILL, Signal::USR1].into_iter().enumerate() {
        let mut cat = Command::new("cat").arg(mounted.path().join("blocks")).spawn().unwrap();
        wait_until("the read is under way", || observed.blocked.load(Ordering::Relaxed) > nth);
        kill_process(Pid::from_child(&cat), signal).unwrap();
        let killed = Instant::now();
        wait_until("the reader has ended", || cat.try_wait().unwrap().is_some());
        assert!(killed.elapsed() < DEADLINE / 4, "{signal:?} took {:?}", killed.elapsed());
    }
    assert_eq!(fs::read(mounted.path().join("file")).unwrap(), b"x");
}

#[test]
fn unmounting_ends_a_read_that_never_answers() {
    require_mount!("unmounting_ends_a_read_that_never_answers");
    let tree = MemoryTree::new();
    tree.file(b"blocks", &[0; 100], Quirk::Blocks);
    let observed = tree.observed();
    let mounted = mount(tree);
    let mut cat = Command::new("cat").arg(mounted.path().join("blocks")).spawn().unwrap();
    wait_until("the read is under way", || observed.blocked.load(Ordering::Relaxed) > 0);
    drop(mounted.session);
    wait_until("the reader has ended", || cat.try_wait().unwrap().is_some());
    assert!(!cat.wait().unwrap().success());
}

#[test]
fn a_bad_answer_costs_its_own_request_only() {
    require_mount!("a_bad_answer_costs_its_own_request_only");
    let tree = MemoryTree::new();
    for quirk in [Quirk::Drops, Quirk::Panics, Quirk::TooLong] {
        tree.file(format!("{quirk:?}").as_bytes(), &[0; 100], quirk);
    }
    tree.file(b"file", b"x", Quirk::None);
    let mounted = mount(tree);
    // More often than there are threads, so that a thread lost to one would be missed.
    for _ in 0..4 {
        for name in ["Drops", "Panics", "TooLong"] {
            let error = fs::read(mounted.path().join(name)).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()), "{name}");
        }
    }
    assert_eq!(fs::read(mounted.path().join("file")).unwrap(), b"x");
}

#[test]
fn a_name_that_is_too_long_or_missing_says_so() {
    require_mount!("a_name_that_is_too_long_or_missing_says_so");
    let mounted = mount(MemoryTree::new());
    let look = |name: &str| fs::metadata(mounted.path().join(name)).unwrap_err().raw_os_error();
    assert_eq!(look(&"n".repeat(256)), Some(Errno::NAMETOOLONG.raw_os_error()));
    assert_eq!(look(&"n".repeat(255)), Some(Errno::NOENT.raw_os_error()));
}
