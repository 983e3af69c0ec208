//! Where a listing resumes, for every offset of one directory that the kernel was given.
//!
//! The wire resumes after a vector of brick cookies, the kernel after a 64-bit offset. Entries are
//! numbered from 1 in the order they are received, the offset after entry `n` is `2 + n` (1 and 2
//! follow `.` and `..`), and the cookie of each entry is kept, so a listing resumes exactly after
//! any entry already delivered, also where others were removed or added meanwhile.
//!
//! A listing that is read again (after a seek or a rewind) keeps its numbers for as long as it is
//! the same; where it differs, the entries get new numbers and the old ones stay good. The oldest
//! numbers are given up where there are more than a limit.

use std::collections::VecDeque;

use portcullis_core::Chunk;

/// Entries received in one chunk, with consecutive numbers.
struct Run {
    first: u64,
    brick: u16,
    /// The position before its first entry, one cookie a brick.
    before: Box<[u64]>,
    cookies: Box<[u64]>,
}

/// See the module. Number 0 is the start of the directory.
pub(super) struct Positions {
    /// In the order of their numbers, without a gap.
    runs: VecDeque<Run>,
    next: u64,
    kept: usize,
    kept_max: usize,
}

/// What is known of a number.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// A listing resumes after it with these cookies.
    After(Vec<u64>),
    /// It was never given out: the numbers end before it.
    Ahead,
    /// It was given up.
    GivenUp,
}

impl Positions {
    pub(super) fn new(kept_max: usize) -> Self {
        Self { runs: VecDeque::new(), next: 1, kept: 0, kept_max }
    }

    /// The greatest number given out.
    pub(super) fn last(&self) -> u64 {
        self.next - 1
    }

    /// How many are kept.
    pub(super) fn len(&self) -> usize {
        self.kept
    }

    /// Where a listing resumes after entry `number`.
    pub(super) fn after(&self, number: u64) -> Position {
        if number == 0 {
            return Position::After(Vec::new());
        }
        if number >= self.next {
            return Position::Ahead;
        }
        match self.find(number) {
            Some((run, index)) => Position::After(run.after(index)),
            None => Position::GivenUp,
        }
    }

    /// Numbers the entries of a chunk that follows entry `previous`, from the answer on.
    pub(super) fn record(&mut self, previous: u64, chunk: &Chunk) -> u64 {
        let known = (0..chunk.count())
            .take_while(|&index| self.is_same(previous + 1 + index as u64, chunk, index))
            .count();
        let goes_on = known == chunk.count() || previous + 1 + known as u64 == self.next;
        let (first, known) = if goes_on { (previous + 1, known) } else { (self.next, 0) };
        if known < chunk.count() {
            let before = match known.checked_sub(1) {
                Some(_) => self.after(first + known as u64 - 1),
                None => self.after(previous),
            };
            let before = match before {
                Position::After(cookies) => cookies.into_boxed_slice(),
                Position::Ahead | Position::GivenUp => Box::default(),
            };
            let cookies: Box<[u64]> =
                (known..chunk.count()).map(|index| chunk.cookie(index)).collect();
            self.kept += cookies.len();
            self.runs.push_back(Run { first: self.next, brick: chunk.brick(), before, cookies });
            self.next = first + chunk.count() as u64;
            self.give_up();
        }
        first
    }

    fn is_same(&self, number: u64, chunk: &Chunk, index: usize) -> bool {
        self.find(number).is_some_and(|(run, at)| {
            run.brick == chunk.brick() && run.cookies[at] == chunk.cookie(index)
        })
    }

    fn find(&self, number: u64) -> Option<(&Run, usize)> {
        let at = self.runs.partition_point(|run| run.first <= number).checked_sub(1)?;
        let run = &self.runs[at];
        let index = (number - run.first) as usize;
        (index < run.cookies.len()).then_some((run, index))
    }

    /// Lets the oldest numbers go, but never those of the last chunk.
    fn give_up(&mut self) {
        while self.kept > self.kept_max && self.runs.len() > 1 {
            if let Some(run) = self.runs.pop_front() {
                self.kept -= run.cookies.len();
            }
        }
    }
}

