//! A packed run of a listing, the same bytes on the wire, in the cache and in the mount.
//!
//! A brick packs what it scanned once; every other tier checks the bytes once ([`Chunk::parse`])
//! and then reads entries where they lie, so a listing is never decoded and encoded again on its
//! way (per entry, a general codec costs 87 ns to encode and 146 ns to decode). All numbers are
//! little-endian. The layout, drawn in `docs/PROTOCOL.md`:
//!
//! ```text
//! header   count u16 | flags u16 | brick u16 | 0 u16                        8 bytes
//! names    count x { heap u16 | target_len u16 | name_len u8 | handle_len u8
//!                    | dtype u8 | flags u8 | cookie u64 }                  16 bytes each
//! attrs    count x { ino u64 | size u64 | blocks u64 | mode u16 | nlink u32 | uid u32 | gid u32
//!                    | block_size u32 | atime | mtime | ctime }        66 or 78 bytes each
//! heap     per entry: name, handle, rdev u64 (devices only), target (symlinks only)
//! ```
//!
//! A time is one u64, seconds since 1901-12-13T20:45:52Z above 30 bits of nanoseconds, which
//! reaches to 2446 (ext4's own range); a chunk with a time beyond that sets `WIDE` and stores
//! `i64 seconds | u32 nanoseconds`. Names and attributes are apart so that a cache can let
//! attributes go and keep the listing.

use bytes::Bytes;
use thiserror::Error;

use crate::attr::{Attr, FileKind, Timestamp};
use crate::entry::{EntryRef, is_valid_name};
use crate::handle::Handle;
use crate::limits::{
    BRICKS_MAX, CHUNK_ENTRIES_MAX, CHUNK_LEN_BYTES_MAX, HANDLE_LEN_MAX, LINK_TARGET_LEN_MAX,
};

const HEADER_LEN: usize = 8;
const NAME_RECORD_LEN: usize = 16;
const ATTR_FIXED_LEN: usize = 42;
const NARROW_TIME_LEN: usize = 8;
const WIDE_TIME_LEN: usize = 12;
const RDEV_LEN: usize = 8;

/// Chunk flag: times are 12 bytes wide.
const WIDE: u16 = 1;
/// Entry flag: the attributes are known.
const HAS_ATTR: u8 = 1;
/// Entry flag: a link target follows the name and handle.
const HAS_TARGET: u8 = 2;
/// Entry flag: a device number follows the handle.
const HAS_RDEV: u8 = 4;

/// The earliest second a narrow time can hold.
const NARROW_BASE_SECS: i64 = -(1 << 31);
const NARROW_SECS_END: i64 = NARROW_BASE_SECS + (1 << 34);

/// Why bytes are not a chunk.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ChunkError {
    /// Fewer bytes than the header announces, or more than a chunk may have.
    #[error("a chunk of {len_bytes} bytes cannot hold the {count} entries it announces")]
    Length {
        /// Bytes received.
        len_bytes: usize,
        /// Entries announced.
        count: usize,
    },
    /// More entries than a chunk may have, or an unknown flag.
    #[error("a chunk header with {count} entries and flags {flags:#x} is outside the protocol")]
    Header {
        /// Entries announced.
        count: usize,
        /// Flags received.
        flags: u16,
    },
    /// An entry whose parts lie outside the chunk or break a rule.
    #[error("entry {index} of a chunk: {reason}")]
    Entry {
        /// Which entry.
        index: usize,
        /// The rule it breaks.
        reason: &'static str,
    },
}

/// A checked run of a listing. Cloning shares the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    bytes: Bytes,
    count: usize,
    time_len: usize,
}

