//! The copies of spread directories: each a directory of its own in a flat store, so that a rename of
//! a directory moves no copy, and making one needs no other.
//!
//! A copy is made aside and put in its place when it is as it is to be. What must hold: a copy that
//! is found has the owner, mode and access control lists of its directory; what lies in a copy is
//! never lost with it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use portcullis_core::volume::{CopyAttr, DirId};
use portcullis_wire::message::Caller;
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, RawDir, Uid, XattrFlags, chmodat, chownat, mkdirat, removexattr,
    renameat, setxattr, unlinkat,
};
use rustix::io::{Errno, Result};
use tracing::{info, warn};

use super::cards::{Card, Cards};
use super::member::{make_dir, open_dir};
use super::shelves::Shelves;
use crate::attr::stat;
use crate::caller::as_caller;
use crate::export::proc_path;
use crate::xattr;

/// Access control lists, as extended attributes.
pub(crate) const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
pub(crate) const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

/// The copies of one brick.
pub(crate) struct Copies {
    shelves: Shelves,
    /// Where they are made.
    new: OwnedFd,
}

impl Copies {
    /// Those in the hidden directory `dir`. What was just being made when the brick ended goes.
    pub(super) fn open(dir: BorrowedFd<'_>) -> Result<Self> {
        let shelves = Shelves::open(dir, b"dirs")?;
        make_dir(dir, b"new")?;
        let new = open_dir(dir, b"new")?;
        // Callers make directories here, by a descriptor: nobody else can come this far.
        chmodat(dir, "new", Mode::from_raw_mode(0o777), AtFlags::empty())?;
        let left = clear(&new).inspect_err(|error| warn!(%error, "left-overs cannot be removed"));
        if left.is_ok_and(|left| left > 0) {
            info!("what was just being made is removed");
        }
        Ok(Self { shelves, new })
    }

    /// An `O_PATH` descriptor of a copy; `NOENT` where there is none.
    pub(crate) fn open_copy(&self, id: &DirId) -> Result<OwnedFd> {
        open_dir(self.shelves.dir(), path(id).as_bytes())
    }

    /// Makes the copy of a new directory, with owner, mode and lists as the kernel gives them to a
    /// directory that `caller` makes in `parent`. Whether the caller may make one there is not asked.
    pub(crate) fn make_in(
        &self,
        id: &DirId,
        parent: BorrowedFd<'_>,
        caller: &Caller,
        mode: Mode,
    ) -> Result<()> {
        let name = id.to_string();
        let likeness = self.like(parent, &name)?;
        let made = likeness.as_ref().map_or(self.new.as_fd(), |likeness| likeness.as_fd());
        let make = || as_caller(caller, || mkdirat(made, &name, mode));
        let done = make().and_then(|()| self.place(made, &name, id));
        if likeness.is_some() {
            let _ = unlinkat(&self.new, like_name(&name), AtFlags::REMOVEDIR);
        }
        done
    }

    /// Makes a copy that is like this, with its card, unless there is one.
    pub(crate) fn make(&self, id: &DirId, attr: &CopyAttr, cards: Cards) -> Result<()> {
        let name = id.to_string();
        match mkdirat(&self.new, &name, Mode::RWXU) {
            // Somebody is at it, or a last try came to grief.
            Err(Errno::EXIST) => {}
            made => made?,
        }
        let fd = open_dir(self.new.as_fd(), name.as_bytes())?;
        give(fd.as_fd(), attr)?;
        cards.write(fd.as_fd(), &Card { version: attr.version, ..Card::default() })?;
        match self.place(self.new.as_fd(), &name, id) {
            Err(Errno::EXIST | Errno::NOTEMPTY) => {
                unlinkat(&self.new, &name, AtFlags::REMOVEDIR).or_else(gone_is_fine)
            }
            placed => placed,
        }
    }

