//! A member gets a copy of a directory, when it is first to have a name of it.
//!
//! No copy may appear of a directory that was removed, however late who makes it is. So it begins
//! with a ticket at the member, then the home notes that the member will have a copy, then the copy
//! is made, if the ticket is still good. Who removes the directory seals its home first, and is
//! told there whom else to seal; a seal makes tickets void. So either the seal comes to the home
//! first, and tells who asks there to wait, or it comes to the member too.

use super::{Members, Told};
use crate::limits::COPY_TRIES_MAX;
use crate::status::Status;
use crate::volume::ask::Ask;
use crate::volume::id::DirId;
use crate::volume::member::MemberId;
use crate::volume::transaction::Place;

/// Sees to it that `member` has a copy of a directory. `Stale` where the directory is gone.
pub(super) async fn ensure_copy(
    members: &Members,
    id: DirId,
    member: MemberId,
) -> Result<(), Status> {
    for _ in 0..COPY_TRIES_MAX {
        let ticket = match members.ask(member, Ask::ExpectCopy { id }).await {
            Told::Ticket(ticket) => ticket,
            Told::Done => return Ok(()),
            other => return Err(other.failure()),
        };
        let attr = match members.ask(id.home(), Ask::Enlist { id, member }).await {
            Told::Copy { attr, .. } => attr,
            other => return Err(other.failure()),
        };
        match members.ask(member, Ask::MakeCopy { id, ticket, attr }).await {
            Told::Done => return Ok(()),
            Told::NoTicket => {}
            other => return Err(other.failure()),
        }
    }
    Err(Status::InUse)
}

/// Asks the arbiter of a name something for which it needs a copy of the directory.
pub(super) async fn ask_with_copy(members: &Members, place: &Place, ask: Ask) -> Told {
    let member = place.arbiter();
    for _ in 0..COPY_TRIES_MAX {
        let told = members.ask(member, ask.clone()).await;
        let (Told::NoCopy, Some(id)) = (&told, DirId::of_handle(&place.dir)) else { return told };
        if id.home() == member {
            return Told::Failed(Status::Stale);
        }
        if let Err(status) = ensure_copy(members, id, member).await {
            return refused(members, &ask, status);
        }
    }
    refused(members, &ask, Status::InUse)
}

/// Why it is not asked. Where it is an operation by itself which was asked before, whoever leads it may
/// be at it yet, and nobody knows.
fn refused(members: &Members, ask: &Ask, status: Status) -> Told {
    let is_whole = matches!(ask, Ask::Mkdir { .. } | Ask::Link { .. } | Ask::Rename { .. });
    let is_again = members.asked.is_some_and(|asked| asked.is_again);
    if is_whole && is_again { Told::Lost } else { Told::Failed(status) }
}
