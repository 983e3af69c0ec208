//! A mount, and its end.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use crate::process::Server;
use crate::site::Site;

/// A volume mounted by `portcullis mount --foreground`. Dropping it unmounts.
#[derive(Debug)]
pub struct Mounted {
    /// `None` once it was told to end.
    server: Option<Server>,
    path: PathBuf,
}

impl Mounted {
    /// Mounts the volume of `site`, with further `args`.
    pub fn start(site: &Site, args: &[&str]) -> Self {
        let path = site.scratch("mnt");
        std::fs::create_dir_all(&path).expect("a mount point");
        let mut command = site.command("mount", "/");
        command.arg(&path).args(["--foreground", "-o", "ro"]).args(args);
        let server = Server::start(&mut command, &site.scratch("mount.log"));
        assert_eq!(Path::new(server.ready()), path, "it says where it is mounted");
        assert!(is_mounted(&path), "it says so when it is mounted");
        Self { server: Some(server), path }
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Unmounts with umount(8) and waits for the end of the process.
    ///
    /// # Panics
    /// It cannot be unmounted, or the process does not end well.
    pub fn unmount(mut self) {
        let umount = Command::new("umount").arg(&self.path).status().expect("umount(8) runs");
        assert!(umount.success(), "umount: {umount}");
        let server = self.server.take().expect("it was not told to end");
        assert_eq!(server.wait().code(), Some(0), "the end of the mount");
    }

    /// Sends SIGTERM to the mount's process and tells how it ended.
    pub fn terminate(mut self) -> ExitStatus {
        let server = self.server.take().expect("it was not told to end");
        server.terminate();
        server.wait()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if is_mounted(&self.path) {
            // Lazily: a test that failed may have files open.
            let _ = Command::new("umount").arg("-l").arg(&self.path).status();
        }
    }
}

/// Whether something is mounted at `path`.
pub fn is_mounted(path: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let path = path.to_string_lossy();
    mounts.lines().any(|line| line.split(' ').nth(4) == Some(&path))
}
