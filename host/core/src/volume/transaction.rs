//! A change that concerns several members: what it leaves on each of them until it is through.
//!
//! Such a change is a transaction in two phases, presumed aborted where nobody knows better (Mohan,
//! Lindsay and Obermarck 1986). Members *prepare* their parts, which from then on wait on disk; one
//! of them, the *coordinator*, *commits* by one change of its own that leaves an [`Intent`] there;
//! the others *finish* their parts, and the coordinator *forgets*. Who leads it through, a gateway,
//! may be gone at any moment: whoever comes next finds [`Unfinished`] parts, asks the coordinator
//! how it ended, and brings it to its end.
//!
//! What must hold:
//! - A transaction is committed exactly while, or after, its coordinator has the intent; it forgets
//!   the intent only when every duty in it is done.
//! - It commits only where the coordinator *holds* its name for it, in memory, for the session that
//!   asked. The hold is taken before anything is prepared, and never twice: so once somebody was
//!   told that a transaction is not committed, it never will be.

use serde::{Deserialize, Serialize};

use super::id::DirId;
use super::member::MemberId;
use super::outcomes::Cause;
use super::packed::{Pack, Unpack, pack_all, unpack_all};
use super::record::{LinkId, Pointer};
use crate::handle::Handle;

/// Names a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TxId {
    /// The gateway that leads it: a random number that it drew when it started.
    pub gateway: u128,
    /// Counts the gateway's transactions.
    pub number: u64,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The directory.
    pub dir: Handle,
    /// The name.
    #[serde(with = "serde_bytes")]
    pub name: Vec<u8>,
}

impl Place {
    /// The member that arbitrates the name.
    pub fn arbiter(&self) -> MemberId {
        super::arbiter(&self.dir, &self.name)
    }
}

/// A part of a transaction that a member has promised to do or to undo, as it will be told. It is
/// on stable storage before the promise is made, and outlives sessions and restarts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Preparation {
    /// A name that goes. Until then it is there for whoever looks, and every change of it waits.
    /// Finished: a pointer is removed; a body is renamed to the hidden name of `link`. Aborted: as
    /// it was. Where another program took the name away meanwhile there is nothing to do.
    Leave {
        /// The name.
        place: Place,
        /// A hidden name for a body. A pointer keeps the one it has.
        link: LinkId,
    },
    /// A name that is to stand for something else, as in an exchange. Until then it is as it was for
    /// whoever looks, and every change of it waits. Finished: a body gets the hidden name `link`, and the
    /// name leads where `pointer` does; a file that lies here comes back from its hidden name, as in
    /// [`Change::Place`](super::Change::Place). Aborted: as it was.
    Replace {
        /// The name.
        place: Place,
        /// Where it is to lead.
        pointer: Pointer,
        /// The owner for the pointer.
        uid: u32,
        /// A hidden name for a body.
        link: LinkId,
    },
    /// Another name for a file of this member: its hidden name `link` is made. Finished: it stays.
    /// Aborted: it is removed.
    Link {
        /// The file.
        handle: Handle,
        /// The hidden name.
        link: LinkId,
    },
    /// A directory that is to be removed: this member's copy has no name, and whatever would make
    /// one waits. Finished: the copy is removed. Aborted: as it was.
    Seal {
        /// The directory.
        id: DirId,
    },
    /// A directory that moves to another parent. Until it is known where it is, who asks for its
    /// parent waits. Finished: that is `parent`. Aborted: as it was.
    Reparent {
        /// The directory, whose home this member is.
        id: DirId,
        /// The directory that it moves to.
        parent: Handle,
    },
}

/// All that a member has prepared for a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Prepared {
    /// The transaction.
    pub tx: TxId,
    /// The member that knows how it ended.
    pub coordinator: MemberId,
    /// What was promised.
    pub parts: Vec<Preparation>,
}

/// What the change that committed a transaction leaves at the coordinator, in one with the change.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Intent {
    /// The transaction.
    pub tx: TxId,
    /// Names here that are not to change before the intent is forgotten.
    pub held: Vec<Place>,
    /// What is to be done yet, in any order, each once or more.
    pub duties: Vec<Duty>,
    /// What it carries out, for a client that may ask again.
    pub cause: Option<Cause>,
}

/// Something that is to be done before a transaction is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Duty {
    /// A member finishes what it prepared: [`Ask::Finish`](super::Ask::Finish).
    Finish {
        /// The member, which may be the coordinator itself.
        member: MemberId,
    },
    /// A hidden name of a file is removed, the file with it where it was the last:
    /// [`Ask::RemoveBody`](super::Ask::RemoveBody).
    RemoveBody {
        /// The member that the file lies on.
        member: MemberId,
        /// The hidden name.
        link: LinkId,
    },
    /// The copies of a directory get the attributes that it has at home, which is this member.
    Refresh {
        /// The directory.
        id: DirId,
    },
}

