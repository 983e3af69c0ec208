//! A packed run of a listing, the same bytes on the wire, in the cache and in the mount.
//!
//! A brick packs what it scanned once; every other tier checks the bytes once ([`Chunk::parse`])
//! and then reads entries where they lie, so a listing is never decoded and encoded again on its
//! way (per entry, a general codec costs 87 ns to encode and 146 ns to decode). All numbers are
//! little-endian. The layout, drawn in `docs/PROTOCOL.md`:
//!
//! ```text
//! header   count u16 | 0 u16 | brick u16 | 0 u16                            8 bytes
//! offsets  count x u16, of each entry from the start of the chunk
//! entries  cookie u64 | target_len u16 | name_len u8 | handle_len u8
//!          | dtype u8 | flags u8 | index u8 | 0 u8                         16 bytes
//!          name
//!          handle
//!          if HAS_ATTR: ino u64 | size u64 | blocks u64 | mode u16 | nlink u32 | uid u32
//!                       | gid u32 | block_size u16 | atime | mtime | ctime   64 or 76 bytes
//!          if HAS_RDEV: rdev u64 (devices)
//!          if HAS_TARGET: target (symlinks)
//! ```
//!
//! `NO_ACL` says that the file has no access control list; it goes with attributes.
//!
//! A time is one u64, seconds since 1901-12-13T20:45:52Z above 30 bits of nanoseconds, which
//! reaches to 2446 (ext4's own range); an entry with a time beyond that sets `WIDE` and stores
//! `i64 seconds | u32 nanoseconds`. An entry lies in one piece, so that finding it in a large
//! cache costs one miss of the processor's caches, not one for each column.

mod edit;

use bytes::Bytes;
use thiserror::Error;

use crate::attr::{Attr, FileKind, Timestamp};
use crate::entry::{Entry, EntryRef, is_valid_name};
use crate::handle::Handle;
use crate::limits::{
    CHUNK_ENTRIES_MAX, CHUNK_LEN_BYTES_MAX, HANDLE_LEN_MAX, LINK_TARGET_LEN_MAX,
    POSITION_COOKIES_MAX,
};

pub use edit::AttrSpace;

const HEADER_LEN: usize = 8;
const OFFSET_LEN: usize = 2;
const ENTRY_HEADER_LEN: usize = 16;
const ATTR_FIXED_LEN: usize = 40;
/// `st_blksize` is stored in this unit; it is advice, so a remainder is rounded up.
const BLOCK_SIZE_UNIT: u32 = 512;
const NARROW_TIME_LEN: usize = 8;
const WIDE_TIME_LEN: usize = 12;
const RDEV_LEN: usize = 8;

/// Entry flag: the attributes are known.
const HAS_ATTR: u8 = 1;
/// Entry flag: a link target is there.
const HAS_TARGET: u8 = 2;
/// Entry flag: a device number is there.
const HAS_RDEV: u8 = 4;
/// Entry flag: times are 12 bytes wide.
const WIDE: u8 = 8;
/// Entry flag: there is no access control list.
const NO_ACL: u8 = 16;

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
    /// No or too many entries, an impossible brick, or something where zeros belong.
    #[error("a chunk header outside the protocol: {header:02x?}")]
    Header {
        /// The header received.
        header: [u8; HEADER_LEN],
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
}

/// Where the parts of an entry lie.
struct Parts {
    name: usize,
    handle: usize,
    attr: usize,
    rdev: usize,
    target: usize,
    end: usize,
}

impl Chunk {
    /// Checks `bytes`, received from a peer, so that reading entries later cannot fail.
    ///
    /// # Errors
    /// [`ChunkError`] says which rule is broken.
    pub fn parse(bytes: Bytes) -> Result<Self, ChunkError> {
        let Some(&header) = bytes.first_chunk::<HEADER_LEN>() else {
            return Err(ChunkError::Length { len_bytes: bytes.len(), count: 0 });
        };
        let count = read_u16(&bytes, 0) as usize;
        let brick = read_u16(&bytes, 4) as usize;
        let zeros = read_u16(&bytes, 2) | read_u16(&bytes, 6);
        if count == 0 || count > CHUNK_ENTRIES_MAX || brick >= POSITION_COOKIES_MAX || zeros != 0 {
            return Err(ChunkError::Header { header });
        }
        let mut end = HEADER_LEN + count * OFFSET_LEN;
        if bytes.len() < end || bytes.len() > CHUNK_LEN_BYTES_MAX {
            return Err(ChunkError::Length { len_bytes: bytes.len(), count });
        }
        let chunk = Self { bytes };
        for index in 0..count {
            // Entries follow one another without a gap, so none lies inside another.
            end = chunk.check(index, end).map_err(|reason| ChunkError::Entry { index, reason })?;
        }
        if end != chunk.bytes.len() {
            return Err(ChunkError::Length { len_bytes: chunk.bytes.len(), count });
        }
        Ok(chunk)
    }

