//! What changes files. Every mutation is answered by [`Reply::Mutated`](super::Reply::Mutated),
//! with what came of it and everything that it made untrue.

use portcullis_core::volume::{Ask, Change, Told};
use portcullis_core::{Attr, Entry, Handle, Timestamp};
use serde::{Deserialize, Serialize};

use super::verb::Verb;

/// A change that is asked for. Names are as in `Lookup`; modes hold permission bits with the
/// caller's umask applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is moved a few times beside a round trip, not kept"
)]
pub enum Mutation {
    /// Opens a regular file, which is made where there is none: open(2) with `O_CREAT`. Gives
    /// [`Mutated::Created`].
    Create {
        /// The directory.
        dir: Handle,
        /// The name.
        #[serde(with = "serde_bytes")]
        name: Vec<u8>,
        /// Permission bits of a new file.
        mode: u32,
        /// As in `Open`, and `O_EXCL`, `O_TRUNC`.
        flags: u32,
    },
    /// Opens a new file without a name: open(2) with `O_TMPFILE`. Gives [`Mutated::Created`].
    Tmpfile {
        /// A directory of the file system.
        dir: Handle,
        /// Permission bits.
        mode: u32,
        /// As in `Open`, and `O_EXCL`: it can never be given a name.
        flags: u32,
    },
    /// Makes a directory. Gives [`Mutated::Entry`].
    Mkdir {
        /// The directory that it is made in.
        dir: Handle,
        /// The name.
        #[serde(with = "serde_bytes")]
        name: Vec<u8>,
        /// Permission bits.
        mode: u32,
    },
    /// Makes a file of any other kind. Gives [`Mutated::Entry`].
    Mknod {
        /// The directory.
        dir: Handle,
        /// The name.
        #[serde(with = "serde_bytes")]
        name: Vec<u8>,
        /// Type and permission bits.
        mode: u32,
        /// Device number of a device file (`makedev(3)`).
        rdev: u64,
    },
    /// Makes a symbolic link. Gives [`Mutated::Entry`].
    Symlink {
        /// The directory.
        dir: Handle,
        /// The name.
        #[serde(with = "serde_bytes")]
        name: Vec<u8>,
        /// Where it leads: 1 to 4,095 bytes, no NUL.
        #[serde(with = "serde_bytes")]
        target: Vec<u8>,
    },
    /// Gives a file another name. Gives [`Mutated::Entry`].
    Link {
        /// The file.
        handle: Handle,
        /// The directory of the new name.
        dir: Handle,
        /// The new name.
        #[serde(with = "serde_bytes")]
        name: Vec<u8>,
    },
    /// Removes a name of anything but a directory. Gives [`Mutated::Done`].
    Unlink {
        /// The directory.
        dir: Handle,
        /// The name.
        #[serde(with = "serde_bytes")]
        name: Vec<u8>,
    },
    /// Removes an empty directory. Gives [`Mutated::Done`].
    Rmdir {
        /// The directory that it is in.
        dir: Handle,
        /// The name.
        #[serde(with = "serde_bytes")]
        name: Vec<u8>,
    },
    /// Moves a name. Gives [`Mutated::Done`].
    Rename {
        /// The directory.
        dir: Handle,
        /// The name.
        #[serde(with = "serde_bytes")]
        name: Vec<u8>,
        /// The directory of the new name.
        new_dir: Handle,
        /// The new name.
        #[serde(with = "serde_bytes")]
        new_name: Vec<u8>,
        /// As of renameat2(2): `RENAME_NOREPLACE` or `RENAME_EXCHANGE`.
        flags: u32,
    },
    /// Sets attributes, all or none. Gives [`Mutated::Attr`].
    Setattr {
        /// The file.
        handle: Handle,
        /// An open file of this connection through which it is done, 0 for none: what may be
        /// written to an open file may be truncated whatever its mode says.
        file: u64,
        /// What to set.
        set: SetAttr,
    },
    /// Sets an extended attribute; its value is the body. Gives [`Mutated::Done`].
    Setxattr {
        /// The file.
        handle: Handle,
        /// The attribute.
        #[serde(with = "serde_bytes")]
        name: Vec<u8>,
        /// Bytes of the value.
        len_bytes: u32,
        /// `XATTR_CREATE` or `XATTR_REPLACE`, setxattr(2).
        flags: u32,
    },
    /// Removes an extended attribute. Gives [`Mutated::Done`].
    Removexattr {
        /// The file.
        handle: Handle,
        /// The attribute.
        #[serde(with = "serde_bytes")]
        name: Vec<u8>,
    },
    /// Writes to an open file; the data is the body. Gives [`Mutated::Written`].
    Write {
        /// An id from `Opened` or `Created` on this connection.
        file: u64,
        /// Where to begin; of no meaning for a file opened with `O_APPEND`.
        offset_bytes: u64,
        /// Bytes of the data, at most `WRITE_LEN_BYTES_MAX`.
        len_bytes: u32,
        /// Set-user-id and set-group-id are to be cleared, for the caller may not keep them.
        kill_set_id: bool,
    },
    /// Allocates or frees space, fallocate(2). Gives [`Mutated::Done`].
    Fallocate {
        /// An id from `Opened` or `Created` on this connection.
        file: u64,
        /// `FALLOC_FL_...`.
        mode: u32,
        /// Where to begin.
        offset_bytes: u64,
        /// How much.
        len_bytes: u64,
    },
    /// Copies from one open file to another, copy_file_range(2). Gives [`Mutated::Written`].
    CopyFileRange {
        /// The file to copy from.
        file: u64,
        /// Where to begin in it.
        offset_bytes: u64,
        /// The file to copy to.
        to_file: u64,
        /// Where to begin in that.
        to_offset_bytes: u64,
        /// How much.
        len_bytes: u64,
    },
    /// A part of a change that concerns several members of a volume. Gives [`Mutated::Told`]. From
    /// gateways to bricks only.
    Volume(Ask),
    /// Changes nothing: the answer to the operation of this number is told again, if it was ever
    /// asked here ([`Mutated::NotAsked`] if not), as where it is asked again.
    Recall,
}

