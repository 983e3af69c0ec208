//! A directory of the brick's own with many entries that are named at random, in 256 parts: a
//! directory of millions is slow on some file systems.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, Result};

use super::member::{make_dir, open_dir};

/// The entries, each in the part that a byte of its name says.
pub(crate) struct Shelves(OwnedFd);

impl Shelves {
    /// Those in the directory `name` of `dir`, which is made where there is none.
    pub(super) fn open(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Self> {
        make_dir(dir, name)?;
        open_dir(dir, name).map(Self)
    }

    /// The directory of all parts.
    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// The path of an entry, from [`Shelves::dir`].
    pub(crate) fn path(part: u8, name: &str) -> String {
        format!("{part:02x}/{name}")
    }

    /// A part, which is made where it is not there.
    pub(crate) fn part(&self, part: u8) -> Result<OwnedFd> {
        let name = format!("{part:02x}");
        match open_dir(self.dir(), name.as_bytes()) {
            Err(Errno::NOENT) => {}
            opened => return opened,
        }
        make_dir(self.dir(), name.as_bytes())?;
        open_dir(self.dir(), name.as_bytes())
    }
}
