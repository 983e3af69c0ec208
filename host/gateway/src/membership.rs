//! Which volume the bricks are of: learnt from those that know, told to those that are new.
//!
//! A brick keeps for good which volume it is of and which of its bricks. The volume is made when the
//! first brick is told so; the others are told once it is known. So two gateways that come first at
//! the same time make one volume. A brick that stands alone is told nothing, and keeps nothing; one that
//! is of a volume refuses who does not know that.

use parking_lot::Mutex;
use portcullis_transport::Connection;
use portcullis_wire::message::Membership;
use portcullis_wire::{Reply, Request};

use crate::bricks::Bricks;

/// What is known of the volume.
#[derive(Debug)]
pub(crate) struct Formation {
    count: usize,
    /// Its id, where it is made here.
    drawn: u128,
    known: Mutex<Option<Known>>,
}

/// What a brick says of itself.
#[derive(Clone, Copy, Debug)]
struct Said {
    membership: Option<Membership>,
    has_files: bool,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    volume: u128,
    root_layout: u8,
}

impl Formation {
    /// Of `count` bricks nothing is known yet.
    pub(crate) fn new(count: usize, drawn: u128) -> Self {
        Self { count, drawn, known: Mutex::default() }
    }

    /// What brick `number` is to be told after it said what it is; `None` where it knows it all.
    fn next(&self, number: usize, said: Said) -> Result<Option<Membership>, String> {
        let count = self.count;
        let known = *self.known.lock();
        let Some(told) = said.membership else {
            return self.of_new(number, said.has_files, known);
        };
        let Membership { volume, member, count: before, .. } = told;
        if usize::from(member) != number {
            return Err(format!(
                "it is brick {member} of its volume, and named here as brick {number}: name the \
                 bricks of a volume always in the same order"
            ));
        }
        if usize::from(before) > count {
            return Err(format!(
                "its volume has {before} bricks, and {count} are named here: name all of them"
            ));
        }
        if known.is_some_and(|known| known.volume != volume) {
            return Err("it is of another volume than the other bricks".into());
        }
        let grown = Membership { count: count as u8, ..told };
        Ok((usize::from(before) < count).then_some(grown))
    }

    /// What a brick is to be told that is new. Names that the first one has already stay as they are,
    /// with all that is made beside them; of any other brick nobody would see them.
    fn of_new(
        &self,
        number: usize,
        has_files: bool,
        known: Option<Known>,
    ) -> Result<Option<Membership>, String> {
        if has_files && number != 0 {
            return Err(
                "it has files, which the volume would not show: a brick is added empty, or is \
                        the first of a new volume"
                    .into(),
            );
        }
        let (member, count) = (number as u8, self.count as u8);
        let root_layout = if has_files { 1 } else { count };
        let first = (number == 0).then_some(Known { volume: self.drawn, root_layout });
        let Some(Known { volume, root_layout }) = known.or(first) else {
            return Err("it is new, and the first brick, which makes the volume, is away".into());
        };
        Ok(Some(Membership { volume, member, count, root_layout }))
    }

    fn learn(&self, told: &Membership) -> Result<(), String> {
        let mut known = self.known.lock();
        let Membership { volume, root_layout, .. } = *told;
        if known.get_or_insert(Known { volume, root_layout }).volume == volume {
            return Ok(());
        }
        Err("it is of another volume than the other bricks".into())
    }
}

impl Bricks {
    /// Makes sure that brick `number` is the one that it is taken for.
    pub(crate) async fn join(&self, number: usize, connection: &Connection) -> Result<(), String> {
        if !self.are_several() {
            return Ok(());
        }
        let mut said = ask(connection, None).await?;
        if let Some(membership) = self.formation.next(number, said)? {
            said = ask(connection, Some(membership)).await?;
        }
        said.membership.map_or(Ok(()), |told| self.formation.learn(&told))
    }
}

async fn ask(connection: &Connection, membership: Option<Membership>) -> Result<Said, String> {
    match connection.call(&Request::Join { membership }).await {
        Ok(Reply::Joined { membership, has_files }) => Ok(Said { membership, has_files }),
        Ok(_) => Err("it answers a join with something else".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(volume: u128, member: u8, count: u8) -> Membership {
        Membership { volume, member, count, root_layout: 2 }
    }

    fn says(membership: Option<Membership>) -> Said {
        Said { membership, has_files: membership.is_some() }
    }

    #[test]
    fn files_that_were_there_before_stay_on_the_first_brick() {
        let formation = Formation::new(2, 77);
        let full = Said { membership: None, has_files: true };
        let first = formation.next(0, full).expect("it makes one").expect("it is new");
        assert_eq!(first, Membership { root_layout: 1, ..member(77, 0, 2) });
        formation.learn(&first).expect("the first word of it");
        formation.next(1, full).expect_err("nobody would see them");
        let second = formation.next(1, says(None)).expect("it is empty").expect("it is new");
        assert_eq!(second.root_layout, 1);
    }

    #[test]
    fn the_first_brick_makes_the_volume_and_the_others_wait_for_it() {
        let formation = Formation::new(2, 77);
        formation.next(1, says(None)).expect_err("there is no volume yet");
        let first = formation.next(0, says(None)).expect("it makes one").expect("it is new");
        assert_eq!(first, member(77, 0, 2));
        // Another gateway was quicker.
        formation.learn(&member(5, 0, 2)).expect("the first word of it");
        assert_eq!(formation.next(1, says(None)), Ok(Some(member(5, 1, 2))));
        formation.learn(&member(77, 1, 2)).expect_err("two volumes");
    }

    #[test]
    fn a_brick_is_refused_that_is_another_one() {
        let formation = Formation::new(2, 77);
        assert_eq!(formation.next(1, says(Some(member(5, 1, 2)))), Ok(None), "it knows it all");
        formation.learn(&member(5, 1, 2)).expect("the first word of it");
        for other in [member(5, 1, 2), member(5, 0, 3), member(6, 0, 2)] {
            formation
                .next(0, says(Some(other)))
                .expect_err("another place, a larger volume, another");
        }
    }

    #[test]
    fn a_volume_grows() {
        let formation = Formation::new(3, 77);
        assert_eq!(formation.next(1, says(Some(member(5, 1, 2)))), Ok(Some(member(5, 1, 3))));
    }
}
