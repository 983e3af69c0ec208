//! Handles: how a file gets one, and how it is found again by it.
//!
//! A handle is `kind | identity | tag` ([`tag`] has the last). What identifies a file, and how it
//! is opened, is chosen once at start by trying ([`HandleChoice::Auto`]):
//!
//! - **Kernel** ([`kernel`]): the kernel's handle, opened by the kernel. On ext4, xfs, btrfs and
//!   tmpfs, with `CAP_DAC_READ_SEARCH`. Such handles outlive renames and restarts of the brick. The
//!   kernel opens a file wherever it is by now: a directory that was moved out of the export is
//!   refused, any other file stays readable by a handle given out before it was moved (NFS servers
//!   do the same without `subtree_check`).
//! - **Map**: the kernel's handle as identity, opened by the path where the file was seen last
//!   ([`places`]). For ordinary users on the same file systems.
//! - **Map by stat**: device, inode number and birth time as identity, opened likewise. For
//!   everything else (a GlusterFS mount, NFS, overlayfs). Where an inode number is used again
//!   within one tick of the file system's clock, another file could pass for the one that had it.
//!   Where no birth time is kept, the brick gives each file a number instead ([`numbers`]). Another
//!   file of the same type could pass for one that other programs removed, until that is noticed.
//!
//! Map handles do not outlive a restart of the brick, nor a rename that was not made through it
//! until the new name was looked up or listed; then they work again, save where files are numbered.
//! They answer `Stale` meanwhile, never another file, unless the file is open ([`descriptors`]).
//!
//! Two sorts of entry have no identity of their own here and get an **edge** handle, which stands
//! for a name in a directory: mount points, where the export ends, and names whose file cannot be
//! examined. An edge tells attributes where there are some, and opens nothing.
//!
//! A brick that is a member of a volume ([`crate::volume`]) gives out handles that are unique in the
//! volume: those of any member but the first begin with its number ([`sealing`]), and a directory
//! that is spread over the members has the same handle on all of them ([`spread`]).

mod choice;
mod descriptors;
mod entry;
mod identity;
mod kernel;
mod numbers;
mod places;
mod sealing;
mod spread;
mod tag;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use portcullis_core::{Attr, Entry, FileKind, Handle, Status};
use portcullis_wire::message::Failure;
use rustix::io::Errno;

use crate::access_lists::AccessLists;
use crate::attr::{Stat, stat};
use crate::error::{BrickError, failure};
use crate::export::Export;
use choice::Method;
use descriptors::Descriptors;
use identity::{identity_by_stat, seal_own_by};
use kernel::KernelHandle;
use numbers::Numbers;
use places::Places;
use spread::Joined;
use tag::TagKey;

pub use choice::HandleChoice;
pub(crate) use entry::birth_now;
pub(crate) use numbers::FileNumber;

/// The kernel's handle, opened by the kernel.
const KERNEL: u8 = 1;
/// The kernel's handle, opened by its place.
const PLACED: u8 = 2;
/// Device, inode number and birth time, opened by its place.
const PLACED_BY_STAT: u8 = 3;
/// A digest of directory and name; opens nothing.
const EDGE: u8 = 4;
/// Device, inode number and the brick's number, opened by its place.
const NUMBERED: u8 = 5;

/// The handles of one export.
pub(crate) struct Handles {
    export: Export,
    method: Method,
    key: TagKey,
    /// The handle of the root where the brick is no member of a volume.
    root: Handle,
    /// Which part of a volume this is, where it is one.
    joined: OnceLock<Joined>,
    numbers: Numbers,
    places: Places,
    descriptors: Descriptors,
    access_lists: AccessLists,
}

/// A file, found by its handle.
pub(crate) struct Object {
    /// An `O_PATH` descriptor.
    pub(crate) fd: OwnedFd,
    /// What statx told of it.
    pub(crate) stat: Stat,
}

/// A directory, found by its handle.
pub(crate) struct Directory {
    /// An `O_PATH` descriptor.
    pub(crate) fd: OwnedFd,
    /// Its handle.
    pub(crate) handle: Handle,
    /// The bytes of its handle, shared by the places of its entries.
    key: Arc<[u8]>,
}

