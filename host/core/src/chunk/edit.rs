//! Changed copies of a chunk: entries left out, attributes left out, filled in or exchanged.
//!
//! What is kept is copied as it lies. A copy holds nothing but itself, so keeping it keeps nothing
//! else alive. What must hold: entries keep their order and their cookies.

use bytes::BytesMut;

use super::{
    Chunk, ChunkBuilder, ENTRY_HEADER_LEN, HAS_ATTR, HAS_RDEV, HEADER_LEN, NO_ACL, OFFSET_LEN,
    WIDE, attr_is_narrow, attr_len, write_attr,
};
use crate::attr::Attr;
use crate::entry::{Entry, EntryRef};
use crate::limits::{CHUNK_ENTRIES_MAX, CHUNK_LEN_BYTES_MAX};

/// What attributes take in a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttrSpace {
    /// Entries that have attributes.
    pub count: usize,
    /// Bytes of all of them.
    pub len_bytes: usize,
}

impl Chunk {
    /// Whether entry `index` has attributes.
    pub fn has_attr(&self, index: usize) -> bool {
        self.bytes[self.offset(index) + 13] & HAS_ATTR != 0
    }

    /// What the attributes take.
    pub fn attr_space(&self) -> AttrSpace {
        let mut space = AttrSpace::default();
        for index in 0..self.count() {
            let flags = self.bytes[self.offset(index) + 13];
            if flags & HAS_ATTR != 0 {
                space.count += 1;
                space.len_bytes += attr_len(flags & WIDE != 0);
            }
        }
        space
    }

    /// A copy without the entries of `omit` and without the attributes of those of `bare`, a bit
    /// each; `None` where no entry is left.
    pub fn without(&self, omit: u128, bare: u128) -> Option<Self> {
        let mut builder = ChunkBuilder::default();
        for index in (0..self.count()).filter(|index| omit >> index & 1 == 0) {
            // What fitted a chunk fits one again.
            builder.push_copy(self, index, bare >> index & 1 != 0);
        }
        builder.finish(self.brick())
    }

    /// Puts other attributes in place of those of entry `index`. `false` where they do not fit
    /// there: then [`Chunk::with_attr`] makes room.
    pub fn set_attr(&mut self, index: usize, attr: &Attr) -> bool {
        let offset = self.offset(index);
        let flags = self.bytes[offset + 13];
        let fits = flags & HAS_ATTR != 0
            && flags & HAS_RDEV == 0
            && attr.rdev == 0
            && (flags & WIDE != 0 || attr_is_narrow(attr))
            && attr.kind().dtype() == self.bytes[offset + 12];
        if !fits {
            return false;
        }
        let at = self.parts(offset).attr;
        let mut packed = Vec::with_capacity(attr_len(true));
        write_attr(&mut packed, attr, flags & WIDE != 0);
        let bytes = std::mem::take(&mut self.bytes);
        // Somebody who is being sent the chunk keeps the old one.
        let mut bytes = bytes.try_into_mut().unwrap_or_else(|bytes| BytesMut::from(&bytes[..]));
        bytes[at..at + packed.len()].copy_from_slice(&packed);
        let no_acl = if attr.has_no_acl { NO_ACL } else { 0 };
        bytes[offset + 13] = (flags & !NO_ACL) | no_acl;
        self.bytes = bytes.freeze();
        true
    }

    /// A copy with these attributes of entry `index`; `None` where it would become too large.
    pub fn with_attr(&self, index: usize, attr: &Attr) -> Option<Self> {
        self.with(index, &EntryRef { attr: Some(*attr), ..self.entry(index) })
    }

    /// A copy in which the name of entry `index` stands for another file, in the same place; `None`
    /// where it would become too large.
    pub fn with_file(&self, index: usize, entry: &Entry) -> Option<Self> {
        let old = self.entry(index);
        self.with(index, &entry.as_ref(old.name, old.cookie))
    }

    fn with(&self, index: usize, entry: &EntryRef<'_>) -> Option<Self> {
        let mut builder = ChunkBuilder::default();
        let fits = (0..self.count()).all(|at| {
            if at == index { builder.push(entry) } else { builder.push_copy(self, at, false) }
        });
        if fits { builder.finish(self.brick()) } else { None }
    }
}

