//! Real mounts of an in-memory tree.
//!
//! Every test here needs FUSE and root; where they are missing it says `skipped: NAME: ...` on
//! stdout and passes. Dropping the session unmounts, also when a test fails.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod lifecycle;
mod listing;
mod memory;
mod tree;
mod trouble;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use memory::MemoryTree;
use portcullis_fuse::{Config, Mount, MountOptions, Session};
use tempfile::TempDir;

/// How long anything that has to happen may take.
const DEADLINE: Duration = Duration::from_secs(20);

/// A mounted tree in a directory of its own.
struct Mounted {
    session: Session,
    dir: TempDir,
}

impl Mounted {
    fn path(&self) -> &Path {
        self.session.mountpoint()
    }
}

fn options() -> MountOptions {
    MountOptions {
        fsname: "memory".to_owned(),
        subtype: "portcullis".to_owned(),
        allow_other: true,
        read_only: true,
        nodev: true,
        nosuid: true,
        noexec: false,
    }
}

fn start(tree: MemoryTree, at: &Path) -> Session {
    let mount = Mount::new(at, &options()).expect("the mount");
    Session::start(mount, tree, &Config::default()).expect("the session")
}

fn mount(tree: MemoryTree) -> Mounted {
    let dir = tempfile::tempdir().unwrap();
    Mounted { session: start(tree, dir.path()), dir }
}

/// Whether the test `name` can run here; says so where it cannot.
fn can_mount(name: &str) -> bool {
    let device = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let can = rustix::process::geteuid().is_root() && device.is_ok();
    if !can {
        // Written past the test harness, which keeps what a passing test prints.
        let line = format!("skipped: {name}: needs FUSE and root\n");
        std::io::stdout().write_all(line.as_bytes()).expect("stdout is there");
    }
    can
}

/// Skips the test that it stands in.
macro_rules! require_mount {
    ($name:literal) => {
        if !crate::can_mount($name) {
            return;
        }
    };
}
use require_mount;

/// Waits until `condition` holds.
#[allow(clippy::disallowed_methods, reason = "the pause between two looks, up to a deadline")]
fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < until, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn is_mounted(path: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4) == path.to_str())
}
