//! Why a mount or a session cannot be had. Each message says what to do.

use std::path::PathBuf;

use rustix::io::Errno;
use thiserror::Error;

use crate::abi;

/// A mount or session that does not come about.
#[derive(Debug, Error)]
pub enum FuseError {
    /// `/dev/fuse` cannot be opened.
    #[error("cannot open /dev/fuse: {0}; is the fuse module loaded, and may this user open it?")]
    Device(#[source] Errno),
    /// The mount point is missing or not a directory.
    #[error("cannot mount on {mountpoint}: {reason}")]
    Mountpoint {
        /// The directory asked for.
        mountpoint: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The same source is mounted there already.
    #[error("{fsname} is already mounted on {mountpoint}")]
    AlreadyMounted {
        /// What is mounted.
        fsname: String,
        /// Where.
        mountpoint: PathBuf,
    },
    /// mount(2) failed.
    #[error("mount(2) on {mountpoint} failed: {source}")]
    Mount {
        /// The directory asked for.
        mountpoint: PathBuf,
        /// What the kernel said.
        source: Errno,
    },
    /// umount2(2) failed.
    #[error("umount(2) of {mountpoint} failed: {source}")]
    Unmount {
        /// The mount point.
        mountpoint: PathBuf,
        /// What the kernel said.
        source: Errno,
    },
    /// `fusermount3` is not there.
    #[error(
        "mounting without root needs the program fusermount3, which is not in PATH, /usr/bin or \
         /bin: install the package fuse3, or mount as root"
    )]
    FusermountMissing,
    /// `fusermount3` failed.
    #[error("fusermount3 failed: {0}")]
    Fusermount(String),
    /// The kernel speaks another FUSE protocol.
    #[error(
        "the kernel speaks FUSE {major}.{minor}, this program {}.{} to {}.x (Linux 4.20 or newer)",
        abi::KERNEL_VERSION,
        abi::KERNEL_MINOR_VERSION_MIN,
        abi::KERNEL_VERSION
    )]
    Version {
        /// The kernel's major version.
        major: u32,
        /// The kernel's minor version.
        minor: u32,
    },
    /// The first request was not INIT, or the mount went away meanwhile.
    #[error("the kernel did not start the session: {0}")]
    Init(String),
    /// A system call on the connection or for its threads failed.
    #[error("{action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}
