//! How an open file is closed that has locks to give back, or that somebody waits for; the others
//! are closed many at a time ([`releases`](crate::releases)).

use portcullis_wire::Request;
use portcullis_wire::message::{Lock, LockKind, LockOwner, LockSort};

use crate::error::ClientError;
use crate::link::Link;
use crate::open_file::done;
use crate::releases::Closed;
use crate::session::Session;

/// Gives back the locks that nobody else gives back, and closes the file; on another connection
/// where one is lost meanwhile.
pub(crate) async fn release(
    link: &Link,
    mut closed: Closed,
    locks: &[Lock],
    unlock: Option<LockOwner>,
) -> Result<(), ClientError> {
    loop {
        let released = match link.session_for_closing().await {
            Ok(Some(session)) => release_on(link, &session, &mut closed, locks, unlock).await,
            Ok(None) => return Ok(()),
            Err(error) => Err(error),
        };
        if let Some(released) = link.outcome_of_closing(released).await {
            return released;
        }
    }
}

async fn release_on(
    link: &Link,
    session: &Session,
    closed: &mut Closed,
    locks: &[Lock],
    unlock: Option<LockOwner>,
) -> Result<(), ClientError> {
    let Some(file) = closed.id_on(link, session).await? else { return Ok(()) };
    for lock in locks.iter().filter(|lock| lock.sort == LockSort::Posix) {
        let lock = Lock { kind: LockKind::Unlock, ..*lock };
        // Closing the file is what matters.
        let _ = link.call_on(session, &Request::Setlk { file, lock, wait: false }).await;
    }
    done(link, link.call_on(session, &Request::Release { file, unlock }).await?)
}
