//! Real mounts of an in-memory tree.
//!
//! Every test here needs FUSE and root; where they are missing it says `skipped: NAME: ...` on
//! stdout and passes. Dropping the session unmounts, also when a test fails.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod attributes;
mod lifecycle;
mod listing;
mod locks;
mod memory;
mod names;
mod notifications;
mod tree;
mod trouble;
mod writing;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use memory::MemoryTree;
use portcullis_fuse::{Config, Invalidation, Mount, MountOptions, Session};
use tempfile::TempDir;

/// How long anything that has to happen may take.
const DEADLINE: Duration = Duration::from_secs(60);

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
        max_read_bytes: None,
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

/// A mount to write to, whose locks are the tree's and whose pages stay until they are told off.
fn mount_writable(tree: &MemoryTree) -> Mounted {
    mount_with(tree, |_, _| {})
}

/// The same with other choices.
fn mount_with(tree: &MemoryTree, choose: impl FnOnce(&mut MountOptions, &mut Config)) -> Mounted {
    let dir = tempfile::tempdir().unwrap();
    let mut options = MountOptions { read_only: false, nodev: false, nosuid: false, ..options() };
    let mut config =
        Config { locks: true, invalidation: Invalidation::Explicit, ..Config::default() };
    choose(&mut options, &mut config);
    let mount = Mount::new(dir.path(), &options).expect("the mount");
    let session = Session::start(mount, tree.clone(), &config).expect("the session");
    Mounted { session, dir }
}

/// Runs a shell script in the mount; what it printed.
fn sh(mounted: &Mounted, script: &str) -> String {
    let output =
        Command::new("sh").args(["-ec", script]).current_dir(mounted.path()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
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
