//! How a request fails: one list for every tier, with its tables to and from errno.
//!
//! The wire carries a [`Status`] and a sentence for people. `to_errno` is what a mount answers its
//! kernel; `from_errno` is what a brick makes of a failed system call. Both are exhaustive.

use serde::{Deserialize, Serialize};

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $errno:literal, $text:literal;)*) => {
        /// Why a request failed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Status { $($(#[$doc])* $name,)* }

        impl Status {
            /// Every status, for tables and tests.
            pub const ALL: &'static [Status] = &[$(Status::$name,)*];

            /// The Linux errno (asm-generic numbers) a mount answers for this status.
            pub const fn to_errno(self) -> i32 {
                match self { $(Status::$name => $errno,)* }
            }

            /// A short phrase that says what happened.
            pub const fn describe(self) -> &'static str {
                match self { $(Status::$name => $text,)* }
            }
        }
    };
}

statuses! {
    /// Operation not permitted (EPERM).
    NotPermitted = 1, "operation not permitted";
    /// No entry of that name (ENOENT).
    NotFound = 2, "no such file or directory";
    /// The call was interrupted (EINTR).
    Interrupted = 4, "interrupted";
    /// The file system below failed, or a server is gone (EIO).
    Io = 5, "input/output error";
    /// No such device behind a device file (ENXIO).
    NoDevice = 6, "no such device or address";
    /// Not an open file of this connection (EBADF).
    BadFile = 9, "not an open file of this connection";
    /// The arguments are too long together (E2BIG).
    TooLong = 7, "too long";
    /// Too many requests at once, or a lock is held by somebody else (EAGAIN).
    Busy = 11, "busy, try again";
    /// Out of memory (ENOMEM).
    NoMemory = 12, "out of memory";
    /// Permission denied (EACCES).
    AccessDenied = 13, "permission denied";
    /// In use: a mount point, or what another operation holds (EBUSY).
    InUse = 16, "in use";
    /// The entry exists (EEXIST).
    Exists = 17, "file exists";
    /// Beyond the file system that is exported (EXDEV).
    CrossDevice = 18, "on another file system than the export";
    /// Not a directory (ENOTDIR).
    NotDirectory = 20, "not a directory";
    /// Is a directory (EISDIR).
    IsDirectory = 21, "is a directory";
    /// An argument makes no sense (EINVAL).
    InvalidArgument = 22, "invalid argument";
    /// Too many open files (ENFILE).
    TooManyOpen = 23, "too many open files";
    /// The operation does not apply to this kind of file (ENOTTY).
    NotTerminal = 25, "inappropriate operation for this file";
    /// The program is being executed (ETXTBSY).
    TextBusy = 26, "text file busy";
    /// The offset or length is out of range (EFBIG).
    TooBig = 27, "file too large";
    /// No space left (ENOSPC).
    NoSpace = 28, "no space left on device";
    /// The file system is read-only (EROFS).
    ReadOnly = 30, "read-only file system";
    /// The file has as many names as it can have (EMLINK).
    TooManyLinks = 31, "too many links";
    /// A result does not fit the caller's buffer (ERANGE).
    Range = 34, "result does not fit";
    /// Waiting for this lock would never end (EDEADLK).
    Deadlock = 35, "a deadlock would come of it";
    /// The name is over 255 bytes (ENAMETOOLONG).
    NameTooLong = 36, "file name too long";
    /// No more locks can be had (ENOLCK).
    NoLocks = 37, "no locks available";
    /// The directory is not empty (ENOTEMPTY).
    NotEmpty = 39, "directory not empty";
    /// Too many symbolic links (ELOOP).
    Loop = 40, "too many levels of symbolic links";
    /// No such extended attribute (ENODATA).
    NoAttribute = 61, "no such attribute";
    /// The file of this handle is gone (ESTALE).
    Stale = 116, "stale file handle";
    /// The operation is not supported here (EOPNOTSUPP).
    NotSupported = 95, "operation not supported";
    /// A value is too large for its type (EOVERFLOW).
    Overflow = 75, "value too large";
    /// Over quota (EDQUOT).
    Quota = 122, "disk quota exceeded";
    /// A server did not answer in time or cannot be reached (EIO).
    Unavailable = 5, "server unavailable";
    /// Nobody knows any more whether an operation was applied (EIO).
    InDoubt = 5, "not known whether it was applied";
    /// The frame could not be read (EIO).
    BadFrame = 5, "malformed frame";
    /// The handle was not made by this brick (ESTALE).
    BadHandle = 116, "handle not made by this export";
    /// The peer's role may not ask this (EPERM).
    WrongRole = 1, "not allowed for this role";
    /// The brick has no copy of a directory that is spread over several (EIO): one is made, and the
    /// operation asked again.
    NoCopy = 5, "no copy of the directory on this brick";
}

impl Status {
    /// The status of a failed system call, by its Linux errno. What no caller can tell apart
    /// becomes [`Status::Io`].
    pub const fn from_errno(errno: i32) -> Self {
        match errno {
            1 => Self::NotPermitted,
            2 => Self::NotFound,
            4 => Self::Interrupted,
            6 | 19 => Self::NoDevice,
            9 => Self::BadFile,
            7 => Self::TooLong,
            11 => Self::Busy,
            12 => Self::NoMemory,
            13 => Self::AccessDenied,
            16 => Self::InUse,
            17 => Self::Exists,
            18 => Self::CrossDevice,
            20 => Self::NotDirectory,
            21 => Self::IsDirectory,
            22 => Self::InvalidArgument,
            23 | 24 => Self::TooManyOpen,
            25 => Self::NotTerminal,
            26 => Self::TextBusy,
            27 => Self::TooBig,
            28 => Self::NoSpace,
            30 => Self::ReadOnly,
            31 => Self::TooManyLinks,
            34 => Self::Range,
            35 => Self::Deadlock,
            36 => Self::NameTooLong,
            37 => Self::NoLocks,
            39 => Self::NotEmpty,
            40 => Self::Loop,
            61 => Self::NoAttribute,
            75 => Self::Overflow,
            95 => Self::NotSupported,
            116 => Self::Stale,
            122 => Self::Quota,
            _ => Self::Io,
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.describe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errno_that_has_a_status_comes_back_as_itself() {
        for &status in Status::ALL {
            let back = Status::from_errno(status.to_errno());
            assert_eq!(back.to_errno(), status.to_errno(), "{status:?} became {back:?}");
        }
    }
}