impl Chunk {
    /// Checks `bytes`, received from a peer, so that reading entries later cannot fail.
    ///
    /// # Errors
    /// [`ChunkError`] says which rule is broken.
    pub fn parse(bytes: Bytes) -> Result<Self, ChunkError> {
        let short = |count| ChunkError::Length { len_bytes: bytes.len(), count };
        if bytes.len() < HEADER_LEN || bytes.len() > CHUNK_LEN_BYTES_MAX {
            return Err(short(0));
        }
        let count = read_u16(&bytes, 0) as usize;
        let flags = read_u16(&bytes, 2);
        let brick = read_u16(&bytes, 4) as usize;
        if count == 0 || count > CHUNK_ENTRIES_MAX || flags & !WIDE != 0 || brick >= BRICKS_MAX {
            return Err(ChunkError::Header { count, flags });
        }
        let time_len = if flags & WIDE != 0 { WIDE_TIME_LEN } else { NARROW_TIME_LEN };
        let chunk = Self { count, time_len, bytes };
        if chunk.bytes.len() < chunk.heap_start() {
            return Err(ChunkError::Length { len_bytes: chunk.bytes.len(), count });
        }
        for index in 0..count {
            chunk.check(index).map_err(|reason| ChunkError::Entry { index, reason })?;
        }
        Ok(chunk)
    }

    /// The number of entries, at least 1.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The packed bytes, as [`Chunk::parse`] takes them.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The brick that these entries come from.
    pub fn brick(&self) -> u16 {
        read_u16(&self.bytes, 4)
    }

    /// The same chunk with its bytes in an allocation of their own, so that keeping it keeps
    /// nothing else alive.
    pub fn detached(&self) -> Self {
        Self { bytes: Bytes::copy_from_slice(&self.bytes), ..*self }
    }

    /// The name of entry `index`, which must be below [`Chunk::count`].
    pub fn name(&self, index: usize) -> &[u8] {
        let at = self.record(index);
        let heap = self.heap_start() + read_u16(&self.bytes, at) as usize;
        &self.bytes[heap..heap + self.bytes[at + 4] as usize]
    }

    /// The bytes of the handle of entry `index`.
    pub fn handle_bytes(&self, index: usize) -> &[u8] {
        let at = self.record(index);
        let start =
            self.heap_start() + read_u16(&self.bytes, at) as usize + self.bytes[at + 4] as usize;
        &self.bytes[start..start + self.bytes[at + 5] as usize]
    }

    /// The cookie of entry `index`.
    pub fn cookie(&self, index: usize) -> u64 {
        read_u64(&self.bytes, self.record(index) + 8)
    }

