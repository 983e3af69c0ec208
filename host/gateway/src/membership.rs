//! Which volume the bricks are of: learnt from those that know, told to those that are new.
//!
//! A brick keeps for good which volume it is of and which of its bricks. A volume is made when all its
//! bricks are there and none is of any: the first is told so, then the others. So two gateways that
//! come first at the same time make one volume. A brick that stands alone is told nothing, and keeps
//! nothing; one that is of a volume refuses who does not know that.
//!
//! What must hold: nobody passes for a brick that was there before and had files. So the first brick
//! keeps which others have joined, and is told of each before that one is used; and a gateway that was
//! given fewer bricks than the volume has serves nobody.

use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;
use portcullis_core::Status;
use portcullis_core::volume::MemberSet;
use portcullis_transport::Connection;
use portcullis_wire::message::{Failure, Membership};
use portcullis_wire::{Reply, Request};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::bricks::Bricks;

/// How long a brick waits for another one's answer before it is connected to anew.
const FORMING_MS_MAX: u64 = 1_000;

/// What is known of the volume.
#[derive(Debug)]
pub(crate) struct Formation {
    count: usize,
    /// Its id, where it is made here.
    drawn: u128,
    state: Mutex<State>,
    /// Told of each change of the state.
    changed: watch::Sender<()>,
    /// Why nobody is served.
    refusal: OnceLock<String>,
}

#[derive(Debug)]
struct State {
    known: Option<Known>,
    /// Of each brick whether it is of a volume, as far as it said.
    is_member: Vec<Option<bool>>,
    /// Members that said so, of this volume.
    joined: MemberSet,
    /// What the first brick keeps.
    first: Option<Membership>,
    /// The way to it.
    way: Option<Connection>,
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

/// What is to be done about a brick.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// It knows all that it has to.
    Nothing,
    /// It is told this.
    Tell(Membership),
    /// It depends on what others say; why.
    Wait(String),
}

impl Formation {
    /// Of `count` bricks nothing is known yet.
    pub(crate) fn new(count: usize, drawn: u128) -> Self {
        let (is_member, joined) = (vec![None; count], MemberSet::EMPTY);
        let state = State { known: None, is_member, joined, first: None, way: None };
        let (state, changed) = (Mutex::new(state), watch::Sender::new(()));
        Self { count, drawn, state, changed, refusal: OnceLock::new() }
    }

