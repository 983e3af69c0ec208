//! What is left of a request's arguments.

use zerocopy::{FromBytes, Immutable, KnownLayout};

/// The bytes after what was taken.
pub(super) struct Arguments<'a> {
    rest: &'a [u8],
}

impl<'a> Arguments<'a> {
    pub(super) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    /// A struct; `None` where fewer bytes are left.
    pub(super) fn take<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Option<T> {
        let (value, rest) = T::read_from_prefix(self.rest).ok()?;
        self.rest = rest;
        Some(value)
    }

    /// A name, ended by NUL and not empty.
    pub(super) fn name(&mut self) -> Option<&'a [u8]> {
        self.text().filter(|name| !name.is_empty())
    }

    /// Bytes ended by NUL.
    pub(super) fn text(&mut self) -> Option<&'a [u8]> {
        let len = self.rest.iter().position(|&byte| byte == 0)?;
        let (text, rest) = self.rest.split_at(len);
        self.rest = &rest[1..];
        Some(text)
    }

    /// So many bytes.
    pub(super) fn bytes(&mut self, len: u32) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(len as usize)?;
        self.rest = rest;
        Some(bytes)
    }
}
