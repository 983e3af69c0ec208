//! The buffer of one READDIR or READDIRPLUS: entries packed straight into the kernel's records.
//!
//! A record is `entry_out (plus only) | dirent | name | zeros to a multiple of 8`. The buffer holds
//! at most what the kernel asked for, to the byte: an entry that does not fit is refused whole, and
//! the kernel asks for it again with the offset of the entry before it.

use std::time::Duration;

use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{Dirent, EntryOut, UNKNOWN_INO, record_align};

/// One entry to pack.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryEntry<'a> {
    /// The name, which the kernel refuses if it is empty, over 1024 bytes or has a `/`.
    pub name: &'a [u8],
    /// The inode number, 0 where it is not known.
    pub ino: u64,
    /// The type (`S_IFMT >> 12`), 0 where it is not known.
    pub dtype: u8,
    /// What the kernel sends to go on after this entry. Never 0, which means the start.
    pub offset: u64,
}

/// Packed entries on their way to the kernel.
#[derive(Debug)]
pub struct DirectoryBuffer {
    bytes: Vec<u8>,
    capacity: usize,
    plus: bool,
}

impl DirectoryBuffer {
    pub(crate) fn new(capacity: usize, plus: bool) -> Self {
        Self { bytes: Vec::new(), capacity, plus }
    }

    /// Whether the kernel takes attributes along with the names.
    pub fn is_plus(&self) -> bool {
        self.plus
    }

    /// Whether nothing was packed.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether an entry with a name of this length fits.
    pub fn fits(&self, name_len: usize) -> bool {
        self.bytes.len() + self.record_len(name_len) <= self.capacity
    }

    /// Packs `entry`; `false` where it does not fit, and then nothing was done.
    ///
    /// `node` gives what a lookup of the entry would answer. It is called only where the kernel
    /// will take it (the buffer is plus, the entry fits), so a lookup reference counted in it is
    /// one that the kernel holds once the buffer is delivered. `None` sends the name alone, and
    /// the kernel looks it up when it needs to.
    pub fn push(
        &mut self,
        entry: &DirectoryEntry<'_>,
        node: impl FnOnce() -> Option<EntryOut>,
    ) -> bool {
        debug_assert!(entry.offset != 0 && !entry.name.is_empty());
        if !self.fits(entry.name.len()) {
            return false;
        }
        if self.bytes.capacity() == 0 {
            self.bytes.reserve_exact(self.capacity);
        }
        if self.plus {
            self.bytes.extend_from_slice(node().unwrap_or_default().as_bytes());
        }
        let dirent = Dirent {
            ino: if entry.ino == 0 { UNKNOWN_INO } else { entry.ino },
            off: entry.offset,
            namelen: entry.name.len() as u32,
            kind: u32::from(entry.dtype),
        };
        self.bytes.extend_from_slice(dirent.as_bytes());
        self.bytes.extend_from_slice(entry.name);
        self.bytes.resize(record_align(self.bytes.len()), 0);
        true
    }