/// What a member has of a transaction that is not through.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Unfinished {
    /// Something is prepared, and whoever leads the transaction has not told yet how it ended.
    Prepared {
        /// The transaction.
        tx: TxId,
        /// The member to ask.
        coordinator: MemberId,
    },
    /// It was committed here, and not forgotten yet.
    Committed {
        /// The transaction.
        tx: TxId,
        /// What is to be done.
        duties: Vec<Duty>,
    },
}

impl Unfinished {
    /// The transaction.
    pub fn tx(&self) -> TxId {
        match self {
            Unfinished::Prepared { tx, .. } | Unfinished::Committed { tx, .. } => *tx,
        }
    }
}

/// First byte of what is kept on disk.
const FORMAT_VERSION: u8 = 1;
/// The same of intents.
const INTENT_VERSION: u8 = 2;
/// Intents that did not say what they carry out.
const INTENT_VERSION_WITHOUT_CAUSE: u8 = 1;

impl Prepared {
    /// The bytes that are kept on disk.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT_VERSION];
        self.tx.pack(&mut bytes);
        self.coordinator.pack(&mut bytes);
        pack_all(&self.parts, &mut bytes);
        bytes
    }

    /// What [`Prepared::to_bytes`] made; `None` where it was cut short or a later version made it.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let (&FORMAT_VERSION, mut rest) = bytes.split_first()? else { return None };
        let rest = &mut rest;
        let tx = TxId::unpack(rest)?;
        let prepared = Self { tx, coordinator: u8::unpack(rest)?, parts: unpack_all(rest)? };
        rest.is_empty().then_some(prepared)
    }
}

impl Intent {
    /// The bytes that are kept on disk.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![INTENT_VERSION];
        self.tx.pack(&mut bytes);
        pack_all(&self.held, &mut bytes);
        pack_all(&self.duties, &mut bytes);
        pack_all(self.cause.as_slice(), &mut bytes);
        bytes
    }

    /// What [`Intent::to_bytes`] made; `None` where it was cut short or a later version made it.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let (&version, mut rest) = bytes.split_first()?;
        let rest = &mut rest;
        let tx = TxId::unpack(rest)?;
        let (held, duties) = (unpack_all(rest)?, unpack_all(rest)?);
        let cause = match version {
            INTENT_VERSION => unpack_all(rest)?.pop(),
            INTENT_VERSION_WITHOUT_CAUSE => None,
            _ => return None,
        };
        let intent = Self { tx, held, duties, cause };
        rest.is_empty().then_some(intent)
    }
}

impl Pack for TxId {
    fn pack(&self, bytes: &mut Vec<u8>) {
        self.gateway.pack(bytes);
        self.number.pack(bytes);
    }
}

impl Unpack for TxId {
    fn unpack(bytes: &mut &[u8]) -> Option<Self> {
        let gateway = u128::unpack(bytes)?;
        Some(Self { gateway, number: u64::unpack(bytes)? })
    }
}

impl Pack for Cause {
    fn pack(&self, bytes: &mut Vec<u8>) {
        self.client.pack(bytes);
        self.number.pack(bytes);
        self.oldest.pack(bytes);
        self.life.pack(bytes);
    }
}

impl Unpack for Cause {
    fn unpack(bytes: &mut &[u8]) -> Option<Self> {
        let client = u128::unpack(bytes)?;
        let number = u64::unpack(bytes)?;
        let oldest = u64::unpack(bytes)?;
        Some(Self { client, number, oldest, life: u64::unpack(bytes)? })
    }
}

impl Pack for Place {
    fn pack(&self, bytes: &mut Vec<u8>) {
        self.dir.pack(bytes);
        self.name.pack(bytes);
    }
}

impl Unpack for Place {
    fn unpack(bytes: &mut &[u8]) -> Option<Self> {
        let dir = Handle::unpack(bytes)?;
        Some(Self { dir, name: Vec::unpack(bytes)? })
    }
}

impl Pack for Preparation {
    fn pack(&self, bytes: &mut Vec<u8>) {
        match self {
            Preparation::Leave { place, link } => {
                0_u8.pack(bytes);
                place.pack(bytes);
                link.pack(bytes);
            }
            Preparation::Link { handle, link } => {
                1_u8.pack(bytes);
                handle.pack(bytes);
                link.pack(bytes);
            }
            Preparation::Seal { id } => {
                2_u8.pack(bytes);
                id.pack(bytes);
            }
            Preparation::Reparent { id, parent } => {
                3_u8.pack(bytes);
                id.pack(bytes);
                parent.pack(bytes);
            }
            Preparation::Replace { place, pointer, uid, link } => {
                4_u8.pack(bytes);
                place.pack(bytes);
                pointer.to_payload().pack(bytes);
                u64::from(*uid).pack(bytes);
                link.pack(bytes);
            }
        }
    }
}