    /// Fails where clients must not be served.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self.refusal.get() {
            Some(why) => Err(Failure::new(Status::InvalidArgument, why.clone())),
            None => Ok(()),
        }
    }

    /// What comes next after brick `number` said what it is.
    fn next(&self, number: usize, said: Said) -> Result<Next, String> {
        let mut state = self.state.lock();
        if state.is_member[number].replace(said.membership.is_some()).is_none() {
            self.changed.send_replace(());
        }
        match said.membership {
            Some(told) => self.of_member(number, &told, &mut state),
            None if said.has_files && number != 0 => {
                Err("it has files, which the volume would not \
                show: a brick is added empty, or is the first of a new volume"
                    .into())
            }
            None if number == 0 => self.of_first(said.has_files, &state),
            None => self.of_new(number, &state),
        }
    }

    fn of_member(
        &self,
        number: usize,
        told: &Membership,
        state: &mut State,
    ) -> Result<Next, String> {
        let (count, Membership { volume, member, count: before, .. }) = (self.count, *told);
        if usize::from(member) != number {
            return Err(format!(
                "it is brick {member} of its volume, and named here as brick {number}: name the \
                 bricks of a volume always in the same order"
            ));
        }
        if state.known.is_some_and(|known| known.volume != volume) {
            return Err("it is of another volume than the other bricks".into());
        }
        if usize::from(before) > count {
            let why = format!(
                "the volume has {before} bricks, and {count} are named here: name all of them"
            );
            return Err(self.refusal.get_or_init(|| why).clone());
        }
        state.joined = state.joined.with(member);
        let joined = if number == 0 { all_of(told.joined, state.joined) } else { told.joined };
        let wanted = Membership { count: count as u8, joined, ..*told };
        Ok(if wanted == *told { Next::Nothing } else { Next::Tell(wanted) })
    }

    /// The first brick is new, and so makes a new volume, with the others. Names that it has already
    /// stay as they are, with all that is made beside them.
    fn of_first(&self, has_files: bool, state: &State) -> Result<Next, String> {
        if state.is_member.contains(&Some(true)) {
            return Err("it is of no volume, and others are of one, whose first brick was there \
                        before: name that one, or bring its files back"
                .into());
        }
        if let Some(missing) = state.is_member.iter().position(Option::is_none) {
            return Ok(Next::Wait(format!(
                "a new volume is made when all its bricks are there, and brick {missing} has not \
                 answered yet"
            )));
        }
        let count = self.count as u8;
        let root_layout = if has_files { 1 } else { count };
        let joined = MemberSet::of(0);
        Ok(Next::Tell(Membership { volume: self.drawn, member: 0, count, root_layout, joined }))
    }

    /// Another one is new.
    fn of_new(&self, number: usize, state: &State) -> Result<Next, String> {
        let (Some(known), Some(first)) = (state.known, &state.first) else {
            let why = "it is new, and the first brick, which knows the volume, is away";
            return Ok(Next::Wait(why.into()));
        };
        let member = number as u8;
        if all_of(first.joined, state.joined).contains(member) {
            return Err(format!(
                "it is of no volume, and brick {number} of the volume was there before: name that \
                 one, or bring its files back. An empty directory in its place would hide that \
                 they are lost"
            ));
        }
        let Known { volume, root_layout } = known;
        let (count, joined) = (self.count as u8, MemberSet::EMPTY);
        Ok(Next::Tell(Membership { volume, member, count, root_layout, joined }))
    }

    /// A brick keeps this, as it says over this connection.
    fn learn(&self, told: &Membership, connection: &Connection) -> Result<(), String> {
        let mut state = self.state.lock();
        self.learn_volume(told, &mut state)?;
        if told.member == 0 {
            state.way = Some(connection.clone());
        }
        self.changed.send_replace(());
        Ok(())
    }

    fn learn_volume(&self, told: &Membership, state: &mut State) -> Result<(), String> {
        let Membership { volume, root_layout, member, .. } = *told;
        let known = state.known.get_or_insert(Known { volume, root_layout });
        if known.volume != volume {
            return Err("it is of another volume than the other bricks".into());
        }
        state.is_member[usize::from(member)] = Some(true);
        state.joined = state.joined.with(member);
        if member == 0 {
            state.first = Some(*told);
        }
        Ok(())
    }

    /// What the first brick is to be told, and the way to it, where it does not know all who have
    /// joined.
    fn to_note(&self) -> Option<(Membership, Connection)> {
        let state = self.state.lock();
        let (first, way) = (state.first?, state.way.clone()?);
        let joined = all_of(first.joined, state.joined);
        (joined != first.joined).then_some((Membership { joined, ..first }, way))
    }
}

/// Those of both.
fn all_of(some: MemberSet, others: MemberSet) -> MemberSet {
    others.iter().fold(some, MemberSet::with)
}

impl Bricks {
    /// Makes sure that brick `number` is the one that it is taken for.
    pub(crate) async fn join(&self, number: usize, connection: &Connection) -> Result<(), String> {
        if !self.are_several() {
            return Ok(());
        }
        let formation = &self.formation;
        let mut said = ask(connection, None).await?;
        let mut changed = formation.changed.subscribe();
        let is_new = said.membership.is_none();
        loop {
            match formation.next(number, said)? {
                Next::Nothing => break,
                Next::Tell(membership) => {
                    said = ask(connection, Some(membership)).await?;
                    break;
                }
                Next::Wait(why) => {
                    let limit = Duration::from_millis(FORMING_MS_MAX);
                    let told = timeout(limit, changed.changed()).await;
                    told.map_err(|_| why)?.map_err(|error| error.to_string())?;
                }
            }
        }
        let Some(told) = said.membership else { return Ok(()) };
        formation.learn(&told, connection)?;
        match self.note_joined().await {
            // The first brick is told when it is back.
            Err(_) if !is_new => Ok(()),
            noted => noted,
        }
    }

