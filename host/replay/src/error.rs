//! Why a trace cannot be replayed.

use thiserror::Error;

/// A trace, or what was asked of it, makes no sense.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ReplayError {
    /// Its name says of no format.
    #[error(
        "no format is known by this name: it ends in .oracleGeneral.bin, .lis, .trace or .tsv, which \
         may be compressed (.gz, .zst), or in .pctrace"
    )]
    UnknownFormat,
    /// It is compressed, but not whole or not so.
    #[error("cannot be decompressed: {0}")]
    Compressed(String),
    /// There is too much of it.
    #[error("has more than {0}, the most that is replayed")]
    TooLong(&'static str),
    /// A part of it is not of its format.
    #[error("{unit} {number}: {what}")]
    Malformed {
        /// `line` or `record`.
        unit: &'static str,
        /// Counted from 1.
        number: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// There is no request in it.
    #[error("has no requests")]
    Empty,
    /// A capacity in bytes, for objects of unknown sizes.
    #[error("does not tell sizes: give the capacity in entries")]
    NoSizes,
    /// The capacity of a gateway, of a trace that is of none.
    #[error("was not recorded from a gateway: give the capacity in entries or bytes")]
    NotLive,
}
