//! The native policies by name.

use super::fifo::Fifo;
use super::gdsf::Gdsf;
use super::lru::Lru;
use super::s3fifo::S3Fifo;
use super::sieve::Sieve;
use super::w_tinylfu::WTinyLfu;
use super::{EvictionPolicy, PolicyLimits};

/// Their names.
pub const NAMES: &[&str] =
    &[Lru::NAME, Fifo::NAME, Sieve::NAME, S3Fifo::NAME, WTinyLfu::NAME, Gdsf::NAME];

/// The policy of that name, which knows of no object yet; `None` where there is none.
pub fn native(name: &str, limits: PolicyLimits) -> Option<Box<dyn EvictionPolicy>> {
    Some(match name {
        Lru::NAME => Box::new(Lru::default()),
        Fifo::NAME => Box::new(Fifo::default()),
        Sieve::NAME => Box::new(Sieve::default()),
        S3Fifo::NAME => Box::new(S3Fifo::new(limits)),
        WTinyLfu::NAME => Box::new(WTinyLfu::new(limits)),
        Gdsf::NAME => Box::new(Gdsf::default()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
