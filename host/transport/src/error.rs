//! Why an endpoint cannot be set up or a peer not be reached.

use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

use crate::identity::Role;

/// An endpoint or identity that does not work. Each message says what to do.
#[derive(Debug, Error)]
pub enum TransportError {
    /// A file of the identity directory is missing or cannot be read or written.
    #[error("{path}: {source}; `portcullis identity init --dir DIR` makes an identity")]
    IdentityFile {
        /// The file.
        path: PathBuf,
        /// What the file system said.
        source: std::io::Error,
    },
    /// `identity init` would overwrite an identity.
    #[error("{path} exists: an identity is never overwritten, choose another directory")]
    IdentityExists {
        /// The file that is already there.
        path: PathBuf,
    },
    /// A file of the identity directory has no usable content.
    #[error("{path}: {reason}")]
    IdentityContent {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A certificate could not be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The certificates do not fit together.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// A peer cannot be reached, or is not who it should be.
    #[error("cannot connect to the {role} at {address}: {reason}")]
    Connect {
        /// Who was expected.
        role: Role,
        /// Where.
        address: SocketAddr,
        /// Why it failed.
        reason: String,
    },
}
