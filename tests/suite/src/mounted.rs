//! A mount, and its end.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use crate::process::Server;
use crate::site::Site;
use crate::{run, wait};

/// How long an unmount is tried while something is still busy there.
const BUSY_LIMIT: Duration = Duration::from_secs(10);

/// A volume mounted by `portcullis mount --foreground`. Dropping it unmounts.
#[derive(Debug)]
pub struct Mounted {
    /// `None` once it was told to end, or where it is a bind mount.
    server: Option<Server>,
    path: PathBuf,
}

impl Mounted {
    /// Mounts the volume of `site` read-only, with further `args`.
    pub fn start(site: &Site, args: &[&str]) -> Self {
        let args = [&["-o", "ro"], args].concat();
        Self::at(site, &site.url("/"), "mnt", &args)
    }

    /// Mounts `url` at `name` in the scratch directory of `site`, with further `args`.
    pub fn at(site: &Site, url: &str, name: &str, args: &[&str]) -> Self {
        let path = site.scratch(name);
        std::fs::create_dir_all(&path).expect("a mount point");
        let mut command = Command::new(crate::binary());
        command.arg("mount").arg(url).arg(&path).arg("--identity").arg(site.identity());
        command.arg("--foreground").args(args);
        let server = Server::start(&mut command, &site.scratch(&format!("{name}.log")));
        assert_eq!(Path::new(server.ready()), path, "it says where it is mounted");
        assert!(is_mounted(&path), "it says so when it is mounted");
        Self { server: Some(server), path }
    }

    /// Shows `source` at `path` too: what a test sees there is what the kernel's own file system
    /// does.
    pub fn bind(source: &Path, path: &Path) -> Self {
        std::fs::create_dir_all(path).expect("a mount point");
        run::success(Command::new("mount").arg("--bind").arg(source).arg(path));
        Self { server: None, path: path.to_owned() }
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The process that serves it, where there is one.
    pub fn server(&self) -> Option<&Server> {
        self.server.as_ref()
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
        let start = std::time::Instant::now();
        while is_mounted(&self.path) {
            // A program that a test has killed may take a moment to let go.
            let lazily = std::thread::panicking() || start.elapsed() >= BUSY_LIMIT;
            let mut umount = Command::new("umount");
            if lazily {
                umount.arg("-l");
            }
            let _ = umount.arg(&self.path).stderr(std::process::Stdio::null()).status();
            if lazily {
                return;
            }
            wait::pause(Duration::from_millis(50));
        }
    }
}

/// Whether something is mounted at `path`.
pub fn is_mounted(path: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let path = path.to_string_lossy();
    mounts.lines().any(|line| line.split(' ').nth(4) == Some(&path))
}
