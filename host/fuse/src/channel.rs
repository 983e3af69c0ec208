//! One descriptor of a connection: reads requests, writes replies.
//!
//! A connection has one descriptor a reading thread (`FUSE_DEV_IOC_CLONE`), so threads do not
//! contend for one queue of requests under way. The kernel finds the request of a reply only on
//! the descriptor that the request was read from, so a reply token keeps that descriptor.

use std::io::IoSlice;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::abi::{DEV_IOC_CLONE, OutHeader};
use crate::error::FuseError;

/// Parts of one reply beyond which they are joined before writing; IOV_MAX is 1024.
const PARTS_MAX: usize = 1000;

#[derive(Debug)]
pub(crate) struct Channel {
    fd: OwnedFd,
}

impl Channel {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// Another descriptor of the same connection.
    pub(crate) fn duplicate(&self) -> Result<Self, FuseError> {
        use std::os::fd::AsRawFd;
        let fd = open_device()?;
        // The kernel takes the number of the other descriptor as a u32.
        let source = self.fd.as_raw_fd() as u32;
        // SAFETY: FUSE_DEV_IOC_CLONE reads one u32 through its pointer, which is what `Setter`
        // passes: the opcode is for a u32 and `source` is one; it lives until ioctl returns.
        let cloned = unsafe {
            rustix::ioctl::ioctl(&fd, rustix::ioctl::Setter::<DEV_IOC_CLONE, u32>::new(source))
        };
        cloned.map_err(|errno| FuseError::System {
            action: "cloning the fuse descriptor",
            source: errno.into(),
        })?;
        Ok(Self { fd })
    }

    /// Waits for the next request. ENODEV: the mount is gone.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        loop {
            match rustix::io::read(&self.fd, &mut *buffer) {
                // ENOENT: the request was interrupted before we had it whole.
                Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
                other => return other,
            }
        }
    }

    /// Writes one reply, or with `unique` 0 the notification `error`. ENOENT: the kernel does not
    /// wait for it any more, or knows no such file.
    pub(crate) fn send(&self, unique: u64, error: i32, parts: &[&[u8]]) -> Result<(), Errno> {
        let body_len: usize = parts.iter().map(|part| part.len()).sum();
        let header = OutHeader { len: (size_of::<OutHeader>() + body_len) as u32, error, unique };
        let joined;
        let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(2.min(parts.len()) + 1);
        slices.push(IoSlice::new(header.as_bytes()));
        if parts.len() > PARTS_MAX {
            joined = parts.concat();
            slices.push(IoSlice::new(&joined));
        } else {
            slices.extend(parts.iter().map(|part| IoSlice::new(part)));
        }
        loop {
            match rustix::io::writev(&self.fd, &slices) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

/// Opens `/dev/fuse`.
pub(crate) fn open_device() -> Result<OwnedFd, FuseError> {
    rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(FuseError::Device)
}
