//! The id of a directory that is spread over the members of a volume.
//!
//! It says on which members names of the directory may lie (its *layout*: members 0 to n, the ones
//! there were when it was made) and which member is its *home*, where its attributes are. So
//! whoever has the id knows whom to ask, and a volume that grows moves nothing. The rest of it is
//! drawn at random: 112 bits that nobody guesses are all the right that an id needs to give, since
//! a member takes only ids of directories that exist.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::member::{KIND_SPREAD, MemberId, MemberSet};
use crate::handle::Handle;
use crate::limits::BRICKS_MAX;

/// Bytes of an id.
pub const DIR_ID_LEN: usize = 16;
/// Bytes of an id that are drawn at random.
pub const DIR_ID_RANDOM_LEN: usize = 14;

/// The id of a spread directory: layout, home, 14 random bytes (zeros: the root).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "[u8; DIR_ID_LEN]", into = "[u8; DIR_ID_LEN]")]
pub struct DirId([u8; DIR_ID_LEN]);

/// Bytes that are no id: the layout is 0 or over [`BRICKS_MAX`], or the home is not of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the id of a directory")]
pub struct NoDirId;

impl DirId {
    /// The id of a directory spread over `layout` members, at home on `home`; `None` where there
    /// cannot be such a one. Names of a directory of which every random byte is 0 are the root's.
    pub fn new(layout: u8, home: MemberId, random: [u8; DIR_ID_RANDOM_LEN]) -> Option<Self> {
        let mut bytes = [0; DIR_ID_LEN];
        bytes[0] = layout;
        bytes[1] = home;
        bytes[2..].copy_from_slice(&random);
        Self::try_from(bytes).ok()
    }

    /// The id of the root of a volume that began with `layout` members, all empty. The root of a
    /// volume whose member 0 had files before is no spread directory: it is member 0's root.
    pub fn root(layout: u8) -> Option<Self> {
        Self::new(layout, 0, [0; DIR_ID_RANDOM_LEN])
    }

    /// Whether this is the root of its volume. It exists on every member of its layout from the
    /// start, and is never removed or moved.
    pub fn is_root(&self) -> bool {
        self.0[2..].iter().all(|&byte| byte == 0)
    }

    /// How many members may have names of the directory: those below this.
    pub fn layout(&self) -> u8 {
        self.0[0]
    }

    /// The members that may have names of the directory.
    pub fn members(&self) -> MemberSet {
        MemberSet::first(self.layout())
    }

    /// The member that has the directory's attributes, and its copy for as long as it exists.
    pub fn home(&self) -> MemberId {
        self.0[1]
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8; DIR_ID_LEN] {
        &self.0
    }

    /// The handle of the directory, the same on every member.
    pub fn handle(&self) -> Handle {
        let mut bytes = [0; crate::limits::HANDLE_LEN_MAX];
        bytes[0] = KIND_SPREAD;
        bytes[1..=DIR_ID_LEN].copy_from_slice(&self.0);
        Handle::of_prefix(&bytes, 1 + DIR_ID_LEN as u8)
    }

    /// The id in the handle of a spread directory; `None` where the handle is another.
    pub fn of_handle(handle: &Handle) -> Option<Self> {
        let (&KIND_SPREAD, rest) = handle.as_bytes().split_first()? else { return None };
        Self::try_from(<[u8; DIR_ID_LEN]>::try_from(rest).ok()?).ok()
    }
}

impl TryFrom<[u8; DIR_ID_LEN]> for DirId {
    type Error = NoDirId;

    fn try_from(bytes: [u8; DIR_ID_LEN]) -> Result<Self, NoDirId> {
        let [layout, home, ..] = bytes;
        if layout == 0 || usize::from(layout) > BRICKS_MAX || home >= layout {
            return Err(NoDirId);
        }
        Ok(Self(bytes))
    }
}

impl From<DirId> for [u8; DIR_ID_LEN] {
    fn from(id: DirId) -> Self {
        id.0
    }
}

impl fmt::Debug for DirId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// As 32 hex digits, which is how a member names its copy.
impl fmt::Display for DirId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_its_handle_and_says_what_it_was_made_of() {
        let id = DirId::new(3, 2, [7; DIR_ID_RANDOM_LEN]).expect("home of its layout");
        assert_eq!(DirId::of_handle(&id.handle()), Some(id));
        assert_eq!((id.layout(), id.home(), id.is_root()), (3, 2, false));
        assert_eq!(id.members().iter().collect::<Vec<_>>(), [0, 1, 2]);
        let root = DirId::root(64).expect("as many as there may be");
        assert!(root.is_root() && DirId::of_handle(&root.handle()) == Some(root));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert_eq!(DirId::root(0), None);
        assert_eq!(DirId::root(65), None);
        assert_eq!(DirId::new(2, 2, [1; DIR_ID_RANDOM_LEN]), None, "a home beyond the layout");
        let id = DirId::root(2).expect("two");
        let mut bytes = id.handle().as_bytes().to_vec();
        bytes.push(0);
        assert_eq!(DirId::of_handle(&Handle::new(&bytes).expect("short")), None, "too long");
        bytes.truncate(DIR_ID_LEN);
        assert_eq!(DirId::of_handle(&Handle::new(&bytes).expect("short")), None, "too short");
        assert_eq!(DirId::of_handle(&Handle::new(&[]).expect("empty")), None);
    }
}
