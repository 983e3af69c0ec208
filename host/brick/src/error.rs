//! Why a brick cannot start. Each message says what to do.

use std::io;
use std::path::PathBuf;

use portcullis_core::Status;
use portcullis_transport::{Role, TransportError};
use portcullis_wire::message::Failure;
use rustix::io::Errno;
use thiserror::Error;

/// A brick that cannot start.
#[derive(Debug, Error)]
pub enum BrickError {
    /// The exported directory is not there.
    #[error("cannot export {path}: there is no such directory")]
    Missing {
        /// The path given.
        path: PathBuf,
    },
    /// The export is a file.
    #[error("cannot export {path}: it is not a directory")]
    NotDirectory {
        /// The path given.
        path: PathBuf,
    },
    /// The exported directory cannot be opened or examined.
    #[error("cannot export {path}: {source}")]
    Export {
        /// The path given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel lacks what keeps paths inside the export.
    #[error("cannot export: {missing} is not available; a brick needs Linux 5.8 or later")]
    Kernel {
        /// What is missing.
        missing: &'static str,
    },
    /// `/proc/self/fd` is not there.
    #[error("cannot export: /proc/self/fd is not there; mount proc on /proc")]
    NoProc,
    /// Kernel handles were demanded and cannot be had.
    #[error("cannot export {path} by kernel handles: {reason}; leave the choice to the brick")]
    KernelHandles {
        /// The path given.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// What it keeps of being a member of a volume cannot be read.
    #[error(
        "cannot export {path}: it is part of a volume, and .portcullis-volume in it cannot be \
             used: {source}"
    )]
    Volume {
        /// The path given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The identity is not a brick's.
    #[error("a brick cannot serve as {role}: it needs the brick's certificate and handle.key")]
    NotBrick {
        /// What the identity proves instead.
        role: Role,
    },
    /// The address cannot be listened on, or the identity does not hold together.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

/// What a peer is told of a failed system call.
pub(crate) fn failure(error: Errno) -> Failure {
    let status = Status::from_errno(error.raw_os_error());
    match status {
        // The error number behind it says more than the status.
        Status::Io => Failure::new(status, std::io::Error::from(error).to_string()),
        _ => status.into(),
    }
}
