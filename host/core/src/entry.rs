//! A directory entry with all that travels along with it.

use serde::{Deserialize, Serialize};

use crate::attr::{Attr, FileKind};
use crate::handle::Handle;

/// What a lookup answers: which file the name stands for and, as far as known, its attributes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The file.
    pub handle: Handle,
    /// Its attributes, or `None` where they could not be read; never zeros in their place.
    pub attr: Option<Attr>,
    /// Its type, told also where the attributes are not.
    pub kind: FileKind,
    /// Target of a symbolic link.
    #[serde(with = "serde_bytes")]
    pub target: Option<Vec<u8>>,
}

impl Entry {
    /// The entry as one of a listing, under `name` and with `cookie`.
    pub fn as_ref<'a>(&'a self, name: &'a [u8], cookie: u64) -> EntryRef<'a> {
        EntryRef {
            name,
            handle: self.handle,
            attr: self.attr,
            kind: self.kind,
            target: self.target.as_deref(),
            cookie,
        }
    }
}

/// One entry of a listing, borrowed from wherever its bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRef<'a> {
    /// The name: any bytes but `/` and NUL.
    pub name: &'a [u8],
    /// The bytes of the handle.
    pub handle: Handle,
    /// Attributes, or `None` where they could not be read.
    pub attr: Option<Attr>,
    /// The type, told also where the attributes are not.
    pub kind: FileKind,
    /// Target of a symbolic link.
    pub target: Option<&'a [u8]>,
    /// Where a listing resumes after this entry: the brick's directory cookie (`d_off`).
    pub cookie: u64,
}

impl EntryRef<'_> {
    /// The entry without its name and cookie, owned.
    pub fn to_entry(&self) -> Entry {
        Entry {
            handle: self.handle,
            attr: self.attr,
            kind: self.kind,
            target: self.target.map(<[u8]>::to_vec),
        }
    }
}

/// Whether `name` can be the name of an entry: 1 to 255 bytes, no `/`, no NUL, not `.` or `..`.
pub fn is_valid_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= crate::limits::NAME_LEN_MAX
        && name != b"."
        && name != b".."
        && !name.iter().any(|&byte| byte == b'/' || byte == 0)
}