    /// Where things are made that are put in their place when they are whole.
    pub(super) fn new_dir(&self) -> BorrowedFd<'_> {
        self.new.as_fd()
    }

    /// Removes an empty copy; none is fine. `NOTEMPTY` where there is anything in it.
    pub(crate) fn remove(&self, id: &DirId) -> Result<()> {
        unlinkat(self.shelves.dir(), path(id), AtFlags::REMOVEDIR).or_else(gone_is_fine)
    }

    /// Puts a copy that is removed and has files, which no program made through Portcullis, where an
    /// administrator finds them: in `lost` of the hidden directory `dir`.
    pub(crate) fn lose(&self, dir: BorrowedFd<'_>, id: &DirId) -> Result<()> {
        make_dir(dir, b"lost")?;
        let lost = open_dir(dir, b"lost")?;
        renameat(self.shelves.dir(), path(id), &lost, id.to_string())
    }

    fn place(&self, from: BorrowedFd<'_>, name: &str, id: &DirId) -> Result<()> {
        let part = self.shelves.part(part(id))?;
        renameat(from, name, &part, name)
    }

    /// A directory in which a new one comes out as in `parent`; `None` where it does so in any.
    fn like(&self, parent: BorrowedFd<'_>, name: &str) -> Result<Option<OwnedFd>> {
        let attr = stat(parent)?.attr();
        let hands_down_group = attr.mode & libc::S_ISGID != 0;
        let list = xattr::getxattr(parent, ACL_DEFAULT).ok();
        if !hands_down_group && list.is_none() {
            return Ok(None);
        }
        let name = like_name(name);
        mkdirat(&self.new, &name, Mode::RWXU)?;
        let fd = open_dir(self.new.as_fd(), name.as_bytes())?;
        let like = CopyAttr {
            mode: 0o777 | (attr.mode & libc::S_ISGID),
            uid: stat(self.new.as_fd())?.attr().uid,
            gid: attr.gid,
            acl_default: list,
            ..CopyAttr::default()
        };
        give(fd.as_fd(), &like)?;
        Ok(Some(fd))
    }
}

/// Which part a copy lies in, by the first of the random bytes of its id.
fn part(id: &DirId) -> u8 {
    id.as_bytes()[2]
}

fn path(id: &DirId) -> String {
    Shelves::path(part(id), &id.to_string())
}

fn like_name(name: &str) -> String {
    format!("{name}.like")
}

fn gone_is_fine(error: Errno) -> Result<()> {
    if error == Errno::NOENT { Ok(()) } else { Err(error) }
}

/// Makes a directory be like this: owner first, since giving it away clears bits of the mode.
pub(crate) fn give(dir: BorrowedFd<'_>, attr: &CopyAttr) -> Result<()> {
    let CopyAttr { mode, uid, gid, acl_access, acl_default, version: _ } = attr;
    let now = stat(dir)?.attr();
    if (now.uid, now.gid) != (*uid, *gid) {
        let (uid, gid) = (Uid::from_raw(*uid), Gid::from_raw(*gid));
        chownat(dir, c"", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
    }
    let path = proc_path(dir);
    chmodat(CWD, &path, Mode::from_raw_mode(mode & 0o7777), AtFlags::empty())?;
    for (name, list) in [(ACL_ACCESS, acl_access), (ACL_DEFAULT, acl_default)] {
        match list {
            Some(list) => setxattr(&path, name, list, XattrFlags::empty())?,
            None => match removexattr(&path, name) {
                Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                removed => removed?,
            },
        }
    }
    Ok(())
}

/// What copies of a directory are to be like, by its copy at home.
pub(crate) fn like(home: BorrowedFd<'_>, version: u64) -> Result<CopyAttr> {
    let attr = stat(home)?.attr();
    let list = |name: &[u8]| xattr::getxattr(home, name).ok();
    Ok(CopyAttr {
        mode: attr.mode & 0o7777,
        uid: attr.uid,
        gid: attr.gid,
        acl_access: list(ACL_ACCESS),
        acl_default: list(ACL_DEFAULT),
        version,
    })
}

/// Removes all that is in a directory that nobody uses; answers how much that was.
fn clear(dir: &OwnedFd) -> Result<usize> {
    let list = rustix::fs::openat(
        dir,
        c".",
        rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mut buffer = Vec::with_capacity(32 * 1024);
    let mut names = RawDir::new(&list, buffer.spare_capacity_mut());
    let mut left: Vec<Vec<u8>> = Vec::new();
    while let Some(entry) = names.next() {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            left.push(name);
        }
    }
    for name in &left {
        match open_dir(dir.as_fd(), name) {
            Ok(inner) => {
                clear(&inner)?;
                unlinkat(dir, &name[..], AtFlags::REMOVEDIR)?;
            }
            Err(Errno::NOTDIR | Errno::LOOP) => unlinkat(dir, &name[..], AtFlags::empty())?,
            Err(error) => return Err(error),
        }
    }
    Ok(left.len())
}
