//! What a name is at its arbiter: the file itself, or a pointer to where the file lies.
//!
//! A pointer is kept on disk as a symbolic link that leads nowhere, `.portcullis:payload:tag`, both
//! in hex. The tag is the member's, keyed, over the payload, so nobody else can make one; and no
//! other link whose target begins so is made through Portcullis.

use serde::{Deserialize, Serialize};

use super::id::DirId;
use super::member::{MemberId, member_of};
use super::packed::{Pack, Unpack, from_hex, to_hex};
use crate::attr::FileKind;
use crate::handle::Handle;

/// What the target of every pointer begins with, and of no other symbolic link.
pub const POINTER_PREFIX: &[u8] = b".portcullis:";

/// Names one link of a file that lies elsewhere than its name: on the file's member, a name of 32
/// hex digits in a hidden directory. Drawn at random, used once.
pub type LinkId = u128;

/// What a name stands for, as its arbiter has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Record {
    /// The file, or the pointer to it.
    pub what: Named,
    /// The owner that counts in a directory with the sticky bit: a file's own; of a pointer the one
    /// the file had when the pointer was placed, which is the owner of the symbolic link.
    pub uid: u32,
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Named {
    /// The file itself, under this name. A directory here is one that was made before the volume,
    /// or by another program, and lies on this member as a whole.
    Body {
        /// Its handle.
        handle: Handle,
        /// Its type.
        kind: FileKind,
    },
    /// What lies elsewhere.
    Pointer(Pointer),
}

/// Where a name leads that is not the file itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Pointer {
    /// A file, no directory, on the member that its handle says.
    File {
        /// Its handle.
        handle: Handle,
        /// Its type.
        kind: FileKind,
        /// The name that the file has there for this one.
        link: LinkId,
    },
    /// A spread directory.
    Dir(DirId),
}

impl Named {
    /// The handle of the file.
    pub fn handle(&self) -> Handle {
        match self {
            Named::Body { handle, .. } | Named::Pointer(Pointer::File { handle, .. }) => *handle,
            Named::Pointer(Pointer::Dir(id)) => id.handle(),
        }
    }

    /// The type of the file.
    pub fn kind(&self) -> FileKind {
        match self {
            Named::Body { kind, .. } | Named::Pointer(Pointer::File { kind, .. }) => *kind,
            Named::Pointer(Pointer::Dir(_)) => FileKind::Directory,
        }
    }

    /// The spread directory that it is.
    pub fn spread(&self) -> Option<DirId> {
        match self {
            Named::Pointer(Pointer::Dir(id)) => Some(*id),
            _ => None,
        }
    }
}

impl Pointer {
    /// The member that has the attributes of what it leads to.
    pub fn home(&self) -> MemberId {
        member_of(&Named::Pointer(*self).handle()).home()
    }

    /// The bytes that the member's tag is made of.
    pub fn to_payload(&self) -> Vec<u8> {
        let mut bytes = vec![PAYLOAD_VERSION];
        self.pack(&mut bytes);
        bytes
    }

    /// The pointer of a payload whose tag is right; `None` where a later version made it.
    pub fn of_payload(payload: &[u8]) -> Option<Self> {
        let (&PAYLOAD_VERSION, mut rest) = payload.split_first()? else { return None };
        let pointer = Self::unpack(&mut rest)?;
        rest.is_empty().then_some(pointer)
    }

    /// The target of the symbolic link that keeps this payload and its tag.
    pub fn to_target(payload: &[u8], tag: &[u8]) -> Vec<u8> {
        [POINTER_PREFIX, &to_hex(payload), b":", &to_hex(tag)].concat()
    }

    /// Payload and tag of the target of a symbolic link, `None` where it is none that
    /// [`Pointer::to_target`] made. Believe the payload where the tag is right.
    pub fn parse_target(target: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        let rest = target.strip_prefix(POINTER_PREFIX)?;
        let colon = rest.iter().position(|&byte| byte == b':')?;
        Some((from_hex(&rest[..colon])?, from_hex(&rest[colon + 1..])?))
    }

    /// Whether no client may make a symbolic link with this target.
    pub fn is_reserved(target: &[u8]) -> bool {
        target.starts_with(POINTER_PREFIX)
    }
}

/// First byte of a payload.
const PAYLOAD_VERSION: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::handle;

    fn pointers() -> [Pointer; 2] {
        let longest = Handle::new(&[255; crate::limits::HANDLE_LEN_MAX]).expect("as long as any");
        [
            Pointer::File { handle: longest, kind: FileKind::Socket, link: u128::MAX - 5 },
            Pointer::Dir(DirId::new(64, 63, [200; 14]).expect("an id")),
        ]
    }

    #[test]
    fn a_pointer_survives_its_symbolic_link() {
        for pointer in pointers() {
            let target = Pointer::to_target(&pointer.to_payload(), b"tag");
            assert!(target.len() < 255 && Pointer::is_reserved(&target));
            let (payload, tag) = Pointer::parse_target(&target).expect("as it was made");
            assert_eq!((Pointer::of_payload(&payload), &tag[..]), (Some(pointer), &b"tag"[..]));
        }
    }

    #[test]
    fn what_is_no_pointer_is_refused_wherever_it_is_cut() {
        for pointer in pointers() {
            let payload = pointer.to_payload();
            for len in 0..payload.len() {
                assert_eq!(Pointer::of_payload(&payload[..len]), None, "{len}");
            }
            assert_eq!(Pointer::of_payload(&[&payload[..], &[0]].concat()), None);
            assert_eq!(Pointer::of_payload(&[&[2], &payload[1..]].concat()), None, "later version");
        }
        for target in ["", ".portcullis:", ".portcullis:0", ".portcullis:0:00", ".portcullis:zz:00"]
        {
            assert_eq!(Pointer::parse_target(target.as_bytes()), None, "{target}");
        }
    }

    #[test]
    fn a_record_says_which_file_it_is() {
        let body = Named::Body { handle: handle(7), kind: FileKind::Fifo };
        assert_eq!((body.handle(), body.kind(), body.spread()), (handle(7), FileKind::Fifo, None));
        let [file, dir] = pointers().map(Named::Pointer);
        assert_eq!((file.kind(), dir.kind()), (FileKind::Socket, FileKind::Directory));
        assert_eq!(dir.spread().map(|id| id.handle()), Some(dir.handle()));
        assert_eq!(pointers()[1].home(), 63);
    }
}
