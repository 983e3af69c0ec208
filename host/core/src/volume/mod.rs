//! Volumes of several bricks: which of its members has what, and how they change it together.
//!
//! - [`id`], [`member`]: the ids of directories and whose a handle is.
//! - [`placement`]: which member arbitrates a name.
//! - [`record`]: what a name is there: the file itself, or a pointer.
//! - [`transaction`]: what a change on several members leaves on them until it is through.
//! - [`outcomes`]: what came of the transactions that clients asked for.
//! - [`ask`]: what members are asked, with what each does.
//! - [`steps`]: the operations that are made of that.
//!
//! `docs/VOLUMES.md` tells it as a whole.

pub mod ask;
pub mod id;
pub mod member;
pub mod outcomes;
mod packed;
pub mod placement;
pub mod record;
pub mod steps;
pub mod transaction;

pub use ask::{Ask, Change, CopyAttr, Purpose, Told};
pub use id::DirId;
pub use member::{KIND_MEMBER, KIND_SPREAD, MemberId, MemberSet, Owner, member_of};
pub use outcomes::{Before, Cause, Outcomes};
pub use placement::arbiter;
pub use record::{LinkId, Named, Pointer, Record};
pub use steps::{Asked, Call, End, Next, Operation, Steps};
pub use transaction::{Duty, Intent, Place, Preparation, Prepared, TxId, Unfinished};