    /// Entry `index`, which must be below [`Chunk::count`].
    pub fn entry(&self, index: usize) -> EntryRef<'_> {
        let at = self.record(index);
        let flags = self.bytes[at + 7];
        let heap = self.heap_start() + read_u16(&self.bytes, at) as usize;
        let name_end = heap + self.bytes[at + 4] as usize;
        let handle_end = name_end + self.bytes[at + 5] as usize;
        let rdev_end = handle_end + if flags & HAS_RDEV != 0 { RDEV_LEN } else { 0 };
        let rdev = if flags & HAS_RDEV != 0 { read_u64(&self.bytes, handle_end) } else { 0 };
        let target_len = read_u16(&self.bytes, at + 2) as usize;
        EntryRef {
            name: &self.bytes[heap..name_end],
            handle: Handle::new(&self.bytes[name_end..handle_end])
                .unwrap_or_else(|| unreachable!("parse() bounds the length of a handle")),
            attr: (flags & HAS_ATTR != 0).then(|| self.attr(index, rdev)),
            kind: FileKind::of_dtype(self.bytes[at + 6]),
            target: (flags & HAS_TARGET != 0).then(|| &self.bytes[rdev_end..rdev_end + target_len]),
            cookie: read_u64(&self.bytes, at + 8),
        }
    }

    /// The entries in order.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = EntryRef<'_>> + '_ {
        (0..self.count).map(|index| self.entry(index))
    }

    fn record(&self, index: usize) -> usize {
        debug_assert!(index < self.count);
        HEADER_LEN + index * NAME_RECORD_LEN
    }

    fn attr_len(&self) -> usize {
        ATTR_FIXED_LEN + 3 * self.time_len
    }

    fn heap_start(&self) -> usize {
        HEADER_LEN + self.count * (NAME_RECORD_LEN + self.attr_len())
    }

    fn attr(&self, index: usize, rdev: u64) -> Attr {
        let at = HEADER_LEN + self.count * NAME_RECORD_LEN + index * self.attr_len();
        let b = &self.bytes;
        let time =
            |nth: usize| read_time(b, at + ATTR_FIXED_LEN + nth * self.time_len, self.time_len);
        Attr {
            ino: read_u64(b, at),
            size_bytes: read_u64(b, at + 8),
            blocks: read_u64(b, at + 16),
            mode: u32::from(read_u16(b, at + 24)),
            nlink: read_u32(b, at + 26),
            uid: read_u32(b, at + 30),
            gid: read_u32(b, at + 34),
            block_size_bytes: read_u32(b, at + 38),
            atime: time(0),
            mtime: time(1),
            ctime: time(2),
            rdev,
        }
    }

    /// Checks one entry; what is accepted here can be read by `entry` without a further check.
    fn check(&self, index: usize) -> Result<(), &'static str> {
        let at = self.record(index);
        let flags = self.bytes[at + 7];
        if flags & !(HAS_ATTR | HAS_TARGET | HAS_RDEV) != 0 {
            return Err("an unknown flag");
        }
        let handle_len = self.bytes[at + 5] as usize;
        if handle_len == 0 || handle_len > HANDLE_LEN_MAX {
            return Err("a handle of impossible length");
        }
        let target_len = read_u16(&self.bytes, at + 2) as usize;
        if target_len > LINK_TARGET_LEN_MAX || (flags & HAS_TARGET == 0 && target_len != 0) {
            return Err("a link target of impossible length");
        }
        let heap = self.heap_start() + read_u16(&self.bytes, at) as usize;
        let name_end = heap + self.bytes[at + 4] as usize;
        let rdev_len = if flags & HAS_RDEV != 0 { RDEV_LEN } else { 0 };
        if name_end + handle_len + rdev_len + target_len > self.bytes.len() {
            return Err("it reaches past the end");
        }
        if !is_valid_name(&self.bytes[heap..name_end]) {
            return Err("a name that no file can have");
        }
        if flags & HAS_ATTR != 0 {
            let attr = self.attr(index, 0);
            if [attr.atime, attr.mtime, attr.ctime].iter().any(|time| time.nanos >= 1_000_000_000) {
                return Err("a time with a second or more of nanoseconds");
            }
            if attr.kind().dtype() != self.bytes[at + 6] {
                return Err("a type that contradicts its mode");
            }
        }
        Ok(())
    }
}

/// Packs entries into chunks. Push until it is full, take the chunk, go on.
#[derive(Debug, Default)]
pub struct ChunkBuilder {
    names: Vec<u8>,
    attrs: Vec<(Attr, bool)>,
    heap: Vec<u8>,
    wide: bool,
}

impl ChunkBuilder {
    /// Adds an entry. `false` where it does not fit any more: then take [`ChunkBuilder::finish`]
    /// and push it again. The caller guarantees a name that [`is_valid_name`] accepts and a link
    /// target within [`LINK_TARGET_LEN_MAX`].
    pub fn push(&mut self, entry: &EntryRef<'_>) -> bool {
        debug_assert!(is_valid_name(entry.name));
        let target = entry.target.unwrap_or_default();
        let rdev = entry.attr.map_or(0, |attr| attr.rdev);
        let attr = entry.attr.unwrap_or_default();
        let wide = self.wide || !attr_is_narrow(&attr);
        let added = entry.name.len() + entry.handle.as_bytes().len() + RDEV_LEN + target.len();
        let count = self.attrs.len() + 1;
        if count > CHUNK_ENTRIES_MAX
            || packed_len(count, wide, self.heap.len() + added) > CHUNK_LEN_BYTES_MAX
        {
            return false;
        }
        let mut flags = 0;
        flags |= if entry.attr.is_some() { HAS_ATTR } else { 0 };
        flags |= if entry.target.is_some() { HAS_TARGET } else { 0 };
        flags |= if rdev != 0 { HAS_RDEV } else { 0 };
        self.names.extend_from_slice(&(self.heap.len() as u16).to_le_bytes());
        self.names.extend_from_slice(&(target.len() as u16).to_le_bytes());
        self.names.push(entry.name.len() as u8);
        self.names.push(entry.handle.as_bytes().len() as u8);
        self.names.push(entry.attr.map_or(entry.kind, |attr| attr.kind()).dtype());
        self.names.push(flags);
        self.names.extend_from_slice(&entry.cookie.to_le_bytes());
        self.heap.extend_from_slice(entry.name);
        self.heap.extend_from_slice(entry.handle.as_bytes());
        if rdev != 0 {
            self.heap.extend_from_slice(&rdev.to_le_bytes());
        }
        self.heap.extend_from_slice(target);
        self.attrs.push((attr, entry.attr.is_some()));
        self.wide = wide;
        true
    }

