//! Why a gateway cannot start.

use std::net::SocketAddr;

use portcullis_core::limits::{BRICKS_MAX, CACHE_BYTES_MIN, CACHE_ENTRIES_MIN};
use portcullis_policy::PolicyError;
use portcullis_transport::TransportError;
use thiserror::Error;

/// A gateway that cannot start. Each message says what to do.
#[derive(Debug, Error)]
pub enum GatewayError {
    /// No brick, or too many.
    #[error("{count} bricks given: a volume has one to {BRICKS_MAX}")]
    Bricks {
        /// How many were given.
        count: usize,
    },
    /// One address given for two bricks.
    #[error("{address} is given twice: name each brick of the volume once")]
    BrickTwice {
        /// The address.
        address: SocketAddr,
    },
    /// A cache too small to be of use.
    #[error(
        "a cache of {cache_bytes} bytes is too small, give it at least {} bytes",
        CACHE_BYTES_MIN
    )]
    CacheTooSmall {
        /// Bytes asked for.
        cache_bytes: u64,
    },
    /// A cache of too few entries to be of use.
    #[error("a cache of so few entries is too small, give it at least {}", CACHE_ENTRIES_MIN)]
    TooFewEntries,
    /// The directory of the gateway's state cannot be used.
    #[error("{}: {source}", path.display())]
    State {
        /// The directory.
        path: std::path::PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A brick must be given time to answer.
    #[error("the brick timeout must be at least 1 ms")]
    NoBrickTimeout,
    /// The eviction policy does not load.
    #[error("the eviction policy: {0}")]
    Policy(#[from] PolicyError),
    /// The prefetch policy does not load.
    #[error("the prefetch policy: {0}")]
    Prefetch(PolicyError),
    /// The inlining policy does not load.
    #[error("the inlining policy: {0}")]
    Inlining(PolicyError),
    /// The endpoint for clients or the one towards the brick cannot be set up.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The admin address cannot be listened on.
    #[error("cannot listen on the admin address {address}: {source}")]
    AdminBind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// A socket that was bound has no address.
    #[error("the listening socket has no address: {0}")]
    LocalAddress(std::io::Error),
}
