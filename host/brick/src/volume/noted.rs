//! A commit as it is noted before it is done: the intent that it leaves, and how to tell later
//! whether it was done.

use portcullis_core::Handle;
use portcullis_core::volume::{Intent, LinkId, Place, Pointer};

/// First byte of what is kept on disk.
const FORMAT_VERSION: u8 = 1;

/// How to tell whether a commit was done: nobody else changes what it looks at meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// It goes with no change.
    Done,
    /// The name is this pointer.
    NameIs(Place, Pointer),
    /// The name is not there, or is not the pointer that it was.
    NameGone(Place),
    /// The hidden name of a file is not there.
    LinkGone(LinkId),
    /// The name stands for what has this handle. Where it does not, the hidden name goes that was made
    /// for what it stood for.
    Swapped(Place, Handle, LinkId),
}

/// A commit, noted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Noted {
    pub(super) check: Check,
    pub(super) intent: Intent,
}

impl Noted {
    /// The bytes that are kept on disk.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT_VERSION];
        match &self.check {
            Check::Done => bytes.push(0),
            Check::NameIs(place, pointer) => {
                bytes.push(1);
                pack_place(place, &mut bytes);
                pack(&pointer.to_payload(), &mut bytes);
            }
            Check::NameGone(place) => {
                bytes.push(2);
                pack_place(place, &mut bytes);
            }
            Check::LinkGone(link) => {
                bytes.push(3);
                bytes.extend_from_slice(&link.to_le_bytes());
            }
            Check::Swapped(place, handle, link) => {
                bytes.push(4);
                pack_place(place, &mut bytes);
                pack(handle.as_bytes(), &mut bytes);
                bytes.extend_from_slice(&link.to_le_bytes());
            }
        }
        bytes.extend_from_slice(&self.intent.to_bytes());
        bytes
    }

    /// What [`Noted::to_bytes`] made; `None` where it was cut short or a later version made it.
    pub(super) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let (&[FORMAT_VERSION, kind], mut rest) = bytes.split_first_chunk()? else { return None };
        let rest = &mut rest;
        let check = match kind {
            0 => Check::Done,
            1 => Check::NameIs(unpack_place(rest)?, Pointer::of_payload(unpack(rest)?)?),
            2 => Check::NameGone(unpack_place(rest)?),
            3 => Check::LinkGone(unpack_link(rest)?),
            4 => {
                let (place, handle) = (unpack_place(rest)?, Handle::new(unpack(rest)?)?);
                Check::Swapped(place, handle, unpack_link(rest)?)
            }
            _ => return None,
        };
        Some(Self { check, intent: Intent::of_bytes(rest)? })
    }
}

/// Its length, a byte, and the bytes.
fn pack(part: &[u8], bytes: &mut Vec<u8>) {
    debug_assert!(part.len() <= usize::from(u8::MAX));
    bytes.push(part.len() as u8);
    bytes.extend_from_slice(part);
}

fn unpack<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (&len, rest) = bytes.split_first()?;
    let (part, rest) = rest.split_at_checked(len.into())?;
    *bytes = rest;
    Some(part)
}

fn unpack_link(bytes: &mut &[u8]) -> Option<LinkId> {
    let (link, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(LinkId::from_le_bytes(*link))
}

fn pack_place(place: &Place, bytes: &mut Vec<u8>) {
    pack(place.dir.as_bytes(), bytes);
    pack(&place.name, bytes);
}

fn unpack_place(bytes: &mut &[u8]) -> Option<Place> {
    let dir = Handle::new(unpack(bytes)?)?;
    Some(Place { dir, name: unpack(bytes)?.to_vec() })
}

#[cfg(test)]
mod tests {
    use portcullis_core::FileKind;
    use portcullis_core::volume::{Duty, TxId};

    use super::*;

    #[test]
    fn what_is_noted_is_read_again_and_what_was_cut_short_is_not() {
        let handle = Handle::new(&[7; portcullis_core::limits::HANDLE_LEN_MAX]).expect("fits");
        let place = Place { dir: handle, name: vec![b'n'; 255] };
        let pointer = Pointer::File { handle, kind: FileKind::Regular, link: 9 };
        let tx = TxId { gateway: 1, number: 2 };
        let duties = vec![Duty::Finish { member: 1 }];
        let intent = Intent { tx, held: vec![place.clone()], duties, cause: None };
        let checks = [
            Check::Done,
            Check::NameIs(place.clone(), pointer),
            Check::NameGone(place),
            Check::LinkGone(u128::MAX),
        ];
        for check in checks {
            let noted = Noted { check, intent: intent.clone() };
            let bytes = noted.to_bytes();
            assert_eq!(Noted::of_bytes(&bytes), Some(noted));
            for len in 0..bytes.len() {
                assert_eq!(Noted::of_bytes(&bytes[..len]), None, "{len}");
            }
        }
    }
}