    /// The number of entries, at least 1.
    pub fn count(&self) -> usize {
        read_u16(&self.bytes, 0) as usize
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
        Self { bytes: Bytes::copy_from_slice(&self.bytes) }
    }

    /// The type of entry `index`, without reading the rest of it.
    pub fn kind(&self, index: usize) -> FileKind {
        FileKind::of_dtype(self.bytes[self.offset(index) + 12])
    }

    /// Entry `index`, which must be below [`Chunk::count`].
    pub fn entry(&self, index: usize) -> EntryRef<'_> {
        self.entry_at(self.offset(index))
    }

    /// The entries in order.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = EntryRef<'_>> + '_ {
        (0..self.count()).map(|index| self.entry(index))
    }

    /// The name of entry `index`.
    pub fn name(&self, index: usize) -> &[u8] {
        self.name_at(self.offset(index))
    }

    /// The bytes of the handle of entry `index`.
    pub fn handle_bytes(&self, index: usize) -> &[u8] {
        let parts = self.parts(self.offset(index));
        &self.bytes[parts.handle..parts.attr]
    }

    /// The cookie of entry `index`.
    pub fn cookie(&self, index: usize) -> u64 {
        read_u64(&self.bytes, self.offset(index))
    }

    /// Where entry `index` lies: what the functions named `at` take.
    pub fn offset(&self, index: usize) -> usize {
        debug_assert!(index < self.count());
        read_u16(&self.bytes, HEADER_LEN + index * OFFSET_LEN) as usize
    }

    /// The number of the entry at an offset.
    #[inline]
    pub fn index_at(&self, offset: usize) -> usize {
        self.bytes[offset + 14] as usize
    }

    /// The name of the entry at an offset.
    #[inline]
    pub fn name_at(&self, offset: usize) -> &[u8] {
        let start = offset + ENTRY_HEADER_LEN;
        &self.bytes[start..start + self.bytes[offset + 10] as usize]
    }

    /// The entry at an offset, which must be one that [`Chunk::offset`] gave.
    pub fn entry_at(&self, offset: usize) -> EntryRef<'_> {
        let bytes = &self.bytes[..];
        let parts = self.parts(offset);
        EntryRef {
            name: &bytes[parts.name..parts.handle],
            handle: self.handle_in(&parts),
            attr: self.attr_in(offset, &parts),
            kind: FileKind::of_dtype(bytes[offset + 12]),
            target: self.target_in(offset, &parts),
            cookie: read_u64(bytes, offset),
        }
    }

    /// As [`Chunk::entry_at`], without name and cookie, owned. Every hit of a cache goes through
    /// here: nothing is copied twice.
    #[inline]
    pub fn to_entry_at(&self, offset: usize) -> Entry {
        let parts = self.parts(offset);
        Entry {
            handle: self.handle_in(&parts),
            attr: self.attr_in(offset, &parts),
            kind: FileKind::of_dtype(self.bytes[offset + 12]),
            target: self.target_in(offset, &parts).map(<[u8]>::to_vec),
        }
    }

    #[inline]
    fn handle_in(&self, parts: &Parts) -> Handle {
        let len = parts.attr - parts.handle;
        // Mostly there are attributes behind it, enough bytes to copy without a look at its length.
        match self.bytes[parts.handle..].first_chunk() {
            Some(bytes) if len <= HANDLE_LEN_MAX => Handle::of_prefix(bytes, len as u8),
            _ => Handle::new(&self.bytes[parts.handle..parts.attr])
                .unwrap_or_else(|| unreachable!("parse() bounds the length of a handle")),
        }
    }

    #[inline]
    fn attr_in(&self, offset: usize, parts: &Parts) -> Option<Attr> {
        let flags = self.bytes[offset + 13];
        if flags & HAS_ATTR == 0 {
            return None;
        }
        let rdev = if flags & HAS_RDEV != 0 { read_u64(&self.bytes, parts.rdev) } else { 0 };
        let attr = read_attr(&self.bytes[parts.attr..parts.rdev], flags & WIDE != 0, rdev);
        Some(Attr { has_no_acl: flags & NO_ACL != 0, ..attr })
    }

    #[inline]
    fn target_in(&self, offset: usize, parts: &Parts) -> Option<&[u8]> {
        let has_target = self.bytes[offset + 13] & HAS_TARGET != 0;
        has_target.then(|| &self.bytes[parts.target..parts.end])
    }

    #[inline]
    fn parts(&self, offset: usize) -> Parts {
        let flags = self.bytes[offset + 13];
        let name = offset + ENTRY_HEADER_LEN;
        let handle = name + self.bytes[offset + 10] as usize;
        let attr = handle + self.bytes[offset + 11] as usize;
        let rdev = attr + if flags & HAS_ATTR != 0 { attr_len(flags & WIDE != 0) } else { 0 };
        let target = rdev + if flags & HAS_RDEV != 0 { RDEV_LEN } else { 0 };
        let end = target + read_u16(&self.bytes, offset + 8) as usize;
        Parts { name, handle, attr, rdev, target, end }
    }

    /// Checks the entry that must begin at `start`, and returns where it ends. What is accepted
    /// here is read by `entry_at` without a further check.
    fn check(&self, index: usize, start: usize) -> Result<usize, &'static str> {
        let offset = self.offset(index);
        if offset != start || offset + ENTRY_HEADER_LEN > self.bytes.len() {
            return Err("it does not begin where the one before it ends");
        }
        let parts = self.parts(offset);
        if parts.end > self.bytes.len() {
            return Err("it reaches past the end");
        }
        let flags = self.bytes[offset + 13];
        if flags & !(HAS_ATTR | HAS_TARGET | HAS_RDEV | WIDE | NO_ACL) != 0
            || (flags & (WIDE | NO_ACL) != 0 && flags & HAS_ATTR == 0)
            || self.index_at(offset) != index
            || self.bytes[offset + 15] != 0
        {
            return Err("flags or a number outside the protocol");
        }
        if parts.attr == parts.handle || parts.attr - parts.handle > HANDLE_LEN_MAX {
            return Err("a handle of impossible length");
        }
        let target_len = parts.end - parts.target;
        if target_len > LINK_TARGET_LEN_MAX || (flags & HAS_TARGET == 0 && target_len != 0) {
            return Err("a link target of impossible length");
        }
        if !is_valid_name(&self.bytes[parts.name..parts.handle]) {
            return Err("a name that no file can have");
        }
        if flags & HAS_ATTR != 0 {
            let attr = read_attr(&self.bytes[parts.attr..parts.rdev], flags & WIDE != 0, 0);
            if [attr.atime, attr.mtime, attr.ctime].iter().any(|time| time.nanos >= 1_000_000_000) {
                return Err("a time with a second or more of nanoseconds");
            }
            if attr.kind().dtype() != self.bytes[offset + 12] {
                return Err("a type that contradicts its mode");
            }
        }
        Ok(parts.end)
    }
}

