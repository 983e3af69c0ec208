//! A handle: the opaque bytes by which a brick knows a file.
//!
//! Only the brick that made a handle reads its bytes; every other tier compares and carries them.
//! A handle outlives renames, eviction and restarts, and is never given to another file.

use std::fmt;
use std::hash::{Hash, Hasher};

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limits::HANDLE_LEN_MAX;

/// Opaque identity of a file, at most [`HANDLE_LEN_MAX`] bytes, held inline.
#[derive(Clone, Copy)]
pub struct Handle {
    len: u8,
    bytes: [u8; HANDLE_LEN_MAX],
}

impl Handle {
    /// A handle of these bytes, or `None` where they are more than [`HANDLE_LEN_MAX`].
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut inline = [0; HANDLE_LEN_MAX];
        inline.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self { len: bytes.len() as u8, bytes: inline })
    }

    /// A handle of the first `len` of these bytes, for which `len` must be in range. Quicker than
    /// [`Handle::new`], since the number of bytes to copy is known: what follows is never looked at.
    #[inline]
    pub(crate) fn of_prefix(bytes: &[u8; HANDLE_LEN_MAX], len: u8) -> Self {
        debug_assert!(len as usize <= HANDLE_LEN_MAX);
        Self { len, bytes: *bytes }
    }

    /// The bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }
}

impl PartialEq for Handle {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Handle {}

impl Hash for Handle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for Handle {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.as_bytes())
    }
}

impl<'de> Deserialize<'de> for Handle {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Inline;
        impl Visitor<'_> for Inline {
            type Value = Handle;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a handle of at most {HANDLE_LEN_MAX} bytes")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Handle, E> {
                Handle::new(bytes).ok_or_else(|| E::invalid_length(bytes.len(), &self))
            }
        }
        deserializer.deserialize_bytes(Inline)
    }
}