impl Unpack for Preparation {
    fn unpack(bytes: &mut &[u8]) -> Option<Self> {
        Some(match u8::unpack(bytes)? {
            0 => {
                let place = Place::unpack(bytes)?;
                Preparation::Leave { place, link: u128::unpack(bytes)? }
            }
            1 => {
                let handle = Handle::unpack(bytes)?;
                Preparation::Link { handle, link: u128::unpack(bytes)? }
            }
            2 => Preparation::Seal { id: DirId::unpack(bytes)? },
            3 => {
                let id = DirId::unpack(bytes)?;
                Preparation::Reparent { id, parent: Handle::unpack(bytes)? }
            }
            4 => {
                let place = Place::unpack(bytes)?;
                let pointer = Pointer::of_payload(&Vec::unpack(bytes)?)?;
                let uid = u32::try_from(u64::unpack(bytes)?).ok()?;
                Preparation::Replace { place, pointer, uid, link: u128::unpack(bytes)? }
            }
            _ => return None,
        })
    }
}

impl Pack for Duty {
    fn pack(&self, bytes: &mut Vec<u8>) {
        match self {
            Duty::Finish { member } => [0, *member].iter().for_each(|byte| byte.pack(bytes)),
            Duty::RemoveBody { member, link } => {
                [1, *member].iter().for_each(|byte| byte.pack(bytes));
                link.pack(bytes);
            }
            Duty::Refresh { id } => {
                2_u8.pack(bytes);
                id.pack(bytes);
            }
        }
    }
}

impl Unpack for Duty {
    fn unpack(bytes: &mut &[u8]) -> Option<Self> {
        Some(match u8::unpack(bytes)? {
            0 => Duty::Finish { member: u8::unpack(bytes)? },
            1 => {
                let member = u8::unpack(bytes)?;
                Duty::RemoveBody { member, link: u128::unpack(bytes)? }
            }
            2 => Duty::Refresh { id: DirId::unpack(bytes)? },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::handle;

    const TX: TxId = TxId { gateway: u128::MAX - 1, number: 77 };

    fn place(name: &[u8]) -> Place {
        Place { dir: handle(3), name: name.to_vec() }
    }

    fn id() -> DirId {
        DirId::new(4, 1, [7; 14]).expect("an id")
    }

    fn prepared() -> Prepared {
        let pointer = Pointer::Dir(id());
        let parts = vec![
            Preparation::Leave { place: place(&[b'n'; 255]), link: 1 },
            Preparation::Link { handle: handle(8), link: u128::MAX },
            Preparation::Seal { id: id() },
            Preparation::Reparent { id: id(), parent: handle(9) },
            Preparation::Replace { place: place(b"r"), pointer, uid: u32::MAX, link: 4 },
        ];
        Prepared { tx: TX, coordinator: 3, parts }
    }

    fn intent() -> Intent {
        let duties = vec![
            Duty::Finish { member: 63 },
            Duty::RemoveBody { member: 1, link: 5 },
            Duty::Refresh { id: id() },
        ];
        let cause = Some(Cause { client: 3, number: u64::MAX, oldest: 1, life: 2 });
        Intent { tx: TX, held: vec![place(b"a"), place(b"")], duties, cause }
    }

    #[test]
    fn what_is_kept_is_read_again() {
        assert_eq!(Prepared::of_bytes(&prepared().to_bytes()), Some(prepared()));
        assert_eq!(Intent::of_bytes(&intent().to_bytes()), Some(intent()));
    }

    #[test]
    fn what_was_cut_short_or_is_of_a_later_version_is_not() {
        let bytes = prepared().to_bytes();
        for len in 0..bytes.len() {
            assert_eq!(Prepared::of_bytes(&bytes[..len]), None, "{len}");
        }
        let bytes = intent().to_bytes();
        for len in 0..bytes.len() {
            assert_eq!(Intent::of_bytes(&bytes[..len]), None, "{len}");
        }
        let later = [&[INTENT_VERSION + 1], &bytes[1..]].concat();
        assert_eq!(Intent::of_bytes(&later), None);
        assert_eq!(Intent::of_bytes(&[&bytes[..], &[0]].concat()), None, "too long");
    }
}
