//! Attaches a connection to a directory, and takes it away again.
//!
//! A mount is known by its mount id, not by its path: unmounting takes away this mount or nothing,
//! also where somebody else unmounted it meanwhile and mounted another in its place.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use tracing::{debug, info, warn};

use crate::channel::open_device;
use crate::error::FuseError;
use crate::{fusermount, mountinfo};

/// `STATX_MNT_ID_UNIQUE` (Linux 6.8): mount ids that are never used again.
const STATX_MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// How to mount. Permission checks are always the kernel's (`default_permissions`), from the mode,
/// owner and group that the file system tells.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// What mount tables show as the source.
    pub fsname: String,
    /// What they show after `fuse.` as the type.
    pub subtype: String,
    /// Other users than the one who mounts may use it; needs root, or `user_allow_other` in
    /// `/etc/fuse.conf`.
    pub allow_other: bool,
    /// No writing.
    pub read_only: bool,
    /// Device files do not work.
    pub nodev: bool,
    /// Set-user-id bits and file capabilities do not work.
    pub nosuid: bool,
    /// Nothing can be executed.
    pub noexec: bool,
    /// Most bytes of one read, at least a page; `None`: what [`Config`](crate::Config) says.
    pub max_read_bytes: Option<u32>,
}

/// A mount; dropping it unmounts.
#[derive(Debug)]
pub struct Mount {
    mountpoint: PathBuf,
    /// The connection, until the session takes it.
    device: Option<OwnedFd>,
    /// `None` once it is gone.
    identity: Option<Identity>,
    as_root: bool,
    max_read_bytes: Option<u32>,
}

/// Which mount a path leads to.
#[derive(Clone, Copy, Debug)]
struct Identity {
    mount_id: u64,
    /// Device number of its file system.
    device: (u32, u32),
}

impl Mount {
    /// Mounts on a directory. A dead mount of the same type found there (its process was killed)
    /// is taken away first.
    ///
    /// # Errors
    /// There is no such directory, the same source is mounted there, or the kernel refuses.
    pub fn new(mountpoint: &Path, options: &MountOptions) -> Result<Self, FuseError> {
        let (mountpoint, mode) = prepare(mountpoint, options)?;
        let as_root = rustix::process::geteuid().is_root();
        let device = if as_root {
            let device = open_device()?;
            mount_as_root(&device, &mountpoint, mode, options)?;
            device
        } else {
            fusermount::mount(&mountpoint, options)?
        };
        let max_read_bytes = options.max_read_bytes;
        let device = Some(device);
        let mut mount = Self { mountpoint, device, identity: None, as_root, max_read_bytes };
        mount.identity = match identity(&mount.mountpoint) {
            Ok(identity) => Some(identity),
            Err(source) => {
                let error = FuseError::Mount { mountpoint: mount.mountpoint.clone(), source };
                return mount.detach().and(Err(error));
            }
        };
        debug!(mountpoint = %mount.mountpoint.display(), as_root, "mounted");
        Ok(mount)
    }

    /// The directory it is mounted on, absolute.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Most bytes of one read, where the mount says so.
    pub(crate) fn max_read_bytes(&self) -> Option<u32> {
        self.max_read_bytes
    }

    /// The connection, once.
    pub(crate) fn take_device(&mut self) -> Result<OwnedFd, FuseError> {
        self.device.take().ok_or_else(|| FuseError::Init("the mount has a session already".into()))
    }

    /// Unmounts; at once, also where files are open, which then give errors. Does nothing where
    /// this mount is gone already.
    ///
    /// # Errors
    /// The kernel, or `fusermount3`, refuses.
    pub fn unmount(&mut self) -> Result<(), FuseError> {
        let Some(ours) = self.identity else { return Ok(()) };
        if identity(&self.mountpoint).is_ok_and(|there| there.mount_id == ours.mount_id) {
            self.detach()?;
        }
        self.identity = None;
        Ok(())
    }

    /// Raises the kernel's readahead above the 128 KiB that INIT can only lower. Without root, or
    /// without sysfs, it stays as it is.
    pub(crate) fn raise_readahead(&self, len_bytes: u32) {
        let Some(Identity { device: (major, minor), .. }) = self.identity else { return };
        let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
        if let Err(error) = std::fs::write(&path, (len_bytes / 1024).to_string()) {
            debug!(path, %error, "the kernel's readahead stays as it is");
        }
    }

