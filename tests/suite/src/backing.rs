//! File systems of other kinds to export, each mounted by the test in a directory of its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::mounted::is_mounted;
use crate::{run, wait};

/// Size of the image of a file system on a loop device.
const IMAGE_BYTES: u64 = 1 << 30;

/// A mounted file system. Dropping it unmounts it.
#[derive(Debug)]
pub struct Backing {
    path: PathBuf,
    dir: TempDir,
}

impl Backing {
    /// xfs on a loop device.
    pub fn xfs() -> Self {
        Self::make(|dir, path| {
            let image = dir.join("image");
            let file = std::fs::File::create(&image).expect("an image");
            file.set_len(IMAGE_BYTES).expect("its size");
            run::success(Command::new("mkfs.xfs").arg("-q").arg(&image));
            run::success(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(path));
        })
    }

    /// Unmounts the image of [`Backing::xfs`] and mounts it again, as after a restart of the
    /// machine.
    ///
    /// # Panics
    /// Something is busy there for too long.
    pub fn mount_again(&self) {
        wait::until("nothing is busy there", || {
            let umount = Command::new("umount").arg(&self.path).status();
            umount.expect("umount(8) runs").success().then_some(())
        });
        let image = self.dir.path().join("image");
        run::success(Command::new("mount").args(["-o", "loop"]).arg(image).arg(&self.path));
    }

    /// tmpfs.
    pub fn tmpfs() -> Self {
        Self::make(|_dir, path| {
            run::success(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(path));
        })
    }

    /// overlayfs over two directories.
    pub fn overlayfs() -> Self {
        Self::make(|dir, path| {
            for name in ["lower", "upper", "work"] {
                std::fs::create_dir(dir.join(name)).expect("a directory");
            }
            let at = |name: &str| dir.join(name).display().to_string();
            let dirs =
                format!("lowerdir={},upperdir={},workdir={}", at("lower"), at("upper"), at("work"));
            let mut mount = Command::new("mount");
            run::success(mount.args(["-t", "overlay", "none", "-o", &dirs]).arg(path));
        })
    }

    /// A FUSE file system: bindfs over a directory. The kernel may have no handles for its files,
    /// and fanotify sees nothing of what changes behind it. Its kernel keeps nothing, so what it
    /// shows is what is there.
    pub fn bindfs() -> Self {
        Self::make(|dir, path| {
            std::fs::create_dir(dir.join("source")).expect("a directory");
            let mut bindfs = Command::new("bindfs");
            bindfs.args(["-o", "attr_timeout=0,entry_timeout=0,negative_timeout=0"]);
            run::success(bindfs.arg(dir.join("source")).arg(path));
        })
    }

    fn make(mount: impl FnOnce(&Path, &Path)) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("mounted");
        std::fs::create_dir(&path).expect("a mount point");
        mount(dir.path(), &path);
        let backing = Self { path, dir };
        assert!(is_mounted(backing.path()), "it is mounted");
        backing
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory that holds what it needs, for names of the test's own.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        let start = Instant::now();
        while is_mounted(&self.path) {
            let lazily = start.elapsed() >= Duration::from_secs(10);
            let mut umount = Command::new("umount");
            if lazily {
                umount.arg("-l");
            }
            let _ = umount.arg(&self.path).stderr(std::process::Stdio::null()).status();
            wait::pause(Duration::from_millis(50));
            if lazily {
                return;
            }
        }
    }
}
