//! Requests and replies. A verb has one name on every tier.
//!
//! - [`mutation`]: what changes files, and travels in [`Request::Mutate`].
//! - [`lock`], [`caller`]: whose lock, and on whose behalf.
//! - [`observe`]: how a gateway is watched.
//! - [`member`]: which part of a volume a brick is.
//! - [`policy`]: what an administrator wants of a gateway's policies.
//! - [`reply`]: the answers, and how a request fails.
//! - [`verb`]: the name of each request.
//!
//! Strings of names are bytes throughout: nothing assumes UTF-8.

pub mod caller;
pub mod lock;
pub mod member;
pub mod mutation;
pub mod observe;
pub mod policy;
pub mod reply;
pub mod verb;

use portcullis_core::Handle;
use portcullis_core::replay::OpId;
use serde::{Deserialize, Serialize};

pub use caller::Caller;
pub use lock::{Lock, LockKind, LockOwner, LockSort};
pub use member::Membership;
pub use mutation::{Mutated, Mutation, SetAttr, SetTime};
pub use observe::{AbStatus, Candidate, Compare, Compared, TraceNames};
pub use policy::{PolicyCommand, PolicyKind, PolicySource, PolicyStatus};
pub use reply::{Failure, Notices, Reply, Statfs};
pub use verb::Verb;