    /// The nodeids packed, those a reference was counted for: to take the references back where
    /// the buffer was not delivered.
    pub fn nodeids(&self) -> impl Iterator<Item = u64> + '_ {
        let mut rest: &[u8] = if self.plus { &self.bytes } else { &[] };
        std::iter::from_fn(move || {
            let (entry, tail) = EntryOut::read_from_prefix(rest).ok()?;
            let (dirent, _) = Dirent::read_from_prefix(tail).ok()?;
            rest = rest.get(self.record_len(dirent.namelen as usize)..)?;
            Some(entry.nodeid)
        })
        .filter(|&nodeid| nodeid != 0)
    }

    /// Has the kernel ask again for every name packed, before it believes one.
    pub fn distrust(&mut self) {
        self.believe_for(Duration::ZERO);
    }

    /// Has the kernel believe every name packed, and what came with it, for so long at most.
    pub fn believe_for(&mut self, valid: Duration) {
        if !self.plus {
            return;
        }
        let limit = |secs: &mut u64, nanos: &mut u32| {
            if (*secs, *nanos) > (valid.as_secs(), valid.subsec_nanos()) {
                (*secs, *nanos) = (valid.as_secs(), valid.subsec_nanos());
            }
        };
        let mut at = 0;
        while let Some(Ok((mut entry, tail))) = self.bytes.get(at..).map(EntryOut::read_from_prefix)
        {
            let Ok((dirent, _)) = Dirent::read_from_prefix(tail) else { return };
            limit(&mut entry.entry_valid, &mut entry.entry_valid_nsec);
            limit(&mut entry.attr_valid, &mut entry.attr_valid_nsec);
            self.bytes[at..at + size_of::<EntryOut>()].copy_from_slice(entry.as_bytes());
            at += self.record_len(dirent.namelen as usize);
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn record_len(&self, name_len: usize) -> usize {
        let head = if self.plus { size_of::<EntryOut>() } else { 0 };
        record_align(head + size_of::<Dirent>() + name_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &[u8], offset: u64) -> DirectoryEntry<'_> {
        DirectoryEntry { name, ino: 7, dtype: 8, offset }
    }

    fn node(nodeid: u64) -> Option<EntryOut> {
        Some(EntryOut { nodeid, ..EntryOut::default() })
    }

    #[test]
    fn names_that_are_distrusted_are_believed_for_no_time() {
        let mut buffer = DirectoryBuffer::new(4096, true);
        let valid = |nodeid| {
            Some(EntryOut { nodeid, entry_valid: 1, attr_valid_nsec: 1, ..EntryOut::default() })
        };
        assert!(buffer.push(&entry(b"a", 1), || valid(5)));
        assert!(buffer.push(&entry(b"much longer", 2), || None));
        assert!(buffer.push(&entry(b"c", 3), || valid(6)));
        let before = buffer.bytes().len();
        buffer.distrust();
        assert_eq!(buffer.bytes().len(), before);
        assert_eq!(buffer.nodeids().collect::<Vec<_>>(), [5, 6]);
        let (first, _) = EntryOut::read_from_prefix(buffer.bytes()).expect("whole");
        assert_eq!((first.nodeid, first.entry_valid, first.attr_valid_nsec), (5, 0, 0));
        let last = buffer.bytes().len() - buffer.record_len(1);
        let (last, _) = EntryOut::read_from_prefix(&buffer.bytes()[last..]).expect("whole");
        assert_eq!((last.nodeid, last.entry_valid, last.attr_valid_nsec), (6, 0, 0));
    }

    #[test]
    fn names_are_believed_no_longer_than_so() {
        let mut buffer = DirectoryBuffer::new(4096, true);
        let valid = |entry_valid, entry_valid_nsec| {
            Some(EntryOut { nodeid: 5, entry_valid, entry_valid_nsec, ..EntryOut::default() })
        };
        assert!(buffer.push(&entry(b"a", 1), || valid(3, 5)));
        assert!(buffer.push(&entry(b"b", 2), || valid(1, 999)));
        buffer.believe_for(Duration::new(2, 7));
        let record = buffer.record_len(1);
        let told = |at: usize| {
            let (entry, _) = EntryOut::read_from_prefix(&buffer.bytes()[at..]).expect("whole");
            (entry.entry_valid, entry.entry_valid_nsec, entry.attr_valid)
        };
        assert_eq!((told(0), told(record)), ((2, 7, 0), (1, 999, 0)));
    }

    #[test]
    fn a_buffer_is_filled_to_its_last_byte_and_never_beyond() {
        // 24 + 8 bytes a record: two fit 64 bytes exactly, and only one fits 63.
        for (capacity, expected) in [(64, 2), (63, 1), (32, 1), (31, 0), (0, 0)] {
            let mut buffer = DirectoryBuffer::new(capacity, false);
            let packed =
                (1..9).take_while(|&n| buffer.push(&entry(b"12345678", n), || None)).count();
            assert_eq!(packed, expected, "capacity {capacity}");
            assert_eq!(buffer.bytes().len(), expected * 32);
        }
    }

    #[test]
    fn an_entry_that_does_not_fit_counts_no_reference() {
        let mut buffer = DirectoryBuffer::new(160 + 10, true);
        assert!(buffer.push(&entry(b"a", 1), || node(2)));
        assert!(!buffer.push(&entry(b"b", 2), || panic!("a reference for an entry not sent")));
        assert_eq!(buffer.nodeids().collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn a_plain_buffer_asks_for_no_node() {
        let mut buffer = DirectoryBuffer::new(4096, false);
        assert!(buffer.push(&entry(b"a", 1), || panic!("the kernel does not take nodes here")));
        assert_eq!(buffer.nodeids().count(), 0);
    }

    #[test]
    fn nodeids_are_those_of_the_entries_that_have_one() {
        let mut buffer = DirectoryBuffer::new(4096, true);
        for (index, nodeid) in [5, 0, 9].into_iter().enumerate() {
            let name = vec![b'x'; index * 3 + 1];
            assert!(buffer.push(&entry(&name, 1), || node(nodeid)));
        }
        assert_eq!(buffer.nodeids().collect::<Vec<_>>(), [5, 9]);
    }

    #[test]
    fn an_unknown_inode_number_is_not_sent_as_zero() {
        let mut buffer = DirectoryBuffer::new(4096, false);
        buffer.push(&DirectoryEntry { name: b"a", ino: 0, dtype: 0, offset: 1 }, || None);
        let (dirent, _) = Dirent::read_from_prefix(buffer.bytes()).unwrap();
        assert_eq!(dirent.ino, UNKNOWN_INO);
    }
}