impl Run {
    fn after(&self, index: usize) -> Vec<u64> {
        let mut cookies = self.before.to_vec();
        let brick = usize::from(self.brick);
        if cookies.len() <= brick {
            cookies.resize(brick + 1, 0);
        }
        cookies[brick] = self.cookies[index];
        cookies
    }
}

#[cfg(test)]
mod tests {
    use portcullis_core::{ChunkBuilder, EntryRef, FileKind, Handle};

    use super::*;

    fn chunk(brick: u16, cookies: impl IntoIterator<Item = u64>) -> Chunk {
        let mut builder = ChunkBuilder::default();
        for cookie in cookies {
            let name = cookie.to_string();
            assert!(builder.push(&EntryRef {
                name: name.as_bytes(),
                handle: Handle::new(b"h").unwrap(),
                attr: None,
                kind: FileKind::Regular,
                target: None,
                cookie,
            }));
        }
        builder.finish(brick).unwrap()
    }

    fn after(cookies: &[u64]) -> Position {
        Position::After(cookies.to_vec())
    }

    #[test]
    fn every_entry_has_its_cookie() {
        let mut positions = Positions::new(1000);
        assert_eq!(positions.record(0, &chunk(0, 100..150)), 1);
        assert_eq!(positions.record(50, &chunk(0, 150..155)), 51);
        assert_eq!(positions.after(0), after(&[]));
        for number in 1..=55 {
            assert_eq!(positions.after(number), after(&[99 + number]), "{number}");
        }
        assert_eq!(positions.after(56), Position::Ahead);
        assert_eq!(positions.last(), 55);
    }

    #[test]
    fn a_position_has_the_last_cookie_of_every_brick() {
        let mut positions = Positions::new(1000);
        positions.record(0, &chunk(1, [7, 8]));
        positions.record(2, &chunk(0, [70]));
        positions.record(3, &chunk(1, [9]));
        assert_eq!(positions.after(1), after(&[0, 7]));
        assert_eq!(positions.after(2), after(&[0, 8]));
        assert_eq!(positions.after(3), after(&[70, 8]));
        assert_eq!(positions.after(4), after(&[70, 9]));
    }

    #[test]
    fn a_listing_that_did_not_change_keeps_its_numbers_however_it_is_cut() {
        let mut positions = Positions::new(1000);
        positions.record(0, &chunk(0, 1..=10));
        positions.record(10, &chunk(0, 11..=20));
        assert_eq!(positions.record(5, &chunk(0, 6..=15)), 6);
        assert_eq!(positions.record(0, &chunk(0, 1..=20)), 1);
        assert_eq!(positions.last(), 20);
        // Beyond what was known it goes on.
        assert_eq!(positions.record(15, &chunk(0, 16..=25)), 16);
        assert_eq!(positions.last(), 25);
        assert_eq!(positions.after(21), after(&[21]));
        assert_eq!(positions.kept, 25);
    }

    #[test]
    fn where_a_listing_changed_old_numbers_stay_good() {
        let mut positions = Positions::new(1000);
        positions.record(0, &chunk(0, 1..=10));
        // Entry 7 was removed; the listing was read again after entry 5.
        assert_eq!(positions.record(5, &chunk(0, [6, 8, 9, 10])), 11);
        assert_eq!(positions.after(9), after(&[9]));
        assert_eq!(positions.after(12), after(&[8]));
        assert_eq!(positions.last(), 14);
        // What follows the new numbers gets newer ones.
        assert_eq!(positions.record(14, &chunk(0, [11])), 15);
        assert_eq!(positions.after(15), after(&[11]));
    }

    #[test]
    fn memory_is_bounded_and_what_was_given_up_is_not_mistaken() {
        let mut positions = Positions::new(100);
        for n in 0..100 {
            positions.record(n * 10, &chunk(0, n * 10 + 1..=n * 10 + 10));
            assert!(positions.kept <= 100);
        }
        assert_eq!(positions.after(5), Position::GivenUp);
        assert_eq!(positions.after(995), after(&[995]));
        assert_eq!(positions.after(0), after(&[]));
    }
}
