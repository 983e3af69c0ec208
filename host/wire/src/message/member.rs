//! Which part of a volume of several bricks a brick is.

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
}
