//! Copies of directories that are made before a name has to wait for them.
//!
//! A brick gets its copy of a directory when it is first to have a name of it: four more round trips for
//! whoever makes that name. One who fills a directory pays them for each brick. So from the second such brick
//! on others get theirs beside it, while nobody waits: of the copies less than half are there without need. A directory with a name or two stays on a brick or two.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use portcullis_core::volume::{DirId, MemberId, MemberSet};
use portcullis_wire::message::Failure;
use tracing::debug;

use crate::brick_link::BrickLink;
use crate::volume::Volume;

/// Directories of which it is known which copies were made here; when there are more, all are forgotten.
const DIRS_MAX: usize = 16 * 1024;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct CopiesAhead(Mutex<HashMap<DirId, Made>>);

#[derive(Clone, Copy, Debug, Default)]
struct Made {
    /// Members that were to have a name.
    needed: MemberSet,
    /// Those and the others that have got a copy, or are about to.
    all: MemberSet,
}

impl CopiesAhead {
    /// A member has got a copy since it is to have a name; which others are to get one, too.
    fn needed(&self, id: &DirId, member: MemberId) -> MemberSet {
        let mut dirs = self.0.lock();
        if dirs.len() >= DIRS_MAX {
            dirs.clear();
        }
        let made = dirs.entry(*id).or_default();
        made.needed = made.needed.with(member);
        made.all = made.all.with(member).with(id.home());
        // Not counting the home, which has its copy anyway.
        let all = made.all;
        let ahead = all.len().saturating_sub(1 + made.needed.len());
        let count = made.needed.len().saturating_sub(1 + ahead);
        let missing = id.members().iter().filter(|member| !all.contains(*member)).take(count);
        let ahead = missing.fold(MemberSet::EMPTY, MemberSet::with);
        made.all = ahead.iter().fold(all, MemberSet::with);
        ahead
    }
}

impl Volume {
    /// Sees to it that a brick has a copy of a directory, in which it is to have a name.
    pub(crate) async fn need_copy(
        self: &Arc<Self>,
        id: DirId,
        brick: &BrickLink,
    ) -> Result<(), Failure> {
        self.ensure_copy(id, brick).await?;
        for member in self.copies_ahead.needed(&id, brick.number as u8).iter() {
            let volume = self.clone();
            tokio::spawn(async move {
                let brick = volume.bricks.numbered(member).clone();
                if let Err(failure) = volume.ensure_copy(id, &brick).await {
                    // Whoever needs it has it made.
                    debug!(brick = %brick.address, %failure, "no copy of a directory ahead");
                }
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(layout: u8) -> DirId {
        DirId::new(layout, 0, [7; 14]).expect("an id")
    }

    fn members(set: MemberSet) -> Vec<MemberId> {
        set.iter().collect()
    }

    #[test]
    fn the_second_brick_that_needs_a_copy_takes_others_along() {
        let copies = CopiesAhead::default();
        assert!(copies.needed(&dir(4), 2).is_empty(), "one name or two");
        assert_eq!(members(copies.needed(&dir(4), 1)), [3]);
        assert!(copies.needed(&dir(4), 3).is_empty(), "all have one");
    }

    #[test]
    fn at_most_half_of_the_copies_are_not_needed() {
        let copies = CopiesAhead::default();
        let mut made = MemberSet::EMPTY;
        for (needed, member) in [15, 14, 13, 12, 11, 10].into_iter().enumerate() {
            made = copies.needed(&dir(16), member).iter().fold(made.with(member), MemberSet::with);
            assert_eq!(made.len(), 2 * needed + 1);
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let copies = CopiesAhead::default();
        for number in 0..2 * DIRS_MAX as u64 {
            let mut random = [0; 14];
            random[..8].copy_from_slice(&number.to_le_bytes());
            copies.needed(&DirId::new(4, 0, random).expect("an id"), 1);
        }
        assert!(copies.0.lock().len() <= DIRS_MAX);
    }
}