/// What a client asks a gateway, or a gateway a brick.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "one at a time, on its way; nobody keeps many")]
pub enum Request {
    /// The first request of a connection: the root directory of the volume, and a session with a
    /// lease where `watch` is set. Answer: [`Reply::Attached`].
    Attach {
        /// Whether this side will cache what it is told: then it is told of changes.
        watch: bool,
        /// A random number that this side drew when it started.
        client: u128,
        /// A session of the same client on an earlier connection, through which nothing is cached
        /// any more; 0 for none.
        ended: u64,
    },
    /// Renews the lease of this connection's session. Answer: [`Reply::Renewed`].
    Renew,
    /// Nothing that was told on this connection is cached any more, and it is about to be closed.
    /// Answer: [`Reply::Done`].
    Detach,
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
    /// All entries of a directory but `.` and `..`. Answer: chunk frames, before each any number of frames
    /// with contents of its entries, then
    /// [`ReplyFrame::End`](crate::ReplyFrame::End).
    List {
        /// The directory.
        dir: Handle,
        /// Where to resume: empty for the start, else one cookie a brick, each the cookie of the
        /// last entry received from that brick (0: none yet).
        after: Vec<u64>,
        /// Attributes are to tell which files have no access control lists.
        acl: bool,
        /// The content of regular files of at most so many bytes may come along, at most
        /// `INLINE_BYTES_MAX`; with 0 only that of empty ones. Which do come is the server's to decide.
        contents: Option<u32>,
    },
    /// Opens a regular file. Answer: [`Reply::Opened`].
    Open {
        /// The file.
        handle: Handle,
        /// `O_RDONLY`, `O_WRONLY` or `O_RDWR`, and `O_APPEND`, as of open(2); other bits have no
        /// meaning here.
        flags: u32,
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
    /// A program closes a descriptor of an open file: its POSIX locks of this owner end. Answer:
    /// [`Reply::Done`].
    Flush {
        /// An id from [`Reply::Opened`] on this connection.
        file: u64,
        /// Whose locks.
        owner: LockOwner,
    },
    /// Closes an open file. Answer: [`Reply::Done`].
    Release {
        /// An id from [`Reply::Opened`] on this connection.
        file: u64,
        /// Whose flock(2) on it ends, if it has one.
        unlock: Option<LockOwner>,
    },
    /// Waits until what was written to an open file, by whomever, is on stable storage. Answer:
    /// [`Reply::Done`].
    Fsync {
        /// An id from [`Reply::Opened`] on this connection.
        file: u64,
        /// Only the content and what is needed to find it (fdatasync(2)).
        data_only: bool,
    },
    /// The same for the names of a directory. Answer: [`Reply::Done`].
    Fsyncdir {
        /// The directory.
        dir: Handle,
    },
    /// Where data or a hole begins, as lseek(2) with `SEEK_DATA` or `SEEK_HOLE`. Answer:
    /// [`Reply::Offset`]; `NoDevice` (ENXIO) beyond the end.
    Lseek {
        /// An id from [`Reply::Opened`] on this connection.
        file: u64,
        /// Where to begin.
        offset_bytes: u64,
        /// A hole rather than data.
        hole: bool,
    },
    /// The lock that stands in the way of another. Answer: [`Reply::Lock`].
    Getlk {
        /// An id from [`Reply::Opened`] on this connection.
        file: u64,
        /// The lock wanted.
        lock: Lock,
    },
    /// Takes or releases a lock. Answer: [`Reply::Done`]; `Busy` where it is held by somebody else
    /// and `wait` is not set.
    Setlk {
        /// An id from [`Reply::Opened`] on this connection.
        file: u64,
        /// The lock wanted.
        lock: Lock,
        /// Answer when the lock was taken, whenever that is; a request that is given up meanwhile
        /// takes none.
        wait: bool,
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
    /// Changes something. Answer: [`Reply::Mutated`]. Where [`Mutation::body_len_bytes`] is not 0,
    /// as many bytes follow the request, as they are.
    Mutate {
        /// Names this operation, however often it is sent.
        op: OpId,
        /// On whose behalf.
        caller: Caller,
        /// What to change.
        mutation: Mutation,
    },
    /// What a gateway tells of itself; for the admin role. Answer: [`Reply::Stats`].
    Stats,
    /// Closes open files with which no lock ends; ids that are not known are passed over. Answer:
    /// [`Reply::Done`].
    ReleaseMany {
        /// Ids from [`Reply::Opened`] on this connection, at most `RELEASES_MAX`.
        files: Vec<u64>,
    },
    /// A gateway of several bricks tells a brick which of them it is, before it attaches. Answer:
    /// [`Reply::Joined`]; `InvalidArgument` where the brick is another one, or of another volume.
    Join {
        /// Which one it is; `None` only asks.
        membership: Option<Membership>,
    },
    /// The attributes, and targets of symbolic links, of files that pointers lead to. Answer:
    /// [`Reply::Entries`], in the same order.
    Getattrs {
        /// Files and directories of this brick, at most `GETATTRS_MAX`.
        handles: Vec<Handle>,
    },
    /// The transactions that a brick has a part of and that are not through, whoever leads them.
    /// Answer: [`Reply::Unfinished`].
    Unfinished,
    /// Concerns the policies of a gateway; for the admin role. Answer: [`Reply::Policy`]. Where
    /// [`PolicyCommand::body_len_bytes`] is not 0, as many bytes follow the request, as they are.
    Policy {
        /// Policies of which kind.
        kind: PolicyKind,
        /// What is wanted.
        command: PolicyCommand,
    },
    /// What is asked of the gateway's cache from now on; for the admin role. Answer: data frames, which
    /// together are a header and records of `portcullis_core::trace`, then
    /// [`ReplyFrame::End`](crate::ReplyFrame::End).
    Trace {
        /// What is told of names.
        names: TraceNames,
        /// How long.
        for_ms: u64,
    },
    /// Compares eviction policies beside the gateway's traffic, or on it; for the admin role. Where
    /// [`Compare::body_len_bytes`] is not 0, as many bytes follow. Answer: [`Reply::Compared`].
    Compare(Compare),
    /// How many contents that came along with listings this client has read without asking for them;
    /// gateways only. Answer: [`Reply::Done`].
    ReadInPlace {
        /// Directories, at most `INLINE_TOLD_DIRS_MAX`, each with the number of its files.
        dirs: Vec<(Handle, u32)>,
    },
}

impl Request {
    /// The verb, for metrics and logs.
    pub const fn verb(&self) -> Verb {
        match self {
            Request::Attach { .. } => Verb::Attach,
            Request::Renew => Verb::Renew,
            Request::Detach => Verb::Detach,
            Request::Lookup { .. } => Verb::Lookup,
            Request::Getattr { .. } => Verb::Getattr,
            Request::Readlink { .. } => Verb::Readlink,
            Request::List { .. } => Verb::List,
            Request::Open { .. } => Verb::Open,
            Request::Read { .. } => Verb::Read,
            Request::Flush { .. } => Verb::Flush,
            Request::Release { .. } => Verb::Release,
            Request::Fsync { .. } => Verb::Fsync,
            Request::Fsyncdir { .. } => Verb::Fsyncdir,
            Request::Lseek { .. } => Verb::Lseek,
            Request::Getlk { .. } => Verb::Getlk,
            Request::Setlk { .. } => Verb::Setlk,
            Request::Statfs { .. } => Verb::Statfs,
            Request::Getxattr { .. } => Verb::Getxattr,
            Request::Listxattr { .. } => Verb::Listxattr,
            Request::Mutate { mutation, .. } => mutation.verb(),
            Request::Stats => Verb::Stats,
            Request::ReleaseMany { .. } => Verb::Release,
            Request::Join { .. } => Verb::Join,
            Request::Getattrs { .. } => Verb::Getattrs,
            Request::Unfinished => Verb::Unfinished,
            Request::Policy { .. } => Verb::Policy,
            Request::Trace { .. } => Verb::Trace,
            Request::Compare(_) => Verb::Compare,
            Request::ReadInPlace { .. } => Verb::ReadInPlace,
        }
    }

    /// Bytes that follow the request, as they are.
    pub const fn body_len_bytes(&self) -> u32 {
        match self {
            Request::Mutate { mutation, .. } => mutation.body_len_bytes(),
            Request::Policy { command, .. } => command.body_len_bytes(),
            Request::Compare(compare) => compare.body_len_bytes(),
            _ => 0,
        }
    }
}
