//! Directories that are spread over the members of a volume, and what the brick tells differently
//! because it is a member of one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use portcullis_core::volume::{DirId, KIND_SPREAD, Named, Pointer};
use portcullis_core::{Attr, Entry, FileKind, Handle, Status};
use portcullis_wire::message::Failure;
use rustix::fs::readlinkat;
use rustix::io::Errno;

use super::identity::seal_own_by;
use super::{Directory, Handles, Object};
use crate::attr::stat;
use crate::error::failure;
use crate::volume::Member;

/// Bits of an inode number below those that say which member it is of.
const INO_BITS: u32 = 56;

/// The brick's part of a volume.
pub(super) struct Joined {
    member: Arc<Member>,
    /// The handle of the root.
    pub(super) root: Handle,
}

impl Handles {
    /// From now on the brick is this part of a volume. Once only; later calls change nothing.
    pub(crate) fn join(&self, member: Arc<Member>) -> Result<(), Errno> {
        let root = match member.root() {
            Some(root) if member.has_root() => *root,
            // Another member's is the volume's. This one is told to nobody but gateways.
            _ => {
                let kernel = self.kernel_handle(self.export.root())?;
                let (method, stat) = (self.method, self.export.stat());
                let seal = |parts: &[&[u8]]| self.seal_for(Some(member.number()), parts);
                seal_own_by(seal, method, kernel, stat)?
            }
        };
        // Whoever was faster has looked at the same file.
        let _ = self.joined.set(Joined { member, root });
        Ok(())
    }

    /// Which part of a volume the brick is.
    pub(crate) fn member(&self) -> Option<&Arc<Member>> {
        self.joined.get().map(|joined| &joined.member)
    }

    /// A key for pointers, of this export alone.
    pub(crate) fn tag(&self, bytes: &[u8]) -> u64 {
        self.key.tag(bytes)
    }

    /// The copy of a spread directory; `None` where the handle is another.
    pub(super) fn spread(&self, handle: &Handle) -> Option<Result<Object, Failure>> {
        let &[KIND_SPREAD, ..] = handle.as_bytes() else { return None };
        let member = self.member()?;
        let Some(id) = DirId::of_handle(handle) else {
            return Some(Err(Status::BadHandle.into()));
        };
        let opened = self.open_copy(member, &id);
        Some(opened.and_then(|fd| Ok(Object { stat: stat(fd.as_fd()).map_err(failure)?, fd })))
    }

    /// An `O_PATH` descriptor of the copy of a spread directory.
    pub(crate) fn open_copy(&self, member: &Member, id: &DirId) -> Result<OwnedFd, Failure> {
        if member.has_root() && Some(&id.handle()) == member.root() {
            return self.export.open_root().map_err(failure);
        }
        if !id.members().contains(member.number()) {
            return Err(Failure::new(Status::Stale, "a directory that has no copy on this brick"));
        }
        member.copies().open_copy(id).map_err(|error| match error {
            Errno::NOENT if id.home() == member.number() => Status::Stale.into(),
            Errno::NOENT => Status::NoCopy.into(),
            _ => failure(error),
        })
    }

    /// The attributes of a file as they are told: numbers of inodes are unique in a volume, and a
    /// spread directory, whose subdirectories nobody counts, has one link (so do directories of
    /// btrfs). Attributes told already come out as they are.
    pub(crate) fn told(&self, handle: &Handle, attr: Attr) -> Attr {
        let Some(member) = self.member() else { return attr };
        match *handle.as_bytes() {
            [KIND_SPREAD, ..] => Attr { ino: ino_of(handle), nlink: 1, ..attr },
            _ if member.number() == 0 => attr,
            _ => {
                let low = attr.ino & ((1 << INO_BITS) - 1);
                Attr { ino: low | u64::from(member.number()) << INO_BITS, ..attr }
            }
        }
    }

    /// The handle by which the kernel's events tell of the file of a descriptor.
    pub(crate) fn handle_in_events(&self, fd: BorrowedFd<'_>) -> Option<Handle> {
        let stat = stat(fd).ok()?;
        self.handle_of(fd, &stat).ok()
    }

    /// What a symbolic link with this target stands for, where it is a pointer.
    pub(crate) fn pointer_in(&self, target: &[u8]) -> Option<Pointer> {
        self.member()?;
        Member::pointer_in(target, |bytes| self.tag(bytes))
    }

    /// The pointer that a symbolic link is; `None` for any other file.
    pub(crate) fn pointer_of(&self, file: BorrowedFd<'_>) -> Result<Option<Pointer>, Errno> {
        if self.member().is_none() {
            return Ok(None);
        }
        match readlinkat(file, c"", Vec::new()) {
            Ok(target) => Ok(self.pointer_in(target.as_bytes())),
            // No symbolic link.
            Err(Errno::NOENT | Errno::INVAL) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The pointer that `name` is, if it is one. Without the rest of an entry: a listing of many
    /// directories is that much quicker.
    pub(crate) fn pointer_by_name(&self, dir: &Directory, name: &[u8]) -> Option<Pointer> {
        self.member()?;
        let target = readlinkat(&dir.fd, name, Vec::new()).ok()?;
        self.pointer_in(target.as_bytes())
    }

    /// The entry of a pointer: with attributes where they are this brick's to tell. `before` is called
    /// with the handle and a descriptor of what is told of, before it is examined.
    pub(crate) fn pointer_entry(
        &self,
        pointer: &Pointer,
        before: impl FnOnce(&Handle, BorrowedFd<'_>),
    ) -> Entry {
        let named = Named::Pointer(*pointer);
        let handle = named.handle();
        let unread = Entry { handle, attr: None, kind: named.kind(), target: None };
        let Some(member) = self.member() else { return unread };
        if pointer.home() != member.number() {
            return unread;
        }
        let Ok(object) = self.object(&handle) else { return unread };
        before(&handle, object.fd.as_fd());
        let Ok(stat) = stat(object.fd.as_fd()) else { return unread };
        let kind = stat.kind();
        let target = match kind {
            FileKind::Symlink => {
                readlinkat(&object.fd, c"", Vec::new()).ok().map(|target| target.into_bytes())
            }
            _ => None,
        };
        Entry { attr: Some(self.told(&handle, stat.attr())), kind, target, ..unread }
    }
}

/// The inode number of a spread directory: as good as random, so as good as unique.
fn ino_of(handle: &Handle) -> u64 {
    use std::hash::Hasher;
    let mut hasher = siphasher::sip::SipHasher13::new();
    hasher.write(handle.as_bytes());
    // 0 is no inode number to some programs, and 1 the root of a mount.
    hasher.finish().max(2)
}
