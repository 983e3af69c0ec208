//! What a copy of a spread directory knows of it beside its own attributes: an extended attribute,
//! which nobody is told of.
//!
//! At the home: the parent, who else has a copy, and a version that counts the changes of owner, mode
//! and access control lists. At any other member only the version that its copy has.

use std::os::fd::BorrowedFd;

use portcullis_core::Handle;
use portcullis_core::volume::MemberSet;
use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::{Errno, Result};

use crate::export::proc_path;

/// The attribute where the brick runs as root, and where it does not.
const NAMES: [&[u8]; 2] = [b"trusted.portcullis", b"user.portcullis"];
/// The first byte of its value.
const FORMAT_VERSION: u8 = 1;
/// Room for the longest.
const LEN_BYTES_MAX: usize = 128;

/// What a copy knows of its directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Card {
    /// Counts the changes of what copies are to be like.
    pub(crate) version: u64,
    /// Members that have, or are about to have, a copy; the home is not among them.
    pub(crate) copies: MemberSet,
    /// The directory that it is in; `None` for the root, and away from home.
    pub(crate) parent: Option<Handle>,
}

/// Where the cards of one export are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cards(&'static [u8]);

/// Whether nobody is told of an extended attribute of a spread directory.
pub(crate) fn is_own(name: &[u8]) -> bool {
    NAMES.contains(&name)
}

impl Cards {
    /// Where they can be kept, tried on `dir`; an error where they cannot.
    pub(super) fn choose(dir: BorrowedFd<'_>) -> Result<Self> {
        let path = proc_path(dir);
        let kept = |name: &'static [u8]| {
            setxattr(&path, name, b"", XattrFlags::empty()).map(|()| Self(name))
        };
        kept(NAMES[0]).or_else(|_| kept(NAMES[1]))
    }

    /// The card of a copy; that of one that was never given any where there is none.
    pub(crate) fn read(self, copy: BorrowedFd<'_>) -> Result<Card> {
        let mut value = [0; LEN_BYTES_MAX];
        match getxattr(proc_path(copy), self.0, &mut value[..]) {
            Ok(len) => unpack(&value[..len]).ok_or(Errno::BADMSG),
            Err(Errno::NODATA) => Ok(Card::default()),
            Err(error) => Err(error),
        }
    }

    /// Gives a copy its card.
    pub(crate) fn write(self, copy: BorrowedFd<'_>, card: &Card) -> Result<()> {
        setxattr(proc_path(copy), self.0, &pack(card), XattrFlags::empty())
    }
}

fn pack(card: &Card) -> Vec<u8> {
    let Card { version, copies, parent } = card;
    let mut bytes = vec![FORMAT_VERSION];
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&copies.bits().to_le_bytes());
    bytes.extend_from_slice(parent.as_ref().map_or(&[], Handle::as_bytes));
    bytes
}

fn unpack(bytes: &[u8]) -> Option<Card> {
    let (&FORMAT_VERSION, rest) = bytes.split_first()? else { return None };
    let (version, rest) = rest.split_first_chunk()?;
    let (copies, parent) = rest.split_first_chunk()?;
    let parent = if parent.is_empty() { None } else { Some(Handle::new(parent)?) };
    let copies = MemberSet::of_bits(u64::from_le_bytes(*copies));
    Some(Card { version: u64::from_le_bytes(*version), copies, parent })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_card_is_as_it_was_written() {
        let dir = tempfile::tempdir().expect("a directory");
        let fd = std::fs::File::open(dir.path()).expect("opened");
        let Ok(cards) = Cards::choose(fd.as_fd()) else {
            return eprintln!("skipped: a_card_is_as_it_was_written: no extended attributes");
        };
        let longest = Handle::new(&[9; portcullis_core::limits::HANDLE_LEN_MAX]);
        for parent in [None, longest] {
            let card = Card { version: u64::MAX - 1, copies: MemberSet::first(64), parent };
            cards.write(fd.as_fd(), &card).expect("written");
            assert_eq!(cards.read(fd.as_fd()), Ok(card));
            assert!(pack(&card).len() <= LEN_BYTES_MAX);
        }
        let inner = dir.path().join("inner");
        std::fs::create_dir(&inner).expect("made");
        let inner = std::fs::File::open(inner).expect("opened");
        assert_eq!(cards.read(inner.as_fd()), Ok(Card::default()));
    }
}