    /// Has the first brick keep who has joined.
    async fn note_joined(&self) -> Result<(), String> {
        let Some((membership, connection)) = self.formation.to_note() else { return Ok(()) };
        match ask(&connection, Some(membership)).await?.membership {
            Some(told) => self.formation.learn(&told, &connection),
            None => Err("the first brick does not keep which bricks have joined".into()),
        }
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
        Membership { volume, member, count, root_layout: 2, joined: MemberSet::EMPTY }
    }

    fn says(membership: Option<Membership>) -> Said {
        Said { membership, has_files: membership.is_some() }
    }

    fn learn(formation: &Formation, told: Membership) -> Result<(), String> {
        formation.learn_volume(&told, &mut formation.state.lock())
    }

    fn told(next: Result<Next, String>) -> Membership {
        match next {
            Ok(Next::Tell(membership)) => membership,
            other => panic!("{other:?}"),
        }
    }

    fn waits(next: Result<Next, String>) {
        assert!(matches!(next, Ok(Next::Wait(_))), "{next:?}");
    }

    #[test]
    fn a_volume_is_made_when_all_bricks_are_there_and_of_none() {
        let formation = Formation::new(2, 77);
        waits(formation.next(0, says(None)));
        waits(formation.next(1, says(None)));
        let first = told(formation.next(0, says(None)));
        assert_eq!(first, Membership { joined: MemberSet::of(0), ..member(77, 0, 2) });
        // Another gateway was quicker.
        learn(&formation, member(5, 0, 2)).expect("the first word of it");
        learn(&formation, member(77, 1, 2)).expect_err("two volumes");
    }

    #[test]
    fn files_that_were_there_before_stay_on_the_first_brick() {
        let formation = Formation::new(2, 77);
        let full = Said { membership: None, has_files: true };
        formation.next(1, full).expect_err("nobody would see them");
        waits(formation.next(1, says(None)));
        assert_eq!(told(formation.next(0, full)).root_layout, 1);
    }

    #[test]
    fn a_brick_is_refused_that_is_another_one() {
        let formation = Formation::new(2, 77);
        assert_eq!(formation.next(1, says(Some(member(5, 1, 2)))), Ok(Next::Nothing));
        learn(&formation, member(5, 1, 2)).expect("the first word of it");
        for other in [member(5, 1, 2), member(6, 0, 2)] {
            formation.next(0, says(Some(other))).expect_err("another place, another volume");
        }
        assert_eq!(formation.check(), Ok(()));
    }

    #[test]
    fn an_empty_first_brick_is_refused_where_others_are_of_a_volume() {
        let formation = Formation::new(2, 77);
        assert_eq!(formation.next(1, says(Some(member(5, 1, 2)))), Ok(Next::Nothing));
        formation.next(0, says(None)).expect_err("it is not the one that was there");
    }

    #[test]
    fn an_empty_brick_is_refused_in_the_place_of_one_that_had_joined() {
        let formation = Formation::new(3, 77);
        waits(formation.next(1, says(None)));
        let joined = MemberSet::first(2);
        learn(&formation, Membership { joined, ..member(5, 0, 3) }).expect("the first word of it");
        formation.next(1, says(None)).expect_err("it was there before");
        assert_eq!(told(formation.next(2, says(None))), member(5, 2, 3));
    }

    /// S-VOLUME-7.
    #[test]
    fn a_gateway_with_fewer_bricks_than_the_volume_serves_nobody() {
        let formation = Formation::new(2, 77);
        formation.next(1, says(Some(member(5, 1, 3)))).expect_err("the third is not named");
        let failure = formation.check().expect_err("names of the third would be absent");
        assert!(failure.detail.contains("3 bricks, and 2"), "{failure}");
    }

    #[test]
    fn a_volume_grows_and_its_first_brick_is_told_who_joined() {
        let formation = Formation::new(3, 77);
        let grown = told(formation.next(1, says(Some(member(5, 1, 2)))));
        assert_eq!(grown, member(5, 1, 3));
        let first = told(formation.next(0, says(Some(member(5, 0, 3)))));
        assert_eq!(first.joined, MemberSet::first(2));
    }
}
