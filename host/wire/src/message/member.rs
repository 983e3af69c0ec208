//! Which part of a volume of several bricks a brick is.

use portcullis_core::volume::MemberSet;
use serde::{Deserialize, Serialize};

/// What a gateway tells a brick once, and the brick keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Membership {
    /// The volume: a random number, drawn when it was made.
    pub volume: u128,
    /// The brick's place among the members, from 0.
    pub member: u8,
    /// How many members there are. It grows where bricks are added, and never shrinks.
    pub count: u8,
    /// How many members the root directory is spread over: those there were at first, or 1 where
    /// member 0 had files before.
    pub root_layout: u8,
    /// Members that have joined so far. What the first of them keeps counts: one that is among these
    /// is never taken for new, so that nobody loses files unseen who names an empty directory in its
    /// place.
    pub joined: MemberSet,
}
