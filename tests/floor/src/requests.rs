//! How many requests of each kind the kernel sent. INIT, INTERRUPT and DESTROY do not count: the
//! session answers them itself.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use portcullis_fuse::abi::Opcode;

/// One more than the largest number of a request.
const NUMBERS: usize = 64;

/// Requests of each kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requests([u64; NUMBERS]);

impl Requests {
    /// Of this kind.
    pub fn of(&self, opcode: Opcode) -> u64 {
        self.0.get(opcode as usize).copied().unwrap_or(0)
    }

    /// Of all kinds that the kernel waits for an answer to. What it takes back as memory gets short
    /// or at the end (FORGET) does not count.
    pub fn answered(&self) -> u64 {
        self.iter().filter(|(opcode, _)| opcode.is_answered()).map(|(_, count)| count).sum()
    }

    /// The kinds that came, and how often.
    pub fn iter(&self) -> impl Iterator<Item = (Opcode, u64)> + '_ {
        let numbered = self.0.iter().enumerate().filter(|(_, count)| **count > 0);
        numbered.filter_map(|(number, &count)| Some((Opcode::of(number as u32)?, count)))
    }
}

/// One line: the number of all answered ones, and of each kind.
impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} requests", self.answered())?;
        for (nth, (opcode, count)) in self.iter().enumerate() {
            let name = format!("{opcode:?}").to_ascii_uppercase();
            write!(f, "{} {name} {count}", if nth == 0 { ":" } else { "," })?;
        }
        Ok(())
    }
}

/// As they are counted.
#[derive(Debug)]
pub(crate) struct Counts([AtomicU64; NUMBERS]);

impl Default for Counts {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; NUMBERS])
    }
}

impl Counts {
    pub(crate) fn count(&self, opcode: Opcode) {
        if let Some(count) = self.0.get(opcode as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn read(&self) -> Requests {
        Requests(std::array::from_fn(|number| self.0[number].load(Ordering::Relaxed)))
    }

    pub(crate) fn take(&self) -> Requests {
        Requests(std::array::from_fn(|number| self.0[number].swap(0, Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_has_a_place_and_is_named() {
        let counts = Counts::default();
        let known: Vec<_> = (0..1_000).filter_map(Opcode::of).collect();
        known.iter().for_each(|opcode| counts.count(*opcode));
        assert_eq!(counts.read().iter().count(), known.len());
        assert!(known.iter().all(|opcode| counts.read().of(*opcode) == 1));
        let taken = counts.take();
        assert_eq!((taken.iter().count(), counts.read().iter().count()), (known.len(), 0));
        counts.count(Opcode::Lookup);
        counts.count(Opcode::Forget);
        counts.count(Opcode::Readdirplus);
        counts.count(Opcode::Readdirplus);
        let text = "3 requests: LOOKUP 1, FORGET 1, READDIRPLUS 2";
        assert_eq!(counts.read().to_string(), text);
    }
}
