//! Reading extended attributes of any kind of file.
//!
//! The descriptors we have are `O_PATH`, which fgetxattr(2) refuses. The path of such a descriptor
//! in `/proc` leads to exactly its file, to a symbolic link itself where it is one, and opens
//! nothing.

use std::os::fd::BorrowedFd;

use portcullis_core::Status;
use portcullis_core::limits::{XATTR_LEN_BYTES_MAX, XATTR_NAME_LEN_MAX};
use portcullis_wire::message::Failure;
use rustix::buffer::spare_capacity;
use rustix::fs;
use rustix::io::Errno;

use crate::error::failure;
use crate::export::proc_path;

/// Room tried first; nearly every value fits.
const LEN_BYTES_USUAL: usize = 512;

/// The value of the attribute `name`.
pub(crate) fn getxattr(file: BorrowedFd<'_>, name: &[u8]) -> Result<Vec<u8>, Failure> {
    if name.is_empty() || name.contains(&0) {
        let detail = "the name of an attribute is not empty and has no NUL";
        return Err(Failure::new(Status::InvalidArgument, detail));
    }
    if name.len() > XATTR_NAME_LEN_MAX {
        return Err(Failure::new(Status::Range, "the name of an attribute has at most 255 bytes"));
    }
    let path = proc_path(file);
    read(|value| fs::getxattr(&path, name, spare_capacity(value)))
}

/// The names of all attributes, each ended by NUL.
pub(crate) fn listxattr(file: BorrowedFd<'_>) -> Result<Vec<u8>, Failure> {
    let path = proc_path(file);
    read(|names| fs::listxattr(&path, spare_capacity(names)))
}

fn read(ask: impl Fn(&mut Vec<u8>) -> Result<usize, Errno>) -> Result<Vec<u8>, Failure> {
    let mut value = Vec::with_capacity(LEN_BYTES_USUAL);
    let mut asked = ask(&mut value);
    if asked == Err(Errno::RANGE) {
        value = Vec::with_capacity(XATTR_LEN_BYTES_MAX);
        asked = ask(&mut value);
    }
    match asked {
        Ok(_) => Ok(value),
        // More than the kernel itself passes on.
        Err(Errno::TOOBIG) => Err(Status::Range.into()),
        Err(error) => Err(failure(error)),
    }
}