impl Handles {
    /// The handles of `export`, authenticated by `secret`.
    pub(crate) fn new(
        export: Export,
        secret: &[u8; 32],
        choice: HandleChoice,
    ) -> Result<Self, BrickError> {
        let failed = |error: Errno| BrickError::Export {
            path: export.path().to_owned(),
            source: error.into(),
        };
        let method = Method::choose(&export, choice)?;
        let kernel = match method.file_system() {
            Some(_) => KernelHandle::of(export.root()).map_err(failed)?,
            None => None,
        };
        let identity = match &kernel {
            Some(handle) => handle.as_bytes(),
            None => &identity_by_stat(export.stat())[..],
        };
        let (_, fsid) = export.file_system().map_err(failed)?;
        let key = TagKey::derive(secret, &[&fsid.to_le_bytes(), identity].concat());
        let seal = |parts: &[&[u8]]| key.seal(parts).ok_or(Errno::OVERFLOW);
        let root = seal_own_by(seal, method, kernel, export.stat()).map_err(failed)?;
        let (numbers, places) = (Numbers::default(), Places::default());
        let (descriptors, joined) = (Descriptors::default(), OnceLock::new());
        let access_lists = AccessLists::default();
        Ok(Self { method, key, root, joined, numbers, places, descriptors, access_lists, export })
    }

    /// The export.
    pub(crate) fn export(&self) -> &Export {
        &self.export
    }

    /// Who has access control lists.
    pub(crate) fn access_lists(&self) -> &AccessLists {
        &self.access_lists
    }

    /// The attributes of a file as they are told, and whether it has access control lists.
    pub(crate) fn told_with_acl(&self, handle: &Handle, object: &Object) -> Attr {
        let has_no_acl = self.access_lists.has_none(object.fd.as_fd(), object.stat.kind());
        Attr { has_no_acl, ..self.told(handle, object.stat.attr()) }
    }

    /// What was chosen.
    pub(crate) fn choice(&self) -> HandleChoice {
        self.method.choice()
    }

    /// The handle of the root.
    pub(crate) fn root(&self) -> &Handle {
        self.joined.get().map_or(&self.root, |joined| &joined.root)
    }

    /// Whether a handle stands for a name whose file is not of this export, or not to be examined.
    pub(crate) fn is_edge(handle: &Handle) -> bool {
        sealing::kind(handle) == Some(EDGE)
    }

    /// The root directory.
    pub(crate) fn root_entry(&self) -> Result<Entry, Failure> {
        if self.export.is_removed(self.export.root()) {
            let detail = "the exported directory was removed; start the brick on another";
            return Err(Failure::new(Status::Stale, detail));
        }
        let stat = self.object(self.root())?.stat;
        let attr = Some(stat.attr());
        Ok(Entry { handle: *self.root(), attr, kind: stat.kind(), target: None })
    }

    /// The file of a handle.
    pub(crate) fn object(&self, handle: &Handle) -> Result<Object, Failure> {
        if let Some(spread) = self.spread(handle) {
            return spread;
        }
        let body = self.unseal(handle)?;
        if *handle == self.root && self.root() != handle {
            let detail = "the root is spread over several bricks by now";
            return Err(Failure::new(Status::Stale, detail));
        }
        if handle == self.root() {
            let fd = self.export.open_root().map_err(failure)?;
            return Ok(Object { stat: stat(fd.as_fd()).map_err(failure)?, fd });
        }
        match (body[0], self.method) {
            (KERNEL, Method::Kernel(_)) => self.object_by_kernel(&body[1..]),
            (PLACED | PLACED_BY_STAT | NUMBERED, _) => match self.object_by_place(handle) {
                Err(failure) if failure.status == Status::Stale => {
                    self.object_by_descriptor(handle).unwrap_or(Err(failure))
                }
                found => found,
            },
            (EDGE, _) => {
                self.edge(handle)?;
                Err(Failure::new(
                    Status::CrossDevice,
                    "another file system is mounted here; the export ends",
                ))
            }
            // Made while the brick had a capability that it lacks now.
            _ => Err(Status::Stale.into()),
        }
    }

