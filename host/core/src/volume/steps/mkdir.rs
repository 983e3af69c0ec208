//! mkdir(2): the arbiter of the name is the home of the directory, so one member does it all.
//! Copies are made when a name is first to lie in one.

use super::copy::ask_with_copy;
use super::{End, Members, Told, touch};
use crate::volume::ask::Ask;
use crate::volume::id::DirId;
use crate::volume::transaction::Place;

pub(super) async fn mkdir(members: &Members, place: Place, mode: u32, id: DirId) -> End {
    let ask = Ask::Mkdir { place: place.clone(), mode, id };
    match ask_with_copy(members, &place, ask).await {
        Told::Made(entry) => {
            members.ask_all(touch(&place).into_iter().collect()).await;
            Ok(Some(Box::new(entry))).into()
        }
        other => other.failure_of_all().into(),
    }
}
