//! The answers, and how a request fails.

use portcullis_core::volume::Unfinished;
use portcullis_core::watch::Change;
use portcullis_core::{Attr, Entry, Handle, Status};
use serde::{Deserialize, Serialize};

use super::lock::Lock;
use super::member::Membership;
use super::mutation::Mutated;
use super::observe::Compared;
use super::policy::PolicyStatus;
use crate::stats::GatewayStats;

/// The answer to a request that has one message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// The root directory, and the session that begins.
    Attached {
        /// Its handle and attributes.
        root: Entry,
        /// Names the session; 0 where nothing is watched.
        session: u64,
        /// The lease, from when the request was sent.
        lease_ms: u32,
        /// The life of the brick: another number after each of its starts.
        life: u64,
        /// How changes are noticed that others make on the brick.
        notices: Notices,
    },
    /// The lease is renewed.
    Renewed {
        /// From when the request was sent; 0 where this tier has no lease itself.
        lease_ms: u32,
        /// The life of the brick, as in [`Reply::Attached`]; 0 where it is away.
        life: u64,
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
    /// It is done; there is nothing to tell.
    Done,
    /// A position in a file.
    Offset {
        /// From its start.
        offset_bytes: u64,
    },
    /// The lock that stands in the way; `None` where there is none.
    Lock(Option<Lock>),
    /// Space and inodes.
    Statfs(Statfs),
    /// A value of an extended attribute, or a list of names.
    Xattr(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Something was changed.
    Mutated {
        /// What came of it.
        result: Mutated,
        /// What is no longer true. The one who asked forgets it on its own; everybody else was told.
        changes: Vec<Change>,
        /// What the directories of the names that changed are like since: whoever asked asks for
        /// their attributes next (NFSv3's `wcc_data` is there for the same, RFC 1813 2.6). Those of
        /// which that is not known are left out.
        dirs: Vec<(Handle, Attr)>,
    },
    /// A gateway's account of itself.
    Stats(Box<GatewayStats>),
    /// Which part of a volume the brick is.
    Joined {
        /// `None` where it is no part of any.
        membership: Option<Membership>,
        /// Whether there is anything in its root directory.
        has_files: bool,
    },
    /// What the handles of a `Getattrs` stand for, in its order; `None` where that is gone.
    Entries(Vec<Option<Entry>>),
    /// Transactions that are not through, at most `UNFINISHED_TOLD_MAX`; those that are left out are
    /// told when these are through.
    Unfinished {
        /// Those that nobody leads any more: the session is over, or of an earlier life of the brick.
        orphans: Vec<Unfinished>,
        /// Those that were led last by a session that goes on.
        led: Vec<Unfinished>,
    },
    /// How a gateway's policies stand.
    Policy(Box<PolicyStatus>),
    /// What comparisons of policies have shown.
    Compared(Box<Compared>),
}

/// How a brick notices changes that were not made through it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Notices {
    /// It does not.
    #[default]
    None,
    /// The kernel tells it at once (fanotify(7)).
    Fanotify,
    /// It looks every second or so.
    Polling,
}

impl Notices {
    /// The name, as in metrics and for people.
    pub const fn name(self) -> &'static str {
        match self {
            Notices::None => "none",
            Notices::Fanotify => "fanotify",
            Notices::Polling => "polling",
        }
    }
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
