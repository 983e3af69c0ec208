//! Contents on their way: runs of them, before the chunk of a listing that has their entries.
//!
//! ```text
//! content: index u8 | length u32 LE | bytes
//! ```
//!
//! A run is contents one after another, of entries in the order of the chunk that follows the run; several
//! runs may come before one chunk. What must hold, and is checked: indices grow, over all runs of a chunk;
//! each is of a regular file whose size is the length; all together are bounded.

use bytes::Bytes;
use thiserror::Error;

use crate::limits::{
    CHUNK_ENTRIES_MAX, FRAME_LEN_BYTES_MAX, INLINE_BYTES_MAX, INLINE_CHUNK_BYTES,
    INLINE_CHUNK_BYTES_MAX,
};
use crate::{Chunk, ChunkBuilder, EntryRef, FileKind};

/// Bytes before each content.
const HEADER_LEN: usize = 5;

const _: () = assert!(CHUNK_ENTRIES_MAX <= u8::MAX as usize + 1);

/// Why bytes are no contents, or do not belong to a chunk.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ContentError {
    /// A run without contents, or one that ends within one.
    #[error("a run of contents of {len_bytes} bytes that ends within one or is empty")]
    Length {
        /// Bytes received.
        len_bytes: usize,
    },
    /// A content that is larger than any may be.
    #[error("a content of {len_bytes} bytes, over the limit of {INLINE_BYTES_MAX}")]
    TooLong {
        /// Bytes announced.
        len_bytes: usize,
    },
    /// Contents out of order, or one twice.
    #[error("the content of entry {index} after that of a later one")]
    Order {
        /// The entry.
        index: usize,
    },
    /// More before one chunk than is allowed.
    #[error("contents of over {INLINE_CHUNK_BYTES_MAX} bytes before one chunk")]
    TooMany,
    /// A content of an entry that is not in the chunk, or is no regular file.
    #[error("the content of entry {index}, which is no regular file of the chunk")]
    Entry {
        /// The entry.
        index: usize,
    },
    /// A content whose length is not the size of its file.
    #[error("a content of {len_bytes} bytes of entry {index}, which has another size")]
    Size {
        /// The entry.
        index: usize,
        /// Bytes received.
        len_bytes: usize,
    },
    /// Contents without the chunk that they belong to.
    #[error("contents that no chunk follows")]
    NoChunk,
}

/// A checked run of contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentRun {
    bytes: Bytes,
}

/// Builds runs.
#[derive(Debug, Default)]
pub struct ContentRunBuilder {
    bytes: Vec<u8>,
}

/// Entries of a listing, and the contents that go before them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Contents of some of the entries.
    pub contents: Vec<ContentRun>,
    /// The entries.
    pub chunk: Chunk,
}

/// Entries of one brick on their way into chunks, each with the contents that go along.
#[derive(Debug, Default)]
pub struct Packing {
    brick: u16,
    builder: ChunkBuilder,
    /// Of entries of the chunk that is built, by their index.
    contents: Vec<(usize, Bytes)>,
    contents_len_bytes: usize,
    listed: Vec<Listed>,
}

/// The contents that came before a chunk.
#[derive(Debug, Default)]
pub struct Arriving {
    runs: Vec<ContentRun>,
    len_bytes: usize,
    /// The lowest index that may come next.
    next: usize,
}

impl ContentRun {
    /// Checks `bytes`, received from a peer.
    ///
    /// # Errors
    /// [`ContentError`] says which rule is broken.
    pub fn parse(bytes: Bytes) -> Result<Self, ContentError> {
        let (mut at, mut next) = (0, 0);
        let length = || ContentError::Length { len_bytes: bytes.len() };
        while at < bytes.len() || at == 0 {
            let header = bytes.get(at..).and_then(|rest| rest.first_chunk()).ok_or_else(length)?;
            let (index, len_bytes) = unpack(*header);
            if len_bytes as u64 > INLINE_BYTES_MAX {
                return Err(ContentError::TooLong { len_bytes });
            }
            if index < next {
                return Err(ContentError::Order { index });
            }
            next = index + 1;
            at += HEADER_LEN + len_bytes;
            if at > bytes.len() {
                return Err(length());
            }
        }
        Ok(Self { bytes })
    }

    /// The packed form.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Contents, each with the index of its entry. They share the memory of the run.
    pub fn contents(&self) -> impl Iterator<Item = (usize, Bytes)> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let header = self.bytes.get(at..).and_then(|rest| rest.first_chunk())?;
            let (index, len_bytes) = unpack(*header);
            let start = at + HEADER_LEN;
            at = start + len_bytes;
            Some((index, self.bytes.slice(start..at)))
        })
    }
}

fn unpack([index, a, b, c, d]: [u8; HEADER_LEN]) -> (usize, usize) {
    (usize::from(index), u32::from_le_bytes([a, b, c, d]) as usize)
}

