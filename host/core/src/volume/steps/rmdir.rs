//! rmdir(2): one member's work where it alone has the directory. Else every copy is sealed, the
//! pointer is removed, which commits it, and the copies go.

use super::completion::complete;
use super::seal::seal;
use super::transaction::{Earlier, Transaction, refused};
use super::{End, Members, Told, touch};
use crate::attr::FileKind;
use crate::status::Status;
use crate::volume::ask::{Ask, Change, Purpose};
use crate::volume::transaction::{Place, TxId};

pub(super) async fn rmdir(members: &Members, tx: TxId, place: Place) -> End {
    let arbiter = place.arbiter();
    match members.ask(arbiter, Ask::Rmdir { place: place.clone() }).await {
        Told::Done => {
            members.ask_all(touch(&place).into_iter().collect()).await;
            Ok(None).into()
        }
        Told::Elsewhere => on_all(members, tx, place).await,
        other => other.failure_of_all().into(),
    }
}

async fn on_all(members: &Members, tx: TxId, place: Place) -> End {
    let arbiter = place.arbiter();
    let mut transaction = Transaction::new(members, tx, arbiter);
    let touched = touch(&place).into_iter().collect();
    match transaction.take_over().await {
        Earlier::Nothing => {}
        Earlier::Committed(tx, duties) => {
            return complete(members, tx, arbiter, duties, touched).await.into_end();
        }
        Earlier::Unknown(end) => return end,
    }
    transaction.holds_on(arbiter);
    let hold = Ask::Hold { tx, place: place.clone(), purpose: Purpose::Take };
    let record = match members.ask(arbiter, hold).await {
        Told::Record(Some(record)) => record,
        other => return refused(&transaction, other.failure(), touched).await,
    };
    let Some(id) = record.what.spread() else {
        // Another took its place meanwhile.
        let is_dir = record.what.kind() == FileKind::Directory;
        let status = if is_dir { Status::Busy } else { Status::NotDirectory };
        return refused(&transaction, status, touched).await;
    };
    if let Err(status) = seal(&mut transaction, id).await {
        return refused(&transaction, status, touched).await;
    }
    let duties = match transaction.commit(Change::Remove { place: place.clone() }).await {
        Ok(duties) => duties,
        Err(end) => return end,
    };
    complete(members, tx, arbiter, duties, touched).await.into_end()
}
