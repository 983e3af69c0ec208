//! Members of a volume, and which of them a handle belongs to.
//!
//! Handles are unique in a volume, because the member that makes one says so in it: a handle of
//! member 0 is as it would be without a volume, so a brick that served alone can become member 0;
//! any other begins with [`KIND_MEMBER`] and the member's number. A directory spread over several
//! members has one handle on all of them, [`KIND_SPREAD`] and its id.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::id::DirId;
use crate::handle::Handle;
use crate::limits::BRICKS_MAX;

/// A brick's place among the members of its volume, below [`BRICKS_MAX`].
pub type MemberId = u8;

/// First byte of a handle that any member but the first made: the member's number follows, then
/// what would be the handle without a volume.
pub const KIND_MEMBER: u8 = 16;
/// First byte of the handle of a spread directory: the 16 bytes of its id follow.
pub const KIND_SPREAD: u8 = 17;

/// Whose a handle is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A file, or a directory that lies on one member as a whole.
    Member(MemberId),
    /// A directory spread over the members of its layout.
    Spread(DirId),
}

impl Owner {
    /// The member that has the attributes.
    pub fn home(&self) -> MemberId {
        match self {
            Owner::Member(member) => *member,
            Owner::Spread(id) => id.home(),
        }
    }

    /// The members that may have names of it, if it is a directory.
    pub fn members(&self) -> MemberSet {
        match self {
            Owner::Member(member) => MemberSet::of(*member),
            Owner::Spread(id) => id.members(),
        }
    }
}

/// Whose a handle is. A handle that is none belongs to some member, which refuses it.
pub fn member_of(handle: &Handle) -> Owner {
    match *handle.as_bytes() {
        [KIND_MEMBER, member, ..] => Owner::Member(member),
        [KIND_SPREAD, ..] => DirId::of_handle(handle).map_or(Owner::Member(0), Owner::Spread),
        _ => Owner::Member(0),
    }
}

/// Some members of a volume.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MemberSet(u64);

impl MemberSet {
    /// None.
    pub const EMPTY: Self = Self(0);

    /// One member; none where the number is over what can be.
    pub const fn of(member: MemberId) -> Self {
        if member as usize >= BRICKS_MAX { Self::EMPTY } else { Self(1 << member) }
    }

    /// The members below `count`.
    pub const fn first(count: u8) -> Self {
        if count as usize >= BRICKS_MAX { Self(u64::MAX) } else { Self((1 << count) - 1) }
    }

    /// The set with this one too.
    #[must_use]
    pub const fn with(self, member: MemberId) -> Self {
        Self(self.0 | Self::of(member).0)
    }

    /// The set without this one.
    #[must_use]
    pub const fn without(self, member: MemberId) -> Self {
        Self(self.0 & !Self::of(member).0)
    }

    /// Whether this one is of the set.
    pub const fn contains(self, member: MemberId) -> bool {
        self.0 & Self::of(member).0 != 0
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many there are.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Bit k is set where member k is of the set.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The set of these bits.
    pub const fn of_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The members, lowest first.
    pub fn iter(self) -> impl Iterator<Item = MemberId> {
        (0..BRICKS_MAX as MemberId).filter(move |&member| self.contains(member))
    }
}

impl FromIterator<MemberId> for MemberSet {
    fn from_iter<I: IntoIterator<Item = MemberId>>(members: I) -> Self {
        members.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl fmt::Debug for MemberSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_says_whose_it_is() {
        let of = |bytes: &[u8]| member_of(&Handle::new(bytes).expect("short"));
        assert_eq!(of(&[1, 5, 5]), Owner::Member(0), "as it would be without a volume");
        assert_eq!(of(&[KIND_MEMBER, 3, 1, 5, 5]), Owner::Member(3));
        let id = DirId::new(4, 3, [9; 14]).expect("an id");
        assert_eq!(member_of(&id.handle()), Owner::Spread(id));
        assert_eq!(member_of(&id.handle()).home(), 3);
        for odd in [&[][..], &[KIND_MEMBER], &[KIND_SPREAD], &[KIND_SPREAD, 0]] {
            assert_eq!(of(odd), Owner::Member(0));
        }
    }

    #[test]
    fn a_set_of_members_holds_all_there_can_be() {
        let all = MemberSet::first(64);
        assert_eq!(all.len(), 64);
        assert!(!all.without(63).contains(63) && all.without(63).contains(62));
        assert_eq!(MemberSet::of(64), MemberSet::EMPTY);
        assert_eq!([5, 1, 5].into_iter().collect::<MemberSet>().iter().collect::<Vec<_>>(), [1, 5]);
        assert_eq!(MemberSet::first(3), MemberSet::of_bits(0b111));
    }
}
