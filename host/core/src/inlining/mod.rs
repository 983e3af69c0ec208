//! Inlining: which content travels with the attributes of its file, before anybody reads it.
//!
//! Three parties meet here, as in [`eviction`](crate::eviction):
//!
//! - the **host** counts, by class of directory and client, what was delivered and what of it was
//!   read while it was valid, and applies rules natively to each file, so that no delivery waits;
//! - a **policy** ([`InliningPolicy`]) makes rules of these counts: up to which size the content of
//!   a file travels along. There are two: [`Fixed`] and [`Learnt`]; a WebAssembly component is one
//!   too;
//! - whoever drives it asks for rules about once a second. The [`Ledger`] lies between the two.
//!
//! What must hold: a policy sees counts and no names; whatever it answers, the host keeps to its
//! quota of bytes, and sends a content only if its length is the size it travels with.

mod choice;
pub mod fixed;
pub mod learnt;
mod ledger;

pub use choice::InliningChoice;
pub use fixed::Fixed;
pub use learnt::Learnt;
pub use ledger::{Ledger, Line};

/// Directories and clients that are judged together: a number of the host, which says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId(pub u64);

impl ClassId {
    /// What holds for classes without a rule of their own.
    pub const ANY: Self = Self(u64::MAX);
}

/// What came of one class since the last time it was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Files whose attributes were delivered.
    pub delivered: u64,
    /// Of those, files whose content was read while the attributes were valid.
    pub read: u64,
    /// Of those delivered, files whose content travelled along.
    pub inlined: u64,
    /// Of those whose content travelled along, files that were read.
    pub inlined_read: u64,
    /// Bytes of content that travelled along.
    pub inlined_bytes: u64,
    /// What the line to these clients carries, in bytes a second; 0 where it is not known.
    pub bandwidth_bytes_per_s: u64,
    /// What a read takes until its first byte is there, in microseconds, which one that finds the
    /// content in place is spared; 0 where it is not known.
    pub latency_us: u64,
}

/// A row of statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Of which class.
    pub class: ClassId,
    /// What came of it.
    pub counts: Counts,
}

/// What travels along in a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// In which; [`ClassId::ANY`] is for those without a rule of their own.
    pub class: ClassId,
    /// Content of files of at most so many bytes travels along; with 0 only that of empty ones.
    pub size_bytes_max: u64,
}

/// An inlining policy.
///
/// The caller guarantees: a class that is not told in a call had no traffic since the last one.
///
/// The implementor must: answer at most one rule a class; remember of each class a fixed amount, and
/// of so many classes at most as are named in its own limits; and do the same for the same statistics.
pub trait InliningPolicy: Send {
    /// Takes statistics; adds rules to `rules`, which hold until others for the same classes come.
    /// `now_ms` is monotonic, from an arbitrary start.
    fn rules(&mut self, now_ms: u64, stats: &[Stat], rules: &mut Vec<Rule>);
}

impl Stat {
    /// Words of a packed row, in the order of the fields.
    pub const WORDS: usize = 8;

    /// The packed form (`wit/README.md`).
    pub fn pack(&self) -> [u64; Self::WORDS] {
        let Counts { delivered, read, inlined, inlined_read, inlined_bytes, .. } = self.counts;
        let Counts { bandwidth_bytes_per_s, latency_us, .. } = self.counts;
        [
            self.class.0,
            delivered,
            read,
            inlined,
            inlined_read,
            inlined_bytes,
            bandwidth_bytes_per_s,
            latency_us,
        ]
    }

    /// The row of a packed form.
    pub fn unpack(words: [u64; Self::WORDS]) -> Self {
        let [
            class,
            delivered,
            read,
            inlined,
            inlined_read,
            inlined_bytes,
            bandwidth_bytes_per_s,
            latency_us,
        ] = words;
        let counts = Counts {
            delivered,
            read,
            inlined,
            inlined_read,
            inlined_bytes,
            bandwidth_bytes_per_s,
            latency_us,
        };
        Self { class: ClassId(class), counts }
    }
}

impl Rule {
    /// Words of a packed rule: class, bytes.
    pub const WORDS: usize = 2;

    /// The packed form (`wit/README.md`).
    pub fn pack(&self) -> [u64; Self::WORDS] {
        [self.class.0, self.size_bytes_max]
    }

    /// The rule of a packed form.
    pub fn unpack(words: [u64; Self::WORDS]) -> Self {
        Self { class: ClassId(words[0]), size_bytes_max: words[1] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_in_the_order_of_the_interface() {
        let words = [11, 1, 2, 3, 4, 5, 6, 7];
        let stat = Stat::unpack(words);
        assert_eq!(stat.class, ClassId(11));
        let Counts { delivered, read, inlined, inlined_read, inlined_bytes, .. } = stat.counts;
        assert_eq!([delivered, read, inlined, inlined_read, inlined_bytes], [1, 2, 3, 4, 5]);
        assert_eq!((stat.counts.bandwidth_bytes_per_s, stat.counts.latency_us), (6, 7));
        assert_eq!(stat.pack(), words);
        let rule = Rule { class: ClassId::ANY, size_bytes_max: 4096 };
        assert_eq!(rule.pack(), [u64::MAX, 4096]);
        assert_eq!(Rule::unpack(rule.pack()), rule);
    }
}
