//! All copies of a directory are closed, so that it can be removed: none has a name, none gets one.

use super::transaction::Transaction;
use crate::status::Status;
use crate::volume::id::DirId;
use crate::volume::transaction::Preparation;

/// Seals the home, which then lets nobody make another copy, and all who have one.
pub(super) async fn seal(transaction: &mut Transaction<'_>, id: DirId) -> Result<(), Status> {
    if id.is_root() {
        return Err(Status::InUse);
    }
    let home = transaction.prepare(id.home(), Preparation::Seal { id }).await?;
    let copies = home.copies.without(id.home());
    transaction.prepare_all(copies, Preparation::Seal { id }).await?;
    Ok(())
}