impl ChunkBuilder {
    /// Adds entry `index` of a chunk as it lies there, or without its attributes. `false` where it
    /// does not fit any more.
    fn push_copy(&mut self, chunk: &Chunk, index: usize, bare: bool) -> bool {
        let offset = chunk.offset(index);
        let parts = chunk.parts(offset);
        let number = self.starts.len();
        let rest = if bare { parts.target } else { parts.attr };
        let added = parts.attr - offset + (parts.end - rest);
        let len = HEADER_LEN + (number + 1) * OFFSET_LEN + self.body.len() + added;
        if number == CHUNK_ENTRIES_MAX || len > CHUNK_LEN_BYTES_MAX {
            return false;
        }
        let start = self.body.len();
        self.starts.push(start as u16);
        self.body.extend_from_slice(&chunk.bytes[offset..parts.attr]);
        self.body.extend_from_slice(&chunk.bytes[rest..parts.end]);
        let header = &mut self.body[start..start + ENTRY_HEADER_LEN];
        header[14] = number as u8;
        if bare {
            header[13] &= !(HAS_ATTR | HAS_RDEV | WIDE | NO_ACL);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::{FileKind, Timestamp};
    use crate::testing::{attr, entry, entry_ref};

    fn chunk(entries: &[EntryRef<'_>]) -> Chunk {
        let mut builder = ChunkBuilder::default();
        assert!(entries.iter().all(|entry| builder.push(entry)));
        builder.finish(2).expect("entries were pushed")
    }

    fn valid(chunk: &Chunk) -> Vec<EntryRef<'_>> {
        let parsed = Chunk::parse(chunk.bytes().clone()).expect("what was changed parses");
        assert_eq!(&parsed, chunk);
        chunk.entries().collect()
    }

    fn kinds() -> Vec<EntryRef<'static>> {
        let far = Timestamp { secs: i64::MAX, nanos: 1 };
        let device = Attr { mode: 0o020_600, rdev: 0x103, ..attr(4) };
        vec![
            entry_ref(b"plain", 1),
            EntryRef {
                attr: Some(Attr { has_no_acl: true, ..attr(6) }),
                ..entry_ref(b"no-acl", 6)
            },
            EntryRef { attr: Some(Attr { mtime: far, ..attr(2) }), ..entry_ref(b"wide", 2) },
            EntryRef { attr: Some(device), kind: FileKind::CharDevice, ..entry_ref(b"device", 3) },
            EntryRef {
                attr: Some(Attr { mode: 0o120_777, ..attr(5) }),
                kind: FileKind::Symlink,
                target: Some(b"elsewhere"),
                ..entry_ref(b"link", 4)
            },
            EntryRef { attr: None, ..entry_ref(b"bare", 5) },
        ]
    }

    /// Every set of entries left out, and of entries without their attributes.
    #[test]
    fn what_is_left_out_is_gone_and_the_rest_as_it_was() {
        let entries = kinds();
        let chunk = chunk(&entries);
        for omit in 0..1u128 << entries.len() {
            for bare in 0..1u128 << entries.len() {
                let expected: Vec<_> = (0..entries.len())
                    .filter(|at| omit >> at & 1 == 0)
                    .map(|at| match bare >> at & 1 {
                        0 => entries[at],
                        _ => EntryRef { attr: None, ..entries[at] },
                    })
                    .collect();
                match chunk.without(omit, bare) {
                    Some(left) => {
                        assert_eq!(valid(&left), expected, "{omit:b} {bare:b}");
                        assert_eq!(left.brick(), 2);
                        let counted = expected.iter().filter(|entry| entry.attr.is_some()).count();
                        assert_eq!(left.attr_space().count, counted);
                    }
                    None => assert!(expected.is_empty(), "{omit:b} {bare:b}"),
                }
            }
        }
        let bare = chunk.without(0, u128::MAX).expect("all names");
        let saved = chunk.bytes().len() - bare.bytes().len();
        assert_eq!(saved, chunk.attr_space().len_bytes + 8, "the number of a device, too");
    }

    #[test]
    fn attributes_are_exchanged_in_place_where_they_fit_and_filled_in_where_not() {
        let far = Timestamp { secs: i64::MIN, nanos: 2 };
        for (number, old) in kinds().iter().enumerate() {
            let mode = old.attr.map_or(0o100_600, |attr| attr.mode);
            for new in [
                Attr { mode, size_bytes: 77, ..attr(9) },
                Attr { mode, ctime: far, ..attr(9) },
                Attr { mode, rdev: 7, ..attr(9) },
                Attr { mode, has_no_acl: true, ..attr(9) },
            ] {
                let mut expected = kinds();
                expected[number].attr = Some(new);
                let original = chunk(&kinds());
                let mut set = original.clone();
                if set.set_attr(number, &new) {
                    assert_eq!(valid(&set), expected, "entry {number}");
                    let mut alone = chunk(&kinds());
                    assert!(alone.set_attr(number, &new));
                    assert_eq!(alone, set, "nobody shares it");
                } else {
                    assert_eq!(set, original, "entry {number}");
                }
                assert_eq!(valid(&original), kinds(), "whoever shares it keeps what it was");
                let with = original.with_attr(number, &new).expect("it fits");
                assert_eq!(valid(&with), expected, "entry {number}");
            }
        }
        let narrow = Attr { size_bytes: 1, ..attr(1) };
        assert!(chunk(&kinds()).set_attr(0, &narrow), "the common case needs no copy");
        let directory = Attr { mode: 0o040_755, ..attr(1) };
        assert!(!chunk(&kinds()).set_attr(0, &directory), "not those of another type");
    }

    #[test]
    fn a_name_stands_for_another_file_in_its_place() {
        for number in 0..kinds().len() {
            let mut expected = kinds();
            let other = entry(99);
            expected[number] = other.as_ref(expected[number].name, expected[number].cookie);
            let changed = chunk(&kinds()).with_file(number, &other).expect("it fits");
            assert_eq!(valid(&changed), expected);
        }
    }

    #[test]
    fn what_would_not_fit_is_refused() {
        let target = [b't'; crate::limits::LINK_TARGET_LEN_MAX];
        let link = EntryRef {
            attr: None,
            kind: FileKind::Symlink,
            target: Some(&target),
            ..entry_ref(b"link", 1)
        };
        let mut builder = ChunkBuilder::default();
        while builder.push(&link) {}
        while builder.push(&EntryRef { target: None, ..link }) {}
        let full = builder.finish(0).expect("entries");
        let last = full.count() - 1;
        let symlink = Attr { mode: 0o120_777, ..attr(1) };
        let long = Entry { target: Some(target.to_vec()), ..entry(1) };
        assert!(full.with_file(last, &long).is_none());
        assert!(full.with_file(0, &entry(1)).is_some(), "a shorter one fits");
        let mut grown = full;
        let is_full = (0..last).any(|at| match grown.with_attr(at, &symlink) {
            Some(larger) => {
                grown = larger;
                false
            }
            None => true,
        });
        assert!(is_full || grown.bytes().len() <= CHUNK_LEN_BYTES_MAX);
    }
}
