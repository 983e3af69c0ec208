//! What the tests of this crate share.

use crate::attr::{Attr, FileKind};
use crate::entry::{Entry, EntryRef};
use crate::handle::Handle;

/// The handle numbered `number`.
pub(crate) fn handle(number: u64) -> Handle {
    Handle::new(&number.to_le_bytes()).expect("8 bytes")
}

/// A regular file with a size that tells it apart.
pub(crate) fn attr(number: u64) -> Attr {
    Attr { ino: number, size_bytes: number, mode: 0o100_644, nlink: 1, ..Attr::default() }
}

/// An entry named `name` for file `number`, with cookie `number`.
pub(crate) fn entry_ref(name: &[u8], number: u64) -> EntryRef<'_> {
    EntryRef {
        name,
        handle: handle(number),
        attr: Some(attr(number)),
        kind: FileKind::Regular,
        target: None,
        cookie: number,
    }
}

/// The entry of file `number`.
pub(crate) fn entry(number: u64) -> Entry {
    entry_ref(b"x", number).to_entry()
}