    /// The directory of a handle.
    pub(crate) fn directory(&self, handle: &Handle) -> Result<Directory, Failure> {
        let object = self.object(handle)?;
        if object.stat.kind() != FileKind::Directory {
            return Err(Status::NotDirectory.into());
        }
        Ok(Directory { fd: object.fd, handle: *handle, key: handle.as_bytes().into() })
    }

    /// The stat of the file of a handle, edges included.
    pub(crate) fn stat(&self, handle: &Handle) -> Result<Stat, Failure> {
        if Self::is_edge(handle) {
            self.unseal(handle)?;
            return self.edge(handle);
        }
        self.object(handle).map(|object| object.stat)
    }

    fn object_by_kernel(&self, identity: &[u8]) -> Result<Object, Failure> {
        let handle = KernelHandle::from_bytes(identity).ok_or(Status::BadHandle)?;
        let fd = handle.open(self.export.root()).map_err(|error| match error {
            Errno::NOENT => Status::Stale.into(),
            _ => failure(error),
        })?;
        let stat = stat(fd.as_fd()).map_err(failure)?;
        if stat.kind() == FileKind::Directory
            && !self.export.contains(fd.as_fd()).map_err(failure)?
        {
            return Err(Failure::new(Status::Stale, "moved out of the export"));
        }
        Ok(Object { fd, stat })
    }

    fn object_by_place(&self, handle: &Handle) -> Result<Object, Failure> {
        let root = self.root.as_bytes();
        let told_root = self.root().as_bytes();
        let is_anchor = |bytes: &[u8]| {
            bytes == root || bytes == told_root || sealing::is_found_by_itself(bytes)
        };
        let (anchor, names) = self.places.path(handle, is_anchor).ok_or(Status::Stale)?;
        let anchor = if anchor == self.root {
            self.export.open_root().map_err(failure)?
        } else {
            self.object(&anchor)?.fd
        };
        let fd = self.export.open_path(anchor.as_fd(), &names).map_err(|error| match error {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV => Status::Stale.into(),
            _ => failure(error),
        })?;
        match self.examine(fd.as_fd()) {
            Ok((stat, Some(found))) if found == *handle => Ok(Object { fd, stat }),
            Ok(_) | Err(Errno::NOENT) => Err(Status::Stale.into()),
            Err(error) => Err(failure(error)),
        }
    }

    fn object_by_descriptor(&self, handle: &Handle) -> Option<Result<Object, Failure>> {
        let found = self.descriptors.find(handle)?;
        let object = found.and_then(|fd| Ok(Object { stat: stat(fd.as_fd())?, fd }));
        Some(object.map_err(|error| match error {
            // A FUSE file system may lose a file in spite of an `O_PATH` descriptor.
            Errno::NOENT => Status::Stale.into(),
            _ => failure(error),
        }))
    }

    /// A descriptor that keeps a file, whatever becomes of its name; `None` where it cannot be had.
    pub(crate) fn keep(&self, handle: &Handle) -> Option<Arc<OwnedFd>> {
        let fd = Arc::new(self.object(handle).ok()?.fd);
        self.opened(handle, &fd);
        Some(fd)
    }

    /// A file was opened: it is found as long as the descriptor is there, whatever becomes of its
    /// name.
    pub(crate) fn opened(&self, handle: &Handle, fd: &Arc<OwnedFd>) {
        if sealing::kind(handle) != Some(KERNEL) {
            self.descriptors.opened(handle, fd);
        }
    }

    /// What an edge stands for, if that is still so.
    fn edge(&self, handle: &Handle) -> Result<Stat, Failure> {
        let (parent, name) = self.places.find(handle).ok_or(Status::Stale)?;
        let dir = self.directory(&parent)?;
        let fd = self.export.open_name(dir.fd.as_fd(), &name).map_err(|error| match error {
            Errno::NOENT => Status::Stale.into(),
            _ => failure(error),
        })?;
        let stat = stat(fd.as_fd()).map_err(failure)?;
        let same = self.export.crosses(&stat)
            && self.mount_point(&dir, &name, &stat).map_err(failure)? == *handle;
        if same { Ok(stat) } else { Err(Status::Stale.into()) }
    }
}