/// Attributes to set; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length.
    pub size_bytes: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of content.
    pub mtime: Option<SetTime>,
    /// Set-user-id and set-group-id are to be cleared, for the caller may not keep them.
    pub kill_set_id: bool,
}

/// A time to set, as of utimensat(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetTime {
    /// The brick's clock.
    Now,
    /// This time.
    At(Timestamp),
}

/// What came of a mutation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mutated {
    /// It is done; there is nothing to tell.
    Done,
    /// What the name stands for now.
    Entry(Entry),
    /// What the name stands for now, open.
    Created {
        /// The entry. Of a file without a name: its handle and attributes.
        entry: Entry,
        /// Its id on this connection.
        file: u64,
    },
    /// The attributes afterwards.
    Attr(Attr),
    /// How much was written.
    Written {
        /// Bytes.
        len_bytes: u64,
    },
    /// What came of an [`Ask`].
    Told(Told),
    /// This brick was never asked the operation that is to be recalled.
    NotAsked,
}

impl Mutation {
    /// The verb, for metrics and logs.
    pub const fn verb(&self) -> Verb {
        match self {
            Mutation::Create { .. } => Verb::Create,
            Mutation::Tmpfile { .. } => Verb::Tmpfile,
            Mutation::Mkdir { .. } => Verb::Mkdir,
            Mutation::Mknod { .. } => Verb::Mknod,
            Mutation::Symlink { .. } => Verb::Symlink,
            Mutation::Link { .. } => Verb::Link,
            Mutation::Unlink { .. } => Verb::Unlink,
            Mutation::Rmdir { .. } => Verb::Rmdir,
            Mutation::Rename { .. } => Verb::Rename,
            Mutation::Setattr { .. } => Verb::Setattr,
            Mutation::Setxattr { .. } => Verb::Setxattr,
            Mutation::Removexattr { .. } => Verb::Removexattr,
            Mutation::Write { .. } => Verb::Write,
            Mutation::Fallocate { .. } => Verb::Fallocate,
            Mutation::CopyFileRange { .. } => Verb::CopyFileRange,
            Mutation::Volume(ask) => verb_of(ask),
            Mutation::Recall => Verb::Recall,
        }
    }

