//! Records of what was asked of a cache, and what became of its objects: what a recorded trace is made
//! of, and what a shadow of a cache lives from.
//!
//! A record is [`RECORD_LEN_BYTES`] bytes, little-endian, and a name after them where there is one
//! (`docs/COMPARING.md` has the layout). A file begins with a [`Header`]. What must hold: whatever the
//! bytes, reading them ends in records or an error.

use crate::eviction::Class;
use crate::limits::{NAME_LEN_MAX, POLICY_NAME_LEN_MAX};

/// What a file begins with.
pub const MAGIC: [u8; 8] = *b"pctrace\0";
/// The version of the layout that is written.
pub const VERSION: u16 = 1;
/// Bytes of a record before its name.
pub const RECORD_LEN_BYTES: usize = 32;

/// Bytes of magic, version and header before the policy's name.
const HEADER_LEN_BYTES: usize = 28;
/// Bytes of a hashed name.
const HASH_LEN_BYTES: usize = 8;

macro_rules! codes {
    ($(#[$doc:meta])* $type:ident { $($(#[$item_doc:meta])* $name:ident = $code:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $type { $($(#[$item_doc])* $name = $code,)* }

        impl $type {
            fn of(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }
        }
    };
}

codes! {
    /// What a record tells.
    What {
        /// A request found an object.
        Hit = 0,
        /// A request was answered "no such name" from a whole listing: by no object of its own.
        Absent = 1,
        /// A request found nothing, and the brick was asked.
        Missed = 2,
        /// A request found nothing and waits for what was asked already.
        Joined = 3,
        /// An object came into the cache.
        Came = 4,
        /// An object left, since it was no longer true or was replaced.
        Left = 5,
        /// An object was in the cache when the recording began.
        Resident = 6,
        /// Records were lost here, as many as `key` says: whoever read them did not keep up.
        Lost = 7,
    }
}

codes! {
    /// Why a record was made.
    Operation {
        /// The entry of a name.
        Lookup = 0,
        /// Attributes by handle.
        Getattr = 1,
        /// The target of a link.
        Readlink = 2,
        /// A listing.
        List = 3,
        /// Something was changed: what came or left then did so whatever was cached.
        Change = 4,
    }
}

/// The name that a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name<'a> {
    /// It is about none.
    None,
    /// Its hash, by a key that is not kept.
    Hashed(u64),
    /// The name.
    Plain(&'a [u8]),
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// What it tells.
    pub what: What,
    /// Why.
    pub operation: Operation,
    /// Why the object came.
    pub class: Class,
    /// Whether a request begins here: the others that it touched follow without this.
    pub begins: bool,
    /// Milliseconds since the recording began.
    pub now_ms: u32,
    /// Bytes of the object, 0 where there is none.
    pub weight_bytes: u32,
    /// What the object stands for, as eviction knows it; 0 where there is none.
    pub key: u64,
    /// Hash of the directory.
    pub dir: u64,
    /// The name.
    pub name: Name<'a>,
}

impl Record<'static> {
    /// Says that so many records are missing; 0 for a mark of the time alone.
    pub fn lost(now_ms: u32, count: u64) -> Self {
        Record {
            what: What::Lost,
            operation: Operation::Lookup,
            class: Class::Asked,
            begins: false,
            now_ms,
            weight_bytes: 0,
            key: count,
            dir: 0,
            name: Name::None,
        }
    }
}

impl<'a> Record<'a> {
    /// Appends its bytes.
    pub fn push(&self, out: &mut Vec<u8>) {
        let (kind, len) = match self.name {
            Name::None => (0, 0),
            Name::Hashed(_) => (1, HASH_LEN_BYTES as u8),
            Name::Plain(name) => (2, name.len().min(NAME_LEN_MAX) as u8),
        };
        let flags = kind | u8::from(self.begins) << 7;
        out.extend([self.what as u8, self.operation as u8, self.class as u8, flags, len, 0, 0, 0]);
        out.extend(self.now_ms.to_le_bytes());
        out.extend(self.weight_bytes.to_le_bytes());
        out.extend(self.key.to_le_bytes());
        out.extend(self.dir.to_le_bytes());
        match self.name {
            Name::None => {}
            Name::Hashed(hash) => out.extend(hash.to_le_bytes()),
            Name::Plain(name) => out.extend(&name[..usize::from(len)]),
        }
    }

    /// The record at the front of `bytes`, and how many bytes it takes; `None` where it is not all
    /// there yet.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn take(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, &'static str> {
        let Some((head, rest)) = bytes.split_first_chunk::<RECORD_LEN_BYTES>() else {
            return Ok(None);
        };
        let [what, operation, class, flags, len, ..] = *head;
        let len = usize::from(len);
        let Some(name) = rest.get(..len) else { return Ok(None) };
        let word = |at: usize| head.get(at..at + 8).and_then(|word| word.try_into().ok());
        let half = |at: usize| head.get(at..at + 4).and_then(|half| half.try_into().ok());
        let name = match (flags & 0x7f, name) {
            (0, []) => Name::None,
            (1, hash) => {
                let hash = hash.try_into().map_err(|_| "its hashed name has not 8 bytes")?;
                Name::Hashed(u64::from_le_bytes(hash))
            }
            (2, name) => Name::Plain(name),
            _ => return Err("its name is of no known kind"),
        };
        let record = Self {
            what: What::of(what).ok_or("it tells of nothing that is known")?,
            operation: Operation::of(operation).ok_or("its operation is not known")?,
            class: class_of(class).ok_or("its class is not known")?,
            begins: flags & 0x80 != 0,
            now_ms: half(8).map_or(0, u32::from_le_bytes),
            weight_bytes: half(12).map_or(0, u32::from_le_bytes),
            key: word(16).map_or(0, u64::from_le_bytes),
            dir: word(24).map_or(0, u64::from_le_bytes),
            name,
        };
        Ok(Some((record, RECORD_LEN_BYTES + len)))
    }
}

