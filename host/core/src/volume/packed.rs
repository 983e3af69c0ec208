//! How a member keeps what belongs to a volume on disk: bytes that later versions still read.
//!
//! Numbers are little-endian and of fixed width, what varies has its length before it, an enum
//! begins with a byte. Whatever is read ends where its bytes end: nothing is assumed of them.

use crate::attr::FileKind;
use crate::handle::Handle;

use super::id::{DIR_ID_LEN, DirId};
use super::record::Pointer;

/// Appends a value to bytes.
pub(super) trait Pack {
    fn pack(&self, bytes: &mut Vec<u8>);
}

/// Takes a value from the front of bytes; `None` where there is none.
pub(super) trait Unpack: Sized {
    fn unpack(bytes: &mut &[u8]) -> Option<Self>;
}

impl Pack for u8 {
    fn pack(&self, bytes: &mut Vec<u8>) {
        bytes.push(*self);
    }
}

impl Unpack for u8 {
    fn unpack(bytes: &mut &[u8]) -> Option<Self> {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        Some(byte)
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Pack for $number {
            fn pack(&self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_le_bytes());
            }
        }

        impl Unpack for $number {
            fn unpack(bytes: &mut &[u8]) -> Option<Self> {
                let (number, rest) = bytes.split_first_chunk()?;
                *bytes = rest;
                Some(Self::from_le_bytes(*number))
            }
        }
    )*};
}

numbers!(u16, u64, u128);

/// Bytes, at most 65,535 of them: names and handles.
impl Pack for [u8] {
    fn pack(&self, bytes: &mut Vec<u8>) {
        debug_assert!(self.len() <= usize::from(u16::MAX));
        (self.len() as u16).pack(bytes);
        bytes.extend_from_slice(self);
    }
}

impl Unpack for Vec<u8> {
    fn unpack(bytes: &mut &[u8]) -> Option<Self> {
        let len = u16::unpack(bytes)?.into();
        let (taken, rest) = bytes.split_at_checked(len)?;
        *bytes = rest;
        Some(taken.to_vec())
    }
}

/// As many values as the number before them says.
pub(super) fn pack_all<T: Pack>(values: &[T], bytes: &mut Vec<u8>) {
    debug_assert!(values.len() <= usize::from(u16::MAX));
    (values.len() as u16).pack(bytes);
    values.iter().for_each(|value| value.pack(bytes));
}

/// What [`pack_all`] wrote.
pub(super) fn unpack_all<T: Unpack>(bytes: &mut &[u8]) -> Option<Vec<T>> {
    let count = u16::unpack(bytes)?;
    (0..count).map(|_| T::unpack(bytes)).collect()
}

impl Pack for Handle {
    fn pack(&self, bytes: &mut Vec<u8>) {
        self.as_bytes().pack(bytes);
    }
}

impl Unpack for Handle {
    fn unpack(bytes: &mut &[u8]) -> Option<Self> {
        Handle::new(&Vec::unpack(bytes)?)
    }
}

impl Pack for DirId {
    fn pack(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self.as_bytes());
    }
}

impl Unpack for DirId {
    fn unpack(bytes: &mut &[u8]) -> Option<Self> {
        let (id, rest) = bytes.split_first_chunk::<DIR_ID_LEN>()?;
        *bytes = rest;
        DirId::try_from(*id).ok()
    }
}

impl Pack for Pointer {
    fn pack(&self, bytes: &mut Vec<u8>) {
        match self {
            Pointer::File { handle, kind, link } => {
                [0, kind.dtype()].iter().for_each(|byte| byte.pack(bytes));
                handle.pack(bytes);
                link.pack(bytes);
            }
            Pointer::Dir(id) => {
                1_u8.pack(bytes);
                id.pack(bytes);
            }
        }
    }
}

impl Unpack for Pointer {
    fn unpack(bytes: &mut &[u8]) -> Option<Self> {
        Some(match u8::unpack(bytes)? {
            0 => {
                let kind = FileKind::of_dtype(u8::unpack(bytes)?);
                let handle = Handle::unpack(bytes)?;
                Pointer::File { handle, kind, link: u128::unpack(bytes)? }
            }
            1 => Pointer::Dir(DirId::unpack(bytes)?),
            _ => return None,
        })
    }
}

/// Two digits a byte, lower case.
pub(super) fn to_hex(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| DIGITS[usize::from(nibble & 15)];
    bytes.iter().flat_map(|&byte| [digit(byte >> 4), digit(byte)]).collect()
}

/// The bytes of digits that [`to_hex`] wrote, or `None`.
pub(super) fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    let nibble = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    pairs.iter().map(|&[high, low]| Some(nibble(high)? << 4 | nibble(low)?)).collect()
}
