//! How large a cache is, in entries or in bytes.

use std::fmt;

use crate::error::ReplayError;
use crate::trace::Trace;

/// What an object weighs where a capacity counts entries: about what one takes in a gateway, so that
/// a component is allowed the memory that it would have there.
const ENTRY_WEIGHT_BYTES: u32 = 256;

/// The capacity of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// So many objects, whatever their sizes.
    Entries(u64),
    /// Objects of so many bytes together.
    Bytes(u64),
}

impl Capacity {
    /// The number, of entries or bytes.
    pub fn amount(self) -> u64 {
        match self {
            Capacity::Entries(amount) | Capacity::Bytes(amount) => amount,
        }
    }

    /// `entries` or `bytes`.
    pub fn unit(self) -> &'static str {
        match self {
            Capacity::Entries(_) => "entries",
            Capacity::Bytes(_) => "bytes",
        }
    }

    /// The sum of weights that policies are told they may keep.
    pub fn capacity_bytes(self) -> u64 {
        match self {
            Capacity::Entries(entries) => entries.saturating_mul(ENTRY_WEIGHT_BYTES.into()),
            Capacity::Bytes(bytes) => bytes,
        }
    }

    /// What an object of `size_bytes` weighs.
    pub fn weight_bytes(self, size_bytes: u32) -> u32 {
        match self {
            Capacity::Entries(_) => ENTRY_WEIGHT_BYTES,
            Capacity::Bytes(_) => size_bytes,
        }
    }

    /// Whether `trace` can be replayed at this capacity.
    ///
    /// # Errors
    /// It cannot.
    pub fn check(self, trace: &Trace) -> Result<(), ReplayError> {
        match self {
            Capacity::Bytes(_) if !trace.has_sizes() => Err(ReplayError::NoSizes),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Capacity {
    /// Exact, and short where the number is round: `10k`, `128MiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (amount, scale, units) = match *self {
            Capacity::Entries(entries) => (entries, 1_000, ["", "k", "M", "G"]),
            Capacity::Bytes(bytes) => (bytes, 1_024, ["B", "KiB", "MiB", "GiB"]),
        };
        let mut shown = (amount, units[0]);
        for unit in &units[1..] {
            if shown.0 == 0 || !shown.0.is_multiple_of(scale) {
                break;
            }
            shown = (shown.0 / scale, *unit);
        }
        write!(f, "{}{}", shown.0, shown.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_are_shown_short_and_exact() {
        for (capacity, shown) in [
            (Capacity::Entries(250), "250"),
            (Capacity::Entries(10_000), "10k"),
            (Capacity::Entries(1_250), "1250"),
            (Capacity::Bytes(1 << 27), "128MiB"),
            (Capacity::Bytes(1_000), "1000B"),
            (Capacity::Entries(0), "0"),
        ] {
            assert_eq!(capacity.to_string(), shown);
        }
    }
}