    /// The number of entries pushed since the last chunk was taken.
    pub fn count(&self) -> usize {
        self.attrs.len()
    }

    /// Takes the chunk, `None` where nothing was pushed; the builder is empty afterwards.
    pub fn finish(&mut self, brick: u16) -> Option<Chunk> {
        let count = self.attrs.len();
        if count == 0 {
            return None;
        }
        let mut out = Vec::with_capacity(packed_len(count, self.wide, self.heap.len()));
        out.extend_from_slice(&(count as u16).to_le_bytes());
        out.extend_from_slice(&(if self.wide { WIDE } else { 0 }).to_le_bytes());
        out.extend_from_slice(&brick.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.append(&mut self.names);
        for (attr, _) in &self.attrs {
            write_attr(&mut out, attr, self.wide);
        }
        out.append(&mut self.heap);
        let time_len = if self.wide { WIDE_TIME_LEN } else { NARROW_TIME_LEN };
        self.attrs.clear();
        self.wide = false;
        Some(Chunk { bytes: Bytes::from(out), count, time_len })
    }
}

fn packed_len(count: usize, wide: bool, heap_len: usize) -> usize {
    let time_len = if wide { WIDE_TIME_LEN } else { NARROW_TIME_LEN };
    HEADER_LEN + count * (NAME_RECORD_LEN + ATTR_FIXED_LEN + 3 * time_len) + heap_len
}

fn attr_is_narrow(attr: &Attr) -> bool {
    [attr.atime, attr.mtime, attr.ctime]
        .iter()
        .all(|time| (NARROW_BASE_SECS..NARROW_SECS_END).contains(&time.secs))
}

fn write_attr(out: &mut Vec<u8>, attr: &Attr, wide: bool) {
    out.extend_from_slice(&attr.ino.to_le_bytes());
    out.extend_from_slice(&attr.size_bytes.to_le_bytes());
    out.extend_from_slice(&attr.blocks.to_le_bytes());
    out.extend_from_slice(&(attr.mode as u16).to_le_bytes());
    for word in [attr.nlink, attr.uid, attr.gid, attr.block_size_bytes] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    for time in [attr.atime, attr.mtime, attr.ctime] {
        if wide {
            out.extend_from_slice(&time.secs.to_le_bytes());
            out.extend_from_slice(&time.nanos.to_le_bytes());
        } else {
            let packed = ((time.secs - NARROW_BASE_SECS) as u64) << 30 | u64::from(time.nanos);
            out.extend_from_slice(&packed.to_le_bytes());
        }
    }
}

fn read_time(bytes: &[u8], at: usize, time_len: usize) -> Timestamp {
    if time_len == WIDE_TIME_LEN {
        Timestamp { secs: read_u64(bytes, at) as i64, nanos: read_u32(bytes, at + 8) }
    } else {
        let packed = read_u64(bytes, at);
        Timestamp {
            secs: (packed >> 30) as i64 + NARROW_BASE_SECS,
            nanos: (packed & ((1 << 30) - 1)) as u32,
        }
    }
}

fn read_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn read_u64(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}
