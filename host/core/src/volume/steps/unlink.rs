//! unlink(2): of a body one member's work. A pointer is removed first, which commits it; then the
//! file loses the hidden name that belonged to the pointer.

use super::completion::complete;
use super::{End, Members, Told, touch};
use crate::volume::ask::Ask;
use crate::volume::transaction::{Place, TxId};

pub(super) async fn unlink(members: &Members, tx: TxId, place: Place) -> End {
    let arbiter = place.arbiter();
    let touch = touch(&place);
    match members.ask(arbiter, Ask::Unlink { tx, place }).await {
        Told::Committed { duties } => {
            complete(members, tx, arbiter, duties, touch.into_iter().collect()).await.into_end()
        }
        other => other.failure_of_all().into(),
    }
}