impl ContentRunBuilder {
    /// Adds the content of an entry, of at most `INLINE_BYTES_MAX`; `false` where there is no room for it in
    /// this run.
    pub fn push(&mut self, index: usize, content: &[u8]) -> bool {
        debug_assert!(content.len() as u64 <= INLINE_BYTES_MAX && index < CHUNK_ENTRIES_MAX);
        if self.bytes.len() + HEADER_LEN + content.len() > FRAME_LEN_BYTES_MAX {
            return false;
        }
        self.bytes.push(index as u8);
        self.bytes.extend_from_slice(&(content.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(content);
        true
    }

    /// The run; `None` where nothing was added. The builder is empty after that.
    pub fn finish(&mut self) -> Option<ContentRun> {
        let bytes = std::mem::take(&mut self.bytes);
        (!bytes.is_empty()).then(|| ContentRun { bytes: bytes.into() })
    }
}

/// Runs of these contents, each with the index of its entry, in order; together they are bounded: what is
/// beyond that is left out.
pub fn pack<C: AsRef<[u8]>>(contents: impl IntoIterator<Item = (usize, C)>) -> Vec<ContentRun> {
    let (mut runs, mut builder, mut len_bytes) = (Vec::new(), ContentRunBuilder::default(), 0);
    for (index, content) in contents {
        let content = content.as_ref();
        if len_bytes + HEADER_LEN + content.len() > INLINE_CHUNK_BYTES_MAX {
            break;
        }
        len_bytes += HEADER_LEN + content.len();
        if !builder.push(index, content) {
            runs.extend(builder.finish());
            builder.push(index, content);
        }
    }
    runs.extend(builder.finish());
    runs
}

impl Packing {
    /// Nothing yet.
    pub fn new(brick: u16) -> Self {
        Self { brick, ..Self::default() }
    }

    /// Adds an entry, and its content where that goes along.
    pub fn push(&mut self, entry: &EntryRef<'_>, content: Option<Bytes>) {
        if self.contents_len_bytes >= INLINE_CHUNK_BYTES || !self.builder.push(entry) {
            self.end_chunk();
            // An entry of any size fits an empty chunk.
            self.builder.push(entry);
        }
        if let Some(content) = content {
            self.contents_len_bytes += content.len();
            self.contents.push((self.builder.count() - 1, content));
        }
    }

    /// Whether the chunk that is built has its share of contents.
    pub fn is_full(&self) -> bool {
        self.contents_len_bytes >= INLINE_CHUNK_BYTES
    }

    /// What was added, in chunks.
    pub fn finish(mut self) -> Vec<Listed> {
        self.end_chunk();
        self.listed
    }

    fn end_chunk(&mut self) {
        self.contents_len_bytes = 0;
        let contents = std::mem::take(&mut self.contents);
        if let Some(chunk) = self.builder.finish(self.brick) {
            self.listed.push(Listed { contents: pack(contents), chunk });
        }
    }
}

impl Arriving {
    /// Takes the next run.
    ///
    /// # Errors
    /// It does not follow the ones before it, or is too much.
    pub fn push(&mut self, run: ContentRun) -> Result<(), ContentError> {
        let first = run.contents().next().map_or(0, |(index, _)| index);
        if first < self.next {
            return Err(ContentError::Order { index: first });
        }
        self.next = run.contents().last().map_or(0, |(index, _)| index) + 1;
        self.len_bytes += run.bytes.len();
        if self.len_bytes > INLINE_CHUNK_BYTES_MAX {
            return Err(ContentError::TooMany);
        }
        self.runs.push(run);
        Ok(())
    }

    /// The contents that belong to the chunk that came now.
    ///
    /// # Errors
    /// One does not belong to it.
    pub fn take(&mut self, chunk: &Chunk) -> Result<Vec<(usize, Bytes)>, ContentError> {
        let Self { runs, .. } = std::mem::take(self);
        let mut contents = Vec::new();
        for (index, bytes) in runs.iter().flat_map(ContentRun::contents) {
            let entry = (index < chunk.count()).then(|| chunk.entry(index));
            let attr = entry
                .and_then(|EntryRef { attr, kind, .. }| attr.filter(|_| kind == FileKind::Regular));
            let attr = attr.ok_or(ContentError::Entry { index })?;
            if attr.size_bytes != bytes.len() as u64 {
                return Err(ContentError::Size { index, len_bytes: bytes.len() });
            }
            contents.push((index, bytes));
        }
        Ok(contents)
    }

    /// The series is over.
    ///
    /// # Errors
    /// There are contents that no chunk followed.
    pub fn end(&self) -> Result<(), ContentError> {
        if self.runs.is_empty() { Ok(()) } else { Err(ContentError::NoChunk) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attr, Handle};

    fn chunk(sizes: &[u64]) -> Chunk {
        let mut builder = ChunkBuilder::default();
        for (number, &size_bytes) in sizes.iter().enumerate() {
            let attr = Attr { size_bytes, mode: 0o100_644, ..Attr::default() };
            assert!(builder.push(&EntryRef {
                name: format!("n{number}").as_bytes(),
                handle: Handle::new(&number.to_le_bytes()).expect("8 bytes"),
                attr: Some(attr),
                kind: FileKind::Regular,
                target: None,
                cookie: number as u64 + 1,
            }));
        }
        builder.finish(0).expect("entries")
    }

    fn arrive(chunk: &Chunk, contents: &[(usize, &[u8])]) -> Result<Vec<usize>, ContentError> {
        let mut arriving = Arriving::default();
        for run in pack(contents.iter().copied()) {
            arriving.push(ContentRun::parse(run.bytes().clone())?)?;
        }
        Ok(arriving.take(chunk)?.into_iter().map(|(index, _)| index).collect())
    }

    #[test]
    fn the_bytes_are_those_of_the_protocol() {
        let run = pack([(0, &b""[..]), (2, b"abc")]);
        assert_eq!(run[0].bytes()[..], [0, 0, 0, 0, 0, 2, 3, 0, 0, 0, b'a', b'b', b'c']);
    }

    #[test]
    fn contents_arrive_with_their_entries_over_several_runs() {
        let large = vec![7; INLINE_BYTES_MAX as usize];
        let sizes = [INLINE_BYTES_MAX, 0, INLINE_BYTES_MAX, INLINE_BYTES_MAX, 3];
        let chunk = chunk(&sizes);
        let contents: [(usize, &[u8]); 5] =
            [(0, &large), (1, b""), (2, &large), (3, &large), (4, b"abc")];
        assert_eq!(arrive(&chunk, &contents), Ok(vec![0, 1, 2, 3, 4]));
        let mut arriving = Arriving::default();
        for (index, content) in contents {
            arriving.push(pack([(index, content)]).remove(0)).expect("in order");
        }
        assert_eq!(arriving.take(&chunk).expect("they belong to it").len(), 5);
    }

    #[test]
    fn what_does_not_belong_to_the_chunk_is_refused() {
        let of_two = chunk(&[3, 0]);
        assert_eq!(
            arrive(&of_two, &[(0, b"ab")]),
            Err(ContentError::Size { index: 0, len_bytes: 2 })
        );
        assert_eq!(arrive(&of_two, &[(2, b"")]), Err(ContentError::Entry { index: 2 }));
        let mut arriving = Arriving::default();
        arriving.push(pack([(1, b"")]).remove(0)).expect("the first");
        let again = pack([(1, b"")]).remove(0);
        assert_eq!(arriving.push(again), Err(ContentError::Order { index: 1 }));
        assert_eq!(arriving.end(), Err(ContentError::NoChunk));
    }

    #[test]
    fn a_chunk_ends_where_its_contents_are_enough() {
        let sizes = [INLINE_BYTES_MAX; 7];
        let large = Bytes::from(vec![7; INLINE_BYTES_MAX as usize]);
        let mut packing = Packing::new(3);
        for entry in chunk(&sizes).entries() {
            packing.push(&entry, Some(large.clone()));
        }
        let listed = packing.finish();
        let counts: Vec<_> = listed.iter().map(|listed| listed.chunk.count()).collect();
        assert_eq!(counts, [2, 2, 2, 1]);
        for Listed { contents, chunk } in listed {
            let mut arriving = Arriving::default();
            contents.into_iter().for_each(|run| arriving.push(run).expect("within limits"));
            assert_eq!(arriving.take(&chunk).expect("its own").len(), chunk.count());
            assert_eq!(chunk.brick(), 3);
        }
    }

    #[test]
    fn malformed_runs_are_refused() {
        let parse = |bytes: &[u8]| ContentRun::parse(Bytes::copy_from_slice(bytes)).map(drop);
        for bytes in [&b""[..], &[0, 1, 0, 0, 0], &[0, 0, 0, 0], &[0, 0, 0, 0, 0, 1]] {
            assert_eq!(parse(bytes), Err(ContentError::Length { len_bytes: bytes.len() }));
        }
        let len_bytes = INLINE_BYTES_MAX as usize + 1;
        let mut long = vec![0; HEADER_LEN];
        long[1..].copy_from_slice(&(len_bytes as u32).to_le_bytes());
        long.resize(HEADER_LEN + len_bytes, 0);
        assert_eq!(parse(&long), Err(ContentError::TooLong { len_bytes }));
        let twice = [1, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        assert_eq!(parse(&twice), Err(ContentError::Order { index: 1 }));
        let huge = [0, 255, 255, 255, 255];
        assert_eq!(parse(&huge), Err(ContentError::TooLong { len_bytes: u32::MAX as usize }));
    }

    #[test]
    fn what_comes_before_one_chunk_is_bounded() {
        let large = vec![0; INLINE_BYTES_MAX as usize];
        let kept = pack((0..CHUNK_ENTRIES_MAX).map(|index| (index, &large)));
        let len_bytes: usize = kept.iter().map(|run| run.bytes().len()).sum();
        assert!(len_bytes <= INLINE_CHUNK_BYTES_MAX);
        let mut arriving = Arriving::default();
        let pushed = (0..CHUNK_ENTRIES_MAX)
            .try_for_each(|index| arriving.push(pack([(index, &large)]).remove(0)));
        assert_eq!(pushed, Err(ContentError::TooMany));
    }
}
