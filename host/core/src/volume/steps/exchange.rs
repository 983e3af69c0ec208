//! renameat2(2) with `RENAME_EXCHANGE` of names that two members arbitrate.
//!
//! Both names are held. What the old one is to stand for is prepared at its arbiter; that of the new one
//! commits by the same change there; then the old one is changed, within the same operation: for a moment
//! both stand for the file that had the old name.
//!
//! Directories do not get another parent by it: that would need a look at the ancestors of both.

use super::End;
use super::completion::complete;
use super::rename::{Names, Stop, end_of, hold_name, pointer, renamed, touches};
use super::transaction::Transaction;
use crate::attr::FileKind;
use crate::status::Status;
use crate::volume::ask::{Change, Purpose};
use crate::volume::record::{LinkId, Record};
use crate::volume::transaction::Preparation;

pub(super) async fn exchange(
    transaction: &mut Transaction<'_>,
    names: &Names,
    link: LinkId,
) -> Result<End, Stop> {
    let Names { from, to } = names.clone();
    // As for a rename: names by member, and what is prepared holds the old one where its member is higher.
    let held = if from.arbiter() < to.arbiter() {
        Some(hold_name(transaction, from.clone(), Purpose::Take).await?)
    } else {
        None
    };
    let other = hold_name(transaction, to.clone(), Purpose::Take).await?.ok_or(Status::NotFound)?;
    check(&other, names)?;
    let (link, other_link) = (link, link ^ 1);
    let part = Preparation::Replace {
        place: from.clone(),
        pointer: pointer(&other.what, other_link),
        uid: other.uid,
        link,
    };
    let moved = transaction.prepare(from.arbiter(), part).await?.record.ok_or(Status::NotFound)?;
    // The hold of the old name may have ended with its member's life, and another be there now.
    if held.is_some_and(|held| held != Some(moved)) {
        return Err(Status::Busy.into());
    }
    if moved.what.handle() == other.what.handle() {
        return Ok(transaction.abandon());
    }
    check(&moved, names)?;
    let change = Change::Swap {
        place: to,
        pointer: pointer(&moved.what, link),
        uid: moved.uid,
        replaced: other.what.handle(),
        link: other_link,
    };
    let duties = transaction.commit(change).await.map_err(Stop::End)?;
    let (members, tx) = (transaction.members(), transaction.tx());
    let dirs = [moved, other].into_iter().filter_map(|record| record.what.spread());
    let calls = touches(names).into_iter().chain(dirs.map(renamed)).collect();
    let coordinator = transaction.coordinator();
    let mut completed = complete(members, tx, coordinator, duties, calls).await;
    completed.after.extend(transaction.lets_go());
    Ok(end_of(completed, names))
}

/// What cannot be exchanged: a directory that lies on one member as a whole, or that would get another
/// parent.
fn check(record: &Record, names: &Names) -> Result<(), Status> {
    let is_dir = record.what.kind() == FileKind::Directory;
    match record.what.spread() {
        None if is_dir => Err(Status::CrossDevice),
        Some(_) if names.from.dir != names.to.dir => Err(Status::InvalidArgument),
        _ => Ok(()),
    }
}