    /// Unmounts whatever is mounted there.
    fn detach(&self) -> Result<(), FuseError> {
        if !self.as_root {
            return fusermount::unmount(&self.mountpoint);
        }
        let unmount = |flags| rustix::mount::unmount(&self.mountpoint, flags);
        let unmounted = match unmount(UnmountFlags::NOFOLLOW) {
            // FORCE ends the connection, so that no program waits for an answer for ever.
            Err(Errno::BUSY) => {
                info!(mountpoint = %self.mountpoint.display(), "in use; detached with open files");
                unmount(UnmountFlags::NOFOLLOW | UnmountFlags::DETACH | UnmountFlags::FORCE)
            }
            other => other,
        };
        match unmounted {
            // EINVAL: not a mount point any more.
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
            Err(source) => Err(FuseError::Unmount { mountpoint: self.mountpoint.clone(), source }),
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            warn!(%error, "cannot unmount");
        }
    }
}

/// The absolute path of a directory that can be mounted on, and its mode.
fn prepare(asked: &Path, options: &MountOptions) -> Result<(PathBuf, u32), FuseError> {
    let refuse = |reason: String| FuseError::Mountpoint { mountpoint: asked.to_owned(), reason };
    let absolute = std::path::absolute(asked).map_err(|error| refuse(error.to_string()))?;
    let fstype = format!("fuse.{}", options.subtype);
    let look = || absolute.canonicalize().and_then(|path| Ok((path.metadata()?, path)));
    let found = match look() {
        // ENOTCONN: a mount whose process is gone.
        Err(error) if error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()) => {
            if mountinfo::top(&absolute).is_none_or(|top| top.fstype != fstype) {
                return Err(refuse("a dead mount of another kind is there; umount it".into()));
            }
            info!(mountpoint = %absolute.display(), "taking a dead mount away");
            let flags = UnmountFlags::NOFOLLOW | UnmountFlags::DETACH;
            let cleared = if rustix::process::geteuid().is_root() {
                rustix::mount::unmount(&absolute, flags)
                    .map_err(|source| FuseError::Unmount { mountpoint: absolute.clone(), source })
            } else {
                fusermount::unmount(&absolute)
            };
            cleared.map_err(|error| refuse(format!("a dead mount is there: {error}")))?;
            look()
        }
        other => other,
    };
    let (metadata, mountpoint) = found.map_err(|error| refuse(error.to_string()))?;
    if !metadata.is_dir() {
        return Err(refuse("it is not a directory".into()));
    }
    let same = |top: &mountinfo::Top| top.fstype == fstype && top.source == options.fsname;
    if mountinfo::top(&mountpoint).as_ref().is_some_and(same) {
        return Err(FuseError::AlreadyMounted { fsname: options.fsname.clone(), mountpoint });
    }
    Ok((mountpoint, metadata.mode()))
}

fn mount_as_root(
    device: &OwnedFd,
    mountpoint: &Path,
    mode: u32,
    options: &MountOptions,
) -> Result<(), FuseError> {
    let mut data = format!(
        "fd={},rootmode={:o},user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        mode & 0o170_000,
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    if let Some(max_read_bytes) = options.max_read_bytes {
        data.push_str(&format!(",max_read={max_read_bytes}"));
    }
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NODEV, options.nodev);
    flags.set(MountFlags::NOSUID, options.nosuid);
    flags.set(MountFlags::NOEXEC, options.noexec);
    let failed = |source| FuseError::Mount { mountpoint: mountpoint.to_owned(), source };
    let data = CString::new(data).map_err(|_| failed(Errno::INVAL))?;
    let fstype = format!("fuse.{}", options.subtype);
    rustix::mount::mount(&*options.fsname, mountpoint, &*fstype, flags, data.as_c_str())
        .map_err(failed)
}

/// Which mount a path leads to. Asks the kernel only, never the file system there.
fn identity(path: &Path) -> Result<Identity, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let statx = rustix::fs::statx(CWD, path, flags, StatxFlags::MNT_ID | STATX_MNT_ID_UNIQUE)?;
    Ok(Identity { mount_id: statx.stx_mnt_id, device: (statx.stx_dev_major, statx.stx_dev_minor) })
}
