//! Requests and replies. A verb has one name on every tier.
//!
//! Strings of names are bytes throughout: nothing assumes UTF-8.

use portcullis_core::{Attr, Entry, Handle, Status};
use serde::{Deserialize, Serialize};

use crate::stats::GatewayStats;

/// What a client asks a gateway, or a gateway a brick.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// The root directory of the volume. Answer: [`Reply::Attached`].
    Attach,
    /// The entry `name` of a directory. Answer: [`Reply::Entry`], or `NotFound`.
    Lookup {
        /// The directory.
        dir: Handle,
        /// The name: 1 to 255 bytes, no `/`, no NUL, not `.` or `..`.
        #[serde(with = "serde_bytes")]
        name: Vec<u8>,
    },
    /// The attributes of a file. Answer: [`Reply::Attr`].
    Getattr {
        /// The file.
        handle: Handle,
    },
    /// The target of a symbolic link. Answer: [`Reply::Target`].
    Readlink {
        /// The link.
        handle: Handle,
    },
    /// All entries of a directory but `.` and `..`. Answer: chunk frames, then
    /// [`ReplyFrame::End`](crate::ReplyFrame::End).
    List {
        /// The directory.
        dir: Handle,
        /// Where to resume: empty for the start, else one cookie a brick, each the cookie of the
        /// last entry received from that brick (0: none yet).
        after: Vec<u64>,
    },
    /// Opens a regular file for reading. Answer: [`Reply::Opened`].
    Open {
        /// The file.
        handle: Handle,
    },
    /// Reads from an open file. Answer: data frames, then the end; fewer bytes than asked for
    /// only at the end of the file.
    Read {
        /// An id from [`Reply::Opened`] on this connection.
        file: u64,
        /// Where to begin.
        offset_bytes: u64,
        /// How much, at most `READ_LEN_BYTES_MAX`.
        len_bytes: u32,
    },
    /// Closes an open file. Answer: [`Reply::Released`].
    Release {
        /// An id from [`Reply::Opened`] on this connection.
        file: u64,
    },
    /// Space and inodes of the file system. Answer: [`Reply::Statfs`].
    Statfs {
        /// Any file of it.
        handle: Handle,
    },
    /// The value of an extended attribute. Answer: [`Reply::Xattr`], or `NoAttribute`.
    Getxattr {
        /// The file.
        handle: Handle,
        /// The attribute, with its namespace (`user.comment`).
        #[serde(with = "serde_bytes")]
        name: Vec<u8>,
    },
    /// The names of the extended attributes. Answer: [`Reply::Xattr`], names each ended by NUL as
    /// listxattr(2) gives them.
    Listxattr {
        /// The file.
        handle: Handle,
    },
    /// What a gateway tells of itself; for the admin role. Answer: [`Reply::Stats`].
    Stats,
}

impl Request {
    /// The verb, for metrics and logs.
    pub const fn verb(&self) -> Verb {
        match self {
            Request::Attach => Verb::Attach,
            Request::Lookup { .. } => Verb::Lookup,
            Request::Getattr { .. } => Verb::Getattr,
            Request::Readlink { .. } => Verb::Readlink,
            Request::List { .. } => Verb::List,
            Request::Open { .. } => Verb::Open,
            Request::Read { .. } => Verb::Read,
            Request::Release { .. } => Verb::Release,
            Request::Statfs { .. } => Verb::Statfs,
            Request::Getxattr { .. } => Verb::Getxattr,
            Request::Listxattr { .. } => Verb::Listxattr,
            Request::Stats => Verb::Stats,
        }
    }
}

/// The verb of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "each is the request of its name")]
pub enum Verb {
    Attach,
    Lookup,
    Getattr,
    Readlink,
    List,
    Open,
    Read,
    Release,
    Statfs,
    Getxattr,
    Listxattr,
    Stats,
}

impl Verb {
    /// Every verb; `ALL[verb as usize] == verb`.
    pub const ALL: [Verb; 12] = [
        Verb::Attach,
        Verb::Lookup,
        Verb::Getattr,
        Verb::Readlink,
        Verb::List,
        Verb::Open,
        Verb::Read,
        Verb::Release,
        Verb::Statfs,
        Verb::Getxattr,
        Verb::Listxattr,
        Verb::Stats,
    ];

    /// The name, as in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Verb::Attach => "attach",
            Verb::Lookup => "lookup",
            Verb::Getattr => "getattr",
            Verb::Readlink => "readlink",
            Verb::List => "list",
            Verb::Open => "open",
            Verb::Read => "read",
            Verb::Release => "release",
            Verb::Statfs => "statfs",
            Verb::Getxattr => "getxattr",
            Verb::Listxattr => "listxattr",
            Verb::Stats => "stats",
        }
    }
}

/// The answer to a request that has one message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// The root directory.
    Attached {
        /// Its handle and attributes.
        root: Entry,
    },
    /// A directory entry.
    Entry(Entry),
    /// Attributes.
    Attr(Attr),
    /// The target of a link.
    Target(#[serde(with = "serde_bytes")] Vec<u8>),
    /// An open file.
    Opened {
        /// Its id on this connection.
        file: u64,
        /// Its attributes at the time of opening.
        attr: Attr,
    },
    /// The file is closed.
    Released,
    /// Space and inodes.
    Statfs(Statfs),
    /// A value of an extended attribute, or a list of names.
    Xattr(#[serde(with = "serde_bytes")] Vec<u8>),
    /// A gateway's account of itself.
    Stats(Box<GatewayStats>),
}

/// Space and inodes of a file system, as statvfs(3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statfs {
    /// Unit of the block counts, in bytes (`f_frsize`).
    pub fragment_bytes: u64,
    /// Preferred size of I/O (`f_bsize`).
    pub block_bytes: u64,
    /// Blocks in all.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks for unprivileged users.
    pub blocks_available: u64,
    /// Inodes in all.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Longest name.
    pub name_len_max: u64,
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What a program acts on.
    pub status: Status,
    /// What a person reads: what was wrong, where, and what to do. May be empty.
    pub detail: String,
}

impl Failure {
    /// A failure with a sentence for people.
    pub fn new(status: Status, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into() }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self { status, detail: String::new() }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.detail.is_empty() {
            self.status.fmt(f)
        } else {
            write!(f, "{}: {}", self.status, self.detail)
        }
    }
}

impl std::error::Error for Failure {}
