//! On whose behalf something is changed.

use portcullis_core::limits::CALLER_GROUPS_MAX;
use serde::{Deserialize, Serialize};

/// The credentials of the program that asked, as its kernel told them. A brick that runs as root
/// takes them on for the change, so that ownership, set-group-id directories, sticky bits and the
/// clearing of set-id bits come out as they would locally. Whoever holds a client's identity is
/// trusted to tell the truth.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups, at most `CALLER_GROUPS_MAX`.
    pub groups: Vec<u32>,
}

impl Caller {
    /// The superuser.
    pub const ROOT: Caller = Caller { uid: 0, gid: 0, groups: Vec::new() };

    /// A caller with as many of these groups as may travel.
    pub fn new(uid: u32, gid: u32, mut groups: Vec<u32>) -> Self {
        groups.truncate(CALLER_GROUPS_MAX);
        Self { uid, gid, groups }
    }
}
