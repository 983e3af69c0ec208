//! What one owner has locked of one file.
//!
//! The kernel keeps the locks; this says which there are, so that a descriptor is closed when it
//! holds none any more, and so that people are told who stands in somebody's way.

use portcullis_wire::message::LockKind;

/// Last byte of a lock that reaches to the end, whatever that will be (`OFFSET_MAX`, fcntl(2)).
pub(super) const END: u64 = i64::MAX as u64;

/// One locked range; both bytes belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) is_write: bool,
}

impl Range {
    fn touches(&self, start: u64, end: u64) -> bool {
        self.start <= end && start <= self.end
    }
}

/// Ranges in order, none overlapping another. Bounded by [`RANGES_MAX`] where they are set.
#[derive(Debug, Default)]
pub(super) struct Ranges(Vec<Range>);

/// Ranges that one owner may hold of one file.
pub(super) const RANGES_MAX: usize = 4096;

impl Ranges {
    /// Takes in that `start..=end` was locked or released.
    pub(super) fn set(&mut self, start: u64, end: u64, kind: LockKind) {
        let mut left = Vec::with_capacity(self.0.len() + 2);
        for range in self.0.drain(..) {
            if !range.touches(start, end) {
                left.push(range);
                continue;
            }
            if range.start < start {
                left.push(Range { end: start - 1, ..range });
            }
            if range.end > end {
                left.push(Range { start: end + 1, ..range });
            }
        }
        if kind != LockKind::Unlock {
            left.push(Range { start, end, is_write: kind == LockKind::Write });
        }
        left.sort_unstable_by_key(|range| range.start);
        for range in left {
            match self.0.last_mut() {
                Some(last) if last.is_write == range.is_write && last.end + 1 == range.start => {
                    last.end = range.end;
                }
                _ => self.0.push(range),
            }
        }
    }

    /// The first range that stands in the way of another owner's lock.
    pub(super) fn conflict(&self, start: u64, end: u64, is_write: bool) -> Option<Range> {
        let is_conflict =
            |range: &&Range| range.touches(start, end) && (is_write || range.is_write);
        self.0.iter().find(is_conflict).copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= RANGES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_tell_for_each_byte_what_was_set_last() {
        const BYTES: u64 = 24;
        let mut seed = 1u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let mut ranges = Ranges::default();
        let mut bytes = [LockKind::Unlock; BYTES as usize];
        for step in 0..20_000 {
            let (a, b) = (random(BYTES), random(BYTES));
            let kind = [LockKind::Unlock, LockKind::Read, LockKind::Write][random(3) as usize];
            ranges.set(a.min(b), a.max(b), kind);
            bytes[a.min(b) as usize..=a.max(b) as usize].fill(kind);
            for at in 0..BYTES {
                let kind = bytes[at as usize];
                let write = ranges.conflict(at, at, true);
                assert_eq!(write.is_some(), kind != LockKind::Unlock, "step {step}, byte {at}");
                let read = ranges.conflict(at, at, false);
                assert_eq!(read.is_some(), kind == LockKind::Write, "step {step}, byte {at}");
            }
            let apart = |pair: &[Range]| {
                pair[0].end < pair[1].start
                    && (pair[0].end + 1 < pair[1].start || pair[0].is_write != pair[1].is_write)
            };
            assert!(ranges.0.windows(2).all(apart), "step {step}: {ranges:?}");
        }
        ranges.set(0, END, LockKind::Read);
        assert_eq!(ranges.0, [Range { start: 0, end: END, is_write: false }]);
        ranges.set(0, END, LockKind::Unlock);
        assert!(ranges.is_empty());
    }
}