fn class_of(code: u8) -> Option<Class> {
    [Class::Asked, Class::Listed, Class::Prefetched].into_iter().find(|&class| class as u8 == code)
}

/// What a file begins with, after [`MAGIC`] and [`VERSION`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Bytes that the cache may hold.
    pub capacity_bytes: u64,
    /// Milliseconds since 1970 when the recording began.
    pub began_unix_ms: u64,
    /// The eviction policy that was active then: its name, and the start of its digest.
    pub policy: String,
}

impl Header {
    /// Appends magic, version and header.
    pub fn push(&self, out: &mut Vec<u8>) {
        let policy = self.policy.as_bytes();
        let policy = &policy[..policy.len().min(2 * POLICY_NAME_LEN_MAX)];
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend((policy.len() as u16).to_le_bytes());
        out.extend(self.capacity_bytes.to_le_bytes());
        out.extend(self.began_unix_ms.to_le_bytes());
        out.extend(policy);
    }

    /// The header at the front of a file, and how many bytes it takes; `None` where it is not all
    /// there yet.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn take(bytes: &[u8]) -> Result<Option<(Self, usize)>, &'static str> {
        if bytes.iter().zip(&MAGIC).any(|(is, should)| is != should) {
            return Err("it does not begin as a recorded trace does");
        }
        let Some((head, rest)) = bytes.split_first_chunk::<HEADER_LEN_BYTES>() else {
            return Ok(None);
        };
        let [.., v0, v1, l0, l1] = *head.first_chunk::<12>().unwrap_or(&[0; 12]);
        if u16::from_le_bytes([v0, v1]) != VERSION {
            return Err("it is of another version than 1: replay it with the release that made it");
        }
        let len = usize::from(u16::from_le_bytes([l0, l1]));
        let Some(policy) = rest.get(..len) else { return Ok(None) };
        let word = |at: usize| head.get(at..at + 8).and_then(|word| word.try_into().ok());
        let header = Self {
            capacity_bytes: word(12).map_or(0, u64::from_le_bytes),
            began_unix_ms: word(20).map_or(0, u64::from_le_bytes),
            policy: String::from_utf8_lossy(policy).into_owned(),
        };
        Ok(Some((header, HEADER_LEN_BYTES + len)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: Name<'_>) -> Record<'_> {
        Record {
            what: What::Came,
            operation: Operation::List,
            class: Class::Prefetched,
            begins: true,
            now_ms: 0x0102_0304,
            weight_bytes: 0x0506_0708,
            key: 0x1112_1314_1516_1718,
            dir: 0x2122_2324_2526_2728,
            name,
        }
    }

    #[test]
    fn records_come_back_and_cut_ones_wait() {
        let long = [b'x'; NAME_LEN_MAX];
        for name in [Name::None, Name::Hashed(7), Name::Plain(b"\xff"), Name::Plain(&long)] {
            let mut bytes = Vec::new();
            record(name).push(&mut bytes);
            let len = bytes.len();
            bytes.extend(b"more");
            assert_eq!(Record::take(&bytes), Ok(Some((record(name), len))));
            for cut in 0..len {
                assert_eq!(Record::take(&bytes[..cut]), Ok(None), "{name:?} to {cut}");
            }
        }
    }

    #[test]
    fn what_is_unknown_is_refused() {
        let mut bytes = Vec::new();
        record(Name::Hashed(7)).push(&mut bytes);
        for (at, bad) in [(0, 8), (1, 5), (2, 3), (3, 3), (4, 7)] {
            let mut bytes = bytes.clone();
            bytes[at] = bad;
            assert!(Record::take(&bytes).is_err(), "byte {at}");
        }
    }

    #[test]
    fn headers_come_back_and_other_versions_are_refused() {
        let policy = "s3-fifo 0123456789ab".to_owned();
        let header = Header { capacity_bytes: 1 << 33, began_unix_ms: 1 << 41, policy };
        let mut bytes = Vec::new();
        header.push(&mut bytes);
        assert_eq!(Header::take(&bytes), Ok(Some((header, bytes.len()))));
        for cut in 0..bytes.len() {
            assert_eq!(Header::take(&bytes[..cut]), Ok(None), "to {cut}");
        }
        assert!(Header::take(b"pctrick").is_err());
        bytes[8] = 2;
        assert!(Header::take(&bytes).is_err_and(|what| what.contains("another version")));
    }
}