    /// The directories whose names it changes, each once.
    pub fn dirs(&self) -> [Option<Handle>; 2] {
        match self {
            Mutation::Create { dir, .. }
            | Mutation::Mkdir { dir, .. }
            | Mutation::Mknod { dir, .. }
            | Mutation::Symlink { dir, .. }
            | Mutation::Link { dir, .. }
            | Mutation::Unlink { dir, .. }
            | Mutation::Rmdir { dir, .. } => [Some(*dir), None],
            Mutation::Rename { dir, new_dir, .. } => {
                [Some(*dir), Some(*new_dir).filter(|new_dir| new_dir != dir)]
            }
            Mutation::Volume(ask) => dirs_of(ask),
            _ => [None, None],
        }
    }

    /// Bytes that follow the request, as they are.
    pub const fn body_len_bytes(&self) -> u32 {
        match self {
            Mutation::Write { len_bytes, .. } | Mutation::Setxattr { len_bytes, .. } => *len_bytes,
            _ => 0,
        }
    }

    /// Whether applying it twice in a row leaves what applying it once does, with the same answer.
    /// Of a write this holds unless its file is open for appending, which only the brick knows.
    pub const fn is_idempotent(&self) -> bool {
        match self {
            Mutation::Create { flags, .. } => *flags & O_EXCL == 0,
            Mutation::Setattr { .. } | Mutation::Write { .. } | Mutation::CopyFileRange { .. } => {
                true
            }
            // Inserting or collapsing a range moves what follows it.
            Mutation::Fallocate { mode, .. } => *mode & (COLLAPSE_RANGE | INSERT_RANGE) == 0,
            Mutation::Setxattr { flags, .. } => *flags == 0,
            // The others are told what they were told when they were asked first.
            Mutation::Volume(ask) => !matches!(
                ask,
                Ask::Mkdir { .. } | Ask::Unlink { .. } | Ask::Rmdir { .. } | Ask::Rename { .. }
            ),
            Mutation::Recall
            | Mutation::Tmpfile { .. }
            | Mutation::Mkdir { .. }
            | Mutation::Mknod { .. }
            | Mutation::Symlink { .. }
            | Mutation::Link { .. }
            | Mutation::Unlink { .. }
            | Mutation::Rmdir { .. }
            | Mutation::Rename { .. }
            | Mutation::Removexattr { .. } => false,
        }
    }
}

/// The verb of a part of a change: that of the system call where it may be all of it.
const fn verb_of(ask: &Ask) -> Verb {
    match ask {
        Ask::Mkdir { .. } => Verb::Mkdir,
        Ask::Unlink { .. } => Verb::Unlink,
        Ask::Rmdir { .. } => Verb::Rmdir,
        Ask::Rename { .. } => Verb::Rename,
        _ => Verb::Volume,
    }
}

/// The directories whose names a part of a change changes, or whose times.
fn dirs_of(ask: &Ask) -> [Option<Handle>; 2] {
    match ask {
        Ask::Mkdir { place, .. } | Ask::Unlink { place, .. } | Ask::Rmdir { place } => {
            [Some(place.dir), None]
        }
        Ask::Rename { from, to, .. }
        | Ask::Commit { change: Change::Move { from, to, .. }, .. } => {
            [Some(from.dir), Some(to.dir).filter(|dir| *dir != from.dir)]
        }
        Ask::Commit {
            change:
                Change::Place { place, .. } | Change::Swap { place, .. } | Change::Remove { place },
            ..
        } => [Some(place.dir), None],
        Ask::Touch { id } | Ask::Renamed { id } => [Some(id.handle()), None],
        _ => [None, None],
    }
}

/// open(2), asm-generic.
const O_EXCL: u32 = 0o200;
/// fallocate(2).
const COLLAPSE_RANGE: u32 = 0x08;
/// fallocate(2).
const INSERT_RANGE: u32 = 0x20;
