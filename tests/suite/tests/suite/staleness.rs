//! How old an answer may be.

use std::time::{Duration, Instant};

use portcullis_suite::mounted::Mounted;
use portcullis_suite::site::Site;
use portcullis_suite::{find, need, tree, wait};

/// S-STALE-1.
#[test]
fn a_change_is_seen_once_max_age_is_over() {
    let dir = tempfile::tempdir().expect("a directory");
    tree::small(dir.path());
    let site = Site::start(dir.path(), &["--max-age", "2s"]);
    let before = find::through(&site, "/", find::EVERYTHING);
    assert_eq!(site.run("stat", "/new", &[]).status.code(), Some(1), "there is no such name yet");
    std::fs::write(dir.path().join("new"), "new").expect("a file");
    std::fs::write(dir.path().join("a/one"), "longer than before").expect("a file");
    std::fs::remove_file(dir.path().join("top")).expect("it was there");
    let local = find::local(dir.path(), find::EVERYTHING);
    let start = Instant::now();
    wait::until("the change", || {
        (find::through(&site, "/", find::EVERYTHING) == local).then_some(())
    });
    let later = start.elapsed();
    assert_ne!(before, local);
    assert!(later < Duration::from_secs(20), "it took {later:?}");
    assert_eq!(site.stdout("cat", "/new", &[]), b"new", "the negative entry aged too");
}

#[test]
fn a_mount_sees_a_change_once_max_age_is_over() {
    if !need::fuse_and_root("a_mount_sees_a_change_once_max_age_is_over") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    tree::small(dir.path());
    let site = Site::start(dir.path(), &["--max-age", "1s"]);
    let mounted = Mounted::start(&site, &[]);
    let before = find::local(mounted.path(), find::EVERYTHING);
    std::fs::write(dir.path().join("a/one"), "longer than before").expect("a file");
    std::fs::write(dir.path().join("a/new"), "new").expect("a file");
    let local = find::local(dir.path(), find::EVERYTHING);
    let after = wait::until("the change", || {
        let seen = find::local(mounted.path(), find::EVERYTHING);
        (seen == local).then_some(seen)
    });
    assert_ne!(before, after);
    let read = std::fs::read(mounted.path().join("a/one")).expect("it reads");
    assert_eq!(read, b"longer than before", "the kernel's pages are not older than its attributes");
    mounted.unmount();
}