/// Packs entries into chunks. Push until it is full, take the chunk, go on.
#[derive(Debug, Default)]
pub struct ChunkBuilder {
    /// Where each entry begins in `body`.
    starts: Vec<u16>,
    body: Vec<u8>,
}

impl ChunkBuilder {
    /// Adds an entry. `false` where it does not fit any more: then take [`ChunkBuilder::finish`]
    /// and push it again. The caller guarantees a name that [`is_valid_name`] accepts and a link
    /// target within [`LINK_TARGET_LEN_MAX`].
    pub fn push(&mut self, entry: &EntryRef<'_>) -> bool {
        debug_assert!(is_valid_name(entry.name));
        let target = entry.target.unwrap_or_default();
        let handle = entry.handle.as_bytes();
        let index = self.starts.len();
        let added = ENTRY_HEADER_LEN + entry.name.len() + handle.len() + attr_len(true) + RDEV_LEN;
        let len = HEADER_LEN + (index + 1) * OFFSET_LEN + self.body.len() + added + target.len();
        if index == CHUNK_ENTRIES_MAX || len > CHUNK_LEN_BYTES_MAX {
            return false;
        }
        let rdev = entry.attr.map_or(0, |attr| attr.rdev);
        let wide = entry.attr.is_some_and(|attr| !attr_is_narrow(&attr));
        let no_acl = entry.attr.is_some_and(|attr| attr.has_no_acl);
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        self.starts.push(self.body.len() as u16);
        let body = &mut self.body;
        body.extend_from_slice(&entry.cookie.to_le_bytes());
        body.extend_from_slice(&(target.len() as u16).to_le_bytes());
        body.push(entry.name.len() as u8);
        body.push(handle.len() as u8);
        body.push(entry.attr.map_or(entry.kind, |attr| attr.kind()).dtype());
        body.push(
            flag(entry.attr.is_some(), HAS_ATTR)
                | flag(entry.target.is_some(), HAS_TARGET)
                | flag(rdev != 0, HAS_RDEV)
                | flag(wide, WIDE)
                | flag(no_acl, NO_ACL),
        );
        body.push(index as u8);
        body.push(0);
        body.extend_from_slice(entry.name);
        body.extend_from_slice(handle);
        if let Some(attr) = &entry.attr {
            write_attr(body, attr, wide);
        }
        if rdev != 0 {
            body.extend_from_slice(&rdev.to_le_bytes());
        }
        body.extend_from_slice(target);
        true
    }

