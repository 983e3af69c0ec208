//! A listing on its way from a brick, shared by everyone who lists that directory meanwhile.
//!
//! One producer pushes chunks as they arrive, any number of readers take them by number. The
//! producer pauses when it is far ahead of the fastest reader, so flow control reaches back to the
//! brick; chunks far behind the fastest reader are let go, so a slow reader costs bounded memory
//! and delays nobody: it is told [`Step::Passed`] and lists on by itself from where it is.

use std::collections::VecDeque;

use crate::chunk::Chunk;
use crate::limits::FILL_AHEAD_CHUNKS_MAX;

/// The chunks of one listing between its producer and its readers. `E` is how it can fail.
#[derive(Debug)]
pub struct Scan<E> {
    /// The retained chunks, the first of them numbered `first`.
    chunks: VecDeque<Chunk>,
    first: usize,
    /// How many chunks the fastest reader has taken.
    taken: usize,
    keep: usize,
    end: Option<Result<bool, E>>,
}

/// What a reader does next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<E> {
    /// Take this chunk.
    Chunk(Chunk),
    /// Wait for the producer.
    Wait,
    /// The listing is over: complete or not, or failed.
    End(Result<bool, E>),
    /// The chunk is gone. The reader lists on by itself, after its last cookie.
    Passed,
}

impl<E: Clone> Scan<E> {
    /// A scan that retains `keep` chunks behind its fastest reader.
    pub fn new(keep: usize) -> Self {
        Self { chunks: VecDeque::new(), first: 0, taken: 0, keep, end: None }
    }

    /// Whether the producer may push; otherwise it waits until the fastest reader has moved.
    pub fn may_push(&self) -> bool {
        self.first + self.chunks.len() < self.taken + FILL_AHEAD_CHUNKS_MAX
    }

    /// Adds the next chunk.
    pub fn push(&mut self, chunk: Chunk) {
        debug_assert!(self.end.is_none());
        self.chunks.push_back(chunk);
        self.trim();
    }

    /// Ends the scan; the first end counts.
    pub fn finish(&mut self, end: Result<bool, E>) {
        self.end.get_or_insert(end);
    }

    /// What the reader that has had `index` chunks does next.
    pub fn read(&mut self, index: usize) -> Step<E> {
        if index < self.first {
            return Step::Passed;
        }
        if let Some(chunk) = self.chunks.get(index - self.first) {
            let chunk = chunk.clone();
            self.taken = self.taken.max(index + 1);
            self.trim();
            return Step::Chunk(chunk);
        }
        self.end.clone().map_or(Step::Wait, Step::End)
    }

    fn trim(&mut self) {
        while self.first + self.keep < self.taken && !self.chunks.is_empty() {
            self.chunks.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::ChunkBuilder;
    use crate::testing::entry_ref;

    fn chunk(number: u64) -> Chunk {
        let mut builder = ChunkBuilder::default();
        assert!(builder.push(&entry_ref(format!("name-{number}").as_bytes(), number)));
        builder.finish(0).expect("one entry")
    }

    #[test]
    fn readers_get_every_chunk_in_order_and_then_the_end() {
        let mut scan = Scan::<()>::new(8);
        assert_eq!(scan.read(0), Step::Wait);
        for number in 0..3 {
            scan.push(chunk(number));
        }
        for (index, number) in (0..3).enumerate() {
            assert_eq!(scan.read(index), Step::Chunk(chunk(number)));
        }
        assert_eq!(scan.read(3), Step::Wait, "an end is said, never inferred");
        scan.finish(Ok(true));
        scan.finish(Err(()));
        assert_eq!(scan.read(0), Step::Chunk(chunk(0)), "a second reader");
        assert_eq!(scan.read(3), Step::End(Ok(true)));
    }

    #[test]
    fn the_producer_waits_for_the_fastest_reader_and_the_slowest_is_passed() {
        let mut scan = Scan::<()>::new(2);
        let mut pushed = 0;
        while scan.may_push() {
            scan.push(chunk(pushed));
            pushed += 1;
        }
        assert_eq!(pushed as usize, FILL_AHEAD_CHUNKS_MAX);
        for index in 0..5 {
            assert!(matches!(scan.read(index), Step::Chunk(_)));
        }
        assert!(scan.may_push());
        assert_eq!(scan.read(1), Step::Passed);
        assert!(matches!(scan.read(3), Step::Chunk(_)), "kept behind the fastest");
    }
}
