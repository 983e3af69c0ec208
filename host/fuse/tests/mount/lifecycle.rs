//! Mounts come and go cleanly, also when something is in the way.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use portcullis_fuse::{FuseError, Mount};

use crate::memory::{MemoryTree, Quirk};
use crate::{DEADLINE, is_mounted, mount, options, require_mount, start, wait_until};

const MOUNTPOINT_VARIABLE: &str = "PORTCULLIS_TEST_MOUNTPOINT";

fn tree_with_a_file() -> MemoryTree {
    let tree = MemoryTree::new();
    tree.file(b"file", &vec![7; 3 << 20], Quirk::None);
    tree
}

#[test]
fn an_unmount_from_outside_ends_the_session() {
    require_mount!("an_unmount_from_outside_ends_the_session");
    let tree = tree_with_a_file();
    let observed = tree.observed();
    let mut mounted = mount(tree);
    assert!(fs::metadata(mounted.path().join("file")).unwrap().is_file());
    assert!(Command::new("umount").arg(mounted.path()).status().unwrap().success());
    assert!(mounted.session.wait(DEADLINE));
    assert_eq!(observed.destroyed.load(Ordering::Relaxed), 1);
    // Once more does nothing, twice as well.
    mounted.session.unmount().unwrap();
    mounted.session.unmount().unwrap();
}

#[test]
fn unmounting_leaves_a_mount_alone_that_others_put_in_its_place() {
    require_mount!("unmounting_leaves_a_mount_alone_that_others_put_in_its_place");
    let mut first = mount(tree_with_a_file());
    let path = first.path().to_owned();
    assert!(Command::new("umount").arg(&path).status().unwrap().success());
    let second = start(tree_with_a_file(), &path);
    first.session.unmount().unwrap();
    assert!(is_mounted(&path));
    drop(second);
    assert!(!is_mounted(&path));
}

#[test]
fn dropping_a_session_in_use_does_not_wait_for_its_users() {
    require_mount!("dropping_a_session_in_use_does_not_wait_for_its_users");
    let tree = tree_with_a_file();
    let observed = tree.observed();
    let mounted = mount(tree);
    let path = mounted.path().to_owned();
    let mut file = fs::File::open(path.join("file")).unwrap();
    file.read_exact(&mut [0; 10]).unwrap();
    drop(mounted.session);
    assert!(!is_mounted(&path));
    assert_eq!(observed.destroyed.load(Ordering::Relaxed), 1, "the threads have ended");
    // Beyond what was read ahead, the file gives errors, not silence.
    file.read_to_end(&mut Vec::new()).unwrap_err();
}

#[test]
fn readahead_is_as_large_as_asked_for() {
    require_mount!("readahead_is_as_large_as_asked_for");
    let mounted = mount(tree_with_a_file());
    let dev = fs::metadata(mounted.path()).unwrap().dev();
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let kb = fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb")).unwrap();
    assert_eq!(kb.trim(), "1024");
}

#[test]
fn a_second_mount_of_the_same_source_says_so() {
    require_mount!("a_second_mount_of_the_same_source_says_so");
    let mounted = mount(tree_with_a_file());
    let second = Mount::new(mounted.path(), &options());
    assert!(matches!(second, Err(FuseError::AlreadyMounted { .. })), "{second:?}");
}

#[test]
fn a_mount_point_that_is_no_directory_is_named() {
    require_mount!("a_mount_point_that_is_no_directory_is_named");
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), b"").unwrap();
    for name in ["file", "missing"] {
        let error = Mount::new(&dir.path().join(name), &options()).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
}

/// Not a test of its own: the process that `a_dead_mount_is_replaced` kills.
#[test]
fn child_that_is_killed() {
    let Some(mountpoint) = std::env::var_os(MOUNTPOINT_VARIABLE) else { return };
    let session = start(tree_with_a_file(), mountpoint.as_ref());
    println!("\nmounted");
    session.wait(Duration::from_secs(3600));
}

#[test]
fn a_dead_mount_is_replaced() {
    require_mount!("a_dead_mount_is_replaced");
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lifecycle::child_that_is_killed", "--nocapture"])
        .env(MOUNTPOINT_VARIABLE, dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "mounted"));
    child.kill().unwrap();
    child.wait().unwrap();
    let dead = || fs::metadata(dir.path()).is_err_and(|e| e.raw_os_error() == Some(107));
    wait_until("the mount is dead", dead);
    let session = start(tree_with_a_file(), dir.path());
    assert!(fs::metadata(dir.path().join("file")).unwrap().is_file());
    drop(session);
    assert!(!is_mounted(dir.path()));
}

#[test]
fn references_are_returned_to_the_last_one() {
    require_mount!("references_are_returned_to_the_last_one");
    let tree = MemoryTree::new().with_ttl(Duration::ZERO);
    tree.file(b"changing", b"", Quirk::Changes);
    let observed = tree.observed();
    let mounted = mount(tree);
    // Each look finds another file under the name, so the kernel forgets the one before.
    for _ in 0..50 {
        fs::metadata(mounted.path().join("changing")).unwrap();
        assert_eq!(fs::read_dir(mounted.path()).unwrap().count(), 1);
    }
    wait_until("all but the last are forgotten", || observed.references.lock().unwrap().len() <= 1);
}