    /// The number of entries pushed since the last chunk was taken.
    pub fn count(&self) -> usize {
        self.starts.len()
    }

    /// Takes the chunk, `None` where nothing was pushed; the builder is empty afterwards.
    pub fn finish(&mut self, brick: u16) -> Option<Chunk> {
        let count = self.starts.len();
        if count == 0 {
            return None;
        }
        let entries_at = HEADER_LEN + count * OFFSET_LEN;
        let mut out = Vec::with_capacity(entries_at + self.body.len());
        for word in [count as u16, 0, brick, 0] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for start in self.starts.drain(..) {
            out.extend_from_slice(&(entries_at as u16 + start).to_le_bytes());
        }
        out.append(&mut self.body);
        Some(Chunk { bytes: Bytes::from(out) })
    }
}

#[inline]
fn attr_len(wide: bool) -> usize {
    ATTR_FIXED_LEN + 3 * if wide { WIDE_TIME_LEN } else { NARROW_TIME_LEN }
}

/// The attributes in `bytes`, which are just as long as they are.
#[inline]
fn read_attr(bytes: &[u8], wide: bool, rdev: u64) -> Attr {
    let time = |nth: usize| {
        if wide {
            read_wide_time(bytes, ATTR_FIXED_LEN + nth * WIDE_TIME_LEN)
        } else {
            read_narrow_time(bytes, ATTR_FIXED_LEN + nth * NARROW_TIME_LEN)
        }
    };
    Attr {
        ino: read_u64(bytes, 0),
        size_bytes: read_u64(bytes, 8),
        blocks: read_u64(bytes, 16),
        mode: u32::from(read_u16(bytes, 24)),
        nlink: read_u32(bytes, 26),
        uid: read_u32(bytes, 30),
        gid: read_u32(bytes, 34),
        block_size_bytes: u32::from(read_u16(bytes, 38)) * BLOCK_SIZE_UNIT,
        atime: time(0),
        mtime: time(1),
        ctime: time(2),
        rdev,
        has_no_acl: false,
    }
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
    for word in [attr.nlink, attr.uid, attr.gid] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    let block_size = attr.block_size_bytes.div_ceil(BLOCK_SIZE_UNIT).min(u32::from(u16::MAX));
    out.extend_from_slice(&(block_size as u16).to_le_bytes());
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

#[inline]
fn read_wide_time(bytes: &[u8], at: usize) -> Timestamp {
    Timestamp { secs: read_u64(bytes, at) as i64, nanos: read_u32(bytes, at + 8) }
}

#[inline]
fn read_narrow_time(bytes: &[u8], at: usize) -> Timestamp {
    let packed = read_u64(bytes, at);
    Timestamp {
        secs: (packed >> 30) as i64 + NARROW_BASE_SECS,
        nanos: (packed & ((1 << 30) - 1)) as u32,
    }
}

#[inline]
fn read_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
fn read_u32(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

#[inline]
fn read_u64(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attr, entry_ref};

    fn packed(entries: &[EntryRef<'_>]) -> Chunk {
        let mut builder = ChunkBuilder::default();
        assert!(entries.iter().all(|entry| builder.push(entry)));
        builder.finish(3).expect("entries were pushed")
    }

    #[test]
    fn every_kind_of_entry_comes_back_as_it_was() {
        let far = Timestamp { secs: i64::MAX, nanos: 999_999_999 };
        let first = Timestamp { secs: NARROW_BASE_SECS, nanos: 0 };
        let last = Timestamp { secs: NARROW_SECS_END - 1, nanos: 999_999_999 };
        let past = Timestamp { secs: NARROW_BASE_SECS - 1, nanos: 1 };
        let mut entries = vec![
            entry_ref(b"plain", 1),
            EntryRef { attr: None, kind: FileKind::Socket, ..entry_ref(b"\xff\xfe\n", 2) },
            EntryRef { attr: None, kind: FileKind::Unknown, ..entry_ref(b"u", 3) },
        ];
        for (name, time) in [(b"a", far), (b"b", first), (b"c", last), (b"d", past)] {
            let attr = Attr { atime: time, mtime: first, ctime: time, ..attr(9) };
            entries.push(EntryRef { attr: Some(attr), ..entry_ref(name, u64::MAX) });
        }
        let device = Attr { mode: 0o060_600, rdev: 0x1_0000_0103, ..attr(4) };
        entries.push(EntryRef {
            attr: Some(device),
            kind: FileKind::BlockDevice,
            ..entry_ref(b"device", 4)
        });
        for target in [&b""[..], &[b't'; LINK_TARGET_LEN_MAX]] {
            entries.push(EntryRef {
                attr: Some(Attr { mode: 0o120_777, ..attr(5) }),
                kind: FileKind::Symlink,
                target: Some(target),
                ..entry_ref(b"link", 5)
            });
        }
        let chunk = packed(&entries);
        assert_eq!(chunk.brick(), 3);
        assert_eq!(chunk.entries().collect::<Vec<_>>(), entries);
        for (index, entry) in entries.iter().enumerate() {
            assert_eq!(chunk.to_entry_at(chunk.offset(index)), entry.to_entry());
        }
        let parsed = Chunk::parse(chunk.bytes().clone()).expect("what was packed parses");
        assert_eq!(parsed.entries().collect::<Vec<_>>(), entries);
        assert_eq!(parsed.detached(), chunk);
    }

    #[test]
    fn a_full_builder_refuses_and_loses_nothing() {
        let longest = [b'n'; crate::limits::NAME_LEN_MAX];
        let target = [b't'; LINK_TARGET_LEN_MAX];
        let entry = EntryRef {
            attr: Some(Attr { mode: 0o120_777, ..attr(5) }),
            kind: FileKind::Symlink,
            target: Some(&target),
            ..entry_ref(&longest, 5)
        };
        let mut builder = ChunkBuilder::default();
        let mut count = 0;
        while builder.push(&entry) {
            count += 1;
        }
        let chunk = builder.finish(0).expect("at least one fits");
        assert_eq!(chunk.count(), count);
        assert!(chunk.bytes().len() <= CHUNK_LEN_BYTES_MAX);
        assert!(builder.finish(0).is_none(), "the builder is empty afterwards");
        let mut small = 0;
        while builder.push(&entry_ref(b"x", 1)) {
            small += 1;
        }
        assert_eq!(small, CHUNK_ENTRIES_MAX);
    }

    /// Every byte of a chunk flipped, and every truncation: refused, or read without a panic.
    #[test]
    fn damaged_chunks_are_refused_or_harmless() {
        let chunk = packed(&[entry_ref(b"one", 1), entry_ref(b"two", 2)]);
        let bytes = chunk.bytes().to_vec();
        for len in 0..bytes.len() {
            assert!(Chunk::parse(Bytes::copy_from_slice(&bytes[..len])).is_err(), "{len} bytes");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(Chunk::parse(Bytes::from(longer)).is_err());
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                if let Ok(chunk) = Chunk::parse(Bytes::from(damaged)) {
                    assert_eq!(chunk.entries().len(), 2);
                    assert!(chunk.entries().all(|entry| is_valid_name(entry.name)));
                }
            }
        }
    }

    #[test]
    fn names_that_no_file_can_have_are_refused() {
        for (name, bad) in [(b"ab", b".."), (b"ab", b"a/"), (b"ab", b"\0b")] {
            let bytes = packed(&[entry_ref(name, 1)]).bytes().to_vec();
            let at = bytes.windows(2).position(|two| two == name).expect("the name");
            let mut bytes = bytes;
            bytes[at..at + 2].copy_from_slice(bad);
            let error = Chunk::parse(Bytes::from(bytes)).expect_err("refused");
            assert_eq!(
                error,
                ChunkError::Entry { index: 0, reason: "a name that no file can have" }
            );
        }
    }
}
